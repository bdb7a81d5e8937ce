package scenarios

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate/quorate/test/harness"
	"github.com/quorate/quorate/test/harness/build"
)

var dumpsTo = flag.String("record", "", "directory into which dumps are recorded for the tests of cmd/quorate")

// dumpCommands are typed where etcdctl's variables name all members and its certificates. An
// etcd without quorum tells nobody who its members are: then there is no member list.
const dumpCommands = `kubectl get statefulset,pods,lease -o yaml > objects.yaml
etcdctl member list -w json > member-list.json || rm member-list.json
etcdctl endpoint status -w json > endpoint-status.json || true
etcdctl endpoint health -w json > endpoint-health.json || true`

// Dumps of real clusters, for the tests of quorate plan. That what kubectl and etcdctl print
// can be read is tested with each run by following docs/getting-started.md.
func TestDumpsAreRecorded(t *testing.T) {
	if *dumpsTo == "" {
		t.Skip("records when -record says where")
	}
	to, err := filepath.Abs(*dumpsTo)
	require.NoError(t, err)
	t.Run("while nobody rolls", func(t *testing.T) {
		ctx, s := newCluster(t, harness.Namespaces, harness.Spec{Name: "etcd-main", Bare: true})
		sh := newDumpShell(ctx, t, s)
		s.upgrade(ctx, harness.Etcd36)
		leader, err := s.Leader(ctx)
		require.NoError(t, err)
		crash := func(pod string) {
			fault, err := s.CrashLoop(ctx, pod)
			require.NoError(t, err)
			t.Cleanup(fault.Stop)
			require.NoError(t, s.WaitWaiting(ctx, pod, "etcd", "CrashLoopBackOff"))
			require.NoError(t, s.WaitNotReady(ctx, pod))
		}
		followers := s.others(leader)
		crash(followers[0])
		sh.dump(ctx, t, to, "a-member-that-crashes")
		crash(followers[1])
		require.NoError(t, s.WaitNotReady(ctx, leader))
		sh.dump(ctx, t, to, "quorum-lost")
	})
	t.Run("while Quorate rolls", func(t *testing.T) {
		ctx, s := newCluster(t, harness.Namespaces, harness.Spec{Name: "etcd-events"})
		sh := newDumpShell(ctx, t, s)
		good, err := s.Template(ctx)
		require.NoError(t, err)
		s.change(ctx, "a flag that etcd does not know", withFlag("etcd", unknownFlag))
		s.holds(ctx, "UpdatedFailing")
		// The first back-offs are over before the commands have run.
		require.Eventually(t, func() bool {
			pods, err := s.env.Client.CoreV1().Pods(harness.Namespace).List(ctx, metav1.ListOptions{})
			return err == nil && slices.ContainsFunc(pods.Items, func(p corev1.Pod) bool { return backsOff(&p, 3) })
		}, time.Minute, 50*time.Millisecond)
		sh.dump(ctx, t, to, "a-revision-that-does-not-come-up")
		container(good, "etcd").Image = harness.Etcd36
		s.change(ctx, "the fix", func(template *corev1.PodTemplateSpec) { *template = *good })
		s.complete(ctx)
		sh.dump(ctx, t, to, "complete")
	})
}

// backsOff is true for a pod whose etcd has been restarted so often, and is not started for a while.
func backsOff(p *corev1.Pod, restarts int32) bool {
	return slices.ContainsFunc(p.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool {
		return c.Name == "etcd" && c.RestartCount >= restarts && c.State.Waiting != nil
	})
}

// dumpShell is a shell that records what its commands print.
type dumpShell struct {
	*shell
	dir string
}

func newDumpShell(ctx context.Context, t *testing.T, s *scene) dumpShell {
	t.Helper()
	dir := t.TempDir()
	access, err := s.WriteAccess(ctx, dir)
	require.NoError(t, err)
	var endpoints []string
	for _, pod := range s.Pods() {
		endpoints = append(endpoints,
			fmt.Sprintf("https://%s.%s-peer.%s.svc:2379", pod, s.Spec.Name, harness.Namespace))
	}
	return dumpShell{dir: dir, shell: newShell(t, ctx, s.env,
		"ETCDCTL_ENDPOINTS="+strings.Join(endpoints, ","),
		"ETCDCTL_CACERT="+access.CA, "ETCDCTL_CERT="+access.Cert, "ETCDCTL_KEY="+access.Key)}
}

// dump records the cluster as it is into a txtar file of that name. Where this checkout lies is
// nobody's business: the kubelet of the harness tells it in the IDs of images.
func (s dumpShell) dump(ctx context.Context, t *testing.T, to, name string) {
	t.Helper()
	s.run(ctx, t, name, block{text: "cd " + s.dir + "\nrm -f *.json\n" +
		"date -u +%Y-%m-%dT%H:%M:%SZ > now\n" + dumpCommands +
		"\netcdctl version > versions"})
	var archive strings.Builder
	root, err := build.Root()
	require.NoError(t, err)
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(s.dir, name))
		if !os.IsNotExist(err) {
			require.NoError(t, err)
		}
		return strings.ReplaceAll(string(text), root, "/checkout")
	}
	fmt.Fprintf(&archive, "Recorded by TestDumpsAreRecorded in test/scenarios, with\n\n%s\n%s\n",
		read("versions"), dumpCommands)
	for _, file := range []string{
		"now", "objects.yaml", "member-list.json", "endpoint-status.json", "endpoint-health.json",
	} {
		if text := read(file); text != "" {
			fmt.Fprintf(&archive, "-- %s --\n%s\n", file, strings.TrimRight(text, "\n"))
		}
	}
	require.NoError(t, os.MkdirAll(to, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(to, name+".txtar"), []byte(archive.String()), 0o644))
}
