package rollout

import "strings"

// The guards of the rule Held forbid any decision. They judge the cluster as a whole.

func badControl(a *Assessment, _ *Seat) Verdict {
	bad := a.state.Controls.Bad
	if len(bad) == 0 {
		return Verdict{Pass: true}
	}
	return Verdict{text: "a control cannot be read: " + strings.Join(bad, "; ")}
}

func paused(a *Assessment, _ *Seat) Verdict {
	if !a.state.Controls.Paused {
		return Verdict{Pass: true}
	}
	return Verdict{text: "the rollout is paused by " + ControlPaused + " on the Lease quorate-" + a.state.Set.Name}
}

func staleRevision(a *Assessment, _ *Seat) Verdict {
	switch set := &a.state.Set; {
	case set.ObservedGeneration < set.Generation:
		return verdict(false, "generation %d of the StatefulSet is not observed yet (%d), so updateRevision may be "+
			"stale",
			int(set.Generation), int(set.ObservedGeneration))
	case set.UpdateRevision == "":
		return verdict(false, "the StatefulSet has no updateRevision yet")
	}
	return Verdict{Pass: true}
}

func inconsistent(a *Assessment, _ *Seat) Verdict {
	return Verdict{Pass: a.Inconsistent == "", text: a.Inconsistent}
}

func corrupt(a *Assessment, _ *Seat) Verdict {
	for i := range a.state.Etcd.Members {
		if st := a.state.Etcd.Members[i].Probe.Status; st != nil && st.Corrupt {
			return verdict(false, "a CORRUPT alarm is raised: the members' data differ, no update cures that, "+
				"and reads prove nothing")
		}
	}
	return Verdict{Pass: true}
}

// cutOff does not pass when no member but the coordinator's own answers anything, no kubelet says
// that another's container is dead, and some kubelet says the opposite. (When every kubelet agrees
// that the others are down, quorum really is lost, and [GuardQuorumPatience] is the guard for that;
// holding for good would block the cure.)
func cutOff(a *Assessment, _ *Seat) Verdict {
	contradicted := false
	for i := range a.Seats {
		s := &a.Seats[i]
		if s.Self || s.Member == nil {
			continue
		}
		if p := s.Member.Probe; p.Read == Answered || p.Status != nil || s.ContainerDead {
			return Verdict{Pass: true}
		}
		if s.Member.Probe.Read == Failed && witnessOf(s.Pod) != kubeletSaysDown {
			contradicted = true
		}
	}
	for _, m := range a.External {
		if m.Probe.Read == Answered || m.Probe.Status != nil {
			return Verdict{Pass: true}
		}
	}
	return verdict(!contradicted, "no other member answers although their containers are reported ready: "+
		"it is this coordinator that is cut off")
}
