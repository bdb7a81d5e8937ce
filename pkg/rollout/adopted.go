package rollout

import "slices"

// Assumption is something that a state is taken to be although it is not so.
type Assumption string

// What [Adopted] assumes, and what whoever observes may assume beside it.
const (
	// AssumedOnDelete: the update strategy is OnDelete.
	AssumedOnDelete Assumption = "OnDelete"
	// AssumedSidecars: every pod has a sidecar with Quorate. A State does not tell where one is missing, so whoever
	// reads the pods adds this one.
	AssumedSidecars Assumption = "Sidecars"
	// AssumedResumed: the rollout is not paused.
	AssumedResumed Assumption = "Resumed"
	// AssumedOutdated: every pod is outdated.
	AssumedOutdated Assumption = "Outdated"
)

// Adopted returns the state as it would be if Quorate were to roll the pods now, and what is assumed for that. It
// answers what a rollout would do to a cluster before anybody lets it. Where no pod is outdated there would be nothing
// to see, so every pod is then taken to be outdated by a change that keeps etcd's version.
func Adopted(s State) (State, []Assumption) {
	var assumed []Assumption
	if !s.Set.OnDelete {
		s.Set.OnDelete = true
		assumed = append(assumed, AssumedOnDelete)
	}
	if s.Controls.Paused {
		s.Controls.Paused = false
		assumed = append(assumed, AssumedResumed)
	}
	if n := len(s.Set.UpdateRevision); n > 0 && len(s.Pods) > 0 &&
		!slices.ContainsFunc(s.Pods, func(p Pod) bool { return p.Owned && s.Set.Outdated(&p) }) {
		// A name that no pod has, as long as the real one: the guard Returns looks at its length.
		s.Set.UpdateRevision = s.Set.UpdateRevision[:n-1] + "?"
		assumed = append(assumed, AssumedOutdated)
	}
	return s, assumed
}
