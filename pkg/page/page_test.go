package page

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/quorate/quorate/internal/report"
	"github.com/quorate/quorate/pkg/rollout"
)

// pagesDir is for looking at the pages in a browser.
var pagesDir = flag.String("pages", "", "write the page of every situation into this directory")

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// source tells what it is given.
type source struct {
	mu      sync.Mutex
	report  report.Report
	history report.History
	err     error
	down    bool
	asked   int
}

func (s *source) Report(context.Context) (report.Report, report.History, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked++
	return s.report, s.history, s.err
}

func (s *source) Running() bool { return !s.down }

// state is three members of which the pods named run the new revision.
func state(updated ...int) rollout.State {
	s := rollout.State{
		Set: rollout.Set{Name: "etcd-main", UID: "u", Replicas: 3, OnDelete: true,
			UpdateRevision: "etcd-main-7c9f4b6d58"},
		Etcd:   rollout.Membership{Known: true, Linearizable: true, ClusterID: 7},
		Memory: rollout.Memory{Ages: rollout.Ages{}},
	}
	for i := range 3 {
		name := "etcd-main-" + string(rune('0'+i))
		well := rollout.Container{State: rollout.ContainerRunning, Ready: true}
		s.Pods = append(s.Pods, rollout.Pod{
			Name: name, UID: "uid-" + name, ResourceVersion: "1", Ordinal: i, MemberName: name,
			Revision: "etcd-main-5f6d8c9b7d", Owned: true,
			Ready: true, ContainersReady: true, Initialized: true, Etcd: well, Sidecar: well,
		})
		s.Etcd.Members = append(s.Etcd.Members, rollout.Member{ID: 0x8e9e05c52164694d + uint64(i), Name: name,
			Probe: rollout.Probe{
				Read: rollout.Answered, Status: &rollout.Status{Leader: 0x8e9e05c52164694d, Term: 2, Index: 81234,
					Applied: 81234 - uint64(i)*3},
			}})
		s.Sidecars.Present = append(s.Sidecars.Present, "uid-"+name)
	}
	for _, i := range updated {
		s.Pods[i].Revision = s.Set.UpdateRevision
	}
	return s
}

// down: the etcd of a pod does not run, for this reason.
func down(s *rollout.State, i int, reason string, restarts int) {
	p := &s.Pods[i]
	p.Ready, p.ContainersReady = false, false
	p.Etcd = rollout.Container{State: rollout.ContainerWaiting, Reason: reason, Restarts: restarts}
	s.Etcd.Members[i].Probe = rollout.Probe{Read: rollout.Failed, Detail: "connection refused"}
}

func told(s rollout.State, at time.Time, by string) report.Report {
	policy := rollout.DefaultPolicy()
	r := report.New(report.Sight{
		Namespace: "garden", StatefulSet: "etcd-main", At: at, State: s, Decision: rollout.Decide(s, policy),
		Policy:      &policy,
		Coordinator: by, Epoch: 4,
	}, report.Report{})
	r.Since, r.Started = at.Add(-3*time.Minute), at.Add(-11*time.Minute)
	if s := r.Action; s == rollout.ActionComplete {
		r.Started, r.Ended = time.Time{}, r.Since
	}
	for i := range r.Members {
		r.Members[i].Since = at.Add(-time.Duration(i+1) * 4 * time.Minute)
	}
	return r
}

var past = report.History{
	{At: noon.Add(-11 * time.Minute), What: report.Removed, Pod: "etcd-main-2", Rule: "Serving",
		Revision: "etcd-main-7c9f4b6d58", By: "etcd-main-0", Epoch: 3,
		Reason: "its member serves; 3 of 3 voters serve, quorum 2, removing this one leaves 2"},
	{At: noon.Add(-9 * time.Minute), What: report.HandedOver, Pod: "etcd-main-0", To: "etcd-main-2", By: "etcd-main-0",
		Epoch: 3, Reason: "its revision is up to date"},
	{At: noon.Add(-8 * time.Minute), What: report.LeaderMoved, Pod: "etcd-main-0", To: "etcd-main-2", By: "etcd-main-2",
		Epoch: 4, Reason: "etcd-main-0 leads and is next; etcd-main-2 takes over first, so that no election is needed"},
}

