package traffic

import (
	"context"
	"testing"

	mvccpb "go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/stretchr/testify/require"
)

func TestOnlyACertainFailureIsAFailure(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		sent bool
		want Outcome
	}{
		"an answer": {nil, true, OK},
		"never sent": {status.Error(codes.Unavailable, "connection refused"), false,
			Failed},
		"deadline before anything was sent": {context.DeadlineExceeded, false, Failed},
		"deadline after it was sent":        {context.DeadlineExceeded, true, Unknown},
		"connection lost": {status.Error(codes.Unavailable, "error reading from server: EOF"),
			true, Unknown},
		"no leader":                      {rpctypes.ErrNoLeader, true, Unknown},
		"timed out in etcd":              {rpctypes.ErrTimeoutDueToLeaderFail, true, Unknown},
		"etcd stopping":                  {rpctypes.ErrStopped, true, Unknown},
		"no space, perhaps for the next": {rpctypes.ErrNoSpace, true, Unknown},
		"too many requests":              {rpctypes.ErrTooManyRequests, true, Failed},
		"no permission":                  {rpctypes.ErrPermissionDenied, true, Failed},
		"a learner":                      {rpctypes.Error(rpctypes.ErrGRPCNotSupportedForLearner), true, Failed},
		"gRPC's own refusal, which may come later": {status.Error(codes.ResourceExhausted, "enhance your calm"), true,
			Unknown},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.want, outcomeOf(c.err, c.sent))
		})
	}
}

func TestAConfigurationThatCannotWorkIsRefusedWithTheFieldsName(t *testing.T) {
	endpoints := Static("http://127.0.0.1:1")
	for field, cfg := range map[string]Config{
		"Endpoints":      {},
		"Username":       {Endpoints: endpoints, Password: "x"},
		"RequestTimeout": {Endpoints: endpoints, RequestTimeout: -1},
		"Interval":       {Endpoints: endpoints, Interval: -1},
		"Prefix":         {Endpoints: endpoints, Prefix: "/t"},
	} {
		t.Run(field, func(t *testing.T) {
			_, err := Start(t.Context(), cfg)
			require.ErrorContains(t, err, field)
		})
	}
	_, err := StartObserver(t.Context(), ObserverConfig{})
	require.ErrorContains(t, err, "Endpoints")
	_, err = StartObserver(t.Context(), ObserverConfig{Endpoints: endpoints, Period: -1})
	require.ErrorContains(t, err, "Period")
}

func TestAnEventLogKnowsWhatItDoesNotKnow(t *testing.T) {
	event := func(revision int64) *clientv3.Event {
		return &clientv3.Event{Kv: &mvccpb.KeyValue{Key: []byte(key1), Value: []byte("0/1"),
			ModRevision: revision, Version: 1}}
	}
	l := &eventLog{log: EventLog{Member: memberA, From: 11, To: 10}}
	reached := 0
	l.notify(30, func() { reached++ })

	l.add(clientv3.WatchResponse{Events: []*clientv3.Event{event(12)}})
	require.EqualValues(t, 13, l.next(), "a watch is resumed after the last event")
	l.add(clientv3.WatchResponse{Canceled: true, CompactRevision: 20})
	require.EqualValues(t, 20, l.next(), "and after a compaction at what is left")
	require.Zero(t, reached)
	l.add(clientv3.WatchResponse{Events: []*clientv3.Event{event(20), event(30)}})
	l.add(clientv3.WatchResponse{Events: []*clientv3.Event{event(31)}})
	require.Equal(t, 1, reached)

	log := l.result()
	require.True(t, log.Complete)
	require.Equal(t, []Gap{{From: 13, To: 19}}, log.Gaps)
	for revision, want := range map[int64]bool{10: false, 11: true, 12: true, 13: false, 19: false, 20: true,
		31: true, 32: false} {
		require.Equal(t, want, log.covers(revision), "revision %d", revision)
	}
}
