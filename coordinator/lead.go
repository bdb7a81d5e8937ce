package coordinator

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/quorate/quorate/internal/membership"
	"github.com/quorate/quorate/internal/record"
	"github.com/quorate/quorate/internal/report"
	"github.com/quorate/quorate/internal/rollout"
	"github.com/quorate/quorate/internal/selfupdate"
	"github.com/quorate/quorate/internal/workload"
)

const (
	// unfitAfter is after how many failures in a row a coordinator lets another try.
	unfitAfter = 5
	// unfitFor is how long it then stays away, the first time; it doubles each time.
	// What is forbidden is not allowed again by itself.
	unfitFor, forbiddenFor, longestUnfit = 10 * time.Second, 5 * time.Minute, 30 * time.Minute
	// unknownPatience is how long a coordinator looks at a member that it cannot reach,
	// although its kubelet finds it well, before it lets another look.
	unknownPatience = 30 * time.Second
	// leastRest is the shortest time from the begin of one observation to that of the next: it
	// keeps a burst of news from becoming a burst of observations. After one that took longer
	// there is shortRest, so that a slow API server is never asked without a pause.
	leastRest = 50 * time.Millisecond
	shortRest = 10 * time.Millisecond
	// firstLineUpLook is how soon a coordinator that waits for nothing but a sidecar to hand over
	// to looks again whether it has lined up, and then after twice that: no watch tells of it.
	firstLineUpLook = 100 * time.Millisecond
	// newsEvery bounds how often the Lease is written only to tell its readers something.
	newsEvery = time.Second
	// slowdown is for what waits for an operator: a hold, or a partition.
	slowdown = 5
	// lateWrites is for how long a claim may still be written after somebody has given up on it,
	// or has ended: twice as long as an API server lets a request take.
	lateWrites = 2 * time.Minute
)

// leader watches over the rollouts for as long as it is our turn. By what right it claims the
// record is decided anew for each claim; a claim that stands needs neither the lock nor a session,
// and lasts until another takes the record over.
type leader struct {
	*Coordinator
	// right is that of the last claim.
	right   record.Right
	members *membership.Observer
	memory  *memory
	faults  faults
	// aged counts the decisions in a row that were dropped because of their evidence's age.
	aged faults

	// first is true until it has seen that nothing is to be done, and again when it could
	// not finish what was: the record may say that a rollout is under way of which the
	// pods show nothing any more. Until then a claim of which nobody knows may still be written,
	// an earlier leader's or our own: what is seen before is not the last word, and no watch tells
	// of the Lease.
	first bool
	until time.Time
	// renewed is when the record was last written by us.
	renewed record.Instant
	// since is when an outdated pod was first seen.
	since time.Time

	watchPods func(ctx context.Context, selector string)
	watched   string
	unwatch   context.CancelFunc

	// begun, seen, etcd and decision are those of the last observation, and etcdTook is how
	// long etcd's members took to answer in it.
	begun    record.Instant
	etcdTook time.Duration
	seen     workload.Observation
	etcd     rollout.Membership
	decision rollout.Decision
	// awaits counts the looks in a row in which only the sidecar was missing to which we would
	// hand over.
	awaits int
	// coordinated is true once the record has been claimed.
	coordinated bool
	// epoch is that of our claim, underWay the removal on record, and unclear says that
	// nobody knows how our own last one ended.
	epoch    int
	underWay record.Intent
	unclear  bool
	// holding is true while the record is ours.
	holding bool
	// denied is why the lock could not be shown to be ours, and unanswered is true when that was
	// because etcd did not answer.
	denied     error
	unanswered bool
	// stopping is true while the record is given back because we were told to stop.
	stopping bool
	// odd is what was last told of what makes no sense on the Lease.
	odd string

	// over ends it; heir is who goes on, unfit why we cannot, and for how long; leaving
	// is true when our own pod has been removed.
	over     bool
	leaving  bool
	heir     *selfupdate.Peer
	unfit    string
	unfitFor time.Duration
}

func (c *Coordinator) leader() *leader {
	return &leader{
		Coordinator: c, members: c.observer(), memory: newMemory(), first: true, until: time.Now().Add(lateWrites),
		faults: c.account.faults(report.AtRollout), aged: c.account.faults(report.AtEvidence),
	}
}

