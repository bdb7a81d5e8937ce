package scenarios

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"

	"github.com/quorate/quorate/test/harness"
	"github.com/quorate/quorate/test/harness/build"
	"github.com/quorate/quorate/test/harness/objects"
)

// What the Helm chart renders is kept by test/chart. A real API server takes it, and its authorizer grants what the
// chart promises.
func TestARealAPIServerTakesTheChartsObjectsAndGrantsNoMore(t *testing.T) {
	t.Parallel()
	env := environment(t, harness.Loopback)
	ctx, cancel := context.WithTimeout(t.Context(), scenarioTimeout)
	defer cancel()
	text, err := os.ReadFile("../chart/testdata/everything.yaml")
	require.NoError(t, err)
	const set = "etcd-charted" // No other scenario has a StatefulSet of this name.
	renamed := strings.NewReplacer("etcd-main", set, "garden", harness.Namespace).Replace(string(text))
	all, err := objects.Decode([]byte(renamed))
	require.NoError(t, err)
	// This control plane has no Prometheus operator. The quorum guard would guard the clusters of other scenarios as
	// well, and test/guard has it.
	all = slices.DeleteFunc(all, func(o *unstructured.Unstructured) bool {
		return strings.HasPrefix(o.GetAPIVersion(), "monitoring.coreos.com/") || o.GetName() == "quorate-quorum-guard"
	})
	require.Len(t, all, 14)
	require.NoError(t, objects.Create(ctx, env.Plane.AdminConfig(), harness.Namespace, all...))
	defer func() {
		require.NoError(t, objects.Delete(context.WithoutCancel(ctx), env.Plane.AdminConfig(), harness.Namespace,
			all...))
	}()

	sidecar := "system:serviceaccount:" + harness.Namespace + ":etcd-account"
	for _, tc := range []struct {
		who, group string
		may        bool
		what       authorizationv1.ResourceAttributes
	}{
		{sidecar, "", true, authorizationv1.ResourceAttributes{Verb: "delete", Resource: "pods", Name: set + "-2"}},
		{sidecar, "", false, authorizationv1.ResourceAttributes{Verb: "delete", Resource: "pods", Name: set + "-3"}},
		{sidecar, "", false, authorizationv1.ResourceAttributes{Verb: "delete", Resource: "pods", Name: "another"}},
		{sidecar, "", true, authorizationv1.ResourceAttributes{Verb: "get", Resource: "nodes"}},
		{sidecar, "", false, authorizationv1.ResourceAttributes{Verb: "get", Resource: "secrets"}},
		{"anne", "oncall", true, authorizationv1.ResourceAttributes{Verb: "patch", Group: "coordination.k8s.io",
			Resource: "leases", Name: "quorate-" + set}},
		{"anne", "oncall", true, authorizationv1.ResourceAttributes{Verb: "list", Resource: "pods"}},
		{"sam", "support", true, authorizationv1.ResourceAttributes{Verb: "list", Resource: "pods"}},
		{"sam", "support", false, authorizationv1.ResourceAttributes{Verb: "patch", Group: "coordination.k8s.io",
			Resource: "leases", Name: "quorate-" + set}},
	} {
		tc.what.Namespace = harness.Namespace
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: tc.who,
			Groups: []string{tc.group, "system:authenticated"}, ResourceAttributes: &tc.what}}
		answer, err := env.Client.AuthorizationV1().SubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
		require.NoError(t, err)
		require.Equal(t, tc.may, answer.Status.Allowed, "%s: %s %s %s", tc.who, tc.what.Verb, tc.what.Resource,
			tc.what.Name)
	}
}

