package harness

import (
	"cmp"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
	admissionregistrationv1beta1 "k8s.io/api/admissionregistration/v1beta1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/kustomize/kyaml/resid"
	"sigs.k8s.io/yaml"

	"github.com/quorate/quorate/internal/record"
	"github.com/quorate/quorate/pkg/options"
	"github.com/quorate/quorate/pkg/page"
)

func TestWhatIsShippedCanBeBuiltAndIsOfOneName(t *testing.T) {
	const promote = "promote-current-revision"
	base := granted(t, "etcd-main", "base")
	promoting := append([]string{base[0], "apps/statefulsets/status patch [etcd-main]"}, base[1:]...)
	for _, tc := range []struct {
		name       string
		set        string
		folder     string
		components []string
		want       []string
	}{
		{"the base", "etcd-main", "base", nil, base},
		{"the base, promoting the revision: one rule more, of the same StatefulSet", "etcd-main", "base",
			[]string{promote}, promoting},
		{"the base, reading nodes: one rule more, of the whole cluster", "etcd-main", "base", []string{"nodes"},
			append(slices.Clone(base), "/nodes get,watch []")},
		{"the base, with the policy that limits the account more: the same rules", "etcd-main", "base",
			[]string{"least-privilege"}, base},
		{"the base, with the policy that guards quorum: the same rules", "etcd-main", "base", []string{"quorum-guard"},
			base},
		{"for etcd-druid: the same, promoting the revision", "etcd-main", "druid/access", nil, promoting},
		{"the example for another StatefulSet: the base in every word, but for the name", "etcd-events",
			"overlays/etcd-events", nil, renamed(base)},
		{"that one promoting, too: the component takes the name that it finds", "etcd-events", "overlays/etcd-events",
			[]string{promote}, renamed(promoting)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			require.Equal(t, tc.want, granted(t, tc.set, tc.folder, tc.components...))
		})
	}
}

