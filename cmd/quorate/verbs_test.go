package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/quorate/quorate/internal/record"
	"github.com/quorate/quorate/internal/report"
	"github.com/quorate/quorate/pkg/rollout"
)

// invoke runs the real command in this process.
func invoke(t *testing.T, called, kubeconfig string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	for _, v := range []string{"POD_NAME", "POD_NAMESPACE"} {
		t.Setenv(v, "")
	}
	t.Setenv("KUBECONFIG", kubeconfig)
	var out, errs bytes.Buffer
	cmd := rootOf(called, &out, &errs)
	cmd.SetIn(strings.NewReader(""))
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(t.Context())
	if err != nil {
		fmt.Fprint(cmd.ErrOrStderr(), err)
	}
	return out.String(), errs.String(), codeOf(err)
}

// told is a world whose coordinator has told a moment ago.
func told(t *testing.T, change func(*world)) *world {
	w := with(3, change)
	w.tells(t, time.Now().Add(-time.Second))
	return w
}

// telling makes a world whose coordinator tells, and quiet one that nobody tells of.
func telling(change func(*world)) func(*testing.T) *world {
	return func(t *testing.T) *world { return told(t, change) }
}

func quiet(change func(*world)) func(*testing.T) *world {
	return func(*testing.T) *world { return with(3, change) }
}

// setting sets a control.
func setting(key, value string) func(*world) {
	return func(w *world) { w.control(key, value) }
}

func TestExitCodesOfStatus(t *testing.T) {
	for _, tc := range []struct {
		name string
		make func(*testing.T) *world
		args []string
		code int
		says string
	}{
		{"something is being done", telling(healthy), nil, 0, "Remove etcd-main-2 (evict)"},
		{"complete", quiet(complete), nil, 0, "Complete"},
		{"idle", quiet(foreign), nil, 0, "Idle"},
		{"holding", telling(broken), nil, 3, "Hold: UpdatedFailing, since 3m"},
		{"waiting", telling(second), nil, 3, "Wait: UpdatedPending, since 3m"},
		{"waiting for a coordinator", quiet(healthy), nil, 3, "no coordinator has begun to roll them yet"},
		{
			"the StatefulSet need not be named when there is one only", quiet(complete), []string{"status"}, 0,
			"garden/etcd-main",
		},
		{
			"etcd that is asked in vain is said, and the coordinator's word is good", telling(broken),
			[]string{"status", "etcd-main", "-e", "http://127.0.0.1:1", "--probe-timeout=300ms"}, 3,
			"Hold: UpdatedFailing, since 3m",
		},
		{"a word that cannot be read is said, and not believed", func(t *testing.T) *world {
			w := told(t, broken)
			w.control(report.StatusAnnotation, "{")
			return w
		}, nil, 3, "annotation quorate.dev/status"},
		{"another StatefulSet is bad input", quiet(healthy), []string{"status", "etcd-other"}, 2, "etcd-other"},
		{
			"another one among several is bad input", quiet(healthy), []string{"status", "etcd-main", "etcd-mian"}, 2,
			"there is no StatefulSet etcd-mian in namespace garden; did you mean etcd-main?",
		},
		{
			"two names are bad input", quiet(healthy), []string{"status", "a", "--statefulset=b"}, 2,
			`--statefulset: "b": the argument names "a"`,
		},
		{
			"an output that is none is bad input", quiet(healthy), []string{"status", "-o", "xml"}, 2,
			`--output: "xml": use table, wide, json, yaml, name or jsonpath=TEMPLATE`,
		},
		{
			"a timeout needs --watch", quiet(healthy), []string{"status", "--timeout=1m"}, 2,
			"--timeout: 1m0s: goes with --watch",
		},
		{
			"nobody can look all the time", quiet(healthy), []string{"status", "--watch", "--every=1ms"}, 2,
			"--every: 1ms: must be at least 100ms",
		},
		{
			"programs do not watch", quiet(healthy), []string{"status", "--watch", "-o", "json"}, 2,
			`--output: "json": --watch shows a table`,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			args := tc.args
			if args == nil {
				args = []string{"status", "etcd-main"}
			}
			stdout, stderr, code := invoke(t, "quorate", apiServer(t, tc.make(t)), args...)
			if code != tc.code || !strings.Contains(stdout+stderr, tc.says) {
				t.Errorf("exit code %d, want %d, and %q in\n%s%s", code, tc.code, tc.says, stdout, stderr)
			}
			if strings.Contains(stdout, "\x1b") {
				t.Errorf("colour where no terminal is: %q", stdout)
			}
			if code == exitBadInput && stdout != "" {
				t.Errorf("it shows a status all the same: %s", stdout)
			}
		})
	}
}

