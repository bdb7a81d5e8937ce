package record_test

import (
	"testing"
	"time"

	"github.com/quorate/quorate/internal/record"
	"github.com/quorate/quorate/pkg/rollout"
)

func TestARequestHoldsForTenMinutes(t *testing.T) {
	now := time.Date(2026, 1, 2, 15, 0, 0, 0, time.UTC)
	made := func(ago time.Duration) string {
		return record.RequestText(rollout.Request{Operation: "remove-member", Cluster: 1<<64 - 1, Member: 7, Name: "etcd-3",
			At: now.Add(-ago)})
	}
	for _, tc := range []struct {
		name, text  string
		holds, fine bool
	}{
		{"none", "", false, true},
		{"one made a moment ago", made(time.Second), true, true},
		{"one made ten minutes ago", made(10 * time.Minute), true, true},
		{"an older one, as from a backup", made(10*time.Minute + 1), false, true},
		{"one by a clock that is a little ahead", made(-time.Minute), true, true},
		{"one from the future", made(-2 * time.Minute), false, false},
		{"one without a time", `{"operation":"remove-member","cluster":"1","member":"7"}`, false, true},
		{"what is no JSON", "remove etcd-3", false, false},
		{"an ID that is no number", `{"operation":"remove-member","cluster":"x","member":"7"}`, false, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r, err := record.RequestOf(lease(map[string]string{record.RequestAnnotation: tc.text}), now)
			if (r != nil) != tc.holds || (err == nil) != tc.fine {
				t.Fatalf("%+v, %v", r, err)
			}
			if r != nil && (r.Cluster != 1<<64-1 || r.Member != 7 || r.Name != "etcd-3") {
				t.Errorf("%+v", *r)
			}
		})
	}
	if r, err := record.RequestOf(nil, now); r != nil || err != nil {
		t.Errorf("without a Lease: %+v, %v", r, err)
	}
}
