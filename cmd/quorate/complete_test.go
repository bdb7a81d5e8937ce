package main

import (
	"strings"
	"syscall"
	"testing"
	"time"
)

// job is a sidecar outside the members' pods, whose etcd does not answer. So whoever completes the rollout, it is not
// this one.
func job(t *testing.T, kubeconfig string, more ...string) (wait func() (code int, log string), stop func()) {
	t.Helper()
	cmd, _, stderr := command(t, nil, append([]string{"sidecar", "--namespace=garden", "--statefulset=etcd-main",
		"--until-complete", "-e", "http://" + freeAddress(t), "--kubeconfig", kubeconfig}, more...)...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return func() (int, string) { return exitCode(t, cmd.Wait()), stderr.String() },
		func() {
			if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
		}
}

func TestAJobEndsWithTheRollout(t *testing.T) {
	for _, tc := range []struct {
		name string
		make func(*testing.T) *world
		code int
		says string
	}{
		{"that was complete before, as Kubernetes says", quiet(complete), 0, "the rollout is complete"},
		{"that was complete before, as a coordinator says", telling(complete), 0, "the rollout is complete"},
		{
			"that is the StatefulSet controller's", quiet(foreign), exitFailure,
			"quorate: --until-complete: there is nothing to wait for: updateStrategy is not OnDelete",
		},
		{
			"of a StatefulSet that is not there", quiet(func(w *world) { w.set = nil }), exitBadInput,
			"quorate: --until-complete: there is nothing to wait for: there is no StatefulSet etcd-main in namespace garden",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			wait, _ := job(t, apiServer(t, tc.make(t)))
			if code, log := wait(); code != tc.code || !strings.Contains(log, tc.says) {
				t.Errorf("exit code %d, standard error\n%s, want %d and\n%s", code, log, tc.code, tc.says)
			}
		})
	}
}

func TestAJobEndsWhenAnotherSidecarHasCompletedTheRollout(t *testing.T) {
	a := &api{world: told(t, second)}
	kubeconfig := answering(t, a)
	wait, _ := job(t, kubeconfig)
	<-a.asked
	a.change(func(w *world) {
		lease := w.lease
		*w = *with(3, complete)
		w.lease = lease
		w.tells(t, time.Now())
	})
	if code, log := wait(); code != 0 || !strings.Contains(log, "the rollout is complete (3 of 3 pods are up to date") {
		t.Errorf("exit code %d, standard error\n%s", code, log)
	}
}

func TestAJobOfARolloutThatHoldsWaitsUntilItIsStopped(t *testing.T) {
	a := &api{world: told(t, broken)}
	wait, stop := job(t, answering(t, a))
	<-a.asked
	stop()
	if code, log := wait(); code != 0 || strings.Contains(log, "the rollout is complete") {
		t.Errorf("exit code %d, standard error\n%s", code, log)
	}
}
