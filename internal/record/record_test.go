package record_test

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate/quorate/internal/record"
)

func lease(annotations map[string]string) *coordinationv1.Lease {
	holder, epoch, seconds := "etcd-1_u1", int32(6), int32(20)
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: "quorate-etcd", ResourceVersion: "10", Annotations: annotations},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseTransitions: &epoch,
			LeaseDurationSeconds: &seconds},
	}
}

func TestParse(t *testing.T) {
	intent := func(text string) map[string]string {
		return map[string]string{record.SchemaAnnotation: "1", record.IntentAnnotation: text}
	}
	says := func(schema int, i record.Intent) record.Record {
		return record.Record{ResourceVersion: "10", Schema: schema, Holder: "etcd-1_u1", Epoch: 6, Duration: 20 * time.Second,
			Intent: i}
	}
	anyPod := record.Intent{Operation: record.FenceAll}
	for _, tc := range []struct {
		name  string
		lease *coordinationv1.Lease
		want  record.Record
	}{
		{"a Lease that does not exist says nothing", nil, record.Record{}},
		{"a Lease that an operator created for a control was never claimed",
			&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "10",
				Annotations: map[string]string{"quorate.dev/paused": "true"}}},
			record.Record{ResourceVersion: "10"}},
		{"a record with nothing under way", lease(intent(`{"operation":"none"}`)), says(1, record.Intent{})},
		{"one whose intent somebody has deleted may be about any pod",
			lease(map[string]string{record.SchemaAnnotation: "1"}), says(1, anyPod)},
		{"a removal under way", lease(intent(`{"operation":"evict","pod":"etcd-1","uid":"u1","resourceVersion":"4","revision":"r2","epoch":6}`)),
			says(1, record.Intent{Operation: record.Evict, Pod: "etcd-1", UID: "u1", ResourceVersion: "4", Revision: "r2",
				Epoch: 6})},
		{"a rollout under way", lease(map[string]string{record.SchemaAnnotation: "1",
			record.IntentAnnotation: `{"operation":"none"}`, record.RolloutAnnotation: "under way"}),
			record.Record{ResourceVersion: "10", Schema: 1, Holder: "etcd-1_u1", Epoch: 6, Duration: 20 * time.Second,
				Rolling: true}},
		{"no rollout", lease(map[string]string{record.SchemaAnnotation: "1", record.IntentAnnotation: `{"operation":"none"}`,
			record.RolloutAnnotation: "none"}), says(1, record.Intent{})},
		{"fields that a later release adds do no harm",
			lease(intent(`{"operation":"delete","pod":"etcd-1","uid":"u1","resourceVersion":"4","since":{"a":1}}`)),
			says(1, record.Intent{Operation: record.Delete, Pod: "etcd-1", UID: "u1", ResourceVersion: "4"})},
		{"any pod may have to be fenced", lease(intent(`{"operation":"fence-all","epoch":1}`)), says(1, anyPod)},

		{"a suspect that names no member may have replaced an intent",
			lease(intent(`{"operation":"none","suspect":{}}`)), says(1, anyPod)},
		{"so may one beside an intent",
			lease(intent(`{"operation":"evict","pod":"etcd-1","uid":"u1","resourceVersion":"4","suspect":{"id":"7"}}`)),
			says(1, anyPod)},
		{"an intent that is no JSON may be about any pod", lease(intent(`delete etcd-1`)), says(1, anyPod)},
		{"so may an empty one", lease(intent(``)), says(1, anyPod)},
		{"one that is no object", lease(intent(`"delete"`)), says(1, anyPod)},
		{"one that is null", lease(intent(`null`)), says(1, anyPod)},
		{"one without an operation", lease(intent(`{}`)), says(1, anyPod)},
		{"one with an operation that nobody knows",
			lease(intent(`{"operation":"drain","pod":"etcd-1","uid":"u1","resourceVersion":"4"}`)), says(1, anyPod)},
		{"one without a pod", lease(intent(`{"operation":"delete","uid":"u1","resourceVersion":"4"}`)), says(1, anyPod)},
		{"one without a UID", lease(intent(`{"operation":"delete","pod":"etcd-1","resourceVersion":"4"}`)), says(1, anyPod)},
		{"one without a resourceVersion", lease(intent(`{"operation":"evict","pod":"etcd-1","uid":"u1"}`)), says(1, anyPod)},
		{"one with a field of another type",
			lease(intent(`{"operation":"delete","pod":"etcd-1","uid":"u1","resourceVersion":4}`)), says(1, anyPod)},
		{"one that was cut off", lease(intent(`{"operation":"delete","pod":"etcd-1","ui`)), says(1, anyPod)},

		{"a newer schema", lease(map[string]string{record.SchemaAnnotation: "3"}), says(3, anyPod)},
		{"a schema that is no number is a newer one", lease(map[string]string{record.SchemaAnnotation: "v1beta1"}),
			says(3, anyPod)},
		{"so is an empty one", lease(map[string]string{record.SchemaAnnotation: ""}), says(3, anyPod)},
		{"and a negative one", lease(map[string]string{record.SchemaAnnotation: "-1"}), says(3, anyPod)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := record.Parse(tc.lease)
			if got != tc.want {
				t.Errorf("\n got %+v\nwant %+v", got, tc.want)
			}
			if got.Exists() != (tc.lease != nil) {
				t.Errorf("it exists: %v", got.Exists())
			}
		})
	}
}

func TestControlsAreThoseOnTheLease(t *testing.T) {
	if c := record.Controls(nil); c.Paused || c.MaxUnavailable != nil {
		t.Errorf("of no Lease: %+v", c)
	}
	if c := record.Controls(lease(map[string]string{"quorate.dev/paused": "true"})); !c.Paused {
		t.Errorf("of a paused one: %+v", c)
	}
}

func TestAnIntentReadsWellInALog(t *testing.T) {
	for _, tc := range []struct {
		intent record.Intent
		want   string
	}{
		{record.Intent{}, "nothing"},
		{record.Intent{Operation: record.FenceAll, Epoch: 1}, "any pod's removal"},
		{record.Intent{Operation: record.Evict, Pod: "etcd-1", UID: "u1", ResourceVersion: "4"},
			"evict etcd-1 (UID u1, resourceVersion 4)"},
		{removal, "remove-member etcd-3 (ID 7)"},
	} {
		if got := tc.intent.String(); got != tc.want {
			t.Errorf("got %q, want %q", got, tc.want)
		}
	}
	if record.Name("etcd-main") != "quorate-etcd-main" {
		t.Error(record.Name("etcd-main"))
	}
	if record.ByLock.String() != "lock" || record.ByClock.String() != "fallback" {
		t.Error(record.ByLock, record.ByClock)
	}
}