// The real Helm goes from an older version of the chart to this one and back, and takes it off again. What the pods
// rest on is never made anew meanwhile: the tokens of a ServiceAccount end with it, and without a budget a drain may
// take several pods.
func TestTheChartIsUpgradedRolledBackAndUninstalled(t *testing.T) {
	t.Parallel()
	env := environment(t, harness.Loopback)
	ctx, cancel := context.WithTimeout(t.Context(), scenarioTimeout)
	defer cancel()
	binaries, err := build.Some(ctx, say, build.Helm, build.Kubectl)
	require.NoError(t, err)
	const set, release = "etcd-released", "released" // No other scenario has these names.
	run := func(program string, args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(ctx, program, append(args, "--namespace="+harness.Namespace,
			"--kubeconfig="+env.Plane.KubeconfigPath())...)
		cmd.Env = append(os.Environ(), "HOME="+t.TempDir())
		out, err := cmd.Output()
		require.NoError(t, err, "%q: %s", cmd.Args, stderrOf(err))
		return string(out)
	}
	helm := func(args ...string) { t.Helper(); run(binaries.Helm, args...) }
	// made is what there is of the release, with the UIDs.
	made := func() map[string]string {
		t.Helper()
		var found struct {
			Items []struct {
				Kind     string
				Metadata struct{ Name, UID string }
			}
		}
		require.NoError(t, json.Unmarshal([]byte(run(binaries.Kubectl, "get", "--output=json",
			"--selector=app.kubernetes.io/instance="+release, "serviceaccounts,roles,rolebindings,clusterroles,"+
				"clusterrolebindings,poddisruptionbudgets,networkpolicies,configmaps,validatingadmissionpolicies,"+
				"validatingadmissionpolicybindings")), &found))
		uids := map[string]string{}
		for _, o := range found.Items {
			uids[o.Kind+" "+o.Metadata.Name] = o.Metadata.UID
		}
		manifest, err := objects.Decode([]byte(run(binaries.Helm, "get", "manifest", release)))
		require.NoError(t, err)
		require.Len(t, uids, len(manifest), "what Helm has installed, and what there is of it: %v", uids)
		return uids
	}
	grants := func(pod string) bool {
		t.Helper()
		return strings.Contains(run(binaries.Kubectl, "get", "role", set+"-quorate", "--output=yaml"), "- "+pod+"\n")
	}
	values := func(text string) string {
		file := filepath.Join(t.TempDir(), "values.yaml")
		require.NoError(t, os.WriteFile(file, []byte("statefulSet: "+set+"\n"+text), 0o600))
		return "--values=" + file
	}
	const budget = "podDisruptionBudget: {create: true, matchLabels: {app: etcd-released}}\n"
	least := values("members: 3\n" + budget)
	most := values("members: 5\nreadNodes: true\npromoteCurrentRevision: true\nleastPrivilege: {enabled: true}\n" +
		"people: {create: true, viewers: [support], operators: [oncall]}\ndashboard: {create: true}\n" +
		"networkPolicy: {create: true, matchLabels: {app: etcd-released}}\n" + budget)

	helm("install", release, olderChart(t), least)
	defer func() { // It is gone already where all went well.
		_ = exec.CommandContext(context.WithoutCancel(ctx), binaries.Helm, "uninstall", release, "--ignore-not-found",
			"--namespace="+harness.Namespace, "--kubeconfig="+env.Plane.KubeconfigPath()).Run()
	}()
	first := made()
	require.ElementsMatch(t, []string{"ServiceAccount " + set, "Role " + set + "-quorate",
		"RoleBinding " + set + "-quorate", "PodDisruptionBudget " + set}, slices.Collect(maps.Keys(first)))
	require.True(t, grants(set+"-2") && !grants(set+"-3"))
	require.False(t, grants("poddisruptionbudgets"), "the older version does not grant it")
	token, err := env.Client.CoreV1().ServiceAccounts(harness.Namespace).CreateToken(ctx, set,
		&authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	require.NoError(t, err)
	sidecar, err := kubernetes.NewForConfig(env.Plane.TokenConfig(token.Status.Token))
	require.NoError(t, err)
	leases := env.Client.CoordinationV1().Leases(harness.Namespace)
	lease, err := sidecar.CoordinationV1().Leases(harness.Namespace).Create(ctx,
		&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "quorate-" + set}}, metav1.CreateOptions{})
	require.NoError(t, err, "what Quorate makes itself")
	defer func() {
		require.NoError(t, leases.Delete(context.WithoutCancel(ctx), lease.Name, metav1.DeleteOptions{}))
	}()
	// stays checks that nothing of the first release was made anew, and that a sidecar's token is still good.
	stays := func(now map[string]string) {
		t.Helper()
		for name, uid := range first {
			require.Equal(t, uid, now[name], "%s was made anew, or is gone", name)
		}
		seen, err := sidecar.CoordinationV1().Leases(harness.Namespace).Get(ctx, lease.Name, metav1.GetOptions{})
		require.NoError(t, err)
		require.Equal(t, lease.UID, seen.UID)
	}

	helm("upgrade", release, "../../deploy/chart", most)
	upgraded := made()
	stays(upgraded)
	require.Len(t, upgraded, 14)
	require.True(t, grants(set+"-4") && grants("poddisruptionbudgets") && grants("statefulsets/status"))

	helm("rollback", release, "1")
	back := made()
	stays(back)
	require.Len(t, back, len(first), "what the upgrade had added is gone")
	require.True(t, grants(set+"-2") && !grants(set+"-3") && !grants("poddisruptionbudgets"))

	helm("upgrade", release, "../../deploy/chart", most)
	stays(made())
	helm("uninstall", release)
	left := run(binaries.Kubectl, "get", "--ignore-not-found", "--output=name",
		"--selector=app.kubernetes.io/instance="+release, strings.Join(kindsOf(upgraded), ","))
	require.Empty(t, left, "what Helm has left behind")
	_, err = leases.Get(ctx, lease.Name, metav1.GetOptions{})
	require.NoError(t, err, "the Lease is no part of the chart")

	// docs/policy.md says the same.
	page, err := os.ReadFile("../../docs/policy.md")
	require.NoError(t, err)
	var told []string
	for line := range strings.Lines(string(page)) {
		if what, how, is := strings.Cut(line, " | "); is && strings.Contains(how, "`helm uninstall`") {
			told = append(told, strings.TrimPrefix(what, "| "))
		}
	}
	require.Equal(t, []string{
		"the ServiceAccount, the Role and its binding",
		"the rights of people",
		"the cluster's policy of least privilege, and the right to read nodes",
		"the quorum guard, which is for the whole cluster", // It is not tried here: others' clusters run beside this.
		"the chart's PodDisruptionBudget, NetworkPolicy, PodMonitor, alerts and dashboard",
	}, told)
}

