package record_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/quorate/quorate/internal/record"
)

// A world is one Lease, three pods that a StatefulSet controller recreates, and
// coordinators that run the production protocol on them. Requests take their time: they
// land late, after their sender has given up on them, or never. One thing happens at a
// time, and what it is, is drawn from a seed.
type world struct {
	rand *rand.Rand
	// at counts what has happened; now is the time.
	at  int
	now time.Duration

	version      int // of the last change of any object
	lease        *record.Lease
	leaseChanged time.Duration
	blank        bool // none of us has written to the Lease since an operator did away with the record
	pods         []*pod
	revision     int
	uids         int

	coordinators []*coordinator
	owner        *coordinator // of the lock
	// flying are the requests that may still land.
	flying []*request
	// kind is true while no new fault occurs.
	kind bool

	// removedAt is when a removal of ours last took effect.
	removedAt int
	counts    map[string]int
	broken    string // the first rule that was broken

	telling bool
	story   []string
}

type pod struct {
	name, uid string
	version   int
	revision  int
	fenced    string
	up, going bool
	gone      bool
	ours      bool // it is not up since a removal of ours
}

// coordinator is a sidecar: the protocol's state, and what is known of it that it does
// not know itself.
type coordinator struct {
	name    string
	config  record.Config
	boots   int
	origin  time.Duration // of its clock
	state   record.State
	effect  record.Effect // to be carried out, nil when there is no claim
	request *request      // under way
	asleep  int           // until then nothing of it runs
	right   record.Right

	// When the Lease was read, and the right was confirmed, to claim it.
	readAt, confirmedAt int
	patience            bool // by the clock it may be claimed
	// seen is the last observation; wrote are when its writes were known to stand.
	seen    observation
	wrote   []int
	written record.Lease
}

type observation struct {
	begunAt, podsAt int
	begun           record.Instant
}

type request struct {
	by      *coordinator
	effect  record.Effect
	begun   record.Instant
	begunAt int
	// lease is what a request of several steps has read so far; version is what an
	// eviction has made of its pod.
	lease    record.Lease
	version  int
	stage    int
	podsAt   int
	patience bool
	decided  observation // for a removal: what it rests on
	answer   record.Event
	deserted bool
}

const (
	duration = 15 * time.Second
	evidence = 5 * time.Second
)

func newWorld(seed uint64, telling bool) *world {
	w := &world{rand: rand.New(rand.NewPCG(seed, 0)), revision: 2, counts: map[string]int{}, telling: telling}
	for i := range 3 {
		w.version++
		w.uids++
		w.pods = append(w.pods, &pod{name: fmt.Sprintf("etcd-%d", i), uid: fmt.Sprintf("u%d", w.uids), version: w.version,
			revision: 1, up: true})
	}
	for i := range 2 + w.rand.IntN(2) {
		w.coordinators = append(w.coordinators, &coordinator{
			name:   string(rune('A' + i)),
			config: record.Config{Identity: string(rune('A' + i)), Duration: duration, MaxEvidenceAge: evidence},
			origin: time.Duration(w.rand.IntN(1e6)) * -time.Millisecond,
		})
	}
	w.owner = w.coordinators[0]
	return w
}

func (w *world) tell(format string, args ...any) {
	if w.telling {
		w.story = append(w.story, fmt.Sprintf("%4d  %7.3fs  ", w.at, w.now.Seconds())+fmt.Sprintf(format, args...))
	}
}

func (w *world) count(what string) { w.counts[what]++ }

// breaks notes that a rule was broken.
func (w *world) breaks(format string, args ...any) {
	if w.broken == "" {
		w.broken = fmt.Sprintf(format, args...)
		w.tell("BROKEN: %s", w.broken)
	}
}

func (w *world) newVersion() int { w.version++; return w.version }

func (w *world) pod(name string) *pod {
	i := slices.IndexFunc(w.pods, func(p *pod) bool { return p.name == name })
	if i < 0 || w.pods[i].gone {
		return nil
	}
	return w.pods[i]
}

// Coordinators ----------------------------------------------------------------------

func (w *world) instant(c *coordinator) record.Instant { return w.now - c.origin }

func (w *world) step(c *coordinator, e record.Event) {
	c.state, c.effect = c.config.Step(c.state, e, w.instant(c))
	if end, ok := c.effect.(record.End); ok {
		w.count(fmt.Sprintf("ended %d", end.Ended))
		if w.lease != nil && w.lease.Holder == c.config.Identity &&
			(end.Ended == record.Finished || end.Ended == record.HandedOver) {
			w.breaks("%s ends, and the record still says that it holds it", c.name)
		}
		w.tell("%s ends: %s (%d)", c.name, end.Detail, end.Ended)
		c.effect = nil
	}
	if act, ok := c.effect.(record.Act); ok && removes(act) {
		w.checkRemoval(c, act)
	}
}