// lead waits for rollouts and carries them out, until ctx ends or another shall go on.
func (l *leader) lead(ctx context.Context) {
	ending, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	defer context.AfterFunc(ctx, func() { wait(ending, releaseTimeout/4, nil); end() })()
	ctx, cancel := context.WithCancel(ctx)
	var watches sync.WaitGroup
	defer watches.Wait()
	defer cancel()
	watches.Go(func() {
		changed, failed, ended := l.watching(report.AtWatchSet, "the StatefulSet")
		defer ended()
		l.workload.WatchSet(ctx, changed, failed)
	})
	l.watchPods = func(ctx context.Context, selector string) {
		watches.Go(func() {
			changed, failed, ended := l.watching(report.AtWatchPods, "the pods")
			defer ended()
			l.workload.WatchPods(ctx, selector, changed, failed)
		})
	}
	defer l.account.rests()
	defer l.faults.clear() // Whoever leads next counts its own.
	defer l.aged.clear()
	defer l.believes()
	defer l.rest()
	for first := true; ctx.Err() == nil && !l.over && l.ourTurn(); {
		due, err := l.look(ctx)
		switch {
		case err != nil:
			l.fail(ctx, "the workload cannot be read", err)
		case !due:
			l.faults.clear()
			l.since, first = time.Time{}, false
			l.idle(ctx)
		default:
			if l.since.IsZero() {
				l.since = time.Now()
				if first {
					// It may have begun long before we looked, and whoever had the lock before etcd
					// fell silent has had its time.
					l.since = l.place.silentSince(l.since)
				}
			}
			first = false
			var left time.Duration
			if l.right, left = l.claims(); left > 0 {
				wait(ctx, left, l.changed)
				continue
			}
			l.roll(ctx, ending)
		}
	}
}

// ourTurn: the lock is ours, or etcd does not say whose it is.
func (l *leader) ourTurn() bool {
	return l.place.owned() != nil || l.place.silent(l.cfg.FallbackAfter) <= 0
}

// idle waits for news of a rollout, for as long as it is our turn. No watch tells of the Lease: while
// a claim may still land late, it only waits until that is over.
func (l *leader) idle(ctx context.Context) {
	look := time.NewTicker(l.cfg.FallbackAfter)
	defer look.Stop()
	for l.ourTurn() {
		select {
		case <-ctx.Done():
			return
		case <-l.changed:
			return
		case <-look.C: // Keep-alives may be answered again.
			if l.first && !time.Now().Before(l.until) {
				return // For a last word on what the record says.
			}
		}
	}
}

// claims says by what right the record may be claimed, and how long that still has to wait. The
// lock counts until etcd has confirmed nothing for a while and does not answer for it either.
// That a session still lives says nothing: it outlives quorum by its time to live.
func (l *leader) claims() (record.Right, time.Duration) {
	confirmed := l.place.confirmed()
	silent := time.Since(confirmed)
	if l.place.owned() != nil && (!l.unanswered || silent < l.cfg.FallbackAfter) {
		return record.ByLock, 0
	}
	return record.ByClock, l.cfg.FallbackAfter - min(silent, time.Since(l.since))
}

// look is cheap: it tells from what Kubernetes says alone whether a rollout is due or
// under way, so that an idle cluster costs etcd nothing.
func (l *leader) look(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, l.cfg.RequestTimeout)
	defer cancel()
	o, err := l.workload.Observe(ctx)
	if err != nil {
		return false, err
	}
	l.account.about(l.cfg.Namespace, o.Set)
	l.seen = o
	due := outdated(o) || l.unpromoted(o)
	if !due && l.first && o.Set.OnDelete {
		lease, err := record.Read(ctx, l.cfg.Leases, l.cfg.StatefulSet)
		if err != nil {
			return false, err
		}
		r := l.trust(lease)
		due = r.Rolling || r.Holder != "" || r.Intent.Operation != record.None
	}
	if !due {
		l.first = time.Now().Before(l.until)
	}
	return due, nil
}

// outdated is true when a rollout of ours begins.
func outdated(o workload.Observation) bool {
	if !o.Set.OnDelete || o.Set.Deleting {
		return false
	}
	if o.Set.ObservedGeneration < o.Set.Generation {
		return true
	}
	for i := range o.Pods {
		if o.Pods[i].Owned && o.Pods[i].Revision != o.Set.UpdateRevision {
			return true
		}
	}
	return false
}

