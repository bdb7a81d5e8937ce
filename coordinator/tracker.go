package coordinator

import (
	"maps"
	"slices"
	"time"

	"github.com/quorate/quorate/internal/record"
	"github.com/quorate/quorate/internal/workload"
	"github.com/quorate/quorate/membership"
	"github.com/quorate/quorate/pkg/rollout"
)

// tracker is all that a coordinator keeps between cycles. recall makes of it the [rollout.Memory] that
// decisions rest on. But for [lastingAges], it starts empty with every turn, which can only make the rollout
// wait longer. Times are compared on the process's monotonic clock, never with another
// machine's.
type tracker struct {
	since map[rollout.Sighting]time.Time
	// looked is when the last look was, and read is when the last one that read the pods live began.
	looked, read time.Time
	// readySince is when each pod, by UID, became Ready or ceased to be, by its kubelet's clock.
	readySince map[string]time.Time
	// lasting is the same as since, of members and of cordons.
	lasting         *lastingAges
	failedTransfers rollout.Failures
	// removed are the pods that we have removed, until they are back: their UIDs, by name.
	removed map[string]string
	// unknownSince is since when a replica has been Unknown without a break.
	unknownSince map[string]time.Time
	// refusal is the last eviction that was refused, nil while nothing is known against one.
	refusal *refusal
	// charged is when an eviction of ours last failed in a way that may have charged a budget. evicted are the
	// UIDs of the pods that an eviction on the record may have marked, and when that was found.
	charged time.Time
	evicted map[string]time.Time
	// ownNextSince is since when our own pod has been the next to go.
	ownNextSince time.Time
	// awaits is since when only the word of a sidecar has been missing, see decision.
	awaits time.Time
	// tries are what has become of the defragmentations, kept are the alarms that could not be disarmed, and disarmed
	// is how often one was. asked is true while an operator asks for a defragmentation, and alarmed while there is an
	// alarm NOSPACE.
	tries, kept map[uint64]*try
	disarmed    map[uint64]int
	// compared is how the members' data compare, by the looks so far.
	compared rollout.Comparison
	// behind is how the members catch up that do, by their IDs.
	behind         map[uint64]pace
	asked, alarmed bool
}

// lastingAges says since when something has been seen that is followed between rollouts as well. Looks at an idle
// cluster and turns share it, so that neither begins anew when the other ends.
type lastingAges struct {
	since map[rollout.Sighting]time.Time
	last  time.Time
}

// longestBreak is how long nobody may have looked for what is seen to have lasted. An idle coordinator looks
// once a minute, and one look may fail.
const longestBreak = 3 * addressesEvery

// longestGap is how long nobody may have looked in a turn for what is seen to have lasted. A look whose requests all
// hang takes about as long: two probe timeouts, and two requests to the API server.
const longestGap = 25 * time.Second

// hush is for how long a pod is silent before everything is read live for it. Most silences are over sooner.
const hush = 3 * time.Second

// begin returns what was seen before, unless nobody has looked for too long.
func (m *lastingAges) begin(now time.Time) map[rollout.Sighting]time.Time {
	if now.Sub(m.last) > longestBreak {
		m.since = nil
	}
	m.last = now
	return m.since
}

// uncordoned forgets the cordons that were seen and are not there any more: a new one counts anew, also where it
// comes before the next look.
func (m *lastingAges) uncordoned(pods []rollout.Pod) {
	maps.DeleteFunc(m.since, func(s rollout.Sighting, _ time.Time) bool {
		return s.Condition == rollout.CordonedSeen && !slices.ContainsFunc(pods, func(p rollout.Pod) bool {
			return p.UID == s.UID && (p.Cordoned || p.NodeUnknown)
		})
	})
}

func newTracker(lasting *lastingAges) *tracker {
	return &tracker{
		lasting:         lasting,
		since:           map[rollout.Sighting]time.Time{},
		failedTransfers: rollout.Failures{},
		removed:         map[string]string{},
		evicted:         map[string]time.Time{},
		unknownSince:    map[string]time.Time{},
		tries:           map[uint64]*try{},
		kept:            map[uint64]*try{},
		disarmed:        map[uint64]int{},
	}
}

