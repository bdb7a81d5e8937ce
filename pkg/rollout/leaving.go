package rollout

import (
	"slices"
	"strconv"
	"strings"
	"time"
)

// Who leaves: members that others take, or have taken, such as a drain of their node.

// leaves is true for a voter that others are about to take, or have taken.
func (a *Assessment) leaves(r *Replica) bool {
	switch p := r.Pod; {
	case !r.Voter:
		return false
	case r.Going():
		return !slices.Contains(a.state.Removed, r.Name) && a.lately(r.Name, AwaySeen)
	default:
		return r.taking != "" || p.Cordoned && a.lately(p.UID, CordonedSeen)
	}
}

// mayLeave is true for a voter whose node could not be read just now. It may be about to be drained, so no other one
// that serves goes for a while. Nothing else waits for it, least of all a cure.
func (a *Assessment) mayLeave(r *Replica) bool {
	return r.Voter && !r.Going() && r.Pod.NodeUnknown && a.lately(r.Pod.UID, CordonedSeen)
}

// lately is true for what has not been seen for as long as it may hold others. A node may stay cordoned for
// days, and a pod that was taken may be stuck, or wait for what only we can do.
func (a *Assessment) lately(uid string, c Condition) bool { return a.Age(uid, c) < a.holdsFor(c) }

// holdsFor is how long something holds others. What is away has as much time as any pod to come up again.
func (a *Assessment) holdsFor(c Condition) time.Duration {
	if c == AwaySeen {
		return max(a.policy.LeavingPatience, a.policy.SettleTimeout)
	}
	return a.policy.LeavingPatience
}

// taking says in words what is about to take the pod, but not what an eviction of our own has left on it: of that
// nothing comes any more. Whoever else evicts the pod is seen when it terminates.
func (a *Assessment) taking(p *Pod) string {
	if p == nil || p.Evicted && slices.Contains(a.state.Evicted, p.UID) {
		return ""
	}
	return p.Leaving
}

// goingAway are the pods that were scaled away lately, and whose members vote.
func (a *Assessment) goingAway() []*Pod {
	return slices.DeleteFunc(slices.Clone(a.scaledAway), func(p *Pod) bool { return !a.lately(p.Name, AwaySeen) })
}

// Leavers says in words what takes members by others' hand: one entry for each. A node that is
// cordoned is told for as long as it is. What is merely missing is told with its replica.
func (a *Assessment) Leavers() []string {
	return a.leavers(func(r *Replica) bool {
		return r.Pod != nil && (r.taking != "" || r.Pod.Cordoned || r.Pod.NodeUnknown)
	})
}

func (a *Assessment) leavers(tell func(*Replica) bool) []string {
	var words []string
	for i := range a.Replicas {
		if r := &a.Replicas[i]; (r.Leaving || a.mayLeave(r) || r.goesLast() && !r.Going()) && tell(r) {
			words = append(words, a.leaver(r))
		}
	}
	for _, p := range a.goingAway() {
		words = append(words, p.Name+" is being scaled away")
	}
	return words
}

func (a *Assessment) leaver(r *Replica) string {
	switch p := r.Pod; {
	case p == nil:
		return r.Name + " is missing, and not by a removal that is known here" + a.seenFor(r.Name, AwaySeen)
	case r.taking != "":
		return r.Name + " is about to go: " + r.taking
	case p.Terminating:
		return r.Name + " is terminating, and not by a removal that is known here" + a.seenFor(r.Name, AwaySeen)
	case !p.Cordoned:
		return r.Name + " may be about to go: node " + p.Node + " cannot be read" + a.seenFor(p.UID, CordonedSeen)
	default:
		return r.Name + " may be about to go: " + p.CordonInWords() + a.seenFor(p.UID, CordonedSeen)
	}
}

// seenFor says for how long something has been seen, and for how long it holds others.
func (a *Assessment) seenFor(uid string, c Condition) string {
	text := ", seen for " + strconv.Itoa(int(a.Age(uid, c).Seconds())) + " s"
	if a.lately(uid, c) {
		return text + " of " + strconv.Itoa(int(a.holdsFor(c).Seconds())) + " s"
	}
	return text + ", which is too long to wait for; it goes last"
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

// beyond is a pod of ours that is to be scaled away, whether its member votes or not; nil if there is none.
func (a *Assessment) beyond() *Pod {
	for i := range a.state.Pods {
		if p := &a.state.Pods[i]; p.Owned && !a.state.Set.has(p.Ordinal) {
			return p
		}
	}
	return nil
}

// taken counts the members that others take, or may be about to take.
func (a *Assessment) taken() int {
	n := len(a.goingAway())
	for i := range a.Replicas {
		r := &a.Replicas[i]
		n += btoi(r.Leaving || a.mayLeave(r))
	}
	return n
}

// someLeave is true while others take members of ours.
func someLeave(a *Assessment, _ *Replica) bool { return a.taken() > 0 }

// othersLeaving: while others take one member, we do not take another. It is asked of the one that
// leaves too: it comes back with the new revision by itself, and on a node that takes it.
func othersLeaving(a *Assessment, _ *Replica) Verdict {
	n := a.taken()
	if n == 0 {
		return passed("nobody else takes a member")
	}
	v := verdict(false, "members that others take: %d (", n)
	v.text = strings.Join(a.leavers(func(*Replica) bool { return true }), "; ") + ")" + a.notCreated()
	return v
}
