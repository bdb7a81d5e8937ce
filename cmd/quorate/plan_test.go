package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/quorate/quorate/internal/report"
)

var update = flag.Bool("update", false, "write the expected output of the situations anew")

// runPlan runs the real command and returns what it prints.
func runPlan(t testing.TB, args ...string) (stdout string, err error) {
	t.Helper()
	cmd := root()
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	cmd.SetArgs(append([]string{"plan"}, args...))
	err = cmd.ExecuteContext(t.Context())
	return out.String(), err
}

func codeOf(err error) int {
	var bad badInput
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errWaiting), errors.Is(err, errNotReady):
		return exitWaiting
	case errors.As(err, &bad):
		return exitBadInput
	}
	return exitFailure
}

// dumped writes the dumps of a world into a folder of its own and returns the arguments that
// read them.
func (w *world) dumped(t testing.TB) []string {
	t.Helper()
	dir := t.TempDir()
	files := w.files(t)
	writeFiles(t, dir, files)
	return append([]string{"--now", now.Format(time.RFC3339)}, dumpArgs(dir, files)...)
}

// dumpArgs are the arguments that read the dumps there are in a folder.
func dumpArgs(dir string, files map[string][]byte) []string {
	args := []string{"-f", filepath.Join(dir, "objects.yaml")}
	for _, part := range []string{"member-list", "endpoint-status", "endpoint-health"} {
		if name := part + ".json"; files[name] != nil {
			args = append(args, "--"+part, filepath.Join(dir, name))
		}
	}
	return args
}

// expect holds an output against the one that is kept, which -update writes anew.
func expect(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		writeFiles(t, filepath.Dir(path), map[string][]byte{filepath.Base(path): []byte(got)})
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs (go test ./cmd/quorate -update writes it anew); got\n%s\nwant\n%s", path, got, want)
	}
}

