package harness

import (
	"testing"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/quorate/quorate/test/harness/apiproxy"
)

func TestAWriteThatSaysNothingNewKeepsARecordFresh(t *testing.T) {
	patch := func(record, body string) *apiproxy.Request {
		return &apiproxy.Request{Verb: "patch", Resource: "leases", Namespace: "n", Name: record, Body: []byte(body)}
	}
	claim := `{"metadata":{"annotations":{}},"spec":{"holderIdentity":"a","leaseTransitions":2,"renewTime":"1"}}`
	renew := `{"metadata":{"annotations":{"quorate.dev/status":"x"}},` +
		`"spec":{"holderIdentity":"a","leaseTransitions":2,"renewTime":"2"}}`
	intent := `{"metadata":{"annotations":{"quorate.dev/intent":"{}"}},` +
		`"spec":{"holderIdentity":"a","leaseTransitions":2}}`
	var r Renewals
	for _, step := range []struct {
		request *apiproxy.Request
		want    string
	}{
		{&apiproxy.Request{Verb: "get", Resource: "leases", Name: "one"}, "get leases"},
		{patch("one", claim), "patch leases"},
		{patch("one", renew), Renewal},
		{patch("other", renew), "patch leases"},
		{patch("one", intent), "patch leases"},
		{patch("one", intent), Renewal},
		{patch("one", renew), "patch leases"},
		{patch("one", `{"spec":{"holderIdentity":null,"leaseTransitions":2}}`), "patch leases"},
		{patch("other", renew), Renewal},
		{&apiproxy.Request{Verb: "create", Resource: "pods", Subresource: "eviction"}, "create pods/eviction"},
	} {
		require.Equal(t, step.want, r.Kind(step.request), "%s %s", step.request, step.request.Body)
	}
}

func TestWhatTheAuditLogHasIsCountedByWhoseAccountItWas(t *testing.T) {
	event := func(user, verb string, what *auditv1.ObjectReference) auditv1.Event {
		return auditv1.Event{User: authenticationv1.UserInfo{Username: user}, Verb: verb, ObjectRef: what}
	}
	pods := &auditv1.ObjectReference{Resource: "pods"}
	sidecar := "system:serviceaccount:" + Namespace + ":main"
	got := audited([]auditv1.Event{
		event(sidecar, "list", pods), event(sidecar, "list", pods),
		event(sidecar, "create", &auditv1.ObjectReference{Resource: "pods", Subresource: "eviction"}),
		event(sidecar, "get", nil), // It is about no resource.
		event(sidecar+"-2", "list", pods),
		event("system:serviceaccount:kube-system:main", "list", pods),
		event("system:serviceaccount:kube-system:statefulset-controller", "create", pods),
	}, "main")
	require.Equal(t, Audited{Sidecars: map[string]int{"list pods": 2, "create pods/eviction": 1, "": 1},
		Controller: map[string]int{"create pods": 1}}, got)
}
