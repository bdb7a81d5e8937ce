package coordinator

import (
	"context"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/quorate/quorate/internal/record"
	"github.com/quorate/quorate/internal/report"
	"github.com/quorate/quorate/internal/rollout"
	"github.com/quorate/quorate/internal/workload"
)

// look asks etcd how its members are, for a cluster that idles. It never takes longer than two probes.
func (l *loop) look(ctx context.Context, answers chan<- rollout.Membership) {
	members := l.c.members()
	defer members.Close()
	etcd, err := members.Observe(ctx)
	if err != nil {
		l.c.log.WithError(err).Debug("no member list")
	}
	l.c.remember(members.MemberURLs())
	select {
	case answers <- etcd:
	default: // Nobody has looked at the last answer yet.
	}
}

// duty returns true if a duty is due beside the rollout. Kubernetes is asked nothing: the pods are those of
// the last reading, and a watch on the StatefulSet follows what becomes of them. Nothing is done on this,
// because a turn reads everything live.
func (l *loop) duty(etcd rollout.Membership) bool {
	seen := l.sight.seen
	state := rollout.State{Set: seen.Set, Pods: seen.Pods, Self: l.c.self.Pod, Etcd: etcd,
		NoLock: l.c.place.owned() == nil, InWindow: l.c.cfg.Policy.DefragmentWindow.Contains(time.Now())}
	joined := rollout.Assess(state, l.c.cfg.Policy)
	l.c.account.metrics.Databases(joined.Fullest())
	d := joined.Decide(l.looked.recall(time.Now(), joined.Sightings()))
	// A rollout that waits comes first in the decision, and does not keep another duty from being due.
	return slices.ContainsFunc(append(d.Others, d), func(d rollout.Decision) bool {
		switch d.Action.(type) {
		case rollout.Idle, rollout.Complete:
			return false
		}
		return d.Duty != rollout.DutyRoll && d.Duty != rollout.DutyHeld
	})
}

// watchLease watches the Lease for what operators ask for. It needs no look at what the coordinator itself
// writes there.
func (w *watches) watchLease(ctx context.Context) {
	w.running.Go(func() {
		_, failed, ended := w.calls(report.AtWatchLease, "the Lease")
		defer ended()
		opts := metav1.ListOptions{
			FieldSelector: fields.OneTermEqualSelector("metadata.name", record.Name(w.c.cfg.StatefulSet)).String(),
		}
		asked := ""
		workload.KeepWatching(ctx, func(ctx context.Context) (watch.Interface, error) {
			return w.c.cfg.Leases.Watch(ctx, opts)
		}, func(e watch.Event) {
			ended() // The watch works.
			lease, ok := e.Object.(*coordinationv1.Lease)
			if !ok {
				return
			}
			if now := record.Requested(lease); now != asked {
				if asked = now; asked != "" {
					w.c.requested.Store(true)
					w.c.trigger()
				}
			}
		}, failed)
	})
}
