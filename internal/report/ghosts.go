package report

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/quorate/quorate/pkg/rollout"
)

// Ghost is a member on etcd's list that nobody runs any more. It is told for as long as it is there, whatever
// else happens.
type Ghost struct {
	// Member is its name, empty while it has never started, and ID its ID in hexadecimal.
	Member string `json:"member,omitempty"`
	ID     string `json:"id"`
	// Cluster is the cluster's ID in hexadecimal.
	Cluster string `json:"cluster"`
	// Pod is the name that its pod had.
	Pod string `json:"pod"`
	// Learner is true for one that does not vote.
	Learner bool `json:"learner,omitempty"`
	// Since is since when it has been seen to be one, by the clock of who tells it.
	Since time.Time `json:"since,omitzero"`
	// Costs says in numbers what it does to the quorum.
	Costs string `json:"costs"`
	// Do is what an operator can do about it.
	Do string `json:"do"`
}

// Name is how the ghost is told to people, and how they name it: by its name, or its ID while it has none.
func (g *Ghost) Name() string {
	if g.Member != "" {
		return g.Member
	}
	return g.ID
}

// GhostsOf returns the ghosts that have been seen for long enough, and those that were told before and still
// look like ghosts: a new coordinator has not seen them for long.
func GhostsOf(a *rollout.Assessment, told []Ghost, at time.Time) []Ghost {
	var ghosts []Ghost
	for i := range a.Ghosts {
		g := &a.Ghosts[i]
		now := Ghost{Member: g.Name, ID: strconv.FormatUint(g.ID, 16),
			Cluster: strconv.FormatUint(a.Etcd().ClusterID, 16), Pod: g.Pod, Learner: g.Learner,
			Since: at.Add(-g.Silent)}
		before := slices.IndexFunc(told, func(t Ghost) bool { return t.ID == now.ID })
		switch {
		case before >= 0:
			if was := told[before].Since; was.Before(now.Since) {
				now.Since = was
			}
		case !a.Lasting(g):
			continue
		}
		if g.Learner {
			now.Costs = "it does not vote, and as long as it is there, no other learner may join"
		} else {
			voters, quorum := a.AfterRemoval(g)
			now.Costs = fmt.Sprintf("%d voters need a quorum of %d, and without it %d need %d", a.Voters, a.Quorum,
				voters, quorum)
		}
		now.Do = a.Named("If it is gone for good: `quorate remove-member -n NAMESPACE NAME ") + now.Name() + "`."
		ghosts = append(ghosts, now)
	}
	return ghosts
}

// SameGhosts is true where both tell the same of the same ghosts, but for times.
func SameGhosts(a, b []Ghost) bool {
	return slices.EqualFunc(a, b, func(x, y Ghost) bool { return x.ID == y.ID && x.Costs == y.Costs })
}

// Tell is all about a ghost in one line.
func (g *Ghost) Tell(now time.Time) string { return g.What(now) + ". " + g.Do }

// What says what it is and what it costs.
func (g *Ghost) What(now time.Time) string {
	text := g.Name()
	if g.Member == "" {
		text += " (never started, " + g.Pod + ")"
	}
	text += " has no pod and has not answered"
	if !g.Since.IsZero() && g.Since.Before(now) {
		text += " for " + Ago(now, g.Since)
	}
	return text + "; " + g.Costs
}

// GhostNames lists ghosts by their names.
func GhostNames(ghosts []Ghost) string {
	names := make([]string, len(ghosts))
	for i := range ghosts {
		names[i] = ghosts[i].Name()
	}
	return strings.Join(names, ", ")
}
