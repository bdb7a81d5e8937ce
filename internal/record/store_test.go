package record_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	coordination "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"

	"github.com/quorate/quorate/internal/record"
	"github.com/quorate/quorate/pkg/rollout"
)

type object = map[string]any

// leaseAPI is the part of an API server that keeps one Lease, as far as the record
// relies on it: what is asked and answered is real, so is the client.
type leaseAPI struct {
	mu      sync.Mutex
	lease   object
	version int
	asked   []string
	bodies  []object
	// answer, if set, is the status and the body of every answer.
	answer int
	body   string
	hang   chan struct{}
}

const leasesPath = "/apis/coordination.k8s.io/v1/namespaces/garden/leases"

func newLeaseAPI(t *testing.T, lease object) (*leaseAPI, record.Leases) {
	t.Helper()
	a := &leaseAPI{lease: lease, version: 10, hang: make(chan struct{})}
	server := httptest.NewServer(a)
	client, err := coordination.NewForConfigAndClient(&rest.Config{Host: server.URL}, server.Client())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		close(a.hang)
		server.Close()
	})
	return a, client.Leases("garden")
}

func (a *leaseAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked = append(a.asked, fmt.Sprintf("%s %s %s", r.Method, strings.TrimPrefix(r.URL.RequestURI(), leasesPath),
		r.Header.Get("Content-Type")))
	body := decode(r)
	if body != nil {
		a.bodies = append(a.bodies, body)
	}
	switch {
	case a.answer < 0:
		a.mu.Unlock()
		<-a.hang
		a.mu.Lock()
	case a.answer > 0:
		if strings.HasPrefix(a.body, "{") {
			w.Header().Set("Content-Type", "application/json")
		}
		w.WriteHeader(a.answer)
		_, _ = io.WriteString(w, a.body)
	case r.Method == http.MethodPost && a.lease != nil:
		status(w, apierrors.NewAlreadyExists(leaseResource, "quorate-etcd"))
	case r.Method == http.MethodPost:
		a.store(w, http.StatusCreated, body)
	case a.lease == nil:
		status(w, apierrors.NewNotFound(leaseResource, "quorate-etcd"))
	case r.Method == http.MethodPatch:
		if v := field(body, "metadata", "resourceVersion"); v != nil && v != field(a.lease, "metadata", "resourceVersion") {
			status(w, apierrors.NewConflict(leaseResource, "quorate-etcd", errors.New("the object has been modified")))
			return
		}
		a.store(w, http.StatusOK, merge(a.lease, body))
	default:
		reply(w, http.StatusOK, a.lease)
	}
}

var leaseResource = schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}

// decode reads a body as a map, also one in protobuf, which clients speak by default.
func decode(r *http.Request) object {
	text, _ := io.ReadAll(r.Body)
	if r.Header.Get("Content-Type") == runtime.ContentTypeProtobuf {
		decoded, _, err := scheme.Codecs.UniversalDeserializer().Decode(text, nil, nil)
		if err != nil {
			panic(err)
		}
		text, _ = json.Marshal(decoded)
	}
	var body object
	_ = json.Unmarshal(text, &body)
	return body
}

func (a *leaseAPI) store(w http.ResponseWriter, code int, lease object) {
	a.version++
	a.lease = merge(lease, object{"metadata": object{"resourceVersion": strconv.Itoa(a.version)}})
	reply(w, code, lease)
}

// field returns what stands in a part of an object.
func field(o object, part, name string) any {
	inner, _ := o[part].(object)
	return inner[name]
}

// merge is RFC 7386.
func merge(into, patch object) object {
	for key, value := range patch {
		switch value := value.(type) {
		case nil:
			delete(into, key)
		case object:
			inner, _ := into[key].(object)
			if inner == nil {
				inner = object{}
			}
			into[key] = merge(inner, value)
		default:
			into[key] = value
		}
	}
	return into
}

func status(w http.ResponseWriter, err *apierrors.StatusError) {
	err.ErrStatus.APIVersion, err.ErrStatus.Kind = "v1", "Status"
	reply(w, int(err.ErrStatus.Code), err.ErrStatus)
}

func reply(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body)
}

