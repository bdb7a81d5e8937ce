package coordinator

import (
	"sync"
	"time"
)

// place is what this sidecar has in the election: nothing, a session in which it waits, or the
// lock. The candidate keeps it up, and the loop goes by it.
type place struct {
	mu      sync.Mutex
	session *session
	tenure  *tenure // nil unless the lock is ours
	// last is when a session that is over was last confirmed, or until when this sidecar stays away
	// although it is fit. failing is true while no new session can be had.
	last    time.Time
	failing bool
	// over is true when no lock is wanted any more.
	over bool
	// expects is until when the lock may be handed over to us, while another sidecar owns it.
	expects time.Time
	// away notes that this sidecar stays out of the election until then. Without a reason, that
	// is because its own pod goes, or because it has just handed the lock over.
	away   time.Time
	reason string
}

// enter notes that there is a session.
func (p *place) enter(s *session) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.session, p.tenure, p.failing = s, nil, false
}

// expect notes until when the lock may be handed over to us.
func (p *place) expect(until time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.expects = until
}

// expected is for how long the lock may still be handed over to us. It is not positive if that is not to be expected.
func (p *place) expected() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Until(p.expects)
}

// own notes that the lock is ours. It returns false after the end, because then nobody would give
// the lock back.
func (p *place) own(t *tenure) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.over {
		p.tenure = t
	}
	return !p.over
}

// leave notes that the session is over, and returns true if the lock was lost with it. While this
// sidecar stays away although it is fit, it asks etcd nothing. That does not mean that etcd is
// silent, so no silence is counted before it lines up again.
func (p *place) leave(s *session) (lost bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	lost = p.tenure != nil
	p.session, p.tenure, p.last = nil, nil, s.confirmed()
	if p.reason == "" && p.away.After(p.last) {
		p.last = p.away
	}
	return lost
}

// fails notes that no session can be opened, and returns true if that is new.
func (p *place) fails() (news bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	news, p.failing = !p.failing, true
	return news
}

// resign takes the tenure out of the place, so that the lock can be given back, and says until
// when no other is wanted.
func (p *place) resign(reason string, away time.Time, over bool) *tenure {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.tenure
	p.tenure, p.reason, p.away = nil, reason, away
	p.over = p.over || over
	return t
}

// staysAway returns until when this sidecar stays out of the election, and why.
func (p *place) staysAway() (until time.Time, reason string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.away, p.reason
}

func (p *place) owned() *tenure {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.tenure
}

// confirmed is when etcd last confirmed a session of ours, as far as we know; zero if it never did.
func (p *place) confirmed() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.session != nil {
		return p.session.confirmed()
	}
	return p.last
}

// silentSince is when etcd last confirmed a session of ours, and now if it never did.
func (p *place) silentSince(now time.Time) time.Time {
	if last := p.confirmed(); !last.IsZero() {
		return last
	}
	return now
}

// silent returns how long it takes until etcd has been silent for too long, if it stays silent.
// It is not positive if that time has passed. A sidecar that waits for the lock may then be
// needed without it. In good health one keep-alive follows the other within half a patience
// (see join); so after a whole one, one of them has not been answered for half.
func (p *place) silent(patience time.Duration) time.Duration {
	p.mu.Lock()
	session, failing, last := p.session, p.failing, p.last
	p.mu.Unlock()
	switch {
	case session != nil:
		last = session.confirmed()
	case failing:
		return 0
	case last.IsZero():
		return patience // The first session is yet to come, or to fail.
	}
	return patience - time.Since(last)
}