const hostile = "`<script>alert(\"1\")</script>`\" onload='x' & `"

var situations = []struct {
	name string
	pod  string
	answer
	says    []string
	never   []string
	refresh string
}{
	{"nothing told", "etcd-main-0", answer{}, []string{"No rollout has been seen yet", "quorate-etcd-main"},
		[]string{"Members", "What was done"}, "30"},
	{"not readable", "etcd-main-0", answer{err: errors.New("get Lease quorate-etcd-main: forbidden")},
		[]string{"Nothing can be shown", "get Lease quorate-etcd-main: forbidden"}, []string{"Members"}, "30"},
	{"a fault", "etcd-main-2", func() answer {
		r := told(state(2), noon, "etcd-main-2")
		r.Faults = []string{"the pods cannot be watched: forbidden"}
		return answer{report: r}
	}(), []string{"FAULT: the pods cannot be watched: forbidden"}, nil, "2"},
	{"a ghost, a day after it was told", "etcd-main-2", func() answer {
		r := told(state(0, 1, 2), noon.Add(-24*time.Hour), "etcd-main-2")
		r.Ghosts = []report.Ghost{{Member: "etcd-main-3", ID: "1f", Since: noon.Add(-25 * time.Hour), Costs: "4 voters need 3",
			Do: "Remove it."}}
		return answer{report: r}
	}(), []string{"GHOST: etcd-main-3 has no pod and has not answered for 25h; 4 voters need 3. Remove it."}, nil, "30"},
	{"rolling", "etcd-main-2", func() answer {
		s := state(2, 1)
		down(&s, 1, "PodInitializing", 0)
		return answer{report: told(s, noon, "etcd-main-2"), history: past}
	}(), []string{
		"Wait: UpdatedPending since 3m", "waiting for etcd-main-1: its member is Down (starting, PodInitializing)",
		"What to do: Nothing, until it turns into UpdatedFailing.",
		"1 of 3 settled, 1 outdated, 1 unsettled, under way for 11m", "This sidecar coordinates: etcd-main-2, epoch 4.",
		"2 of 3 voters serve, quorum 2",
		"Candidates, and what each guard says", "QuorumFloor",
		"LeaderMoved etcd-main-0 → etcd-main-2 etcd-main-2, epoch 4",
	}, nil, "2"},
	{"acting", "etcd-main-1", answer{report: told(state(2), noon.Add(-2*time.Second), "etcd-main-2"), history: past},
		[]string{
			"Remove etcd-main-1 (evict)", "The coordinator etcd-main-2, epoch 4 reported this 2s ago.",
		}, []string{"What to do"}, "2"},
	{"held", "etcd-main-0", func() answer {
		s := state(2)
		down(&s, 2, "CrashLoopBackOff", 12)
		s.Controls.Override = []rollout.Guard{rollout.GuardCanary, rollout.GuardEndpointFloor}
		two := 2
		s.Controls.Partition, s.Controls.MaxUnavailable = &two, &rollout.Amount{Number: 40, Percent: true}
		s.Gates = []rollout.Gate{{Name: report.GateBackup, Detail: "the last full snapshot failed at 11:50"}}
		return answer{report: told(s, noon.Add(-4*time.Second), "etcd-main-1"), history: past}
	}(), []string{
		"Hold: UpdatedFailing since 3m", "fix the template, and it is replaced first",
		"What to do: See why it ends",
		"OVERRIDDEN: Canary, EndpointFloor will not hold this rollout, nor any later one, until cleared",
		"partition 2, max-unavailable 40%", "not ready: the last full snapshot failed at 11:50",
		"The coordinator etcd-main-1",
	}, nil, "2"},
	{"complete, and told by this sidecar", "etcd-main-2",
		answer{report: told(state(0, 1, 2), noon.Add(-time.Hour), "etcd-main-2")}, []string{
			"The last coordinator was etcd-main-2, epoch 4. It reported this 60m ago. " +
				"Nobody looks while there is nothing to do.",
		}, []string{"This sidecar coordinates"}, "30"},
	{"complete", "etcd-main-0", answer{report: told(state(0, 1, 2), noon.Add(-time.Hour), "etcd-main-2"),
		history: past}, []string{
		"Complete since 63m", "3 of 3 settled, ended 63m ago",
		"The last coordinator was etcd-main-2, epoch 4. It reported this 60m ago.",
		"Members, as they were 60m ago",
	}, []string{"What to do", "Nobody coordinates"}, "30"},
	{"silent", "etcd-main-0", func() answer {
		s := state(2, 1)
		down(&s, 1, "PodInitializing", 0)
		return answer{report: told(s, noon.Add(-10*time.Minute), "etcd-main-2"), history: past}
	}(), []string{
		"Nobody coordinates for 10m",
		"nobody has reported anything for 10m. The last report was: Wait: UpdatedPending: waiting for etcd-main-1",
		"Check whether the sidecars run",
		"etcd-main-2, epoch 4 reported this last, 10m ago. It may be wrong by now.", "Members, as they were 10m ago",
	}, []string{"This sidecar coordinates", "Nothing, until", "Candidates"}, "2"},
	{"hostile", "etcd-main-0", func() answer {
		s := state()
		s.Etcd.Members[1].Name, s.Pods[1].MemberName = hostile, hostile
		s.Set.UpdateRevision = hostile
		s.Gates = []rollout.Gate{{Name: report.GateBackup, Detail: hostile}}
		r := told(s, noon, hostile)
		r.Target, r.Guard, r.Do = hostile, hostile, hostile
		return answer{report: r, history: report.History{{At: noon, What: hostile, Pod: hostile, To: hostile,
			By: hostile, Reason: hostile}}}
	}(), []string{"alert"}, nil, "2"},
}

