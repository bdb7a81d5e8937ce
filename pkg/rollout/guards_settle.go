package rollout

// The guards of the rule UpdatedSettle judge every replica.

func updatedFailing(a *Assessment, r *Replica) Verdict { return Verdict{Pass: !a.failing(r)} }

func terminating(_ *Assessment, r *Replica) Verdict { return Verdict{Pass: !r.Going()} }

func updatedPending(_ *Assessment, r *Replica) Verdict { return Verdict{Pass: r.Outdated || r.Settled} }

// failing is true for an updated pod that will not settle by itself. One that has finished as a whole is about to be
// replaced by the StatefulSet controller.
func (a *Assessment) failing(r *Replica) bool {
	if r.Going() || r.Outdated || r.Settled {
		return false
	}
	return r.ContainerDead && !r.Pod.Finished || a.Age(r.Pod.UID, UnsettledSeen) >= a.policy.SettleTimeout
}
