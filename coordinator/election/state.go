package election

import (
	"sync"
	"time"
)

// state is what this process has in the election: nothing, a session in which it waits, or the lock. The goroutine of
// [Candidate.Run] keeps it up to date, and the host reads it.
type state struct {
	mu      sync.Mutex
	session *session
	tenure  *Tenure // nil unless the lock is ours
	// last is when a session that is over was last confirmed, or until when this process stays away although it is
	// fit. failing is true while no new session can be had.
	last    time.Time
	failing bool
	// elsewhere is when it was last known that somebody else has the lock, while no session of ours was confirmed.
	elsewhere time.Time
	// over is true when no lock is wanted any more.
	over bool
	// away is until when this process stays out of the election. Without a reason, that is because its own pod goes,
	// or because it has just handed the lock over.
	away   time.Time
	reason string
}

// enter notes that there is a session.
func (p *state) enter(s *session) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.session, p.tenure, p.failing = s, nil, false
}

// own notes that the lock is ours. It returns false after the end, because then nobody would give the lock back.
func (p *state) own(t *Tenure) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.over {
		p.tenure = t
	}
	return !p.over
}

// leave notes that the session is over, and returns true if the lock was lost with it. While this process stays away
// although it is fit, it asks etcd nothing. That does not mean that etcd is silent, so no silence is counted before it
// lines up again.
func (p *state) leave(s *session) (lost bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	lost = p.tenure != nil
	p.session, p.tenure, p.last = nil, nil, s.life.confirmed()
	if p.reason == "" && p.away.After(p.last) {
		p.last = p.away
	}
	return lost
}

// fails notes that no session can be opened, and returns true if that is new.
func (p *state) fails() (news bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	news, p.failing = !p.failing, true
	return news
}

// resign takes the tenure out of the state, so that the lock can be given back, and says until when no other is wanted.
func (p *state) resign(r Resignation) *Tenure {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.tenure
	p.tenure, p.reason, p.away = nil, r.Unfit, r.Until
	p.over = p.over || r.Over
	return t
}

// staysAway returns until when this process stays out of the election, and why.
func (p *state) staysAway() (until time.Time, reason string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.away, p.reason
}

func (p *state) owned() *Tenure {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.tenure
}

// ours is when etcd last confirmed a session of ours, as far as we know; zero if it never did.
func (p *state) ours() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.confirmedSession()
}

// confirmedSession needs the lock.
func (p *state) confirmedSession() time.Time {
	if p.session != nil {
		return p.session.life.confirmed()
	}
	return p.last
}

// sees notes that somebody else had the lock at that time.
func (p *state) sees(at time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.elsewhere = at
}

// confirmed is the later of the times at which a session of ours was confirmed and somebody else had the lock.
func (p *state) confirmed() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	if last := p.confirmedSession(); last.After(p.elsewhere) {
		return last
	}
	return p.elsewhere
}

// silent returns how long it takes until no lock has been confirmed for a patience, if nothing is until then. It is not
// positive if that time has passed.
func (p *state) silent(patience time.Duration) time.Duration {
	p.mu.Lock()
	session, failing, elsewhere := p.session, p.failing, p.elsewhere
	p.mu.Unlock()
	last := p.confirmed()
	switch {
	case session == nil && failing: // What was confirmed before says nothing any more.
		return max(0, patience-time.Since(elsewhere))
	case last.IsZero():
		return patience // The first session is yet to come, or to fail.
	}
	return patience - time.Since(last)
}

// lease is the one of our session, or 0.
func (p *state) lease() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.session == nil {
		return 0
	}
	return int64(p.session.Lease())
}
