package page

import (
	"bytes"
	"context"
	"encoding/json"
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
	"github.com/quorate/quorate/internal/reporttest"
	"github.com/quorate/quorate/pkg/rollout"
)

// pagesDir is for looking at the pages in a browser.
var pagesDir = flag.String("pages", "", "write the page of every situation into this directory")

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// source tells what it is given.
type source struct {
	mu     sync.Mutex
	status report.Status
	err    error
	down   bool
	asked  int
}

func (s *source) Report(context.Context) (report.Status, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked++
	return s.status, s.err
}

func (s *source) Running() bool { return !s.down }

const hostile = "`<script>alert(\"1\")</script>`\" onload='x' & `"

// by is the answer that a coordinator's report of a state gives so long after it was made.
func by(
	coordinator string, s rollout.State, ago time.Duration, h report.History, changes ...func(*report.Report),
) answer {
	r := reporttest.Reported(s, noon.Add(-ago), coordinator)
	for _, change := range changes {
		change(&r)
	}
	return answer{status: reporttest.Recorded(r, h, noon)}
}

var (
	past     = reporttest.Past(noon)
	starting = reporttest.Down(reporttest.State(2, 1), 1, "PodInitializing", 0)
)

var situations = []struct {
	name string
	pod  string
	answer
	says  []string
	never []string
	every string
}{
	{"nothing told", "etcd-main-0", answer{status: reporttest.Recorded(report.Report{}, nil, noon)}, []string{
		"? UNKNOWN : no coordinator has reported anything yet", "No rollout has been seen yet", "quorate-etcd-main",
		"quorate status -n garden etcd-main",
	}, []string{"Members", "rollout so far", "SAFE"}, "30"},
	{"not readable", "etcd-main-0", answer{err: errors.New("get Lease quorate-etcd-main: forbidden")}, []string{
		"? UNKNOWN : the last report cannot be read get Lease quorate-etcd-main: forbidden",
	}, []string{"Members", "SAFE"}, "30"},
	{"a fault", "etcd-main-2", by("etcd-main-2", reporttest.State(2), 0, nil, func(r *report.Report) {
		r.Faults = []string{"the pods cannot be watched: forbidden"}
	}), []string{"FAULT: the pods cannot be watched: forbidden"}, nil, "2"},
	{"a ghost, a day after it was told", "etcd-main-2", by("etcd-main-2", reporttest.State(0, 1, 2), 24*time.Hour, nil,
		func(r *report.Report) {
			r.Ghosts = []report.Ghost{{Member: "etcd-main-3", ID: "1f", Since: noon.Add(-25 * time.Hour),
				Costs: "4 voters need 3", Do: "Remove it."}}
		}),
		[]string{"GHOST: etcd-main-3 has no pod and has not answered for 25h; 4 voters need 3. Remove it."}, nil, "30"},
	{"rolling", "etcd-main-2", by("etcd-main-2", starting, 0, past), []string{
		"! AT RISK : quorum 2/3, none may fail Wait: UpdatedPending since 3m",
		"waiting for etcd-main-1: its member is Down (starting, PodInitializing)",
		"If nobody does anything: the rollout goes on by itself when that is over. etcd serves, but takes no writes " +
			"if one more member fails.",
		"What to do: Nothing, unless it turns into UpdatedFailing .",
		"kubectl describe pod -n garden etcd-main-1", "More: UpdatedPending in the reference",
		"1 of 3 settled, 1 outdated, 1 unsettled, under way for 11m", "This sidecar coordinates: etcd-main-2, epoch 4.",
		"2 of 3 voters serve, quorum 2",
		"● etcd-main-0 Serving for 4m ★ leader outdated etcd 3.5.21, lag 0", "✕ etcd-main-1 Down for 8m",
		"The rollout so far (times are UTC) 11:49:00 Began to revision etcd-main-7c9f4b6d58 11:49:00 +0s " +
			"Removed etcd-main-2 OVERRIDDEN Canary : its member serves;",
		"11:51:00 +2m HandedOver etcd-main-0 → etcd-main-2 its revision is up to date by etcd-main-0, epoch 3",
		"now +8m Wait: UpdatedPending since 3m What was done before that",
		"What was done before that: 2 31 Dec 11:56:00 Removed etcd-main-1",
		"Candidates, and what each guard says", "QuorumFloor",
	}, nil, "2"},
	{"acting", "etcd-main-1", by("etcd-main-2", reporttest.State(2), 2*time.Second, past), []string{
		"✓ SAFE : quorum 3/3, one may fail Remove etcd-main-1 (evict)",
		"The coordinator etcd-main-2, epoch 4 reported this 2s ago.",
	}, []string{"What to do", "nobody"}, "2"},
	{"held", "etcd-main-0", func() answer {
		s := reporttest.Down(reporttest.State(2), 2, "CrashLoopBackOff", 12)
		s.Controls.Override = []rollout.Guard{rollout.GuardCanary, rollout.GuardEndpointFloor}
		two := 2
		s.Controls.Partition, s.Controls.MaxUnavailable = &two, &rollout.Amount{Number: 40, Percent: true}
		s.Gates = []rollout.Gate{{Name: report.GateBackup, Detail: "the last full snapshot failed at 11:50"}}
		return by("etcd-main-1", s, 4*time.Second, past)
	}(), []string{
		"! AT RISK : quorum 2/3, none may fail Hold: UpdatedFailing since 3m",
		"fix the template: this pod is then replaced first",
		"What to do: See why it exits", "kubectl describe pod -n garden etcd-main-2",
		"OVERRIDDEN: Canary , EndpointFloor will not hold this rollout, nor any later one, until cleared",
		"partition 2, max-unavailable 40%", "not ready : the last full snapshot failed at 11:50",
		"The coordinator etcd-main-1",
	}, nil, "2"},
	{"quorum lost", "etcd-main-0", by("etcd-main-1",
		reporttest.Down(reporttest.Down(reporttest.State(2), 2, "CrashLoopBackOff", 12), 1, "Error", 3), 0, past),
		[]string{
			"✕ QUORUM LOST : writes fail: 1/3 members serve, and 2 are needed",
		}, []string{"SAFE"}, "2"},
	{"complete a moment ago", "etcd-main-2", by("etcd-main-2", reporttest.State(0, 1, 2), 9*time.Second, past),
		[]string{"✓ SAFE : quorum 3/3, one may fail Complete since 3m", "3 of 3 settled, ended 3m"},
		[]string{"What to do", "If nobody does anything", "as they were"}, "30"},
	{"complete, and told by this sidecar", "etcd-main-2", by("etcd-main-2", reporttest.State(0, 1, 2), time.Hour, nil),
		[]string{"The last coordinator was etcd-main-2, epoch 4. It reported this 60m ago."},
		[]string{"This sidecar coordinates"}, "30"},
	{"complete", "etcd-main-0", by("etcd-main-2", reporttest.State(0, 1, 2), time.Hour, append(past, report.Entry{
		At: noon.Add(-time.Hour), What: report.Completed, Reason: "3 of 3 settled",
	})), []string{
		"? UNKNOWN : nobody has reported for 60m No rollout was under way",
		"The last report said SAFE: quorum 3/3, one may fail, and Complete: ",
		"Nobody looks while there is nothing to do, so it may have changed.", "quorate status -n garden etcd-main",
		"3 of 3 settled, ended 63m ago",
		"The last coordinator was etcd-main-2, epoch 4. It reported this 60m ago.",
		"Members, as they were 60m ago ? etcd-main-0 Serving ★ leader",
		"The last rollout (times are UTC) 11:49:00 Removed etcd-main-2", "What was done before that: 2",
	}, []string{"Nobody coordinates", "✓ SAFE", "● etcd", "If nobody does anything"}, "30"},
	{"silent", "etcd-main-0", by("etcd-main-2", starting, 10*time.Minute, past), []string{
		"? UNKNOWN : nobody has reported for 10m Nobody coordinates",
		"A rollout was under way. The last report said AT RISK: quorum 2/3, none may fail, and Wait: UpdatedPending " +
			": waiting for etcd-main-1",
		"If nobody does anything: nothing is rolled until a sidecar coordinates. Whether etcd serves is not known.",
		"What to do: See whether the sidecars run",
		"etcd-main-2, epoch 4 was the last to report, 10m ago. It may be wrong by now.",
		"Members, as they were 10m ago",
	}, []string{"This sidecar coordinates", "Nothing, until", "Candidates", "! AT RISK", "in the reference"}, "2"},
	{"hostile", "etcd-main-0", func() answer {
		s := reporttest.State()
		s.Etcd.Members[1].Name, s.Pods[1].MemberName = hostile, hostile
		s.Etcd.Members[1].Probe.Status.Version = hostile
		s.Set.UpdateRevision = hostile
		s.Gates = []rollout.Gate{{Name: report.GateBackup, Detail: hostile}}
		return by(hostile, s, 0, report.History{{At: noon, What: hostile, Pod: hostile, To: hostile, By: hostile,
			Reason: hostile}}, func(r *report.Report) { r.Target, r.Guard, r.Do = hostile, hostile, hostile })
	}(), []string{"alert"}, nil, "2"},
}

