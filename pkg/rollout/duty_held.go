package rollout

// held is the duty that says what forbids any work, the rules [RuleNotOurs] and [RuleHeld].
func held(a *Assessment) Decision {
	switch set := &a.state.Set; {
	case set.Deleting:
		return simple(Idle{}, RuleNotOurs, "the StatefulSet is being deleted")
	case !set.OnDelete:
		return simple(Idle{}, RuleNotOurs, "updateStrategy is not OnDelete: the StatefulSet controller rolls the "+
			"pods itself")
	case set.Replicas == 0:
		return simple(Idle{}, RuleNotOurs, "the StatefulSet has no replicas")
	}
	for _, r := range heldGuards {
		var v Verdict
		if !a.ask(r, nil, &v) {
			return Decision{Action: r.keeps(&v), Rule: RuleHeld, Guard: r.Name, reason: v.Detail}
		}
	}
	return Decision{}
}
