package kubelet

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
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
	client, err := start(ctx, dir)
	if err != nil {
		return err
	}
	sets := client.AppsV1().StatefulSets("default")
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

// start starts a control plane with three nodes, and returns a client of it. Nobody stops them.
func start(ctx context.Context, dir string) (kubernetes.Interface, error) {
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
	podNetwork, err := NewNetwork(filepath.Join(dir, "network"), nil)
	if err != nil {
		return nil, err
	}
	plane, err := controlplane.Start(ctx, controlplane.Config{Dir: filepath.Join(dir, "plane"), Binaries: binaries,
		BindAddress: podNetwork.HubAddress(), RealNodes: true, NodeMonitorGracePeriod: NodeMonitorGracePeriod})
	if err != nil {
		return nil, err
	}
	_, err = Start(ctx, Config{Admin: plane.AdminConfig(), Kubeconfig: plane.NodeKubeconfig,
		Kube: binaries.Kube, Runtime: runtime, Dir: filepath.Join(dir, "nodes"), Nodes: 3, Network: podNetwork,
		Images: map[string]node.Image{"quorate:current": {Program: binaries.Quorate, User: 65532}}, OnEvent: say})
	if err != nil {
		return nil, err
	}
	return kubernetes.NewForConfig(plane.AdminConfig())
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
