// Package report is one value, [Report], of what is going on in a StatefulSet and why, since when and what would help.
// Its renderers, for people and for programs, are the tables of status and plan, the status that etcd-druid's DEP-01
// proposes for an Etcd, events, metrics, and the annotations of the Lease. Package pkg/page serves it over HTTP.
//
// A coordinator keeps a [Journal] of what it decides and does. It makes a report of every decision ([New]), and an
// entry of the [History] of an [Outcome]. An observer from outside makes a [Status] of what can be seen ([Look]), and a
// reader of the Lease one of what was written there ([Heard]). Neither takes an old report for a new one.
package report

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/quorate/quorate/pkg/rollout"
)

// Plan is a decision with everything it rests on.
type Plan struct {
	Work
	Members []Member `json:"members"`
	Voters  int      `json:"voters"`
	Quorum  int      `json:"quorum"`
	Serving int      `json:"serving"`
	// Leaving says which members others take or have taken, and why: a sentence for each.
	Leaving []string `json:"leaving,omitempty"`
	// Ghosts are the members on etcd's list that nobody runs any more.
	Ghosts []Ghost `json:"ghosts,omitempty"`
	// Others is what the other duties would do or wait for, as far as they have something to say.
	Others []Work `json:"others,omitempty"`
	// Cluster is the ID of etcd's cluster in hexadecimal; empty when no member has told it.
	Cluster string `json:"cluster,omitempty"`
	// NoSpace is true while etcd takes no writes, because of an alarm NOSPACE.
	NoSpace bool `json:"noSpace,omitempty"`
	// Reported is what the coordinator has reported, beside a plan of somebody else's. NotAsked is set where that plan
	// is no decision.
	Reported *Reported `json:"reported,omitempty"`
	NotAsked *NotAsked `json:"notAsked,omitempty"`
	// Assumed is what the plan takes for granted although it is not so, because somebody asks what would be.
	Assumed []rollout.Assumption `json:"assumed,omitempty"`
}

// Work is what one duty has decided.
type Work struct {
	// Duty is the duty's name.
	Duty   rollout.DutyName   `json:"duty,omitempty"`
	Action rollout.ActionName `json:"action"`
	// Target is the pod that is removed, or, for MoveLeader, that hands leadership over. For RemoveMember and Disarm
	// it is the member's name, or its ID if it has none, or has left etcd's list.
	Target string `json:"target,omitempty"`
	// To is the pod that takes leadership over.
	To string `json:"to,omitempty"`
	// Method is how the target is removed: delete or evict.
	Method string `json:"method,omitempty"`
	// Pod is the pod that is waited for, or kept; empty where the cluster as a whole is.
	Pod string `json:"pod,omitempty"`
	// Rule chose the action; Guard is the guard that holds the work, if one does.
	Rule   rollout.Rule  `json:"rule"`
	Guard  rollout.Guard `json:"guard,omitempty"`
	Reason string        `json:"reason"`
	// Do is what an operator can do about the guard.
	Do string `json:"do,omitempty"`
	// LeftAlone is what happens if nobody does anything, where a guard that mostly clears by itself does not this time.
	LeftAlone  string      `json:"leftAlone,omitempty"`
	Candidates []Candidate `json:"candidates,omitzero"`
	// Preflight is what is known before the rollout begins; nil where nobody has asked for it.
	Preflight *Preflight `json:"preflight,omitempty"`
}

// Member is one ordinal of the StatefulSet, or a voter without a pod of ours.
type Member struct {
	Pod    string `json:"pod"`
	Member string `json:"member"`
	// ID is the member ID in hexadecimal, as etcd prints it; empty when there is none.
	ID string `json:"id"`
	// Role is leader, follower or learner; empty when it is not a member.
	Role  string `json:"role"`
	Voter bool   `json:"voter"`
	// Evidence is Serving, Down, Unknown, or Learner for a learner that answers.
	Evidence string `json:"evidence"`
	Detail   string `json:"detail"`
	// Revision is the pod's; Outdated says that it is not the one it should have.
	Revision string `json:"revision,omitempty"`
	Outdated bool   `json:"outdated"`
	Settled  bool   `json:"settled"`
	// Lag is how many log entries it has still to apply; nil when that is not known.
	Lag *uint64 `json:"lag,omitempty"`
	// Sidecar is ready or sick; empty without a pod.
	Sidecar string `json:"sidecar,omitempty"`
	// Version is etcd's own, as the member reports it.
	Version string `json:"version,omitempty"`
	// Database is how large its database is; nil when that is not known.
	Database *Database `json:"database,omitempty"`
	// Since is since when the evidence has been what it is; zero in a plan.
	Since time.Time `json:"since,omitzero"`
}

