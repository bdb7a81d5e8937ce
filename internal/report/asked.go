package report

import (
	"io"
	"strings"
	"time"

	"github.com/quorate/quorate/internal/record"
	"github.com/quorate/quorate/pkg/rollout"
)

// NotAsked says why a plan is no decision: nobody has asked etcd, or nobody has answered.
type NotAsked struct {
	// Why is a sentence, and Details are what is missing, or what came from each address that was asked.
	Why     string   `json:"why"`
	Details []string `json:"details,omitempty"`
	// How are ways to ask.
	How []Way `json:"how,omitempty"`
	// Partly is true where the witnesses that there are say who serves. Then the rest of the plan is what they alone
	// come to.
	Partly bool `json:"partly,omitempty"`
}

// Way is something to do, with commands that are ready to be run.
type Way struct {
	Say string   `json:"say"`
	Run []string `json:"run"`
}

// Undecided makes the plan one that is no decision, and advises nothing about a guard that nobody can judge.
func (p *Plan) Undecided(n *NotAsked) {
	p.NotAsked, p.Do = n, ""
	for i := range p.Others {
		p.Others[i].Do = ""
	}
}

// write begins a plan for a person.
func (n *NotAsked) write(b *strings.Builder) {
	printf(b, "not asked: %s\n", n.Why)
	for _, detail := range n.Details {
		printf(b, "  %s\n", detail)
	}
	for _, way := range n.How {
		printf(b, "\n%s:\n", way.Say)
		for _, command := range way.Run {
			printf(b, "  %s\n", command)
		}
	}
}

// String is the same in lines, for an error.
func (n *NotAsked) String() string {
	var b strings.Builder
	n.write(&b)
	return strings.TrimSuffix(b.String(), "\n")
}

// Reported is what a coordinator has reported a moment ago, as somebody else repeats it.
type Reported struct {
	// Coordinator is the pod that reported it, Epoch is the number of its claim, and Fallback is as in a Report.
	Coordinator string `json:"coordinator"`
	Epoch       int    `json:"epoch,omitempty"`
	Fallback    bool   `json:"fallback,omitempty"`
	// At is when it was reported, Since is since when it has been so, and Read is when it was read.
	At    time.Time `json:"at"`
	Since time.Time `json:"since,omitzero"`
	Read  time.Time `json:"read"`
	// Earlier is true if the template has changed since.
	Earlier bool `json:"earlier,omitempty"`
	Work
}

// ReportedTo returns what the coordinator has reported, or nil if there is no fresh report.
func ReportedTo(now time.Time, last *Report, lease record.Record, updateRevision string) *Reported {
	if !last.Fresh(now, lease) {
		return nil
	}
	r := &Reported{
		Coordinator: last.Coordinator, Epoch: last.Epoch, Fallback: last.Fallback, At: last.At, Since: last.Since,
		Read: now, Earlier: last.UpdateRevision != updateRevision, Work: last.Work,
	}
	r.Candidates, r.Preflight = nil, nil
	return r
}

// Write writes it for a person, with what to do if they are to learn that from it. A nil one writes nothing.
func (r *Reported) Write(w io.Writer, do bool) error {
	if r == nil {
		return nil
	}
	var b strings.Builder
	role := "coordinator"
	if r.Fallback {
		role = "coordinator in the fallback"
	}
	printf(&b, "%s (%s, epoch %d) reported %s ago: %s", r.Coordinator, role, r.Epoch, Ago(r.Read, r.At), r.Headline())
	if !r.Since.IsZero() {
		printf(&b, ", for %s", Ago(r.Read, r.Since))
	}
	if r.Earlier {
		b.WriteString("; the template has changed since")
	}
	printf(&b, "\n  %s\n", r.Reason)
	if do && r.Do != "" {
		printf(&b, "  what to do: %s\n", r.Do)
	}
	b.WriteString("\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// Certain returns what Kubernetes alone decides, whatever etcd says. It is false if there is no such decision.
func Certain(s rollout.State, p rollout.Policy) (rollout.Decision, bool) {
	s.Etcd = rollout.Membership{}
	d := rollout.Decide(s, p)
	return d, d.Rule == rollout.RuleNotOurs || d.Rule == rollout.RuleHeld
}