func TestStatusInDEP01sShape(t *testing.T) {
	kubeconfig := apiServer(t, told(t, broken))
	for _, output := range []string{"json", "yaml"} {
		stdout, stderr, code := invoke(t, "quorate", kubeconfig, "status", "etcd-main", "-o", output)
		if code != exitWaiting || stderr != errWaiting.Error() {
			t.Errorf("exit code %d, %s", code, stderr)
		}
		for _, want := range []string{"UpdatedFailing", "Quorate", "NotAllMembersReady", "etcd-main-2", "clusterSize"} {
			if !strings.Contains(stdout, want) {
				t.Errorf("%s lacks %s:\n%s", output, want, stdout)
			}
		}
		if output == "json" {
			var s report.EtcdStatus
			err := json.Unmarshal([]byte(stdout), &s)
			if err != nil || s.Rollout.Guard != "UpdatedFailing" || len(s.Members) != 3 {
				t.Errorf("%v %+v", err, s)
			}
		}
	}
}

// It is what kubectl rollout status would be, if that knew OnDelete.
func TestWatchEndsWhenTheRolloutIsComplete(t *testing.T) {
	a := &api{world: told(t, second)}
	kubeconfig := answering(t, a)
	done := make(chan struct{})
	go func() {
		defer close(done)
		<-a.asked
		a.change(func(w *world) {
			lease := w.lease
			*w = *with(3, complete)
			w.lease = lease
			w.tells(t, time.Now())
		})
	}()
	cmd, stdout, stderr := command(t, nil,
		"status", "etcd-main", "--watch", "--every=100ms", "--kubeconfig", kubeconfig)
	if code := exitCode(t, cmd.Run()); code != 0 {
		t.Errorf("exit code %d: %s", code, stderr)
	}
	<-done
	lines := strings.Split(strings.TrimSpace(stdout.String()), "\n")
	const waits = "1 of 3 settled, 1 outdated, 1 unsettled  Wait: UpdatedPending: waiting for etcd-main-1"
	if len(lines) != 2 || !strings.Contains(lines[0], waits) || !strings.Contains(lines[1], "3 of 3 settled  Complete: ") {
		t.Errorf("one line for each change, not\n%s", stdout)
	}
}

func TestWatchThatDoesNotEndWell(t *testing.T) {
	for _, tc := range []struct {
		name string
		make func(*testing.T) *world
		args []string
		says string
	}{
		{
			"time is up", telling(broken), []string{"--timeout=1s"},
			"quorate: --timeout: not complete after 1s: 0 of 3 settled, 2 outdated, 1 unsettled; " +
				"Hold: UpdatedFailing: updated pod etcd-main-2 is failing",
		},
		{
			"interrupted", telling(second), nil,
			"quorate: stopped: 1 of 3 settled, 1 outdated, 1 unsettled; Wait: UpdatedPending: waiting for etcd-main-1",
		},
		{"nothing of ours", quiet(foreign), nil, "quorate: there is nothing to wait for: updateStrategy is not OnDelete"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := &api{world: tc.make(t)}
			cmd, _, stderr := command(
				t, nil,
				append([]string{"status", "etcd-main", "--watch", "--every=100ms", "--kubeconfig", answering(t, a)}, tc.args...)...,
			)
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			if tc.name == "interrupted" {
				<-a.asked
				if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
					t.Fatal(err)
				}
			}
			if code := exitCode(t, cmd.Wait()); code != exitFailure || !strings.Contains(stderr.String(), tc.says) {
				t.Errorf("exit code %d, standard error\n%s, want\n%s", code, stderr, tc.says)
			}
		})
	}
}

func TestWatchEndsWithWhatItWatches(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*api)
		says   string
	}{
		{
			"deleted", func(a *api) { a.set = nil },
			"quorate: there is nothing to wait for any more: the StatefulSet garden/etcd-main is gone\n",
		},
		{
			"forbidden", func(a *api) { a.forbids = []string{"get statefulsets"} },
			"quorate: there is nothing to wait for any more: get StatefulSet etcd-main: statefulsets \"etcd-main\" is " +
				"forbidden: User \"alice\" cannot get resource \"statefulsets\" in API group \"apps\" in the namespace " +
				"\"garden\"\nquorate: deploy/operator.yaml has the role to get statefulsets. Have it applied, " +
				"and bound to you: kubectl create rolebinding quorate-viewer -n garden --clusterrole=quorate-viewer " +
				"--user=alice\n",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := &api{world: told(t, second)}
			cmd, _, stderr := command(t, nil,
				"status", "etcd-main", "--watch", "--every=100ms", "--kubeconfig", answering(t, a))
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			<-a.asked
			a.change(func(*world) { tc.change(a) })
			if code := exitCode(t, cmd.Wait()); code != exitFailure || stderr.String() != tc.says {
				t.Errorf("exit code %d: %s", code, stderr)
			}
		})
	}
}

