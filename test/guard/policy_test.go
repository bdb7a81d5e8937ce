package guard

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/quorate/quorate/test/harness"
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

// row is what is asked of the policy, and the answer.
type row struct {
	name string
	who  string
	verb verb
	pod  string
	// lease changes the Lease, which lists etcd-main-1 and etcd-main-2, and those that are in some other state.
	lease func(*coordinationv1.Lease)
	// refused are words of the refusal. They are empty where the policy lets it pass.
	refused string
}

// question is a row with a namespace of its own, where its pod and its Lease are. So nothing is written between two of
// them, and all can be asked again of another policy.
type question struct {
	row
	in *cluster
}

// ask returns what is wrong with the policy's answer.
func (r question) ask() error {
	err := r.verb(r.in, r.in.as(r.who), r.pod)
	switch {
	case r.refused == "":
		return err
	case err == nil:
		return errors.New("it was not refused")
	case !apierrors.IsForbidden(err), !strings.Contains(err.Error(), "ValidatingAdmissionPolicy '"+policyName+"'"),
		!strings.Contains(err.Error(), r.refused):
		return fmt.Errorf("it was refused otherwise: %w", err)
	}
	return nil
}

// uidOf stands for the UID of a pod on the Lease of a row. Only the row's own pod exists and has one.
func uidOf(pod string) types.UID { return types.UID("(" + pod + ")") }

// uidsOf are the pods with their UIDs.
func uidsOf(pods ...string) map[string]types.UID {
	uids := map[string]types.UID{}
	for _, name := range pods {
		uids[name] = uidOf(name)
	}
	return uids
}

// prepare creates what the rows need, in namespaces that begin with a prefix, and returns when the policy goes by it.
func prepare(ctx context.Context, t *testing.T, prefix string) (all []question) {
	t.Helper()
	node := "node-of-" + prefix
	onList := uidsOf("etcd-main-1", "etcd-main-2", "etcd-main-3", "etcd-main-4", "etcd-main-5", "etcd-main-6")
	for i, r := range rows() {
		c := newCluster(t, shared, fmt.Sprintf("%s-%d", prefix, i))
		c.ctx = ctx
		if i == 0 {
			c.node(node)
		}
		var uid types.UID
		switch r.pod {
		case "etcd-main-3":
			uid = c.pod(r.pod, node)
			require.NoError(t, c.CoreV1().Pods(c.namespace).Delete(ctx, r.pod, metav1.DeleteOptions{}))
		case "etcd-main-4":
			uid = c.ended(r.pod, node, corev1.PodSucceeded)
		case "etcd-main-5":
			uid = c.ended(r.pod, node, corev1.PodFailed)
		case "etcd-main-6":
			uid = c.pod(r.pod, "")
		default:
			uid = c.pod(r.pod, node)
		}
		lease := c.record("etcd-main", onList)
		if r.lease != nil {
			r.lease(lease)
		}
		for key, text := range lease.Annotations {
			lease.Annotations[key] = strings.ReplaceAll(text, string(uidOf(r.pod)), string(uid))
		}
		c.put(lease)
		all = append(all, question{r, c})
	}
	all[0].in.settle()
	return all
}

// ended creates a pod on a node that has come to its end there.
func (c *cluster) ended(pod, node string, phase corev1.PodPhase) types.UID {
	c.t.Helper()
	uid := c.pod(pod, node)
	_, err := c.CoreV1().Pods(c.namespace).Patch(c.ctx, pod, types.MergePatchType,
		fmt.Appendf(nil, `{"status":{"phase":%q}}`, phase), metav1.PatchOptions{}, "status")
	require.NoError(c.t, err)
	return uid
}

