package rollout

// Decide returns what may happen next.
func Decide(s State, p Policy) Decision { return join(s, p).Decide(s.Memory) }

// Decide returns what may happen next with this memory. The facts are joined only once, however
// often it is asked: a coordinator asks the assessment first what there is to remember. The
// assessment of an earlier decision changes with the memory.
func (a *Assessment) Decide(m Memory) Decision {
	a.remember(m)
	d := choose(a)
	d.Assessment = a
	for i := range d.Others {
		d.Others[i].Assessment = a
	}
	return d
}

// keeps is what becomes of a rollout that the guard does not let pass: it waits for what clears by
// itself, and holds for everything else. The verdict may be nil.
func (r *Row) keeps(v *Verdict) Action {
	if r.clears && (v == nil || !v.lasting) {
		return Wait{}
	}
	return Hold{}
}

// simple is a decision that considers no candidates.
func simple(a Action, r Rule, format string, n ...int) Decision {
	return Decision{Action: a, Rule: r, reason: passed(format, n...).Detail}
}
