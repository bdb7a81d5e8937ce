package scenarios

import (
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate/quorate/internal/record"
	"github.com/quorate/quorate/internal/report"
	"github.com/quorate/quorate/test/harness"
)

func TestAHostEmbedsTheLibraryForTwoClustersInOneProcess(t *testing.T) {
	t.Parallel()
	promotion := []string{"promote-current-revision"}
	ctx, three := newCluster(t, harness.Loopback, harness.Spec{Name: "embed3", Components: promotion})
	_, one := newCluster(t, harness.Loopback,
		harness.Spec{Name: "embed1", Replicas: 1, PlainText: true, Components: promotion})
	scenes := []*scene{three, one}

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	spec := harness.Host{
		Listen: listener.Addr().String(), Embed: true, Clusters: map[string]harness.Access{},
		LockTTL: lockTTL, RecordDuration: recordDuration, Promote: true,
	}
	require.NoError(t, listener.Close())
	for _, s := range scenes {
		access, err := s.WriteAccess(ctx, t.TempDir())
		require.NoError(t, err)
		spec.Clusters[s.Spec.Name] = access
	}
	log := filepath.Join(t.TempDir(), "host.log")
	program, err := harness.StartHost(ctx, spec, log, say)
	require.NoError(t, err)
	ended := false
	defer func() {
		if !ended {
			_ = program.Stop(ctx, time.Second)
		}
	}()
	// The host's coordinators stand in the queues before the sidecars that come anew.
	for _, s := range scenes {
		s.waitQueue(ctx, len(s.Pods())+1)
		s.restartSidecars(ctx)
	}

	metrics := ""
	o := three.during(ctx, func(*harness.Ledger) {
		for _, s := range scenes {
			s.touch(ctx, "embedded")
		}
		for _, s := range scenes {
			require.NoError(t, s.WaitUpdated(ctx))
		}
		require.Eventually(t, func() bool {
			answer, err := http.Get("http://" + spec.Listen)
			if err != nil {
				return false
			}
			defer answer.Body.Close()
			body, err := io.ReadAll(answer.Body)
			metrics = string(body)
			return err == nil && strings.Contains(metrics,
				`quorate_rollout_state{action="Complete",guard="",namespace="default",rule="Complete",`+
					`statefulset="embed3"} 1`)
		}, time.Minute, 200*time.Millisecond)
	})
	o.lostNothing(t)
	o.keptQuorum(t)
	o.oneAtATime(t)
	o.replacedOnce(t, three.Pods()...)
	for _, want := range []string{
		`quorate_removals_total{namespace="default",outcome="done",rule="Serving",statefulset="embed3"} 3`,
		`quorate_removals_total{namespace="default",outcome="done",rule="Serving",statefulset="embed1"} 1`,
		`quorate_leader_moves_total{namespace="default",outcome="done",statefulset="embed3"} 1`,
		`quorate_record_epoch{namespace="default",statefulset="embed3"} 1`,
	} {
		require.Contains(t, metrics, want)
	}
	for _, s := range scenes {
		var told report.Report
		var history report.History
		// Where the only member goes the lock goes too: who ends that rollout is chance.
		require.Eventually(t, func() bool {
			lease, err := s.env.Client.CoordinationV1().Leases(harness.Namespace).
				Get(ctx, record.Name(s.Spec.Name), metav1.GetOptions{})
			require.NoError(t, err)
			told, history, err = report.FromNotes(lease.Annotations)
			require.NoError(t, err)
			return told.Action == "Complete" && len(history) > 0 && history[len(history)-1].What == report.Completed
		}, time.Minute, 200*time.Millisecond, "%+v", history)
		var removed []string
		completed := 0
		for _, e := range history {
			switch {
			case e.What == report.Removed:
				removed = append(removed, e.Pod)
			case e.What == report.Completed && e.Revision == told.UpdateRevision:
				completed++
			}
		}
		require.ElementsMatch(t, s.Pods(), removed)
		// There is one event for each time that this revision was completed. That can be more than once, because
		// a pod that stops being Ready for a moment begins a rollout, which completes as soon as it is Ready again.
		require.Positive(t, completed, "%+v", history)
		// The fallback may see a single member's rollout complete just when the new sidecar takes over and sees it too.
		most := completed
		if len(s.Pods()) == 1 {
			most += 2
		}
		// Nothing waits for an event to be written, so it may come after the Lease tells of it.
		events := 0
		require.Eventually(t, func() bool {
			list, err := s.env.Client.CoreV1().Events(harness.Namespace).
				List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=" + s.Spec.Name + ",reason=" +
					report.ReasonRolloutCompleted})
			if err != nil {
				return false
			}
			events = 0
			for _, e := range list.Items {
				if strings.Contains(e.Message, told.UpdateRevision) {
					events += int(e.Count)
				}
			}
			return events >= completed
		}, time.Minute, 200*time.Millisecond, "events about %s's completed rollout", s.Spec.Name)
		require.LessOrEqual(t, events, most, "events about %s's completed rollout; history %+v", s.Spec.Name, history)
	}
	set, err := three.env.Client.AppsV1().StatefulSets(harness.Namespace).Get(ctx, three.Spec.Name, metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, set.Status.UpdateRevision, set.Status.CurrentRevision, "it is promoted")
	// The StatefulSet controller, which has seen it, leaves it as it is and counts by it.
	require.Eventually(t, func() bool {
		set, err := three.env.Client.AppsV1().StatefulSets(harness.Namespace).
			Get(ctx, three.Spec.Name, metav1.GetOptions{})
		return err == nil && set.Status.CurrentRevision == set.Status.UpdateRevision && set.Status.CurrentReplicas == 3
	}, time.Minute, 200*time.Millisecond)
	lease, err := three.env.Client.CoordinationV1().Leases(harness.Namespace).
		Get(ctx, record.Name(three.Spec.Name), metav1.GetOptions{})
	require.NoError(t, err)
	told, _, err := report.FromNotes(lease.Annotations)
	require.NoError(t, err)
	require.NotNil(t, told.Backup, "the host's word on its backups")

	ended = true
	require.NoError(t, program.Stop(ctx, 10*time.Second))
	text, err := os.ReadFile(log)
	require.NoError(t, err)
	require.Contains(t, string(text), `"actor":"quorate"`)
	require.Contains(t, string(text), `"host":"backup"`, "the host's own fields")
	require.Zero(t, strings.Count(string(text), `"logger":"etcd-client"`), "lines of the etcd clients\n%s", text)
	require.Zero(t, program.ExitCode(), "how the host ended (%d: something was left behind)\n%s",
		harness.HostLeaks, text)
}