// roll carries out what the record's protocol asks for, from the claim to its end.
// While nothing is under way it can be stopped. Ending ends a moment after ctx, for what must not be
// torn by the end.
func (l *leader) roll(ctx, ending context.Context) {
	protocol := l.protocol
	protocol.Later = l.later()
	state, effect := protocol.Step(l.record, record.Start{Right: l.right}, l.now())
	carrying, swapping := ctx, ending
	for l.stopping = false; ; {
		if end, ok := effect.(record.End); ok {
			l.record = state
			l.rest()
			l.ended(ctx, end)
			return
		}
		if l.leaving && l.place.owned() != nil {
			// Our own pod goes. The record stays as it is, as after a crash: so whoever has
			// the lock next knows that a rollout is under way, and ends it.
			l.rest()
			return
		}
		var event record.Event = record.Stop{}
		if stop := ctx.Err() != nil || l.over; !stop || l.stopping {
			doing := carrying
			if _, swap := effect.(record.WriteLease); swap {
				doing = swapping // Of a claim that is torn nobody would know that it has to be given back.
			}
			event = l.do(doing, effect)
		} else {
			// That has to be quick when ctx ends: the lock is to be given back as well.
			var done context.CancelFunc
			carrying, done = context.WithTimeout(ending, l.cfg.RequestTimeout)
			defer done()
			swapping, l.stopping = carrying, true
		}
		claimed, pausing := state.Claimed(), state.Pausing
		state, effect = protocol.Step(state, event, l.now())
		switch effect.(type) {
		case record.Act:
			l.aged.clear()
		default:
			if _, ok := event.(record.LeaseWritten); ok && state.Pausing && !pausing {
				l.tooOld(ctx)
			}
		}
		l.renewed, l.epoch, l.underWay, l.holding = state.Renewed, state.Epoch, state.Lease.Intent, state.Claimed()
		if state.Claimed() && !claimed {
			l.coordinated = true
			l.account.coordinates(l.name(), state.Epoch)
			l.log.WithFields(logrus.Fields{"by": l.right.String(), "epoch": state.Epoch}).Info("this sidecar coordinates now")
		}
	}
}

// rest forgets what was seen: from here on nobody looks, so that it could not be said
// of anything that it was seen without a break.
func (l *leader) rest() {
	l.memory = newMemory()
	l.unfollow()
	l.remember(l.members.MemberURLs())
	l.members.Close()
}

// ended says what becomes of us after a claim has ended.
func (l *leader) ended(ctx context.Context, end record.End) {
	l.first = end.Ended != record.Finished
	if l.first || l.place.owned() == nil {
		l.account.rests()
	} else {
		l.account.finished()
	}
	switch end.Ended {
	case record.Finished:
		l.faults.clear()
		l.believes()
		l.Coordinator.unfit = 0
		l.idle(ctx)
	case record.HandedOver, record.Stopped:
		l.over = true
	case record.Lost:
		l.log.Infof("%s; this sidecar drops what it was about to do", end.Detail)
		l.pause(ctx, l.cfg.Interval)
	case record.NoRight:
		switch {
		case l.right == record.ByClock:
			l.log.Debug(end.Detail)
			l.pause(ctx, l.cfg.Interval)
		case errors.Is(l.denied, errNotOurs):
			l.log.Warn("the lock was taken away")
			l.over = true
		case l.denied != nil:
			l.note(ctx, "etcd does not say whether the lock is ours", l.denied)
			if _, left := l.claims(); left > 0 || l.right == record.ByLock {
				wait(ctx, max(min(l.faults.pause, l.cfg.FallbackAfter-time.Since(l.place.confirmed())), shortRest), nil)
			}
		}
	case record.Unwritable:
		// What failed has been noted where it did.
		l.until = time.Now().Add(lateWrites)
		l.pause(ctx, max(l.faults.pause, firstPause))
	case record.Newer:
		if l.place.owned() != nil {
			l.giveUp(end.Detail, forbiddenFor)
			return
		}
		l.faults.note(l.log, "the record is not ours to write", errors.New(end.Detail))
		l.pause(ctx, longestPause)
	}
}

// do carries out one effect.
func (l *leader) do(ctx context.Context, effect record.Effect) record.Event {
	switch e := effect.(type) {
	case record.ReadLease:
		begun := l.now()
		reading, cancel := context.WithTimeout(ctx, l.cfg.RequestTimeout)
		defer cancel()
		lease, err := record.Read(reading, l.cfg.Leases, l.cfg.StatefulSet)
		if lease != nil {
			l.account.recall(lease.Annotations, record.Parse(lease).Epoch)
		}
		return record.LeaseRead{Outcome: l.read(ctx, "the record cannot be read", err), Lease: l.trust(lease), Begun: begun}
	case record.CheckRight:
		return record.RightChecked{Held: l.owns(ctx)}
	case record.WriteLease:
		return l.write(ctx, e.Lease)
	case record.ListPods:
		l.log.Info("the record does not say what was under way before: every pod is changed once, so that a removal that nobody knows of has no effect any more")
		reading, cancel := context.WithTimeout(ctx, l.cfg.RequestTimeout)
		defer cancel()
		pods, err := l.workload.Fenceable(reading)
		return record.PodsListed{Outcome: l.read(ctx, "the pods cannot be listed", err), Pods: pods}
	case record.FencePod:
		return l.fence(ctx, e)
	case record.Observe:
		return l.observe(ctx)
	case record.Act:
		return record.Acted{Outcome: l.act(ctx, e)}
	case record.Rest:
		l.wait(ctx, e.Failed)
		return record.Woken{}
	}
	panic(fmt.Sprintf("the record's protocol asks for %T, which nobody knows", effect))
}

