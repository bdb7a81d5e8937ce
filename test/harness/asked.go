package harness

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/quorate/quorate/test/harness/apiproxy"
	"github.com/quorate/quorate/test/harness/controlplane"
)

// Renewal is the kind of a request that only keeps the record fresh, or tells news on it.
const Renewal = "renew leases"

// Beginning is how long a sidecar may read more than an idle one once it has begun to own the lock: for two minutes
// it reads live, and once more when they are over.
const Beginning = 2*time.Minute + 10*time.Second

// Renewals tells the writes of records apart: those that are a step, and those that only keep the record fresh or tell
// news. It has to see them all, in their order.
type Renewals struct {
	// last is what the last write of each record said.
	last map[string]string
}

// Kind is the request's own kind, but for a [Renewal]. Of Leases, only records may be written by whoever asks.
func (r *Renewals) Kind(q *apiproxy.Request) string {
	if !q.Is("leases", "create", "update", "patch") {
		return q.Kind()
	}
	intent, _ := q.Annotation(IntentAnnotation)
	var written struct {
		Spec struct {
			HolderIdentity   *string
			LeaseTransitions *int
		}
	}
	_ = json.Unmarshal(q.Body, &written) // What cannot be read counts as a step.
	says, err := json.Marshal([]any{written.Spec, intent})
	if err != nil {
		panic(err) // These are texts and numbers.
	}
	if r.last == nil {
		r.last = map[string]string{}
	}
	record := q.Namespace + "/" + q.Name
	before, known := r.last[record]
	r.last[record] = string(says)
	if known && before == string(says) {
		return Renewal
	}
	return q.Kind()
}

// Asked is what sidecars have asked of the API server.
type Asked struct {
	// Requests are by their kind, [Renewal] included; a watch counts when it is opened.
	Requests map[string]int
	// Bytes are those of the bodies of requests and answers, of watches too.
	Bytes int
	// InOrder has a line for each request, with the time since the beginning.
	InOrder []string
}

// Steps is how many of the requests are no renewals.
func (a Asked) Steps() (n int) {
	for _, count := range a.Requests {
		n += count
	}
	return n - a.Requests[Renewal]
}

// Asking begins to count what the cluster's sidecars ask of the API server, at the proxy before it. What is returned
// tells what they have asked since then.
func (c *Cluster) Asking() (since time.Time, asked func() Asked) {
	since = time.Now()
	before := 0
	for _, r := range c.all(time.Time{}) {
		before += r.Bytes
	}
	return since, func() Asked {
		a := Asked{Requests: map[string]int{}, Bytes: -before}
		for _, r := range c.all(time.Time{}) {
			a.Bytes += r.Bytes
		}
		var renewals Renewals
		for _, r := range c.all(since) {
			kind := r.Kind()
			if c.WritingRecord(&r.Request) {
				kind = renewals.Kind(&r.Request)
			}
			a.Requests[kind]++
			a.InOrder = append(a.InOrder, fmt.Sprintf("%7v %s %s", r.At.Sub(since).Round(time.Millisecond), r.Pod, r))
		}
		return a
	}
}

// controllerUser is the account of the StatefulSet controller.
const controllerUser = "system:serviceaccount:kube-system:statefulset-controller"

// audit are those whose requests [Cluster.Audited] counts. The sidecars of each cluster have an account of its name.
var audit = controlplane.Audit{Users: []string{controllerUser}, Groups: []string{"system:serviceaccounts:" + Namespace}}

// Audited are requests by their kind, as the API server itself counts them. A watch counts when it is opened. There are
// no bodies in an audit log, so that renewals are not told apart.
type Audited struct {
	// Sidecars are the cluster's own, Controller is the StatefulSet controller, for whichever cluster.
	Sidecars, Controller map[string]int
}

// Audited tells what has been asked of the API server since then. It needs [Options.Audit].
func (c *Cluster) Audited(since time.Time) (Audited, error) {
	events, err := c.env.Plane.Audited(since)
	return audited(events, c.Spec.Name), err
}

// audited counts the events of a cluster.
func audited(events []auditv1.Event, cluster string) Audited {
	a := Audited{Sidecars: map[string]int{}, Controller: map[string]int{}}
	for _, e := range events {
		switch e.User.Username {
		case serviceAccountUser(cluster):
			a.Sidecars[auditedKind(e)]++
		case controllerUser:
			a.Controller[auditedKind(e)]++
		}
	}
	return a
}

// auditedKind is the kind of a request as [apiproxy.Request.Kind] tells it.
func auditedKind(e auditv1.Event) string {
	if e.ObjectRef == nil {
		return ""
	}
	r := apiproxy.Request{Verb: e.Verb, Resource: e.ObjectRef.Resource, Subresource: e.ObjectRef.Subresource}
	return r.Kind()
}

// WaitCalm waits until no sidecar has asked the API server for anything for so long.
func (c *Cluster) WaitCalm(ctx context.Context, quiet time.Duration) error {
	for asked := -1; ; {
		now := len(c.all(time.Time{}))
		if now == asked {
			return nil
		}
		asked = now
		if err := Pass(ctx, quiet); err != nil {
			return fmt.Errorf("wait until the sidecars of %s ask for nothing: %w", c.Spec.Name, err)
		}
	}
}

// all are the requests of all sidecars since then, in order.
func (c *Cluster) all(since time.Time) []apiproxy.Record {
	var records []apiproxy.Record
	for _, pod := range c.Pods() {
		records = append(records, c.Requests(pod, since)...)
	}
	slices.SortFunc(records, func(a, b apiproxy.Record) int { return a.At.Compare(b.At) })
	return records
}
