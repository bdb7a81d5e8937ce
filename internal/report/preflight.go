package report

import (
	"io"
	"strings"

	"github.com/quorate/quorate/pkg/rollout"
)

// Preflight is what is known about the change of etcd's version that a rollout makes.
type Preflight struct {
	// Same is true where every member runs the new minor version already, or every pod has the new image. Then no row
	// is about the rollout, but for arguments that a member's release knows and the new one does not.
	Same bool `json:"same"`
	// Members are the versions that the members tell, Cluster is the version of the cluster, and New is the
	// version in the new template; each empty if it is not known.
	Members []string `json:"members"`
	Cluster string   `json:"cluster,omitempty"`
	New     string   `json:"new,omitempty"`
	// Unknown says what keeps it from being checked, and Unchecked what of etcd's arguments is not; each is empty if
	// nothing is.
	Unknown   string  `json:"unknown,omitempty"`
	Unchecked string  `json:"unchecked,omitempty"`
	Checks    []Check `json:"checks"`
}

// Check is one row of what is known to go wrong.
type Check struct {
	Guard rollout.Guard `json:"guard"`
	// Applies is yes, no, or unknown.
	Applies string `json:"applies"`
	From    string `json:"from"`
	To      string `json:"to"`
	Why     string `json:"why"`
	Do      string `json:"do"`
	Source  string `json:"source"`
	// Arguments are those of etcd's that the row is about, and Found those of them in the new template.
	Arguments []string `json:"arguments,omitempty"`
	Found     []string `json:"found,omitempty"`
}

// NewPreflight returns what is known before the rollout that was decided on, with every row.
func NewPreflight(d rollout.Decision) *Preflight {
	a := d.Assessment
	s := a.Step()
	p := &Preflight{Same: s.Same, Unknown: s.Unknown, Unchecked: s.Unchecked(), Members: []string{}}
	for _, v := range s.From {
		p.Members = append(p.Members, v.String())
		p.Cluster = s.Cluster.InWords()
	}
	if s.To != (rollout.Version{}) {
		p.New = s.To.String()
	}
	for i := range rollout.Checks {
		row := &rollout.Checks[i]
		c := Check{Guard: row.Guard, From: row.From, To: row.To, Why: row.Why, Do: row.Do, Source: row.Source,
			Applies: "no", Arguments: row.Arguments()}
		switch applies, found := row.Applies(s); {
		case s.Unknown != "":
			c.Applies = "unknown"
		case applies:
			c.Applies, c.Found = yes(true), found
		}
		p.Checks = append(p.Checks, c)
	}
	return p
}

// Table writes it for a person.
func (p *Preflight) Table(w io.Writer) error {
	var b strings.Builder
	b.WriteString("\nWhat is known to go wrong when etcd's version changes")
	switch {
	case p.Unknown != "":
		printf(&b, ". Not checked: %s", p.Unknown)
	case p.Same:
		b.WriteString(". Every member runs the new minor version already, or has the new image, so it is only asked " +
			"about arguments that the release before knew")
	default:
		b.WriteString(". It is asked about every pod that gets another minor version, and not on the way back")
	}
	printf(&b, "\n  members: %s; version of the cluster: %s; new template: %s\n", dash(strings.Join(p.Members, ", ")),
		dash(p.Cluster), dash(p.New))
	if p.Unchecked != "" {
		printf(&b, "  not checked: %s\n", p.Unchecked)
	}
	for i := range p.Checks {
		c := &p.Checks[i]
		printf(&b, "\n  applies: %s\n    %s, from %s to %s: ", c.Applies, c.Guard, c.From, c.To)
		if len(c.Arguments) > 0 {
			printf(&b, "not known there: --%s\n", strings.Join(c.Arguments, ", --"))
		} else {
			printf(&b, "%s\n", c.Why)
		}
		if len(c.Found) > 0 {
			printf(&b, "    in the new template: %s\n", strings.Join(c.Found, ", "))
		}
		printf(&b, "    way out: %s\n    source: %s\n", c.Do, c.Source)
	}
	_, err := io.WriteString(w, b.String())
	return err
}
