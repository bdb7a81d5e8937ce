package scenarios

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/quorate/quorate/test/harness"
)

// container returns a container of a template.
func container(template *corev1.PodTemplateSpec, name string) *corev1.Container {
	for i := range template.Spec.Containers {
		if template.Spec.Containers[i].Name == name {
			return &template.Spec.Containers[i]
		}
	}
	panic("the template has no container " + name) // The harness itself has made it.
}

// withFlag adds a flag to a container; one that the program does not know ends it at
// every start.
func withFlag(name, flag string) func(*corev1.PodTemplateSpec) {
	return func(template *corev1.PodTemplateSpec) {
		c := container(template, name)
		c.Args = append(c.Args, flag)
	}
}

const unknownFlag = "--no-such-flag"

func TestABrokenRevisionStopsAfterOnePodAndItsFixGoesOnThere(t *testing.T) {
	t.Parallel()
	ctx, s := newCluster(t, harness.Loopback, harness.Spec{Name: "broken", PlainText: true})
	good, err := s.Template(ctx)
	require.NoError(t, err)
	fix := func(value string) func(*corev1.PodTemplateSpec) {
		return func(template *corev1.PodTemplateSpec) {
			*template = *good.DeepCopy()
			touched(value)(template)
		}
	}

	for _, c := range []struct {
		name               string
		container, waiting string
		breakIt            func(*corev1.PodTemplateSpec)
	}{
		{"etcd that crashes at every start", "etcd", "CrashLoopBackOff", withFlag("etcd", unknownFlag)},
		{"a sidecar that crashes at every start", "backup-restore", "CrashLoopBackOff",
			withFlag("backup-restore", unknownFlag)},
		{"a sidecar that makes its pod Ready for a moment at every start", "backup-restore", "CrashLoopBackOff",
			func(template *corev1.PodTemplateSpec) {
				c := container(template, "backup-restore")
				c.Command, c.Args = []string{"sh", "-c", "sleep 0.5; exit 1"}, nil
			}},
		{"an image that does not exist", "etcd", "ImagePullBackOff", func(template *corev1.PodTemplateSpec) {
			container(template, "etcd").Image = harness.Missing
		}},
	} {
		ok := t.Run(c.name, func(t *testing.T) {
			s := s.in(t)
			var broken string
			o := s.during(ctx, func(l *harness.Ledger) {
				s.change(ctx, c.name, c.breakIt)
				require.NoError(t, l.WaitRemovals(ctx, 1))
				broken = l.Order()[0]
				require.NoError(t, s.WaitWaiting(ctx, broken, c.container, c.waiting))
				s.says(ctx, "that the rollout waits for "+broken, func(e harness.LogEntry) bool {
					return (e.Action == "Hold" || e.Action == "Wait") && e.Rule == "UpdatedSettle"
				})
				s.pass(ctx, 5*time.Second)
				require.Equal(t, []string{broken}, l.Order(), "it stops after one pod")
				for _, e := range s.journal.Decisions() {
					// Another one was not merely spared for a moment either, as the
					// coordinator's own is.
					if e.Action == "Remove" && e.At.After(s.changed) {
						require.Equal(t, broken, e.Target, "%s", e)
					}
				}

				s.change(ctx, "fix: "+c.name, fix(c.name))
				s.complete(ctx)
			})
			o.lostNothing(t)
			o.keptQuorum(t)
			require.Equal(t, []string{broken, broken}, o.order[:2], "the broken pod goes first")
			require.Len(t, o.order, 4, "and every other one once: %v", o.order)
			for _, r := range o.removals[2:] {
				require.Zero(t, r.OthersAway, "%s was removed while another pod was away", r.Pod)
			}
			o.noneByItself(t)
		})
		if !ok { // The next case begins with a cluster that is well.
			s.change(ctx, "begin anew", fix("after "+c.name))
			s.complete(ctx)
		}
	}
	t.Run("a template that changes mid-rollout replaces no pod twice without need", func(t *testing.T) {
		s := s.in(t)
		var first string
		o := s.during(ctx, func(l *harness.Ledger) {
			s.touch(ctx, "first")
			require.NoError(t, l.WaitRemovals(ctx, 1))
			first = l.Order()[0]
			s.touch(ctx, "second")
			s.complete(ctx)
		})
		o.lostNothing(t)
		o.keptQuorum(t)
		o.oneAtATime(t)
		times := map[string]int{}
		for _, pod := range o.order {
			times[pod]++
		}
		// The pod that was under way when the template changed may have come up at
		// either revision.
		for _, pod := range s.Pods() {
			most := 1
			if pod == first {
				most = 2
			}
			require.LessOrEqual(t, times[pod], most, "%s in %v", pod, o.order)
			require.Positive(t, times[pod], "%s in %v", pod, o.order)
		}
		o.noneByItself(t)
	})
}
