package rollout

import (
	"slices"
	"strconv"
	"strings"
	"time"
)

// Who leaves: members that others take, or have taken, such as a drain of their node.

// rememberLeaving says whether a replica is a voter that others are about to take, or have taken.
func (a *Assessment) rememberLeaving(r *Replica) {
	r.taking = takingOf(&a.state, r.Pod)
	r.Leaving, r.mayLeave = false, false
	switch p := r.Pod; {
	case !r.Voter:
	case r.Going():
		r.Leaving = !slices.Contains(a.state.Removed, r.Name) && a.lately(r.Name, AwaySeen)
	default:
		r.Leaving = r.taking != "" || p.Cordoned && a.lately(p.UID, CordonedSeen)
		r.mayLeave = p.NodeUnknown && a.lately(p.UID, CordonedSeen)
	}
	r.yields = r.Leaving && !a.state.Controls.overrides(GuardOthersLeaving)
	a.taken += btoi(r.Leaving || r.mayLeave)
}

// takingOf says in words what is about to take the pod, but not what an eviction of our own has left on it: of that
// nothing comes any more. Whoever else evicts the pod is seen when it terminates.
func takingOf(s *State, p *Pod) string {
	if p == nil || p.Evicted && slices.Contains(s.Evicted, p.UID) {
		return ""
	}
	return p.Leaving
}

// lately is true for what has not been seen for as long as it may hold others. A node may stay cordoned for
// days, and a pod that was taken may be stuck, or wait for what only we can do.
func (a *Assessment) lately(uid string, c Condition) bool {
	return a.Age(uid, c) < a.policy.holdsFor(c)
}

// holdsFor is how long something holds others. What is away has as much time as any pod to come up again.
func (p *Policy) holdsFor(c Condition) time.Duration {
	if c == AwaySeen {
		return max(p.LeavingPatience, p.SettleTimeout)
	}
	return p.LeavingPatience
}

// Leavers says in words which members others take, and why: one entry for each. A node that is
// cordoned is told for as long as it is. What is merely missing is told with its replica.
func (a *Assessment) Leavers() []string {
	return a.leavers(func(r *Replica) bool {
		return r.Pod != nil && (r.taking != "" || r.Pod.Cordoned || r.Pod.NodeUnknown)
	})
}

func (a *Assessment) leavers(tell func(*Replica) bool) []string {
	var words []string
	for i := range a.Replicas {
		if r := &a.Replicas[i]; (r.Leaving || r.mayLeave || r.goesLast() && !r.Going()) && tell(r) {
			words = append(words, a.leaver(r))
		}
	}
	for _, p := range a.goingAway {
		words = append(words, p.Name+" is being scaled away")
	}
	return words
}

func (a *Assessment) leaver(r *Replica) string {
	switch p := r.Pod; {
	case p == nil:
		return r.Name + " is missing, and no removal by Quorate is known" + seenFor(a, r.Name, AwaySeen)
	case r.taking != "":
		return r.Name + " is about to go: " + r.taking
	case p.Terminating:
		return r.Name + " is terminating, and no removal by Quorate is known" + seenFor(a, r.Name, AwaySeen)
	case !p.Cordoned:
		return r.Name + " may be about to go: node " + p.Node + " cannot be read" + seenFor(a, p.UID, CordonedSeen)
	default:
		return r.Name + " may be about to go: " + p.CordonInWords() + seenFor(a, p.UID, CordonedSeen)
	}
}

// seenFor says for how long something has been seen, and for how long it holds others.
func seenFor(a *Assessment, uid string, c Condition) string {
	text := ", seen for " + strconv.Itoa(int(a.Age(uid, c).Seconds())) + " s"
	if a.lately(uid, c) {
		return text + " of " + strconv.Itoa(int(a.policy.holdsFor(c).Seconds())) + " s"
	}
	return text + ", too long to wait for, so it goes last"
}

// CordonInWords says that the pod's node is cordoned, or which drainer has marked it.
func (p *Pod) CordonInWords() string {
	if p.Drained != "" {
		return "node " + p.Node + " has the taint " + p.Drained
	}
	return "node " + p.Node + " is cordoned"
}

// goesLast is true for a pod that others may take, and that may find no node if we take it: the
// nodes of others may stay cordoned for days, and a volume may be within reach of one node only.
func (r *Replica) goesLast() bool { return r.Pod != nil && (r.Pod.Cordoned || r.taking != "") }

// someLeave is true while others take members of ours.
func someLeave(a *Assessment, _ *Replica) bool { return a.taken > 0 }

// othersLeaving: while others take one member, we do not take another. It is asked of the one that
// leaves too: it comes back with the new revision by itself, and on a node that takes it.
func othersLeaving(a *Assessment, _ *Replica) Verdict {
	n := a.taken
	if n == 0 {
		return passed("nobody else is taking a member")
	}
	v := verdict(false, "members that others are taking: %d (", n)
	v.text = strings.Join(a.leavers(func(*Replica) bool { return true }), "; ") + ")" + a.notCreated()
	return v
}

// doResized is what an operator does about pods that leave only to be resized. It is empty where there is none, and
// only is true where nobody leaves for another reason.
func (a *Assessment) doResized() (text string, only bool) {
	only = len(a.goingAway) == 0
	for i := range a.Replicas {
		switch r := &a.Replicas[i]; {
		case r.taking == LeavesToResize:
			text += "Let the resize of " + r.Name + " end: its kubelet restarts etcd for that, and the rollout goes " +
				"on when the member serves again. If it lasts, `kubectl describe pod -n NAMESPACE " + r.Name + "` " +
				"shows what keeps the resize (PodResizeInProgress). "
		case r.Leaving || r.mayLeave:
			only = false
		}
	}
	return text, only && text != ""
}

// LeavesToResize is what a pod's Leaving says while a resize in place is about to restart its etcd.
const LeavesToResize = "it is being resized in place, which restarts etcd"
