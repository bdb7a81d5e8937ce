package record_test

import (
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/record"
)

var (
	walks    = flag.Int("walks", defaultWalks, "random walks to take")
	walkSeed = flag.Uint64("walk-seed", 0, "take only the walk with this seed, and tell its story")
)

// walk lets anything happen for a while, in the proportions that the seed prefers, and
// then lets no more faults happen and expects the rollout to end.
func walk(seed uint64, telling bool) *world {
	w := newWorld(seed, telling)
	actions := w.actions()
	total := 0
	for i := range actions {
		actions[i].weight *= []int{0, 0, 1, 3}[w.rand.IntN(4)] + actions[i].least
		total += actions[i].weight
	}
	for w.at = 1; w.at <= 1000 && w.broken == ""; w.at++ {
		w.now += time.Duration(w.rand.IntN(40)) * time.Millisecond
		n := w.rand.IntN(total)
		for i := range actions {
			if n -= actions[i].weight; n < 0 {
				actions[i].do()
				break
			}
		}
		w.checkRecord()
	}
	w.settle()
	return w
}

type action struct {
	weight, least int
	do            func()
}

// actions are all that can happen.
func (w *world) actions() []action {
	anyone := func() *coordinator { return w.coordinators[w.rand.IntN(len(w.coordinators))] }
	awake := func(do func(*coordinator)) func() {
		return func() {
			if c := anyone(); c.asleep < w.at {
				do(c)
			}
		}
	}
	return []action{
		{200, 1, awake(func(c *coordinator) { w.goOn(c) })},
		{200, 1, func() { // A request lands; mostly one that somebody waits for.
			if len(w.flying) == 0 {
				return
			}
			r := w.flying[w.rand.IntN(len(w.flying))]
			act, acts := r.effect.(record.Act)
			removal := acts && removes(act)
			if !r.deserted && !removal || w.rand.IntN(8) == 0 {
				w.land(r)
			}
		}},
		{40, 1, awake(func(c *coordinator) {
			if c.effect == nil {
				w.start(c, record.Right(w.rand.IntN(2)))
			}
		})},
		{80, 1, func() { w.kubelet() }},
		{16, 0, awake(func(c *coordinator) {
			if c.request != nil {
				w.desert(c)
			}
		})},
		{4, 0, func() { // The API server refuses a request for good.
			if len(w.flying) == 0 {
				return
			}
			r := w.flying[w.rand.IntN(len(w.flying))]
			if r.stage == 0 {
				w.drop(r)
				r.answer = forbidden(r.effect)
			}
		}},
		{4, 0, func() { // A request is lost on its way.
			if len(w.flying) > 0 {
				w.drop(w.flying[w.rand.IntN(len(w.flying))])
			}
		}},
		{6, 0, func() { // A process is paused.
			c := anyone()
			c.asleep = w.at + w.rand.IntN(120)
			w.tell("%s is paused", c.name)
		}},
		{2, 0, func() { w.crash(anyone()) }},
		{8, 0, awake(func(c *coordinator) {
			if c.effect != nil && c.request == nil {
				w.tell("%s is told to stop", c.name)
				w.step(c, record.Stop{})
			}
		})},
		{8, 0, func() {
			w.owner = anyone()
			w.tell("%s owns the lock", w.owner.name)
		}},
		{2, 0, func() {
			if w.lease != nil {
				w.count("Leases deleted")
				w.tell("the Lease is deleted")
				w.changeLease(nil)
			}
		}},
		{3, 0, func() { // An operator sets a control; there may be no Lease to set it on.
			if w.lease == nil {
				w.count("Leases created by an operator")
				w.tell("an operator creates the Lease")
				w.changeLease(&record.Lease{})
				w.blank = true
				return
			}
			l := *w.lease
			w.tell("an operator edits the Lease")
			w.changeLease(&l)
		}},
		{2, 0, func() { // An operator replaces the Lease's annotations.
			if w.lease == nil {
				return
			}
			l := *w.lease
			l.Schema, l.Intent = 0, record.Intent{}
			w.count("annotations replaced")
			w.tell("an operator replaces the Lease's annotations")
			w.changeLease(&l)
			w.blank = true
		}},
		{4, 0, func() { // A kubelet reports something.
			if p := w.pods[w.rand.IntN(len(w.pods))]; !p.gone {
				p.version = w.newVersion()
				w.tell("the status of %s changes: version %d", p.name, p.version)
			}
		}},
		{1, 0, func() { // Somebody else deletes a pod.
			if p := w.pods[w.rand.IntN(len(w.pods))]; !p.gone && !p.going {
				p.going, p.up, p.version = true, false, w.newVersion()
				w.tell("somebody else deletes %s", p.name)
			}
		}},
		{2, 0, func() {
			w.revision++
			w.tell("the template changes: revision %d", w.revision)
		}},
		{3, 0, func() {
			w.now += time.Duration(w.rand.IntN(20_000)) * time.Millisecond
			w.tell("time passes")
		}},
	}
}

