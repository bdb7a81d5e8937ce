package rollout

// duties are the kinds of work, in the order in which they are tried. Each ends in one action, or
// leaves the decision to the next; the last one always decides.
var duties = []func(*Assessment) Decision{held, roll}

// Decide returns what may happen next.
func Decide(s State, p Policy) Decision { return join(s, p).Decide(s.Memory) }

// Decide returns what may happen next with this memory. The facts are joined only once, however
// often it is asked: a coordinator asks the assessment first what there is to remember. The
// assessment of an earlier decision changes with the memory.
func (a *Assessment) Decide(m Memory) Decision {
	a.remember(m)
	var d Decision
	for _, duty := range duties {
		if d = duty(a); d.Action != nil {
			break
		}
	}
	d.Assessment = a
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