// owns asks etcd whether the lock is ours.
func (l *leader) owns(ctx context.Context) bool {
	t := l.place.owned()
	if t == nil {
		l.denied = nil // The session has ended meanwhile.
		return false
	}
	l.denied = t.owns(ctx)
	l.unanswered = l.denied != nil && !errors.Is(l.denied, errNotOurs)
	return l.denied == nil
}

// later is for how much longer than others the record has to be free before this sidecar claims
// it by the clock: who could not go on before lets those try first that could.
func (l *leader) later() time.Duration {
	if until, reason := l.place.staysAway(); reason != "" && time.Now().Before(until) {
		return l.cfg.RecordDuration
	}
	return 0
}

// read notes a failed reading.
func (l *leader) read(ctx context.Context, what string, err error) record.Outcome {
	if err == nil {
		return record.Done
	}
	l.note(ctx, what, err)
	return record.Failed
}

// write writes the record.
func (l *leader) write(ctx context.Context, r record.Lease) record.LeaseWritten {
	writing, cancel := context.WithTimeout(ctx, min(l.cfg.RequestTimeout, l.cfg.MaxEvidenceAge))
	defer cancel()
	version, err := record.Write(writing, l.cfg.Leases, l.cfg.StatefulSet, r, l.account.notes())
	if apierrors.IsInvalid(err) || apierrors.IsRequestEntityTooLargeError(err) {
		// Annotations of others may leave no room for what we tell. It is the record that counts.
		l.log.WithError(err).Debug("the Lease takes no notes")
		version, err = record.Write(writing, l.cfg.Leases, l.cfg.StatefulSet, r, nil)
	}
	outcome := record.OutcomeOf(err)
	switch outcome {
	case record.Done:
		l.account.written()
	case record.Refused:
		l.log.WithError(err).Debug("somebody else has written the record")
	case record.Failed, record.Unclear:
		if l.stopping {
			l.log.WithError(explain(err)).Warn("the record could not be given back; whoever has the lock does not wait for that, without a lock another may claim it after its duration")
			break
		}
		l.note(ctx, "the record cannot be written", err)
	}
	return record.LeaseWritten{Outcome: outcome, ResourceVersion: version}
}

func (l *leader) fence(ctx context.Context, e record.FencePod) record.PodFenced {
	writing, cancel := context.WithTimeout(ctx, l.cfg.RequestTimeout)
	defer cancel()
	version, err := l.workload.Fence(writing, e.Pod, e.Value)
	outcome := record.OutcomeOf(err)
	switch outcome {
	case record.Done:
		const told = "an earlier removal of this pod has no effect from here on"
		switch {
		case l.underWay.UID != e.Pod.UID: // Nobody knows whether there was one at all.
			l.log.WithField("pod", e.Pod.Name).Debug("a removal of this pod, if there was one, has no effect from here on")
		case l.underWay.Epoch != l.epoch || l.unclear:
			l.log.WithField("pod", e.Pod.Name).Info(told)
			l.account.stale()
		default: // The API server has said no, and only to be sure is it ruled out.
			l.log.WithField("pod", e.Pod.Name).Debug(told)
		}
	case record.Refused:
		if l.underWay.UID != e.Pod.UID {
			l.log.WithField("pod", e.Pod.Name).Debug("this pod has gone, by whatever hand")
			break
		}
		l.log.WithField("pod", e.Pod.Name).Info("an earlier removal of this pod has taken effect")
		l.account.foundRemoved(l.underWay)
	case record.Failed, record.Unclear:
		l.note(ctx, "an earlier removal cannot be ruled out", err)
	}
	return record.PodFenced{Outcome: outcome, ResourceVersion: version}
}

