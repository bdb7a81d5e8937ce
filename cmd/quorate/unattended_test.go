package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/quorate/quorate/internal/adoption"
	"github.com/quorate/quorate/internal/report"
)

// turnedOn has Quorate in the pod template, and in the pods of these ordinals.
func turnedOn(flag string, ordinals ...int) func(*world) {
	return func(w *world) {
		on := func(spec *corev1.PodSpec) {
			spec.ServiceAccountName = "etcd-main"
			spec.Containers[1].Args = []string{"server", flag}
			spec.Containers[1].Env = []corev1.EnvVar{{Name: "POD_NAME"}, {Name: "POD_NAMESPACE"}}
		}
		on(&w.set.Spec.Template.Spec)
		for _, i := range ordinals {
			on(&w.pods[i].Spec)
		}
	}
}

// What a person is told of a rollout that nobody carries out.
func TestStatusSaysWhyNobodyCarriesOutARollout(t *testing.T) {
	both := func(changes ...func(*world)) func(*world) {
		return func(w *world) {
			for _, change := range changes {
				change(w)
			}
		}
	}
	optedIn := func(w *world) { w.set.Spec.Template.Annotations = map[string]string{adoption.OptIn: "true"} }
	ownSidecar := func(w *world) {
		for _, spec := range []*corev1.PodSpec{&w.set.Spec.Template.Spec, &w.pods[0].Spec} {
			spec.Containers = append(spec.Containers,
				corev1.Container{Name: "quorate", Args: []string{"sidecar", "--endpoints=x"}})
		}
	}
	told := func(env, arg string) func(*world) {
		return func(w *world) {
			turnedOn(adoption.Toggle, 0, 1, 2)(w)
			c := &w.set.Spec.Template.Spec.Containers[1]
			c.Env = slices.DeleteFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == env })
			c.Args = append(c.Args, arg)
		}
	}
	const noJob = "No running pod has Quorate yet. Start the Job of deploy/bootstrap-job.yaml"
	for _, tc := range []struct {
		name    string
		change  func(*world)
		refused []string
		// unasked: nobody may ask what the sidecars may do.
		unasked bool
		want    string
		not     string
	}{
		{name: "the StatefulSet controller rolls, and there is no Quorate: nothing is to be done", change: foreign,
			want: "Idle", not: "what to do"},
		{name: "the Role without the policy: the strategy is RollingUpdate, and Quorate looks on",
			change: both(foreign, turnedOn(adoption.Toggle, 0, 1, 2)),
			want:   "Quorate is in the pod template, and only looks on. For it to roll the pods, set updateStrategy"},
		{name: "the Etcd opts in, and there is no policy", change: both(foreign, optedIn),
			want: "The Etcd opts in to Quorate, and nobody has acted on that. Apply deploy/druid"},
		{name: "no pod has Quorate yet", change: turnedOn(adoption.Toggle + "=true"), want: noJob},
		{name: "neither has the template", change: func(*world) {},
			want: "Neither the pod template nor a running pod has Quorate", refused: nil, unasked: true},
		{name: "the flag is there, and is off", change: turnedOn(adoption.Toggle+"=false", 0, 1, 2), unasked: true,
			want: "Neither the pod template nor a running pod has Quorate"},
		{name: "the policy without the Role", change: turnedOn(adoption.Toggle, 0, 1, 2),
			refused: []string{"delete pods etcd-main-0", "create pods/eviction etcd-main-0", "create leases"},
			want: "The sidecars lack permissions: their ServiceAccount etcd-main may not delete pods etcd-main-0, " +
				"create pods/eviction etcd-main-0, create leases. Apply deploy/base, or for an Etcd of etcd-druid " +
				"deploy/druid/access."},
		{name: "the Role comes before the Job, which needs it too", change: turnedOn(adoption.Toggle),
			refused: []string{"create leases"}, want: "may not create leases.", not: "Job"},
		{name: "who may not ask learns what there is to learn without asking", change: turnedOn(adoption.Toggle),
			refused: []string{"create leases"}, unasked: true, want: noJob},
		{name: "all is there, and nobody coordinates yet", change: turnedOn(adoption.Toggle, 0, 1, 2),
			want: "If this lasts, look at the logs of the sidecars"},
		{name: "no namespace", change: told("POD_NAMESPACE", ""),
			want: "The container backup-restore of the pod template has no POD_NAMESPACE, so Quorate does not know"},
		{name: "a namespace by flag", change: told("POD_NAMESPACE", "--namespace=garden"), not: "The container"},
		{name: "another namespace", change: told("", "--namespace=gardne"),
			want: "has --namespace=gardne, and this is garden/etcd-main. Correct the flag."},
		{name: "no pod's name, and so no StatefulSet's", change: told("POD_NAME", ""), want: "has no POD_NAME, so"},
		{name: "another StatefulSet", change: told("", "--statefulset=etcd-mian"),
			want: "has --statefulset=etcd-mian, and this is garden/etcd-main. Correct the flag."},
		{name: "a StatefulSet from a variable", change: told("", "--statefulset=$(NAME)"), not: "Correct the flag"},
		{name: "old sidecars beside new ones", change: turnedOn(adoption.Toggle, 1),
			want: "Sidecars     etcd-main-0, etcd-main-2: without Quorate\n"},
		{name: "a sidecar of its own is Quorate, too", change: both(turnedOn("--other"), ownSidecar),
			want: "Sidecars     etcd-main-1, etcd-main-2: without Quorate\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := &api{world: with(3, tc.change), reviewed: !tc.unasked, refused: tc.refused}
			stdout, stderr, _ := invoke(t, "quorate", answering(t, a), "status", "etcd-main")
			if !strings.Contains(stdout, tc.want) {
				t.Errorf("%q is not in\n%s%s", tc.want, stdout, stderr)
			}
			if tc.not != "" && strings.Contains(stdout, tc.not) {
				t.Errorf("%q is in\n%s", tc.not, stdout)
			}
		})
	}
}

