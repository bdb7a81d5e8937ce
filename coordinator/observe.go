package coordinator

import (
	"context"
	"errors"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/quorate/quorate/internal/record"
	"github.com/quorate/quorate/internal/report"
	"github.com/quorate/quorate/internal/workload"
	"github.com/quorate/quorate/membership"
	"github.com/quorate/quorate/pkg/rollout"
	"github.com/quorate/quorate/selfupdate"
)

const (
	// unknownPatience is how long a coordinator observes a member that it cannot reach,
	// although its kubelet finds it well, before it lets another try.
	unknownPatience = 30 * time.Second
	// newsEvery bounds how often the Lease is written only to report news. While a rollout only waits for a pod that
	// was replaced, everything goes as planned, and plannedEvery is enough.
	newsEvery, plannedEvery = time.Second, 10 * time.Second
)

// sight is what was seen in the last observation, what was decided on it, and what is remembered of
// those before.
type sight struct {
	begun record.Instant
	// begunAt is the same by the wall clock.
	begunAt time.Time
	// read is the same on the monotonic clock, in a look that reads the pods live.
	read time.Time
	// etcdTook is how long etcd's members took to answer.
	etcdTook time.Duration
	seen     workload.Observation
	etcd     rollout.Membership
	decision rollout.Decision
	// awaits is since when, without a break, only the word of a sidecar has been missing: of one that we would hand
	// over to, or that proves that its pod stays up. It is zero if none is missing. settles is after how long time
	// alone settles a pod, zero if it settles none.
	awaits  time.Time
	settles time.Duration
	memory  *memory
	// untransferred are the transfers of leadership that had failed at the end of the last turn.
	untransferred rollout.Failures
	// suspect is the one that the record names, as last read or written.
	suspect *record.Member
	// brief is true in a turn that was not begun for a rollout: it ends when there is nothing to tell or to do.
	brief bool
	// pictured is true while a look goes by a picture, and wasPictured if the one before did.
	pictured, wasPictured bool
}

// awaitsAWord notes whether only the word of a sidecar is missing.
func (s *sight) awaitsAWord(is bool) {
	switch {
	case !is:
		s.awaits = time.Time{}
	case s.awaits.IsZero():
		s.awaits = time.Now()
	}
}

// observer looks at everything and decides.
type observer struct {
	c       *Coordinator
	exit    *exit
	hold    *hold
	sight   *sight
	trouble *trouble
	doubts  *doubts
	actor   *actor
	members *membership.Observer
	// fresh is until when looks may go by what the watches tell. Then everything is read live again. unread is true
	// from when that was put off because a rollout begins, to the next live reading.
	fresh  time.Time
	unread bool
	// promised are the pods of the last look for which a live reading began ahead, or might have (see promises).
	promised []rollout.Pod
}

// observe looks, and decides. As long as that leads to nothing, it asks etcd alone, and goes by what the watches tell
// of the rest. Nothing is done on that: it is confirmed by a live reading, or everything is read live.
func (o *observer) observe(ctx context.Context) record.Observed {
	for range 2 { // What was read live in vain has brought the picture up to date.
		p := o.picture()
		if p == nil {
			break
		}
		if said, sure := o.look(ctx, p); sure {
			return said
		}
	}
	said, _ := o.look(ctx, nil)
	return said
}

// look decides on a picture, or without one on what it reads live. It returns false if the picture was not true any
// more when something was to be done.
func (o *observer) look(ctx context.Context, p *picture) (_ record.Observed, sure bool) {
	failed := func(err error) (record.Observed, bool) {
		what := "the workload cannot be read"
		if errors.As(err, new(evictionForbidden)) {
			what = "the pod cannot be evicted"
		}
		o.trouble.note(ctx, what, err)
		return record.Observed{Outcome: record.Failed}, true
	}
	o.sight.begunAt, o.sight.read = o.c.cfg.wall().Round(0), time.Time{}
	if p == nil {
		o.sight.read = time.Now()
	}
	o.sight.begun, o.sight.wasPictured, o.sight.pictured = o.c.now(), o.sight.pictured, p != nil
	if p != nil && o.promises(p) {
		defer p.read(ctx, o.c)()
	}
	state, r, peers, err := o.see(ctx, p)
	if err != nil {
		return failed(err)
	}
	d, choice, same, err := o.judge(ctx, p, &state, peers)
	switch {
	case err != nil:
		return failed(err)
	case !same:
		return record.Observed{}, false
	}
	o.sight.etcd, o.sight.decision = state.Etcd, d
	seen := record.Observed{Outcome: record.Done, Begun: o.sight.begun, Record: r}
	said := o.next(seen, state.Set.UpdateRevision, peers, choice)
	said.Resolution = o.resolution(r, state)
	if o.sight.brief && state.Request == nil && r.Intent.Operation == record.None && !d.Beside() &&
		!outdated(o.sight.seen) && said.Next == record.NextRest && o.sight.settles == 0 {
		said.Next = record.NextFinish
	}
	if err := o.answer(ctx, r, said.Resolution, state); err != nil { // It runs out by itself.
		o.trouble.faults.note(o.c.log, "the request on the Lease cannot be removed", explain(err))
	}
	if said.Next == record.NextFinish && d.Action == (rollout.Complete{}) {
		if err := o.actor.promote(ctx); err != nil {
			o.trouble.note(ctx, "status.currentRevision was not set", err)
			return record.Observed{Outcome: record.Failed}, true
		}
	}
	if said.Next != record.NextHandOver {
		o.tell(state)
	}
	// Not in every cycle: what flickers is reported once a second.
	every := newsEvery
	if _, waits := d.Action.(rollout.Wait); waits &&
		(d.Guard == rollout.GuardTerminating || d.Guard == rollout.GuardUpdatedPending) {
		every = plannedEvery
	}
	said.News = o.c.journal.HasNews() && o.c.now()-o.hold.renewed >= every
	if said.Next != record.NextAct || said.Intent.Operation == record.MoveLeader {
		o.trouble.faults.clear() // A removal still has to succeed.
	}
	return said, true
}

