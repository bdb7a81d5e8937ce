// Package election lets one of the sidecars of an etcd cluster do what only one of them should do.
//
// It is built on [concurrency.Session] and [concurrency.Mutex], and their keys lie in the etcd that the sidecars serve.
// It changes without notice before version 1.
//
// A host builds a [Config], calls [New], and runs [Candidate.Run] until its own shutdown. While [Candidate.Tenure] is
// not nil, this process owns the lock. It gives that back by [Candidate.Resign], also at the end.
//
// # What the lock guarantees, and what not
//
// The lock is a preference: it says who should try. An owner can be paused for longer than its session lasts, and wake
// up. So no safety may rest on it. Before it claims anything, an owner asks etcd by [Tenure.Owns].
//
// # What is in etcd
//
// Under Config.Prefix, each candidate has two keys on one lease: PREFIX/lock/LEASE is its place in the queue (see
// Mutex), and PREFIX/presence/LEASE has its [selfupdate.Presence], which says who it is. Whoever is unfit has only the
// second one.
//
// The lease is granted for a day more than Config.TTL, and is kept alive all the time. Whoever finds that less than a
// day is left of it knows that its owner has been silent for a TTL. So no lease of ours expires in an etcd that runs
// without sidecars, above all in the one in which etcd-backup-restore replays a backup: an expiry takes a revision, and
// the backup could not be restored.
//
// # What stands beside Session and Mutex
//
//   - Deadlines. Neither of them has any. Each session has a client of its own, whose every request gets a deadline and
//     requires a leader. Lock runs in a goroutine of the session, and nobody cancels it alone: whoever gives up closes
//     the client, and waits for the goroutine.
//   - Life. Session keeps its lease alive once in a third of its time, which is eight hours here, and notices its end
//     after a day. The client's Lease is replaced, so that Session.Done follows keep-alives of our own.
//   - Dead owners. A janitor runs in every session. Whoever waits looks at the first key in the queue, and the owner
//     looks at all keys. It removes what has not been kept alive for a TTL, and keys without a lease, which have come
//     back from a backup. Each removal is guarded by the key's revision.
//   - Being passed over. An owner may hand the lock over to any peer. Those that wait before it lose their places in
//     the same transaction, so that the owner changes once. They line up again a moment later, with the same session.
//     The same happens when etcd has compacted what a quiet watch has seen.
//   - Ownership. Lock may have returned long ago, so Owns asks in a transaction that reads.
//   - Release. Mutex's Unlock deletes whatever is there now. Ours is guarded by the key's revision, takes a second at
//     most, and goes over any member that answers.
//
// # Where a session lives
//
// When an etcd member is told to end, it waits up to seven seconds for the streams of its clients. A session has two:
// one for its keep-alives and, while it waits, one for its watch. So it lives at the member of its own pod, with which
// it ends, and nowhere else (Config.AtHome). Until that member serves there is no session. When it has been silent for
// a TTL, the session ends. An owner then releases the lock over another member, by a request that is answered at once.
//
// While its own member is silent, a candidate asks the other members whether somebody else has the lock. That counts as
// much as a session that is confirmed (see [Candidate.Silent]), because nobody needs this process then.
//
// A process without a member of its own (a Job, a laptop) has no stream at all. It opens one for each keep-alive, and
// instead of watching the key before its own, it asks for it. So it is up to Config.KeepAlive later than others.
package election
