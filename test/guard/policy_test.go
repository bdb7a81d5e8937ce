package guard

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// verb is how a pod is taken away. All of them are dry runs, which admission treats like others.
type verb func(c *cluster, client kubernetes.Interface, pod string) error

var dryRun = metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}

func deletes(c *cluster, client kubernetes.Interface, pod string) error {
	return client.CoreV1().Pods(c.namespace).Delete(c.ctx, pod, dryRun)
}

func deletesThisOne(c *cluster, client kubernetes.Interface, pod string) error {
	found, err := client.CoreV1().Pods(c.namespace).Get(c.ctx, pod, metav1.GetOptions{})
	if err != nil {
		return err
	}
	options := dryRun
	options.Preconditions = &metav1.Preconditions{UID: &found.UID}
	return client.CoreV1().Pods(c.namespace).Delete(c.ctx, pod, options)
}

func deletesByForce(c *cluster, client kubernetes.Interface, pod string) error {
	options := dryRun
	options.GracePeriodSeconds = new(int64(0))
	return client.CoreV1().Pods(c.namespace).Delete(c.ctx, pod, options)
}

func deletesACollection(c *cluster, client kubernetes.Interface, pod string) error {
	return client.CoreV1().Pods(c.namespace).DeleteCollection(c.ctx, dryRun,
		metav1.ListOptions{FieldSelector: "metadata.name=" + pod})
}

func evicts(c *cluster, client kubernetes.Interface, pod string) error {
	return evict(c.ctx, client, c.namespace, pod, true)
}

