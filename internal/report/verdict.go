package report

import (
	"fmt"
	"strings"

	"github.com/quorate/quorate/pkg/rollout"
)

// Safety is how safe a cluster is now, in one word for people and programs.
type Safety string

const (
	// Safe means that a quorum serves, and at least one more member may fail. A single member that serves is as safe as
	// it can be.
	Safe Safety = "SAFE"
	// AtRisk means that a quorum serves, but none of its members may fail, or something else is wrong with the data.
	AtRisk Safety = "AT RISK"
	// QuorumLost means that too few members serve, whoever else may be well. etcd takes no writes.
	QuorumLost Safety = "QUORUM LOST"
	// NotKnown means that nothing that is live tells it.
	NotKnown Safety = "UNKNOWN"
)

// safeties are all of them.
var safeties = []Safety{Safe, AtRisk, QuorumLost, NotKnown}

// label is the word as a label's value. The alerts make the word of it again.
func (s Safety) label() string { return strings.ReplaceAll(strings.ToLower(string(s)), " ", "_") }

// Verdict answers the first question of somebody who looks: is it safe? It speaks of now, and of etcd alone. What the
// rollout does or waits for is another question.
type Verdict struct {
	Safety Safety `json:"safety"`
	// Detail has the numbers.
	Detail string `json:"detail"`
	// meanwhile says what clients may expect for as long as nothing changes.
	meanwhile string
}

const (
	serves   = "etcd goes on serving."
	noSpare  = "etcd serves, but takes no writes if one more member fails."
	noWrites = "etcd takes no writes meanwhile."
	notTold  = "Whether etcd serves is not known."
)

// String is the first line of whatever is shown.
func (v Verdict) String() string { return string(v.Safety) + ": " + v.Detail }

// Verdict is what the evidence of the members says. It is as old as the evidence.
func (p *Plan) Verdict() Verdict {
	if p.Voters <= 0 {
		return Verdict{NotKnown, "no member of etcd has said who votes", notTold}
	}
	unsure := 0
	for i := range p.Members {
		if m := &p.Members[i]; m.Voter && m.Evidence == rollout.Unknown.String() {
			unsure++
		}
	}
	counts := fmt.Sprintf("%d/%d", p.Serving, p.Voters)
	switch {
	case p.Serving < p.Quorum && p.Serving+unsure >= p.Quorum:
		return Verdict{NotKnown, fmt.Sprintf("%s members are known to serve, %d are needed, and %s", counts, p.Quorum,
			Plural(unsure, "one gives no sign", "%d give no sign")), notTold}
	case p.Serving < p.Quorum:
		return Verdict{QuorumLost, fmt.Sprintf("writes fail: %s members serve, and %d are needed", counts, p.Quorum),
			noWrites}
	}
	const readers = "Clients may read different data from different members."
	for _, trouble := range []struct {
		is              bool
		text, meanwhile string
	}{
		{p.NoSpace, "etcd takes no writes because of an alarm NOSPACE", noWrites},
		{p.heldBy(rollout.GuardCorrupt), "etcd has an alarm CORRUPT", readers},
		{p.heldBy(rollout.GuardDataAgrees), "the members' data differ", readers},
		{p.heldBy(rollout.GuardListsAgree), "the members' lists of members differ", noSpare},
		{p.heldBy(rollout.GuardInconsistent), "what is seen contradicts itself", notTold},
	} {
		if trouble.is {
			return Verdict{AtRisk, "quorum " + counts + ", but " + trouble.text, trouble.meanwhile}
		}
	}
	return spare("quorum "+counts, p.Serving, p.Voters)
}

// heldBy is true where the guard holds one of the duties for good.
func (p *Plan) heldBy(g rollout.Guard) bool {
	for _, w := range append(p.Others[:len(p.Others):len(p.Others)], p.Work) {
		if w.Guard == g && w.Action == rollout.ActionHold {
			return true
		}
	}
	return false
}

// spare is the verdict on a quorum that serves.
func spare(counts string, serving, voters int) Verdict {
	quorum := voters/2 + 1
	switch more := serving - quorum; {
	case voters == 1:
		return Verdict{Safe, counts + ", and the only member has no spare", serves}
	case more <= 0:
		return Verdict{AtRisk, counts + ", none may fail", noSpare}
	default:
		return Verdict{Safe, counts + ", " + Plural(more, "one", "%d") + " may fail", serves}
	}
}

