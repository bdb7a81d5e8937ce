package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/report"
)

// A live plan knows the pod it runs in, and says on standard error what it cannot read;
// standard output is the plan alone.
func TestALivePlan(t *testing.T) {
	kubeconfig := apiServer(t, newWorld(3))
	for _, tc := range []struct {
		name, podName string
		args          []string
		order         string
	}{
		{"its own pod goes last among equals", "etcd-main-2", nil, "etcd-main-1 etcd-main-0 etcd-main-2"},
		{"--self wins", "etcd-main-2", []string{"--self=etcd-main-1"}, "etcd-main-2 etcd-main-0 etcd-main-1"},
		{"outside a pod there is none", "", []string{"-n", "garden"}, "etcd-main-2 etcd-main-1 etcd-main-0"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Setenv("POD_NAME", tc.podName)
			t.Setenv("POD_NAMESPACE", map[bool]string{true: "garden"}[tc.podName != ""])
			cmd := root()
			var stdout, stderr bytes.Buffer
			cmd.SetOut(&stdout)
			cmd.SetErr(&stderr)
			cmd.SetArgs(append([]string{
				"plan", "-o", "json", "--kubeconfig", kubeconfig, "--statefulset", "etcd-main",
				"-e", "http://127.0.0.1:1", "--probe-timeout", "500ms",
			}, tc.args...))
			if code := codeOf(cmd.ExecuteContext(t.Context())); code != exitWaiting {
				t.Fatalf("exit code %d\n%s%s", code, &stdout, &stderr)
			}
			var p report.Plan
			if err := json.Unmarshal(stdout.Bytes(), &p); err != nil {
				t.Fatal(err)
			}
			var order []string
			for _, c := range p.Candidates {
				order = append(order, c.Pod)
			}
			if got := strings.Join(order, " "); got != tc.order {
				t.Errorf("candidates %s, want %s", got, tc.order)
			}
			if p.Guard != "VotersUnknown" || !strings.HasPrefix(stderr.String(), "quorate: ") {
				t.Errorf("guard %s, standard error %q", p.Guard, &stderr)
			}
		})
	}
}

// What was dumped says nothing of where the reader stands.
func TestAnOfflinePlanHasNoPodOfItsOwn(t *testing.T) {
	t.Setenv("POD_NAME", "etcd-main-2")
	out, err := runPlan(t, situated(t, "healthy-first-pod").dumped(t)...)
	if err != nil || !strings.HasPrefix(out, "Remove etcd-main-2 ") {
		t.Errorf("%v\n%s", err, out)
	}
}
