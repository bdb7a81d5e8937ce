package rollout

import (
	"slices"
	"time"
)

// These guards are asked before a member gets another minor version of etcd, whether it serves or not, and whether
// others have it already: a member that restarts for a moment would begin the step that is held otherwise, and so
// would a pod that comes back with the new template after its node was lost. There are two sorts.
//
// What hurts the others (UpgradePath, BeforeLast) is asked while any of them may be alive. Where all have been dead for
// long, the update may be the cure, and there is nobody left to hurt. What costs only the member that gets it
// (Downgrade, KnownArguments) is not asked about one that has been dead for long.
//
// None is asked on the way back to a revision that was there before the candidate's.

// changes is true for a candidate that would get another minor version. Where nobody can tell, that is told
// before the first pod of a rollout goes.
func (a *Assessment) changes(c *Replica) bool {
	s := a.Step()
	if a.state.Set.Etcd.Image == "" || s.Same || c.Pod.EtcdImage == a.state.Set.Etcd.Image {
		return false
	}
	if s.Unknown != "" {
		return a.begins
	}
	own, said := a.versionOf(c)
	return (!said || own.minor() != s.To.minor()) && !a.wayBack(c)
}

// stepHarms is true where such a step may take others down, and some may be alive.
func stepHarms(a *Assessment, c *Replica) bool {
	s := a.Step()
	return a.changes(c) && (s.Unknown != "" || !s.down()) && !a.allDead(a.getsIt)
}

// stepDown is true for a candidate that would get an older version.
func stepDown(a *Assessment, c *Replica) bool {
	s := a.Step()
	if !a.changes(c) || s.Unknown != "" || a.longDead(c) {
		return false
	}
	own, said := a.versionOf(c)
	return said && s.To.less(own.minor()) || !said && s.down()
}

// newArguments is true for a candidate that would get the arguments of a version that nobody has tried them with: no
// pod of the new revision has settled. Within a minor version that matters only where the new release knows less.
func newArguments(a *Assessment, c *Replica) bool {
	return a.Step().Unknown == "" && a.trial.settled == 0 && !a.longDead(c) && (a.changes(c) || a.loses(c))
}

// deadFor says for how long no process of the replica's member has run. A crash loop runs for a moment between its
// restarts, and backs off for at most as long as settleTimeout. So those moments do not count, or it would never be old
// enough. A pod that is merely terminating may have a process.
// A member that answers has one, whatever its kubelet says.
func (a *Assessment) deadFor(r *Replica) time.Duration {
	switch {
	case r.Member != nil && (r.Member.Probe.Read == Answered || r.Member.Probe.Status != nil):
		return 0
	case r.Pod == nil:
		return a.Age(r.Name, AwaySeen)
	}
	down := a.Age(r.Pod.UID, NotRunningSeen)
	if r.ContainerDead && r.Pod.Etcd.State == ContainerWaiting {
		down = max(down, a.Age(r.Pod.UID, RestartingSeen))
	}
	return down
}

// longDead is true for a member that has been dead for settleTimeout. It does not come back by itself.
func (a *Assessment) longDead(r *Replica) bool { return a.deadFor(r) >= a.policy.SettleTimeout }

// getsIt is true for a pod that has the new revision, or comes back with it because we have removed it. The step
// has been made there, and can hurt it no more: where all were dead, the second one must follow the first.
func (a *Assessment) getsIt(r *Replica) bool {
	return r.Pod != nil && !r.Outdated || r.Going() && slices.Contains(a.state.Removed, r.Name)
}

func nobody(*Replica) bool { return false }

// allDead is true where every voter has been dead for long, but for some. Of one without a pod of ours nobody knows,
// unless it is a ghost. Where all are dead there is mostly no member list, and then every pod of ours counts.
func (a *Assessment) allDead(but func(*Replica) bool) bool {
	for i := range a.Replicas {
		if r := &a.Replicas[i]; (r.Member == nil || r.Voter) && !a.longDead(r) && !but(r) {
			return false
		}
	}
	return !slices.ContainsFunc(a.External, func(m *Member) bool {
		g := a.ghost(m.ID)
		return g == nil || !a.Lasting(g)
	})
}

