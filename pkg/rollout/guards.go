package rollout

import "slices"

// Guard is the stable name of a guard: the word for it in logs, events, metrics,
// explanations and documentation.
type Guard string

// Row is all there is to know of one guard. Everything else follows from the rows in [Guards]:
// which guards a rule asks and in which order, whether a guard that does not pass makes the
// rollout wait or holds it, which guards an operator may override, what status and plan
// advise, and docs/reference.md.
type Row struct {
	Name Guard
	// rules are the rules that ask the guard. [RuleHeld] asks it once, of the cluster as a whole, and so does
	// [RuleRemoveGhost];
	// [RuleUpdatedSettle] asks it of every replica; the others ask it of each of their candidates.
	rules []Rule
	// judge is the guard itself. The replica is nil where the cluster as a whole is judged.
	judge func(a *Assessment, s *Replica) Verdict
	// asked, where it is set, says whether there is anything to ask about a candidate: a guard
	// that is not asked does not appear in the plan.
	asked func(a *Assessment, s *Replica) bool
	// clears is true for a guard that clears by itself, when members recover or time passes:
	// the rollout waits for it. For any other the rollout holds until somebody does something.
	// A single verdict may be an exception; see Verdict.lasting.
	clears bool
	// overridable is true for a guard that an operator may override. What makes the facts
	// themselves unusable must never be overridden, nor a control by another control.
	overridable bool
	// forOthers is true for a guard that keeps one member for the sake of the others, also where that member does not
	// serve. Then the cluster is at risk for as long as it is kept, and the reason says so.
	forOthers bool

	// asksWhoAnswers is true for a guard that counts the members that answer. What keeps their answers back is then the
	// first thing to mend.
	asksWhoAnswers bool

	// Protects says what the guard is for, with the source of the rule.
	Protects string
	// Looks says what a rollout looks like while the guard does not pass.
	Looks string
	// Do says what an operator does about it. NAME stands for the StatefulSet's.
	Do string
	// Commands are what an operator types first, to see more or to let the rollout go on. None of them takes a
	// protection away. NAMESPACE and NAME stand for the StatefulSet's, and POD for the pod that the guard is about.
	Commands []string
}

// RowOf returns the guard's row, or nil when there is no guard of that name: the name may come from
// what others wrote on the Lease.
func RowOf(g Guard) *Row {
	for i := range Guards {
		if Guards[i].Name == g {
			return &Guards[i]
		}
	}
	return nil
}

// The guards that each rule asks, in the order of the table. Those of [RuleUpdatedSettle] are in
// two lists: what fails holds the rest of the rollout, and what is under way is only waited for,
// when there is nothing else to do.
var (
	heldGuards       = rowsOf(RuleHeld)
	notServingGuards = rowsOf(RuleNotServingFirst)
	failingGuards    = slices.DeleteFunc(rowsOf(RuleUpdatedSettle), func(r *Row) bool { return r.clears })
	pendingGuards    = slices.DeleteFunc(rowsOf(RuleUpdatedSettle), func(r *Row) bool { return !r.clears })
	servingGuards    = rowsOf(RuleServing)
	ghostGuards      = rowsOf(RuleRemoveGhost)
	defragmentGuards = rowsOf(RuleDefragment)
)

func rowsOf(rule Rule) []*Row {
	var rows []*Row
	for i := range Guards {
		if slices.Contains(Guards[i].rules, rule) {
			rows = append(rows, &Guards[i])
		}
	}
	return rows
}

// Overridable are the names of the guards that an operator may override, sorted.
func Overridable() []string {
	var names []string
	for i := range Guards {
		if Guards[i].overridable {
			names = append(names, string(Guards[i].Name))
		}
	}
	slices.Sort(names)
	return names
}

// overrides is true when the operator overrides this guard.
func (c *Controls) overrides(g Guard) bool { return slices.Contains(c.Override, g) }

// ask asks a guard about a replica, or about the cluster as a whole where the replica is nil, and writes
// down its verdict. A guard that the operator overrides passes, and its verdict says so: an override
// is never silent.
func (a *Assessment) ask(row *Row, r *Replica, v *Verdict) (pass bool) {
	*v = row.judge(a, r)
	v.Guard = row.Name
	if !v.Pass && row.overridable && a.state.Controls.overrides(row.Name) {
		v.Pass, v.Overridden = true, true
	}
	return v.Pass
}

// consider asks the guards about each replica, and lists them as candidates in the same order.
func (a *Assessment) consider(rule Rule, replicas []*Replica, guards []*Row) []Candidate {
	all := make([]Candidate, 0, len(replicas))
	verdicts := make([]Verdict, len(replicas)*len(guards))
	for _, r := range replicas {
		n := 0
		for _, row := range guards {
			if row.asked == nil || row.asked(a, r) {
				a.ask(row, r, &verdicts[n])
				n++
			}
		}
		all = append(all, Candidate{Pod: r.Name, Rule: rule, Verdicts: verdicts[:n:n]})
		verdicts = verdicts[n:]
	}
	return all
}

// firstPassing is the first candidate that every guard lets go, nil if there is none.
func firstPassing(cs []Candidate) *Candidate {
	for i := range cs {
		if cs[i].Passes() {
			return &cs[i]
		}
	}
	return nil
}

// keptBack is the decision where a candidate does not pass a guard.
func keptBack(c *Candidate, all []Candidate, reason func() string) Decision {
	v := c.failed()
	return Decision{Action: RowOf(v.Guard).keeps(v), Rule: c.Rule, Guard: v.Guard, Candidates: all, kept: c,
		reason: reason}
}

func verdict(pass bool, format string, n ...int) Verdict {
	v := Verdict{Pass: pass, format: format}
	copy(v.n[:], n)
	return v
}

func passed(format string, n ...int) Verdict { return verdict(true, format, n...) }

// oldSidecars: what an older sidecar does not know, it cannot take over. It would wait for as long as that
// stands on the record, and nobody could go back to its version. It could do no harm: a record with such an operation
// has schema 2, and whoever knows only schema 1 claims no record of a newer one, neither with the lock nor without it.
// So nothing waits for it with an alarm NOSPACE. Every silent sidecar of another revision than ours counts as old, and
// etcd takes nobody's word then. The update of those that really are old may wait for the cure, and the cure for the
// removal of ghosts.
func oldSidecars(a *Assessment, _ *Replica) Verdict {
	switch s := &a.state.Sidecars; {
	case a.noSpace:
		return passed("etcd takes no writes, so a sidecar cannot say which version it is")
	case !s.Known:
		return Verdict{text: "it is not known which sidecars there are"}
	case len(s.Old) > 0:
		return Verdict{text: "the sidecar of " + s.Old[0] + " is too old, or may be too old, to know such an " +
			"operation on the record"}
	}
	return passed("every sidecar knows such operations on the record")
}
