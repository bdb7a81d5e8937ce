package apiproxy

import (
	"context"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	coordinationv1 "k8s.io/api/coordination/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// apiServer stands for the API server: it writes down what it is asked and answers with
// a Lease.
type apiServer struct {
	*httptest.Server
	mu    sync.Mutex
	asked []string
	// events is what a watch delivers.
	events chan string
}

func newAPIServer(t *testing.T, change ...func(*httptest.Server)) *apiServer {
	t.Helper()
	s := &apiServer{events: make(chan string)}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.asked = append(s.asked, r.Method+" "+r.URL.Path+" "+r.Header.Get("Authorization"))
		s.mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Query().Get("watch") == "" {
			_, _ = io.WriteString(w,
				`{"kind":"Lease","apiVersion":"coordination.k8s.io/v1","metadata":{"name":"quorate-main"}}`)
			return
		}
		for {
			_ = http.NewResponseController(w).Flush()
			select {
			case event, ok := <-s.events:
				if !ok {
					return
				}
				_, _ = io.WriteString(w, event)
			case <-r.Context().Done():
				return
			}
		}
	}))
	s.EnableHTTP2 = true
	for _, c := range change {
		c(s.Server)
	}
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

func (s *apiServer) requests() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.asked...)
}

// token is what the API server issues to a pod, as far as the proxy reads it.
func token(pod, uid string) string {
	claims := fmt.Sprintf(
		`{"kubernetes.io":{"namespace":"default","pod":{"name":%q,"uid":%q},"serviceaccount":{"name":"main"}}}`, pod,
		uid)
	return "e30." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".c2ln"
}

func start(t *testing.T) (context.Context, *apiServer, *Proxy) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	s := newAPIServer(t)
	p, err := Start(Config{
		BindAddress: "127.0.0.1", Upstream: s.URL,
		UpstreamCA: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}),
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close(context.WithoutCancel(ctx))) })
	return ctx, s, p
}

// sidecar is a client with the token of a pod.
func sidecar(t *testing.T, p *Proxy, pod string) kubernetes.Interface {
	t.Helper()
	config := &rest.Config{
		Host: p.URL(), BearerToken: token(pod, "uid-of-"+pod), QPS: -1,
		TLSClientConfig: rest.TLSClientConfig{CAData: p.CAPEM()},
		ContentConfig: rest.ContentConfig{ContentType: "application/vnd.kubernetes.protobuf",
			AcceptContentTypes: "application/json"},
	}
	connections, err := rest.HTTPClientFor(config)
	require.NoError(t, err)
	t.Cleanup(func() { utilnet.CloseIdleConnectionsFor(connections.Transport) })
	client, err := kubernetes.NewForConfigAndClient(config, connections)
	require.NoError(t, err)
	return client
}

func getLease(ctx context.Context, client kubernetes.Interface) error {
	_, err := client.CoordinationV1().Leases("default").Get(ctx, "quorate-main", metav1.GetOptions{})
	return err
}

func removePod(ctx context.Context, client kubernetes.Interface, name string) error {
	uid, version := types.UID("1"), "7"
	return client.CoreV1().Pods("default").Delete(ctx, name,
		metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &version}})
}

// inBackground runs one call of a client and hands over its error.
func inBackground(call func() error) <-chan error {
	done := make(chan error, 1)
	go func() { done <- call() }()
	return done
}

func removes(r *Request) bool { return r.Removes() }

func TestAHeldRequestGoesNowhereUntilItIsReleased(t *testing.T) {
	ctx, s, p := start(t)
	held := p.Hold(ctx, removes)
	client := sidecar(t, p, "main-1")
	done := inBackground(func() error { return removePod(ctx, client, "main-2") })

	r, err := held.Reached(ctx)
	require.NoError(t, err)
	require.Equal(t, "main-1 asks to delete pods main-2", r.String())
	require.Equal(t, "7", *r.Preconditions().ResourceVersion)
	require.NoError(t, getLease(ctx, client), "other requests are not held up")
	require.Len(t, s.requests(), 1)
	require.True(t, p.Records(removes)[0].Open())

	status, err := held.Release(ctx)
	require.NoError(t, err)
	require.Equal(t, 200, status)
	require.NoError(t, <-done)
	require.Len(t, s.requests(), 2)
	require.NoError(t, removePod(ctx, client, "main-2"), "one hold catches one request")
}

