package rollout

import "slices"

// DutyName is the stable name of a duty.
type DutyName string

// The names of the duties.
const (
	// DutyHeld says what forbids any work.
	DutyHeld DutyName = "Held"
	// DutyMakeWay moves leadership away from a member that others are about to take.
	DutyMakeWay DutyName = "MakeWay"
	// DutyRoll replaces outdated pods.
	DutyRoll DutyName = "Roll"
	// DutyGhosts removes members that nobody runs any more from etcd's list, when an operator asks.
	DutyGhosts DutyName = "Ghosts"
	// DutyDefragment gives back what is free in the members' databases.
	DutyDefragment DutyName = "Defragment"
)

// duty is one kind of work. It ends in one action, or returns the zero Decision where it has nothing to
// say.
type duty struct {
	name DutyName
	do   func(*Assessment) Decision
}

// duties are tried in this order.
var duties = []duty{
	{name: DutyHeld, do: held},
	{name: DutyMakeWay, do: makeWay},
	{name: DutyRoll, do: roll},
	{name: DutyGhosts, do: removeGhosts},
	{name: DutyDefragment, do: defragment},
}

// choose asks the duties one after the other. The first that acts is the decision. If none acts, it is
// the first that waits or holds: what comes after it may be done all the same. So no duty starves
// another, but for what forbids any work.
func choose(a *Assessment) Decision {
	var few [4]Decision
	all, best := few[:0], 0
	for i := range duties {
		d := duties[i].do(a)
		if d.Action == nil {
			continue
		}
		d.Duty = duties[i].name
		if all = append(all, d); d.weight() > all[best].weight() {
			best = len(all) - 1
		}
		if d.Duty == DutyHeld {
			break
		}
	}
	d := all[best]
	if len(all) > 1 {
		d.Others = slices.Concat(all[:best], all[best+1:])
	}
	return d
}

// weight sorts what acts before what is waited for or held, and that before what is over.
func (d *Decision) weight() int {
	switch d.Action.(type) {
	case Idle, Complete:
		return 0
	case Wait, Hold:
		return 1
	}
	return 2
}