func TestAGuardSaysBetterWhyARolloutWaits(t *testing.T) {
	a := &api{world: with(3, setting("quorate.dev/paused", "true")), reviewed: true, refused: []string{"create leases"}}
	if stdout, _, _ := invoke(t, "quorate", answering(t, a), "status"); strings.Contains(stdout, "lack permissions") ||
		!strings.Contains(stdout, "Hold: Paused") {
		t.Error(stdout)
	}
}

func TestNobodyCoordinatesWhereQuorateCrashes(t *testing.T) {
	// has gives a pod Quorate in a container q, which is as it is said to be.
	has := func(w *world, i int, is ...corev1.ContainerStatus) *corev1.Pod {
		p := w.pods[i]
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "q", Args: []string{"sidecar"}})
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, is...)
		return p
	}
	crash := func(w *world, i int) {
		now := corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}
		last := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 2}}
		unready(has(w, i, corev1.ContainerStatus{Name: "q", RestartCount: 5, State: now, LastTerminationState: last}),
			time.Minute)
	}
	runs := func(w *world, i int) {
		has(w, i, corev1.ContainerStatus{Name: "q", Ready: true,
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}})
	}
	// all crash in every pod, and what is told of each container is changed then.
	all := func(change func(now *corev1.ContainerStatus)) func(w *world) {
		return func(w *world) {
			for i := range w.pods {
				crash(w, i)
				change(&w.pods[i].Status.ContainerStatuses[2])
			}
		}
	}
	asTheyAre := func(*corev1.ContainerStatus) {}
	t.Run("in all pods", func(t *testing.T) {
		w := with(3, all(asTheyAre))
		out, _, code := invoke(t, "quorate", apiServer(t, w), "status")
		first := after(t, out)
		if want := "NOBODY COORDINATES: Quorate does not run in etcd-main-0 (CrashLoopBackOff, last exit code 2), " +
			"etcd-main-1 (CrashLoopBackOff, last exit code 2), etcd-main-2 (CrashLoopBackOff, last exit code 2). " +
			"See why: kubectl logs -n garden etcd-main-2 -c q --previous"; first != want || code != 3 {
			t.Errorf("exit code %d, and the line after the verdict is\n%s, want\n%s", code, first, want)
		}
		if n := strings.Count(out, "  CrashLoopBackOff  no "); n != 3 {
			t.Errorf("%d of 3 rows say that the sidecar crashes:\n%s", n, out)
		}
	})
	for _, tc := range []struct {
		name   string
		change func(w *world)
		says   string // The end of the line after the verdict, or nothing where somebody may coordinate.
	}{
		{"in all that have started", func(w *world) {
			crash(w, 0)
			crash(w, 1)
			has(w, 2)
		}, "in etcd-main-0 (CrashLoopBackOff, last exit code 2), etcd-main-1 (CrashLoopBackOff, last exit code 2). " +
			"See why: kubectl logs -n garden etcd-main-1 -c q --previous"},
		{"between two crashes", all(func(now *corev1.ContainerStatus) {
			now.State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
		}), "etcd-main-2 (crashes, last exit code 2). See why: kubectl logs -n garden etcd-main-2 -c q --previous"},
		{"after its first crash, which is in the log of now", all(func(now *corev1.ContainerStatus) {
			now.State, now.LastTerminationState = now.LastTerminationState, corev1.ContainerState{}
		}), "etcd-main-2 (Terminated, exit code 2). See why: kubectl logs -n garden etcd-main-2 -c q"},
		{"for want of its image, of which there is no log", all(func(now *corev1.ContainerStatus) {
			now.State.Waiting.Reason, now.LastTerminationState = "ImagePullBackOff", corev1.ContainerState{}
		}), "etcd-main-2 (ImagePullBackOff). See why: kubectl describe pod -n garden etcd-main-0"},
		{"but not while it is created", all(func(now *corev1.ContainerStatus) {
			now.State.Waiting.Reason, now.LastTerminationState = "ContainerCreating", corev1.ContainerState{}
		}), ""},
		{"but not for a proxy's sidecar", func(w *world) {
			all(asTheyAre)(w)
			for i := range w.pods {
				w.pods[i].Spec.Containers[2].Args = []string{"proxy", "sidecar"}
			}
		}, ""},
		{"but not where the StatefulSet controller rolls", func(w *world) {
			all(asTheyAre)(w)
			foreign(w)
		}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			out, _, _ := invoke(t, "quorate", apiServer(t, with(3, tc.change)), "status", "etcd-main")
			first := after(t, out)
			said := strings.HasPrefix(first, "NOBODY COORDINATES")
			if said != (tc.says != "") || !strings.HasSuffix(first, tc.says) {
				t.Errorf("the line after the verdict is\n%s", first)
			}
		})
	}
	t.Run("not in one of three, which is only told", func(t *testing.T) {
		w := with(3, func(w *world) { crash(w, 1); runs(w, 0); runs(w, 2) })
		out, _, _ := invoke(t, "quorate", apiServer(t, w), "status")
		if strings.Contains(out, "NOBODY") || strings.Count(out, "  CrashLoopBackOff  no ") != 1 {
			t.Errorf("it says\n%s", out)
		}
	})
}

// after returns the line after the verdict, and fails where the first line is none.
func after(t *testing.T, out string) string {
	t.Helper()
	lines := strings.SplitN(out, "\n", 3)
	if len(lines) < 3 || !strings.HasPrefix(lines[0], string(report.Safe)+": etcd is ready in 3/3 pods") {
		t.Fatalf("it begins without a verdict:\n%s", out)
	}
	return lines[1]
}
