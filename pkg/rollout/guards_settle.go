package rollout

// The guards of the rule UpdatedSettle judge every replica.

func updatedFailing(_ *Assessment, r *Replica) Verdict { return Verdict{Pass: !r.failing} }

func terminating(_ *Assessment, r *Replica) Verdict { return Verdict{Pass: !r.Going()} }

func updatedPending(_ *Assessment, r *Replica) Verdict { return Verdict{Pass: r.Outdated || r.Settled} }