// see gathers what there is to decide on, and follows what belongs to it from here on. The other sidecars are asked at
// the same time, so that a hanging member does not age the evidence twice.
func (o *observer) see(ctx context.Context, p *picture) (rollout.State, record.Record, []selfupdate.Peer, error) {
	var asked sync.WaitGroup
	var peers []selfupdate.Peer
	known := false
	asking, enough := context.WithCancel(ctx)
	defer enough()
	asked.Go(func() { peers, known = o.c.peers(asking) })
	state, r, err := o.gather(ctx, p)
	if state.Set.OnDelete && state.Etcd.Silent() {
		enough() // Nobody can say who else is here.
	}
	asked.Wait()
	if err != nil {
		return state, r, nil, err
	}
	state.Sidecars = selfupdate.Sidecars(peers, known || state.NoLock, record.Newest, state.Set, state.Pods,
		o.c.self.UID)
	o.c.workload.Follow(o.sight.seen)
	o.c.workload.FollowBudget()
	return state, r, peers, nil
}

// judge decides, and asks those who have a say in what was decided: the host's gates, the PodDisruptionBudget, and
// Kubernetes, whether the picture is still true. It returns false if it is not. If another sidecar is to go on with it,
// it returns that, and asks neither the budget nor Kubernetes.
func (o *observer) judge(ctx context.Context, p *picture, state *rollout.State, peers []selfupdate.Peer) (
	_ rollout.Decision, another selfupdate.Choice, same bool, _ error) {
	joined := rollout.Assess(*state, o.c.cfg.Policy)
	_, alarm := joined.Fullest()
	o.sight.memory.causes(state.Request, alarm)
	o.sight.memory.flapped(o.sight.seen)
	o.sight.memory.compared = o.sight.memory.compared.Look(time.Now(), state.Etcd)
	state.Memory = o.sight.memory.recall(time.Now(), o.sight.read, joined.Sightings(), state.Pods)
	d := joined.Decide(state.Memory)
	next, _ := record.NextOf(d, state.Set.UpdateRevision)
	if p != nil && o.c.gates.Any() && (next == record.NextAct || next == record.NextFinish) {
		// Nothing but a gate may be in the way, or it is the last word, which tells what the gates say.
		state.Gates = o.c.gates.Ask(ctx)()
		joined = rollout.Assess(*state, o.c.cfg.Policy)
		d = joined.Decide(state.Memory)
	}
	if another = o.choose(d, peers); another != (selfupdate.Choice{}) {
		return d, another, true, nil
	}
	ask := evicts(d.Action)
	switch allows, known := o.c.workload.BudgetAllows(); {
	case !ask || p == nil || !known || o.sight.memory.refusal != nil:
	case allows:
		ask = false // The eviction itself asks.
	case o.sight.memory.justReady(time.Now()):
		if ask = false; !o.budgetFrees(ctx) {
			state.RefusedEviction = notYet
			d = joined.Decide(state.Memory)
		}
	}
	var err error
	if ask && (p == nil || o.sight.memory.refusedLately(time.Now())) {
		if state.RefusedEviction, err = o.askBudget(ctx, d); err != nil {
			return d, another, true, err
		}
		d, ask = joined.Decide(state.Memory), false
	}
	if p == nil || !o.leads(d, state.Set.UpdateRevision) {
		return d, another, true, nil
	}
	same, refused, err := o.confirm(ctx, p, d, ask)
	if err != nil || !same || !ask {
		return d, another, same, err
	}
	state.RefusedEviction = refused
	return joined.Decide(state.Memory), another, true, nil
}