// An API server that restarts does not end a watch, also if it is away at the first look.
func TestAWatchLooksAgainIfTheFirstLookFails(t *testing.T) {
	a := &api{world: told(t, complete), unwell: 1}
	cmd, stdout, stderr := command(t, nil, "status", "etcd-main", "--watch", "--every=100ms", "--kubeconfig",
		answering(t, a))
	if code := exitCode(t, cmd.Run()); code != 0 || !strings.Contains(stdout.String(), "Complete: ") ||
		!strings.Contains(stderr.String(), "leader changed; looking again\n") {
		t.Errorf("exit code %d\n%s%s", code, stdout, stderr)
	}
	a = &api{world: told(t, broken), unwell: 1}
	cmd, stdout, stderr = command(t, nil, "status", "-A", "--watch", "--every=100ms", "--fail-on-hold", "--kubeconfig",
		answering(t, a))
	if code := exitCode(t, cmd.Run()); code != exitWaiting || !strings.Contains(stderr.String(), "; looking again\n") {
		t.Errorf("of a fleet: exit code %d\n%s%s", code, stdout, stderr)
	}
}

// Errors repeat what others wrote to the Lease.
func TestNoErrorWritesToTheTerminal(t *testing.T) {
	const hostile = "\x1b]0;title\a\x1b[2J\nquorate: all is well\r\u202e"
	says := func(change func(*report.Report)) *world {
		w := told(t, second)
		r, h, err := report.FromNotes(w.lease.Annotations)
		if err != nil {
			t.Fatal(err)
		}
		change(&r)
		for key, value := range report.Notes(r, h) {
			w.lease.Annotations[key] = value
		}
		return w
	}
	unreadable := told(t, second)
	unreadable.control(report.StatusAnnotation, `{"at": "`+hostile[:5]+`"}`)
	for _, tc := range []struct {
		name  string
		world *world
		args  []string
		lines int
	}{
		{
			"time is up", says(func(r *report.Report) { r.Reason, r.Guard = hostile, hostile }),
			[]string{"status", "etcd-main", "--watch", "--timeout=1s"}, 1,
		},
		{
			"nothing to wait for",
			says(func(r *report.Report) { r.Action, r.Reason = rollout.ActionIdle, hostile }),
			[]string{"status", "etcd-main", "--watch"}, 1,
		},
		{"a complaint", unreadable, []string{"status", "etcd-main"}, 1},
		{"bad input", newWorld(3), []string{"status", "etcd-main", "--statefulset=" + hostile[:12]}, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cmd, stdout, stderr := command(t, nil, append(tc.args, "--kubeconfig", apiServer(t, tc.world))...)
			if code := exitCode(t, cmd.Run()); code == 0 {
				t.Error("exit code 0")
			}
			said := stdout.String() + stderr.String()
			if strings.ContainsAny(said, "\x1b\a\r\u202e") || strings.Count(stderr.String(), "\n") != tc.lines {
				t.Errorf("%q\n%q", stdout, stderr)
			}
		})
	}
}

func TestAnErrorKeepsItsLines(t *testing.T) {
	if got := text(errors.Join(errors.New("a\x1b[2J"), errors.New("b\rc"))); got != "a [2J\nb c" {
		t.Errorf("%q", got)
	}
}

func TestTheArgumentWinsOverTheFile(t *testing.T) {
	dir := t.TempDir()
	writeFiles(t, dir, map[string][]byte{"config.yaml": []byte("statefulset: etcd-events\n")})
	writeFiles(t, dir, with(3, complete).files(t))
	config := "--config=" + filepath.Join(dir, "config.yaml")
	for _, tc := range []struct {
		name string
		args []string
		code int
		says string
	}{
		{"status", []string{"status", "etcd-main", config}, 0, "garden/etcd-main"},
		{"plan", []string{"plan", "etcd-main", config, "-e", "http://127.0.0.1:1", "--probe-timeout=300ms"}, 1,
			"quorate status -n garden etcd-main"},
		{"plan from files", []string{"plan", "etcd-main", config, "-f", filepath.Join(dir, "objects.yaml")}, 1,
			"etcd-main-2"},
		{"without an argument the file is good", []string{"status", config}, 2, "etcd-events"},
		{"and the flag wins as well", []string{"status", "--statefulset=etcd-main", config}, 0, "garden/etcd-main"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			stdout, stderr, code := invoke(t, "quorate", apiServer(t, with(3, complete)), tc.args...)
			if code != tc.code || !strings.Contains(stdout+stderr, tc.says) {
				t.Errorf("exit code %d, want %d, and %q in\n%s%s", code, tc.code, tc.says, stdout, stderr)
			}
		})
	}
}

