// Package gates asks the host's gates beside everything else, so that none of them can wedge the loop or age its
// evidence: one call at a time for each, and its last answer counts for a while.
package gates

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/quorate/quorate/pkg/rollout"
)

// Gate is one of the host's own checks. What a host has to know of it stands at coordinator.Gate.
type Gate struct {
	Name    string
	SickToo bool
	Ask     func(ctx context.Context) (pass bool, detail string)
}

const (
	// answerLasts is how old a gate's answer may be, and how long one is waited for before the
	// gate is asked again.
	answerLasts = 30 * time.Second
	// passLasts is for how long a gate that has passed is not asked again, unless something is done meanwhile. One
	// removal takes several observations that follow one another at once, and a gate that reads from the API server
	// would read for each.
	passLasts = 2 * time.Second
)

// Gates are all gates of a host. Their answers outlive a tenure. The zero value has none.
type Gates struct {
	all   []*asked
	grace time.Duration
	late  func()
}

// New returns the gates. An observation waits for their answers only for the grace, from when it asks. If an answer
// comes too late for that, and differs from the last one, late is called. An unchanged answer waits for the next
// observation. Otherwise a slow gate would have one observation follow the other without a pause.
func New(all []Gate, grace time.Duration, late func()) Gates {
	g := Gates{grace: grace, late: late}
	for _, gate := range all {
		g.all = append(g.all, &asked{Gate: gate})
	}
	return g
}

// Any is false for a host without gates.
func (g *Gates) Any() bool { return len(g.all) > 0 }

// asked is a gate and what is known about it.
type asked struct {
	Gate

	mu sync.Mutex
	// underWay is closed at the end of the call that is under way; nil when there is none.
	underWay chan struct{}
	// unanswered is when it was first asked after its last answer, zero when nothing was.
	unanswered time.Time
	// pass and detail are the last answer, at when it came; zero when there was none yet.
	pass   bool
	detail string
	at     time.Time
	// done counts what was done that may close a gate, and doneBefore is how much that was when the last answer was
	// asked for.
	done, doneBefore int
}

// Ask asks every gate that has no call under way and has not just passed. It does not wait, but what it returns does:
// for the calls that have begun, at most until the grace is over. That returns what every gate says.
func (g *Gates) Ask(ctx context.Context) (answers func() []rollout.Gate) {
	until := time.Now().Add(g.grace)
	var begun []<-chan struct{}
	for _, a := range g.all {
		a.mu.Lock()
		justPassed := a.pass && time.Since(a.at) < passLasts && a.doneBefore == a.done
		if a.underWay == nil && !justPassed {
			a.underWay = make(chan struct{})
			begun = append(begun, a.underWay)
			if a.unanswered.IsZero() {
				a.unanswered = time.Now()
			}
			go g.call(ctx, a, time.Now(), a.done)
		}
		a.mu.Unlock()
	}
	return func() []rollout.Gate {
		grace, cancel := context.WithDeadline(ctx, until)
		defer cancel()
		for _, ended := range begun {
			await(grace, ended)
		}
		var said []rollout.Gate
		for _, a := range g.all {
			said = append(said, a.says(time.Now()))
		}
		return said
	}
}

func (g *Gates) call(ctx context.Context, a *asked, began time.Time, done int) {
	ctx, cancel := context.WithTimeout(ctx, answerLasts)
	defer cancel()
	pass, detail := a.Ask(ctx)
	a.mu.Lock()
	defer a.mu.Unlock()
	news := false
	if ctx.Err() == nil { // Otherwise it may only say that its time has run out.
		news = pass != a.pass || a.at.IsZero() || time.Since(a.at) > answerLasts
		a.pass, a.detail, a.at, a.unanswered = pass, detail, time.Now(), time.Time{}
		a.doneBefore = done
	}
	close(a.underWay)
	a.underWay = nil
	if news && time.Since(began) >= g.grace {
		g.late()
	}
}

// says returns what a gate has answered, for as long as the answer lasts.
func (a *asked) says(now time.Time) rollout.Gate {
	a.mu.Lock()
	defer a.mu.Unlock()
	r := rollout.Gate{Name: a.Name, SickToo: a.SickToo}
	if !a.at.IsZero() && now.Sub(a.at) <= answerLasts {
		r.Pass, r.Detail = a.pass, a.detail
		return r
	}
	r.Detail = fmt.Sprintf("the host has not answered for %v", now.Sub(a.unanswered).Round(time.Second))
	if !a.at.IsZero() {
		r.Detail += "; its last answer was: " + a.detail
	}
	return r
}

// Acted is called when something has been done that may close a gate, so that all of them are asked anew.
func (g *Gates) Acted() {
	for _, a := range g.all {
		a.mu.Lock()
		a.done++
		a.mu.Unlock()
	}
}

// End waits a moment for calls whose context has ended, and names those that go on.
func (g *Gates) End(log *logrus.Entry, patience time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for _, a := range g.all {
		a.mu.Lock()
		underWay, since := a.underWay, a.unanswered
		a.mu.Unlock()
		if underWay == nil {
			continue
		}
		await(ctx, underWay)
		if ctx.Err() != nil {
			log.WithField("gate", a.Name).
				Warnf("the host's gate does not return, although its context has ended; it was asked %v ago",
					time.Since(since).Round(time.Second))
		}
	}
}

// await waits for the end of a call, or of the context.
func await(ctx context.Context, ended <-chan struct{}) {
	select {
	case <-ctx.Done():
	case <-ended:
	}
}