// observe reads everything live, and decides.
func (l *leader) observe(ctx context.Context) record.Observed {
	l.begun = l.now()
	// Asked at the same time, so that a member that hangs does not age the evidence twice.
	var asked sync.WaitGroup
	var peers []selfupdate.Peer
	asked.Go(func() { peers = l.peers(ctx) })
	state, r, selector, err := l.gather(ctx)
	asked.Wait()
	if err != nil {
		l.note(ctx, "the workload cannot be read", err)
		return record.Observed{Outcome: record.Failed}
	}
	l.follow(ctx, selector)
	joined := rollout.Assess(state, l.cfg.Policy)
	state.Memory = l.memory.recall(time.Now(), joined.Sightings())
	d := joined.Decide(state.Memory)
	if evicts(d.Action) {
		if state.RefusedEviction, err = l.askBudget(ctx, d); err != nil {
			l.note(ctx, "the pod cannot be evicted", err)
			return record.Observed{Outcome: record.Failed}
		}
		d = joined.Decide(state.Memory)
	}
	l.etcd, l.decision = state.Etcd, d
	o := l.plan(record.Observed{Outcome: record.Done, Begun: l.begun, Lease: r}, state.Set.UpdateRevision, peers)
	if o.Next == record.NextFinish && d.Action == (rollout.Complete{}) {
		if err := l.promote(ctx); err != nil {
			l.note(ctx, "status.currentRevision was not set", err)
			return record.Observed{Outcome: record.Failed}
		}
	}
	if o.Next != record.NextHandOver {
		l.tell(state)
	}
	// Not in every cycle: what flickers is told once a second.
	o.News = l.account.hasNews() && l.now()-l.renewed >= newsEvery
	if o.Next != record.NextAct || o.Intent.Operation == record.MoveLeader {
		l.faults.clear() // A removal has yet to succeed.
	}
	return o
}

// plan says what the last decision asks of the record's protocol.
func (l *leader) plan(o record.Observed, revision string, peers []selfupdate.Peer) record.Observed {
	d := l.decision
	l.heir = nil
	choice := l.choose(d, peers)
	switch {
	case choice.To != nil:
		l.heir = choice.To // Until the next look, if the record cannot be given back.
		l.log.WithField("to", choice.To.Pod).Infof("handing over: %s", choice.Reason)
		l.account.handsOver(choice.To.Pod, choice.Reason)
		o.Next = record.NextHandOver
		return o
	case choice.Await != "":
		l.log.Debug(choice.Reason)
		l.awaits++
		return o
	}
	l.awaits = 0
	o.Next, o.Intent = record.NextOf(d, revision)
	return o
}

// peers are the other sidecars that take part in the election. Without a lock there is
// nothing to hand over, and outside a member's pod no need to.
func (l *leader) peers(ctx context.Context) []selfupdate.Peer {
	t := l.place.owned()
	if t == nil || l.self.Pod == "" {
		return nil
	}
	peers, err := t.peers(ctx)
	if err != nil {
		l.log.WithError(err).Debug("nobody to hand over to")
	}
	return peers
}

// choose says who goes on. Whoever cannot see a member for long lets another look.
func (l *leader) choose(d rollout.Decision, peers []selfupdate.Peer) selfupdate.Choice {
	now := time.Now()
	alone := l.place.owned() == nil
	another := selfupdate.Anybody(peers)
	if alone {
		// While no voter serves, nobody sees more, unless it is we who are cut off. And whoever
		// goes on after us has to be patient with live processes from the beginning (guard
		// QuorumPatience), which takes far longer than our patience here.
		another = d.Assessment.Serving > 0 || d.Guard == rollout.GuardCutOff
	}
	if unknown := l.memory.unknown(now, d.Assessment); unknown != "" && another {
		l.giveUp(fmt.Sprintf("%s has been Unknown to this sidecar for %v", unknown, unknownPatience), unfitFor)
	}
	if alone {
		return selfupdate.Choice{} // Without a lock there is nothing to hand over.
	}
	return selfupdate.Choose(d, peers, l.memory.ownPodNext(now, selfupdate.OwnPodNext(d)))
}

// gather reads everything live: the record, the workload, etcd, one after the other. The record
// comes first: a removal that it does not name any more has had its effect by then, and the pods
// show it. The members are asked only when the pods are known, although that takes longer: a pod
// of ours that is going may still answer, and its successor must not count as serving for that.
func (l *leader) gather(ctx context.Context) (rollout.State, record.Lease, string, error) {
	grace := time.Now().Add(answerGrace)
	asked := l.gates.ask(ctx, l.trigger)
	reading, cancel := context.WithTimeout(ctx, l.cfg.RequestTimeout)
	defer cancel()
	lease, err := record.Read(reading, l.cfg.Leases, l.cfg.StatefulSet)
	if err != nil {
		return rollout.State{}, record.Lease{}, "", err
	}
	o, err := l.workload.Observe(reading)
	if err != nil {
		return rollout.State{}, record.Lease{}, "", err
	}
	l.seen = o
	l.account.about(l.cfg.Namespace, o.Set)
	state := rollout.State{
		Set: o.Set, Pods: o.Pods, Self: l.self.Pod, Controls: record.Controls(lease),
	}
	if o.Set.OnDelete {
		var merr error
		began := l.now()
		if state.Etcd, merr = l.members.Observe(ctx); merr != nil {
			l.log.WithError(merr).Debug("no member list")
		}
		l.etcdTook = l.now() - began
		state.Gates = l.gates.answers(ctx, asked, grace)
	}
	// Probes that failed because we are ending say nothing about the members.
	if err := ctx.Err(); err != nil {
		return rollout.State{}, record.Lease{}, "", err
	}
	return state, l.trust(lease), o.Selector, nil
}