// Verdict is by the evidence of the members, where somebody who is to be believed has asked them. Else it is by the
// pods as they are now, with the ghosts that are known: an old report proves nothing.
func (s *Status) Verdict() Verdict {
	switch s.Word {
	case KubernetesWord:
	case OldWord:
		return s.silence()
	default:
		return s.Report.Verdict()
	}
	pods, ready := 0, 0
	for i := range s.Members {
		m := &s.Members[i]
		if m.Pod == "" {
			continue
		}
		pods++
		if s.Pods[m.Pod].Etcd {
			ready++
		}
	}
	voters := pods
	for i := range s.Ghosts {
		if !s.Ghosts[i].Learner {
			voters++
		}
	}
	counts := fmt.Sprintf("etcd is ready in %d/%d pods", ready, pods)
	if ghosts := voters - pods; ghosts > 0 {
		counts += Plural(ghosts, ", and a ghost that votes", ", and %d ghosts that vote")
	}
	const notAsked = " (etcd was not asked)"
	switch quorum := voters/2 + 1; {
	case pods == 0:
		return Verdict{NotKnown, "the StatefulSet has no replicas", notTold}
	case ready < quorum:
		return Verdict{AtRisk, fmt.Sprintf("%s, and a quorum is %d: writes may fail", counts, quorum) + notAsked,
			notTold}
	default:
		v := spare(counts, ready, voters)
		v.Detail += notAsked
		return v
	}
}

// Otherwise says what happens if nobody does anything. It is empty where there is nothing to be done.
func (s *Status) Otherwise() string {
	switch {
	case s.Action == rollout.ActionComplete, s.Action == rollout.ActionIdle, s.Word == OldWord && !s.Rolling():
		return ""
	case s.Word == OldWord, s.Nobody != "", s.nobodyActs(), s.Waits() && s.Unattended() && !s.Claimed:
		return "nothing is rolled until a sidecar coordinates. " + s.Verdict().meanwhile
	}
	waits := s.Action == rollout.ActionWait && s.Duty == rollout.DutyRoll && s.LeftAlone == ""
	if waits && !s.Rolling() && s.Word == KubernetesWord && s.Progress.Outdated == 0 {
		return "this mostly ends by itself, and there is nothing to roll. " + s.Verdict().meanwhile
	}
	return s.otherwise(s.Verdict())
}

// Otherwise says what happens if nobody does anything, by a report that is fresh.
func (r *Report) Otherwise() string { return r.otherwise(r.Verdict()) }

func (r *Report) otherwise(v Verdict) string {
	what := keptOf(r.Duty).words
	switch {
	case r.Action == rollout.ActionWait && r.LeftAlone != "":
		return r.LeftAlone + ". " + v.meanwhile
	case r.Action == rollout.ActionWait && r.Duty == rollout.DutyHeld:
		return "it goes on by itself when that is over. " + v.meanwhile
	case r.Action == rollout.ActionWait:
		return what + " goes on by itself when that is over. " + v.meanwhile
	case r.Action != rollout.ActionHold:
		return ""
	case r.Duty == rollout.DutyHeld:
		return "nothing more is done until the cause is gone. " + v.meanwhile
	case keptOf(r.Duty) != keptOf(rollout.DutyRoll):
		return what + " is not done until the cause is gone. " + v.meanwhile
	}
	return "nothing more is rolled until the cause is gone. " + v.meanwhile
}

// Commands are what an operator types first about the guard that keeps the rollout, with the real names.
func (r *Report) Commands() []string {
	row := rollout.RowOf(r.Guard)
	if row == nil {
		return nil
	}
	names := strings.NewReplacer("NAMESPACE", r.Namespace, "NAME", r.StatefulSet, "POD", r.Pod)
	var commands []string
	for _, command := range row.Commands {
		if r.Pod != "" || !strings.Contains(command, "POD") {
			commands = append(commands, names.Replace(command))
		}
	}
	return commands
}

// reference is where the pages are that explain the guards.
const reference = "https://github.com/quorate/quorate/blob/main/docs/reference.md"

// Link is where the guard is explained. It is empty for what is no guard: others may write the Lease.
func Link(guard rollout.Guard) string {
	if rollout.RowOf(guard) == nil {
		return ""
	}
	return reference + "#" + strings.ToLower(string(guard))
}

// Plural is the first text for one, and the other one, with the number, for more.
func Plural(n int, one, more string) string {
	if n == 1 {
		return one
	}
	return fmt.Sprintf(more, n)
}

// colour is by what the word says.
func (s Safety) colour() string {
	switch s {
	case Safe:
		return good
	case AtRisk:
		return waiting
	case QuorumLost:
		return alarm
	default:
		return strong
	}
}
