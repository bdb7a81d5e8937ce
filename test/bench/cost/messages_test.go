package cost

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMessagesAreCountedOverTheEndsOfProcesses(t *testing.T) {
	type counts = map[string]int
	type noted struct {
		pod    string
		counts counts
	}
	for name, c := range map[string]struct {
		begin map[string]counts
		notes []noted
		want  counts
	}{
		"what came before the beginning does not count": {
			map[string]counts{"p0": {"KV/Range": 10, "KV/Txn": 4}},
			[]noted{{"p0", counts{"KV/Range": 12, "KV/Txn": 4}}, {"p0", counts{"KV/Range": 15, "KV/Txn": 4}}},
			counts{"KV/Range": 5},
		},
		"all members together": {
			map[string]counts{"p0": {"KV/Range": 10}, "p1": {"KV/Range": 20}},
			[]noted{{"p0", counts{"KV/Range": 11}}, {"p1", counts{"KV/Range": 22, "Lease/LeaseGrant": 1}}},
			counts{"KV/Range": 3, "Lease/LeaseGrant": 1},
		},
		"a new process counts from zero, and the old one as far as it was asked": {
			map[string]counts{"p0": {"KV/Range": 10, "KV/Txn": 1}},
			[]noted{{"p0", counts{"KV/Range": 13, "KV/Txn": 2}}, {"p0", counts{"KV/Range": 2}},
				{"p0", counts{"KV/Range": 4}}},
			counts{"KV/Range": 7, "KV/Txn": 1},
		},
		"it is a new one too if but one number is less": {
			map[string]counts{"p0": {"KV/Range": 2, "KV/Txn": 10}},
			[]noted{{"p0", counts{"KV/Range": 3, "KV/Txn": 1}}},
			counts{"KV/Range": 3, "KV/Txn": 1},
		},
		"each of several processes": {
			map[string]counts{"p0": {"KV/Range": 10}},
			[]noted{{"p0", counts{"KV/Range": 1}}, {"p0", counts{"KV/Range": 5}}, {"p0", counts{}},
				{"p0", counts{"KV/Range": 2}}},
			counts{"KV/Range": 7},
		},
		"a member that could not be asked at the beginning": {
			nil, []noted{{"p0", counts{"KV/Range": 3}}, {"p0", counts{"KV/Range": 5}}}, counts{"KV/Range": 5},
		},
		"what the kubelet asks for is nobody's cost": {
			map[string]counts{"p0": {"Health/Check": 1}}, []noted{{"p0", counts{"Health/Check": 9, "KV/Range": 1}}},
			counts{"KV/Range": 1},
		},
		"nothing happens": {map[string]counts{"p0": {"KV/Range": 10}}, nil, counts{}},
	} {
		t.Run(name, func(t *testing.T) {
			m := &Messages{cancel: func() {}, done: make(chan struct{}), total: counts{}, last: map[string]counts{}}
			close(m.done)
			for pod, now := range c.begin {
				m.begin(pod, now)
			}
			for _, n := range c.notes {
				m.note(n.pod, n.counts)
			}
			require.Equal(t, c.want, m.Stop())
			require.Equal(t, c.want, m.Stop(), "it can be stopped again")
		})
	}
}
