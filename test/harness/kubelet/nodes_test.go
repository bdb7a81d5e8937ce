package kubelet

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/quorate/quorate/test/harness/build"
	"github.com/quorate/quorate/test/harness/controlplane"
	"github.com/quorate/quorate/test/harness/network"
	"github.com/quorate/quorate/test/harness/node"
)

// victimVariable makes the test binary a harness that is to be killed.
const victimVariable = "QUORATE_TEST_VICTIM"

var targets = []build.Target{build.Quorate, build.Etcd36, build.Kube}

func TestMain(m *testing.M) {
	MaybeRun()
	say := func(line string) { fmt.Fprintln(os.Stderr, line) }
	if Asked() {
		unavailable = prepare(context.Background(), say)
	}
	if unavailable != nil && Required() {
		say(fmt.Sprintf("there are no real nodes, and %s requires them: %v", RequireVariable, unavailable))
		os.Exit(1)
	}
	if dir := os.Getenv(victimVariable); dir != "" {
		if err := beVictim(context.Background(), dir); err != nil {
			say(err.Error())
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

// unavailable is why there are no real nodes here. It is set before any test begins.
var unavailable error

// prepare builds what is needed, and moves the tests into namespaces of their own.
func prepare(ctx context.Context, say func(string)) error {
	if err := network.NamespacesAvailable(); err != nil {
		return err
	}
	if !network.InNamespace() {
		if _, err := build.Runtime(ctx, say); err != nil {
			return err
		}
		if _, err := build.Some(ctx, say, targets...); err != nil {
			return err
		}
	}
	if err := network.ReexecInNamespace(); err != nil {
		return err
	}
	return Available()
}

// beVictim runs nodes with pods until it is killed.
func beVictim(ctx context.Context, dir string) error {
	w, err := start(ctx, dir)
	if err != nil {
		return err
	}
	sets := w.client.AppsV1().StatefulSets("default")
	if _, err := sets.Create(ctx, pauses(3), metav1.CreateOptions{}); err != nil {
		return err
	}
	for ready := int32(0); ready < 3; time.Sleep(lookAgain) {
		set, err := sets.Get(ctx, "web", metav1.GetOptions{})
		if err != nil {
			return err
		}
		ready = set.Status.ReadyReplicas
	}
	fmt.Println("started")
	select {}
}

// world is a control plane with nodes.
type world struct {
	nodes   *Nodes
	client  kubernetes.Interface
	network *Network
	plane   *controlplane.ControlPlane
}

func start(ctx context.Context, dir string) (w *world, err error) {
	began := time.Now()
	say := func(format string, args ...any) {
		fmt.Fprintf(os.Stderr, "%6.2f ", time.Since(began).Seconds())
		fmt.Fprintf(os.Stderr, format+"\n", args...)
	}
	binaries, err := build.Some(ctx, nil, targets...)
	if err != nil {
		return nil, err
	}
	runtime, err := build.Runtime(ctx, nil)
	if err != nil {
		return nil, err
	}
	w = &world{}
	if w.network, err = NewNetwork(filepath.Join(dir, "network"), nil); err != nil {
		return nil, err
	}
	began = time.Now()
	w.plane, err = controlplane.Start(ctx, controlplane.Config{Dir: filepath.Join(dir, "plane"), Binaries: binaries,
		BindAddress: w.network.HubAddress(), RealNodes: true, NodeMonitorGracePeriod: NodeMonitorGracePeriod})
	if err != nil {
		return nil, err
	}
	say("control plane runs")
	if w.client, err = kubernetes.NewForConfig(w.plane.AdminConfig()); err != nil {
		return nil, err
	}
	w.nodes, err = Start(ctx, Config{Admin: w.plane.AdminConfig(), Kubeconfig: w.plane.NodeKubeconfig,
		Kube: binaries.Kube, Runtime: runtime, Dir: filepath.Join(dir, "nodes"), Nodes: 3, Network: w.network,
		Images: map[string]node.Image{"quorate:current": {Program: binaries.Quorate, User: 65532}}, OnEvent: say})
	say("nodes are Ready")
	return w, err
}

func needNodes(t *testing.T) {
	t.Helper()
	if !Asked() {
		t.Skip("needs real nodes: set " + NodesVariable + "=kubelet")
	}
	if unavailable != nil {
		t.Skipf("there are no real nodes: %v", unavailable)
	}
}

func TestAStatefulSetComesUpOnRealNodesAndNothingIsLeft(t *testing.T) {
	needNodes(t)
	dir := folder(t)
	before := look(t, dir)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	w, err := start(ctx, dir)
	require.NoError(t, err)
	closed := false
	stop := func() {
		if closed {
			return
		}
		closed = true
		require.NoError(t, w.nodes.Close(context.Background()))
		require.NoError(t, w.plane.Close(context.Background()))
		require.NoError(t, w.network.Close())
	}
	defer stop()

	_, err = w.client.CoreV1().Services("default").Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone, PublishNotReadyAddresses: true,
			Selector: map[string]string{"app": "web"}, Ports: []corev1.ServicePort{{Port: 80}}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = w.client.AppsV1().StatefulSets("default").Create(ctx, pauses(3), metav1.CreateOptions{})
	require.NoError(t, err)
	began := time.Now()
	ready := func() int {
		set, err := w.client.AppsV1().StatefulSets("default").Get(ctx, "web", metav1.GetOptions{})
		require.NoError(t, err)
		return int(set.Status.ReadyReplicas)
	}
	require.Eventually(t, func() bool { return ready() == 3 }, time.Minute, 100*time.Millisecond)
	t.Logf("three pods are Ready after %v", time.Since(began))

	t.Run("a pod is known by its name, inside and outside", func(t *testing.T) {
		found, err := net.LookupHost("web-1.web.default.svc")
		require.NoError(t, err)
		require.Equal(t, []string{w.network.AddressOf("default", "web-1")}, found)
		short, err := net.LookupHost("web-1.web.default")
		require.NoError(t, err)
		require.Equal(t, found, short)
		code, printed, err := w.nodes.Exec(ctx, "web-0", "pause", "version")
		require.NoError(t, err)
		require.Zero(t, code, printed)
		require.Contains(t, printed, "quorate")
	})
	t.Run("what a container logs is found, and outlives it", func(t *testing.T) {
		pid, runs := w.nodes.PID("web-0", "pause")
		require.True(t, runs)
		require.NoError(t, w.nodes.KillContainer("web-0", "pause", syscall.SIGKILL))
		require.Eventually(t, func() bool {
			next, runs := w.nodes.PID("web-0", "pause")
			return runs && next != pid
		}, time.Minute, 20*time.Millisecond)
		require.Eventually(t, func() bool {
			logs, _ := filepath.Glob(filepath.Join(w.nodes.LogDir("web-0"), "*-pause-*.log"))
			if len(logs) != 2 {
				return false
			}
			text, _ := os.ReadFile(logs[0])
			return string(text) == "hello\n"
		}, time.Minute, 100*time.Millisecond)
	})
	t.Run("a volume is one folder", func(t *testing.T) {
		text, err := os.ReadFile(filepath.Join(w.nodes.ClaimDir("default", "data-web-2"), "name"))
		require.NoError(t, err)
		require.Equal(t, "web-2\n", string(text))
	})
	t.Run("a link is cut, and mended", func(t *testing.T) {
		pings := func() error {
			ctx, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			// Nobody listens there, so that an answer is a refusal.
			_, err := (&net.Dialer{}).DialContext(ctx, "tcp", "web-1.web.default.svc:9")
			return err
		}
		require.ErrorIs(t, pings(), syscall.ECONNREFUSED)
		require.NoError(t, w.network.Cut(Hub, "default/web-1"))
		require.ErrorContains(t, pings(), "i/o timeout")
		require.NoError(t, w.network.Heal(Hub, "default/web-1"))
		require.ErrorIs(t, pings(), syscall.ECONNREFUSED)
	})
	get := func(pod string) *corev1.Pod {
		p, err := w.client.CoreV1().Pods("default").Get(ctx, pod, metav1.GetOptions{})
		require.NoError(t, err)
		return p
	}
	t.Run("a node loses its power, and boots with new addresses", func(t *testing.T) {
		old := get("web-1")
		require.NoError(t, w.nodes.LoseNode(ctx, old.Spec.NodeName, node.PowerLoss))
		_, runs := w.nodes.PID("web-1", "pause")
		require.False(t, runs)
		require.ErrorIs(t, w.nodes.LoseNode(ctx, old.Spec.NodeName, node.PowerLoss), node.ErrLost)
		require.Equal(t, 2, ready())
		began := time.Now()
		require.NoError(t, w.nodes.RestoreNode(ctx, old.Spec.NodeName))
		require.Eventually(t, func() bool { return ready() == 3 }, time.Minute, 100*time.Millisecond)
		t.Logf("its pod is Ready %v after it was switched on", time.Since(began))
		require.Equal(t, old.UID, get("web-1").UID)
		require.NotEqual(t, old.Status.PodIP, get("web-1").Status.PodIP)
	})
	t.Run("a node reboots before anybody notices", func(t *testing.T) {
		old := get("web-2")
		require.NoError(t, w.nodes.LoseNode(ctx, old.Spec.NodeName, node.PowerCut))
		require.NoError(t, w.nodes.Reboot(ctx, old.Spec.NodeName, 0))
		require.Eventually(t, func() bool {
			next := get("web-2")
			return next.Status.PodIP != old.Status.PodIP && next.Status.ContainerStatuses[0].Ready
		}, time.Minute, 100*time.Millisecond)
		require.Equal(t, old.Status.ContainerStatuses[0].RestartCount+1,
			get("web-2").Status.ContainerStatuses[0].RestartCount)
	})
	t.Run("containers outlive their kubelet", func(t *testing.T) {
		pid, runs := w.nodes.PID("web-0", "pause")
		require.True(t, runs)
		began := time.Now()
		where := get("web-0").Spec.NodeName
		require.NoError(t, w.nodes.KillKubelet(where))
		require.ErrorIs(t, w.nodes.KillKubelet(where), os.ErrProcessDone)
		o, err := w.nodes.find(where)
		require.NoError(t, err)
		require.NoError(t, w.nodes.waitReady(ctx, o, began.Add(kubeletAgain/2)))
		still, runs := w.nodes.PID("web-0", "pause")
		require.True(t, runs)
		require.Equal(t, pid, still)
	})
	t.Run("a kubelet is not heard, and its containers go on", func(t *testing.T) {
		pid, _ := w.nodes.PID("web-0", "pause")
		where := get("web-0").Spec.NodeName
		require.NoError(t, w.nodes.LoseNode(ctx, where, node.Partition))
		require.Equal(t, 2, ready())
		require.NoError(t, w.nodes.RestoreNode(ctx, where))
		require.Eventually(t, func() bool { return ready() == 3 }, time.Minute, 100*time.Millisecond)
		still, _ := w.nodes.PID("web-0", "pause")
		require.Equal(t, pid, still)
	})
	stop()
	require.Equal(t, before, look(t, dir))
}

// pauses is a StatefulSet whose pods do nothing.
func pauses(replicas int32) *appsv1.StatefulSet {
	labels := map[string]string{"app": "web"}
	return &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.StatefulSetSpec{
			Replicas: &replicas, ServiceName: "web", PodManagementPolicy: appsv1.ParallelPodManagement,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			VolumeClaimTemplates: []corev1.PersistentVolumeClaim{{
				ObjectMeta: metav1.ObjectMeta{Name: "data"},
				Spec: corev1.PersistentVolumeClaimSpec{
					AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
					Resources: corev1.VolumeResourceRequirements{
						Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
				},
			}},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{
					Name: "pause", Image: "quorate:current",
					Command:      []string{"sh", "-c", "echo hello; hostname > /data/name; exec sleep 3600"},
					VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: "/data"}},
				}}},
			},
		},
	}
}

