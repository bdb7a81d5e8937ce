package coordinator

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/quorate/quorate/internal/record"
	"github.com/quorate/quorate/internal/workload"
	"github.com/quorate/quorate/membership"
	"github.com/quorate/quorate/pkg/rollout"
	"github.com/quorate/quorate/selfupdate"
)

// starts returns when a look begins, that is now.
func (o *observer) starts(live bool) moment {
	m := moment{begun: o.c.now(), begunAt: o.c.cfg.wall().Round(0)}
	if live {
		m.read = time.Now()
	}
	return m
}

// observer looks at Kubernetes, at etcd, and at the other sidecars, and writes nothing. Most looks go by what the
// watches tell, and ask etcd alone.
type observer struct {
	c       *Coordinator
	members *membership.Observer
	fresh   freshness
}

// observe looks at everything, and follows what belongs to it from here on. With a view, only etcd is asked, and no
// gate. The other sidecars are asked at the same time, so that a hanging member does not age the evidence twice.
func (o *observer) observe(ctx context.Context, v *cachedView, began moment) (observation, error) {
	var asked sync.WaitGroup
	var others peers
	asking, enough := context.WithCancel(ctx)
	defer enough()
	asked.Go(func() { others.all, others.known = o.c.peers(asking) })
	seen, err := o.gather(ctx, v)
	if seen.state.Set.OnDelete && seen.state.Etcd.Silent() {
		enough() // Nobody can say who else is here.
	}
	asked.Wait()
	if err != nil {
		return observation{}, err
	}
	seen.moment, seen.view = began, v
	o.know(&seen, others)
	seen.budget.allows, seen.budget.known = o.c.workload.BudgetAllows()
	o.c.workload.Follow(seen.workload)
	o.c.workload.FollowBudget()
	return seen, nil
}

// cached returns nil if there is no view of everything: something is not being watched, nothing was read live for long,
// or there is more to do than to roll.
func (o *observer) cached() *cachedView {
	cached := o.c.workload.Cached()
	if !cached.Complete() || o.fresh.stale() {
		return nil
	}
	r := record.Parse(cached.Lease)
	if r.Intent.Operation != record.None || r.Suspect != nil || record.Requested(cached.Lease) != "" {
		return nil
	}
	return &cachedView{lease: cached.Lease, seen: cached.Seen}
}

// gather reads everything live: the record, the workload, etcd, one after the other. The record
// comes first: a removal that it no longer names has had its effect by then, and the pods
// show it. The members are asked only when the pods are known, although that takes longer: a pod
// of ours that is going may still answer, and its successor must not count as serving for that.
// What confirms a view shows the pods as they were then (see confirm).
func (o *observer) gather(ctx context.Context, v *cachedView) (observation, error) {
	live := v == nil
	var answers func() []rollout.Gate
	if live {
		answers = o.c.gates.Ask(ctx)
	}
	reading, cancel := context.WithTimeout(ctx, o.c.cfg.RequestTimeout)
	defer cancel()
	if live {
		v = &cachedView{}
		var err error
		if v.lease, err = o.c.workload.ReadLease(reading); err != nil {
			return observation{}, err
		}
		if v.seen, err = o.c.workload.Observe(reading); err != nil {
			return observation{}, err
		}
	}
	if live {
		o.fresh.readLive()
	}
	seen := o.c.join(v.seen, v.lease, rollout.Membership{})
	seen.unread, seen.gatesAsked = o.fresh.unread, live
	var nodesRead sync.WaitGroup
	if live {
		nodesRead.Go(func() { o.c.workload.ReadNodes(reading, &seen.workload) })
	}
	var refused []string // The pods whose own address has refused a connection.
	if seen.state.Set.OnDelete {
		ask := o.members.Observe
		if seen.state.Begins() { // The guard ListsAgree has something to say.
			ask = o.members.ObserveWithLists
		}
		began := o.c.now()
		heard := o.c.knock(ctx, v.seen, o.members.MemberURLs())
		var err error
		if seen.state.Etcd, err = ask(ctx); err != nil {
			o.c.log.WithError(err).Debug("no member list")
		}
		refused = heard()
		seen.etcdTook = o.c.now() - began
		if live {
			seen.state.Gates = answers()
		}
	}
	nodesRead.Wait() // What the nodes say is added to the pods.
	seen.state.Pods = withHeard(seen.workload.Pods, refused)
	// Probes that failed because we are ending say nothing about the members.
	if err := ctx.Err(); err != nil {
		return seen, err
	}
	return seen, nil
}

// know adds who else is there.
func (o *observer) know(seen *observation, others peers) {
	seen.peers = others
	seen.state.Sidecars = selfupdate.Sidecars(others.all, others.known || seen.state.NoLock, record.Newest,
		seen.state.Set, seen.state.Pods, o.c.self.UID)
}

