package rollout

import "slices"

// Passing is an operation on the record that stops a member for a while, such as a defragmentation. Nobody knows
// whether it still does.
type Passing struct {
	// Operation is its name on the record.
	Operation string
	Member    MemberRef
}

// Passed is true if the member that may still be stopped answers reads, or cannot be stopped any more: its process has
// ended, it has left the list of members, or it was one of another cluster. Without a quorum nobody answers, so nobody
// is relied on, and the cure must not wait for it. It does not say for how long that has been so.
func (a *Assessment) Passed() bool {
	on, etcd := a.state.UnderWay, &a.state.Etcd
	switch {
	case on == nil:
		return true
	case !etcd.Known:
		return false
	case etcd.ClusterID != on.Member.Cluster:
		return true
	}
	i := slices.IndexFunc(etcd.Members, func(m Member) bool { return m.ID == on.Member.ID })
	if i < 0 {
		return etcd.Linearizable
	}
	for j := range a.Seats {
		s := &a.Seats[j]
		if s.Member == &etcd.Members[i] && (s.Pod == nil || s.Pod.Etcd.State != ContainerRunning) {
			return true
		}
	}
	return a.answers(&etcd.Members[i]) || a.Voters > 1 && !slices.ContainsFunc(etcd.Members, func(m Member) bool {
		return !m.Learner && a.answers(&m)
	})
}

// stopped is true for the member that an operation on the record may still keep from answering. It counts as not
// serving, although it may answer now: the call may yet arrive.
func (a *Assessment) stopped(m *Member) bool {
	on := a.state.UnderWay
	return on != nil && on.Member.ID == m.ID && on.Member.Cluster == a.state.Etcd.ClusterID
}

// underWay keeps everything else from beginning, as the record's protocol does.
func underWay(a *Assessment, _ *Seat) Verdict {
	on := a.state.UnderWay
	if on == nil {
		return Verdict{Pass: true}
	}
	seen := "it does not answer yet"
	if a.Passed() {
		seen = "it answers"
	}
	return Verdict{text: "the record names an operation whose end nobody " +
		"knows, " + on.Operation + " " + on.Member.Name +
		": " + seen + ", and it has to have answered for a while after the call's time is over"}
}
