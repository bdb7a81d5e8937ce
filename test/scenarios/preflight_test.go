package scenarios

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/quorate/quorate/pkg/rollout"
	"github.com/quorate/quorate/test/harness"
)

// What is known to fail does not begin, and plan says so. The cure of a pod that has it all the same is not held. A
// minor step that goes stops before its last member, until somebody lets it end.
func TestWhatIsKnownToFailDoesNotBegin(t *testing.T) {
	t.Parallel()
	ctx, s := newCluster(t, harness.Loopback, harness.Spec{
		Name: "preflight", PlainText: true, EtcdImage: harness.Etcd34, SidecarArgs: []string{"--hold-before-last"},
	})
	op := newOperator(t, s)
	template := func(image string, gone ...string) func(*corev1.PodTemplateSpec) {
		return func(template *corev1.PodTemplateSpec) {
			etcd := container(template, "etcd")
			etcd.Image = image
			etcd.Args = append(slices.DeleteFunc(etcd.Args, func(arg string) bool {
				return strings.HasPrefix(arg, "--enable-v2")
			}), gone...)
		}
	}
	// held waits until a guard holds the rollout, and looks at what plan says about it.
	held := func(s *scene, l *harness.Ledger, guard rollout.Guard, says ...string) {
		s.t.Helper()
		s.holds(ctx, string(guard))
		s.pass(ctx, time.Second)
		require.Empty(s.t, l.Order())
		endpoints := "--endpoints=" + strings.Join(s.Endpoints(), ",")
		code, printed := op.in(s.t).quorate(ctx, "plan", s.Spec.Name, "--all", endpoints)
		require.Equal(s.t, 3, code, "%s", printed)
		for _, text := range append(says, string(guard), "applies: yes") {
			require.Contains(s.t, printed, text)
		}
	}
	// ends lets a rollout end that holds before its last member.
	ends := func(s *scene) {
		s.t.Helper()
		s.holds(ctx, string(rollout.GuardBeforeLast))
		told := op.in(s.t).status(ctx)
		for told.Guard != rollout.GuardBeforeLast { // The Lease is written once a second at most.
			s.pass(ctx, 200*time.Millisecond)
			told = op.in(s.t).status(ctx)
		}
		require.Equal(s.t, 1, told.Progress.Outdated, "one is left")
		_, printed := op.in(s.t).quorate(ctx, "resume", s.Spec.Name)
		require.Contains(s.t, printed, "its last member of the older version goes")
		s.complete(ctx)
	}
	good := func(t *testing.T, o outcome) {
		t.Helper()
		o.lostNothing(t)
		o.keptQuorum(t)
		o.oneAtATime(t)
	}

	begun := t.Run("two minor versions at once are held, and one goes", func(t *testing.T) {
		s := s.in(t)
		o := s.during(ctx, func(l *harness.Ledger) {
			s.change(ctx, "etcd 3.6", template(harness.Etcd36))
			held(s, l, rollout.GuardUpgradePath, "3.4.34 → 3.6.16", "upgrade to the minor version in between first")
			s.change(ctx, "etcd 3.5", template(harness.Etcd35))
			ends(s)
		})
		good(t, o)
		o.replacedOnce(t, s.Pods()...)
		s.runs(ctx, "3.5.35")
	})
	if !begun {
		return
	}
	t.Run("an argument that 3.6 does not know is held; a pod that gets it all the same is cured", func(t *testing.T) {
		s := s.in(t)
		o := s.during(ctx, func(l *harness.Ledger) {
			s.change(ctx, "etcd 3.6 with an argument of 3.5", template(harness.Etcd36, "--enable-v2=false"))
			held(s, l, rollout.GuardKnownArguments, "in the new template: --enable-v2")

			// Under OnDelete a pod that goes for another reason comes back with the new template.
			first := s.Pods()[1]
			require.NoError(t, s.DeletePod(ctx, first))
			require.NoError(t, s.WaitWaiting(ctx, first, "etcd", "CrashLoopBackOff"))
			s.change(ctx, "without it", template(harness.Etcd36))
			ends(s)
			require.Equal(t, []string{first, first}, l.Order()[:2], "it is replaced first")
		})
		good(t, o)
		s.runs(ctx, "3.6.16")
	})
}
