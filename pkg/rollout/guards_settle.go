package rollout

// The guards of the rule UpdatedSettle judge every seat.

func updatedFailing(a *Assessment, s *Seat) Verdict { return Verdict{Pass: !a.failing(s)} }

func terminating(_ *Assessment, s *Seat) Verdict { return Verdict{Pass: !s.Going()} }

func updatedPending(_ *Assessment, s *Seat) Verdict { return Verdict{Pass: s.Outdated || s.Settled} }

// failing is true for an updated pod that will not settle by itself. One that has finished as a whole is about to be
// replaced by the StatefulSet controller.
func (a *Assessment) failing(s *Seat) bool {
	if s.Going() || s.Outdated || s.Settled {
		return false
	}
	return s.ContainerDead && !s.Pod.Finished || a.Age(s.Pod.UID, UnsettledSeen) >= a.policy.SettleTimeout
}
