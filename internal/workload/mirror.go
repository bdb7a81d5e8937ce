package workload

import (
	"context"
	"maps"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/watch"
)

// watchRetry is the pause before a watch that ended is opened again, so that a failing API server is
// not flooded.
const watchRetry = time.Second

// Watch is a watch that is kept open.
type Watch struct {
	// Open opens it on the objects that Options choose. If Options have a resourceVersion, it begins there.
	// Otherwise it first tells how every object is.
	Open    func(context.Context, metav1.ListOptions) (watch.Interface, error)
	Options metav1.ListOptions
	// Into, where it is not nil, is kept up to date.
	Into interface {
		// opened is told whether the watch goes on, and how to end it. It gives the watch a number.
		opened(goesOn bool, end func()) (number int)
		told(number int, e watch.Event)
		// ended returns true if the next watch is to go on where this one ended.
		ended(number int) (goOn bool)
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
	for ctx.Err() == nil {
		events, err := w.Open(ctx, opts)
		switch {
		case err == nil:
			watching, end := context.WithCancel(ctx)
			number := 0
			if w.Into != nil {
				number = w.Into.opened(opts.ResourceVersion != "", end)
			}
			if w.Opened != nil {
				w.Opened()
			}
			opts.ResourceVersion = w.drain(watching, events, opts.ResourceVersion, number)
			end()
			if w.Into != nil && !w.Into.ended(number) {
				opts.ResourceVersion = ""
			}
		case expired(err):
			opts.ResourceVersion = ""
		case ctx.Err() == nil:
			w.Failed(err)
		}
		retry := time.NewTimer(watchRetry)
		select {
		case <-ctx.Done():
		case <-retry.C:
		}
		retry.Stop()
	}
}

// drain hands on what a watch tells, and returns where the next one can go on. That is empty if nobody knows.
func (w Watch) drain(ctx context.Context, events watch.Interface, at string, number int) string {
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
			w.Into.told(number, e)
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
	// kept is true while somebody wants to know.
	kept bool
	// objects are by name, and at is the resourceVersion up to which everything is known. Before they are whole,
	// others may be missing.
	objects map[string]T
	at      string
	whole   bool
	// open is true while there is a watch, which end ends, and odd where it tells what nobody understands. watches
	// counts them: one may still be ending when the next one is open. era counts how often what was known had to be
	// forgotten.
	open, odd bool
	end       func()
	watches   int
	era       int
	// amended are the objects as we know them to be before the watch tells, by name.
	amended map[string]func(T) T
}

// Remember has the mirror learn, or forget all.
func (m *Mirror[T]) Remember(yes bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.kept != yes {
		m.forget()
	}
	m.kept = yes
}

// Forget is called when what the mirror shows is not what it is about any more.
func (m *Mirror[T]) Forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.forget()
}

func (m *Mirror[T]) forget() {
	m.objects, m.at, m.whole, m.odd = nil, "", false, false
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
// is its own. What was written by us and answered is as good.
func (m *Mirror[T]) Read(began Reading, at string, all ...T) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case !m.kept || began.era != m.era:
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
	m.objects, m.at, m.whole = make(map[string]T, len(all)), at, true
	for _, o := range all {
		m.show(o)
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
	return m.at
}

func (m *Mirror[T]) opened(goesOn bool, end func()) (number int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !goesOn {
		m.forget()
	}
	m.open, m.end = true, end
	m.watches++
	return m.watches
}

// ended returns false for a single object, of which a watch that begins anew tells everything at once, and whatever
// was lost before.
func (m *Mirror[T]) ended(number int) (goOn bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if number != m.watches {
		return false
	}
	m.open, m.end = false, nil
	return m.whole && !m.Single
}

func (m *Mirror[T]) told(number int, e watch.Event) {
	o, ok := e.Object.(T)
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.kept || number != m.watches {
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
