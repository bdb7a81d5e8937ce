// Package page serves what a sidecar reports over HTTP: whether it runs, its metrics, and a page for
// people. A host mounts [Handler] wherever it likes.
package page

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/quorate/quorate/internal/report"
)

// Source is what the page asks. A *coordinator.Coordinator satisfies it.
type Source interface {
	// Report returns what is going on, and what was done last. Its types may change; only this page and
	// the command read them.
	Report(ctx context.Context) (report.Status, error)
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

// These are how often the page fetches itself anew, in seconds. During a rollout its steps take seconds.
// When nothing is under way, the page should still notice that a rollout began.
const (
	everyRolling = 2
	everyIdle    = 30
)

// Handler serves, below wherever it is mounted:
//
//	/             a page that tells whether the cluster is safe, what is going on, why, since when, and what to do. It
//	              keeps itself up to date, and works without JavaScript when it is reloaded
//	/status.json  the same for programs, in the shape of `quorate status -o json`. It rests on what coordinators
//	              report, never on a look of its own: where that is too old to be believed, the verdict is UNKNOWN,
//	              and so is every condition and member. 503 with {"error": "…"} if the report cannot be read
//	/healthz      200 while the sidecar runs, whatever etcd and Kubernetes do: a restart helps
//	              neither, and would cost the pod its readiness
//	/metrics      the metrics of Config.Gatherer
//
// Mount it under a prefix with http.StripPrefix, and with a slash at the end of the pattern.
// It changes nothing and shows no secret, but it asks nobody for a password either.
func Handler(cfg Config) http.Handler {
	p := &pages{Config: cfg}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", p.page)
	mux.HandleFunc("GET /status.json", p.status)
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
	status report.Status
	err    error
}

func (p *pages) health(w http.ResponseWriter, _ *http.Request) {
	head(w, "text/plain; charset=utf-8")
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
		s, err := p.Source.Report(context.WithoutCancel(ctx))
		p.last, p.asked = answer{s, err}, time.Now()
	}
	return p.last
}

// head is what every answer of ours says of itself.
func head(w http.ResponseWriter, contentType string) {
	h := w.Header()
	h.Set("Content-Type", contentType)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
}

func (p *pages) status(w http.ResponseWriter, r *http.Request) {
	a := p.ask(r.Context())
	head(w, "application/json")
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	// A client that has gone away is not our fault.
	if a.err != nil {
		w.WriteHeader(http.StatusServiceUnavailable)
		_ = encoder.Encode(map[string]string{"error": a.err.Error()})
		return
	}
	_ = encoder.Encode(a.status.Etcd())
}

func (p *pages) page(w http.ResponseWriter, r *http.Request) {
	var b bytes.Buffer
	v := p.view(p.ask(r.Context()), time.Now())
	if err := layout().Execute(&b, &v); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	head(w, "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", security())
	w.Header().Set("Referrer-Policy", "no-referrer")
	_, _ = b.WriteTo(w)
}
