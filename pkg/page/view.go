package page

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/quorate/quorate/internal/report"
	"github.com/quorate/quorate/pkg/rollout"
)

// view is what the layout shows.
type view struct {
	Config
	report.Status
	Version string // Quorate's own.

	Answer answers
	// Told is false if there is no report that can be shown. Old is true for one that is too old to be believed, and
	// Then is how old it is.
	Told, Old bool
	Then      string
	// By says who reported this, and Span how long the rollout lasts or when it ended.
	By, Span string
	Cards    []card
	// Steps are those of the rollout, and Earlier is what was done before it. Both are in the order of time. Gap is how
	// long ago the last one was.
	Steps, Earlier []step
	Gap            string
	// Every is in how many seconds the page fetches itself anew.
	Every   int
	Metrics bool
}

// answers are what somebody who was woken up asks.
type answers struct {
	// Safety and Detail are the verdict. Tone is its colour and Mark its shape. Say is the verdict without ages, which
	// would change all the time. It is the title, and is called out when it has changed.
	Safety     report.Safety
	Detail     string
	Tone, Mark string
	Say        string
	// Doing is what is done or waited for, Since is for how long that has been so, and Why says why.
	Doing, Since, Why string
	// Otherwise is what happens if nobody does anything. Do and Commands are what can be done.
	Otherwise, Do string
	Commands      []string
}

// card is a member in the picture.
type card struct {
	report.Row
	Version string
	Name    string
	// Tone and Mark are by the evidence.
	Tone, Mark string
}

// step is an entry of the history.
type step struct {
	// At is for programs, and Time for people. Gap is how long it was after the step before.
	At, Time, Gap string
	What, Of      string
	Why, Who      string
}

func (p *pages) view(a answer, now time.Time) view {
	v := view{Config: p.Config, Status: a.status, Version: p.Version, Every: everyIdle, Metrics: p.Gatherer != nil}
	s := &v.Status
	if a.err != nil {
		s.Now = now
		v.Answer = answers{Safety: report.NotKnown, Detail: "the last report cannot be read", Why: a.err.Error(),
			Do: "If it lasts, read the log of this sidecar, and look at the page of another one."}
		v.paint()
		return v
	}
	v.Told, v.Old = !s.At.IsZero(), s.Word == report.OldWord
	v.Answer = v.answered()
	v.paint()
	v.timeline()
	if !v.Told {
		return v
	}
	age := report.Ago(s.Now, s.At)
	if v.Old {
		v.Then = age
	}
	switch {
	case s.Rolling():
		v.Every = everyRolling
		v.Span = "under way for " + report.Ago(s.Now, s.Started)
	case !s.Ended.IsZero():
		v.Span = "ended " + report.Ago(s.Now, s.Ended) + " ago"
	}
	switch who := s.Coordinators(); {
	case v.Old && s.Rolling():
		v.By = fmt.Sprintf("%s was the last to report, %s ago. It may be wrong by now.", who, age)
	case p.PodName != "" && s.Coordinator == p.PodName && !v.Old:
		v.By = fmt.Sprintf("This sidecar coordinates: %s. It reported this %s ago.", who, age)
	case s.Rolling():
		v.By = fmt.Sprintf("The coordinator %s reported this %s ago.", who, age)
	default:
		v.By = fmt.Sprintf("The last coordinator was %s. It reported this %s ago.", who, age)
	}
	rows := s.Rows(nil, s.Now)
	for i := range rows {
		v.Cards = append(v.Cards, cardOf(rows[i], s.Members[i].Version, v.Old))
	}
	return v
}

// answered answers by the report, or by its being too old.
func (v *view) answered() answers {
	s := &v.Status
	verdict := s.Verdict()
	a := answers{Safety: verdict.Safety, Detail: verdict.Detail, Otherwise: s.Otherwise()}
	if !v.Old {
		a.Doing, a.Why, a.Commands = s.Headline(), s.Reason, s.Commands()
		if !s.Since.IsZero() {
			a.Since = report.Ago(s.Now, s.Since)
		}
		if s.Waits() || s.Action == rollout.ActionIdle {
			a.Do = s.Do
		}
		return a
	}
	const shows = "This shows how the cluster is now, and with --endpoints it asks etcd too:"
	status := "quorate status -n " + v.Namespace + " " + v.StatefulSet
	last := fmt.Sprintf("The last report said %s, and %s: %s.", s.Report.Verdict(), s.Headline(),
		strings.TrimSuffix(s.Reason, "."))
	switch {
	case !v.Told:
		a.Doing = "No rollout has been seen yet"
		a.Why = "A coordinator reports on the Lease quorate-" + v.StatefulSet + " as soon as a pod is outdated."
		a.Do = "Nothing. " + shows
		a.Commands = []string{status}
	case s.Rolling():
		a.Doing = "Nobody coordinates"
		a.Why = "A rollout was under way. " + last
		a.Do = "See whether the sidecars run, and read their logs."
		a.Commands = []string{status, "kubectl get pods -n " + v.Namespace + " -o wide"}
	default:
		a.Doing = "No rollout was under way"
		a.Why = last + " Nobody looks while there is nothing to do, so it may have changed."
		a.Do = "Nothing. " + shows
		a.Commands = []string{status}
	}
	return a
}