// rows are what the policy lets pass and what it refuses.
func rows() []row {
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
	all := uidsOf("etcd-main-1", "etcd-main-1-x", "etcd-main-x-1", "etcd-mainx1", "my-etcd-main-1")
	annotated := func(key, value string) func(*coordinationv1.Lease) {
		return func(l *coordinationv1.Lease) { l.Annotations[key] = value }
	}
	spec := func(holder *string, transitions *int32) func(*coordinationv1.Lease) {
		return func(l *coordinationv1.Lease) { l.Spec.HolderIdentity, l.Spec.LeaseTransitions = holder, transitions }
	}
	holder, epoch := new("etcd-main-2_0b5e"), new(int32(7))
	const passes, refused = "", "which etcd-main-2 has had under way since 2026-11-29T12:00:00Z"
	return []row{
		{"an administrator deletes a pod that is needed", admin, deletes, "etcd-main-1", nil, refused},
		{"by name and UID", admin, deletesThisOne, "etcd-main-1", nil, refused},
		{"by force", admin, deletesByForce, "etcd-main-1", nil, refused},
		{"as a collection", admin, deletesACollection, "etcd-main-1", nil, refused},
		{"a drain evicts it", admin, evicts, "etcd-main-1", nil, refused},
		{"another one that is needed", admin, deletes, "etcd-main-2", nil, refused},
		{"another one is evicted", admin, evicts, "etcd-main-2", nil, refused},
		{"the last on the list", admin, deletes, "etcd-main-2",
			lists(uidsOf("etcd-main-1", "etcd-main-2")), refused},
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
			lists(map[string]types.UID{"etcd-main-1": "before", "etcd-main-2": uidOf("etcd-main-2")}), passes},
		{"an eviction goes by the name alone", admin, evicts, "etcd-main-1",
			lists(map[string]types.UID{"etcd-main-1": "before"}), refused},
		{"the UID of another pod", admin, deletes, "etcd-main-1",
			lists(map[string]types.UID{"etcd-main-1": "before", "etcd-main-2": uidOf("etcd-main-1")}), passes},
		{"a UID that begins like it", admin, deletes, "etcd-main-1",
			lists(map[string]types.UID{"etcd-main-1": uidOf("etcd-main-1") + "0"}), passes},

		{"a name that begins like one on the list", admin, deletes, "etcd-main-11", nil, passes},
		{"its eviction", admin, evicts, "etcd-main-11", nil, passes},
		{"a name with which one on the list begins", admin, evicts, "etcd-main-1",
			lists(uidsOf("etcd-main-11")), passes},
		{"a name that ends like one on the list", admin, deletes, "my-etcd-main-1", nil, passes},
		{"its eviction, too", admin, evicts, "my-etcd-main-1", nil, passes},
		{"a name with which one on the list ends", admin, evicts, "etcd-main-1",
			lists(uidsOf("my-etcd-main-1")), passes},
		{"a pod that is called like a word of the list", admin, evicts, "during", nil, passes},
		{"like another", admin, evicts, "pods", nil, passes},
		{"a pod of no StatefulSet", admin, deletes, "my-etcd-main-1", lists(all), passes},
		{"another with a name of that kind", admin, evicts, "etcd-main-1-x", lists(all), passes},
		{"one of a StatefulSet with a longer name", admin, evicts, "etcd-main-x-1", lists(all), passes},
		{"one whose name goes on without a hyphen", admin, evicts, "etcd-mainx1", lists(all), passes},

		{"a coordinator outside of the pods", admin, deletes, "etcd-main-1", spec(new("outside_Q7"), epoch),
			"which outside_Q7 has had under way since"},
		{"nobody is needed", admin, deletes, "etcd-main-1", text(`{"epoch":7}`), passes},
		{"the holder has been released", admin, deletes, "etcd-main-1", spec(new(""), epoch), passes},
		{"there was none", admin, evicts, "etcd-main-1", spec(nil, epoch), passes},
		{"somebody has taken over and has written no list of its own", admin, deletes, "etcd-main-1",
			spec(new("etcd-main-1_77aa"), new(int32(8))), passes},
		{"an epoch that begins like it", admin, evicts, "etcd-main-1", spec(holder, new(int32(70))), passes},
		{"an epoch with which it begins", admin, evicts, "etcd-main-1", text(needed(77, uidsOf("etcd-main-1"))),
			passes},
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
		{"nor that of one with a name of the same length", admin, deletes, "etcd-main-1",
			func(l *coordinationv1.Lease) { l.Name = "quorate-etcd-mail" }, passes},
		{"a Lease that is not called like one of Quorate's", admin, deletes, "etcd-main-1",
			func(l *coordinationv1.Lease) { l.Name = "etcd-main" }, passes},
		{"the list is in another namespace", admin, deletes, "etcd-main-1",
			func(l *coordinationv1.Lease) { l.Namespace = metav1.NamespaceDefault }, passes},
	}
}

func TestWhatThePolicyRefuses(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	for _, q := range prepare(ctx, t, "garden") {
		t.Run(q.name, func(t *testing.T) { require.NoError(t, q.ask()) })
	}

	c, other := newCluster(t, shared, "beds"), newCluster(t, shared, "another")
	onList := map[string]types.UID{"etcd-main-1": c.pod("etcd-main-1", "node-of-garden")}
	twin := other.pod("etcd-main-1", "node-of-garden")
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
		for _, pod := range []string{"etcd-main-0", "etcd-events-0", "etcd-events-1"} {
			c.pod(pod, "node-of-garden")
		}
		c.put(c.record("etcd-main", onList))
		c.write(c.record("etcd-events", map[string]types.UID{"etcd-events-1": "any"}))
		for pod, denied := range map[string]bool{"etcd-main-0": false, "etcd-main-1": true, "etcd-events-0": false,
			"etcd-events-1": true} {
			require.Equal(t, denied, apierrors.IsForbidden(evicts(c, c, pod)), pod)
		}
	})
}