var tags = regexp.MustCompile(`(?s)<style>.*</style>|<[^>]*>`)

// text is what a person reads of a page.
func text(html string) string {
	plain := tags.ReplaceAllString(html, " ")
	plain = strings.NewReplacer("&#34;", `"`, "&#39;", "'", "&amp;", "&", "&lt;", "<", "&gt;", ">", "&#43;",
		"+").Replace(plain)
	return strings.Join(strings.Fields(plain), " ")
}

func TestThePageSaysWhatTheStatusSays(t *testing.T) {
	for _, tc := range situations {
		t.Run(tc.name, func(t *testing.T) {
			p := &pages{Config: Config{Source: &source{}, Gatherer: prometheus.NewRegistry(), Namespace: "garden",
				StatefulSet: "etcd-main", PodName: tc.pod, Version: "v1.0.0"}}
			v := p.view(tc.answer, noon)
			var b bytes.Buffer
			if err := layout().Execute(&b, &v); err != nil {
				t.Fatal(err)
			}
			if *pagesDir != "" {
				if err := os.WriteFile(filepath.Join(*pagesDir,
					strings.NewReplacer(" ", "-", ",", "").Replace(tc.name)+".html"), b.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			got := text(b.String())
			for _, want := range tc.says {
				if !strings.Contains(got, want) {
					t.Errorf("%q is not in\n%s", want, got)
				}
			}
			for _, word := range tc.never {
				if strings.Contains(got, word) {
					t.Errorf("%q is in\n%s", word, got)
				}
			}
			if !strings.Contains(b.String(), `<meta http-equiv="refresh" content="`+tc.refresh+`">`) {
				t.Errorf("it is not reloaded every %s s", tc.refresh)
			}
		})
	}
}

// Names and reasons come from pods, members and hosts, and none of them is HTML.
func TestNobodyElseWritesThePage(t *testing.T) {
	for _, tc := range situations {
		p := &pages{Config: Config{Source: &source{}, Namespace: hostile, StatefulSet: hostile, PodName: hostile,
			Version: hostile}}
		v := p.view(tc.answer, noon)
		var b bytes.Buffer
		if err := layout().Execute(&b, &v); err != nil {
			t.Fatal(err)
		}
		page := b.String()
		for _, bad := range []string{"<script", "onload='", `" onload`, "ZgotmplZ", "src=", "url(", "http://",
			"https://"} {
			if strings.Contains(page, bad) {
				t.Errorf("%s: %s is in the page", tc.name, bad)
			}
		}
	}
}

func get(t *testing.T, h http.Handler, method, path string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, path, nil))
	return w
}

