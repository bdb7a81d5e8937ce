package record

import "github.com/quorate/quorate/internal/rollout"

// PlanOf is what a decision asks of the protocol, and the removal that it asks for. The
// revision is the StatefulSet's update revision.
func PlanOf(d rollout.Decision, revision string) (Plan, Intent) {
	switch action := d.Action.(type) {
	case rollout.Idle:
		return PlanFinish, Intent{}
	case rollout.Complete:
		// Pods below the partition stay outdated until it is lowered, and nothing reports
		// that.
		for i := range d.Assessment.Seats {
			if d.Assessment.Seats[i].Outdated {
				return PlanRest, Intent{}
			}
		}
		return PlanFinish, Intent{}
	case rollout.Remove:
		t := action.Target
		i := Intent{Operation: Delete, Pod: t.Pod, UID: t.UID, ResourceVersion: t.ResourceVersion, Revision: revision}
		if action.Method == rollout.RemoveByEviction {
			i.Operation = Evict
		}
		return PlanRemove, i
	case rollout.MoveLeader:
		return PlanMoveLeader, Intent{}
	}
	return PlanRest, Intent{}
}
