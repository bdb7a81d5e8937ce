package main

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/etcdtest"
	"github.com/quorate/quorate/internal/report"
)

// A live plan knows the pod it runs in.
func TestALivePlan(t *testing.T) {
	etcd := membersOf(t, 3)
	kubeconfig := apiServer(t, newWorld(3))
	for _, tc := range []struct {
		name, podName string
		args          []string
		order         string
	}{
		{"its own pod goes last among equals", "etcd-main-2", nil, "etcd-main-1 etcd-main-2 etcd-main-0"},
		{"--self wins", "etcd-main-2", []string{"--self=etcd-main-1"}, "etcd-main-2 etcd-main-1 etcd-main-0"},
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
				"plan", "-o", "json", "--kubeconfig", kubeconfig, "--statefulset", "etcd-main", "-e", etcd.URL(0),
			}, tc.args...))
			if code := codeOf(cmd.ExecuteContext(t.Context())); code != 0 || stderr.Len() > 0 {
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
		})
	}
}

// membersOf are members that answer, of the names of the world's pods.
func membersOf(t *testing.T, n int) *etcdtest.Cluster {
	t.Helper()
	c := etcdtest.Start(t, n)
	c.Set(func(_ *etcdtest.Cluster, members []*etcdtest.Member) {
		for i, m := range members {
			m.Name = "etcd-main-" + strconv.Itoa(i)
		}
	})
	return c
}

// What was dumped says nothing of where the reader stands.
func TestAnOfflinePlanHasNoPodOfItsOwn(t *testing.T) {
	t.Setenv("POD_NAME", "etcd-main-2")
	out, err := runPlan(t, situated(t, "healthy-first-pod").dumped(t)...)
	if err != nil || !strings.HasPrefix(out, "Remove etcd-main-2 ") {
		t.Errorf("%v\n%s", err, out)
	}
}