// paint fills in how the verdict is shown: never by colour alone.
func (v *view) paint() {
	a := &v.Answer
	switch a.Safety {
	case report.Safe:
		a.Tone, a.Mark = "safe", "✓"
	case report.AtRisk:
		a.Tone, a.Mark = "risk", "!"
	case report.QuorumLost:
		a.Tone, a.Mark = "lost", "✕"
	default:
		a.Tone, a.Mark = "unknown", "?"
	}
	a.Say = string(a.Safety) + ": " + a.Detail
	if v.Old && v.Told {
		a.Say = string(a.Safety) + ": no fresh report"
	}
}

func cardOf(r report.Row, version string, old bool) card {
	c := card{Row: r, Version: version, Name: r.Pod, Tone: "unknown", Mark: "?"}
	if c.Name == "-" {
		c.Name = r.Member
	}
	if version == "" {
		c.Version = "-"
	}
	if old {
		c.Since = "-" // Nobody knows whether this is still so.
		return c
	}
	switch r.Evidence {
	case rollout.Serving.String():
		c.Tone, c.Mark = "safe", "●"
	case "Learner":
		c.Tone, c.Mark = "safe", "◐"
	case rollout.Down.String():
		c.Tone, c.Mark = "lost", "✕"
	}
	return c
}

// timeline splits the history where the rollout began that is under way, or else the last one.
func (v *view) timeline() {
	s := &v.Status
	began, ends := 0, 0
	for i, e := range slices.Backward(s.History) {
		if e.What == report.Completed {
			ends++
		}
		if s.Rolling() && e.At.Before(s.Started) || !s.Rolling() && ends == 2 {
			began = i + 1
			break
		}
	}
	rollout := s.History[began:]
	if s.Rolling() {
		rollout = slices.Insert(slices.Clone(rollout), 0,
			report.Entry{At: s.Started, What: "Began", Pod: "to revision " + s.UpdateRevision})
	}
	v.Steps, v.Earlier = steps(rollout, s.Now), steps(s.History[:began], s.Now)
	if n := len(rollout); n > 0 {
		v.Gap = "+" + report.Ago(s.Now, rollout[n-1].At)
	}
}

func steps(h report.History, now time.Time) []step {
	var all []step
	for i, e := range h {
		all = append(all, stepOf(e, now))
		if i > 0 {
			all[i].Gap = "+" + report.Ago(e.At, h[i-1].At)
		}
	}
	return all
}

func stepOf(e report.Entry, now time.Time) step {
	at := e.At.UTC()
	s := step{At: at.Format(time.RFC3339), Time: at.Format("2 Jan 15:04:05"), What: e.What, Of: e.Pod}
	if at.Format(time.DateOnly) == now.UTC().Format(time.DateOnly) {
		s.Time = at.Format(time.TimeOnly)
	}
	if e.To != "" {
		s.Of += " → " + e.To
	}
	if e.Reason != "" {
		s.Why = e.Why()
	}
	if e.By != "" {
		s.Who = fmt.Sprintf("by %s, epoch %d", e.By, e.Epoch)
	}
	return s
}

var (
	//go:embed page.html
	html string
	//go:embed page.css
	css string
	//go:embed page.js
	js string
)

// layout is made when somebody looks, so that a host in which nobody does pays nothing for it.
var layout = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("page").Funcs(template.FuncMap{
		"css":  func() template.CSS { return template.CSS(css) }, //nolint:gosec // It is ours.
		"js":   func() template.JS { return template.JS(js) },    //nolint:gosec // It is ours.
		"text": text, "link": report.Link,
	}).Parse(html))
})

// security lets the page run and look as it was written here, and fetch itself. It loads nothing else, and cannot be
// framed by others.
var security = sync.OnceValue(func() string {
	return "default-src 'none'; style-src " + hashed(css) + "; script-src " + hashed(js) +
		"; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
})

func hashed(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

// guards matches the names of all guards.
var guards = sync.OnceValue(func() *regexp.Regexp {
	names := make([]string, len(rollout.Guards))
	for i := range rollout.Guards {
		names[i] = string(rollout.Guards[i].Name)
	}
	return regexp.MustCompile(`\b(` + strings.Join(names, "|") + `)\b`)
})

// text shows a text of others. Each guard in it leads to the reference, and what stands between two backticks is
// code, as on a page in Markdown.
func text(text any) template.HTML {
	parts := strings.Split(template.HTMLEscapeString(fmt.Sprint(text)), "`")
	var b strings.Builder
	for i, part := range parts {
		code := i%2 == 1 && i < len(parts)-1
		switch {
		case code:
			part = "<code>" + part + "</code>"
		case i%2 == 1:
			part = "`" + part // It has no partner.
		}
		b.WriteString(guards().ReplaceAllStringFunc(part, func(name string) string {
			return `<a href="` + report.Link(rollout.Guard(name)) + `">` + name + `</a>`
		}))
	}
	return template.HTML(b.String()) //nolint:gosec // Every part was escaped.
}