func TestThePolicyForDruidCanBeServedAsBetaToo(t *testing.T) {
	built, err := manifests("druid")
	require.NoError(t, err)
	beta := map[string]any{
		"MutatingAdmissionPolicy":        &admissionregistrationv1beta1.MutatingAdmissionPolicy{},
		"MutatingAdmissionPolicyBinding": &admissionregistrationv1beta1.MutatingAdmissionPolicyBinding{},
	}
	var kinds []string
	for _, resource := range built.Resources() {
		kinds = append(kinds, resource.GetKind())
		require.Equal(t, "quorate-druid", resource.GetName())
		if into, ok := beta[resource.GetKind()]; ok {
			data, err := resource.AsYAML()
			require.NoError(t, err)
			require.NoError(t, yaml.UnmarshalStrict(data, into))
		}
	}
	require.ElementsMatch(t, []string{"MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding",
		"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}, kinds)
}

func TestTheShippedRoleNamesTheLeaseAndThePodsOfItsStatefulSet(t *testing.T) {
	shipped, err := access("etcd-main")
	require.NoError(t, err)
	role := shipped.role
	var pods []string
	for n := range maxReplicas {
		pods = append(pods, fmt.Sprintf("etcd-main-%d", n))
	}
	want := map[string][]string{
		"apps/statefulsets": {"etcd-main"}, "/pods": pods, "/pods/eviction": pods,
		"coordination.k8s.io/leases": {record.Name("etcd-main")}, "policy/poddisruptionbudgets": {"etcd-main"},
	}
	named := map[string][]string{}
	for _, rule := range role.Rules {
		for _, verb := range rule.Verbs {
			require.NotContains(t, []string{"*", "update", "deletecollection", "escalate", "bind", "impersonate"}, verb)
		}
		if len(rule.ResourceNames) > 0 {
			named[rule.APIGroups[0]+"/"+rule.Resources[0]] = rule.ResourceNames
			continue
		}
		// What no name can be pinned to: a list, a name that does not exist yet.
		for _, verb := range rule.Verbs {
			require.Contains(t, []string{"list pods", "watch pods", "create leases", "create events", "patch events"},
				verb+" "+rule.Resources[0])
		}
	}
	require.Equal(t, want, named)
}

func TestOperatorsCannotTouchPodsAndOnlyOneLease(t *testing.T) {
	viewer, operator, err := operators("etcd-main")
	require.NoError(t, err)
	require.Equal(t, []string{
		"apps/statefulsets get,list,watch []",
		"/pods get,list,watch []",
		"coordination.k8s.io/leases get,list,watch []",
		"policy/poddisruptionbudgets list []",
		"/persistentvolumeclaims list []",
		"/serviceaccounts get []",
	}, lines(viewer.Rules))
	require.Equal(t, []string{
		"coordination.k8s.io/leases get,patch [" + record.Name("etcd-main") + "]",
		"coordination.k8s.io/leases create []",
		"authorization.k8s.io/localsubjectaccessreviews create []", // It asks, and changes nothing.
	}, lines(operator.Rules))
}

// patched is the shipped patch, and a StatefulSet like etcd-druid's, as those of the harness are, with it.
func patched(t *testing.T) (patch, patched appsv1.StatefulSet) {
	t.Helper()
	documents, err := documentsOf("sidecar-patch.yaml")
	require.NoError(t, err)
	require.Len(t, documents, 1)
	require.NoError(t, yaml.UnmarshalStrict([]byte(documents[0]), &patch))
	original, err := yaml.Marshal((&Env{mode: Namespaces, ports: druidPorts}).statefulSet(
		Spec{Name: "etcd-main", PlainText: true, Replicas: 1}.complete()))
	require.NoError(t, err)
	before, err := yaml.YAMLToJSON(original)
	require.NoError(t, err)
	change, err := yaml.YAMLToJSON([]byte(documents[0]))
	require.NoError(t, err)
	after, err := strategicpatch.StrategicMergePatch(before, change, appsv1.StatefulSet{})
	require.NoError(t, err)
	require.NoError(t, yaml.UnmarshalStrict(after, &patched))
	return patch, patched
}

func TestTheShippedMonitorScrapesTheSidecarOfThePatch(t *testing.T) {
	built, err := manifests("monitoring")
	require.NoError(t, err)
	found := built.GetMatchingResourcesByAnyId(func(id resid.ResId) bool { return id.Kind == "PodMonitor" })
	require.Len(t, found, 1)
	text, err := found[0].AsYAML()
	require.NoError(t, err)
	// Strict, so that a name that is spelled otherwise is found.
	var monitor struct {
		metav1.TypeMeta   `json:",inline"`
		metav1.ObjectMeta `json:"metadata"`
		Spec              struct {
			Selector            *metav1.LabelSelector `json:"selector"`
			PodMetricsEndpoints []struct {
				Port              string              `json:"port"`
				Path              string              `json:"path"`
				MetricRelabelings []map[string]string `json:"metricRelabelings"`
			} `json:"podMetricsEndpoints"`
		} `json:"spec"`
	}
	require.NoError(t, yaml.UnmarshalStrict(text, &monitor))
	require.Equal(t, "monitoring.coreos.com/v1", monitor.APIVersion)
	// It is about its own namespace, which is the operator's to choose.
	require.Empty(t, monitor.Namespace)
	selector, err := metav1.LabelSelectorAsSelector(monitor.Spec.Selector)
	require.NoError(t, err)
	_, set := patched(t)
	require.True(t, selector.Matches(labels.Set(set.Spec.Template.Labels)), "%s", selector)
	require.Len(t, monitor.Spec.PodMetricsEndpoints, 1)
	scraped := monitor.Spec.PodMetricsEndpoints[0]
	var ports []string
	for _, c := range set.Spec.Template.Spec.Containers {
		for _, p := range c.Ports {
			if p.Name == scraped.Port {
				ports = append(ports, c.Name)
			}
		}
	}
	require.Equal(t, []string{"quorate"}, ports, "which container has the port")
	answer := httptest.NewRecorder()
	page.Handler(page.Config{Gatherer: prometheus.NewRegistry()}).
		ServeHTTP(answer, httptest.NewRequest(http.MethodGet, scraped.Path, nil))
	require.Equal(t, http.StatusOK, answer.Code, scraped.Path)
}

func TestTheSidecarOfThePatchKnowsItsFlagsAndJoinsThePod(t *testing.T) {
	patch, set := patched(t)
	require.Equal(t, "etcd-main", patch.Name)
	var names []string
	for _, c := range set.Spec.Template.Spec.Containers {
		names = append(names, c.Name)
	}
	require.ElementsMatch(t, []string{"etcd", "backup-restore", "quorate"}, names)

	container := patch.Spec.Template.Spec.Containers[0]
	require.Equal(t, "sidecar", container.Args[0])
	o, flags := options.NewSidecar(), pflag.NewFlagSet("sidecar", pflag.ContinueOnError)
	o.AddFlags(flags)
	require.NoError(t, flags.Parse(container.Args[1:]))
	fields := map[string]string{"metadata.name": "etcd-main-0", "metadata.namespace": "garden"}
	require.NoError(t, o.Complete(func(name string) string {
		for _, v := range container.Env {
			if v.Name == name {
				return fields[v.ValueFrom.FieldRef.FieldPath]
			}
		}
		return ""
	}))
	require.Equal(t, "etcd-main", o.Kubernetes.StatefulSet)
	require.Equal(t, "garden", o.Kubernetes.Namespace)
	require.Equal(t, "etcd-main-0", o.Kubernetes.PodName)
	// What it serves is found by the port's name.
	require.Len(t, container.Ports, 1)
	require.Equal(t, "quorate", container.Ports[0].Name)
	require.Equal(t, fmt.Sprintf(":%d", container.Ports[0].ContainerPort), o.ListenAddress)
	require.Equal(t, corev1.SeccompProfileTypeRuntimeDefault, container.SecurityContext.SeccompProfile.Type)
	// Every file that a flag names is in one of the volumes.
	for _, file := range []string{o.Etcd.CACert, o.Etcd.Cert, o.Etcd.Key} {
		mounted := false
		for _, m := range container.VolumeMounts {
			mounted = mounted || filepath.Dir(file) == m.MountPath
		}
		require.True(t, mounted, "%s is in no volume", file)
	}
}

// The account may remove the cluster's pods, so its token is for Quorate alone.
func TestOnlyTheSidecarOfThePatchHasTheToken(t *testing.T) {
	_, set := patched(t)
	pod := set.Spec.Template.Spec
	require.False(t, *cmp.Or(pod.AutomountServiceAccountToken, ptr.To(true)), "Kubernetes gives it to every container")
	var volume *corev1.Volume
	for i, v := range pod.Volumes {
		if v.Name == "quorate-token" {
			volume = &pod.Volumes[i]
		}
	}
	require.NotNil(t, volume)
	require.NotNil(t, volume.Projected)
	have := map[string][]string{}
	for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
		for _, m := range c.VolumeMounts {
			if m.Name == volume.Name {
				have[c.Name] = append(have[c.Name], m.MountPath)
			}
		}
	}
	require.Equal(t, map[string][]string{"quorate": {"/var/run/secrets/kubernetes.io/serviceaccount"}}, have)
}

// granted are the rules of what is built, one a line, after everything else about it has
// been checked against the StatefulSet's name.
func granted(t *testing.T, set, folder string, components ...string) []string {
	t.Helper()
	m, err := manifests(folder, components...)
	require.NoError(t, err)
	text, err := m.AsYaml()
	require.NoError(t, err)
	r, err := parseAccess(string(text))
	require.NoError(t, err)
	role, binding := r.role, r.binding
	require.Equal(t, set+"-quorate", role.Name)
	require.Equal(t, set+"-quorate", binding.Name)
	require.Equal(t, rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name}, binding.RoleRef)
	require.Equal(t, []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: set}}, binding.Subjects)
	require.Empty(t, role.Namespace+binding.Namespace, "the namespace is the operator's to choose")
	if r.account != nil {
		require.Equal(t, set, r.account.Name)
	}
	require.Equal(t, folder == "druid/access", r.account == nil, "druid makes the account, and nobody else does")
	if set != shippedName {
		require.NotContains(t, string(text), shippedName)
	}
	if r.clusterRole != nil {
		const name = "garden-etcd-main-quorate-nodes"
		require.Equal(t, []string{name, name}, []string{r.clusterRole.Name, r.clusterBinding.Name})
		require.Equal(t, rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
			r.clusterBinding.RoleRef)
		require.Equal(t, []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: set, Namespace: shippedNamespace}},
			r.clusterBinding.Subjects)
	}
	if r.policy != nil {
		name := "garden-etcd-main-quorate"
		if slices.Contains(components, "quorum-guard") {
			name = guardName // It is for the whole cluster.
		}
		require.Equal(t, []string{name, name, name},
			[]string{r.policy.Name, r.policyBinding.Name, r.policyBinding.Spec.PolicyName})
	}
	return lines(r.rules())
}

func lines(rules []rbacv1.PolicyRule) []string {
	var out []string
	for _, r := range rules {
		out = append(out, fmt.Sprintf("%s/%s %s %v", r.APIGroups[0], strings.Join(r.Resources, ","),
			strings.Join(r.Verbs, ","), r.ResourceNames))
	}
	return out
}

func renamed(rules []string) []string {
	return strings.Split(strings.ReplaceAll(strings.Join(rules, "\n"), "etcd-main", "etcd-events"), "\n")
}
