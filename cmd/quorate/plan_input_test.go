package main

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestBadInputOfAPlan(t *testing.T) {
	w := newWorld(3)
	files := w.files(t)
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	two := newWorld(3)
	two.set.Name, two.set.UID, two.pods = "etcd-events", "2c5ea4c0-4067-11e9-8bad-9b1deb4d3b7d", nil
	twoObjects := append(append(slices.Clone(files["objects.yaml"]), "---\n"...), two.files(t)["objects.yaml"]...)
	bare := newWorld(3)
	bare.pods[1].Status = corev1.PodStatus{}
	objects := string(files["objects.yaml"])
	files["two.yaml"] = twoObjects
	files["bare.yaml"] = bare.files(t)["objects.yaml"]
	files["malformed.yaml"] = []byte("kind: StatefulSet\n\tmetadata: {\n")
	files["malformed.json"] = []byte(`{"members": [`)
	files["other.json"] = []byte(`{"action": 1}`)
	files["no-set.yaml"] = []byte("kind: Pod\nmetadata: {name: etcd-main-0}\nstatus: {phase: Pending}\n")
	files["no-kind.yaml"] = []byte("metadata: {name: etcd-main}\n")
	files["wrong-type.yaml"] = []byte("kind: StatefulSet\nspec: {replicas: three}\n")
	files["items.yaml"] = []byte("kind: List\nitems: [3]\n")
	files["empty.yaml"] = nil
	files["hex.json"] = []byte(`{"header":{"cluster_id":"cdf8"},"members":[]}`)
	writeFiles(t, dir, files)
	if !strings.Contains(objects, "kind: List") {
		t.Fatal("the dump is no List")
	}
	good := append(dumpArgs(dir, files), "--now", "2026-01-02T15:04:05Z")

	for _, tc := range []struct {
		name string
		args []string
		code int
		want []string // words of the message
	}{
		{"good input is none", good, 0, nil},
		{
			"the right StatefulSet of two is chosen by name",
			append(slices.Clone(good[2:]), "-f", path("two.yaml"), "--statefulset", "etcd-main"), 0, nil,
		},
		{
			"a missing file of objects", []string{"-f", path("nothing.yaml")}, 2,
			[]string{"--filename", "nothing.yaml", "no such file"},
		},
		{
			"a missing member list", append(slices.Clone(good), "--member-list", path("nothing.json")), 2,
			[]string{"--member-list", "nothing.json", "no such file"},
		},
		{
			"a missing endpoint status", append(slices.Clone(good), "--endpoint-status", path("nothing.json")), 2,
			[]string{"--endpoint-status", "nothing.json"},
		},
		{
			"a missing endpoint health", append(slices.Clone(good), "--endpoint-health", path("nothing.json")), 2,
			[]string{"--endpoint-health", "nothing.json"},
		},
		{"a folder instead of a file", []string{"-f", dir}, 2, []string{"--filename", "is a directory"}},
		{"malformed YAML", []string{"-f", path("malformed.yaml")}, 2, []string{"malformed.yaml", "document 1"}},
		{
			"a field of the wrong type", []string{"-f", path("wrong-type.yaml")}, 2,
			[]string{"wrong-type.yaml", "document 1", "StatefulSet"},
		},
		{"an item that is no object", []string{"-f", path("items.yaml")}, 2, []string{"items[0] is not an object"}},
		{
			"an object without a kind", []string{"-f", path("no-kind.yaml")}, 2,
			[]string{"without a kind", "kubectl get -o yaml"},
		},
		{
			"a pod without a status", []string{"-f", path("bare.yaml")}, 2,
			[]string{"items[2]", "pod etcd-main-1 has no status", "kubectl get"},
		},
		{
			"malformed member list", append(slices.Clone(good), "--member-list", path("malformed.json")), 2,
			[]string{"etcdctl member list -w json", "unexpected end"},
		},
		{
			"a member list with hexadecimal IDs", append(slices.Clone(good), "--member-list", path("hex.json")), 2,
			[]string{"etcdctl member list -w json", "--hex"},
		},
		{
			"a member list that is something else", append(slices.Clone(good), "--member-list", path("other.json")),
			2, []string{"names no member"},
		},
		{
			"a status that is something else",
			append(slices.Clone(good), "--endpoint-status", path("member-list.json")), 2,
			[]string{"etcdctl endpoint status -w json"},
		},
		{
			"a health that is something else",
			append(slices.Clone(good), "--endpoint-health", path("member-list.json")), 2,
			[]string{"etcdctl endpoint health -w json"},
		},
		{"no StatefulSet", []string{"-f", path("no-set.yaml")}, 2, []string{"there is no StatefulSet"}},
		{"nothing at all", []string{"-f", path("empty.yaml")}, 2, []string{"there is no StatefulSet"}},
		{
			"several StatefulSets", []string{"-f", path("two.yaml")}, 2,
			[]string{
				"several StatefulSets", "garden/etcd-main", "garden/etcd-events", "--namespace and --statefulset",
			},
		},
		{
			"another StatefulSet", append(slices.Clone(good), "--statefulset", "etcd-other"), 2,
			[]string{"etcd-other", "garden/etcd-main"},
		},
		{
			"another namespace", append(slices.Clone(good), "--namespace", "shoot"), 2,
			[]string{"shoot/", "garden/etcd-main"},
		},
		{
			"a time that is none", append(slices.Clone(good), "--now", "yesterday"), 2,
			[]string{"--now", "yesterday", "2026-01-02T15:04:05Z"},
		},
		{
			"an output that is none", append(slices.Clone(good), "-o", "xml"), 2,
			[]string{"--output", "xml", "table, json or yaml"},
		},
		{
			"etcd's files without objects", []string{"--member-list", path("member-list.json")}, 2,
			[]string{"--filename"},
		},
		{"the StatefulSet as the argument", append(slices.Clone(good), "etcd-main"), 0, nil},
		{
			"two arguments", append(slices.Clone(good), "etcd-main", "etcd-events"), 2,
			[]string{"one StatefulSet", "etcd-events"},
		},
		{
			"a policy of zero", append(slices.Clone(good), "--max-unavailable", "0"), 2,
			[]string{"--max-unavailable", `"0" is below 1`},
		},
		{"a live plan of no cluster", nil, 2, []string{"--kubeconfig: is not set"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, v := range []string{"POD_NAME", "POD_NAMESPACE", "KUBECONFIG"} {
				t.Setenv(v, "")
			}
			out, err := runPlan(t, tc.args...)
			if code := codeOf(err); code != tc.code {
				t.Fatalf("exit code %d, want %d (%v)\n%s", code, tc.code, err, out)
			}
			if tc.code == exitBadInput && out != "" {
				t.Errorf("it prints a plan all the same: %s", out)
			}
			for _, word := range tc.want {
				if err == nil || !strings.Contains(err.Error(), word) {
					t.Errorf("the message lacks %q: %v", word, err)
				}
			}
		})
	}
}

