package selfupdate

import (
	"fmt"
	"slices"
	"time"

	"github.com/quorate/quorate/pkg/rollout"
)

// Presence is what a sidecar says about itself in etcd while its session lives.
type Presence struct {
	// Pod and UID name the pod that it runs in. Both are empty outside a member's pod.
	Pod string `json:"pod,omitempty"`
	UID string `json:"uid,omitempty"`
	// Revision is the pod's controller-revision-hash.
	Revision string `json:"revision,omitempty"`
	// Version is Quorate's own.
	Version string `json:"version,omitempty"`
	// Schema is the newest version of the record that it understands; 0 is the first.
	Schema int `json:"schema,omitempty"`
	// Unfit says why it does not want the lock for now. It is empty if it does want it.
	Unfit string `json:"unfit,omitempty"`
}

// Peer is another sidecar that is present.
type Peer struct {
	Presence
	// Waiting is true when it is in the queue for the lock. Key is its place there.
	Waiting bool
	Key     string
	// Queued is the revision of etcd's store at which it joined the queue. A lower one is earlier.
	Queued int64
}

// LineUp is how long the sidecar of an updated, settled pod may take to join the queue for the lock, and how long a
// sidecar whose member serves may take to get the lock that ours has lost. Until then, the coordinator does not remove
// its own pod. A pod is Ready a moment before its sidecar has found the others.
const LineUp = 5 * time.Second

// Sidecars says what a decision may know of the sidecars: whether it is known who is there, who is, and which of the
// others do not understand this version of the record, or may not. One that says nothing has our code if its pod has
// the revision of ours, which is the one with the UID self, or, outside a pod, the newest one.
func Sidecars(peers []Peer, known bool, schema int, set rollout.Set, pods []rollout.Pod, self string) rollout.Sidecars {
	s := rollout.Sidecars{Known: known}
	words := map[string]bool{self: true}
	for i := range peers {
		if words[peers[i].UID] = true; peers[i].Schema < schema {
			s.Old = append(s.Old, peers[i].Pod)
		}
	}
	revision := set.UpdateRevision
	if own := slices.IndexFunc(pods, func(p rollout.Pod) bool { return p.UID == self }); own >= 0 {
		revision = pods[own].Revision
	}
	for i := range pods {
		p := &pods[i]
		switch {
		case !p.Owned:
		case words[p.UID]:
			s.Present = append(s.Present, p.UID)
		case p.Revision != revision && !slices.Contains(s.Old, p.Name):
			s.Old = append(s.Old, p.Name)
		}
	}
	slices.Sort(s.Present)
	return s
}

// Choice says who coordinates from here on.
type Choice struct {
	// To is the peer to hand over to. Nil means to stay.
	To *Peer
	// Await is the pod whose sidecar may still join the queue. Until it has, nothing is done.
	Await string
	// Reason is a sentence for the log.
	Reason string
}

// Choose decides who coordinates after a decision. The decision names its own pod in State.Self. Waited
// is for how long that pod has been next. The peers are not known to a fallback coordinator, which has no lock to hand
// over, and to one to which etcd has just fallen silent.
func Choose(d rollout.Decision, peers []Peer, known bool, waited time.Duration) Choice {
	switch d.Action.(type) {
	case rollout.Idle, rollout.Complete:
		return Choice{} // There is nothing left to hand over.
	}
	own := self(d.Assessment)
	if own == nil {
		return Choice{} // Outside a member's pod no update concerns us.
	}
	if own.Outdated {
		if p := best(d.Assessment, peers, func(r *rollout.Replica) bool { return r.Settled && !r.Outdated }); p != nil {
			return Choice{To: p, Reason: fmt.Sprintf("%s runs the updated code, has settled and waits for the lock",
				p.Pod)}
		}
	}
	if OwnPodNext(d) {
		late := latecomer(d.Assessment, peers)
		if !known {
			late = another(d.Assessment)
		}
		if late != "" && waited < LineUp {
			return Choice{Await: late, Reason: fmt.Sprintf("%s is next, and the sidecar of %s has yet to line up",
				own.Name, late)}
		}
		if p := best(d.Assessment, peers, able); p != nil {
			return Choice{To: p, Reason: fmt.Sprintf("%s is next, and %s can replace it", own.Name, p.Pod)}
		}
	}
	return Choice{}
}

// OwnPodNext is true when the decision is to remove the coordinator's own pod, or to defragment its member, which may
// cost it the lock.
func OwnPodNext(d rollout.Decision) bool {
	own := self(d.Assessment)
	switch d.Action.(type) {
	case rollout.Remove, rollout.Defragment:
		return own != nil && d.Target().Pod == own.Name
	}
	return false
}

// latecomer returns an updated, settled pod whose sidecar neither waits for the lock nor says that it
// does not want it.
func latecomer(a *rollout.Assessment, peers []Peer) string {
	for i := range a.Replicas {
		r := &a.Replicas[i]
		if r.Self || r.Going() || r.Outdated || !r.Settled {
			continue
		}
		here := func(p Peer) bool { return p.UID == r.Pod.UID && (p.Waiting || p.Unfit != "") }
		if !slices.ContainsFunc(peers, here) {
			return r.Name
		}
	}
	return ""
}

// another returns a pod whose member serves, and whose sidecar can have the lock in a moment and remove the own pod. If
// it is not known who is here, it is mostly the own member alone that is silent. Where quorum is lost no member serves,
// and nothing waits.
func another(a *rollout.Assessment) string {
	for i := range a.Replicas {
		if r := &a.Replicas[i]; !r.Self && !r.Going() && able(r) {
			return r.Name
		}
	}
	return ""
}

// Anybody is true when some fit peer is there, whatever code it runs. A coordinator that cannot go on may then let it
// try. The peer need not be in the queue: if the lock was just handed over past it, it lines up again in a moment.
func Anybody(peers []Peer) bool {
	return slices.ContainsFunc(peers, func(p Peer) bool { return p.Unfit == "" })
}

// able is true when the member serves and the sidecar is well.
func able(r *rollout.Replica) bool { return r.Evidence == rollout.Serving && !r.SidecarSick }

func self(a *rollout.Assessment) *rollout.Replica {
	if a == nil {
		return nil
	}
	for i := range a.Replicas {
		if a.Replicas[i].Self && a.Replicas[i].Pod != nil {
			return &a.Replicas[i]
		}
	}
	return nil
}

// best returns the fit peer that has waited longest among those whose pod passes. A peer is matched to
// a pod by the UID it gives. If its pod has been replaced since, it matches none.
func best(a *rollout.Assessment, peers []Peer, passes func(*rollout.Replica) bool) *Peer {
	if a == nil {
		return nil
	}
	var chosen *Peer
	for i := range peers {
		p := &peers[i]
		if !p.Waiting || p.Unfit != "" || chosen != nil && chosen.Queued <= p.Queued {
			continue
		}
		for j := range a.Replicas {
			if r := &a.Replicas[j]; r.Pod != nil && !r.Self && !r.Going() && r.Pod.UID == p.UID && passes(r) {
				chosen = p
			}
		}
	}
	return chosen
}