// The Lease lists etcd-main-1 and etcd-main-2, and those pods that are in some other state, with the UIDs that they
// have. It does not list the others.
func TestWhatThePolicyRefuses(t *testing.T) {
	c := newCluster(t, shared, "garden")
	other := newCluster(t, shared, "another")
	c.node("node-1")
	all := map[string]types.UID{}
	for _, name := range []string{"etcd-main-0", "etcd-main-1", "etcd-main-2", "etcd-main-11", "my-etcd-main-1",
		"etcd-main-1-x", "etcd-main-3", "etcd-main-4", "etcd-main-5", "during", "pods"} {
		all[name] = c.pod(name, "node-1")
	}
	all["etcd-main-6"] = c.pod("etcd-main-6", "")
	twin := other.pod("etcd-main-1", "node-1")
	require.NoError(t, c.CoreV1().Pods(c.namespace).Delete(c.ctx, "etcd-main-3", metav1.DeleteOptions{}))
	for name, phase := range map[string]corev1.PodPhase{"etcd-main-4": corev1.PodSucceeded,
		"etcd-main-5": corev1.PodFailed} {
		_, err := c.CoreV1().Pods(c.namespace).Patch(c.ctx, name, types.MergePatchType,
			fmt.Appendf(nil, `{"status":{"phase":%q}}`, phase), metav1.PatchOptions{}, "status")
		require.NoError(t, err)
	}
	onList := map[string]types.UID{}
	for _, name := range []string{"etcd-main-1", "etcd-main-2", "etcd-main-3", "etcd-main-4", "etcd-main-5",
		"etcd-main-6"} {
		onList[name] = all[name]
	}

	const (
		admin       = "anne"
		account     = "system:serviceaccount:"
		system      = account + "kube-system:"
		sidecar     = account + "garden:etcd-main"
		statefulSet = system + "statefulset-controller"
	)
	// text is another list than the usual one.
	text := func(list string) func(*coordinationv1.Lease) {
		return func(l *coordinationv1.Lease) { l.Annotations["quorate.dev/needed"] = list }
	}
	lists := func(pods map[string]types.UID) func(*coordinationv1.Lease) { return text(needed(7, pods)) }
	annotated := func(key, value string) func(*coordinationv1.Lease) {
		return func(l *coordinationv1.Lease) { l.Annotations[key] = value }
	}
	spec := func(holder *string, transitions *int32) func(*coordinationv1.Lease) {
		return func(l *coordinationv1.Lease) { l.Spec.HolderIdentity, l.Spec.LeaseTransitions = holder, transitions }
	}
	holder, epoch := new("etcd-main-2_0b5e"), new(int32(7))
	const passes, refused = false, true
	for _, tc := range []struct {
		name   string
		who    string
		verb   verb
		pod    string
		lease  func(*coordinationv1.Lease)
		denied bool
	}{
		{"an administrator deletes a pod that is needed", admin, deletes, "etcd-main-1", nil, refused},
		{"by name and UID", admin, deletesThisOne, "etcd-main-1", nil, refused},
		{"by force", admin, deletesByForce, "etcd-main-1", nil, refused},
		{"as a collection", admin, deletesACollection, "etcd-main-1", nil, refused},
		{"a drain evicts it", admin, evicts, "etcd-main-1", nil, refused},
		{"another one that is needed", admin, deletes, "etcd-main-2", nil, refused},
		{"another one is evicted", admin, evicts, "etcd-main-2", nil, refused},
		{"the last on the list", admin, deletes, "etcd-main-2",
			lists(map[string]types.UID{"etcd-main-1": all["etcd-main-1"], "etcd-main-2": all["etcd-main-2"]}), refused},
		{"the one that is being replaced is not on the list", admin, deletes, "etcd-main-0", nil, passes},
		{"it can be evicted", admin, evicts, "etcd-main-0", nil, passes},
		{"it can be deleted as a collection", admin, deletesACollection, "etcd-main-0", nil, passes},

		{"a sidecar of the StatefulSet deletes it", sidecar, deletes, "etcd-main-1", nil, refused},
		{"with the UID, as Quorate does", sidecar, deletesThisOne, "etcd-main-1", nil, refused},
		{"a sidecar evicts it", sidecar, evicts, "etcd-main-1", nil, refused},
		{"a sidecar deletes its own target", sidecar, deletesThisOne, "etcd-main-0", nil, passes},
		{"a scale-in by the StatefulSet controller", statefulSet, deletesThisOne, "etcd-main-1", nil, refused},
		{"the scheduler makes room for another pod", "system:kube-scheduler", deletes, "etcd-main-1", nil, refused},
		{"a kubelet", "system:node:node-1", deletesByForce, "etcd-main-1", nil, refused},
		{"the namespace controller", system + "namespace-controller", deletesACollection, "etcd-main-1", nil, passes},
		{"the garbage collector", system + "generic-garbage-collector", deletesThisOne, "etcd-main-1", nil, passes},
		{"the collector of pods without a node", system + "pod-garbage-collector", deletesByForce, "etcd-main-1", nil,
			passes},
		{"the eviction by a taint", system + "node-controller", deletes, "etcd-main-1", nil, passes},
		{"an account of the same name elsewhere", account + "garden:node-controller", deletes, "etcd-main-1", nil,
			refused},

		{"a pod that terminates is deleted once more", admin, deletesByForce, "etcd-main-3", nil, passes},
		{"one that has succeeded", admin, deletes, "etcd-main-4", nil, passes},
		{"one that has failed", admin, deletesACollection, "etcd-main-5", nil, passes},
		{"one that has no node yet", admin, deletes, "etcd-main-6", nil, passes},
		{"an eviction does not show that the pod terminates", admin, evicts, "etcd-main-3", nil, refused},
		{"nor that it has succeeded", admin, evicts, "etcd-main-4", nil, refused},

		{"a successor with another UID", admin, deletes, "etcd-main-1",
			lists(map[string]types.UID{"etcd-main-1": "before", "etcd-main-2": all["etcd-main-2"]}), passes},
		{"an eviction goes by the name alone", admin, evicts, "etcd-main-1",
			lists(map[string]types.UID{"etcd-main-1": "before"}), refused},
		{"the UID of another pod", admin, deletes, "etcd-main-1",
			lists(map[string]types.UID{"etcd-main-1": "before", "etcd-main-2": all["etcd-main-1"]}), passes},
		{"a UID that begins like it", admin, deletes, "etcd-main-1",
			lists(map[string]types.UID{"etcd-main-1": all["etcd-main-1"] + "0"}), passes},

		{"a name that begins like one on the list", admin, deletes, "etcd-main-11", nil, passes},
		{"its eviction", admin, evicts, "etcd-main-11", nil, passes},
		{"a name with which one on the list begins", admin, evicts, "etcd-main-1",
			lists(map[string]types.UID{"etcd-main-11": all["etcd-main-11"]}), passes},
		{"a name that ends like one on the list", admin, deletes, "my-etcd-main-1", nil, passes},
		{"its eviction, too", admin, evicts, "my-etcd-main-1", nil, passes},
		{"a name with which one on the list ends", admin, evicts, "etcd-main-1",
			lists(map[string]types.UID{"my-etcd-main-1": all["my-etcd-main-1"]}), passes},
		{"a pod that is called like a word of the list", admin, evicts, "during", nil, passes},
		{"like another", admin, evicts, "pods", nil, passes},
		{"a pod of no StatefulSet", admin, deletes, "my-etcd-main-1", lists(all), passes},
		{"another with a name of that kind", admin, evicts, "etcd-main-1-x", lists(all), passes},

		{"nobody is needed", admin, deletes, "etcd-main-1", text(`{"epoch":7}`), passes},
		{"the holder has been released", admin, deletes, "etcd-main-1", spec(new(""), epoch), passes},
		{"there was none", admin, evicts, "etcd-main-1", spec(nil, epoch), passes},
		{"somebody has taken over and has written no list of its own", admin, deletes, "etcd-main-1",
			spec(new("etcd-main-1_77aa"), new(int32(8))), passes},
		{"an epoch that begins like it", admin, evicts, "etcd-main-1", spec(holder, new(int32(70))), passes},
		{"an epoch with which it begins", admin, evicts, "etcd-main-1", text(needed(77, onList)), passes},
		{"no epoch on the Lease", admin, deletes, "etcd-main-1", spec(holder, nil), passes},
		{"the guard is off", admin, deletes, "etcd-main-1", annotated("quorate.dev/guard", "off"), passes},
		{"an eviction then", admin, evicts, "etcd-main-1", annotated("quorate.dev/guard", "off"), passes},
		{"another word does not turn it off", admin, deletes, "etcd-main-1", annotated("quorate.dev/guard", "on"),
			refused},
		{"no annotation", admin, deletes, "etcd-main-1", func(l *coordinationv1.Lease) { l.Annotations = nil }, passes},
		{"an empty one", admin, evicts, "etcd-main-1", text(""), passes},
		{"one that is no list", admin, deletes, "etcd-main-1", text("etcd-main-1"), passes},
		{"one that has been cut off", admin, evicts, "etcd-main-1", text(`{"epoch":7,"during":"the replace`), passes},
		{"one with spaces, which Quorate does not write", admin, evicts, "etcd-main-1",
			text(`{"epoch": 7, "pods": {"etcd-main-1": "any"}}`), passes},
		{"pods before the epoch", admin, evicts, "etcd-main-1", text(`{"pods":{"etcd-main-1":"any"},"epoch":7}`),
			passes},
		{"a Lease without the label", admin, deletes, "etcd-main-1",
			func(l *coordinationv1.Lease) { l.Labels = nil }, passes},
		{"the Lease of another StatefulSet does not count", admin, evicts, "etcd-main-1",
			func(l *coordinationv1.Lease) { l.Name = "quorate-my-etcd-main" }, passes},
		{"nor that of one with a longer name", admin, deletes, "etcd-main-1",
			func(l *coordinationv1.Lease) { l.Name = "quorate-etcd" }, passes},
		{"a Lease that is not called like one of Quorate's", admin, deletes, "etcd-main-1",
			func(l *coordinationv1.Lease) { l.Name = "etcd-main" }, passes},
		{"the list is in another namespace", admin, deletes, "etcd-main-1",
			func(l *coordinationv1.Lease) { l.Namespace = other.namespace }, passes},
	} {
		t.Run(tc.name, func(t *testing.T) {
			in := *c
			in.t = t
			lease := in.record("etcd-main", onList)
			if tc.lease != nil {
				tc.lease(lease)
			}
			in.write(lease)
			defer func() {
				require.NoError(t, in.CoordinationV1().Leases(lease.Namespace).Delete(in.ctx, lease.Name,
					metav1.DeleteOptions{}))
				c.seen = in.seen
			}()
			err := tc.verb(&in, in.as(tc.who), tc.pod)
			if !tc.denied {
				require.NoError(t, err)
				return
			}
			require.True(t, apierrors.IsForbidden(err), "%v", err)
			require.ErrorContains(t, err, "ValidatingAdmissionPolicy 'quorate-quorum-guard'")
		})
	}

	t.Run("the list of the other namespace guards the pod there, and only that one", func(t *testing.T) {
		c.write(c.record("etcd-main", onList))
		other.write(other.record("etcd-main", map[string]types.UID{"etcd-main-1": twin}))
		require.True(t, apierrors.IsForbidden(deletes(other, other, "etcd-main-1")))
	})
	t.Run("a Lease that is deleted frees the pods", func(t *testing.T) {
		c.write(c.record("etcd-main", onList))
		require.True(t, apierrors.IsForbidden(deletes(c, c, "etcd-main-1")))
		require.NoError(t, c.CoordinationV1().Leases(c.namespace).Delete(c.ctx, "quorate-etcd-main",
			metav1.DeleteOptions{}))
		c.settle()
		require.NoError(t, deletes(c, c, "etcd-main-1"))
		require.NoError(t, evicts(c, c, "etcd-main-1"))
	})
	t.Run("two StatefulSets of a namespace are guarded by their own lists", func(t *testing.T) {
		c.pod("etcd-events-0", "node-1")
		c.pod("etcd-events-1", "node-1")
		c.put(c.record("etcd-main", onList))
		c.write(c.record("etcd-events", map[string]types.UID{"etcd-events-1": "any"}))
		for pod, denied := range map[string]bool{"etcd-main-0": false, "etcd-main-1": true, "etcd-events-0": false,
			"etcd-events-1": true} {
			require.Equal(t, denied, apierrors.IsForbidden(evicts(c, c, pod)), pod)
		}
	})
}