func (w *world) drop(r *request) {
	w.tell("%s's %s gets nowhere", r.by.name, told(r.effect))
	w.flying = slices.DeleteFunc(w.flying, func(o *request) bool { return o == r })
}

// kubelet and StatefulSet controller: a pod that goes is gone, is recreated, comes up.
func (w *world) kubelet() {
	p := w.pods[w.rand.IntN(len(w.pods))]
	switch {
	case p.gone:
		w.uids++
		p.uid, p.gone, p.going, p.up = fmt.Sprintf("u%d", w.uids), false, false, false
		p.version, p.revision, p.fenced = w.newVersion(), w.revision, ""
		w.tell("%s is recreated: UID %s, version %d, revision %d", p.name, p.uid, p.version, p.revision)
	case p.going:
		p.gone = true
		w.newVersion()
		w.tell("%s is gone", p.name)
	case !p.up:
		p.up, p.ours, p.version = true, false, w.newVersion()
		w.tell("%s is up: version %d", p.name, p.version)
	}
}

// settle lets no more faults happen. Whatever is under way may still land, one process
// owns the lock, and all get their turn: then the rollout has to end, and the record to
// be given back.
func (w *world) settle() {
	w.kind = true
	w.tell("no more faults; %s owns the lock", w.owner.name)
	for range 3000 {
		if w.broken != "" || w.ended() {
			return
		}
		w.at++
		w.now += 20 * time.Millisecond
		w.kubelet()
		if len(w.flying) > 0 {
			w.land(w.flying[w.rand.IntN(len(w.flying))])
		}
		for _, c := range w.coordinators {
			switch {
			case c.request != nil && c.request.answer == nil && !slices.Contains(w.flying, c.request):
				w.desert(c)
			case c.effect == nil && c == w.owner && !w.updated():
				w.start(c, record.ByLock)
			case c.effect != nil:
				w.goOn(c)
			}
		}
		w.checkRecord()
	}
	w.breaks("the rollout does not end, although nothing stands in its way")
}

func (w *world) updated() bool {
	for _, p := range w.pods {
		if p.gone || p.going || !p.up || p.revision != w.revision {
			return false
		}
	}
	return true
}

func (w *world) ended() bool {
	for _, c := range w.coordinators {
		if c.effect != nil {
			return false
		}
	}
	return w.updated()
}

// However the requests, the processes and the lock behave: no removal takes effect that
// was decided in ignorance of another one, whatever can still take effect is on record,
// and once the faults are over, the rollout ends.
func TestRandomWalksBreakNoRule(t *testing.T) {
	if *walkSeed != 0 {
		w := walk(*walkSeed, true)
		t.Log("\n" + strings.Join(w.story, "\n"))
		if w.broken != "" {
			t.Error(w.broken)
		}
		return
	}
	counts := map[string]int{}
	for seed := range uint64(*walks) {
		w := walk(seed+1, false)
		if w.broken != "" {
			story := walk(seed+1, true).story
			t.Fatalf("seed %d: %s\nHow it came to that (all of it with -walk-seed=%d):\n%s",
				seed+1, w.broken, seed+1, strings.Join(story[max(0, len(story)-80):], "\n"))
		}
		for what, n := range w.counts {
			counts[what] += n
		}
	}
	t.Logf("%d walks: %v", *walks, counts)
	for _, what := range []string{
		"removals", "removals whose answer was lost", "removals refused", "late removals refused", "fences",
		"requests that landed late", "claims by the lock", "claims by the fallback",
		"Leases deleted", "Leases created by an operator", "annotations replaced",
	} {
		if counts[what] < *walks/50 {
			t.Errorf("%s: %d in %d walks, which proves little", what, counts[what], *walks)
		}
	}
}