func (w *world) start(c *coordinator, r record.Right) {
	w.tell("%s starts, by the %s", c.name, r)
	c.right, c.wrote, c.readAt, c.confirmedAt, c.seen = r, nil, 0, 0, observation{}
	w.step(c, record.Start{Right: r})
}

// goOn lets a coordinator do the next thing that does not depend on anybody else.
func (w *world) goOn(c *coordinator) bool {
	if c.effect == nil {
		return false
	}
	if _, ok := c.effect.(record.Rest); ok {
		w.step(c, record.Woken{})
		return true
	}
	if c.request == nil {
		w.send(c)
		return true
	}
	if c.request.answer == nil {
		return false
	}
	w.answered(c, c.request.answer)
	return true
}

func (w *world) send(c *coordinator) {
	if e, ok := c.effect.(record.Act); ok && removes(e) && w.instant(c) >= e.Deadline {
		w.tell("%s wakes up too late for its removal", c.name)
		w.step(c, record.Acted{Outcome: record.Unclear})
		return
	}
	r := &request{by: c, effect: c.effect, begun: w.instant(c), begunAt: w.at, decided: c.seen}
	c.request = r
	w.flying = append(w.flying, r)
	w.tell("%s sends %s", c.name, told(c.effect))
	switch e := c.effect.(type) {
	case record.WriteLease:
		if len(c.wrote) == 0 {
			w.checkClaim(c, e.Lease)
		}
	case record.Observe:
		if len(c.wrote) == 0 {
			w.breaks("%s observes before its claim stands", c.name)
		}
		if c.state.Lease.Intent.Operation != record.None {
			w.breaks("%s observes while it knows of a removal that is not resolved", c.name)
		}
	}
}

// checkClaim: the right is checked after the Lease was read, and by the clock only after
// the Lease stood unchanged for its duration.
func (w *world) checkClaim(c *coordinator, l record.Lease) {
	switch {
	case l.Holder != c.config.Identity:
		w.breaks("%s claims for %q", c.name, l.Holder)
	case c.readAt == 0:
		w.breaks("%s claims what it has not read", c.name)
	case c.right == record.ByLock && c.confirmedAt <= c.readAt:
		w.breaks("%s claims by a right that was checked before the Lease was read", c.name)
	case c.right == record.ByClock && !c.patience:
		w.breaks("%s claims by the clock a record that was renewed within its duration", c.name)
	}
}

// checkRemoval: a removal is only asked for with its intent known to be on record, on an
// observation that began after every other write of ours, and while that is young.
func (w *world) checkRemoval(c *coordinator, e record.Act) {
	n := len(c.wrote)
	switch {
	case n < 2 || c.written.Intent != e.Intent:
		w.breaks("%s removes %s, which is not on record", c.name, e.Intent.Pod)
	case c.seen.begunAt <= c.wrote[n-2]:
		w.breaks("%s removes %s on an observation that began before its last write", c.name, e.Intent.Pod)
	case w.instant(c)-c.seen.begun >= evidence || e.Deadline != c.seen.begun+evidence:
		w.breaks("%s removes %s on evidence that is too old", c.name, e.Intent.Pod)
	}
}

// answered hands a coordinator the answer to its request.
func (w *world) answered(c *coordinator, e record.Event) {
	r := c.request
	c.request = nil
	r.deserted = true
	switch e := e.(type) {
	case record.LeaseRead:
		c.readAt, c.patience = r.podsAt, r.patience
	case record.RightChecked:
		c.confirmedAt = r.podsAt
	case record.LeaseWritten:
		if e.Outcome == record.Done {
			if len(c.wrote) == 0 {
				w.count("claims by the " + c.right.String())
			}
			c.wrote = append(c.wrote, w.at)
			c.written = r.effect.(record.WriteLease).Lease
		}
	case record.Observed:
		c.seen = observation{begunAt: r.begunAt, podsAt: r.podsAt, begun: r.begun}
	}
	w.tell("%s is answered %+v", c.name, e)
	w.step(c, e)
}

// desert: a coordinator gives up on an answer. The request may still land.
func (w *world) desert(c *coordinator) {
	r := c.request
	if r.answer == nil {
		w.count("requests given up before they landed")
	}
	w.tell("%s gives up on %s", c.name, told(r.effect))
	w.answered(c, lost(r.effect))
}

