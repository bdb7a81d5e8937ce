// Package guard asks a real API server what deploy/components/quorum-guard refuses. The Leases are written by hand, so
// that what the policy reads stands here in full. With -measure it also measures how late the policy is, and what it
// costs an API server.
package guard

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/quorate/quorate/test/harness"
	"github.com/quorate/quorate/test/harness/build"
	"github.com/quorate/quorate/test/harness/controlplane"
)

// patience bounds every wait of these tests. Nothing is expected to take that long, but for the collection of pods
// without a node, which Kubernetes begins after a minute.
const patience = 3 * time.Minute

// controllers are those that have to be let through, and the StatefulSet controller. The eviction by taints needs an
// index of nodelifecycle's.
var controllers = []string{"statefulset", "serviceaccount", "namespace", "garbagecollector", "podgc",
	"taint-eviction-controller", "nodelifecycle"}

// shared is the control plane of all tests that do not remove the guard. It has the guard.
var (
	shared   *controlplane.ControlPlane
	binaries build.Binaries
	folder   string
)

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(run(m))
}

func run(m *testing.M) (code int) {
	if testing.Short() {
		return m.Run()
	}
	var err error
	if folder, err = os.MkdirTemp("", "quorate-guard-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(folder)
	say := func(line string) { fmt.Fprintln(os.Stderr, line) }
	if binaries, err = build.Some(context.Background(), say, build.Etcd36, build.Kube); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if shared, err = start(ctx, "shared", "127.0.0.1"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() {
		if err := errors.Join(shared.Err(), shared.Close(context.Background())); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}()
	if err := harness.InstallGuard(ctx, shared.AdminConfig()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

func start(ctx context.Context, name, address string) (*controlplane.ControlPlane, error) {
	return controlplane.Start(ctx, controlplane.Config{Dir: filepath.Join(folder, name), Binaries: binaries,
		BindAddress: address, Controllers: controllers})
}

// cluster is a namespace with what Quorate leaves there. Pods run nowhere: there are no kubelets.
type cluster struct {
	kubernetes.Interface
	t         *testing.T
	ctx       context.Context //nolint:containedctx // The life of the test.
	plane     *controlplane.ControlPlane
	namespace string
	// seen counts the probes of settle.
	seen int
}

func newCluster(t *testing.T, plane *controlplane.ControlPlane, namespace string) *cluster {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a control plane")
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	c := &cluster{Interface: kubernetes.NewForConfigOrDie(plane.AdminConfig()), t: t, ctx: ctx, plane: plane,
		namespace: namespace}
	_, err := c.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}},
		metav1.CreateOptions{})
	require.NoError(t, err)
	c.until("the namespace has its ServiceAccount", func() bool {
		_, err := c.CoreV1().ServiceAccounts(namespace).Get(ctx, "default", metav1.GetOptions{})
		return err == nil
	})
	return c
}

func (c *cluster) until(what string, done func() bool) {
	c.t.Helper()
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for !done() {
		select {
		case <-ticker.C:
		case <-c.ctx.Done():
			require.FailNow(c.t, "waited in vain until "+what)
		}
	}
}

// as is the client of somebody who may do everything, as far as RBAC is concerned.
func (c *cluster) as(user string) kubernetes.Interface {
	config := c.plane.AdminConfig()
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:masters"}}
	return kubernetes.NewForConfigOrDie(config)
}

// node creates a node that nobody runs.
func (c *cluster) node(name string) {
	c.t.Helper()
	_, err := c.CoreV1().Nodes().Create(c.ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}},
		metav1.CreateOptions{})
	require.NoError(c.t, err)
}

// pod creates a pod on a node, and returns its UID. Nobody runs the node, which matters after five minutes to a pod
// that does not tolerate that.
func (c *cluster) pod(name, node string) types.UID {
	c.t.Helper()
	var bears []corev1.Toleration
	for _, taint := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable} {
		bears = append(bears, corev1.Toleration{Key: taint, Operator: corev1.TolerationOpExists,
			Effect: corev1.TaintEffectNoExecute})
	}
	pod, err := c.CoreV1().Pods(c.namespace).Create(c.ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{NodeName: node, Tolerations: bears,
			Containers: []corev1.Container{{Name: "etcd", Image: "etcd"}}},
	}, metav1.CreateOptions{})
	require.NoError(c.t, err)
	return pod.UID
}

// needed is the annotation quorate.dev/needed, as Quorate writes it.
func needed(epoch int, pods map[string]types.UID) string {
	text, err := json.Marshal(struct {
		Epoch  int                  `json:"epoch"`
		During string               `json:"during,omitempty"`
		Since  string               `json:"since,omitempty"`
		Pods   map[string]types.UID `json:"pods,omitempty"`
	}{epoch, "the replacement of etcd-main-0", "2026-11-29T12:00:00Z", pods})
	if err != nil {
		panic(err)
	}
	return string(text)
}

// record is the Lease of a StatefulSet while its coordinator, etcd-main-2, does something that needs these pods.
func (c *cluster) record(set string, pods map[string]types.UID) *coordinationv1.Lease {
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: "quorate-" + set, Namespace: c.namespace,
			Labels:      map[string]string{"app.kubernetes.io/managed-by": "quorate"},
			Annotations: map[string]string{"quorate.dev/needed": needed(7, pods)}},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: new("etcd-main-2_0b5e"), LeaseTransitions: new(int32(7))},
	}
}

// write replaces a Lease, and returns when the policy goes by the new one.
func (c *cluster) write(lease *coordinationv1.Lease) {
	c.t.Helper()
	c.put(lease)
	c.settle()
}

func (c *cluster) put(lease *coordinationv1.Lease) {
	c.t.Helper()
	leases := c.CoordinationV1().Leases(lease.Namespace)
	found, err := leases.Get(c.ctx, lease.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		_, err = leases.Create(c.ctx, lease, metav1.CreateOptions{})
	} else if err == nil {
		lease.ResourceVersion = found.ResourceVersion
		_, err = leases.Update(c.ctx, lease, metav1.UpdateOptions{})
	}
	require.NoError(c.t, err)
}

// settle waits until the policy goes by all Leases that have been written. The API server watches all of them in one
// stream, in the order in which they were written. So when it knows the last, it knows all.
func (c *cluster) settle() {
	c.t.Helper()
	c.seen++
	name := fmt.Sprintf("probe-%d", c.seen)
	lease := c.record("probe", map[string]types.UID{name: "none"})
	c.put(lease)
	c.until("the policy goes by the last Lease", func() bool {
		return apierrors.IsForbidden(evict(c.ctx, c, c.namespace, name, true))
	})
}

func evict(ctx context.Context, client kubernetes.Interface, namespace, pod string, dryRun bool) error {
	options := &metav1.DeleteOptions{}
	if dryRun {
		options.DryRun = []string{metav1.DryRunAll}
	}
	return client.PolicyV1().Evictions(namespace).Evict(ctx, &policyv1.Eviction{
		ObjectMeta: metav1.ObjectMeta{Name: pod, Namespace: namespace}, DeleteOptions: options})
}
