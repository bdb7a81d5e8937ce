package scenarios

import (
	"encoding/json"
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

	"github.com/quorate/quorate/pkg/record"
	"github.com/quorate/quorate/pkg/report"
	"github.com/quorate/quorate/test/harness"
	"github.com/quorate/quorate/test/harness/process"
)

func TestAHostEmbedsTheLibraryForTwoClustersInOneProcess(t *testing.T) {
	t.Parallel()
	promotion := []string{"promote-current-revision"}
	ctx, three := newCluster(t, harness.Loopback, harness.Spec{Name: "embed3", Components: promotion})
	_, one := newCluster(t, harness.Loopback, harness.Spec{Name: "embed1", Replicas: 1, PlainText: true, Components: promotion})
	scenes := []*scene{three, one}

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	spec := hostSpec{Listen: listener.Addr().String(), Clusters: map[string]harness.Access{}}
	require.NoError(t, listener.Close())
	for _, s := range scenes {
		access, err := s.WriteAccess(ctx, t.TempDir())
		require.NoError(t, err)
		spec.Clusters[s.Spec.Name] = access
	}
	config, err := json.Marshal(spec)
	require.NoError(t, err)
	log := filepath.Join(t.TempDir(), "host.log")
	program, err := process.Start(process.Spec{Name: "host program", Path: os.Args[0], Env: []string{hostConfig + "=" + string(config)}, LogPath: log})
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
			return err == nil && strings.Count(metrics, `quorate_rollout_state{action="Complete"`) == 2
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
		`quorate_coordinator{namespace="default",statefulset="embed1"} 1`,
	} {
		require.Contains(t, metrics, want)
	}
	for _, s := range scenes {
		lease, err := s.env.Client.CoordinationV1().Leases(harness.Namespace).Get(ctx, record.Name(s.Spec.Name), metav1.GetOptions{})
		require.NoError(t, err)
		told, history, err := report.FromNotes(lease.Annotations)
		require.NoError(t, err)
		require.Equal(t, "Complete", told.Action)
		require.NotNil(t, told.Backup, "the host's word on its backups")
		require.Len(t, history, len(s.Pods())+map[bool]int{true: 2, false: 1}[len(s.Pods()) > 1], "%+v", history)
		events, err := s.env.Client.CoreV1().Events(harness.Namespace).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=" + s.Spec.Name + ",reason=Complete"})
		require.NoError(t, err)
		require.Len(t, events.Items, 1)
		// The StatefulSet controller, which has seen it, leaves it as it is.
		require.Eventually(t, func() bool {
			set, err := s.env.Client.AppsV1().StatefulSets(harness.Namespace).Get(ctx, s.Spec.Name, metav1.GetOptions{})
			return err == nil && set.Status.CurrentRevision == set.Status.UpdateRevision && set.Status.CurrentReplicas == set.Status.Replicas
		}, time.Minute, 200*time.Millisecond, "status.currentRevision is promoted, and the controller counts by it")
	}

	ended = true
	require.NoError(t, program.Stop(ctx, 10*time.Second))
	text, err := os.ReadFile(log)
	require.NoError(t, err)
	require.Contains(t, string(text), `"actor":"quorate"`)
	require.Contains(t, string(text), `"host":"backup"`, "the host's own fields")
	require.Zero(t, program.ExitCode(), "how the host ended (%d: something was left behind)\n%s", hostLeaks, text)
}