// checked is a guard that asks its rows of [Checks].
func checked(guard Guard) func(*Assessment, *Replica) Verdict {
	return func(a *Assessment, c *Replica) Verdict {
		s := a.Step()
		if s.Unknown != "" {
			return Verdict{Pass: true, text: "not checked: " + s.Unknown}
		}
		for i := range Checks {
			row := &Checks[i]
			if row.Guard != guard {
				continue
			}
			if applies, _ := row.Applies(s); applies {
				text := s.describe() + ": " + row.Why + "; " + row.Do
				if guard == GuardUpgradePath && c.Evidence == Down {
					text += "; if only the new version can bring this member back: quorate override " +
						a.state.Set.Name + " " + string(guard)
				}
				return Verdict{text: text}
			}
		}
		if why := unlisted(s.To); why != "" {
			return Verdict{Pass: true, text: s.describe() + ": not checked: " + why}
		}
		return Verdict{Pass: true, text: s.describe() + ": nothing is known against it"}
	}
}

// listsTold is true before the first pod of a rollout goes, where a member that serves was asked for its own list. A
// member that does not serve is healed whatever the lists say, unless that makes a step of etcd's version begin.
func listsTold(a *Assessment, c *Replica) bool {
	return a.begins && slices.ContainsFunc(a.state.Etcd.Members, func(m Member) bool { return a.lists(&m) }) &&
		(c.Evidence != Down || a.Step().Unknown == "" && a.changes(c))
}

// lists is true for a voter whose own member list counts. One that does not serve may be behind.
func (a *Assessment) lists(m *Member) bool { return !m.Learner && m.Probe.OwnList != "" && a.serves(m) }

// listsAgree: quorum is counted by one list. Where members have different ones, nobody knows who votes.
func listsAgree(a *Assessment, _ *Replica) Verdict {
	var first *Member
	same := 0
	for i := range a.state.Etcd.Members {
		switch m := &a.state.Etcd.Members[i]; {
		case !a.lists(m):
		case first == nil:
			first, same = m, 1
		case m.Probe.OwnList != first.Probe.OwnList:
			return Verdict{text: "the members' own lists differ: " + first.label() + " has " + first.Probe.OwnList +
				", and " + m.label() + " has " + m.Probe.OwnList}
		default:
			same++
		}
	}
	return passed("voters that serve and have the same list: %d of %d", same, a.Serving)
}

// endsStep is true for a member that is the last one of an older minor version, where the operator wants
// to be asked before it goes.
func endsStep(a *Assessment, c *Replica) bool {
	if !a.policy.HoldBeforeLast {
		return false
	}
	to, known := a.newVersion()
	// A member of which nothing is known may serve, and then this is only for a moment. One that does not
	// answer, and whose image does not tell its version either, may need the update.
	if own, told := a.versionOf(c); !known || told && !own.minor().less(to.minor()) || !told && c.Evidence != Serving ||
		a.wayBack(c) || a.allDead(nobody) {
		return false
	}
	for i := range a.Replicas {
		r := &a.Replicas[i]
		if r == c || r.Going() || !r.Outdated {
			continue
		}
		if v, told := a.versionOf(r); !told || v.minor().less(to.minor()) {
			return false
		}
	}
	return !slices.ContainsFunc(a.External, func(m *Member) bool {
		v, told := m.version()
		return told && v.minor().less(to.minor())
	})
}

// newVersion is the version that the new revision has: by its image, else by what its members tell.
func (a *Assessment) newVersion() (v Version, known bool) {
	if v, known = versionIn(a.state.Set.Etcd.Image, a.state.Controls.EtcdVersions); known {
		return v, true
	}
	for i := range a.Replicas {
		if r := &a.Replicas[i]; r.Pod != nil && !r.Outdated && r.Member != nil {
			if told, ok := r.Member.version(); ok && (!known || v.less(told)) {
				v, known = told, true
			}
		}
	}
	return v, known
}

// versionOf is what the replica's member tells, else what its pod's image says.
func (a *Assessment) versionOf(r *Replica) (Version, bool) {
	if r.Member != nil {
		if v, told := r.Member.version(); told {
			return v, true
		}
	}
	return versionIn(r.Pod.EtcdImage, a.state.Controls.EtcdVersions)
}

func (m *Member) version() (Version, bool) {
	if m.Probe.Status == nil {
		return Version{}, false
	}
	return ParseVersion(m.Probe.Status.Version)
}

// beforeLast: the version of the cluster rises when its last member runs the new one, and no member of the
// old one can join any more.
func beforeLast(a *Assessment, _ *Replica) Verdict {
	to, _ := a.newVersion()
	allowance := a.state.Set.Allowance()
	if a.state.Controls.AllowLast == allowance {
		return Verdict{Pass: true, text: "the last member of an older version than " + to.InWords() +
			", and somebody has let it go (" + ControlAllowLast + ")"}
	}
	return Verdict{text: "when this one has gone, every member runs etcd " + to.InWords() + ", and there is no way " +
		"back; to let it go: quorate resume " + a.state.Set.Name + ", or " + ControlAllowLast + "=" + allowance +
		" on the Lease"}
}