// leads is true for a decision on which something is removed, or anything else is done that Kubernetes has a say in. A
// change of leadership is between the members, who have just answered. What only changes the record needs no
// confirmation either: another coordinator, and the next rollout, look for themselves. But no rollout ends before
// something has been read live.
func (o *observer) leads(d rollout.Decision, revision string) bool {
	next, intent := record.NextOf(d, revision)
	return next == record.NextAct && intent.Operation != record.MoveLeader ||
		next == record.NextFinish && (o.unread || o.c.unpromoted(o.sight.seen))
}

// next adds to an observation what its decision asks of the record's protocol. Where another sidecar was to go on, the
// decision is not confirmed, so it stays with that, although a moment later it might be otherwise.
func (o *observer) next(said record.Observed, revision string, peers []selfupdate.Peer, choice selfupdate.Choice,
) record.Observed {
	d := o.sight.decision
	settles, announced := d.Assessment.Settles()
	o.exit.heir, o.sight.settles = nil, settles
	if choice == (selfupdate.Choice{}) {
		choice = o.choose(d, peers)
	}
	switch {
	case choice.To != nil:
		o.exit.heir = choice.To // Until the next observation, if the record cannot be given back.
		o.c.log.WithField("to", choice.To.Pod).Infof("handing over: %s", choice.Reason)
		o.c.journal.HandsOver(choice.To.Pod, choice.Reason)
		said.Next = record.NextHandOver
		return said
	case choice.Await != "":
		o.c.log.Debug(choice.Reason)
		o.sight.awaitsAWord(true)
		return said
	}
	o.sight.awaitsAWord(!announced)
	said.Next, said.Intent = record.NextOf(d, revision)
	return said
}

// choose says which sidecar goes on. One that has not seen a member for long lets another try.
func (o *observer) choose(d rollout.Decision, peers []selfupdate.Peer) selfupdate.Choice {
	now := time.Now()
	alone := !o.c.owned()
	another := o.c.self.Pod != "" && selfupdate.Anybody(peers)
	if alone {
		// While no voter serves, another sidecar sees no more than we do, unless we are the one that
		// is cut off. And the next coordinator has to start its patience with live processes again
		// (guard QuorumPatience), which takes far longer than our patience here.
		another = d.Assessment.Serving > 0 || d.Guard == rollout.GuardCutOff
	}
	unknown := o.sight.memory.unknown(now, d.Assessment, o.hold.intent.Call())
	switch {
	case unknown == "" || !another:
	case o.sight.pictured: // A member whose pod is gone is Down, and a watch may not have told of that.
		o.fresh = time.Time{}
	default:
		o.exit.giveUp(unknown+" has been Unknown to this sidecar for too long", unfitFor)
	}
	if alone {
		return selfupdate.Choice{} // Without a lock there is nothing to hand over.
	}
	return selfupdate.Choose(d, peers, o.sight.memory.ownPodNext(now, selfupdate.OwnPodNext(d)))
}

// gather reads everything live: the record, the workload, etcd, one after the other. The record
// comes first: a removal that it no longer names has had its effect by then, and the pods
// show it. The members are asked only when the pods are known, although that takes longer: a pod
// of ours that is going may still answer, and its successor must not count as serving for that.
// With a picture, only etcd is asked, and no gate. What confirms the picture shows the pods as they were then (see
// confirm).
func (o *observer) gather(ctx context.Context, p *picture) (rollout.State, record.Record, error) {
	live := p == nil
	var answers func() []rollout.Gate
	if live {
		answers = o.c.gates.Ask(ctx)
	}
	reading, cancel := context.WithTimeout(ctx, o.c.cfg.RequestTimeout)
	defer cancel()
	if live {
		p = &picture{}
		var err error
		if p.lease, err = o.c.workload.ReadLease(reading); err != nil {
			return rollout.State{}, record.Record{}, err
		}
		if p.seen, err = o.c.workload.Observe(reading); err != nil {
			return rollout.State{}, record.Record{}, err
		}
		if o.sight.wasPictured {
			o.sight.memory.doubt(o.sight.seen, p.seen) // The watches may have hung.
		}
		o.readLive()
	}
	lease, seen := p.lease, p.seen
	o.sight.seen = seen
	o.c.journal.Events.About(o.c.cfg.Namespace, seen.Set.Name, seen.Set.UID)
	r := o.doubts.trust(lease)
	state := rollout.State{
		Set: seen.Set, Pods: seen.Pods, Self: o.c.self.Pod, NoLock: !o.c.owned(),
		Controls: record.Controls(lease), UnderWay: r.UnderWay(), Suspect: r.Suspected(),
		InWindow: o.c.cfg.Policy.DefragmentWindow.Contains(time.Now()),
	}
	state.Request, _ = record.RequestOf(lease, time.Now()) // What is wrong with it is told with the rest.
	var nodesRead sync.WaitGroup
	if live {
		nodesRead.Go(func() { o.c.workload.ReadNodes(reading, &seen) })
	}
	var refused []string // The pods whose own address has refused a connection.
	if seen.Set.OnDelete {
		ask := o.members.Observe
		if state.Begins() { // The guard ListsAgree has something to say.
			ask = o.members.ObserveWithLists
		}
		var merr error
		began := o.c.now()
		heard := o.knock(ctx, seen)
		if state.Etcd, merr = ask(ctx); merr != nil {
			o.c.log.WithError(merr).Debug("no member list")
		}
		refused = heard()
		o.sight.etcdTook = o.c.now() - began
		if live {
			state.Gates = answers()
		}
	}
	nodesRead.Wait() // What the nodes say is added to the pods.
	state.Pods = withHeard(seen.Pods, refused)
	// Probes that failed because we are ending say nothing about the members.
	if err := ctx.Err(); err != nil {
		return rollout.State{}, record.Record{}, err
	}
	return state, r, nil
}

