package kubelet

import (
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate/quorate/test/harness/dns"
)

func TestLogsAreCopiedWithoutWhatTheRuntimeAdds(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	folder := filepath.Join(dir, "node-0", logDir, "pods", "default_main-0_0123456789", "etcd")
	require.NoError(t, os.MkdirAll(folder, 0o755))
	path := filepath.Join(folder, "3.log")
	l := &logs{to: filepath.Join(dir, "logs"), open: map[string]*logCopy{}}
	look := func() string {
		require.NoError(t, l.look([]string{filepath.Join(dir, "node-0")}))
		text, err := os.ReadFile(filepath.Join(dir, "logs", "main-0", "01234567-etcd-3.log"))
		require.NoError(t, err)
		return string(text)
	}
	log, err := os.Create(path)
	require.NoError(t, err)
	write := func(text string) {
		_, err := log.WriteString(text)
		require.NoError(t, err)
	}

	write("2026-11-28T13:47:08.1Z stdout F one line\n2026-11-28T13:47:08.1Z stderr P half ")
	require.Equal(t, "one line\n", look())
	write("of a line, \n2026-11-28T13:47:08.1Z stderr F and its end\n")
	require.Equal(t, "one line\nhalf of a line, and its end\n", look())
	write("2026-11-28T13:47:09.1Z stdout F last words\n")
	require.NoError(t, os.Remove(path))
	require.Equal(t, "one line\nhalf of a line, and its end\nlast words\n", look())
	require.Empty(t, l.open)
	require.NoError(t, log.Close())
}

func TestAPodThatHasEndedHasNoAddress(t *testing.T) {
	t.Parallel()
	n := &Network{names: &names{Names: dns.New()}, stations: map[string]station{}}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "main-0", UID: "a"},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.64.1.10"}}
	require.NoError(t, n.learn(pod))
	require.Equal(t, "10.64.1.10", n.AddressOf("default", "main-0"))
	pod.Status.Phase = corev1.PodFailed
	require.NoError(t, n.learn(pod))
	require.Empty(t, n.AddressOf("default", "main-0"))
	require.Empty(t, n.stations, "no link leads there")
}

func TestTheHarnessFindsThePodsOfAllNetworks(t *testing.T) {
	t.Parallel()
	r := &Resolver{}
	const suffix = ".peer.default.svc." + dns.ClusterDomain
	for i, name := range []string{"one", "other"} {
		n := &names{Names: dns.New()}
		n.set(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", UID: "a"},
			Spec: corev1.PodSpec{Hostname: name, Subdomain: "peer"}}, netip.AddrFrom4([4]byte{10, byte(64 + i), 1, 10}))
		r.add(n)
		require.Len(t, r.find(name+suffix), 1)
	}
	require.Equal(t, "10.64.1.10", r.find("one" + suffix)[0].String())
	r.remove(r.known[0])
	require.Empty(t, r.find("one"+suffix))
	require.Len(t, r.find("other"+suffix), 1)
}