func TestWithoutANameTheOnlyStatefulSetIsMeant(t *testing.T) {
	another := func(name string, change func(*appsv1.StatefulSet)) appsv1.StatefulSet {
		s := *newWorld(1).set.DeepCopy()
		s.Name = name
		change(&s)
		return s
	}
	for _, tc := range []struct {
		name   string
		set    bool
		others []appsv1.StatefulSet
		code   int
		says   string
	}{
		{"the only one", true, nil, 0, "garden/etcd-main"},
		{
			"the only one under OnDelete", true,
			[]appsv1.StatefulSet{another("db", func(s *appsv1.StatefulSet) { s.Spec.UpdateStrategy.Type = "RollingUpdate" })},
			0, "garden/etcd-main",
		},
		{
			"the only one with an etcd", true,
			[]appsv1.StatefulSet{another("db", func(s *appsv1.StatefulSet) {
				s.Spec.Template.Spec.Containers = []corev1.Container{{Name: "postgres"}}
			})},
			0, "garden/etcd-main",
		},
		{
			"of two each is shown", true, []appsv1.StatefulSet{another("etcd-events", func(*appsv1.StatefulSet) {})}, 0,
			"garden     etcd-events  UNKNOWN",
		},
		{
			"there is none", false, nil, 2,
			"name the StatefulSet, and its namespace with -n: in namespace garden none has the update strategy OnDelete " +
				"and a container etcd",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := with(3, complete)
			if !tc.set {
				w.set = nil
			}
			stdout, stderr, code := invoke(t, "quorate", answering(t, &api{world: w, others: tc.others}), "status")
			if code != tc.code || !strings.Contains(stdout+stderr, tc.says) {
				t.Errorf("exit code %d, want %d, and %q in\n%s%s", code, tc.code, tc.says, stdout, stderr)
			}
		})
	}
}

// Controls are patched alone: nothing else of the Lease is in the request.
// beforeLast is the report of a rollout that holds before the last member of an older version, while another
// duty waits.
func beforeLast(revision string) string {
	return `{"at":"2026-01-02T15:00:00Z","action":"Wait","guard":"Other","updateRevision":"` + revision +
		`","others":[{"action":"Hold","guard":"BeforeLast"}]}`
}