// worthTelling is from which size on a database is told to people: nobody has to care about a smaller one.
const worthTelling = 16 << 20

// Database says how large a member's database is, in bytes.
type Database struct {
	Size int64 `json:"size"`
	// Free is what a defragmentation would give back.
	Free int64 `json:"free"`
	// Quota is how large it may become, negative where there is no limit, and QuotaFrom says where that stands.
	Quota     int64  `json:"quota"`
	QuotaFrom string `json:"quotaFrom,omitempty"`
}

// missing is true when the pod does not exist: it has no revision then.
func (m *Member) missing() bool { return m.Revision == "" }

// Candidate is a pod or a member with every guard's verdict.
type Candidate struct {
	Pod    string  `json:"pod"`
	Guards []Guard `json:"guards"`
}

// Guard is one guard's verdict.
type Guard struct {
	Name   rollout.Guard `json:"name"`
	Pass   bool          `json:"pass"`
	Detail string        `json:"detail"`
	// Overridden is true when the guard would not pass, and the operator overrides it.
	Overridden bool `json:"overridden,omitempty"`
}

// NewPlan renders a decision.
func NewPlan(d rollout.Decision) Plan {
	a := d.Assessment
	p := Plan{Work: workOf(d), Voters: a.Voters, Quorum: a.Quorum, Serving: a.Serving, Leaving: a.Leavers(),
		Members: []Member{}}
	if id := a.Etcd().ClusterID; id != 0 {
		p.Cluster = strconv.FormatUint(id, 16)
	}
	_, p.NoSpace = a.Fullest()
	for _, other := range d.Others {
		p.Others = append(p.Others, workOf(other))
	}
	for i := range a.Replicas {
		m := memberOf(&a.Replicas[i])
		if d := a.Database(&a.Replicas[i]); d != nil {
			m.Database = &Database{Size: d.Size, Free: d.Free, Quota: d.Quota.Bytes, QuotaFrom: d.Quota.From}
			if d.Size >= worthTelling {
				m.Detail += "; database " + d.String()
			}
		}
		p.Members = append(p.Members, m)
	}
	for _, m := range a.External {
		p.Members = append(p.Members, externalOf(m, a.Leader))
	}
	return p
}

func workOf(d rollout.Decision) Work {
	w := Work{
		Duty: d.Duty, Action: d.Action.Name(), Rule: d.Rule, Guard: d.Guard, Reason: Plain(d.Reason()),
		Target: d.About(), Pod: d.Pod(), Do: Plain(d.Do()), LeftAlone: d.LeftAlone(),
		Candidates: []Candidate{},
	}
	switch action := d.Action.(type) {
	case rollout.MoveLeader:
		w.To = action.Transfer.ToName
	case rollout.Remove:
		w.Method = action.Method.String()
	}
	for i := range d.Candidates {
		c := Candidate{Pod: d.Candidates[i].Pod, Guards: []Guard{}}
		for _, v := range d.Candidates[i].Verdicts {
			c.Guards = append(c.Guards, Guard{Name: v.Guard, Pass: v.Pass, Detail: Plain(v.Detail()),
				Overridden: v.Overridden})
		}
		w.Candidates = append(w.Candidates, c)
	}
	return w
}

func memberOf(s *rollout.Replica) Member {
	m := Member{
		Pod: s.Name, Voter: s.Voter, Evidence: s.Evidence.String(), Detail: s.Describe(),
		Outdated: s.Outdated, Settled: s.Settled,
	}
	if s.Pod != nil {
		m.Revision, m.Sidecar = s.Pod.Revision, "ready"
		if s.SidecarSick {
			m.Sidecar = "sick"
		}
	}
	if s.Member == nil {
		return m
	}
	if st := s.Member.Probe.Status; st != nil {
		m.Lag, m.Version = &s.Lag, st.Version
	}
	m.Member, m.ID, m.Role = s.Member.Name, strconv.FormatUint(s.Member.ID, 16), role(s.Member.Learner, s.Leader)
	if s.Member.Learner && s.Evidence == rollout.Serving {
		m.Evidence = "Learner"
	}
	return m
}

func externalOf(x *rollout.Member, leader uint64) Member {
	m := Member{
		Member: x.Name, ID: strconv.FormatUint(x.ID, 16), Role: role(x.Learner, x.ID == leader), Voter: true,
		Evidence: rollout.Unknown.String(), Detail: "a voter without a pod of this StatefulSet",
	}
	if x.Probe.Read == rollout.Answered {
		m.Evidence = rollout.Serving.String()
	}
	return m
}

func role(learner, leader bool) string {
	switch {
	case learner:
		return "learner"
	case leader:
		return "leader"
	}
	return "follower"
}