// Each clause of the policy is taken away in turn. Then something passes that did not, or something is refused that
// passed.
func TestEveryMutantOfThePolicyOfTheQuorumGuardIsCaught(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	questions := prepare(ctx, t, "mutated")
	admission := questions[0].in.AdmissionregistrationV1()
	policy, err := admission.ValidatingAdmissionPolicies().Get(ctx, policyName, metav1.GetOptions{})
	require.NoError(t, err)
	binding, err := admission.ValidatingAdmissionPolicyBindings().Get(ctx, policyName, metav1.GetOptions{})
	require.NoError(t, err)
	shipped := mutant{policy: policy.Spec, binding: binding.Spec}
	set := func(ctx context.Context, m mutant) {
		policy, err := admission.ValidatingAdmissionPolicies().Get(ctx, policyName, metav1.GetOptions{})
		require.NoError(t, err)
		policy.Spec = m.policy
		_, err = admission.ValidatingAdmissionPolicies().Update(ctx, policy, metav1.UpdateOptions{})
		require.NoError(t, err)
		binding, err := admission.ValidatingAdmissionPolicyBindings().Get(ctx, policyName, metav1.GetOptions{})
		require.NoError(t, err)
		binding.Spec = m.binding
		_, err = admission.ValidatingAdmissionPolicyBindings().Update(ctx, binding, metav1.UpdateOptions{})
		require.NoError(t, err)
	}
	t.Cleanup(func() { set(context.Background(), shipped) })
	// other is the first one that is answered otherwise than by the policy as it is shipped.
	other := func() string {
		for _, q := range questions {
			if q.ask() != nil {
				return q.name
			}
		}
		return ""
	}
	for _, m := range mutants(t, shipped) {
		t.Run(m.name, func(t *testing.T) {
			set(ctx, m)
			caught := ""
			// The API server hears of a new policy a little later.
			require.Eventually(t, func() bool { caught = other(); return caught != "" }, 30*time.Second,
				100*time.Millisecond, "nothing is allowed or refused otherwise")
			t.Logf("caught by the API server: %s", caught)
			set(ctx, shipped)
			require.Eventually(t, func() bool { return other() == "" }, 30*time.Second, 100*time.Millisecond)
		})
	}
}

// mutant is the policy and its binding without a clause.
type mutant struct {
	name    string
	policy  admissionregistrationv1.ValidatingAdmissionPolicySpec
	binding admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec
}

func mutants(t *testing.T, shipped mutant) (all []mutant) {
	t.Helper()
	clauses, err := harness.PolicyMutants(&shipped.policy)
	require.NoError(t, err)
	for _, m := range clauses {
		all = append(all, mutant{m.Name, *m.Spec, shipped.binding})
	}
	// What makes sure that a whole name, a whole UID and a whole number is compared.
	for _, tc := range []struct{ name, variable, right, wrong string }{
		{"the quotation mark before a name", "listed", `'"%s":`, `'%s":`},
		{"the quotation mark after a UID", "listed", `uid + '"'`, `uid`},
		{"the comma after the epoch", "counts", `%d,'`, `%d'`},
		{"the hyphen before an ordinal", "own", `variables.statefulSet + '-'`, `variables.statefulSet`},
		{"where an ordinal begins", "own", `^[0-9]+`, `[0-9]+`},
		{"where an ordinal ends", "own", `[0-9]+$`, `[0-9]+`},
	} {
		policy := shipped.policy.DeepCopy()
		i := slices.IndexFunc(policy.Variables, func(v admissionregistrationv1.Variable) bool {
			return v.Name == tc.variable
		})
		require.Contains(t, policy.Variables[i].Expression, tc.right)
		policy.Variables[i].Expression = strings.ReplaceAll(policy.Variables[i].Expression, tc.right, tc.wrong)
		all = append(all, mutant{tc.name, *policy, shipped.binding})
	}
	label := shipped.binding.DeepCopy()
	label.ParamRef.Selector = &metav1.LabelSelector{}
	all = append(all, mutant{"the label of the Leases", shipped.policy, *label})
	// Each of the two lets everything pass where there is no Lease.
	missing, failing := shipped.binding.DeepCopy(), shipped.policy.DeepCopy()
	missing.ParamRef.ParameterNotFoundAction = new(admissionregistrationv1.DenyAction)
	failing.FailurePolicy = new(admissionregistrationv1.Fail)
	return append(all, mutant{"that everything passes without a Lease", *failing, *missing})
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