func TestControls(t *testing.T) {
	none := quiet(second)
	const unset = `{"metadata":{"annotations":{"quorate.dev/override-by":null,"quorate.dev/override-guards":null,` +
		`"quorate.dev/override-reason":null,"quorate.dev/override-revision":null,"quorate.dev/override-until":null}}}`
	lasts := func(c rollout.Controls, d time.Duration) bool {
		left := time.Until(c.Terms.Until)
		return left > d-5*time.Minute && left <= d && c.Terms.By == "alice" && c.Terms.Reason == "drill"
	}
	for _, tc := range []struct {
		name   string
		make   func(*testing.T) *world
		args   string
		code   int
		writes []string
		says   []string
		want   func(rollout.Controls) bool
	}{
		{
			"pause makes the Lease", none, "pause etcd-main", 0, []string{"create"},
			[]string{"garden/etcd-main is paused: nothing is removed until: quorate resume -n garden etcd-main"},
			func(c rollout.Controls) bool { return c.Paused },
		},
		{
			"pause patches a record", telling(second), "pause", 0,
			[]string{`{"metadata":{"annotations":{"quorate.dev/paused":"true"}}}`}, []string{"is paused"},
			func(c rollout.Controls) bool { return c.Paused },
		},
		{
			"pause once more", quiet(setting("quorate.dev/paused", "true")), "pause", 0, nil,
			[]string{"was paused already"}, func(c rollout.Controls) bool { return c.Paused },
		},
		{"pause of what the StatefulSet controller rolls", quiet(foreign), "pause etcd-main", 0, []string{"create"}, []string{
			"WARNING: the update strategy of garden/etcd-main is RollingUpdate, not OnDelete",
			"garden/etcd-main is paused for Quorate alone",
		}, func(c rollout.Controls) bool { return c.Paused }},
		{
			"pause with another control that is bad", quiet(setting("quorate.dev/partition", "-1")), "pause", 0,
			nil,
			[]string{
				`the rollout is held anyway, by a control that cannot be read: quorate.dev/partition: "-1"`,
			},
			func(c rollout.Controls) bool { return c.Paused },
		},
		{
			"pause that waits, with nothing under way", quiet(healthy), "pause --wait --timeout=1m", 0, nil,
			[]string{"garden/etcd-main is still: the record has no intent, and every pod is Ready"},
			func(c rollout.Controls) bool { return c.Paused },
		},
		{
			"pause that waits for an intent", quiet(setting(record.IntentAnnotation,
				`{"operation":"evict","pod":"etcd-main-1","uid":"u","resourceVersion":"7"}`)),
			"pause --wait --timeout=10ms", 1, nil,
			[]string{"--timeout: after 10ms: the rollout is paused, but the record has an intent: evict etcd-main-1"},
			func(c rollout.Controls) bool { return c.Paused },
		},
		{
			"pause that waits for a missing pod", quiet(func(w *world) { w.removePod(2) }),
			"pause --wait --timeout=10ms", 1, nil, []string{"but the pod etcd-main-2 is missing"},
			func(c rollout.Controls) bool { return c.Paused },
		},
		{
			"pause that waits for a terminating pod", quiet(func(w *world) { w.terminating(1, time.Second) }),
			"pause --wait --timeout=10ms", 1, nil, []string{"but the pod etcd-main-1 is terminating"},
			func(c rollout.Controls) bool { return c.Paused },
		},
		{
			"pause that waits for a pod that is not Ready", quiet(func(w *world) { unready(w.pods[0], time.Minute) }),
			"pause --wait --timeout=10ms", 1, nil, []string{"but the pod etcd-main-0 is not Ready"},
			func(c rollout.Controls) bool { return c.Paused },
		},
		{
			"pause with a timeout and nothing to wait for", none, "pause --timeout=1m", 2, []string{},
			[]string{"--timeout: 1m0s: goes with --wait"}, nil,
		},
		{
			"resume removes the annotation", quiet(setting("quorate.dev/paused", "true")), "resume", 0,
			[]string{`{"metadata":{"annotations":{"quorate.dev/paused":null}}}`},
			[]string{"goes on; to hold it again: quorate pause -n garden etcd-main"},
			func(c rollout.Controls) bool { return !c.Paused },
		},
		{
			"resume of what holds before its last member names the rollout",
			quiet(setting(report.StatusAnnotation, beforeLast("etcd-main-7c9f4b6d58"))), "resume", 0,
			[]string{`{"metadata":{"annotations":{"quorate.dev/allow-last":"etcd-main-7c9f4b6d58@7","quorate.dev/paused":null}}}`},
			[]string{"goes on, and its last member of the older version goes"},
			func(c rollout.Controls) bool { return c.AllowLast == "etcd-main-7c9f4b6d58@7" },
		},
		{
			"resume of another revision than what held lets nothing go",
			quiet(setting(report.StatusAnnotation, beforeLast("etcd-main-5f6d8c9b7d"))), "resume", 0, nil,
			[]string{"was not paused"},
			func(c rollout.Controls) bool { return c.AllowLast == "" },
		},
		{
			"resume of what is paused as well only ends the pause", quiet(func(w *world) {
				w.control(report.StatusAnnotation, beforeLast("etcd-main-7c9f4b6d58"))
				w.control("quorate.dev/paused", "true")
			}), "resume", 0,
			[]string{`{"metadata":{"annotations":{"quorate.dev/paused":null}}}`}, []string{"goes on; to hold it again"},
			func(c rollout.Controls) bool { return !c.Paused && c.AllowLast == "" },
		},
		{
			"resume of what is not paused", none, "resume", 0, []string{}, []string{"was not paused"},
			func(c rollout.Controls) bool { return !c.Paused },
		},
		{"guard says that nobody is kept", none, "guard", 0, []string{},
			[]string{"no pod is kept, because no operation is under way"}, nil},
		{
			"guard says who is kept, why, since when and by whom", quiet(func(w *world) {
				w.control(record.NeededAnnotation, `{"epoch":7,"during":"the replacement of etcd-main-0",`+
					`"since":"2026-01-02T03:04:05Z","pods":{"etcd-main-1":"u1","etcd-main-2":"u2"}}`)
				holder, epoch := "etcd-main-2_u2", int32(7)
				w.lease.Spec.HolderIdentity, w.lease.Spec.LeaseTransitions = &holder, &epoch
				w.control(rollout.ControlQuorumGuard, "off")
			}), "guard", 0, []string{},
			[]string{"quorum rests on etcd-main-1 and etcd-main-2 during the replacement of etcd-main-0, since " +
				"2026-01-02T03:04:05Z by etcd-main-2_u2", "The quorum guard is off and denies nothing; to turn it on " +
				"again: quorate guard -n garden etcd-main --on"}, nil,
		},
		{
			"guard is turned off for one StatefulSet", quiet(setting("quorate.dev/paused", "false")), "guard --off", 0,
			[]string{`{"metadata":{"annotations":{"quorate.dev/guard":"off"}}}`},
			[]string{"is off and denies nothing; to turn it on again: quorate guard -n garden etcd-main --on"},
			func(c rollout.Controls) bool { return c.GuardOff && !c.HoldAll() },
		},
		{
			"guard is turned on again", quiet(setting(rollout.ControlQuorumGuard, "off")), "guard etcd-main --on", 0,
			[]string{`{"metadata":{"annotations":{"quorate.dev/guard":null}}}`}, []string{"the quorum guard is on"},
			func(c rollout.Controls) bool { return !c.GuardOff },
		},
		{"guard cannot be both", none, "guard --on --off", 2, []string{}, []string{"--on, --off: give one of them"}, nil},
		{"override of what holds is for this rollout, and warns of what is lost", telling(broken),
			"override etcd-main UpdatedFailing --yes --reason=drill", 0, nil, []string{
				"WARNING", "UpdatedFailing protects this: ", "OVERRIDDEN UpdatedFailing (before: none). It ends with " +
					"this rollout, at 20", "UTC at the latest, or with: quorate override -n garden etcd-main --clear",
			}, func(c rollout.Controls) bool {
				return len(c.Override) == 1 && lasts(c, time.Hour) && c.Terms.Revision == newRevision
			}},
		{
			"override for longer, also of what would hold the next pod", telling(second),
			"override UpdatedPending,UnavailableBudget -y --for=48h --reason=drill", 2, []string{},
			[]string{"UpdatedPending cannot be overridden. What to do about it: "}, nil,
		},
		{
			"override once more of what is overridden, and of another", telling(func(w *world) {
				broken(w)
				w.control("quorate.dev/override-guards", "UpdatedFailing,CaughtUp")
			}), "override UpdatedFailing CaughtUp -y --for=48h --reason=drill", 0, nil,
			[]string{"(before: UpdatedFailing,CaughtUp)"},
			func(c rollout.Controls) bool { return len(c.Override) == 2 && lasts(c, 48*time.Hour) },
		},
		{
			"override by force replaces what was overridden, and is for no rollout in particular",
			quiet(setting("quorate.dev/override-guards", "CaughtUp")),
			"override UpdatedFailing Canary -y --force --reason=drill", 0, nil, []string{
				"(before: CaughtUp). It ends at 20", "UTC, or with: quorate override -n garden etcd-main --clear"},
			func(c rollout.Controls) bool {
				return len(c.Override) == 2 && lasts(c, time.Hour) && c.Terms.Revision == ""
			},
		},
		{
			"override of what does not hold", telling(broken), "override DisruptionBudget -y --reason=drill", 1, []string{},
			[]string{`DisruptionBudget does not hold garden/etcd-main: its coordinator says "Hold: UpdatedFailing`,
				"Overriding another guard only removes a protection. To do it anyway, give --force"}, nil,
		},
		{
			"override of what does not hold, all the same", telling(broken),
			"override DisruptionBudget -y --force --reason=drill", 0, nil, []string{"OVERRIDDEN DisruptionBudget"},
			func(c rollout.Controls) bool { return len(c.Override) == 1 },
		},
		{
			"override while nobody coordinates", none, "override QuorumFloor -y --reason=drill", 1, []string{},
			[]string{"no coordinator has reported on garden/etcd-main in the last 30s, so no guard is known to hold it; see " +
				"quorate status -n garden etcd-main. To override QuorumFloor anyway, give --force"}, nil,
		},
		{
			"override without a reason", none, "override QuorumFloor --yes", 2, []string{},
			[]string{"--reason: is required: say in a few words why"}, nil,
		},
		{
			"override for no time", none, "override QuorumFloor --yes --reason=drill --for=5s", 2, []string{},
			[]string{"--for: 5s: must be from 1m to 168h"}, nil,
		},
		{
			"override --clear", quiet(setting("quorate.dev/override-guards", "CaughtUp")), "override --clear", 0,
			[]string{unset}, []string{"no guard is overridden any more (before: CaughtUp)"},
			func(c rollout.Controls) bool { return len(c.Override) == 0 },
		},
		{
			"override asks", none, "override QuorumFloor --force --reason=drill", 2, []string{},
			[]string{"--yes: is required, because there is no terminal to ask on"}, nil,
		},
		{
			"override of what cannot be", none, "override Paused --yes", 2, []string{},
			[]string{"Paused cannot be overridden. What to do about it: When the rollout may go on, run 'quorate resume"}, nil,
		},
		{
			"override of a misspelt guard", none, "override QuorumFlor --yes", 2, []string{},
			[]string{`"QuorumFlor" is not a guard; did you mean QuorumFloor?`}, nil,
		},
		{
			"override of nothing", none, "override etcd-main --yes", 2, []string{},
			[]string{"name at least one guard (AllServing, AppliesSnapshots, BeforeLast, "}, nil,
		},
		{
			"override and clear", none, "override QuorumFloor --clear", 2, []string{},
			[]string{"--clear: ends every override"}, nil,
		},
		{
			"override of two StatefulSets", none, "override a b QuorumFloor", 2, []string{},
			[]string{"name one StatefulSet, not a, b; guards have capital letters"}, nil,
		},
		{
			"a StatefulSet that is not there gets no Lease", none, "pause etcd-mian", 2, []string{},
			[]string{"there is no StatefulSet etcd-mian in namespace garden"}, nil,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := &api{world: tc.make(t)}
			before := ""
			if a.lease != nil {
				before = a.lease.Annotations[report.StatusAnnotation]
			}
			stdout, stderr, code := invoke(t, "quorate", answering(t, a), strings.Fields(tc.args)...)
			if code != tc.code {
				t.Errorf("exit code %d, want %d", code, tc.code)
			}
			for _, want := range tc.says {
				if !strings.Contains(stdout+stderr, want) {
					t.Errorf("%q is not in\n%s%s", want, stdout, stderr)
				}
			}
			if writes := a.written(); tc.writes != nil && !slices.Equal(writes, tc.writes) {
				t.Errorf("writes %q, want %q", writes, tc.writes)
			}
			if tc.want == nil {
				return
			}
			if c := controlsOf(a); !tc.want(c) {
				t.Errorf("controls %+v", c)
			}
			if a.lease != nil && a.lease.Annotations[report.StatusAnnotation] != before {
				t.Error("the record was changed")
			}
		})
	}
}

