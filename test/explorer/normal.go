package explorer

import (
	"bytes"
	"math/bits"
	"slices"
	"unsafe"
)

// normalise renames what has only to be told apart, and forgets what nothing can come of,
// so that worlds in which the same can happen are the same.
func (m *Model) normalise(w *World) {
	m.dropOrphans(w)
	for i := range m.Coordinators {
		c := &w.coordinators[i]
		about := c.request.kind == writeLease || c.request.kind == observe && c.request.stage == confirming
		if !about { // Then nothing is about to be done on what was seen.
			c.seen, c.age, c.begun, c.decided = knowledge{}, 0, evidenceTicks, intent{}
		}
	}
	if m.Faults.Blocking > 0 {
		m.forgetDoubts(w)
	}
	for i := range m.ordinals() {
		m.renamePod(w, uint8(i)) //nolint:gosec // Small.
	}
	renameEpochs(w)
	renameLease(w)
	if m.symmetric {
		m.reorder(w)
	}
}

// reorder names the coordinators so that only one is visited of the worlds that differ only in
// these names.
func (m *Model) reorder(w *World) {
	least, candidate := *w, *w
	try := func(a, b uint8) {
		m.swap(&candidate, a, b)
		if bytes.Compare(bytesOf(&candidate), bytesOf(&least)) < 0 {
			least = candidate
		}
	}
	switch m.Coordinators {
	case 2:
		try(0, 1)
	case 3: // Five exchanges in a row lead through all orders.
		for range 2 {
			try(0, 1)
			try(1, 2)
		}
		try(0, 1)
	}
	*w = least
}

// swap gives two coordinators each other's place and name.
func (m *Model) swap(w *World, a, b uint8) {
	other := func(c uint8) uint8 {
		switch c {
		case a:
			return b
		case b:
			return a
		}
		return c
	}
	name := func(id uint8) uint8 {
		if id == 0 {
			return 0
		}
		return identity(other((id-1)%maxCoordinators), (id-1)/maxCoordinators)
	}
	place := func(one uint8) uint8 {
		if one == 0 {
			return 0
		}
		return other(one-1) + 1
	}
	w.coordinators[a], w.coordinators[b] = w.coordinators[b], w.coordinators[a]
	w.unchanged[a], w.unchanged[b] = w.unchanged[b], w.unchanged[a]
	w.owner, w.tenure = place(w.owner), place(w.tenure)
	w.eachLease(func(l *lease) { l.holder = name(l.holder) })
	for _, c := range []uint8{a, b} {
		if r := &w.coordinators[c].request; r.kind != nothing {
			r.by = c
		}
		if r := &w.coordinators[c].cache; r.kind != nothing {
			r.by = c
		}
	}
	for k := range w.orphans {
		if w.orphans[k].kind != nothing {
			w.orphans[k].by = other(w.orphans[k].by)
		}
	}
	sortOrphans(w)
}

func sortOrphans(w *World) {
	slices.SortFunc(w.orphans[:], func(a, b request) int { return bytes.Compare(bytesOf(&a), bytesOf(&b)) })
}

// dropOrphans drops the requests that cannot change anything any more: no
// resourceVersion ever comes back, and neither does a UID.
func (m *Model) dropOrphans(w *World) {
	for k := range w.orphans {
		r := &w.orphans[k]
		idle := false
		switch r.kind {
		case nothing:
			continue
		case writeLease:
			claim := r.lease.epoch == w.lease.epoch+1
			// One that creates the Lease lands when somebody has deleted it again.
			idle = r.lease.rv != w.lease.rv && r.lease.rv != 0 && (!m.Weak.NoSwap || !claim)
		case fencePod:
			idle = !r.ref.current || w.pods[r.ref.pod].fenced == r.value
		case actFenced:
			idle = !m.reaches(w, r) && !m.Weak.NoUID
		case actPresumed, actBlocking:
			idle = !m.canLand(w, r)
		}
		if idle {
			*r = request{}
		}
	}
	sortOrphans(w)
}