// Headline says in a few words what happens, or what holds it.
func (w Work) Headline() string {
	switch {
	case w.To != "":
		return fmt.Sprintf("%s %s → %s", w.Action, w.Target, w.To)
	case w.Method != "":
		return fmt.Sprintf("%s %s (%s)", w.Action, w.Target, w.Method)
	case w.Target != "":
		return fmt.Sprintf("%s %s", w.Action, w.Target)
	case w.Guard != "":
		return fmt.Sprintf("%s: %s", w.Action, w.Guard)
	}
	return string(w.Action)
}

// Table writes the plan for a person: first what happens and why, then the members,
// then, for every candidate, what the guards say.
func (p Plan) Table(w io.Writer) error {
	var b strings.Builder
	b.WriteString(AssumedInWords(p.Assumed))
	if err := p.Reported.Write(&b, p.NotAsked != nil); err != nil {
		return err
	}
	switch {
	case p.NotAsked != nil && p.NotAsked.Partly:
		p.NotAsked.write(&b)
		printf(&b, "\nThe other files alone say %s. That is no decision.\n  %s\n", p.Headline(), p.Reason)
	case p.NotAsked != nil:
		p.NotAsked.write(&b)
	default:
		if p.Reported != nil {
			b.WriteString("This plan says:\n")
		}
		p.head(&b)
	}
	b.WriteString("\n")

	t := newTable(&b, "POD", "MEMBER", "ID", "ROLE", "EVIDENCE", "REVISION", "SETTLED", "DETAIL")
	for _, m := range p.Members {
		t.row(dash(m.Pod), dash(m.Member), dash(m.ID), dash(m.Role), m.Evidence, m.revision(), yes(m.Settled), m.Detail)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if p.NotAsked != nil { // The guards judge what nobody has seen.
		_, err := io.WriteString(w, b.String())
		return err
	}
	if err := p.guards(&b); err != nil {
		return err
	}
	for _, o := range p.Others {
		printf(&b, "\n%s: %s\n  %s\n", o.Duty, o.Headline(), o.Reason)
		if o.Do != "" {
			printf(&b, "  what to do: %s\n", o.Do)
		}
		if err := o.guards(&b); err != nil {
			return err
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// AssumedInWords says what a plan takes for granted, in a line. It is empty where that is nothing.
func AssumedInWords(assumed []rollout.Assumption) string {
	words := map[rollout.Assumption]string{
		rollout.AssumedOnDelete: "the update strategy is OnDelete", rollout.AssumedSidecars: "every pod has a sidecar",
		rollout.AssumedResumed: "nothing is paused", rollout.AssumedOutdated: "every pod is outdated",
	}
	var is []string
	for _, a := range assumed {
		is = append(is, words[a])
	}
	if len(is) == 0 {
		return ""
	}
	return "Assuming that " + inOne(is) + ":\n"
}

// inOne joins parts of a sentence.
func inOne(parts []string) string {
	last := len(parts) - 1
	if last < 1 {
		return strings.Join(parts, "")
	}
	return strings.Join(parts[:last], ", ") + " and " + parts[last]
}

// head says what happens and why.
func (p Plan) head(b *strings.Builder) {
	printf(b, "%s\n  %s\n  rule %s", p.Headline(), p.Reason, p.Rule)
	if p.Voters > 0 {
		b.WriteString("; " + p.votersInWords())
	}
	if p.Do != "" {
		printf(b, "\n  what to do: %s", p.Do)
	}
	for _, who := range p.Leaving {
		printf(b, "\n  leaving: %s", who)
	}
	for i := range p.Ghosts {
		printf(b, "\n  ghost: %s", p.Ghosts[i].Tell(time.Time{}))
	}
	b.WriteString("\n")
}

// guards writes what the guards say of every candidate.
func (w Work) guards(b *strings.Builder) error {
	for _, c := range w.Candidates {
		printf(b, "\n%s\n", c.Pod)
		t := newTable(b)
		for _, g := range c.Guards {
			verdict := "holds"
			if g.Pass {
				verdict = "passes"
			}
			if g.Overridden {
				verdict = "OVERRIDDEN"
			}
			t.row("  "+string(g.Name), verdict, g.Detail)
		}
		if err := t.Flush(); err != nil {
			return err
		}
	}
	return nil
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// Order writes a predicted rollout, one line a step.
func Order(w io.Writer, plans []Plan) error {
	t := newTable(w, "STEP", "ACTION", "POD", "RULE", "WHY")
	for i, p := range plans {
		pod := dash(p.Target)
		if p.To != "" {
			pod += " → " + p.To
		}
		t.row(strconv.Itoa(i+1), string(p.Action), pod, string(p.Rule), p.Reason)
	}
	return t.Flush()
}