func TestAPauseThatWaitsEndsWhenNothingIsUnderWayAnyMore(t *testing.T) {
	a := &api{world: with(3, setting(record.IntentAnnotation,
		`{"operation":"delete","pod":"etcd-main-2","uid":"u","resourceVersion":"7"}`))}
	kubeconfig := answering(t, a)
	go func() {
		<-a.asked
		a.change(func(w *world) { delete(w.lease.Annotations, record.IntentAnnotation) })
	}()
	stdout, stderr, code := invoke(t, "quorate", kubeconfig, "pause", "--wait", "--timeout=1m")
	if code != 0 {
		t.Errorf("exit code %d: %s", code, stderr)
	}
	lines := strings.Split(strings.TrimSpace(stdout), "\n")
	if want := "waiting: the record has an intent: delete etcd-main-2"; len(lines) != 3 || lines[1] != want ||
		!strings.Contains(lines[2], "garden/etcd-main is still") {
		t.Errorf("says %q, and the second of three lines should be %q", lines, want)
	}
}

func TestOverrideAsksForTheName(t *testing.T) {
	for _, tc := range []struct{ name, answer, says string }{
		{"the name", "etcd-main\n", ""},
		{"the name and the end", "etcd-main", ""},
		{"another one", "etcd-events\n", "nothing was changed"},
		{"nothing", "", "nothing was changed"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var out bytes.Buffer
			err := ask(t.Context(), strings.NewReader(tc.answer), &out, theName, "etcd-main")
			if err == nil {
				err = errors.New("")
			}
			if err.Error() != tc.says || !strings.Contains(out.String(), "(etcd-main)") {
				t.Errorf("%v %q", err, &out)
			}
		})
	}
	t.Run("an interrupt", func(t *testing.T) {
		in, typing := io.Pipe()
		defer typing.Close()
		ctx, interrupt := context.WithCancel(t.Context())
		interrupt()
		if err := ask(ctx, in, io.Discard, theName, "etcd-main"); err == nil || err.Error() != "interrupted; nothing was changed" {
			t.Error(err)
		}
	})
}

