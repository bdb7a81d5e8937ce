package chaos

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/quorate/quorate/test/harness"
	"github.com/quorate/quorate/test/harness/traffic"
)

// handsSee is a cluster whose members all serve, but for the silent ones.
func handsSee(members int, silent ...int) traffic.Sample {
	s := traffic.Sample{Voters: members}
	names := map[uint64]string{}
	for n := range members {
		names[uint64(n+1)] = fmt.Sprintf("main-%d", n)
		s.Probes = append(s.Probes, traffic.Probe{MemberID: uint64(n + 1), Names: names, Serving: true})
	}
	for _, n := range silent {
		s.Probes[n].Serving = false
	}
	return s
}

func TestAPodCanBeSparedWhileTheOthersAreAQuorum(t *testing.T) {
	replaced := func(pod string) LeaseChange { return LeaseChange{Intent: Intent{Pod: pod}} }
	for _, c := range []struct {
		name  string
		seen  traffic.Sample
		goes  []string // besides main-1, which is the one
		now   LeaseChange
		spare bool
	}{
		{"of three that serve", handsSee(3), nil, LeaseChange{}, true},
		{"not of three of which one is about to be replaced", handsSee(3), nil, replaced("main-0"), false},
		{"not of three of which one goes", handsSee(3), []string{"main-0"}, LeaseChange{}, false},
		{"not of three of which one does not serve", handsSee(3, 0), nil, LeaseChange{}, false},
		{"not of three of which one is defragmented", handsSee(3), nil, LeaseChange{Work: Work{Member: "main-0"}},
			false},
		{"of three, if it is the one that does not serve", handsSee(3, 1), nil, LeaseChange{}, true},
		{"of five of which one is replaced", handsSee(5), nil, replaced("main-0"), true},
		{"not of five of which another is silent", handsSee(5, 4), nil, replaced("main-0"), false},
		{"not if a learner has to stand in", func() traffic.Sample {
			s := handsSee(3)
			s.Probes[2].Learner = true
			return s
		}(), nil, LeaseChange{}, false},
		{"not if nobody has seen how many voters there are", traffic.Sample{}, nil, LeaseChange{}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := &auditor{present: map[string]PodChange{}}
			for n := range c.seen.Probes {
				pod := fmt.Sprintf("main-%d", n)
				a.present["uid of "+pod] = PodChange{Pod: pod}
			}
			for _, pod := range c.goes {
				a.present["uid of "+pod] = PodChange{Pod: pod, Terminates: true}
			}
			require.Equal(t, c.spare, suffices(c.seen, a.others("main-1"), c.now))
		})
	}
}

func TestHandsTakeAPodThatIsNotAwayItself(t *testing.T) {
	a := &auditor{present: map[string]PodChange{
		"a": {Pod: "main-0", UID: "a", Ready: true}, "b": {Pod: "main-1", UID: "b", Ready: true, Terminates: true},
		"c": {Pod: "main-2", UID: "c"}, "d": {Pod: "main-3", UID: "d", Ready: true},
		"e": {Pod: "main-4", UID: "e", Ready: true}}}
	names := func(now LeaseChange) (names []string) {
		for _, c := range left(a.others(""), now) {
			names = append(names, c.Pod)
		}
		return names
	}
	require.Equal(t, []string{"main-0", "main-3", "main-4"}, names(LeaseChange{}))
	require.Equal(t, []string{"main-0", "main-3"}, names(LeaseChange{Intent: Intent{Pod: "main-4"}}))
	require.Equal(t, []string{"main-3", "main-4"}, names(LeaseChange{Work: Work{Member: "main-0"}}))
}

func TestOnlyWhatMayHaveTakenAPodIsNoted(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	denial := errors.New(
		`ValidatingAdmissionPolicy 'quorate-quorum-guard' with binding 'quorate-quorum-guard' denied request`,
	)
	for _, c := range []struct {
		name  string
		err   error
		noted bool
	}{
		{"what was answered with success", nil, true},
		{"what was not answered", context.DeadlineExceeded, true},
		{"what the server failed at, perhaps too late", apierrors.NewInternalError(errors.New("etcd")), true},
		{"not what the quorum guard denied", apierrors.NewForbidden(pods, "main-0", denial), false},
		{"not what a budget refused", apierrors.NewTooManyRequestsError("budget"), false},
		{"not what came too late", apierrors.NewNotFound(pods, "main-0"), false},
		{"nor what met the successor", apierrors.NewConflict(pods, "main-0", errors.New("UID")), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := &auditor{}
			err := a.attempt(Deletion{Pod: "main-0"}, func() error {
				require.Len(t, a.deletions, 1, "before it is sent")
				require.WithinDuration(t, time.Now(), a.deletions[0].At, time.Minute)
				return c.err
			})
			require.Equal(t, c.err, err)
			require.Equal(t, c.noted, len(a.deletions) > 0)
		})
	}
}

func TestTheRecordNamesPodsWhileItHasAHolderAndInItsEpoch(t *testing.T) {
	const text = `{"epoch":7,"during":"the replacement of main-0","pods":{"main-1":"a","main-2":"b"}}`
	named := map[string]string{"main-1": "a", "main-2": "b"}
	for _, c := range []struct {
		name, text, holder, guard string
		epoch                     int32
		needed                    map[string]string
		off                       bool
	}{
		{"as it stands", text, "main-0_uid", "", 7, named, false},
		{"with the guard off", text, "main-0_uid", "off", 7, named, true},
		{"after somebody else's claim", text, "main-1_uid", "", 8, nil, false},
		{"after its release", text, "", "", 7, nil, false},
		{"with nothing", "", "main-0_uid", "", 0, nil, false},
		{"with what makes no sense", "[]", "main-0_uid", "", 7, nil, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := &auditor{changed: make(chan struct{})}
			lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "1",
				Annotations: map[string]string{harness.NeededAnnotation: c.text, guardAnnotation: c.guard}},
				Spec: coordinationv1.LeaseSpec{HolderIdentity: &c.holder, LeaseTransitions: &c.epoch}}
			require.NoError(t, a.addLease(lease, false))
			require.Equal(t, c.needed, a.lease[0].Needed)
			require.Equal(t, c.off, a.lease[0].GuardOff)
		})
	}
}
