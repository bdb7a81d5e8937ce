package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
)

// wrongUsages are what people type at three in the morning. Each is told what is wrong, with its value, and what to
// type instead.
var wrongUsages = []struct {
	name, args string
	env        []string
	code       int
	// says is a part of what has to be there; the golden has all of it.
	says string
	// before changes what the API server answers.
	before func(*api)
}{
	{name: "a verb near a real one", args: "staus etcd-main", code: 2, says: "did you mean quorate status?"},
	{name: "a verb of kubectl", args: "get etcd-main", code: 2, says: "did you mean quorate status?"},
	{name: "a verb that is not written to its end", args: "def etcd-main", code: 2,
		says: "did you mean quorate defragment?"},
	{name: "a verb near two", args: "re etcd-main", code: 2,
		says: "did you mean quorate remove-member or quorate resume?"},
	{name: "a verb near none", args: "frobnicate", code: 2, says: "see quorate --help"},
	{name: "a flag near a real one", args: "status etcd-main --wacth", code: 2, says: "did you mean --watch?"},
	{name: "a flag of another verb", args: "plan etcd-main --watch", code: 2, says: "quorate status has it"},
	{name: "a flag without its value", args: "status etcd-main -n", code: 2, says: "needs an argument"},
	{name: "a StatefulSet misspelt", args: "status etcd-mian", code: 2,
		says: "did you mean etcd-main?"},
	{name: "a StatefulSet misspelt for a plan", args: "plan etcd-mian -e http://127.0.0.1:1", code: 2,
		says: "did you mean etcd-main?"},
	{name: "a StatefulSet misspelt in its history", args: "history etcd-mian", code: 2,
		says: "did you mean etcd-main?"},
	{name: "a StatefulSet misspelt for a pause", args: "pause sts/etcd-mian", code: 2,
		says: "did you mean etcd-main?"},
	{name: "a StatefulSet misspelt for a ghost", args: "remove-member etcd-mian --all-ghosts", code: 2,
		says: "did you mean etcd-main?"},
	{name: "a StatefulSet misspelt for a defragmentation", args: "defragment etcd-mian --yes", code: 2,
		says: "did you mean etcd-main?"},
	{name: "a StatefulSet misspelt for an override", args: "override etcd-mian CaughtUp --reason=drill --yes", code: 2,
		says: "did you mean etcd-main?"},
	{name: "a StatefulSet misspelt before a watch", args: "status etcd-mian --watch", code: 2,
		says: "did you mean etcd-main?"},
	{name: "a pod for its StatefulSet", args: "status etcd-main-0", code: 2,
		says: "did you mean etcd-main?"},
	{name: "a kind that is none of ours", args: "status pod/etcd-main-0", code: 2, says: "write etcd-main-0 or sts/"},
	{name: "a namespace before a slash", args: "status garden/etcd-main", code: 2, says: "-n garden"},
	{name: "a kind without a name", args: "status sts/", code: 2, says: "sts/etcd-main"},
	{name: "a StatefulSet of another namespace", args: "status etcd-main -n gardn", code: 2,
		says: "is that the right namespace (-n)"},
	{name: "two StatefulSets where one is wanted", args: "plan etcd-main etcd-events", code: 2,
		says: "takes one StatefulSet"},
	{name: "an argument and another flag", args: "status etcd-main --statefulset=etcd-events", code: 2,
		says: "give one of them"},
	{name: "no StatefulSet where there are two", args: "history", code: 2, says: "etcd-events, etcd-main",
		before: func(a *api) {
			other := *a.set.DeepCopy()
			other.Name = "etcd-events"
			a.others = []appsv1.StatefulSet{other}
		}},
	{name: "a guard misspelt", args: "override etcd-main QuorumFlor --reason=drill", code: 2,
		says: "did you mean QuorumFloor?"},
	{name: "a guard without capitals", args: "override etcd-main quorumfloor --reason=drill", code: 2,
		says: "did you mean the guard QuorumFloor?"},
	{name: "a guard that nobody may override", args: "override etcd-main Paused --reason=drill", code: 2,
		says: "cannot be overridden"},
	{name: "an override without a reason", args: "override etcd-main QuorumFloor", code: 2, says: "--reason"},
	{name: "an override without a guard", args: "override etcd-main --reason=drill", code: 2,
		says: "at least one guard"},
	{name: "a member without its StatefulSet", args: "remove-member etcd-main", code: 2, says: "--all-ghosts"},
	{name: "a duration that is none", args: "status etcd-main --watch --timeout=5x", code: 2,
		says: "write it like 30s, 5m or 1h30m"},
	{name: "a timeout without a watch", args: "status etcd-main --timeout=5m", code: 2, says: "--watch"},
	{name: "an amount that is none", args: "plan etcd-main --max-unavailable=many", code: 2, says: "40%"},
	{name: "a size that is none", args: "plan etcd-main --quota-bytes=8Gb", code: 2, says: "8Gi"},
	{name: "an output that is none", args: "status etcd-main -o xml", code: 2, says: "json"},
	{name: "no such context", args: "status etcd-main --context=mars", code: 2, says: "its contexts are c"},
	{name: "no such kubeconfig", args: "status etcd-main --kubeconfig=/nowhere/config", code: 2,
		says: "no such file or directory"},
	{name: "no kubeconfig at all", args: "status etcd-main", env: []string{"KUBECONFIG=", "HOME=/nobody"}, code: 2,
		says: "name the cluster with one of them"},
	{name: "no kubeconfig and no name", args: "history", env: []string{"KUBECONFIG=", "HOME=/nobody"}, code: 2,
		says: "name the cluster with one of them"},
	{name: "forbidden before a watch", args: "status etcd-main --watch", code: 1, says: "deploy/operator.yaml",
		before: func(a *api) { a.forbids = []string{"get leases"} }},
	{name: "an API server that does not answer", args: "status etcd-main -s http://127.0.0.1:1", code: 1,
		says: "127.0.0.1:1"},
	{name: "forbidden to look", args: "status etcd-main", code: 1, says: "deploy/operator.yaml",
		before: func(a *api) { a.forbids = []string{"get leases"} }},
	{name: "forbidden to list the pods", args: "status etcd-main", code: 1, says: "deploy/operator.yaml",
		before: func(a *api) { a.forbids = []string{"list pods"} }},
	{name: "forbidden to pause", args: "pause etcd-main", code: 1, says: "--role=etcd-main-quorate-operator",
		before: func(a *api) { a.forbids = []string{"patch leases"} }},
	{name: "all namespaces and a name", args: "status -A etcd-main", code: 2, says: "-n NAMESPACE etcd-main"},
	{name: "labels and a name", args: "status -l app=etcd etcd-main", code: 2, says: "goes without a name"},
	{name: "labels in no such form", args: "status -A -l app==etcd=main", code: 2, says: "app=etcd"},
	{name: "a template that is none", args: "status -A -o jsonpath={.items", code: 2,
		says: "jsonpath={.items[*].name}"},
	{name: "a watch for programs", args: "status etcd-main -w -o json", code: 2, says: "--watch shows a table"},
	{name: "a timeout for several", args: "status -A -w --timeout=5m", code: 2, says: "goes with one StatefulSet"},
	{name: "a hold without a watch", args: "status etcd-main --fail-on-hold", code: 2, says: "goes with --watch"},
	{name: "all namespaces for a plan", args: "plan -A", code: 2, says: "quorate pause, resume, status have it"},
	{name: "a StatefulSet misspelt among several", args: "status etcd-main etcd-mian", code: 2,
		says: "did you mean etcd-main?"},
	{name: "a pause of all without a terminal", args: "pause -A", code: 2, says: "--yes"},
	{name: "a wait for all", args: "pause -A --wait", code: 2, says: "goes with one StatefulSet"},
	{name: "forbidden to pause all", args: "pause -A --yes", code: 1, says: "deploy/operator.yaml",
		before: func(a *api) { a.forbids = []string{"list statefulsets"} }},
	{name: "forbidden to look at all namespaces", args: "status -A", code: 1, says: "clusterrolebinding",
		before: func(a *api) { a.forbids = []string{"list leases"} }},
	{name: "an endpoint without a scheme", args: "plan etcd-main -e etcd-main:2379", code: 2, says: "https://"},
}