// recall notes what was seen now, and returns what a decision may rest on. A look that read the pods live says when
// that began.
func (m *tracker) recall(now, read time.Time, seen []rollout.Sighting, pods []rollout.Pod) rollout.Memory {
	for i := range pods {
		p := &pods[i]
		if uid, ok := m.removed[p.Name]; ok && (uid != p.UID || !p.Terminating) {
			delete(m.removed, p.Name) // It is back, or has not gone. Whoever takes it next is somebody else.
		}
	}
	maps.DeleteFunc(m.evicted, func(_ string, at time.Time) bool { return now.Sub(at) >= chargedFor })
	return rollout.Memory{
		Ages: m.ages(now, read, seen), RefusedEviction: m.refused(now), FailedTransfers: maps.Clone(m.failedTransfers),
		Differ:  m.compared.Differ(),
		Removed: slices.Sorted(maps.Keys(m.removed)), Evicted: slices.Sorted(maps.Keys(m.evicted)),
		Tries: told(m.tries, now), Disarmed: maps.Clone(m.disarmed), NotDisarmed: told(m.kept, now),
	}
}

// ages notes what was seen now, forgets what was not, and returns how long each has
// been seen.
//
// What a kubelet says is as old as it may be, not as it seems: it was said after the pods were last read live and said
// something else. It may be told much later, by a watch that lags, or when the API server can be reached again. (The
// chaos tests found a coordinator that had taken the last word before a cut for a word from the other side of it.) The
// first word that is read at all may be of any age.
func (m *tracker) ages(now, read time.Time, seen []rollout.Sighting) rollout.Ages {
	since := make(map[rollout.Sighting]time.Time, len(seen))
	before, lasting := m.lasting.begin(now), map[rollout.Sighting]time.Time{}
	ages := make(rollout.Ages, len(seen))
	if now.Sub(m.looked) > longestGap {
		m.since = nil // What was between is not known.
	}
	m.looked = now
	for _, s := range seen {
		was, is := m.since, since
		if s.Condition.Outlasts() {
			was, is = before, lasting
		}
		first, ok := was[s]
		switch {
		case ok:
		case s.Condition == rollout.SaidSeen:
			if otherWords(was, s) {
				first = m.read
			}
		default:
			first = now
		}
		if is[s] = first; !first.IsZero() { // Otherwise it may be of any age.
			ages[s] = now.Sub(first)
		}
	}
	m.keepWords(since)
	m.since, m.lasting.since = since, lasting
	if !read.IsZero() {
		m.read = read
	}
	return ages
}

// keepWords keeps the last words of pods that are there, where a look has no words of that kind, because a node could
// not be read. Otherwise the same words would seem to be new as soon as it can be read again.
func (m *tracker) keepWords(since map[rollout.Sighting]time.Time) {
	for s, first := range m.since {
		_, there := since[rollout.Sighting{UID: s.Speaker(), Condition: rollout.PodSeen}]
		if s.Condition == rollout.SaidSeen && there && !otherWords(since, s) {
			since[s] = first
		}
	}
}

// otherWords is true if there are words of the same kind about the same pod.
func otherWords(since map[rollout.Sighting]time.Time, s rollout.Sighting) bool {
	for other := range since {
		if s.Supersedes(other) {
			return true
		}
	}
	return false
}

// needsReading is true while nothing comes from an outdated pod, for some time, and nothing has been read live since
// that began. Only what its kubelet says after such a reading is known to be new.
func (m *tracker) needsReading(now time.Time, told workload.Observation) bool {
	return slices.ContainsFunc(told.Pods, func(p rollout.Pod) bool {
		since, silent := m.since[rollout.Sighting{UID: p.UID, Condition: rollout.SilentSeen}]
		return silent && told.Set.Outdated(&p) && since.After(m.read) && now.Sub(since) >= hush
	})
}

// flapped forgets that a pod was Ready before it last became Ready. Looks do not see all that happens between them, and
// a watch may tell of it late.
func (m *tracker) flapped(now workload.Observation) {
	before := m.readySince
	m.readySince = make(map[string]time.Time, len(now.Pods))
	for i := range now.Pods {
		uid := now.Pods[i].UID
		since := now.ReadySince(uid)
		if was, ok := before[uid]; ok && !was.Equal(since) {
			delete(m.since, rollout.Sighting{UID: uid, Condition: rollout.ReadySeen})
		}
		m.readySince[uid] = since
	}
}

// doubt forgets for how long a pod has been what it is, where that has changed since the watch told of it: what a watch
// is late with may be more than one change.
func (m *tracker) doubt(told, now workload.Observation) {
	maps.DeleteFunc(m.since, func(s rollout.Sighting, _ time.Time) bool {
		there := slices.ContainsFunc(now.Pods, func(p rollout.Pod) bool { return p.UID == s.UID })
		return there && !now.Lasted(told, s.UID)
	})
}

// refusal is an eviction that was refused, and until when none is asked for again.
type refusal struct {
	rollout.Refusal
	at, until time.Time
	pause     time.Duration
}

