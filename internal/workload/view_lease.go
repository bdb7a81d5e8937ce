package workload

import (
	"context"
	"encoding/json"
	"fmt"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/quorate/quorate/internal/record"
)

// Leases is the part of the API for Leases in one namespace that is used here. A clientset's
// CoordinationV1().Leases(namespace) satisfies it.
type Leases interface {
	record.Getter
	Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error)
}

// Blind is true while the API server refuses the watch on the Lease, to a sidecar with an older Role. Then an idle one
// has to read the Lease once a minute, and one that coordinates has to read everything at every look.
func (v *View) Blind() bool { return v.watches.blind.Load() }

// Held is true while the operator's controls on the Lease hold everything, as far as the watch has told.
func (v *View) Held() bool { return v.watches.held.Load() }

// FollowLease watches the Lease for what operators and other coordinators write there. It needs no look at what the
// coordinator itself writes.
func (v *View) FollowLease() {
	if v.watches.begin == nil || v.watches.unwatchLease != nil {
		return
	}
	_, v.watches.unwatchLease = v.watches.begin(func(ctx context.Context, _ func()) {
		_, refused, works := v.calls(WatchOnLease)
		ended := func() {
			v.watches.blind.Store(false)
			works()
		}
		defer ended()
		failed := func(err error) {
			v.watches.blind.Store(true)
			v.watches.held.Store(false)
			refused(err)
		}
		var asked, said string
		told := func(e watch.Event) {
			lease, ok := e.Object.(*coordinationv1.Lease)
			if !ok {
				return
			}
			v.watches.held.Store(e.Type != watch.Deleted && record.Controls(lease).HoldAll())
			if now := record.Requested(lease); now != asked {
				if asked = now; asked != "" {
					v.cfg.Asked()
					v.cfg.Changed()
				}
			}
			if now := saidByOthers(lease); now != said {
				said = now
				v.cfg.Changed()
			}
		}
		// While there is no Lease, an open watch tells nothing.
		Watch{
			Open: v.cfg.Leases.Watch, Options: named(record.Name(v.cfg.StatefulSet)), Into: &v.lease, Opened: ended,
			Told: told, Failed: failed,
		}.Keep(ctx)
	})
}

// UnfollowLease ends that watch.
func (v *View) UnfollowLease() {
	if v.watches.unwatchLease != nil {
		v.watches.unwatchLease()
		v.watches.unwatchLease = nil
	}
}

// saidByOthers is what a coordinator has to know of the Lease that it has not written itself: who holds the record,
// and the operator's controls.
func saidByOthers(lease *coordinationv1.Lease) string {
	r := record.Parse(lease)
	controls, _ := json.Marshal(record.Controls(lease)) // It has pointers.
	return fmt.Sprint(r.Holder, r.Epoch, string(controls))
}

// mirroredLease is the Lease as the watch tells it, and false if that is not known.
func (v *View) mirroredLease() (*coordinationv1.Lease, bool) {
	leases, known := v.lease.Now()
	return leases[record.Name(v.cfg.StatefulSet)], known
}

// ReadLease reads the Lease, live. It returns nil if there is none.
func (v *View) ReadLease(ctx context.Context) (*coordinationv1.Lease, error) {
	began := v.lease.Begin()
	lease, err := record.Read(ctx, v.cfg.Leases, v.cfg.StatefulSet)
	if lease != nil {
		v.lease.Read(began, lease.ResourceVersion, lease)
	}
	return lease, err
}

// FreeLease is the Lease as a watch tells it, if that tells that nobody holds the record. Whatever is written on that
// is a swap, which fails if the Lease has changed. Otherwise the Lease is read live: whoever has just handed over to us
// has given the record back, and the watch may not have told of that yet.
func (v *View) FreeLease(ctx context.Context) (*coordinationv1.Lease, error) {
	if lease, known := v.mirroredLease(); known && record.Parse(lease).Holder == "" {
		return lease, nil
	}
	return v.ReadLease(ctx)
}

// WroteLease is told what the Lease has become by a write of ours.
func (v *View) WroteLease(lease *coordinationv1.Lease) { v.lease.Wrote(lease) }

// ForgetLease is called when a write of ours was refused: somebody else has written the Lease.
func (v *View) ForgetLease() { v.lease.Forget() }
