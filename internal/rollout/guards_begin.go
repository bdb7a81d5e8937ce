package rollout

import (
	"slices"
	"strings"
)

// These guards are asked before a rollout begins, the first one also while older members are left, and the last
// one before a step of etcd's version ends. None of them is asked about a member that does not serve, nor on the
// way back to a revision that still runs: a cure is never held by what is known of the disease.

// stepBegins is true before the first pod of a rollout goes, unless some member runs the minor version of the new
// template already.
func stepBegins(a *Assessment, _ *Seat) bool {
	return a.begins && a.state.Set.Etcd.Image != "" && !a.Step().Begun
}

// stepKnown is true where the versions of such a step are.
func stepKnown(a *Assessment, c *Seat) bool { return stepBegins(a, c) && a.Step().Unknown == "" }

// stepDown is true for a step to an older version than that of every member.
func stepDown(a *Assessment, c *Seat) bool { return stepKnown(a, c) && a.Step().down() }

// stepUp is true for any other, and where nobody can tell. It stays true for whoever is left behind when a step
// has begun that should not have: a pod that goes by another's hand comes back with the new template, and what
// would become of the others is still the same. One that runs the new version already may need its cure.
func stepUp(a *Assessment, c *Seat) bool {
	s := a.Step()
	if stepBegins(a, c) {
		return s.Unknown != "" || !s.down()
	}
	own, told := a.versionOf(c)
	if a.wayBack(c) || c.Pod.EtcdImage == a.state.Set.Etcd.Image || told && !own.minor().less(s.To.minor()) {
		return false
	}
	return slices.ContainsFunc(Checks, func(row Check) bool {
		applies, _ := row.Applies(s)
		return row.Guard == GuardUpgradePath && applies
	})
}

// checked is a guard that asks its rows of [Checks].
func checked(guard Guard) func(*Assessment, *Seat) Verdict {
	return func(a *Assessment, _ *Seat) Verdict {
		s := a.Step()
		if s.Unknown != "" {
			return Verdict{Pass: true, text: "not checked: " + s.Unknown}
		}
		for i := range Checks {
			c := &Checks[i]
			if applies, arguments := c.Applies(s); c.Guard == guard && applies {
				return Verdict{text: s.describe() + ": " + strings.Join(append(arguments, c.Why), ", ") + "; " + c.Do}
			}
		}
		return Verdict{Pass: true, text: s.describe() + ": nothing is known against it"}
	}
}

// knownArguments: etcd ends at once with an argument that it does not know. Of its environment it only
// warns; that is told. What the command of another program means by an argument is not guessed at.
func knownArguments(a *Assessment, c *Seat) Verdict {
	s, v := a.Step(), checked(GuardKnownArguments)(a, c)
	if v.Pass {
		v.text = "arguments that etcd " + s.To.InWords() + " does not know: none"
		if s.Unseen != "" {
			v.text += "; there may be some that are not seen: " + s.Unseen
		}
		if ignored := ignoredVariables(s, a.state.Set.Etcd.Variables); len(ignored) > 0 {
			v.text += "; variables that it ignores: " + strings.Join(ignored, ", ")
		}
	}
	return v
}

// ignoredVariables are those of etcd's environment that stand for an argument it no longer knows.
func ignoredVariables(s *Step, variables []string) []string {
	var ignored []string
	for _, v := range variables {
		name := strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(v, "ETCD_")), "_", "-")
		for i := range Checks {
			if c := &Checks[i]; slices.Contains(c.arguments, name) && c.applies(s) {
				ignored = append(ignored, v)
			}
		}
	}
	return ignored
}

// listsTold is true before the first pod of a rollout goes, where a member that serves was asked for its own list.
func listsTold(a *Assessment, _ *Seat) bool {
	return a.begins && slices.ContainsFunc(a.state.Etcd.Members, func(m Member) bool { return a.lists(&m) })
}

// lists is true for a voter whose own member list counts. One that does not serve may be behind.
func (a *Assessment) lists(m *Member) bool { return !m.Learner && m.Probe.OwnList != "" && a.serves(m) }

// listsAgree: quorum is counted by one list. Where members have different ones, nobody knows who votes.
func listsAgree(a *Assessment, _ *Seat) Verdict {
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
func endsStep(a *Assessment, c *Seat) bool {
	if !a.policy.HoldBeforeLast {
		return false
	}
	to, known := a.newVersion()
	// A member of which nothing is known may serve, and then this is only for a moment. One that does not
	// answer may need the update.
	if own, told := a.versionOf(c); !known || told && !own.minor().less(to.minor()) || !told && c.Evidence != Serving {
		return false
	}
	for i := range a.Seats {
		s := &a.Seats[i]
		if s == c || s.Going() || !s.Outdated {
			continue
		}
		if v, told := a.versionOf(s); !told || v.minor().less(to.minor()) {
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
	for i := range a.Seats {
		if s := &a.Seats[i]; s.Pod != nil && !s.Outdated && s.Member != nil {
			if told, ok := s.Member.version(); ok && (!known || v.less(told)) {
				v, known = told, true
			}
		}
	}
	return v, known
}

// versionOf is what the seat's member tells, else what its pod's image says.
func (a *Assessment) versionOf(s *Seat) (Version, bool) {
	if s.Member != nil {
		if v, told := s.Member.version(); told {
			return v, true
		}
	}
	return versionIn(s.Pod.EtcdImage, a.state.Controls.EtcdVersions)
}

func (m *Member) version() (Version, bool) {
	if m.Probe.Status == nil {
		return Version{}, false
	}
	return ParseVersion(m.Probe.Status.Version)
}

// beforeLast: the version of the cluster rises when its last member runs the new one, and no member of the
// old one can join any more.
func beforeLast(a *Assessment, _ *Seat) Verdict {
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