func TestAnAnswerCanBeKeptBackChangedOrLost(t *testing.T) {
	for _, c := range []struct {
		name   string
		decide func(*Held)
		check  func(*testing.T, error)
	}{
		{"given", (*Held).Answer, func(t *testing.T, err error) { require.NoError(t, err) }},
		{"lost", (*Held).Drop, func(t *testing.T, err error) { require.ErrorContains(t, err, "stream error") }},
		{"replaced by an error", func(h *Held) { h.Refuse(503) }, func(t *testing.T, err error) {
			require.ErrorContains(t, err, "refused by the harness")
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, s, p := start(t)
			held := p.Hold(ctx, removes)
			client := sidecar(t, p, "main-1")
			done := inBackground(func() error { return removePod(ctx, client, "main-2") })
			status, err := held.Forward(ctx)
			require.NoError(t, err)
			require.Equal(t, 200, status)
			require.Len(t, s.requests(), 1, "the API server has it")
			require.Empty(t, done, "the client has no answer yet")
			_, err = held.Forward(ctx)
			require.ErrorContains(t, err, "already")
			c.decide(held)
			c.check(t, <-done)
			require.Len(t, s.requests(), 1)
			record := p.Records(removes)[0]
			require.Equal(t, 200, record.Verdict, "whatever the client was told")
			require.False(t, record.Forwarded.Before(record.At))
		})
	}
}

func TestARequestOutlivesItsClient(t *testing.T) {
	ctx, s, p := start(t)
	held := p.Hold(ctx, removes)
	dying, kill := context.WithCancel(ctx)
	client := sidecar(t, p, "main-1")
	done := inBackground(func() error { return removePod(dying, client, "main-2") })
	_, err := held.Reached(ctx)
	require.NoError(t, err)
	kill()
	require.Error(t, <-done)
	require.NoError(t, held.Gone(ctx))
	require.Empty(t, s.requests())
	require.Zero(t, p.Records(removes)[0].Forwarded)
	status, err := held.Forward(ctx)
	require.NoError(t, err)
	require.Equal(t, 200, status)
	require.Len(t, s.requests(), 1, "it arrives all the same")
	held.Drop()
}

func TestAHoldEndsWithItsContext(t *testing.T) {
	ctx, s, p := start(t)
	short, cancel := context.WithCancel(ctx)
	unused, caught := p.Hold(short, func(*Request) bool { return false }), p.Hold(short, removes)
	client := sidecar(t, p, "main-1")
	done := inBackground(func() error { return removePod(ctx, client, "main-2") })
	_, err := caught.Reached(ctx)
	require.NoError(t, err)
	cancel()
	require.Error(t, <-done, "what is held is dropped")
	_, err = unused.Reached(short)
	require.ErrorIs(t, err, context.Canceled)
	require.Empty(t, s.requests())
	require.NoError(t, removePod(ctx, client, "main-2"))
}

func TestRequestsAreRefusedUntilTheRuleIsLifted(t *testing.T) {
	for status, message := range map[int]string{500: "refused by the harness", 0: "stream error"} {
		t.Run(fmt.Sprintf("status %d", status), func(t *testing.T) {
			ctx, s, p := start(t)
			client := sidecar(t, p, "main-1")
			lift := p.Refuse(removes, status)
			require.ErrorContains(t, removePod(ctx, client, "main-2"), message)
			require.NoError(t, getLease(ctx, client), "it does not match")
			lift()
			require.NoError(t, removePod(ctx, client, "main-2"))
			require.Len(t, s.requests(), 2)
			require.Equal(t, status, p.Records(removes)[0].Status)
		})
	}
}

func TestAWatchIsPassedOnEventByEventAndIsOpenUntilItEnds(t *testing.T) {
	ctx, s, p := start(t)
	w, err := sidecar(t, p, "main-1").CoordinationV1().Leases("default").Watch(ctx, metav1.ListOptions{})
	require.NoError(t, err)
	for _, name := range []string{"a", "b"} {
		s.events <- fmt.Sprintf(
			`{"type":"ADDED","object":{"kind":"Lease","apiVersion":"coordination.k8s.io/v1","metadata":{"name":%q}}}`,
			name)
		require.Equal(t, name, (<-w.ResultChan()).Object.(*coordinationv1.Lease).Name)
	}
	records := p.Records(nil)
	require.Equal(t, map[string]int{"watch leases": 1}, Count(records))
	require.True(t, records[0].Open())
	require.Equal(t, 200, records[0].Status)
	require.NoError(t, getLease(ctx, sidecar(t, p, "main-2")))
	// Its client has its answer a moment before that is written down.
	require.Eventually(t, func() bool { p.Forget(time.Now()); return len(p.Records(nil)) == 1 }, 10*time.Second,
		time.Millisecond)
	require.Equal(t, map[string]int{"watch leases": 1}, Count(p.Records(nil)), "what is open is not forgotten")
	close(s.events)
	_, open := <-w.ResultChan()
	require.False(t, open)
	require.Eventually(t, func() bool { return !p.Records(nil)[0].Open() }, 10*time.Second, time.Millisecond)
}