// stored is a Lease as others have left it.
func stored() object {
	var o object
	if err := json.Unmarshal([]byte(`{
		"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
		"metadata": {
			"name": "quorate-etcd", "resourceVersion": "10", "labels": {"team": "etcd"}, "finalizers": ["example.com/keep"],
			"annotations": {
				"quorate.dev/paused": "false", "example.com/foreign": "stays", "quorate.dev/schema": "1", "quorate.dev/of-a-later-release": "stays",
				"quorate.dev/intent": "{\"operation\":\"delete\",\"pod\":\"etcd-2\",\"uid\":\"u2\",\"resourceVersion\":\"5\",\"epoch\":6}"
			}
		},
		"spec": {"holderIdentity": "etcd-1_u1", "leaseTransitions": 6, "leaseDurationSeconds": 20, "strategy": "stays", "acquireTime": "2026-01-01T00:00:00.000000Z"}
	}`), &o); err != nil {
		panic(err)
	}
	return o
}

func TestWhatIsWrittenIsRead(t *testing.T) {
	for _, tc := range []struct {
		name   string
		intent record.Intent
	}{
		{"nothing under way", record.Intent{}},
		{"a removal", ourOp},
		{"all pods to be fenced", fenceAll(7)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, found := range []object{nil, stored()} {
				_, leases := newLeaseAPI(t, found)
				l := mine("", tc.intent)
				if found != nil {
					l.ResourceVersion = "10"
				}
				written, err := record.Write(t.Context(), leases, "etcd", l, record.Needed{}, nil)
				if err != nil || written.ResourceVersion != "11" {
					t.Fatalf("%v, %v", written, err)
				}
				got, err := record.Read(t.Context(), leases, "etcd")
				if err != nil {
					t.Fatal(err)
				}
				l.ResourceVersion = "11"
				if tc.intent.Operation == record.FenceAll {
					l.Intent.Epoch = 0 // It is the same whoever put it there.
				}
				if record.Parse(got) != l {
					t.Errorf("\n got %+v\nwant %+v", record.Parse(got), l)
				}
				if got.Spec.RenewTime == nil || time.Since(got.Spec.RenewTime.Time) > time.Hour {
					t.Errorf("renewed %v", got.Spec.RenewTime)
				}
			}
		})
	}
}

func TestAWriteTouchesNothingThatIsNotOurs(t *testing.T) {
	a, leases := newLeaseAPI(t, stored())
	if _, err := record.Write(t.Context(), leases, "etcd", mine("10", record.Intent{}), record.Needed{}, nil); err != nil {
		t.Fatal(err)
	}
	want := stored()
	merge(want, object{
		"metadata": object{"resourceVersion": "11", "annotations": object{"quorate.dev/intent": `{"operation":"none"}`,
			"quorate.dev/rollout": "under way", "quorate.dev/needed": `{"epoch":7}`},
			"labels": object{"app.kubernetes.io/managed-by": "quorate"}},
		"spec": object{"holderIdentity": me, "leaseTransitions": 7.0, "leaseDurationSeconds": 15.0,
			"renewTime": field(a.lease, "spec", "renewTime")},
	})
	if !reflect.DeepEqual(a.lease, want) {
		t.Errorf("\n got %v\nwant %v", a.lease, want)
	}
}

func TestNotesForReadersStandBesideTheRecordAndNeverReplaceIt(t *testing.T) {
	a, leases := newLeaseAPI(t, stored())
	notes := map[string]string{"quorate.dev/status": "all is well", record.IntentAnnotation: "mine",
		record.SchemaAnnotation: "9"}
	if _, err := record.Write(t.Context(), leases, "etcd", mine("10", record.Intent{}), record.Needed{}, notes); err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{"quorate.dev/status": "all is well",
		record.IntentAnnotation: `{"operation":"none"}`, record.SchemaAnnotation: "1"} {
		if got := field(a.lease, "metadata", "annotations").(object)[key]; got != want {
			t.Errorf("%s: %v, want %s", key, got, want)
		}
	}
	if len(notes) != 3 || notes[record.IntentAnnotation] != "mine" {
		t.Errorf("the caller's notes were changed: %v", notes)
	}
}

func TestARecordThatIsGivenBackHasNoHolder(t *testing.T) {
	a, leases := newLeaseAPI(t, stored())
	if _, err := record.Write(t.Context(), leases, "etcd", released("10", theirOp), record.Needed{}, nil); err != nil {
		t.Fatal(err)
	}
	if holder := field(a.lease, "spec", "holderIdentity"); holder != "" {
		t.Errorf("holder %v", holder)
	}
}

