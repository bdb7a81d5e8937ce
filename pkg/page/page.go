// Package page serves what a sidecar reports over HTTP: whether it runs, its metrics, and a page for
// people. A host mounts [Handler] wherever it likes.
package page

import (
	"bytes"
	"context"
	_ "embed"
	"fmt"
	"html/template"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/quorate/quorate/internal/report"
	"github.com/quorate/quorate/pkg/rollout"
)

// Source is what the page asks. A *coordinator.Coordinator satisfies it.
type Source interface {
	// Report returns what is going on, and what was done last. Its types may change; only this page and
	// the command read them.
	Report(ctx context.Context) (report.Report, report.History, error)
	// Running is true while the sidecar does its work.
	Running() bool
}

// Config is what a host hands over.
type Config struct {
	// Source is required.
	Source Source
	// Gatherer has the metrics. Nil serves none.
	Gatherer prometheus.Gatherer
	// Namespace, StatefulSet and PodName name what the page is about and who serves it. PodName is
	// empty outside a pod.
	Namespace, StatefulSet, PodName string
	// Version is shown at the foot of the page.
	Version string
}

// askEvery is how long one answer of the source is shown to everybody. A sidecar that does not
// coordinate reads the Lease for each answer, and the page asks for no password.
const askEvery = time.Second

// These are how often the page reloads itself, in seconds. During a rollout its steps take seconds.
// When nothing is under way, the page should still notice that a rollout began.
const (
	refreshRolling = 2
	refreshIdle    = 30
)

// Handler serves, below wherever it is mounted:
//
//	/         a page that tells what is going on, why, since when, and what to do
//	/healthz  200 while the sidecar runs, whatever etcd and Kubernetes do: a restart helps
//	          neither, and would cost the pod its readiness
//	/metrics  the metrics of Config.Gatherer
//
// Mount it under a prefix with http.StripPrefix, and with a slash at the end of the pattern.
// It changes nothing and shows no secret, but it asks nobody for a password either.
func Handler(cfg Config) http.Handler {
	p := &pages{Config: cfg}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", p.status)
	mux.HandleFunc("GET /healthz", p.health)
	if cfg.Gatherer != nil {
		mux.Handle("GET /metrics", promhttp.HandlerFor(cfg.Gatherer, promhttp.HandlerOpts{}))
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "" { // This is what http.StripPrefix leaves of the bare prefix.
			copied := r.Clone(r.Context())
			copied.URL.Path, r = "/", copied
		}
		mux.ServeHTTP(w, r)
	})
}

type pages struct {
	Config

	mu    sync.Mutex
	asked time.Time
	last  answer
}

// answer is what the source returned.
type answer struct {
	report  report.Report
	history report.History
	err     error
}

func (p *pages) health(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	if !p.Source.Running() {
		w.WriteHeader(http.StatusServiceUnavailable)
		fmt.Fprintln(w, "the sidecar does not run")
		return
	}
	fmt.Fprintln(w, "ok")
}

// ask returns the source's last answer, which everybody shares for a moment. It asks the source one
// request at a time.
func (p *pages) ask(ctx context.Context) answer {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.asked.IsZero() || time.Since(p.asked) >= askEvery {
		// Whoever asked may go away. The answer is for the others too.
		r, h, err := p.Source.Report(context.WithoutCancel(ctx))
		p.last, p.asked = answer{r, h, err}, time.Now()
	}
	return p.last
}