// The codes are those of the process, not only of the command.
func TestExitCodesOfAPlan(t *testing.T) {
	unreachable := kubeconfigFor(t, "http://127.0.0.1:1")
	for _, tc := range []struct {
		name string
		args []string
		code int
	}{
		{"something to do", situated(t, "healthy-first-pod").dumped(t), 0},
		{"complete", situated(t, "complete").dumped(t), 0},
		{"idle", situated(t, "rolling-update-strategy").dumped(t), 0},
		{"holding", situated(t, "paused").dumped(t), 3},
		{"waiting", situated(t, "stale-generation").dumped(t), 3},
		{"bad input", []string{"-f", "nothing.yaml"}, 2},
		{
			"a cluster that does not answer is a failure",
			[]string{
				"--kubeconfig", unreachable, "--namespace", "garden", "--statefulset", "etcd-main",
				"--request-timeout", "2s",
			},
			1,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cmd, stdout, stderr := command(t, nil, append([]string{"plan"}, tc.args...)...)
			if code := exitCode(t, cmd.Run()); code != tc.code {
				t.Errorf("exit code %d, want %d\n%s%s", code, tc.code, stdout, stderr)
			}
			plan := tc.code == 0 || tc.code == exitWaiting
			if plan != (stdout.Len() > 0) || plan == (stderr.Len() > 0) {
				t.Errorf("stdout %q, stderr %q", stdout, stderr)
			}
		})
	}
}

func TestPlanReadsObjectsFromStandardInput(t *testing.T) {
	args := newWorld(3).dumped(t)
	objects, err := os.Open(args[3])
	if err != nil {
		t.Fatal(err)
	}
	defer objects.Close()
	args[3] = "-"
	cmd, stdout, stderr := command(t, nil, append([]string{"plan"}, args...)...)
	cmd.Stdin = io.Reader(objects)
	if code := exitCode(t, cmd.Run()); code != 0 || !strings.HasPrefix(stdout.String(), "Remove etcd-main-2") {
		t.Errorf("exit code %d\n%s%s", code, stdout, stderr)
	}
}