// An eviction that was refused is asked for again after a while, which doubles: a budget
// frees within seconds when pods come back, and within minutes when people do. Where a pod has
// just become Ready, the disruption controller frees it a moment later, mostly within 50 ms. (The
// benchmarks show that.) leastRest keeps two questions further apart than the first wait.
const (
	evictSoon, noticed = 25 * time.Millisecond, 5 * time.Second
	evictAgain         = 2 * time.Second
	longestEvictAgain  = 30 * time.Second
	// chargedFor is how long a budget stays charged for an eviction that had no effect (DeletionTimeout in
	// Kubernetes' disruption controller), and how long its pod stays marked (stalePodDisruptionTimeout).
	chargedFor = 2 * time.Minute
)

// refuse notes a refusal and returns how to report it.
func (m *tracker) refuse(now time.Time, said rollout.Refusal) rollout.Refusal {
	pause := evictAgain
	switch {
	case m.refusal != nil:
		pause = min(2*m.refusal.pause, longestEvictAgain)
	case m.justReady(now):
		pause = evictSoon
	}
	if !said.Lasting && !m.charged.IsZero() && now.Sub(m.charged) < chargedFor {
		said.Words += " (it may still be charged for an eviction of ours that had no effect; that ends within two " +
			"minutes)"
	}
	until := now.Add(pause)
	if said.Moot {
		until = now // It is deleted past the budget at once, or not before the budget was asked again.
	}
	m.refusal = &refusal{Refusal: said, at: now, until: until, pause: pause}
	return said
}

// refused is what was said last, while it is too early to ask again. It is void once another
// pod has become Ready.
func (m *tracker) refused(now time.Time) rollout.Refusal {
	switch {
	case m.refusal == nil:
	case m.lastReady().After(m.refusal.at):
		m.refusal = nil
	case now.Before(m.refusal.until):
		return m.refusal.Refusal
	}
	return rollout.Refusal{}
}

// gone notes that a removal of ours has taken effect.
func (m *tracker) gone(pod, uid string) {
	m.refusal, m.charged = nil, time.Time{}
	m.removed[pod] = uid
}

// resolved notes that a removal that stood on record is settled, whichever coordinator asked for it. The pod may be
// on its way out by it, or gone, and an eviction may have marked it.
func (m *tracker) resolved(now time.Time, i record.Intent, pod record.Pod) {
	if i.UID != pod.UID {
		return // It is not known whether there was one.
	}
	m.removed[pod.Name] = pod.UID
	if i.Operation == record.Evict {
		m.evicted[pod.UID] = now
	}
}

// justReady is true where the disruption controller may not have noticed yet that a pod has become Ready.
func (m *tracker) justReady(now time.Time) bool { return now.Sub(m.lastReady()) < noticed }

// refusedLately is true while an eviction is likely to be refused once more.
func (m *tracker) refusedLately(now time.Time) bool { return m.refusal != nil || m.justReady(now) }

// refusedForLong is false while a refusal may be over in a moment. Until then it is not worth
// reporting.
func (m *tracker) refusedForLong() bool {
	return m.refusal != nil && (m.refusal.Lasting || m.refusal.pause >= evictAgain)
}

// lastReady is when the last pod was first seen to be Ready.
func (m *tracker) lastReady() time.Time {
	var last time.Time
	for seen, since := range m.since {
		if seen.Condition == rollout.ReadySeen && since.After(last) {
			last = since
		}
	}
	return last
}

// unknownPatience is how long a coordinator observes a member that it cannot reach,
// although its kubelet finds it well, before it lets another try.
const unknownPatience = 30 * time.Second

// unknown returns the pod that has been Unknown for longer than the patience, if any, and since when each one has
// been. A member that an operation on the record may keep from answering counts while it does not answer, and the
// patience with it is longer by the time that the call may take.
func (m *tracker) unknown(now time.Time, a *rollout.Assessment, call time.Duration) (longest string,
	since map[string]time.Time) {
	since = map[string]time.Time{}
	for i := range a.Replicas {
		s := &a.Replicas[i]
		if s.Evidence != rollout.Unknown || s.Going() || s.Stopped && a.Unblocked() {
			continue
		}
		first, ok := m.unknownSince[s.Name]
		if !ok {
			first = now
		}
		since[s.Name] = first
		patience := unknownPatience
		if s.Stopped {
			patience += call
		}
		if now.Sub(first) >= patience {
			longest = s.Name
		}
	}
	return longest, since
}

// note takes note of an observation, whose facts are joined, and returns what a decision on it may rest on.
func (m *tracker) note(now time.Time, o *observation, joined *rollout.Assessment) rollout.Memory {
	_, alarm := joined.Fullest()
	m.causes(o.state.Request, alarm)
	m.flapped(o.workload)
	m.compared = m.compared.Look(now, o.state.Etcd)
	memory := m.recall(now, o.read, joined.Sightings(), o.state.Pods)
	memory.Paces = m.paces(now, joined)
	return memory
}

