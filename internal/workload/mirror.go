package workload

import (
	"context"
	"maps"
	"math"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
)

// reopening says how long a watch that ended waits before it is opened again: one to two seconds, and longer after
// every failure, up to ten to twenty. When an API server ends, the watches of all clusters end in the same moment, so
// each waits for a time of its own. The limit is low, because an idle sidecar notices a rollout by its watch alone.
func reopening() wait.Backoff {
	return wait.Backoff{Duration: time.Second, Factor: 2, Cap: 10 * time.Second, Jitter: 1, Steps: math.MaxInt}
}

// Watch is a watch that is kept open.
type Watch struct {
	// Open opens it on the objects that Options choose. If Options have a resourceVersion, it begins there.
	// Otherwise it first tells how every object is.
	Open    func(context.Context, metav1.ListOptions) (watch.Interface, error)
	Options metav1.ListOptions
	// Into, where it is not nil, is kept up to date.
	Into interface {
		// kept is told that somebody keeps it up to date from now on, and nobody else any more. The others are told by
		// whom.
		kept() (by int)
		// goesOn returns true if the next watch is to go on where the last one ended.
		goesOn(by int) bool
		// opened is told whether the watch goes on, and how to end it.
		opened(by int, goesOn bool, end func())
		told(by int, e watch.Event)
		ended(by int)
	}
	// Opened is called whenever it has been opened, Told for every event about an object and for every error,
	// and Failed whenever it cannot be opened. Opened may be nil.
	Opened func()
	Told   func(watch.Event)
	Failed func(error)
}

// Keep keeps the watch open until ctx ends. A watch that ended goes on where it ended, unless Into wants it to begin
// anew. Once that is so long ago that the API server does not know it any more (410 Gone), it begins anew too.
//
// This is not client-go's Reflector: that needs to list what it watches, and our Role lets us list pods alone.
// And it would not take what we read live anyway.
func (w Watch) Keep(ctx context.Context) {
	opts := w.Options
	opts.AllowWatchBookmarks = true
	by := 0
	if w.Into != nil && ctx.Err() == nil {
		by = w.Into.kept()
	}
	pause := reopening()
	for again := false; ctx.Err() == nil; again = true {
		if again && w.Into != nil && !w.Into.goesOn(by) {
			opts.ResourceVersion = ""
		}
		events, err := w.Open(ctx, opts)
		switch {
		case err == nil:
			pause = reopening()
			watching, end := context.WithCancel(ctx)
			if w.Into != nil {
				w.Into.opened(by, opts.ResourceVersion != "", end)
			}
			if w.Opened != nil {
				w.Opened()
			}
			opts.ResourceVersion = w.drain(watching, events, opts.ResourceVersion, by)
			end()
			if w.Into != nil {
				w.Into.ended(by)
			}
		case expired(err):
			pause = reopening()
			opts.ResourceVersion = ""
		case ctx.Err() == nil:
			w.Failed(err)
		}
		retry := time.NewTimer(pause.Step())
		select {
		case <-ctx.Done():
		case <-retry.C:
		}
		retry.Stop()
	}
}

// drain hands on what a watch tells, and returns where the next one can go on. That is empty if nobody knows.
func (w Watch) drain(ctx context.Context, events watch.Interface, at string, by int) string {
	defer events.Stop()
	for {
		var e watch.Event
		select {
		case <-ctx.Done():
			return at
		case event, ok := <-events.ResultChan():
			if !ok {
				return at
			}
			e = event
		}
		if e.Type == watch.Error {
			if expired(apierrors.FromObject(e.Object)) {
				at = ""
			}
			w.Told(e)
			return at
		}
		if object, err := meta.Accessor(e.Object); err == nil && newer(object.GetResourceVersion(), at) {
			at = object.GetResourceVersion()
		}
		if e.Type == watch.Bookmark {
			continue
		}
		if w.Into != nil {
			w.Into.told(by, e)
		}
		w.Told(e)
	}
}

// expired is true where the API server does not know any more what was at that resourceVersion.
func expired(err error) bool { return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) }

// newer is true if a resourceVersion comes after another one of the same kind of objects. Anything comes after
// none.
func newer(a, b string) bool {
	if b == "" {
		return wellFormed(a)
	}
	after, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && after > 0
}

func wellFormed(version string) bool {
	_, err := resourceversion.CompareResourceVersion(version, version)
	return err == nil
}

// A Mirror shows some objects of one kind as a watch and the last live readings tell them. It may lag behind, so
// whatever is done is confirmed by a live reading before.
//
// Its zero value knows nothing, and learns nothing before Remember.
type Mirror[T metav1.Object] struct {
	// Single is true for a mirror of one object, of which a single event tells everything.
	Single bool

	mu sync.Mutex
	// wanted is true while somebody wants to know.
	wanted bool
	// objects are by name, and at is the resourceVersion up to which everything is known. Before they are whole,
	// others may be missing.
	objects map[string]T
	at      string
	whole   bool
	// open is true while there is a watch, which end ends, and odd where it tells what nobody understands. anew is true
	// if what was known has been forgotten since a watch began, so the next one may not go on where that one ended.
	// era counts how often what was known had to be forgotten.
	open, odd, anew bool
	end             func()
	era             int
	// keepers counts who has kept this up to date. The last one does: another may still be ending.
	keepers int
	// amended are the objects as we know them to be before the watch tells, by name.
	amended map[string]func(T) T
}

