package kubelet

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/dns/dnsmessage"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate/quorate/test/harness/node"
)

func TestNamesLeadToWhatIsThereAtTheMoment(t *testing.T) {
	t.Parallel()
	n := newNames()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "main-0", UID: "a"},
		Spec: corev1.PodSpec{Hostname: "main-0", Subdomain: "main-peer"}}
	const name = "main-0.main-peer.default.svc"
	asked := func(name string, kind dnsmessage.Type) (code dnsmessage.RCode, addresses []string) {
		query := dnsmessage.Message{Questions: []dnsmessage.Question{
			{Name: dnsmessage.MustNewName(name + "."), Type: kind, Class: dnsmessage.ClassINET}}}
		packed, err := query.Pack()
		require.NoError(t, err)
		packed, err = answer(packed, n.find)
		require.NoError(t, err)
		var reply dnsmessage.Message
		require.NoError(t, reply.Unpack(packed))
		for _, a := range reply.Answers {
			require.Zero(t, a.Header.TTL, "nobody remembers it")
			addresses = append(addresses, netip.AddrFrom4(a.Body.(*dnsmessage.AResource).A).String())
		}
		return reply.RCode, addresses
	}
	is := func(name string, want ...string) {
		t.Helper()
		code, found := asked(name, dnsmessage.TypeA)
		require.Equal(t, want, found)
		require.Equal(t, len(want) == 0, code == dnsmessage.RCodeNameError)
	}
	full := name + "." + clusterDomain

	is(full)
	n.set(pod, netip.MustParseAddr("10.64.1.10"))
	is(full, "10.64.1.10")
	is(strings.ToUpper(full), "10.64.1.10")
	is(name) // As in a cluster, the resolver adds the domain.
	code, found := asked(full, dnsmessage.TypeAAAA)
	require.Equal(t, dnsmessage.RCodeSuccess, code, "it is known, and has no such address")
	require.Empty(t, found)

	require.NoError(t, n.redirect(name, "10.64.2.10"))
	is(full, "10.64.2.10")
	require.NoError(t, n.redirect(name, ""))
	is(full, "10.64.1.10")

	next := pod.DeepCopy()
	next.UID = "b"
	n.set(next, netip.MustParseAddr("10.64.1.11"))
	n.set(pod, netip.Addr{})
	is(full, "10.64.1.11")

	require.NoError(t, n.setService("default", "main-client", []string{"10.64.1.11", "10.64.2.10"}))
	is("main-client.default.svc."+clusterDomain, "10.64.1.11", "10.64.2.10")
	require.NoError(t, n.setService("default", "main-client", nil))
	is("main-client.default.svc." + clusterDomain)
}

func TestImagesHaveTheirNamesProgramsAndUsers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	program, shell := filepath.Join(dir, "etcd"), filepath.Join(dir, "busybox")
	require.NoError(t, os.WriteFile(program, []byte("a program"), 0o755))
	require.NoError(t, os.WriteFile(shell, []byte("a shell"), 0o755))
	path := filepath.Join(dir, "images.tar")
	require.NoError(t, writeImages(path, shell, map[string]node.Image{
		"etcd:3.5.35": {Program: program}, "registry.example/etcdbrctl:1": {Program: program, User: 65532},
		"alpine:3": {},
	}))

	file, err := os.Open(path)
	require.NoError(t, err)
	defer file.Close()
	files := map[string][]byte{}
	for archive := tar.NewReader(file); ; {
		h, err := archive.Next()
		if err == io.EOF {
			break
		}
		require.NoError(t, err)
		require.NotContains(t, files, h.Name, "each blob is there once")
		files[h.Name], err = io.ReadAll(archive)
		require.NoError(t, err)
	}
	blob := func(digest string) []byte {
		content := files["blobs/"+strings.Replace(digest, ":", "/", 1)]
		sum := sha256.Sum256(content)
		require.Equal(t, digest, "sha256:"+hex.EncodeToString(sum[:]))
		return content
	}
	var index struct{ Manifests []descriptor }
	require.NoError(t, json.Unmarshal(files["index.json"], &index))
	entrypoints, users := map[string]string{}, map[string]string{}
	for _, m := range index.Manifests {
		var manifest struct {
			Config descriptor
			Layers []descriptor
		}
		require.NoError(t, json.Unmarshal(blob(m.Digest), &manifest))
		var image struct {
			Config imageConfig
			Rootfs struct {
				Layers []string `json:"diff_ids"`
			}
		}
		require.NoError(t, json.Unmarshal(blob(manifest.Config.Digest), &image))
		require.Len(t, image.Rootfs.Layers, len(manifest.Layers))
		for i, layer := range manifest.Layers {
			require.Equal(t, image.Rootfs.Layers[i], layer.Digest)
			blob(layer.Digest)
		}
		name := m.Annotations["io.containerd.image.name"]
		entrypoints[name], users[name] = strings.Join(image.Config.Entrypoint, " "), image.Config.User
	}
	require.Equal(t, map[string]string{
		"docker.io/library/etcd:3.5.35": "/etcd", "registry.example/etcdbrctl:1": "/etcd",
		"docker.io/library/alpine:3": "", "docker.io/library/pause:1": "/bin/sleep 2147483647",
	}, entrypoints)
	require.Equal(t, "65532:65532", users["registry.example/etcdbrctl:1"])
	require.Equal(t, "0:0", users["docker.io/library/etcd:3.5.35"])
}

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
	n := &Network{names: newNames(), stations: map[string]station{}}
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
	const suffix = ".peer.default.svc." + clusterDomain
	for i, name := range []string{"one", "other"} {
		n := newNames()
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
