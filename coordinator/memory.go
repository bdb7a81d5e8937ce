package coordinator

import (
	"time"

	"github.com/quorate/quorate/pkg/rollout"
)

// memory is all that a coordinator keeps between cycles: since when each sighting
// has been seen without a break, and how many leadership transfers failed. It starts
// empty with every tenure, which can only make the rollout wait longer. Times are
// compared on the process's monotonic clock, never with another machine's.
type memory struct {
	since           map[rollout.Sighting]time.Time
	failedTransfers map[uint64]int
	// unknownSince is since when a seat has been Unknown without a break.
	unknownSince map[string]time.Time
	// refusals are the evictions that were refused, by the pod's UID.
	refusals map[string]refusal
	// ownNextSince is since when our own pod has been the next to go.
	ownNextSince time.Time
}

func newMemory() *memory {
	return &memory{since: map[rollout.Sighting]time.Time{}, failedTransfers: map[uint64]int{}, unknownSince: map[string]time.Time{}, refusals: map[string]refusal{}}
}

// ages notes what was seen now, forgets what was not, and returns how long each has
// been seen.
func (m *memory) ages(now time.Time, seen []rollout.Sighting) map[rollout.Sighting]time.Duration {
	since := make(map[rollout.Sighting]time.Time, len(seen))
	ages := make(map[rollout.Sighting]time.Duration, len(seen))
	for _, s := range seen {
		first, ok := m.since[s]
		if !ok {
			first = now
		}
		since[s], ages[s] = first, now.Sub(first)
	}
	m.since = since
	return ages
}

// refusal is an eviction that was refused, and until when it is not asked for again.
type refusal struct {
	words string
	until time.Time
	pause time.Duration
}

// An eviction that was refused is asked for again after a while, which doubles: a budget
// frees within seconds when pods come back, and within minutes when people do.
const (
	evictAgain        = 2 * time.Second
	longestEvictAgain = 30 * time.Second
)

func (m *memory) refuse(now time.Time, uid, words string) {
	pause := min(max(2*m.refusals[uid].pause, evictAgain), longestEvictAgain)
	m.refusals[uid] = refusal{words: words, until: now.Add(pause), pause: pause}
}

// refused are the last words on the pods that are not to be evicted again yet.
func (m *memory) refused(now time.Time) map[string]string {
	words := map[string]string{}
	for uid, r := range m.refusals {
		if now.Before(r.until) {
			words[uid] = r.words
		}
	}
	return words
}

func (m *memory) wasRefused(uid string) bool {
	_, ok := m.refusals[uid]
	return ok
}

// unknown returns the pod that has been Unknown for longer than the patience, if any.
func (m *memory) unknown(now time.Time, a *rollout.Assessment) string {
	since := map[string]time.Time{}
	longest := ""
	for i := range a.Seats {
		s := &a.Seats[i]
		if s.Evidence != rollout.Unknown || s.Going() {
			continue
		}
		first, ok := m.unknownSince[s.Name]
		if !ok {
			first = now
		}
		since[s.Name] = first
		if now.Sub(first) >= unknownPatience {
			longest = s.Name
		}
	}
	m.unknownSince = since
	return longest
}

// ownPodNext returns for how long our own pod has been the next to go.
func (m *memory) ownPodNext(now time.Time, next bool) time.Duration {
	if !next {
		m.ownNextSince = time.Time{}
		return 0
	}
	if m.ownNextSince.IsZero() {
		m.ownNextSince = now
	}
	return now.Sub(m.ownNextSince)
}