// Remember has the mirror learn, or forget all.
func (m *Mirror[T]) Remember(yes bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.wanted != yes {
		m.forget()
	}
	m.wanted = yes
}

// Forget is called when what the mirror shows is not what it is about any more.
func (m *Mirror[T]) Forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.forget()
}

func (m *Mirror[T]) forget() {
	m.objects, m.at, m.whole, m.odd, m.anew = nil, "", false, false, true
	m.era++
}

// Reading is what was known when a live reading began.
type Reading struct {
	era int
	at  string
}

// Begin is what a live reading that begins now has to say in the end.
func (m *Mirror[T]) Begin() Reading {
	m.mu.Lock()
	defer m.mu.Unlock()
	return Reading{m.era, m.at}
}

// Read is told what a live reading has found: all objects, as they were at a resourceVersion. Of a single object, that
// is its own.
func (m *Mirror[T]) Read(began Reading, at string, all ...T) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case !m.wanted || began.era != m.era:
		return
	case newer(began.at, at):
		// A live reading is never older than what was told before it began, unless the API server counts anew, as
		// one does that was restored from a backup. A watch that goes on where that is yet to come tells nothing.
		m.forget()
		if m.end != nil {
			m.end()
		}
		return
	case newer(m.at, at):
		return // What is known is newer.
	case !wellFormed(at):
		m.odd = true
		return
	}
	m.learn(at, all...)
}

// learn shows nothing but these objects, which are all there are at a resourceVersion.
func (m *Mirror[T]) learn(at string, all ...T) {
	m.objects, m.at, m.whole = make(map[string]T, len(all)), at, true
	for _, o := range all {
		m.show(o)
	}
}

// Wrote is told what a single object has become by a write of ours that was answered. Unlike a live reading it is true
// whatever was forgotten meanwhile, because nothing is older than the object's own resourceVersion.
func (m *Mirror[T]) Wrote(o T) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.wanted && newer(o.GetResourceVersion(), m.at) {
		m.learn(o.GetResourceVersion(), o)
	}
}

// show shows an object.
func (m *Mirror[T]) show(o T) {
	if amend, ok := m.amended[o.GetName()]; ok {
		o = amend(o)
	}
	m.objects[o.GetName()] = o
}

// Now returns the objects. It returns false while the watch is not open, or has not told everything yet.
func (m *Mirror[T]) Now() (map[string]T, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.open || !m.whole || m.odd {
		return nil, false
	}
	return maps.Clone(m.objects), true
}

// Amend changes an object, as we know it to be before the watch tells. What it still tells of the time before is
// changed as well, until the object is gone.
func (m *Mirror[T]) Amend(name string, change func(T) T) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if o, ok := m.objects[name]; ok {
		if m.amended == nil {
			m.amended = map[string]func(T) T{}
		}
		m.amended[name] = change
		m.show(o)
	}
}

// position is where a watch can begin, if anywhere.
func (m *Mirror[T]) position() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.whole {
		return ""
	}
	m.anew = false
	return m.at
}

func (m *Mirror[T]) kept() (by int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.keepers++
	return m.keepers
}

// goesOn returns false for a single object, of which a watch that begins anew tells everything at once, and whatever
// was lost before.
func (m *Mirror[T]) goesOn(by int) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return by == m.keepers && m.whole && !m.anew && !m.Single
}

// opened ends a watch that goes on from what was forgotten while it was being opened. The next one begins anew.
func (m *Mirror[T]) opened(by int, goesOn bool, end func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if by != m.keepers {
		return
	}
	m.open, m.end = true, end
	switch {
	case !goesOn:
		m.forget()
		m.anew = false
	case m.anew:
		end()
	}
}

func (m *Mirror[T]) ended(by int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if by == m.keepers {
		m.open, m.end = false, nil
	}
}

func (m *Mirror[T]) told(by int, e watch.Event) {
	o, ok := e.Object.(T)
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.wanted || by != m.keepers {
		return
	}
	if !ok || !wellFormed(o.GetResourceVersion()) {
		m.odd = true
		return
	}
	later := newer(o.GetResourceVersion(), m.at)
	if m.whole && !later {
		return
	}
	if later {
		m.at = o.GetResourceVersion()
	}
	if m.objects == nil {
		m.objects = map[string]T{}
	}
	if e.Type == watch.Deleted {
		delete(m.objects, o.GetName())
		delete(m.amended, o.GetName())
	} else {
		o.SetManagedFields(nil) // The largest part of an object, and of no use here.
		m.show(o)
	}
	if m.Single {
		m.whole = len(m.objects) > 0
	}
}
