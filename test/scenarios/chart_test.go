package scenarios

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/quorate/quorate/test/harness"
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
