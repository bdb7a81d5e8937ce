package harness

import (
	"testing"

	"github.com/stretchr/testify/require"

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
