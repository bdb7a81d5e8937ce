package rollout

import (
	"slices"
	"strconv"
	"strings"
)

// Who leaves: members that others take, or have taken, such as a drain of their node.

// leaves is true for a voter that others are about to take, or have taken.
func (a *Assessment) leaves(s *Seat) bool {
	switch p := s.Pod; {
	case !s.Voter:
		return false
	case s.Going():
		return !slices.Contains(a.state.Removed, s.Name)
	default:
		return p.Leaving != "" || p.Cordoned && a.Age(p.UID, CordonedSeen) < a.policy.LeavingPatience
	}
}

// Leavers says in words what takes members by others' hand: one entry for each. A node that is
// cordoned is told for as long as it is. What is merely missing is told with its seat.
func (a *Assessment) Leavers() []string {
	return a.leavers(func(s *Seat) bool { return s.Pod != nil && (s.Pod.Leaving != "" || s.Pod.Cordoned) })
}

func (a *Assessment) leavers(tell func(*Seat) bool) []string {
	var words []string
	for i := range a.Seats {
		if s := &a.Seats[i]; (s.Leaving || s.goesLast() && !s.Going()) && tell(s) {
			words = append(words, a.leaver(s))
		}
	}
	for _, p := range a.scaledAway {
		words = append(words, p.Name+" is being scaled away")
	}
	return words
}

func (a *Assessment) leaver(s *Seat) string {
	switch p := s.Pod; {
	case p == nil:
		return s.Name + " is missing, and not by a removal that is known here"
	case p.Leaving != "":
		return s.Name + " is about to go: " + p.Leaving
	case p.Terminating:
		return s.Name + " is terminating, and not by a removal that is known here"
	default:
		seen, patience := a.Age(p.UID, CordonedSeen), a.policy.LeavingPatience
		text := s.Name + " may be about to go: " + p.CordonInWords() + ", seen for " +
			strconv.Itoa(int(seen.Seconds())) + " s"
		if seen < patience {
			return text + " of " + strconv.Itoa(int(patience.Seconds())) + " s"
		}
		return text + ", which is too long to wait for; it goes last"
	}
}

// CordonInWords says that the pod's node is cordoned.
func (p *Pod) CordonInWords() string { return "node " + p.Node + " is cordoned" }

// goesLast is true for a pod that others may take, and that may find no node if we take it: the
// nodes of others may stay cordoned for days, and a volume may be within reach of one node only.
func (s *Seat) goesLast() bool { return s.Pod != nil && (s.Pod.Cordoned || s.Pod.Leaving != "") }

// beyond is a pod of ours that is to be scaled away, whether its member votes or not; nil if there is none.
func (a *Assessment) beyond() *Pod {
	for i := range a.state.Pods {
		if p := &a.state.Pods[i]; p.Owned && !a.state.Set.has(p.Ordinal) {
			return p
		}
	}
	return nil
}

// someLeave is true while others take members of ours.
func someLeave(a *Assessment, _ *Seat) bool {
	return len(a.scaledAway) > 0 || slices.ContainsFunc(a.Seats, func(s Seat) bool { return s.Leaving })
}

// othersLeaving: while others take one member, we do not take another. It is asked of the one that
// leaves too: it comes back with the new revision by itself, and on a node that takes it.
func othersLeaving(a *Assessment, c *Seat) Verdict {
	if !someLeave(a, c) {
		return passed("nobody else takes a member")
	}
	leaving := len(a.scaledAway)
	for i := range a.Seats {
		leaving += btoi(a.Seats[i].Leaving)
	}
	v := verdict(false, "members that others take: %d (", leaving)
	v.text = strings.Join(a.leavers(func(*Seat) bool { return true }), "; ") + ")"
	return v
}