func TestWhatIsServed(t *testing.T) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "quorate_test"}))
	for _, tc := range []struct {
		name         string
		source       *source
		gatherer     prometheus.Gatherer
		method, path string
		code         int
		says         string
	}{
		{"the page", &source{}, registry, "GET", "/", 200, "No rollout has been seen yet"},
		{"the page's head alone", &source{}, registry, "HEAD", "/", 200, ""},
		{"the page, though the Lease cannot be read", &source{err: errors.New("forbidden")}, registry, "GET", "/", 200,
			"forbidden"},
		{"nothing is changed by it", &source{}, registry, "POST", "/", 405, ""},
		{"nothing else is there", &source{}, registry, "GET", "/secrets", 404, ""},
		{"it runs", &source{}, registry, "GET", "/healthz", 200, "ok\n"},
		{"it runs whatever else fails", &source{err: errors.New("no API server")}, registry, "GET", "/healthz", 200,
			"ok\n"},
		{"it does not run", &source{down: true}, registry, "GET", "/healthz", 503, "the sidecar does not run\n"},
		{"the metrics", &source{}, registry, "GET", "/metrics", 200, "quorate_test 0"},
		{"no metrics", &source{}, nil, "GET", "/metrics", 404, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := Handler(Config{Source: tc.source, Gatherer: tc.gatherer, Namespace: "garden",
				StatefulSet: "etcd-main"})
			mounted := http.NewServeMux()
			mounted.Handle("/deep/below/", http.StripPrefix("/deep/below", h))
			for prefix, h := range map[string]http.Handler{"": h, "/deep/below": mounted} {
				r := get(t, h, tc.method, prefix+tc.path)
				if got := r.Body.String(); r.Code != tc.code || !strings.Contains(got, tc.says) {
					t.Errorf("%s: %d, want %d, and %q in\n%s", prefix+tc.path, r.Code, tc.code, tc.says, got)
				}
			}
		})
	}
}

func TestThePageLoadsNothingAndIsNotKept(t *testing.T) {
	h := Handler(Config{Source: &source{report: situations[2].report}, Gatherer: prometheus.NewRegistry()}).ServeHTTP
	r := get(t, http.HandlerFunc(h), "GET", "/")
	for key, want := range map[string]string{"Content-Security-Policy": "default-src 'none'",
		"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "Content-Type": "text/html"} {
		if got := r.Header().Get(key); !strings.Contains(got, want) {
			t.Errorf("%s: %q", key, got)
		}
	}
	// Below a prefix a link from the root would lead elsewhere.
	if page := r.Body.String(); !strings.Contains(page, `href="metrics"`) || strings.Contains(page, `href="/`) {
		t.Error("its links are not relative")
	}
}

// The page needs no password, so it must not be a way to make the API server work.
func TestManyReadersAskOnce(t *testing.T) {
	s := &source{}
	h := Handler(Config{Source: s})
	var readers sync.WaitGroup
	begun := time.Now()
	for range 50 {
		readers.Go(func() { get(t, h, "GET", "/") })
	}
	readers.Wait()
	if most := 1 + int(time.Since(begun)/askEvery); s.asked > most {
		t.Errorf("asked %d times, at most %d", s.asked, most)
	}
}
