package main

import (
	"strings"
	"syscall"
	"testing"
	"time"
)

// job is a sidecar outside the members' pods, whose etcd does not answer. So whoever completes the rollout, it is not
// this one.
func job(t *testing.T, kubeconfig string) (wait func() (code int, log string), stop func()) {
	t.Helper()
	cmd, _, stderr := command(t, nil, "sidecar", "--namespace=garden", "--statefulset=etcd-main", "--until-complete",
		"-e", "http://"+freeAddress(t), "--kubeconfig", kubeconfig)
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

func TestAJobEndsAtOnceWithARolloutThatIsComplete(t *testing.T) {
	for _, tc := range []struct {
		name string
		make func(*testing.T) *world
	}{
		{"as Kubernetes says", quiet(complete)},
		{"as a coordinator says", telling(complete)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			wait, _ := job(t, apiServer(t, tc.make(t)))
			if code, log := wait(); code != 0 || !strings.Contains(log, "the rollout is complete (3 of 3 pods") {
				t.Errorf("exit code %d, standard error\n%s", code, log)
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

func TestAJobWaitsUntilItIsStopped(t *testing.T) {
	for _, tc := range []struct {
		name string
		make func(*testing.T) *world
	}{
		{"while the rollout holds", telling(broken)},
		{"while the StatefulSet controller rolls, and may be done", quiet(foreign)},
		{"while a pod has not settled", telling(second)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := &api{world: tc.make(t)}
			wait, stop := job(t, answering(t, a))
			<-a.asked
			stop()
			code, log := wait()
			if code != 1 || strings.Contains(log, "the rollout is complete") ||
				!strings.Contains(log, "told to end before the rollout was complete") {
				t.Errorf("exit code %d, standard error\n%s", code, log)
			}
		})
	}
}