func lost(e record.Effect) record.Event {
	switch e.(type) {
	case record.ReadLease:
		return record.LeaseRead{Outcome: record.Failed}
	case record.CheckRight:
		return record.RightChecked{}
	case record.WriteLease:
		return record.LeaseWritten{Outcome: record.Unclear}
	case record.ListPods:
		return record.PodsListed{Outcome: record.Failed}
	case record.FencePod:
		return record.PodFenced{Outcome: record.Unclear}
	case record.Observe:
		return record.Observed{Outcome: record.Failed}
	}
	return record.Acted{Outcome: record.Unclear}
}

// forbidden is an API server's last word: it did not, and never will.
func forbidden(e record.Effect) record.Event {
	switch e.(type) {
	case record.WriteLease:
		return record.LeaseWritten{Outcome: record.Failed}
	case record.FencePod:
		return record.PodFenced{Outcome: record.Failed}
	case record.Act:
		return record.Acted{Outcome: record.Failed}
	}
	return lost(e)
}

// crash: what a process knew is gone; what it sent is not.
func (w *world) crash(c *coordinator) {
	w.tell("%s crashes", c.name)
	if c.request != nil {
		c.request.deserted = true
	}
	c.boots++
	c.state, c.effect, c.request = record.State{}, nil, nil
	c.origin = w.now
	if w.rand.IntN(2) == 0 {
		c.config.Identity = fmt.Sprintf("%s%d", c.name, c.boots) // Its pod was replaced.
	}
}

// removes is true for the removal of a pod.
func removes(e record.Act) bool { return e.Intent.Operation != record.MoveLeader }

// The API server --------------------------------------------------------------------

// land carries out the next step of a request.
func (w *world) land(r *request) {
	late := ""
	if r.deserted {
		late = ", late"
		w.count("requests that landed late")
	}
	answer := w.carryOut(r)
	if answer == nil {
		return
	}
	r.answer = answer
	w.flying = slices.DeleteFunc(w.flying, func(o *request) bool { return o == r })
	w.tell("    %s's %s lands%s: %+v", r.by.name, told(r.effect), late, answer)
}

func (w *world) carryOut(r *request) record.Event {
	switch e := r.effect.(type) {
	case record.ReadLease:
		r.podsAt = w.at
		r.patience = w.lease == nil || w.lease.Holder == "" || w.lease.Holder == r.by.config.Identity ||
			w.now-w.leaseChanged >= w.lease.Duration
		return record.LeaseRead{Lease: w.readLease(), Begun: r.begun}
	case record.CheckRight:
		r.podsAt = w.at
		lie := !w.kind && w.rand.IntN(4) == 0
		return record.RightChecked{Held: lie || w.owner == r.by}
	case record.WriteLease:
		return w.writeLease(e.Lease)
	case record.ListPods:
		var pods []record.Pod
		for _, p := range w.pods {
			if !p.gone && !p.going {
				pods = append(pods, record.Pod{Name: p.name, UID: p.uid, ResourceVersion: strconv.Itoa(p.version)})
			}
		}
		return record.PodsListed{Pods: pods}
	case record.FencePod:
		return w.fence(e)
	case record.Observe:
		return w.observe(r)
	case record.Act:
		if removes(e) {
			return w.remove(r, e.Intent)
		}
		return record.Acted{Outcome: record.Outcome(2 * w.rand.IntN(2))}
	}
	panic(fmt.Sprintf("%T is no request", r.effect))
}

func (w *world) readLease() record.Lease {
	if w.lease == nil {
		return record.Lease{}
	}
	return *w.lease
}

func (w *world) writeLease(l record.Lease) record.Event {
	have := w.readLease()
	if have.ResourceVersion != l.ResourceVersion {
		return record.LeaseWritten{Outcome: record.Refused}
	}
	if claim := l.Epoch == have.Epoch+1; !claim && (have.Holder == "" || l.Epoch != have.Epoch ||
		l.Holder != have.Holder && l.Holder != "") {
		w.breaks("%s writes to the record of %q (epoch %d)", l.Holder, have.Holder, have.Epoch)
	}
	if on, next := have.Intent, l.Intent; on.Operation != record.None && next.Operation != record.None &&
		next.Operation != record.FenceAll {
		if on.Epoch, next.Epoch = 0, 0; on != next {
			w.breaks("the intent to %s is overwritten by that to %s", on, next)
		}
	}
	w.changeLease(&l)
	w.blank = false
	return record.LeaseWritten{ResourceVersion: l.ResourceVersion}
}

func (w *world) changeLease(l *record.Lease) {
	if l != nil {
		l.ResourceVersion = strconv.Itoa(w.newVersion())
	}
	w.lease, w.leaseChanged = l, w.now
}