var tags = regexp.MustCompile(`(?s)<style>.*</style>|<script>.*</script>|<[^>]*>`)

// read is what a person reads of a page.
func read(html string) string {
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
			_, body, _ := strings.Cut(b.String(), "<body>")
			got := read(body)
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
			if !strings.Contains(b.String(), `<main data-every="`+tc.every+`"`) {
				t.Errorf("it is not fetched every %s s", tc.every)
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
		// What is ours is the script, and the links to the reference.
		page := strings.Replace(b.String(), "<script>"+js+"</script>", "", 1)
		page = regexp.MustCompile(`href="https://github.com/quorate/quorate/blob/main/docs/reference.md#[a-z]+"`).
			ReplaceAllString(page, "")
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
		{"the page", &source{status: reporttest.Recorded(report.Report{}, nil, noon)}, registry, "GET", "/", 200,
			"No rollout has been seen yet"},
		{"the page's head alone", &source{}, registry, "HEAD", "/", 200, ""},
		{"the page, though the Lease cannot be read", &source{err: errors.New("forbidden")}, registry, "GET", "/", 200,
			"forbidden"},
		{"the status", &source{status: situations[4].status}, registry, "GET", "/status.json", 200,
			`"safety": "AT RISK"`},
		{"the status, though the Lease cannot be read", &source{err: errors.New("forbidden")}, registry, "GET",
			"/status.json", 503, `"error": "forbidden"`},
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

func TestThePageLoadsNothingElseAndIsNotKept(t *testing.T) {
	h := Handler(Config{Source: &source{status: situations[2].status}, Gatherer: prometheus.NewRegistry()})
	r := get(t, h, "GET", "/")
	page := r.Body.String()
	for key, want := range map[string]string{"Content-Security-Policy": "default-src 'none'",
		"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "Content-Type": "text/html"} {
		if got := r.Header().Get(key); !strings.Contains(got, want) {
			t.Errorf("%s: %q", key, got)
		}
	}
	// A browser runs and applies what has these sums alone, to the byte.
	for _, tag := range []string{"style", "script"} {
		_, rest, _ := strings.Cut(page, "<"+tag+">")
		content, _, _ := strings.Cut(rest, "</"+tag+">")
		policy := r.Header().Get("Content-Security-Policy")
		if !strings.Contains(policy, tag+"-src "+hashed(content)+";") {
			t.Errorf("%s: %s", tag, policy)
		}
	}
	// Below a prefix a link from the root would lead elsewhere.
	if !strings.Contains(page, `href="metrics"`) || strings.Contains(page, `href="/`) {
		t.Error("its links are not relative")
	}
}

// A program reads the same here as from the command.
func TestTheStatusForProgramsHasTheCommandsShape(t *testing.T) {
	for _, tc := range situations {
		if tc.err != nil {
			continue
		}
		t.Run(tc.name, func(t *testing.T) {
			r := get(t, Handler(Config{Source: &source{status: tc.status}}), "GET", "/status.json")
			if r.Header().Get("Content-Type") != "application/json" || r.Header().Get("Cache-Control") != "no-store" {
				t.Errorf("%v", r.Header())
			}
			var got report.EtcdStatus
			decoder := json.NewDecoder(r.Body)
			decoder.DisallowUnknownFields()
			if err := decoder.Decode(&got); err != nil {
				t.Fatal(err)
			}
			if got.Verdict.Safety != tc.status.Verdict().Safety || got.Word != tc.status.Word ||
				len(got.Conditions) < 3 || len(got.Members) != len(tc.status.Members) || got.Rollout.Memory != nil {
				t.Errorf("%+v", got)
			}
		})
	}
}

// Wherever a guard is named to people, one step leads to what is known of it.
func TestEveryGuardLeadsToTheReference(t *testing.T) {
	for i := range rollout.Guards {
		name := rollout.Guards[i].Name
		link := `<a href="` + report.Link(name) + `">` + string(name) + `</a>`
		if got, want := string(text("see "+string(name)+", and `"+string(name)+"`")), "see "+link+", and <code>"+link+
			"</code>"; got != want {
			t.Errorf("%s\nwant %s", got, want)
		}
	}
	if got := string(text("an UnderWayward <word>")); got != "an UnderWayward &lt;word&gt;" {
		t.Error(got)
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
