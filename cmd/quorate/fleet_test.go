package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/quorate/quorate/internal/report"
	"github.com/quorate/quorate/pkg/rollout"
)

// manyLeases are those of n clusters, like a world's, in ten namespaces.
func manyLeases(w *world, n int) []coordinationv1.Lease {
	leases := make([]coordinationv1.Lease, n)
	for i := range leases {
		leases[i] = *w.lease.DeepCopy()
		leases[i].Name, leases[i].Namespace = fmt.Sprintf("quorate-etcd-%04d", i), fmt.Sprintf("shoot-%d", i%10)
	}
	return leases
}

// full is a world whose Lease is as large as one becomes: its history is full.
func full(t *testing.T) *world {
	w := told(t, second)
	r, h, err := report.FromNotes(w.lease.Annotations)
	if err != nil {
		t.Fatal(err)
	}
	for len(h) < report.HistoryLength {
		h = append(h, h[0])
	}
	for key, value := range report.Notes(r, h) {
		w.lease.Annotations[key] = value
	}
	return w
}

// TestAThousandClustersAreOnePageOfTheAPI measures what a fleet costs, as an API server answers: in protobuf, in pages.
func TestAThousandClustersAreOnePageOfTheAPI(t *testing.T) {
	for _, tc := range []struct{ clusters, requests int }{{1000, 1}, {1001, 2}, {2500, 3}} {
		leases := manyLeases(full(t), tc.clusters)
		var requests, sent atomic.Int64
		encoder := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme)
		server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			requests.Add(1)
			query := r.URL.Query()
			if r.URL.Path != "/apis/coordination.k8s.io/v1/leases" ||
				query.Get("fieldSelector") != "metadata.namespace!=kube-node-lease" {
				t.Errorf("asks for %s", r.URL)
			}
			from, limit := 0, 0
			_, _ = fmt.Sscan(query.Get("continue"), &from)
			_, _ = fmt.Sscan(query.Get("limit"), &limit)
			list := &coordinationv1.LeaseList{
				TypeMeta: metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "LeaseList"},
				Items:    leases[from:min(from+limit, len(leases))],
			}
			if to := from + limit; to < len(leases) {
				list.Continue = fmt.Sprint(to)
			}
			raw, err := runtime.Encode(encoder, list)
			if err != nil {
				t.Error(err)
			}
			sent.Add(int64(len(raw)))
			rw.Header().Set("Content-Type", "application/vnd.kubernetes.protobuf")
			_, _ = rw.Write(raw)
		}))
		t.Cleanup(server.Close)
		began := time.Now()
		stdout, stderr, code := invoke(t, "quorate", kubeconfigFor(t, server.URL), "status", "-A")
		took := time.Since(began)
		if lines := strings.Count(stdout, "\n"); code != exitWaiting || lines != tc.clusters+1 {
			t.Errorf("exit code %d, %d lines: %s", code, lines, stderr)
		}
		if n := requests.Load(); n != int64(tc.requests) {
			t.Errorf("%d clusters are %d requests, want %d", tc.clusters, n, tc.requests)
		}
		each := sent.Load() / int64(tc.clusters)
		if each > 20<<10 {
			t.Errorf("a cluster is %d bytes", each)
		}
		t.Logf("%d clusters: %d requests, %.1f MB (%d bytes each), %v", tc.clusters, requests.Load(),
			float64(sent.Load())/1e6, each, took.Round(time.Millisecond))
	}
}