func TestWhatIsAskedIsUnderstood(t *testing.T) {
	uid := types.UID("1")
	preconditions := &metav1.Preconditions{UID: &uid}
	lease := &coordinationv1.Lease{
		TypeMeta:   metav1.TypeMeta{Kind: "Lease", APIVersion: "coordination.k8s.io/v1"},
		ObjectMeta: metav1.ObjectMeta{Name: "quorate-main", Annotations: map[string]string{"quorate.dev/intent": "x"}},
	}
	eviction := &policyv1.Eviction{
		TypeMeta:      metav1.TypeMeta{Kind: "Eviction", APIVersion: "policy/v1"},
		ObjectMeta:    metav1.ObjectMeta{Name: "main-1"},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: preconditions},
	}
	question := eviction.DeepCopy()
	question.DeleteOptions.DryRun = []string{metav1.DryRunAll}
	options := &metav1.DeleteOptions{TypeMeta: metav1.TypeMeta{Kind: "DeleteOptions", APIVersion: "v1"},
		Preconditions: preconditions}
	const leases, pods = "/apis/coordination.k8s.io/v1/namespaces/default/leases", "/api/v1/namespaces/default/pods"
	for _, c := range []struct {
		name, method, path, body    string
		want                        string
		removes, asks, mutates      bool
		intent, precondition, whole bool
	}{
		{name: "a Lease in protobuf", method: "PUT", path: leases + "/quorate-main", body: inProtobuf(t, lease),
			want: "update leases quorate-main", mutates: true, intent: true, whole: true},
		{name: "a Lease in JSON", method: "PUT", path: leases + "/quorate-main", body: inJSON(t, lease),
			want: "update leases quorate-main", mutates: true, intent: true, whole: true},
		{name: "a new Lease has its name in its body", method: "POST", path: leases, body: inProtobuf(t, lease),
			want: "create leases quorate-main", mutates: true, intent: true, whole: true},
		{name: "a patch with the annotation", method: "PATCH", path: leases + "/quorate-main",
			body: `{"metadata":{"annotations":{"quorate.dev/intent":"x"}}}`, want: "patch leases quorate-main",
			mutates: true, intent: true},
		{name: "a patch that removes it", method: "PATCH", path: leases + "/quorate-main",
			body: `{"metadata":{"annotations":{"quorate.dev/intent":null}}}`,
			want: "patch leases quorate-main", mutates: true},
		{name: "a DELETE", method: "DELETE", path: pods + "/main-1", body: inProtobuf(t, options),
			want: "delete pods main-1", removes: true, mutates: true, precondition: true},
		{name: "a DELETE without preconditions", method: "DELETE", path: pods + "/main-1", want: "delete pods main-1",
			removes: true, mutates: true},
		{name: "an eviction", method: "POST", path: pods + "/main-1/eviction", body: inProtobuf(t, eviction),
			want: "create pods/eviction main-1", removes: true, mutates: true, precondition: true},
		{name: "a dry run of an eviction removes nothing", method: "POST", path: pods + "/main-1/eviction",
			body: inProtobuf(t, question), want: "create pods/eviction main-1", mutates: true,
			precondition: true, asks: true},
		{name: "a LIST", method: "GET", path: pods + "?labelSelector=a%3Db", want: "list pods "},
		{name: "a watch", method: "GET", path: pods + "?watch=true", want: "watch pods "},
		{name: "a watch of one object", method: "GET", path: leases +
			"?watch=true&fieldSelector=metadata.name%3Dquorate-main", want: "watch leases quorate-main"},
		{name: "no resource", method: "GET", path: "/version", want: "  "},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRequest(httptest.NewRequest(c.method, c.path, http.NoBody), []byte(c.body))
			require.Equal(t, "an outsider asks to "+c.want, r.String())
			require.Equal(t, c.removes, r.Removes())
			require.Equal(t, c.asks, r.AsksBudget())
			require.Equal(t, c.mutates, r.Mutates())
			value, ok := r.Annotation("quorate.dev/intent")
			require.Equal(t, c.intent, ok && value == "x")
			require.Equal(t, c.precondition, r.Preconditions() != nil)
			require.Equal(t, c.whole, r.Lease() != nil)
		})
	}
}

func inProtobuf(t *testing.T, object runtime.Object) string {
	data, err := runtime.Encode(protobuf.NewSerializer(scheme.Scheme, scheme.Scheme), object)
	require.NoError(t, err)
	return string(data)
}

func inJSON(t *testing.T, object runtime.Object) string {
	var text strings.Builder
	require.NoError(t, scheme.Codecs.LegacyCodec(coordinationv1.SchemeGroupVersion).Encode(object, &text))
	return text.String()
}

func TestATokenThatNamesNoPodIsAnOutsiders(t *testing.T) {
	for _, authorization := range []string{"", "Bearer x", "Bearer a.b.c", "Bearer e30.e30.e30", "Basic dXNlcg=="} {
		pod, uid, account := identity(authorization)
		require.Empty(t, pod+string(uid)+account, authorization)
	}
}