func (p *pages) status(w http.ResponseWriter, r *http.Request) {
	a := p.ask(r.Context())
	var b bytes.Buffer
	v := p.view(a, time.Now())
	if err := layout().Execute(&b, &v); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	// The page loads nothing, runs nothing, and cannot be framed by others.
	h.Set("Content-Security-Policy",
		"default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	// A client that has gone away is not our fault.
	_, _ = b.WriteTo(w)
}

// view is what the layout shows.
type view struct {
	Config
	report.Report
	Version string // Quorate's own, and not that of the report.

	// Error is why nothing can be shown. Told is false if no coordinator has reported anything yet.
	Error string
	Told  bool
	// Tone is good, busy, wait, hold or idle.
	Tone string
	// Word says who reported this. Stale says that the report is too old to be believed. Then is how
	// long ago the members were seen, unless that is now.
	Word, Then string
	Stale      bool
	// Failing are the faults, as long as somebody still reports them.
	Failing []string
	// Ghosts are told until a coordinator tells otherwise.
	Ghosts []string

	SinceText, SpanText string
	Parts               []part
	Rows                []report.Row
	History             []event
	Refresh             int
	Metrics             bool
	Now                 string
}

// part is a pod in the bar.
type part struct{ Name, State string }

// event is a line of the history, newest first.
type event struct {
	Time, Ago, What, Text, Who string
	Why                        string
}

func (p *pages) view(a answer, now time.Time) view {
	v := view{Config: p.Config, Report: a.report, Version: p.Version, Tone: "idle", Refresh: refreshIdle,
		Metrics: p.Gatherer != nil, Now: now.UTC().Format(time.RFC3339)}
	if t := v.OverrideTerms; t != nil && !t.Until.IsZero() && !now.Before(t.Until) {
		v.Overrides = nil // The last report may be of long ago.
	}
	if a.err != nil {
		v.Error = a.err.Error()
		return v
	}
	for _, e := range slices.Backward(a.history) {
		v.History = append(v.History, eventOf(e, now))
	}
	r := &v.Report
	if v.Told = !r.At.IsZero(); !v.Told {
		return v
	}
	v.Tone, v.Rows = tone(r.Action), r.Rows(nil, now)
	if old := now.Sub(r.At) > report.FreshFor; old {
		v.Then, v.Stale = report.Ago(now, r.At), r.Rolling()
		for i := range v.Rows {
			v.Rows[i].Since = "-" // Nobody knows whether this is still so.
		}
	}
	if v.Then == "" {
		v.Failing = r.Faults
	}
	for i := range r.Ghosts {
		v.Ghosts = append(v.Ghosts, r.Ghosts[i].Tell(now))
	}
	if !r.Since.IsZero() {
		v.SinceText = report.Ago(now, r.Since)
	}
	age := report.Ago(now, r.At)
	switch {
	case r.Rolling():
		v.Refresh = refreshRolling
		v.SpanText = "under way for " + report.Ago(now, r.Started)
	case !r.Ended.IsZero():
		v.SpanText = "ended " + report.Ago(now, r.Ended) + " ago"
	}
	switch {
	case v.Stale:
		v.Word, v.Tone = fmt.Sprintf("%s reported this last, %s ago. It may be wrong by now.", r.Coordinators(), age),
			"hold"
	case p.PodName != "" && r.Coordinator == p.PodName && v.Then == "":
		v.Word = fmt.Sprintf("This sidecar coordinates: %s. It reported this %s ago.", r.Coordinators(), age)
	case r.Rolling():
		v.Word = fmt.Sprintf("The coordinator %s reported this %s ago.", r.Coordinators(), age)
	default:
		v.Word = fmt.Sprintf("The last coordinator was %s. It reported this %s ago. Nobody looks while there is "+
			"nothing to do.",
			r.Coordinators(), age)
	}
	for i := range r.Members {
		if m := &r.Members[i]; m.Pod != "" {
			state := "unsettled"
			switch {
			case m.Settled:
				state = "settled"
			case m.Outdated && m.Revision != "":
				state = "outdated"
			}
			v.Parts = append(v.Parts, part{Name: m.Pod, State: state})
		}
	}
	return v
}

func tone(action rollout.ActionName) string {
	switch action {
	case rollout.ActionComplete:
		return "good"
	case rollout.ActionHold:
		return "hold"
	case rollout.ActionWait:
		return "wait"
	case rollout.ActionIdle:
		return "idle"
	default:
		return "busy"
	}
}

func eventOf(e report.Entry, now time.Time) event {
	v := event{Time: e.At.UTC().Format(time.RFC3339), Ago: report.Ago(now, e.At), What: e.What, Text: e.Pod,
		Why: e.Why()}
	if e.To != "" {
		v.Text += " → " + e.To
	}
	if e.By != "" {
		v.Who = fmt.Sprintf("%s, epoch %d", e.By, e.Epoch)
	}
	return v
}

//go:embed page.html
var html string

// layout is made when somebody looks, so that a host in which nobody does pays nothing for it.
var layout = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("page").Funcs(template.FuncMap{"code": code}).Parse(html))
})

// code shows text between two backticks as code, as a reference page in Markdown does.
func code(text string) template.HTML {
	parts := strings.Split(template.HTMLEscapeString(text), "`")
	var b strings.Builder
	for i, part := range parts {
		switch {
		case i%2 == 1 && i < len(parts)-1:
			part = "<code>" + part + "</code>"
		case i%2 == 1:
			part = "`" + part // It has no partner.
		}
		b.WriteString(part)
	}
	return template.HTML(b.String()) //nolint:gosec // Every part was escaped.
}
