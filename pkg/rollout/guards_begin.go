package rollout

import "slices"

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
func changes(a *Assessment, c *Replica) bool {
	s := a.Step()
	if a.state.Set.Etcd.Image == "" || s.Same || c.Pod.EtcdImage == a.state.Set.Etcd.Image {
		return false
	}
	if s.Unknown != "" {
		return a.begins
	}
	own, said := a.state.versionOf(c)
	return (!said || own.minor() != s.To.minor()) && !a.state.wayBack(c)
}

// stepHarms is true where such a step may take others down, and some may be alive.
func stepHarms(a *Assessment, c *Replica) bool {
	s := a.Step()
	return changes(a, c) && (s.Unknown != "" || !s.down()) && !allDead(a, func(r *Replica) bool { return getsIt(a, r) })
}

// stepDown is true for a candidate that would get an older version.
func stepDown(a *Assessment, c *Replica) bool {
	s := a.Step()
	if !changes(a, c) || s.Unknown != "" || longDead(a, c) {
		return false
	}
	own, said := a.state.versionOf(c)
	return said && s.To.less(own.minor()) || !said && s.down()
}

// newArguments is true for a candidate that would get the arguments of a version that nobody has tried them with: no
// pod of the new revision has settled. Within a minor version that matters only where the new release knows less.
func newArguments(a *Assessment, c *Replica) bool {
	return a.Step().Unknown == "" && a.trial.settled == 0 && !longDead(a, c) && (changes(a, c) || loses(a, c))
}

// longDead is true for a member that has been dead for settleTimeout. It does not come back by itself.
func longDead(a *Assessment, r *Replica) bool { return r.deadFor >= a.policy.SettleTimeout }

// getsIt is true for a pod that has the new revision, or comes back with it because we have removed it. The step
// has been made there, and can hurt it no more: where all were dead, the second one must follow the first.
func getsIt(a *Assessment, r *Replica) bool {
	return r.Pod != nil && !r.Outdated || r.Going() && slices.Contains(a.state.Removed, r.Name)
}

func nobody(*Replica) bool { return false }

// allDead is true where every voter has been dead for long, but for some. Of one without a pod of ours nobody knows,
// unless it is a ghost. Where all are dead there is mostly no member list, and then every pod of ours counts.
func allDead(a *Assessment, but func(*Replica) bool) bool {
	for i := range a.Replicas {
		if r := &a.Replicas[i]; (r.Member == nil || r.Voter) && !longDead(a, r) && !but(r) {
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
					text += a.Named("; if only the new version can bring this member back: quorate override " +
						"-n NAMESPACE NAME " + string(guard) + " --reason=TEXT")
				}
				return Verdict{text: text}
			}
		}
		if why := unlisted(s.To); why != "" {
			return Verdict{Pass: true, text: s.describe() + ": not checked: " + why}
		}
		return Verdict{Pass: true, text: s.describe() + ": no problem is known"}
	}
}

// listsTold is true before the first pod of a rollout goes, where a member that serves was asked for its own list. A
// member that does not serve is healed whatever the lists say, unless that makes a step of etcd's version begin.
func listsTold(a *Assessment, c *Replica) bool {
	return a.begins && slices.ContainsFunc(a.state.Etcd.Members, func(m Member) bool { return ownListCounts(a, &m) }) &&
		(c.Evidence != Down || a.Step().Unknown == "" && changes(a, c))
}

// ownListCounts is true for a voter whose own member list counts. One that does not serve may be behind.
func ownListCounts(a *Assessment, m *Member) bool {
	return !m.Learner && m.Probe.OwnList != "" && a.serves(m)
}

// listsAgree: quorum is counted by one list. Where members have different ones, nobody knows who votes.
func listsAgree(a *Assessment, _ *Replica) Verdict {
	var first *Member
	same := 0
	for i := range a.state.Etcd.Members {
		switch m := &a.state.Etcd.Members[i]; {
		case !ownListCounts(a, m):
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
	to, known := newVersion(a)
	// A member of which nothing is known may serve, and then this is only for a moment. One that does not
	// answer, and whose image does not tell its version either, may need the update.
	own, told := a.state.versionOf(c)
	switch {
	case !known, told && !own.minor().less(to.minor()), !told && c.Evidence != Serving:
		return false
	case a.state.wayBack(c), allDead(a, nobody):
		return false
	}
	for i := range a.Replicas {
		r := &a.Replicas[i]
		if r == c || r.Going() || !r.Outdated {
			continue
		}
		if v, told := a.state.versionOf(r); !told || v.minor().less(to.minor()) {
			return false
		}
	}
	return !slices.ContainsFunc(a.External, func(m *Member) bool {
		v, told := m.version()
		return told && v.minor().less(to.minor())
	})
}

// newVersion is the version that the new revision has: by its image, else by what its members tell.
func newVersion(a *Assessment) (v Version, known bool) {
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

func (m *Member) version() (Version, bool) {
	if m.Probe.Status == nil {
		return Version{}, false
	}
	return ParseVersion(m.Probe.Status.Version)
}

// beforeLast: the version of the cluster rises when its last member runs the new one, and no member of the
// old one can join any more.
func beforeLast(a *Assessment, _ *Replica) Verdict {
	to, _ := newVersion(a)
	allowance := a.state.Set.Allowance()
	if a.state.Controls.AllowLast == allowance {
		return Verdict{Pass: true, text: "the last member of a version older than " + to.InWords() +
			", and somebody has let it go (" + ControlAllowLast + ")"}
	}
	return Verdict{text: "once this one is gone, every member runs etcd " + to.InWords() + ", and there is no way " +
		"back; to let it go: " + a.Named("quorate resume -n NAMESPACE NAME") + ", or " + ControlAllowLast + "=" +
		allowance + " on the Lease"}
}