// renamePod numbers a pod's resourceVersions in their order.
func (m *Model) renamePod(w *World, i uint8) {
	if m.Weak.NoUID {
		return // Then those of a pod that is gone matter.
	}
	p := &w.pods[i]
	var used uint64
	mark := func(rv uint8) {
		if rv >= 64 {
			panic("a pod has more resourceVersions than can be told apart")
		}
		used |= 1 << rv
	}
	w.eachRef(func(r *ref) {
		switch {
		case r.pod != i:
		case r.current:
			mark(r.rv)
		default:
			r.rv = 0
		}
	})
	w.eachViews(func(views *[maxMembers]view) {
		switch v := &views[i]; {
		case v.current:
			mark(v.rv)
		default:
			v.rv = 0
		}
	})
	w.eachStage(i, func(rv *uint8, current bool) {
		if current {
			mark(*rv)
		} else {
			*rv = 0
		}
	})
	if p.phase == missing {
		p.fenced = fenceValue{}
	} else if p.fenced != (fenceValue{}) && used&(1<<p.fenced.rv) == 0 {
		p.fenced = fenceValue{} // Nobody will write that again.
	}
	if p.phase != missing {
		mark(p.rv)
	}
	rename := func(rv uint8) uint8 {
		if rv == 0 {
			return 0
		}
		return uint8(bits.OnesCount64(used&(1<<rv-1)&^1)) + 1 //nolint:gosec // At most 64.
	}
	w.eachRef(func(r *ref) {
		if r.pod == i && r.current {
			r.rv = rename(r.rv)
		}
	})
	w.eachViews(func(views *[maxMembers]view) {
		if v := &views[i]; v.current {
			v.rv = rename(v.rv)
		}
	})
	w.eachStage(i, func(rv *uint8, current bool) {
		if current {
			*rv = rename(*rv)
		}
	})
	p.rv, p.fenced.rv = rename(p.rv), rename(p.fenced.rv)
}

// eachStage visits what requests know of a pod's resourceVersion beside their target: a
// fence's value, and what an eviction has made of it.
func (w *World) eachStage(i uint8, visit func(rv *uint8, current bool)) {
	of := func(r *request) {
		if r.ref.pod == i && (r.kind == fencePod || r.kind == actFenced && r.stage == 1) {
			visit(&r.value.rv, r.ref.current)
		}
	}
	for k := range w.coordinators {
		of(&w.coordinators[k].request)
	}
	for k := range w.orphans {
		of(&w.orphans[k])
	}
}

// renameEpochs numbers the epochs in their order, and keeps apart those between which
// others have been.
func renameEpochs(w *World) {
	var used [256]bool
	each := func(visit func(*uint8)) {
		w.eachLease(func(l *lease) {
			visit(&l.epoch)
			visit(&l.intent.epoch)
		})
		for i := range w.coordinators {
			visit(&w.coordinators[i].epoch)
			visit(&w.coordinators[i].request.value.epoch)
		}
		for i := range w.orphans {
			visit(&w.orphans[i].value.epoch)
		}
		for i := range w.pods {
			visit(&w.pods[i].fenced.epoch)
		}
	}
	most := uint8(0)
	each(func(e *uint8) { used[*e], most = true, max(most, *e) })
	var to [256]uint8
	last, name := uint8(0), uint8(0)
	changed := false
	for e := uint8(1); e <= most && e > 0; e++ {
		if used[e] {
			name += min(e-last, 2)
			last, to[e] = e, name
			changed = changed || name != e
		}
	}
	if changed {
		each(func(e *uint8) { *e = to[*e] })
	}
}

// renameLease numbers the Lease's resourceVersions in their order.
func renameLease(w *World) {
	var used uint64
	each := func(visit func(*uint8)) {
		w.eachLease(func(l *lease) { visit(&l.rv) })
		for i := range w.coordinators {
			visit(&w.coordinators[i].seenRV)
		}
	}
	each(func(rv *uint8) { used |= 1 << *rv })
	each(func(rv *uint8) {
		if *rv > 0 {
			*rv = uint8(bits.OnesCount64(used&(1<<*rv-1)&^1)) + 1 //nolint:gosec // At most 64.
		}
	})
}

// bytesOf is a value of bytes only, as it lies in memory.
func bytesOf[T any](v *T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(v)), unsafe.Sizeof(*v))
}