func controlsOf(a *api) rollout.Controls {
	if a.lease == nil {
		return rollout.Controls{}
	}
	return rollout.ParseControls(a.lease.Annotations)
}

func TestHistory(t *testing.T) {
	w := told(t, second)
	for _, tc := range []struct {
		name string
		w    *world
		args []string
		want []string
	}{
		{
			"a table", w, nil,
			[]string{"TIME", "WHAT", "Removed  etcd-main-2", "Serving", "etcd-main-1  4", "its member serves"},
		},
		{"JSON", w, []string{"-o", "json"}, []string{`"kind": "HistoryEntryList"`, `"items": [`, `"what": "Removed"`,
			`"pod": "etcd-main-2"`}},
		{"YAML", w, []string{"-o", "yaml"}, []string{"what: Removed"}},
		{"of nothing", newWorld(3), nil, []string{"nothing has been done to garden/etcd-main yet"}},
		{"of nothing, for programs", newWorld(3), []string{"-o", "json"}, []string{`"items": []`}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			stdout, stderr, code := invoke(t, "quorate", apiServer(t, tc.w), append([]string{"history"}, tc.args...)...)
			if code != 0 {
				t.Errorf("exit code %d: %s", code, stderr)
			}
			for _, want := range tc.want {
				if !strings.Contains(stdout+stderr, want) {
					t.Errorf("%q is not in\n%s%s", want, stdout, stderr)
				}
			}
		})
	}
}

func TestHistoryOfAStatefulSetThatIsNotThere(t *testing.T) {
	stdout, stderr, code := invoke(t, "quorate", apiServer(t, newWorld(3)), "history", "etcd-mian")
	if code != 2 || !strings.Contains(stderr, "there is no StatefulSet etcd-mian in namespace garden") || stdout != "" {
		t.Errorf("exit code %d, %q, %q", code, stdout, stderr)
	}
}