// pace is how fast a member catches up.
type pace struct {
	// lag is how many entries it was behind at a time, and rate by how many a second it has come closer since then, or
	// had before.
	lag  uint64
	at   time.Time
	rate float64
}

// paceOver is over how long a pace is taken: long enough for single looks not to matter, and short enough to follow a
// member that has loaded its snapshot, after which it is much closer.
const paceOver = 30 * time.Second

// paces takes note of how far the members are behind that catch up, and returns by how many entries a second each comes
// closer. One that has just begun, or does not come closer, has none.
func (m *tracker) paces(now time.Time, a *rollout.Assessment) map[uint64]float64 {
	behind, rates := map[uint64]pace{}, map[uint64]float64{}
	for i := range a.Replicas {
		r := &a.Replicas[i]
		if !r.CatchesUp() {
			continue
		}
		p, seen := m.behind[r.Member.ID]
		took := now.Sub(p.at)
		switch {
		case !seen:
			p = pace{lag: r.Lag, at: now}
		case took >= paceOver:
			p = pace{lag: r.Lag, at: now, rate: max(0, float64(p.lag)-float64(r.Lag)) / took.Seconds()}
		}
		if behind[r.Member.ID] = p; p.rate > 0 {
			rates[r.Member.ID] = p.rate
		}
	}
	m.behind = behind
	return rates
}

// decided takes note of a decision.
func (m *tracker) decided(d *decision) {
	m.unknownSince, m.ownNextSince, m.awaits = d.unknownSince, d.ownNextSince, d.awaits
}

// did takes note of what has become of an operation.
func (m *tracker) did(now time.Time, out *outcome) {
	i := &out.intent
	switch i.Operation {
	case record.Delete, record.Evict:
		switch {
		case out.err == nil:
			m.gone(i.Pod, i.UID)
		case out.refusal != nil:
			m.refuse(now, *out.refusal)
		case i.Operation == record.Evict: // A budget may be charged for it, although no effect of it is known.
			m.charged = now
		}
	case record.MoveLeader: // After two failures the pod goes anyway.
		if out.err != nil {
			m.failedTransfers[i.Member.ID]++
		} else {
			delete(m.failedTransfers, i.Member.ID)
		}
	case record.Defragment: // After two failures it is not tried again.
		if out.err != nil {
			failed(m.tries, i.Member.ID, now, out.err)
		} else {
			m.tries[i.Member.ID] = &try{Try: rollout.Try{Done: true, Left: out.sizes.Left}}
		}
	case record.Disarm:
		if out.err != nil {
			failed(m.kept, i.Member.ID, now, out.err)
		} else {
			m.disarmed[i.Member.ID]++
			delete(m.kept, i.Member.ID)
		}
	case record.None, record.FenceAll, record.RemoveMember:
	}
}

// try is what has become of an operation on a member. After one that failed, there is a pause until the next, which
// doubles: what fails at once would otherwise be asked for again at once.
type try struct {
	rollout.Try
	until time.Time
	pause time.Duration
}

const firstTryAgain, longestTryAgain = 2 * time.Second, time.Minute

// failed notes that an operation on a member has failed. One that was never sent has not stopped the member, and does
// not count.
func failed(tries map[uint64]*try, member uint64, now time.Time, err error) {
	t := tries[member]
	if t == nil {
		t = &try{}
		tries[member] = t
	}
	if !membership.NotSent(err) {
		t.Failed++
	}
	t.Words, t.Lasting = err.Error(), membership.Denied(err)
	t.pause = min(max(2*t.pause, firstTryAgain), longestTryAgain)
	t.until = now.Add(t.pause)
}

// told is what a decision may know of tries.
func told(tries map[uint64]*try, now time.Time) map[uint64]rollout.Try {
	known := make(map[uint64]rollout.Try, len(tries))
	for member, t := range tries {
		known[member] = t.Try
		if now.Before(t.until) {
			t := t.Try
			t.Resting = true
			known[member] = t
		}
	}
	return known
}

// causes forgets what was tried before an operator has asked for a defragmentation, and before the alarm NOSPACE ended:
// should it come back, there is something new to free.
func (m *tracker) causes(r *rollout.Request, alarm bool) {
	asked := r != nil && r.Operation == rollout.RequestDefragment
	if asked && !m.asked || m.alarmed && !alarm {
		clear(m.tries)
		clear(m.kept)
	}
	if asked && !m.asked {
		clear(m.disarmed)
	}
	m.asked, m.alarmed = asked, alarm
}
