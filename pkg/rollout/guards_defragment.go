package rollout

import "time"

// These guards are asked before a member is defragmented, which keeps it from answering for a while.

// allServing: every voter serves and has caught up, no pod is missing or settling, and the voters without
// this one are a quorum. It is asked anew before each member, so each is seen to serve and to have caught up before
// the next one stops.
func allServing(a *Assessment, c *Replica) Verdict {
	for i := range a.Replicas {
		if r := &a.Replicas[i]; unwell(a, r) {
			return Verdict{text: r.Name + ": " + r.Describe()}
		}
	}
	if p := a.state.beyond(); p != nil {
		return Verdict{text: p.Name + " is being scaled away"}
	}
	left := a.survivorsWithout(c)
	switch {
	case a.Serving < a.Voters:
		v := verdict(false, "%d of %d voters serve", a.Serving, a.Voters)
		v.text = a.ghostsGo()
		return v
	case a.onlyMember:
		return passed("the only member: it answers nothing meanwhile, and nobody else could")
	}
	return verdict(left >= a.Quorum, "%d of %d voters serve, quorum %d, without this one %d", a.Serving, a.Voters,
		a.Quorum,
		left)
}

// unwell is true for a replica that is to be waited for. With NOSPACE a pod may be unready for that alone, so its
// member counts there, once the pod is a while old.
func unwell(a *Assessment, r *Replica) bool {
	switch {
	case r.Going(), !r.useful():
		return true
	case r.Outdated, r.Settled:
		return false
	}
	return !a.noSpace || a.Age(r.Pod.UID, PodSeen) < time.Minute
}

// followersFirst: the leader goes last, after it has handed over to a member that has been defragmented or needs it
// not. In its place it would keep every write from being agreed on.
func followersFirst(a *Assessment, c *Replica) Verdict {
	switch {
	case a.onlyMember:
		return passed("the only member")
	case a.Leader == 0:
		return verdict(false, "the members that answer agree on no leader, so this one may be it")
	case !c.Leader:
		return passed("does not lead")
	case a.state.FailedTransfers[c.Member.ID] >= MaxTransferFailures:
		v := verdict(false, "leads, and %d attempts to hand over have failed", a.state.FailedTransfers[c.Member.ID])
		v.lasting = true
		return v
	}
	if followers := len(defragmentingOf(a).fragmented()) - 1; followers > 0 {
		return verdict(false, "leads, so it goes after the followers (left: %d)", followers)
	}
	return passed("leads, and hands over first")
}

// appliesSnapshots: before 3.5.23 and 3.6.5, a member that applies a snapshot of the leader's while it is defragmented
// may end with a database that is neither (etcd-io/etcd#20271). Nothing that etcd tells over its API shows a snapshot.
// But the leader sends one only to a member that is behind by more entries than it keeps, 5000 by default, and a member
// that applies one answers no linearizable read. So a member that has answered one, and is hardly behind, receives
// none.
func appliesSnapshots(_ *Assessment, c *Replica) Verdict {
	if c.Member.Learner {
		return Verdict{text: "is a learner, and learners begin with a snapshot; etcd " + versionText(c.Member) +
			" must not be defragmented while it applies one"}
	}
	return verdict(c.Member.Probe.Status != nil && c.Lag <= snapshotLag,
		"its etcd must not be defragmented while it applies a snapshot; it is %d entries behind, at most %d are "+
			"allowed",
		int(c.Lag), snapshotLag) //nolint:gosec // A log has fewer.
}

// snapshotLag is how far a member may be behind that certainly receives no snapshot: far fewer entries than a leader
// keeps, also where an operator has it keep fewer.
const snapshotLag = 500

// snapshotsUnsafe is true for a member whose version has that fault, or does not tell its version.
func snapshotsUnsafe(_ *Assessment, c *Replica) bool {
	v, told := c.Member.version()
	switch {
	case !told:
		return true
	case v.Major > 3 || v.Minor > 6:
		return false
	case v.Minor == 6:
		return v.Patch < 5
	case v.Minor == 5:
		return v.Patch < 23
	}
	return true
}

// versionText is the version of a member in its own words.
func versionText(m *Member) string {
	if m.Probe.Status == nil {
		return ""
	}
	return m.Probe.Status.Version
}

// hostDefragments: the host begins a defragmentation by its own clock, and asks nobody. With an alarm NOSPACE nobody
// waits for it.
func hostDefragments(a *Assessment, _ *Replica) Verdict {
	if a.noSpace {
		return passed("etcd takes no writes, so the host's own schedule is not waited for")
	}
	return Verdict{text: "the host defragments all members by itself (" + a.policy.HostDefragments +
		"), and two at a time could take the quorum"}
}

func hostHasSchedule(a *Assessment, _ *Replica) bool { return a.policy.HostDefragments != "" }

// ownURL: a member that answers only where others answer as well cannot be asked for what stops it.
func ownURL(_ *Assessment, c *Replica) Verdict {
	p := &c.Member.Probe
	v := Verdict{text: "it answers only at " + p.URL + ", which other members advertise too, so the request could " +
		"reach another one"}
	if v.lasting = p.OnlyShared; v.lasting {
		v.text += "; set --advertise-client-urls to the pod's own name"
	}
	return v
}

func answersAtShared(_ *Assessment, c *Replica) bool { return c.Member.Probe.Shared }

// defragmentFails: what has failed again and again, or is forbidden, is not tried on. Any other try has to wait a bit.
func defragmentFails(a *Assessment, c *Replica) Verdict {
	try := a.state.Tries[c.Member.ID]
	lasting := try.Lasting || try.Failed >= mostFailures
	v := verdict(!lasting && !try.Resting, "defragmentations of this member that have failed in a row: %d", try.Failed)
	v.lasting = lasting
	if try.Words != "" {
		v.text = "; the last one: " + try.Words
	}
	return v
}

func hasTried(a *Assessment, c *Replica) bool {
	try := a.state.Tries[c.Member.ID]
	return try.Failed > 0 || try.Resting
}