// askBudget is part of the observation: it asks whether the eviction that was decided on would
// be granted. So an eviction that is refused, and tried again and again, never stands on record
// and changes no pod. An error says that nobody may evict; what else keeps the answer from us
// shows when the eviction is sent.
func (l *leader) askBudget(ctx context.Context, d rollout.Decision) (rollout.Refusal, error) {
	t := d.Target()
	err := l.workload.AskBudget(ctx, l.seen, t.Pod, t.UID, t.ResourceVersion)
	if refusal, refused := workload.RefusalOf(err, l.seen.Set.Replicas); refused {
		l.log.WithError(err).Debug("an eviction would be refused")
		l.account.blocked(d)
		return l.memory.refuse(time.Now(), refusal), nil
	}
	if apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) {
		return rollout.Refusal{}, err
	}
	return rollout.Refusal{}, nil
}

// evicts is true for a removal through the eviction API.
func evicts(a rollout.Action) bool {
	remove, ok := a.(rollout.Remove)
	return ok && remove.Method == rollout.RemoveByEviction
}

// act carries out an operation, which has to end before its deadline.
func (l *leader) act(ctx context.Context, e record.Act) record.Outcome {
	acting, cancel := context.WithDeadline(ctx, l.started.Add(e.Deadline))
	defer cancel()
	switch e.Intent.Operation {
	case record.Delete, record.Evict:
		return l.remove(ctx, acting, e)
	case record.MoveLeader:
		return l.moveLeader(acting, *e.Intent.Member)
	case record.None, record.FenceAll:
	}
	panic("the record's protocol asks to carry out " + e.Intent.String())
}

// remove sends a removal that stands on record.
func (l *leader) remove(ctx, removing context.Context, e record.Act) record.Outcome {
	err := l.workload.Remove(removing, l.seen, e.Intent)
	outcome := record.OutcomeOf(err)
	refusal, refused := workload.RefusalOf(err, l.seen.Set.Replicas)
	refused = refused && e.Intent.Operation == record.Evict // Nobody asks a budget of a DELETE.
	if refused {
		outcome = record.Failed // Also where the API server says so by a 500.
	}
	l.unclear = outcome == record.Unclear
	l.account.removed(l.decision, e.Intent, outcome, refused)
	log := l.log.WithFields(logrus.Fields{"pod": e.Intent.Pod, "uid": e.Intent.UID})
	switch {
	case err == nil:
		l.faults.clear()
		l.memory.evicted()
		log.Info("pod removed")
		// Our own pod takes the etcd with it over which the lock can be released.
		l.leaving = e.Intent.Pod == l.self.Pod
		l.over = l.leaving
	case refused:
		// No fault of ours: the decision says what it waits for, and asks again in a while.
		l.memory.refuse(time.Now(), refusal)
		log.WithError(err).Debug("the eviction was refused")
	case outcome == record.Refused:
		// It is not the pod that was decided on any more: decide anew.
		log.WithError(err).Info("the removal was refused")
		l.charged(e.Intent)
	default:
		l.charged(e.Intent)
		l.note(ctx, "the pod cannot be removed", err)
	}
	return outcome
}

// charged notes that a budget may be charged for an eviction of which no effect is known.
func (l *leader) charged(i record.Intent) {
	if i.Operation == record.Evict {
		l.memory.charged = time.Now()
	}
}

// moveLeader counts what fails: after two failures the pod goes anyway.
func (l *leader) moveLeader(ctx context.Context, from record.Member) record.Outcome {
	err := l.members.MoveLeader(ctx, l.etcd, from.ID, from.Heir)
	l.account.moved(l.decision, from, err)
	if err != nil {
		l.memory.failedTransfers[from.ID]++
		l.faults.note(l.log, "leadership was not moved", err)
		return record.Failed
	}
	delete(l.memory.failedTransfers, from.ID)
	l.log.WithField("from", from.Name).WithField("to", from.HeirName).Info("leadership moved")
	return record.Done
}

