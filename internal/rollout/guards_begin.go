package rollout

import (
	"slices"
	"strings"
)

// These guards are asked before a rollout begins. None of them is asked about a member that does not serve, nor
// on the way back to a revision that still runs: a cure is never held by what is known of the disease.

// stepBegins is true before the first pod of a rollout goes, unless some member runs the minor version of the new
// template already.
func stepBegins(a *Assessment, _ *Seat) bool {
	return a.begins && a.state.Set.Etcd.Image != "" && !a.Step().Begun
}

// stepKnown is true where the versions of such a step are.
func stepKnown(a *Assessment, c *Seat) bool { return stepBegins(a, c) && a.Step().Unknown == "" }

// stepDown is true for a step to an older version than that of every member.
func stepDown(a *Assessment, c *Seat) bool { return stepKnown(a, c) && a.Step().down() }

// stepUp is true for any other, and where nobody can tell.
func stepUp(a *Assessment, c *Seat) bool {
	return stepBegins(a, c) && (a.Step().Unknown != "" || !a.Step().down())
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