// The quorum guard looks for parts of this text, so it may not look different.
func TestWhatQuorumRestsOnIsWrittenAsTheQuorumGuardReadsIt(t *testing.T) {
	needed := record.Needed{During: "the replacement of etcd-2", Since: time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC),
		Pods: map[string]string{"etcd-1": "u1", "etcd-0": "u0"}}
	for _, tc := range []struct {
		name   string
		write  record.Record
		needed record.Needed
		text   string
		read   record.Needed
	}{
		{"the holder's word counts", mine("10", record.Intent{}), needed, `{"epoch":7,"during":"the replacement of etcd-2",` +
			`"since":"2026-01-02T03:04:05Z","pods":{"etcd-0":"u0","etcd-1":"u1"}}`,
			record.Needed{During: needed.During, Since: needed.Since.Truncate(time.Second), Pods: needed.Pods}},
		{"no pod, no word", mine("10", record.Intent{}), record.Needed{During: "x", Since: needed.Since}, `{"epoch":7}`,
			record.Needed{}},
		{"whoever gives the record back keeps nothing", released("10", record.Intent{}), needed, `{"epoch":7}`,
			record.Needed{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, leases := newLeaseAPI(t, stored())
			got, err := record.Write(t.Context(), leases, "etcd", tc.write, tc.needed, nil)
			if err != nil {
				t.Fatal(err)
			}
			if text := got.Annotations[record.NeededAnnotation]; text != tc.text || got.Labels["team"] != "etcd" ||
				got.Labels[record.ManagedLabel] != record.ManagedBy {
				t.Errorf("%s %v", text, got.Labels)
			}
			if read := record.NeededOf(got); !reflect.DeepEqual(read, tc.read) {
				t.Errorf("read as %+v", read)
			}
			// An older version takes the record over, and leaves the annotation as it is.
			epoch := int32(8)
			got.Spec.LeaseTransitions = &epoch
			if read := record.NeededOf(got); read.Pods != nil {
				t.Errorf("after a takeover: %+v", read)
			}
		})
	}
	for _, odd := range []string{"", "{", `{"epoch":"7"}`, `[]`, `{"epoch":6,"pods":{"etcd-0":"u0"}}`} {
		l := lease(map[string]string{record.NeededAnnotation: odd})
		*l.Spec.LeaseTransitions = 7
		if read := record.NeededOf(l); read.Pods != nil {
			t.Errorf("%q is read as %+v", odd, read)
		}
	}
	if read := record.NeededOf(nil); read.Pods != nil {
		t.Errorf("of no Lease: %+v", read)
	}
}

func TestWhatIsStillUnderWayBeganWhenItWasSaidTo(t *testing.T) {
	at, pods := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), map[string]string{"etcd-0": "u0"}
	now := rollout.Needed{During: "the replacement of etcd-2", Pods: pods}
	first := record.Needed{}.After(now, at)
	if second := first.After(now, at.Add(time.Minute)); !second.Since.Equal(at) {
		t.Errorf("%+v", second)
	}
	now.During = "the replacement of etcd-1"
	if next := first.After(now, at.Add(time.Minute)); !next.Since.Equal(at.Add(time.Minute)) {
		t.Errorf("%+v", next)
	}
	if over := first.After(rollout.Needed{}, at); !reflect.DeepEqual(over, record.Needed{}) {
		t.Errorf("%+v", over)
	}
}

func TestAWriteIsACompareAndSwap(t *testing.T) {
	for _, tc := range []struct {
		name  string
		found object
		write record.Record
		asked string
	}{
		{"a Lease that has changed is not written", stored(), mine("9", record.Intent{}),
			"PATCH /quorate-etcd application/merge-patch+json"},
		{"a Lease that was deleted is not created again", nil, mine("10", record.Intent{}),
			"PATCH /quorate-etcd application/merge-patch+json"},
		{"a Lease that exists is not created over", stored(), mine("", fenceAll(1)),
			"POST  application/vnd.kubernetes.protobuf"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a, leases := newLeaseAPI(t, tc.found)
			_, err := record.Write(t.Context(), leases, "etcd", tc.write, record.Needed{}, nil)
			if record.OutcomeOf(err) != record.Refused || !strings.Contains(err.Error(), "Lease quorate-etcd") {
				t.Errorf("answer %v", err)
			}
			if !reflect.DeepEqual(a.lease, tc.found) || len(a.asked) != 1 || a.asked[0] != tc.asked {
				t.Errorf("%q left %v", a.asked, a.lease)
			}
			if v := field(a.bodies[0], "metadata", "resourceVersion"); tc.write.Exists() && v != tc.write.ResourceVersion {
				t.Errorf("the patch carries resourceVersion %v", v)
			}
		})
	}
}