// emptied removes what was expected before, so that -update leaves no file behind.
func emptied(t *testing.T, dir string) string {
	t.Helper()
	if *update {
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// wholeJSON are the situations whose JSON is kept as a whole, as a record of the format: a change
// of leadership, a guard that is overridden, and a pod and a member that are missing.
var wholeJSON = []string{"leader-hands-over", "override", "pod-missing", "two-minor-versions"}

// wholeTables are the situations whose table is kept. Each guard that a situation has, with each of its outcomes, each
// kind of member and each text is in one of these.
var wholeTables = []string{
	"updated-pod-receives-a-snapshot", "updated-pod-finds-no-node", "updated-pod-waits-for-its-volume",
	"updated-pod-with-an-expired-certificate", "nobody-has-signed-in", "terminating-for-a-week",
	"alarm-of-a-member-that-is-gone", "alive-member-may-vote", "an-argument-that-3.6-does-not-know",
	"an-image-that-says-no-version", "an-image-whose-version-is-said", "bad-control", "corrupt-alarm", "cut-off",
	"drain-of-the-leader", "duplicate-member-names", "emptydir-data-of-a-dead-member-kept",
	"emptydir-data-of-a-single-member-allowed", "emptydir-data-of-a-single-member", "etcd-container-of-another-name",
	"evicted-pod", "fix-of-a-failing-update", "foreign-cluster", "hold-before-the-last-member",
	"image-pull-back-off-of-an-older-fix", "leader-hands-over", "leader-not-known", "leader-waits-for-its-followers",
	"learner-goes-as-a-follower", "member-names-that-match-no-pod", "misspelt-control",
	"negative-ordinal", "no-status-of-the-statefulset", "node-cordoned-since-yesterday", "node-lost",
	"nospace-alarm", "one-member-under-two-pods", "ordered-ready-dead-above-live-with-quorum-lost",
	"ordered-ready-two-dead", "override", "partition-keeps-a-failing-pod", "partition-reached", "paused",
	"pod-being-scaled-away-named-as-trusted", "pod-missing", "pod-of-another-owner", "quorum-just-lost-all-alive",
	"restarted-while-the-first-updated-pod-comes-up", "rolling-update-strategy", "scale-out-from-1-to-3",
	"stuck-terminating", "three-sick-sidecars", "two-leaders-at-one-term",
	"two-minor-versions-and-a-member-that-crash-loops", "two-minor-versions", "two-pods-of-one-ordinal",
	"updated-pod-alive-too-long", "whole-order",
}

// Every situation has its decision. Of some, the table is kept as people see it. Programs see the same: what they get
// renders as the table.
func TestPlanOfEverySituation(t *testing.T) {
	base := emptied(t, filepath.Join("testdata", "plan"))
	var want []string
	for _, s := range situations {
		t.Run(s.name, func(t *testing.T) {
			code := 0
			if strings.HasPrefix(s.want, "Hold ") || strings.HasPrefix(s.want, "Wait ") {
				code = exitWaiting
			}
			args := append(s.make().dumped(t), strings.Fields(s.args)...)
			run := func(output string) string {
				out, err := runPlan(t, append(args, "-o", output)...)
				if got := codeOf(err); got != code {
					t.Fatalf("exit code %d, want %d (%v)\n%s", got, code, err, out)
				}
				return out
			}
			table, text := run("table"), run("json")
			if got := summaryOf(t, text); got != s.want {
				t.Errorf("decides\n%q, want\n%q:\n%s", got, s.want, text)
			}
			if got := asTable(t, text); got != table {
				t.Errorf("the JSON renders as\n%s\nthe table is\n%s", got, table)
			}
			if slices.Contains(wholeTables, s.name) {
				expect(t, filepath.Join(base, s.name+".txt"), table)
			}
			if slices.Contains(wholeJSON, s.name) {
				expect(t, filepath.Join(base, s.name+".json"), text)
			}
		})
	}
	// Neither is a table asked for of a situation that there is none of, nor is a file left of none.
	for _, name := range wholeTables {
		want = append(want, filepath.Join(base, name+".txt"))
	}
	for _, name := range wholeJSON {
		want = append(want, filepath.Join(base, name+".json"))
	}
	slices.Sort(want)
	files, err := filepath.Glob(filepath.Join(base, "*"))
	if err != nil || !slices.Equal(files, want) {
		t.Errorf("the files are %q, and the situations want %q (%v)", files, want, err)
	}
}

// The table leaves out what only programs need.
func TestWhatOnlyProgramsSeeOfAMember(t *testing.T) {
	for situation, want := range map[string]string{
		"healthy-first-pod":                   "etcd-main-2 voter, lag 0, sidecar ready, etcd 3.5.21, " + oldRevision,
		"updated-pod-catching-up":             "etcd-main-2 voter, lag 80034, sidecar ready, etcd 3.5.21, " + newRevision,
		"leader-waits-for-its-followers":      "etcd-main-1 voter, lag 110000, sidecar ready, etcd 3.5.21, " + oldRevision,
		"learner-goes-as-a-follower":          "etcd-main-3 no voter, lag 0, sidecar ready, etcd 3.5.21, " + oldRevision,
		"evict-never-a-sick-pod":              "etcd-main-1 voter, lag 0, sidecar sick, etcd 3.5.21, " + oldRevision,
		"evicted-pod":                         "etcd-main-1 voter, sidecar sick, " + oldRevision,
		"crash-looping-outdated-pod":          "etcd-main-1 voter, sidecar ready, " + oldRevision,
		"image-pull-back-off-of-an-older-fix": "etcd-main-2 voter, sidecar ready, etcd-main-66c5d4f7b9",
		"foreign-cluster":                     "etcd-main-2 voter, sidecar ready, " + oldRevision,
		"scale-out-from-1-to-3":               "etcd-main-2 no voter, sidecar ready, " + newRevision,
		"pod-of-another-owner":                "etcd-main-1 voter, lag 0, etcd 3.5.21",
		"pod-missing":                         "etcd-main-1 voter",
		"serving-external-voter":              "migration-0 voter",
		"two-ghosts-of-a-scale-in":            "etcd-main-4 voter",
		"member-names-that-match-no-pod":      "member-2 voter",
	} {
		t.Run(situation, func(t *testing.T) {
			text, _ := runPlan(t, append(situated(t, situation).dumped(t), "-o", "json")...)
			name, _, _ := strings.Cut(want, " ")
			members := plansOf(t, text)[0].Members
			i := slices.IndexFunc(members, func(m report.Member) bool { return cmp.Or(m.Pod, m.Member) == name })
			if i < 0 {
				t.Fatalf("%s is not in\n%s", name, text)
			}
			m := members[i]
			got := name + " no voter"
			if m.Voter {
				got = name + " voter"
			}
			if m.Lag != nil {
				got += fmt.Sprintf(", lag %d", *m.Lag)
			}
			for _, part := range [][2]string{{"sidecar ", m.Sidecar}, {"etcd ", m.Version}, {"", m.Revision}} {
				if part[1] != "" {
					got += ", " + part[0] + part[1]
				}
			}
			if got != want {
				t.Errorf("it is\n%s, want\n%s", got, want)
			}
		})
	}
}

// A plan is the same in YAML and in JSON, one step or all of them.
func TestAPlanInYAML(t *testing.T) {
	args := newWorld(3).dumped(t)
	for _, all := range [][]string{nil, {"--all"}} {
		text, err := runPlan(t, append(append(slices.Clone(args), all...), "-o", "json")...)
		if err != nil {
			t.Fatal(err)
		}
		got, err := runPlan(t, append(append(slices.Clone(args), all...), "-o", "yaml")...)
		if err != nil {
			t.Fatal(err)
		}
		asJSON, err := yaml.YAMLToJSON([]byte(got))
		if err != nil || got == text {
			t.Fatalf("%v\n%s", err, got)
		}
		var a, b any
		err = errors.Join(json.Unmarshal([]byte(text), &a), json.Unmarshal(asJSON, &b))
		if err != nil || !reflect.DeepEqual(a, b) {
			t.Errorf("%v: %s is not\n%s", err, got, text)
		}
	}
}

// situated is the world of a situation.
func situated(t testing.TB, name string) *world {
	t.Helper()
	i := slices.IndexFunc(situations, func(s situation) bool { return s.name == name })
	if i < 0 {
		t.Fatalf("there is no situation %s", name)
	}
	return situations[i].make()
}

// plansOf reads the JSON of a plan, or with --all of each step.
func plansOf(t *testing.T, text string) (all []report.Plan) {
	t.Helper()
	var one report.Plan
	var list struct{ Items []report.Plan }
	if err := errors.Join(json.Unmarshal([]byte(text), &one), json.Unmarshal([]byte(text), &list)); err != nil {
		t.Fatal(err)
	}
	if isList(text) {
		return list.Items
	}
	return []report.Plan{one}
}

func isList(text string) bool { return strings.Contains(text, `"kind": "PlanList"`) }

func asTable(t *testing.T, text string) string {
	t.Helper()
	var out bytes.Buffer
	all := plansOf(t, text)
	if err := render(&out, "table", isList(text), all); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func summaryOf(t *testing.T, text string) string {
	t.Helper()
	return summary(plansOf(t, text)[0])
}

func summary(p report.Plan) string {
	return fmt.Sprint(p.Action, " ", cmp.Or(p.Target, "-"), " ", cmp.Or(p.Guard, "-"), " ", p.Rule)
}

func writeFiles(t testing.TB, dir string, files map[string][]byte) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
