package harness

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/quorate/quorate/test/harness/apiproxy"
)

// intent is what Quorate writes before it removes main-1.
const intent = `{"operation":"delete","pod":"main-1","uid":"1","resourceVersion":"7","revision":"b","epoch":3}`

func fakeCluster(t *testing.T) (context.Context, *Cluster) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx, &Cluster{Spec: Spec{Name: "main"}.complete(),
		env: &Env{Client: fake.NewClientset(), Timeline: &Timeline{}}}
}

// write makes the record say something.
func write(ctx context.Context, t *testing.T, c *Cluster, holder string, epoch int32, intent string) {
	t.Helper()
	leases := c.env.Client.CoordinationV1().Leases(Namespace)
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: c.RecordName(), Namespace: Namespace},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseTransitions: &epoch},
	}
	if intent != "" {
		lease.Annotations = map[string]string{IntentAnnotation: intent}
	}
	_, err := leases.Update(ctx, lease, metav1.UpdateOptions{})
	if err != nil {
		_, err = leases.Create(ctx, lease, metav1.CreateOptions{})
	}
	require.NoError(t, err)
}

func TestAHistoryOfTheRecord(t *testing.T) {
	ctx, c := fakeCluster(t)
	none, err := c.Record(ctx)
	require.NoError(t, err)
	require.False(t, none.Exists)

	write(ctx, t, c, "main-0_uid", 2, "")
	h, err := c.WatchRecord(ctx)
	require.NoError(t, err)
	defer h.Stop()
	claimed, err := h.Await(ctx, "who holds it", time.Time{}, func(s RecordState) bool { return s.Epoch == 2 })
	require.NoError(t, err)
	require.Equal(t, "main-0", claimed.Holder)

	write(ctx, t, c, "main-2_uid", 3, "")
	write(ctx, t, c, "main-2_uid", 3, intent)
	first, err := h.Await(ctx, "an intent", time.Time{}, func(s RecordState) bool { return s.Intent != nil })
	require.NoError(t, err)
	require.Equal(t, &Intent{Operation: "delete", Pod: "main-1", UID: "1", ResourceVersion: "7", Revision: "b",
		Epoch: 3}, first.Intent)
	require.Equal(t, `epoch 3, held by "main-2", about to delete main-1`, first.String())
	write(ctx, t, c, "main-2_other", 3, intent) // the same intent, still there
	write(ctx, t, c, "main-2_other", 3, "")
	require.NoError(t, c.DeleteRecord(ctx))
	_, err = h.Await(ctx, "that it is gone", time.Time{}, func(s RecordState) bool { return !s.Exists })
	require.NoError(t, err)
	require.Len(t, h.Intents(time.Time{}), 1, "an intent that stays is one")
	require.Empty(t, h.Intents(time.Now()))
	require.NoError(t, h.Err())

	write(ctx, t, c, "main-1_uid", 1, "not JSON")
	_, err = h.Await(ctx, "who created it", first.At, func(s RecordState) bool { return s.Epoch == 1 })
	require.NoError(t, err)
	require.ErrorContains(t, h.Err(), "not JSON")

	ended, cancel := context.WithCancel(ctx)
	cancel()
	_, err = h.Await(ended, "what it never will", time.Time{}, func(RecordState) bool { return false })
	require.ErrorIs(t, err, context.Canceled)
}

func TestAnOperatorAnnotatesTheRecord(t *testing.T) {
	ctx, c := fakeCluster(t)
	require.NoError(t, c.Annotate(ctx, PausedAnnotation, "true"), "it makes the Lease")
	write(ctx, t, c, "main-0_uid", 4, intent)
	require.NoError(t, c.Annotate(ctx, PausedAnnotation, "true"))
	s, err := c.Record(ctx)
	require.NoError(t, err)
	require.Equal(t, map[string]string{IntentAnnotation: intent, PausedAnnotation: "true"}, s.Annotations,
		"what others wrote stays")
	require.NoError(t, c.Annotate(ctx, PausedAnnotation, ""))
	s, err = c.Record(ctx)
	require.NoError(t, err)
	require.Equal(t, map[string]string{IntentAnnotation: intent}, s.Annotations)
	require.EqualValues(t, 4, s.Epoch)
}

func TestASelfRemovalIsOneOfThePodItself(t *testing.T) {
	request := func(by string, byUID types.UID, pod string, uid types.UID) apiproxy.Record {
		return apiproxy.Record{Request: apiproxy.Request{
			Pod: by, UID: byUID, Verb: "delete", Resource: "pods", Name: pod,
			Object: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}},
		}}
	}
	bare := request("main-1", "1", "main-1", "")
	bare.Object = nil
	for name, r := range map[string]struct {
		record apiproxy.Record
		self   bool
	}{
		"another pod":                         {request("main-1", "1", "main-2", "2"), false},
		"itself":                              {request("main-1", "1", "main-1", "1"), true},
		"its predecessor":                     {request("main-1", "1", "main-1", "0"), false},
		"its name, whoever has it":            {bare, true},
		"from outside, which is nobody's own": {request("", "", "main-1", "1"), false},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, r.self, len(SelfRemovals([]apiproxy.Record{r.record})) == 1)
		})
	}
	_, c := fakeCluster(t)
	for pod, ours := range map[string]bool{"main-0": true, "main-6": true, "main-x-0": false, "main": false,
		"other-0": false} {
		require.Equal(t, ours, c.Removing(&apiproxy.Request{Verb: "delete", Resource: "pods", Name: pod}), pod)
	}
}
