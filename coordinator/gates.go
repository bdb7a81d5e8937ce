package coordinator

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/quorate/quorate/pkg/rollout"
)

// Gate is one of the host's own checks, such as "the last backup succeeded".
type Gate struct {
	// Name is how people know it; each gate has its own.
	Name string
	// SickToo makes the gate also hold a pod whose sidecar is sick. By default it does not,
	// because it could then block its own cure.
	SickToo bool
	// Ask says whether the gate passes, and in the detail why or why not. It is called at most once for every
	// observation of a rollout, on a goroutine of its own, and never twice at a time. While a rollout waits for
	// something else, or the gate has passed within the last two seconds and nothing was done since it was called, it
	// need not be called. The context ends after 30 s, or when this sidecar does not coordinate any more; Ask must
	// then return.
	//
	// No observation waits for an answer that takes long: until it comes, the last one counts if it
	// is at most 30 s old, and after that the gate does not pass. A gate that ignores its context
	// is not asked again until it has returned, so it does not pass. Run does not wait for it
	// either and leaves its goroutine behind.
	Ask func(ctx context.Context) (pass bool, detail string)
}

const (
	// answerLasts is how old a gate's answer may be, and how long one is waited for before the
	// gate is asked again.
	answerLasts = 30 * time.Second
	// passLasts is for how long a gate that has passed is not asked again, unless something is done meanwhile. One
	// removal takes several observations that follow one another at once, and a gate that reads from the API server
	// would read for each.
	passLasts = 2 * time.Second
	// answerGrace is how long an observation waits, from its beginning, for gates that it has asked itself.
	// It usually passes while the Kubernetes API is asked.
	answerGrace = leastRest
)

// gates asks the host's gates, beside everything else. Their answers outlive a tenure.
type gates []*asked

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

func newGates(all []Gate) gates {
	var g gates
	for _, gate := range all {
		g = append(g, &asked{Gate: gate})
	}
	return g
}

// checkGates returns an error for every gate that cannot be asked or told from another.
func checkGates(all []Gate) error {
	var errs []error
	names := map[string]bool{}
	for i, g := range all {
		switch {
		case g.Name == "":
			errs = append(errs, fmt.Errorf("Gates[%d].Name is required", i))
		case names[g.Name]:
			errs = append(errs, fmt.Errorf("Gates[%d].Name: %q: another gate has that name", i, g.Name))
		}
		names[g.Name] = true
		if g.Ask == nil {
			errs = append(errs, fmt.Errorf("Gates[%d].Ask is required (%q)", i, g.Name))
		}
	}
	return errors.Join(errs...)
}

// ask asks every gate that has no call under way and has not just passed, and returns a channel for the end of each
// call. It does not wait. If an answer comes too late for the observation that waits for it, and differs from the last
// one, late is called. An unchanged answer waits for the next observation. Otherwise a slow gate would
// have one observation follow the other without a pause.
func (g gates) ask(ctx context.Context, late func()) (begun []<-chan struct{}) {
	for _, a := range g {
		a.mu.Lock()
		justPassed := a.pass && time.Since(a.at) < passLasts && a.doneBefore == a.done
		if a.underWay == nil && !justPassed {
			a.underWay = make(chan struct{})
			begun = append(begun, a.underWay)
			if a.unanswered.IsZero() {
				a.unanswered = time.Now()
			}
			go a.call(ctx, time.Now(), a.done, late)
		}
		a.mu.Unlock()
	}
	return begun
}

func (a *asked) call(ctx context.Context, began time.Time, done int, late func()) {
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
	if news && time.Since(began) >= answerGrace {
		late()
	}
}

// answers waits for the calls that have just begun, at most until then, and returns what
// every gate says.
func (g gates) answers(ctx context.Context, begun []<-chan struct{}, until time.Time) []rollout.Gate {
	grace, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	for _, done := range begun {
		wait(grace, 0, done)
	}
	var said []rollout.Gate
	for _, a := range g {
		said = append(said, a.says(time.Now()))
	}
	return said
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

// acted is called when something has been done that may close a gate, so that all of them are asked anew.
func (g gates) acted() {
	for _, a := range g {
		a.mu.Lock()
		a.done++
		a.mu.Unlock()
	}
}

// end waits a moment for calls whose context has ended, and names those that go on.
func (g gates) end(log *logrus.Entry, patience time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for _, a := range g {
		a.mu.Lock()
		underWay, since := a.underWay, a.unanswered
		a.mu.Unlock()
		if underWay == nil {
			continue
		}
		wait(ctx, 0, underWay)
		if ctx.Err() != nil {
			log.WithField("gate", a.Name).
				Warnf("the host's gate does not return, although its context has ended; it was asked %v ago",
					time.Since(since).Round(time.Second))
		}
	}
}