// clusters makes an API server with four StatefulSets in two namespaces: one that rolls, one that is silent, one that
// is idle, and one that nobody has reported on.
func clusters(t *testing.T) *api {
	rolls, silent, idle := told(t, broken), with(3, second), with(3, complete)
	silent.tells(t, time.Now().Add(-12*time.Minute))
	idle.tells(t, time.Now().Add(-3*day))
	a := &api{world: rolls}
	add := func(w *world, namespace, name string, labels map[string]string) {
		set := *w.set.DeepCopy()
		set.Namespace, set.Name, set.Labels = namespace, name, labels
		a.others = append(a.others, set)
		if w.lease != nil {
			lease := *w.lease.DeepCopy()
			lease.Namespace, lease.Name = namespace, "quorate-"+name
			a.leases = append(a.leases, lease)
		}
	}
	a.set.Labels = map[string]string{"app": "etcd", "tier": "prod"}
	add(silent, "garden", "etcd-events", map[string]string{"app": "etcd", "tier": "test"})
	add(idle, "shoot", "etcd-main", map[string]string{"app": "etcd", "tier": "prod"})
	add(newWorld(3), "shoot", "etcd-new", map[string]string{"app": "etcd", "tier": "test"})
	other := newWorld(1)
	other.set.Spec.UpdateStrategy.Type = appsv1.RollingUpdateStatefulSetStrategyType
	add(other, "shoot", "postgres", map[string]string{"app": "db", "tier": "prod"})
	a.leases = append(a.leases, coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system",
		Name: "quorate-controller", Annotations: map[string]string{"example.org/holder": "x"}}})
	return a
}

// ages differ by what a slow machine needs.
var ages = regexp.MustCompile(`(\b[0-9]+s ago|[0-9]+s\b)`)

func TestTheStatusOfAFleet(t *testing.T) {
	for _, tc := range []struct {
		name, args string
		code       int
		// rows are the lines after the heading, their columns up to the age of the report.
		rows []string
	}{
		{"all of them, from the Leases", "status -A", 3, []string{
			"garden etcd-events UNKNOWN - - - - - SILENT 12m",
			"garden etcd-main AT RISK Hold UpdatedFailing 3m 2/2 3.5.21 ",
			"shoot etcd-main UNKNOWN Complete - 3d - - idle 3d",
		}},
		{"a namespace that has several", "status", 3, []string{
			"garden etcd-events UNKNOWN - - - - - SILENT 12m",
			"garden etcd-main AT RISK Hold UpdatedFailing 3m 2/2 3.5.21 ",
		}},
		{"another namespace, with one that nobody has reported on", "status -n shoot", 0, []string{
			"shoot etcd-main UNKNOWN Complete - 3d - - idle 3d",
			"shoot etcd-new UNKNOWN - - - - - never",
		}},
		{"names, as kubectl writes them", "status etcd-main sts/etcd-new -n shoot", 0, []string{
			"shoot etcd-main UNKNOWN Complete - 3d - - idle 3d",
			"shoot etcd-new UNKNOWN - - - - - never",
		}},
		{"by label, in all namespaces", "status -A -l app=etcd,tier=test", 3, []string{
			"garden etcd-events UNKNOWN - - - - - SILENT 12m",
			"shoot etcd-new UNKNOWN - - - - - never",
		}},
		{"by label, in one namespace", "status -l tier=prod", 3, []string{
			"garden etcd-main AT RISK Hold UpdatedFailing 3m 2/2 3.5.21 ",
		}},
		{"what the StatefulSet controller rolls is not shown", "status -A -l tier=prod", 3, []string{
			"garden etcd-main AT RISK Hold UpdatedFailing 3m 2/2 3.5.21 ",
			"shoot etcd-main UNKNOWN Complete - 3d - - idle 3d",
		}},
		{"nothing", "status -A -l app=nothing", 0, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			stdout, stderr, code := invoke(t, "quorate", answering(t, clusters(t)), strings.Fields(tc.args)...)
			var rows []string
			for line := range strings.Lines(stdout) {
				rows = append(rows, ages.ReplaceAllString(strings.Join(strings.Fields(line), " "), ""))
			}
			if len(rows) > 0 {
				rows = rows[1:]
			}
			if code != tc.code || !slices.Equal(rows, tc.rows) {
				t.Errorf("exit code %d, want %d; rows\n%s\nwant\n%s\n%s", code, tc.code, strings.Join(rows, "\n"),
					strings.Join(tc.rows, "\n"), stderr)
			}
		})
	}
}