// promote sets status.currentRevision, where that is asked for and still to be done. It is
// a service for others and no reason to hold a rollout: what is not allowed is said, and left
// until the next one. An error means that it is worth another try.
func (l *leader) promote(ctx context.Context) error {
	if !l.unpromoted(l.seen) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, l.cfg.RequestTimeout)
	defer cancel()
	err := l.workload.Promote(ctx, l.seen)
	switch record.OutcomeOf(err) {
	case record.Done:
		l.log.WithField("revision", l.seen.Set.UpdateRevision).Info("status.currentRevision set: the rollout is over for Kubernetes as well")
		return nil
	case record.Failed:
		if apierrors.IsTooManyRequests(err) {
			return err
		}
		l.notPromoted = l.seen.Set.UpdateRevision
		l.faults.note(l.log, "status.currentRevision may not be set", explainFor(err, "deploy/components/promote-current-revision"))
		return nil
	case record.Refused, record.Unclear:
	}
	return err
}

// unpromoted is true when status.currentRevision is behind, and we are to set it.
func (l *leader) unpromoted(o workload.Observation) bool {
	return l.cfg.PromoteCurrentRevision && o.Set.OnDelete && !o.Set.Deleting && o.Set.UpdateRevision != "" &&
		o.CurrentRevision != o.Set.UpdateRevision && l.notPromoted != o.Set.UpdateRevision
}

// wait waits for news, or until it is time to look or to try again.
func (l *leader) wait(ctx context.Context, failed bool) {
	if l.stopping {
		l.pause(ctx, releaseRetry)
		return
	}
	if failed {
		l.pause(ctx, max(l.faults.pause, l.aged.pause, firstPause))
		return
	}
	l.pause(ctx, max(l.begun+leastRest-l.now(), shortRest))
	interval := l.cfg.Interval
	switch l.decision.Action.(type) {
	case rollout.Hold, rollout.Complete:
		interval *= slowdown
	}
	if l.awaits > 0 {
		interval = min(interval, firstLineUpLook<<min(l.awaits-1, 10))
	}
	if r := l.memory.refusal; r != nil && l.decision.Guard == rollout.GuardDisruptionBudget {
		interval = max(min(interval, time.Until(r.until)), shortRest)
	}
	// The record has to be renewed in time: when the renewal is due, a cycle in which members
	// hang may still be to come before it is.
	if due := l.renewed + l.cfg.RecordDuration/3 - l.now(); due > 0 {
		wait(ctx, min(interval, due), l.changed)
	}
}

// fail notes a fault and waits until it is time to try again.
func (l *leader) fail(ctx context.Context, what string, err error) {
	if ctx.Err() == nil {
		l.note(ctx, what, err)
		l.pause(ctx, l.faults.pause)
	}
}

// note logs a fault. When it will not go away here, and somebody else waits for the
// lock, that one shall try.
func (l *leader) note(ctx context.Context, what string, err error) {
	if ctx.Err() != nil && !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return // We are ending.
	}
	l.faults.note(l.log, what, explain(err))
	l.letAnotherTry(ctx, what, err, l.faults.row)
}

// letAnotherTry gives up when something has failed so often that somebody else should try, and
// there is somebody.
func (l *leader) letAnotherTry(ctx context.Context, what string, err error, row int) {
	forbidden := apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err)
	if !forbidden && row < unfitAfter {
		return
	}
	// Without the lock nobody knows who else is there; so whoever holds the record gives it back.
	if alone := l.place.owned() == nil; alone && !l.holding || !alone && !selfupdate.Anybody(l.peers(ctx)) {
		return
	}
	if forbidden {
		l.giveUp(fmt.Sprintf("%s: %v", what, err), forbiddenFor)
	} else {
		l.giveUp(fmt.Sprintf("%s, %d times in a row: %v", what, row, err), unfitFor)
	}
}

// tooOld notes that what was decided had to be dropped. Another sidecar would not be faster where
// it was a member that hangs for which most of the time was spent.
func (l *leader) tooOld(ctx context.Context) {
	const what = "what was decided was dropped, because its evidence had grown too old"
	age := l.now() - l.begun
	err := agedError{age: age, etcd: l.etcdTook, most: l.cfg.MaxEvidenceAge}
	l.aged.note(l.log, what, err)
	if l.aged.row == unfitAfter {
		l.account.events.Warn(report.EvidenceTooOld, what+": "+err.Error())
	}
	if age-l.etcdTook > l.etcdTook {
		l.letAnotherTry(ctx, what, err, l.aged.row)
	}
}

// agedError says what took the time.
type agedError struct{ age, etcd, most time.Duration }

func (e agedError) Error() string {
	return fmt.Sprintf("it took %v to look and to record the intent, %v of that for etcd's members to answer, and --max-evidence-age is %v (if the Kubernetes API is slow for good, raise that)",
		e.age.Round(time.Millisecond), e.etcd.Round(time.Millisecond), e.most)
}