// kindsOf are the kinds of objects that are named like this, as kubectl takes them.
func kindsOf(named map[string]string) []string {
	kinds := map[string]bool{}
	for name := range named {
		kind, _, _ := strings.Cut(name, " ")
		kinds[strings.ToLower(kind)] = true
	}
	return slices.Sorted(maps.Keys(kinds))
}

// olderChart is a copy of the chart that has a lower version, and grants less.
func olderChart(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "quorate")
	require.NoError(t, exec.CommandContext(t.Context(), "cp", "-rL", "../../deploy/chart", dir).Run())
	edit := func(file, from, to string) {
		text, err := os.ReadFile(filepath.Join(dir, file))
		require.NoError(t, err)
		require.Regexp(t, from, string(text))
		changed := regexp.MustCompile(from).ReplaceAllString(string(text), to)
		require.NoError(t, os.WriteFile(filepath.Join(dir, file), []byte(changed), 0o600))
	}
	edit("Chart.yaml", `(?m)^version: .*`, "version: 0.0.1")
	edit("templates/role.yaml", `(?m)^- apiGroups: \["policy"\]\n(  .*\n)+`, "")
	return dir
}

// stderrOf is what a program said that has failed.
func stderrOf(err error) string {
	var exited *exec.ExitError
	if errors.As(err, &exited) {
		return string(exited.Stderr)
	}
	return ""
}