func TestTheFleetForPrograms(t *testing.T) {
	for _, tc := range []struct{ output, want string }{
		{"name", "statefulset.apps/etcd-events\nstatefulset.apps/etcd-main\nstatefulset.apps/etcd-main\n"},
		{`jsonpath={range .items[?(@.heard=="Silent")]}{.namespace}/{.name}{end}`, "garden/etcd-events"},
		{"jsonpath={.kind},{.apiVersion}", "Fleet,quorate.dev/v1alpha1"},
	} {
		stdout, stderr, _ := invoke(t, "quorate", answering(t, clusters(t)), "status", "-A", "-o", tc.output)
		if stdout != tc.want {
			t.Errorf("%s: %q, want %q: %s", tc.output, stdout, tc.want, stderr)
		}
	}
	_, template, _ := strings.Cut(status().Example, "jsonpath='")
	stdout, stderr, _ := invoke(t, "quorate", answering(t, clusters(t)), "status", "-A", "-o",
		"jsonpath="+strings.TrimSuffix(template, "'"))
	if want := "garden/etcd-events\ngarden/etcd-main\nshoot/etcd-main\n"; stdout != want {
		t.Errorf("the example of the help: %q, want %q: %s", stdout, want, stderr)
	}
	stdout, _, _ = invoke(t, "quorate", answering(t, clusters(t)), "status", "-A", "-o", "json")
	var f report.Fleet
	if err := json.Unmarshal([]byte(stdout), &f); err != nil || len(f.Items) != 3 ||
		f.Items[1].Guard != rollout.GuardUpdatedFailing || f.Items[0].Action != "" {
		t.Errorf("%v\n%s", err, stdout)
	}
	stdout, _, _ = invoke(t, "quorate", answering(t, clusters(t)), "status", "-A", "-o", "wide")
	if !strings.Contains(stdout, "REASON") || !strings.Contains(stdout, "etcd-main-1 was the last to report, 12m ago") {
		t.Errorf("wide:\n%s", stdout)
	}
	stdout, _, _ = invoke(t, "quorate", answering(t, clusters(t)), "status", "etcd-main", "-o",
		"jsonpath={.kind} {.rollout.guard}")
	if stdout != "EtcdStatus UpdatedFailing" {
		t.Errorf("of one: %q", stdout)
	}
}

// A watch of a fleet writes a line for each change, and goes on until it is stopped.
func TestAWatchOfAFleetTellsEveryChange(t *testing.T) {
	a := clusters(t)
	kubeconfig := answering(t, a)
	cmd, stdout, stderr := command(t, nil, "status", "-A", "--watch", "--every=100ms", "--kubeconfig", kubeconfig)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	a.lists.wait(t, 2)
	a.change(func(w *world) {
		w.control(rollout.ControlPaused, "true")
		a.leases = a.leases[1:]
	})
	a.lists.wait(t, 4)
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if code := exitCode(t, cmd.Wait()); code != 0 {
		t.Errorf("exit code %d: %s", code, stderr)
	}
	lines := strings.Split(strings.TrimSpace(stdout.String()), "\n")
	want := []string{"garden/etcd-events  UNKNOWN  SILENT", "garden/etcd-main  AT RISK  Hold  UpdatedFailing",
		"shoot/etcd-main  UNKNOWN  Complete  idle", "garden/etcd-main  AT RISK  Hold  Paused",
		"garden/etcd-events  is gone"}
	if len(lines) != len(want) {
		t.Fatalf("%d lines, want %d:\n%s", len(lines), len(want), stdout)
	}
	for i, part := range want {
		if !strings.Contains(lines[i], part) {
			t.Errorf("line %d: %q, want %q", i, lines[i], part)
		}
	}
}

func TestAWatchEndsOnAHoldIfItIsToldTo(t *testing.T) {
	for _, args := range []string{"status etcd-main", "status -A"} {
		a := &api{world: told(t, second)}
		kubeconfig := answering(t, a)
		cmd, stdout, stderr := command(t, nil, append(strings.Fields(args), "--watch", "--every=100ms",
			"--fail-on-hold", "--kubeconfig", kubeconfig)...)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		a.lists.wait(t, 2) // It waits, which is no hold.
		a.change(func(w *world) {
			lease := w.lease
			*w = *with(3, broken)
			w.lease = lease
			w.tells(t, time.Now())
		})
		code := exitCode(t, cmd.Wait())
		if code != exitWaiting || !strings.Contains(stdout.String(), "UpdatedFailing") {
			t.Errorf("%s: exit code %d\n%s%s", args, code, stdout, stderr)
		}
	}
}