// Is says that its wording varies while it is the same fault.
func (agedError) Is(target error) bool { return target == context.DeadlineExceeded }

// trust reads the record from a Lease. Others may write it as well: what makes no sense there is
// told, and not believed. An intent that names no pod of ours may stand in the place of one that
// did; so it counts as one about all of our pods, and the one that it names is left alone.
func (l *leader) trust(lease *coordinationv1.Lease) record.Lease {
	r := record.Parse(lease)
	var odd []string
	if r.Intent.Pod != "" && !inRange(l.seen.Set, r.Intent.Pod) {
		odd = append(odd, fmt.Sprintf("the intent to %s names none of our pods; all of ours are changed instead, so that whatever stood there has no effect", r.Intent))
		r.Intent = record.Intent{Operation: record.FenceAll, Epoch: r.Intent.Epoch}
	}
	if r.Epoch < 0 || r.Epoch >= math.MaxInt32 {
		odd = append(odd, fmt.Sprintf("spec.leaseTransitions is %d; counting begins again at 1", r.Epoch))
	}
	if longest := max(record.LongestDuration, l.cfg.RecordDuration); r.Duration < 0 || r.Duration > longest {
		odd = append(odd, fmt.Sprintf("spec.leaseDurationSeconds is %d; without the lock, a record that is not renewed is waited for no longer than %v", r.Duration/time.Second, longest))
	}
	if told := strings.Join(odd, "; "); told != "" && told != l.odd {
		l.odd = told
		const what = "the Lease says what makes no sense"
		l.log.Warnf("%s: %s", what, told)
		l.account.fails(report.AtRecord, what, errors.New(told), len(odd))
		l.account.events.Warn(report.OddRecord, what+": "+told)
	}
	return r
}

// inRange is true for the names of the pods that the StatefulSet is to have.
func inRange(set rollout.Set, pod string) bool {
	for i := range set.Replicas {
		if pod == fmt.Sprintf("%s-%d", set.Name, set.Start+i) {
			return true
		}
	}
	return false
}

// believes says that what made no sense on the Lease does not concern anybody any more.
func (l *leader) believes() {
	l.odd = ""
	l.account.works(report.AtRecord)
}

// watching returns what a watch calls, from its own goroutine: for news, whenever the API server
// refuses it, and at its end. A refusal is no reason to give up, since the watch is tried again; but
// without that of the StatefulSet no rollout is noticed, and somebody should know why. That the API
// server does not answer at all is noted by whoever asks it for more than news.
func (l *leader) watching(at, what string) (changed func(), failed func(error), ended func()) {
	refused := l.account.faults(at)
	works := func() {
		if refused.row > 0 {
			refused.clear()
		}
	}
	changed = func() {
		works() // A watch begins with what there is.
		l.trigger()
	}
	failed = func(err error) {
		var answer apierrors.APIStatus
		if errors.As(err, &answer) {
			refused.note(l.log, what+" cannot be watched", explain(err))
		}
	}
	return changed, failed, works
}

// giveUp lets another coordinator go on.
func (l *leader) giveUp(why string, least time.Duration) {
	l.unfit, l.unfitFor, l.over = why, least, true
}

// follow keeps one watch on the pods during a rollout.
func (l *leader) follow(ctx context.Context, selector string) {
	if l.watched == selector && l.unwatch != nil {
		return
	}
	l.unfollow()
	watching, cancel := context.WithCancel(ctx)
	l.watched, l.unwatch = selector, cancel
	l.watchPods(watching, selector)
}

func (l *leader) unfollow() {
	if l.unwatch != nil {
		l.unwatch()
		l.unwatch = nil
	}
}

// tell says what was seen and decided, but not that an eviction is refused for a moment, as
// happens when the budget has not noticed yet that a pod has become Ready. Nor does an eviction
// that is tried again end the wait for it.
func (l *leader) tell(state rollout.State) {
	switch d := l.decision; {
	case d.Guard == rollout.GuardDisruptionBudget && !l.memory.refusedForLong():
		return
	case evicts(d.Action) && l.memory.refusedForLong():
		return
	}
	l.account.decided(report.Sight{
		Namespace: l.cfg.Namespace, StatefulSet: l.cfg.StatefulSet, At: time.Now().UTC().Truncate(time.Millisecond),
		State: state, Decision: l.decision, Policy: &l.cfg.Policy,
		Coordinator: l.name(), Epoch: l.epoch, Fallback: l.place.owned() == nil || l.place.silent(l.cfg.FallbackAfter) <= 0,
	})
}

// name is how people know this coordinator: by its pod, where it has one.
func (l *leader) name() string {
	if l.self.Pod != "" {
		return l.self.Pod
	}
	return l.protocol.Identity
}