func (w *world) fence(e record.FencePod) record.Event {
	p := w.pod(e.Pod.Name)
	if p == nil || p.uid != e.Pod.UID {
		return record.PodFenced{Outcome: record.Refused}
	}
	if p.fenced != e.Value {
		p.fenced, p.version = e.Value, w.newVersion()
		w.count("fences")
	}
	return record.PodFenced{ResourceVersion: strconv.Itoa(p.version)}
}

// observe reads the Lease first and the pods some time later, and decides: the highest
// outdated pod goes when all others are up.
func (w *world) observe(r *request) record.Event {
	if r.stage == 0 {
		r.stage, r.lease = 1, w.readLease()
		w.tell("    %s sees the Lease: %+v", r.by.name, r.lease)
		return nil
	}
	r.podsAt = w.at
	o := record.Observed{Begun: r.begun, Lease: r.lease, Next: record.NextFinish}
	var target *pod
	down := 0
	for _, p := range w.pods {
		if p.gone || p.going || !p.up {
			down++
		}
		if !p.gone && p.revision != w.revision {
			target = p
		}
	}
	switch {
	case down == 0 && target == nil:
	case down > 1 || target == nil || down == 1 && (target.up || target.going):
		o.Next = record.NextRest
	case w.rand.IntN(12) == 0 && !w.kind:
		o.Next = []record.Next{record.NextAct, record.NextHandOver}[w.rand.IntN(2)]
		o.Intent.Operation = record.MoveLeader
	default:
		o.Next = record.NextAct
		o.Intent = record.Intent{
			Operation: []record.Operation{record.Delete, record.Evict}[w.rand.IntN(2)],
			Pod:       target.name, UID: target.uid, ResourceVersion: strconv.Itoa(target.version),
			Revision: strconv.Itoa(w.revision),
		}
	}
	return o
}

// remove is a DELETE, or an eviction as the API server carries it out: it writes to the
// pod's status and deletes what it has written.
func (w *world) remove(r *request, i record.Intent) record.Event {
	p := w.pod(i.Pod)
	if p == nil || p.uid != i.UID || !w.reaches(r, p) {
		w.count("removals refused")
		if r.deserted {
			w.count("late removals refused")
		}
		return record.Acted{Outcome: record.Refused}
	}
	if i.Operation == record.Evict && r.stage == 0 {
		p.version = w.newVersion()
		r.stage, r.version = 1, p.version
		w.tell("    the eviction of %s has begun: version %d", p.name, p.version)
		return nil
	}
	if !p.going {
		w.takesEffect(r, p)
	}
	return record.Acted{}
}

// reaches is true while the preconditions of a removal hold.
func (w *world) reaches(r *request, p *pod) bool {
	i := r.effect.(record.Act).Intent
	if r.stage == 1 {
		return r.version == p.version
	}
	return i.ResourceVersion == strconv.Itoa(p.version)
}

func (w *world) takesEffect(r *request, p *pod) {
	i := r.effect.(record.Act).Intent
	w.count("removals")
	if r.deserted {
		w.count("removals whose answer was lost")
	}
	if i.UID != p.uid {
		w.breaks("%s (%s) is removed, and %s was decided on", p.name, p.uid, i.UID)
	}
	if w.removedAt > r.decided.podsAt {
		w.breaks("%s is removed by what was seen at %d, in ignorance of the removal at %d", p.name, r.decided.podsAt,
			w.removedAt)
	}
	for _, o := range w.pods {
		if o != p && o.ours {
			w.breaks("%s is removed while %s is down because of another removal", p.name, o.name)
		}
	}
	w.removedAt = w.at
	p.going, p.up, p.ours, p.version = true, false, true, w.newVersion()
}

// checkRecord: while there is a record, every removal that can still take effect stands
// on it.
func (w *world) checkRecord() {
	if w.lease == nil || w.blank || w.lease.Intent.Operation == record.FenceAll {
		return
	}
	covered := func(i record.Intent) bool {
		on := w.lease.Intent
		return on.Pod == i.Pod && on.UID == i.UID && on.ResourceVersion == i.ResourceVersion
	}
	for _, r := range w.flying {
		if e, ok := r.effect.(record.Act); ok && removes(e) {
			if p := w.pod(e.Intent.Pod); p != nil && !p.going && p.uid == e.Intent.UID && w.reaches(r, p) && !covered(e.Intent) {
				w.breaks("%s's removal of %s can still take effect and is not on record any more: %s", r.by.name, p.name,
					w.lease.Intent)
			}
		}
	}
}

func told(e record.Effect) string {
	return fmt.Sprintf("%s %+v", strings.TrimPrefix(fmt.Sprintf("%T", e), "record."), e)
}