// budgetFrees waits until the budget allows the eviction, for as long as the next look would have to wait in any case
// (leastRest). Mostly that is long enough, and what this look has seen is then still new.
func (o *observer) budgetFrees(ctx context.Context) bool {
	over := time.NewTimer(o.sight.begun + leastRest - o.c.now())
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
func (o *observer) askBudget(ctx context.Context, d rollout.Decision) (rollout.Refusal, error) {
	t := d.Target()
	err := o.c.workload.AskBudget(ctx, o.sight.seen, t.Pod, t.UID, t.ResourceVersion)
	if refusal, refused := workload.RefusalOf(err, o.sight.seen.Set.Replicas); refused {
		o.c.log.WithError(err).Debug("an eviction would be refused")
		refusal.Moot = o.moot(ctx, refusal)
		o.c.journal.Done(report.Outcome{
			Intent: record.Intent{Operation: record.Evict}, Decision: d, Result: report.OutcomeBlocked,
		})
		return o.sight.memory.refuse(time.Now(), refusal), nil
	}
	if apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) {
		return rollout.Refusal{}, evictionForbidden{err}
	}
	return rollout.Refusal{}, nil
}

type evictionForbidden struct{ error }

func (e evictionForbidden) Unwrap() error { return e.error }

// moot asks what the budget that refused counts, where that matters: of a single member.
func (o *observer) moot(ctx context.Context, r rollout.Refusal) bool {
	if o.c.cfg.Budgets == nil || o.sight.seen.Set.Replicas != 1 {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, o.c.cfg.RequestTimeout)
	defer cancel()
	moot, err := o.sight.seen.Moot(ctx, o.c.cfg.Budgets, r)
	if err != nil {
		// Another sidecar has the same permissions, so this is no reason to let it try.
		o.trouble.faults.note(o.c.log, "what the PodDisruptionBudget counts cannot be read", explain(err))
	}
	return moot
}

// evicts is true for a removal through the eviction API.
func evicts(a rollout.Action) bool {
	remove, ok := a.(rollout.Remove)
	return ok && remove.Method == rollout.RemoveByEviction
}

// tell reports what was seen and decided. It does not report an eviction that is refused only
// for a moment, as happens when the budget has not noticed yet that a pod has become Ready. An
// eviction that is tried again does not end the wait for it either.
func (o *observer) tell(state rollout.State) {
	switch d := o.sight.decision; {
	case d.Guard == rollout.GuardDisruptionBudget && !o.sight.memory.refusedForLong():
		return
	case evicts(d.Action) && o.sight.memory.refusedForLong():
		return
	}
	o.c.journal.Decided(report.Sight{
		Namespace: o.c.cfg.Namespace, StatefulSet: o.c.cfg.StatefulSet,
		At:    time.Now().UTC().Truncate(time.Millisecond),
		State: state, Decision: o.sight.decision, Policy: &o.c.cfg.Policy,
		Coordinator: o.c.name(), Epoch: o.hold.epoch,
		Fallback: !o.c.owned() || o.c.election.Silent(o.c.cfg.FallbackAfter) <= 0,
	})
}

// rest forgets what was seen of pods. There are no observations from now on, so nothing would have been
// seen without a break. Members and cordons are looked at while the cluster idles as well.
func (o *observer) rest() {
	o.sight.untransferred = o.sight.memory.failedTransfers
	o.sight.memory = newMemory(o.sight.memory.lasting)
	o.promised = nil
	o.c.workload.UnfollowBudget()
	if !o.c.owned() {
		o.c.workload.Unfollow()
		o.c.workload.UnfollowLease()
	}
	o.c.remember(o.members.MemberURLs())
	o.members.Close()
}