func TestVersionTellsWhatTheBinaryIs(t *testing.T) {
	first := "quorate " + version() + " (" + runtime.Version() + ", " + runtime.GOOS + "/" + runtime.GOARCH + ")\n"
	for _, args := range [][]string{{"version"}, {"version", "-o", "wide"}} {
		if stdout, _, code := invoke(t, "quorate", "", args...); code != 0 || !strings.HasPrefix(stdout, first) {
			t.Errorf("%q: exit code %d: %s", args, code, stdout)
		}
	}
	stdout, _, _ := invoke(t, "quorate", "", "version", "-o", "json")
	var b build
	if err := json.Unmarshal([]byte(stdout), &b); err != nil || !reflect.DeepEqual(b, newBuild()) {
		t.Errorf("%v %s", err, stdout)
	}
	if !strings.Contains(stdout, `"kind": "Version"`) {
		t.Error(stdout)
	}
}

func TestVersionNamesTheCommitAndTheDependencies(t *testing.T) {
	commit := []debug.BuildSetting{{Key: "vcs.revision", Value: "abc"}, {Key: "vcs.time", Value: "2026-11-29T08:00:00Z"}}
	dirty := append([]debug.BuildSetting{{Key: "vcs.modified", Value: "true"}}, commit...)
	main := debug.Module{Path: "github.com/quorate/quorate", Version: "v0.1.0"}
	deps := []*debug.Module{{Path: "a", Version: "v1.0.0", Sum: "h1:a="},
		{Path: "b", Version: "v2.0.0", Replace: &debug.Module{Path: "c", Version: "v3.0.0"}}}
	for _, tc := range []struct {
		name       string
		info       debug.BuildInfo
		says, wide string
	}{
		{"a release", debug.BuildInfo{Main: main, Settings: commit, Deps: deps},
			"commit abc of 2026-11-29T08:00:00Z\n", "module a v1.0.0\nmodule c v3.0.0\n"},
		{"a checkout with changes", debug.BuildInfo{Main: main, Settings: dirty},
			"commit abc of 2026-11-29T08:00:00Z, with changes that are not committed\n", ""},
		{"a build outside of a repository", debug.BuildInfo{},
			"commit not known: it was not built in a repository\n", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := buildOf(&tc.info)
			_, text, _ := strings.Cut(b.text(false), "\n")
			_, wide, _ := strings.Cut(b.text(true), "\n")
			if text != tc.says || wide != tc.says+tc.wide {
				t.Errorf("\n got %q and %q\nwant %q and %q", text, wide, tc.says, tc.says+tc.wide)
			}
		})
	}
}

// kubectl finds a plugin by its name, and its users call it kubectl quorate.
func TestAsAPluginOfKubectl(t *testing.T) {
	stdout, _, _ := invoke(t, "/usr/local/bin/kubectl-quorate", "", "status", "--help")
	if !strings.Contains(stdout, "kubectl quorate status [STATEFULSET… | -A | -l LABELS] [flags]") {
		t.Errorf("usage:\n%s", stdout)
	}
	_, stderr, code := invoke(t, "kubectl-quorate", "", "sidekick")
	if code != exitBadInput || stderr != `unknown command "sidekick"; see kubectl quorate --help` {
		t.Errorf("exit code %d: %s", code, stderr)
	}
	plugin := filepath.Join(t.TempDir(), "kubectl-quorate")
	if err := os.Symlink(os.Args[0], plugin); err != nil {
		t.Fatal(err)
	}
	cmd, _, errs := command(t, nil, "--loud")
	cmd.Path, cmd.Args[0] = plugin, plugin
	if code := exitCode(t, cmd.Run()); code != exitBadInput || errs.String() != "kubectl quorate: unknown flag: --loud; see kubectl quorate --help\n" {
		t.Errorf("exit code %d: %s", code, errs)
	}
}

func TestShellCompletion(t *testing.T) {
	kubeconfig := apiServer(t, newWorld(3))
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"status", ""}, "etcd-main\n:4"},
		{[]string{"pause", ""}, "etcd-main\n:4"},
		{[]string{"pause", "etcd-main", ""}, ":4"},
		{[]string{"override", ""}, "etcd-main\n:4"},
		{[]string{"override", "etcd-main", ""}, "AllServing\nAppliesSnapshots\nBeforeLast\n"},
		{[]string{"override", "Q"}, "AllServing\nAppliesSnapshots\nBeforeLast\n"},
		{[]string{"status", "-o", ""}, "table\nwide\njson\nyaml\nname\njsonpath=\n:4"},
		{[]string{"version", "-o", ""}, "text\nwide\njson\nyaml\n:4"},
	} {
		stdout, stderr, code := invoke(t, "quorate", kubeconfig, append([]string{"__complete"}, tc.args...)...)
		if code != 0 || !strings.HasPrefix(stdout, tc.want) {
			t.Errorf("%q: exit code %d\n%s%s", tc.args, code, stdout, stderr)
		}
	}
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		// Cobra binds its standard output early, so it is the process's own.
		cmd, stdout, stderr := command(t, nil, "completion", shell)
		if code := exitCode(t, cmd.Run()); code != 0 || !strings.Contains(stdout.String(), "quorate") {
			t.Errorf("%s: exit code %d %s", shell, code, stderr)
		}
	}
}