// Whoever is refused reads why, for how long, and what to do.
func TestTheMessageSaysWhatIsUnderWayAndWhatToDo(t *testing.T) {
	c := newCluster(t, shared, "told")
	uid := c.pod("etcd-main-1", "node-1")
	lease := c.record("etcd-main", map[string]types.UID{"etcd-main-1": uid})
	c.write(lease)
	const words = `pods "etcd-main-1" is forbidden: ValidatingAdmissionPolicy 'quorate-quorum-guard' with binding ` +
		`'quorate-quorum-guard' denied request: quorum of the StatefulSet etcd-main needs the pod etcd-main-1 during ` +
		`the replacement of etcd-main-0, which etcd-main-2 has had under way since 2026-11-29T12:00:00Z. Wait until ` +
		`it has ended: kubectl quorate status etcd-main -n told. If no sidecar is left that could end it: kubectl ` +
		`quorate guard etcd-main -n told --off`
	for _, tc := range []struct {
		err  error
		want string
	}{
		{deletes(c, c, "etcd-main-1"), words},
		{evicts(c, c, "etcd-main-1"), words},
		// The request names no pod. The message does.
		{deletesACollection(c, c, "etcd-main-1"), strings.Replace(words, "etcd-main-1", "Unknown", 1)},
	} {
		require.EqualError(t, tc.err, tc.want)
		var status apierrors.APIStatus
		require.ErrorAs(t, tc.err, &status)
		// Only a budget can answer 429, which makes `kubectl drain` ask again.
		require.EqualValues(t, http.StatusForbidden, status.Status().Code)
		require.Equal(t, metav1.StatusReasonForbidden, status.Status().Reason)
	}

	t.Run("also where a coordinator runs outside the pods", func(t *testing.T) {
		lease.Spec.HolderIdentity = new("outside_Q7")
		c.write(lease)
		require.ErrorContains(t, deletes(c, c, "etcd-main-1"), "which outside_Q7 has had under way since")
	})
}