// add finds out what a decision lacks, and returns the observation with that.
func (o *observer) add(ctx context.Context, seen observation, d *decision) (observation, error) {
	switch d.lacks {
	case gatesAnswers:
		seen.gatesAsked = true
		seen.state.Gates = o.c.gates.Ask(ctx)()
		seen.budget.allows, seen.budget.known = o.c.workload.BudgetAllows()
	case budgetsChange:
		seen.budget.asked = true
		if !o.budgetFrees(ctx, seen.begun) {
			seen.budget.refusal = &notYet
		}
	case budgetsAnswer:
		var err error
		seen.budget, seen.faults, err = o.askBudget(ctx, &seen, d)
		return seen, err
	case confirmation, confirmationAndBudget:
		return o.confirm(ctx, seen, d)
	case nothing:
	}
	return seen, nil
}

// confirm reads live what was decided on by a cached view, and meanwhile asks for the eviction. If anything has
// changed, it returns what is there now.
//
// If nothing has, the evidence is as good as that of a live look, which reads the pods before it asks the members. No
// resourceVersion ever comes back, so the pods were as they were told and read when the members were asked. It does not
// matter whether the reading was over before the members had answered. The record needs no reading, because whatever is
// done begins with a swap, which fails if the Lease has changed.
func (o *observer) confirm(ctx context.Context, seen observation, d *decision) (observation, error) {
	reading, cancel := context.WithTimeout(ctx, o.c.cfg.RequestTimeout)
	defer cancel()
	var asking sync.WaitGroup
	var berr error
	said, faults := seen.budget, seen.faults
	if d.lacks == confirmationAndBudget {
		asking.Go(func() { said, faults, berr = o.askBudget(ctx, &seen, d) })
	}
	defer seen.view.read(ctx, o.c)()
	now, err := seen.view.live.Wait()
	if err == nil {
		o.c.workload.ReadNodes(reading, &now)
	}
	asking.Wait()
	if seen.budget, seen.faults = said, faults; cmp.Or(err, berr) != nil {
		return seen, cmp.Or(err, berr)
	}
	if !now.Same(seen.view.seen) {
		seen.changed = &now
		return seen, nil
	}
	o.fresh.readLive()
	seen.workload, seen.confirmed, seen.unread = now, true, false
	return seen, nil
}

// budgetFrees waits until the budget allows the eviction, for as long as the next look would have to wait in any case
// (leastRest). Mostly that is long enough, and what this look has seen is then still new.
func (o *observer) budgetFrees(ctx context.Context, begun record.Instant) bool {
	over := time.NewTimer(begun + leastRest - o.c.now())
	defer over.Stop()
	other := false // News that the next look is to have.
	defer func() {
		if other {
			o.c.trigger()
		}
	}()
	for ; ; other = true {
		select {
		case <-ctx.Done():
			return false
		case <-over.C:
			return false
		case <-o.c.changed:
			if allows, known := o.c.workload.BudgetAllows(); allows {
				return true
			} else if !known {
				over.Reset(0)
			}
		}
	}
}

// notYet is while the disruption controller has not seen yet that a pod has become Ready. The watch on the budget tells
// when it has.
var notYet = rollout.Refusal{Words: "the PodDisruptionBudget does not allow it yet"}

// askBudget is part of the observation: it asks whether the eviction that was decided on would
// be granted. So an eviction that is refused, and tried again and again, never stands on record
// and changes no pod. An error means that evictions are forbidden. Any other reason for having
// no answer shows when the eviction is sent.
func (o *observer) askBudget(ctx context.Context, seen *observation, d *decision) (budget, []fault, error) {
	t, said, faults := d.Target(), seen.budget, seen.faults
	said.asked = true
	err := o.c.workload.AskBudget(ctx, seen.workload, t.Pod, t.UID, t.ResourceVersion)
	if refusal, refused := workload.RefusalOf(err, seen.state.Set.Replicas); refused {
		o.c.log.WithError(err).Debug("an eviction would be refused")
		var unread error
		if refusal.Moot, unread = o.moot(ctx, seen, refusal); unread != nil {
			// Another sidecar has the same permissions, so this is no reason to let it try.
			faults = append(faults, fault{what: "what the PodDisruptionBudget counts cannot be read",
				err: explain(unread)})
		}
		said.answered, said.refusal = true, &refusal
		return said, faults, nil
	}
	if workload.Denied(err) {
		return said, faults, evictionForbidden{err}
	}
	return said, faults, nil
}

type evictionForbidden struct{ error }

func (e evictionForbidden) Unwrap() error { return e.error }

func isEvictionForbidden(err error) bool { return errors.As(err, new(evictionForbidden)) }

// moot asks what the budget that refused counts, where that matters: of a single member.
func (o *observer) moot(ctx context.Context, seen *observation, r rollout.Refusal) (bool, error) {
	if o.c.cfg.Budgets == nil || seen.state.Set.Replicas != 1 {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, o.c.cfg.RequestTimeout)
	defer cancel()
	return seen.workload.Moot(ctx, o.c.cfg.Budgets, r)
}

// rest ends what looks during a turn need. Members and cordons are looked at while the cluster idles as well.
func (o *observer) rest() {
	o.c.workload.UnfollowBudget()
	if !o.c.owned() {
		o.c.workload.Unfollow()
		o.c.workload.UnfollowLease()
	}
	o.c.remember(o.members.MemberURLs())
	o.members.Close()
}
