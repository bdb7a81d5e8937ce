package coordinator

import (
	"context"
	"errors"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/quorate/quorate/internal/record"
	"github.com/quorate/quorate/internal/workload"
	"github.com/quorate/quorate/membership"
	"github.com/quorate/quorate/pkg/rollout"
	"github.com/quorate/quorate/selfupdate"
)

// observation is what one look has seen. It is a value: what is added to it later, because a decision lacks it, makes
// another one.
type observation struct {
	moment
	// view is what the look goes by in place of what Kubernetes says live, nil if it is live.
	view *cachedView
	// etcdTook is how long etcd's members took to answer.
	etcdTook time.Duration
	workload workload.Observation
	// record is what is believed of the Lease, and odd is what makes no sense there.
	record record.Record
	odd    []string
	// state is what the decision rests on, but for what is remembered.
	state rollout.State
	// peers are the other sidecars.
	peers peers
	// promotable is true where the StatefulSet's status.currentRevision is behind, and we are to set it.
	promotable bool
	// unread is true where nothing has been read live since the rollout began.
	unread bool

	// gatesAsked is true once state has the answers of the host's gates.
	gatesAsked bool
	budget     budget
	// confirmed is true once a live reading has shown that the view is true. Otherwise changed is what it has shown.
	confirmed bool
	changed   *workload.Observation
	// faults are what failed without keeping the look from its end.
	faults []fault
}

// moment is when a look began. Nothing that is read for it is older. BegunAt is the same by the wall clock, and read is
// the same on the monotonic clock in a look that reads the pods live.
type moment struct {
	begun   record.Instant
	begunAt time.Time
	read    time.Time
}

// starts returns when a look begins, that is now.
func (o *observer) starts(live bool) moment {
	m := moment{begun: o.c.now(), begunAt: o.c.cfg.wall().Round(0)}
	if live {
		m.read = time.Now()
	}
	return m
}

// budget is what is known of the PodDisruptionBudget.
type budget struct {
	// allows is what the watch tells, if known.
	known, allows bool
	// asked is true once nothing more is to be found out about it, and answered if the API server has said so.
	asked, answered bool
	refusal         *rollout.Refusal
}

// peers are the other sidecars that take part in the election, if that is known.
type peers struct {
	all   []selfupdate.Peer
	known bool
}

// observer looks at Kubernetes, at etcd, and at the other sidecars, and writes nothing. Most looks go by what the
// watches tell, and ask etcd alone.
type observer struct {
	c       *Coordinator
	members *membership.Observer
	// fresh is until when looks may go by what the watches tell. Then everything is read live again. unread is true
	// from when that was put off because a rollout begins, to the next live reading.
	fresh  time.Time
	unread bool
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
		o.readLive()
	}
	seen := o.c.join(v.seen, v.lease, rollout.Membership{})
	seen.unread, seen.gatesAsked = o.unread, live
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
		heard := o.knock(ctx, v.seen)
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

// join puts together what was read. It is the one place where a coordinator makes the state that a decision rests on.
func (c *Coordinator) join(w workload.Observation, lease *coordinationv1.Lease, etcd rollout.Membership) observation {
	o := observation{workload: w}
	o.record, o.odd = validate(lease, w.Set, w.Pods, c.cfg.RecordDuration)
	o.state, _ = record.StateOf(w.Set, w.Pods, etcd, lease, o.record, time.Now()) // What is wrong with it is told.
	o.state.Self, o.state.NoLock = c.self.Pod, !c.owned()
	o.state.InWindow = c.cfg.Policy.DefragmentWindow.Contains(time.Now())
	o.promotable = c.promotable(w.Set)
	return o
}

// know adds who else is there.
func (o *observer) know(seen *observation, others peers) {
	seen.peers = others
	seen.state.Sidecars = selfupdate.Sidecars(others.all, others.known || seen.state.NoLock, record.Newest,
		seen.state.Set, seen.state.Pods, o.c.self.UID)
}

// promotable is true when status.currentRevision is behind, and we are to set it.
func (c *Coordinator) promotable(set rollout.Set) bool {
	return c.cfg.PromoteCurrentRevision && set.Unpromoted() && c.notPromoted != set.UpdateRevision
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