func TestWrongUsagesAreToldWithTheRightOne(t *testing.T) {
	base := emptied(t, filepath.Join("testdata", "usage"))
	if len(wrongUsages) < 25 {
		t.Errorf("only %d wrong usages", len(wrongUsages))
	}
	for _, tc := range wrongUsages {
		t.Run(tc.name, func(t *testing.T) {
			a := &api{world: told(t, second)}
			if tc.before != nil {
				tc.before(a)
			}
			kubeconfig := answering(t, a)
			cmd, stdout, stderr := command(t, append([]string{"KUBECONFIG=" + kubeconfig}, tc.env...),
				strings.Fields(tc.args)...)
			code := exitCode(t, cmd.Run())
			if code != tc.code || !strings.Contains(stderr.String(), tc.says) || stdout.Len() > 0 {
				t.Errorf("exit code %d, want %d, and %q in\n%s%s", code, tc.code, tc.says, stdout, stderr)
			}
			if writes := a.written(); len(writes) > 0 {
				t.Errorf("it writes %q all the same", writes)
			}
			if strings.Contains(stderr.String(), "--statefulset: is required") {
				t.Errorf("a StatefulSet is taken from the namespace, so none is required:\n%s", stderr)
			}
			text := strings.ReplaceAll(stderr.String(), kubeconfig, "$KUBECONFIG")
			expect(t, filepath.Join(base, strings.ReplaceAll(tc.name, " ", "-")+".txt"),
				fmt.Sprintf("quorate %s\n\n%s\nexit code %d\n", tc.args, text, code))
		})
	}
}

func TestAStatefulSetMayBeWrittenAsKubectlWritesIt(t *testing.T) {
	for _, arg := range []string{"etcd-main", "sts/etcd-main", "statefulset/etcd-main", "statefulsets/etcd-main",
		"statefulset.apps/etcd-main", "--statefulset=sts/etcd-main"} {
		for _, verb := range []string{"status", "history", "pause"} {
			stdout, stderr, code := invoke(t, "quorate", apiServer(t, told(t, complete)), verb, arg)
			if code != 0 {
				t.Errorf("%s %s: exit code %d\n%s%s", verb, arg, code, stdout, stderr)
			}
		}
	}
}

func TestTheNearestWordIsSuggestedAndNoOther(t *testing.T) {
	names := []string{"etcd-main", "etcd-events", "postgres"}
	for word, want := range map[string]string{"etcd-mian": "etcd-main", "etcd-man": "etcd-main",
		"etcd-main-2": "etcd-main", "ETCD-EVENTS": "etcd-events", "mysql": "", "": "", "e": ""} {
		if got := nearest(word, names); got != want {
			t.Errorf("%q: suggests %q, want %q", word, got, want)
		}
	}
}