func TestNothingIsLeftOfAHarnessThatIsKilled(t *testing.T) {
	needNodes(t)
	dir := t.TempDir()
	before := look(t, dir)
	victim := exec.Command(os.Args[0])
	// It does not know that it is in a harness's namespaces already, and makes its own.
	victim.Env = append(slices.DeleteFunc(os.Environ(), func(variable string) bool {
		return strings.HasPrefix(variable, "QUORATE_OUTSIDE_NAMESPACES=")
	}), victimVariable+"="+dir)
	victim.Stderr = os.Stderr
	out, err := victim.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, victim.Start())
	_, err = bufio.NewReader(out).ReadString('\n') // It has started.
	require.NoError(t, err)
	during := look(t, dir)
	require.NotEmpty(t, during["processes"])
	require.NotEmpty(t, during["groups"])
	require.NoError(t, victim.Process.Kill())
	_ = victim.Wait()
	require.EventuallyWithT(t, func(c *assert.CollectT) { require.Equal(c, before, look(c, dir)) },
		20*time.Second, 50*time.Millisecond)
}

// look is the machine as it is now.
func look(t require.TestingT, dir string) Machine {
	m, err := Look(dir, true)
	require.NoError(t, err)
	return m
}

// folder is a folder of the test's, which is kept when it fails.
func folder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "quorate-nodes-")
	require.NoError(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("all logs are in %s", dir)
			return
		}
		require.NoError(t, os.RemoveAll(dir))
	})
	return dir
}