func TestALeaseIsCreatedWithItsIntent(t *testing.T) {
	a, leases := newLeaseAPI(t, nil)
	if _, err := record.Write(t.Context(), leases, "etcd", mine("", fenceAll(7)), record.Needed{}, nil); err != nil {
		t.Fatal(err)
	}
	want := object{record.SchemaAnnotation: "1", record.IntentAnnotation: `{"operation":"fence-all","epoch":7}`,
		record.RolloutAnnotation: "under way", record.NeededAnnotation: `{"epoch":7}`}
	if got := field(a.bodies[0], "metadata", "annotations"); len(a.asked) != 1 || !reflect.DeepEqual(got, want) {
		t.Errorf("%q with %v, want %v", a.asked, got, want)
	}
}

func TestALeaseIsReadLive(t *testing.T) {
	a, leases := newLeaseAPI(t, nil)
	if l, err := record.Read(t.Context(), leases, "etcd"); l != nil || err != nil {
		t.Errorf("no Lease reads as %v, %v", l, err)
	}
	a.lease = stored()
	if l, err := record.Read(t.Context(), leases, "etcd"); err != nil || l.ResourceVersion != "10" {
		t.Errorf("%v, %v", l, err)
	}
	a.answer = http.StatusForbidden
	if l, err := record.Read(t.Context(), leases, "etcd"); l != nil || err == nil ||
		!strings.HasPrefix(err.Error(), "get Lease quorate-etcd: ") {
		t.Errorf("%v, %v", l, err)
	}
	for _, asked := range a.asked {
		if asked != "GET /quorate-etcd " {
			t.Errorf("%q: a resource version lets a cache answer", asked)
		}
	}
}

// What an answer means, from the wire to the outcome.
func TestTheOutcomeOfAWrite(t *testing.T) {
	for _, tc := range []struct {
		name   string
		answer int // below 0: none
		body   string
		want   record.Outcome
	}{
		{"a success is one", 200, `{"metadata":{"resourceVersion":"11"}}`, record.Done},
		{"a conflict says that something had changed", 409, "", record.Refused},
		{"not found does as well", 404, "", record.Refused},
		{"a bad request is the last word", 400, "", record.Failed},
		{"so is missing authentication", 401, "", record.Failed},
		{"a missing permission", 403, "", record.Failed},
		{"an invalid object", 422, "", record.Failed},
		{"too many requests", 429, "", record.Failed},
		{"a request that timed out in the server may have taken effect", 408, "", record.Unclear},
		{"so may one that failed inside", 500, "", record.Unclear},
		{"one behind a proxy that lost its backend", 502, "<html>", record.Unclear},
		{"one that is not available", 503, "", record.Unclear},
		{"one that timed out behind", 504,
			`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Timeout","code":504}`, record.Unclear},
		{"one whose success cannot be read", 200, "{", record.Unclear},
		{"one that is not answered in time", -1, "", record.Unclear},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a, leases := newLeaseAPI(t, stored())
			a.answer, a.body = tc.answer, tc.body
			ctx := t.Context()
			if tc.answer < 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, 50*time.Millisecond)
				defer cancel()
			}
			_, err := record.Write(ctx, leases, "etcd", mine("10", record.Intent{}), record.Needed{}, nil)
			if got := record.OutcomeOf(err); got != tc.want {
				t.Errorf("%v is outcome %d, want %d", err, got, tc.want)
			}
		})
	}
	t.Run("nobody listens", func(t *testing.T) {
		server := httptest.NewServer(http.NotFoundHandler())
		server.Close()
		client, err := coordination.NewForConfig(&rest.Config{Host: server.URL})
		if err != nil {
			t.Fatal(err)
		}
		_, err = record.Write(t.Context(), client.Leases("garden"), "etcd", mine("10", record.Intent{}), record.Needed{}, nil)
		if record.OutcomeOf(err) != record.Unclear {
			t.Error(err)
		}
	})
}

func TestAWrappedAnswerMeansTheSame(t *testing.T) {
	err := fmt.Errorf("delete pod etcd-1: %w", apierrors.NewConflict(leaseResource, "quorate-etcd", errors.New("changed")))
	if got := record.OutcomeOf(err); got != record.Refused {
		t.Errorf("outcome %d", got)
	}
	if got := record.OutcomeOf(fmt.Errorf("evict pod etcd-1: %w", context.DeadlineExceeded)); got != record.Unclear {
		t.Errorf("outcome %d", got)
	}
}
