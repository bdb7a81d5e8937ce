package coordinator

import (
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// mirrored is an object that watches are about.
type mirrored interface {
	metav1.Object
	runtime.Object
}

// feed is what the watches of a kube are told, as those of an API server do: of every object that is there, or
// every change since a resourceVersion.
type feed struct {
	// objects are as they were last told, by a watch's selector and the object's name.
	objects map[string]mirrored
	changes []change
	watches []*subscriber
	// late holds back what happens from now on, and since is the first change that is known; a watch that would
	// have to begin earlier has expired.
	late  bool
	since int
	// future has a watch that begins at a resourceVersion that is yet to come tell nothing before that.
	future bool
}

// change is one of the objects that are chosen by a selector.
type change struct {
	of string
	watch.Event
	version int
}

// subscriber is a watch that has been told the changes before next.
type subscriber struct {
	*watch.RaceFreeFakeWatcher
	of   string
	next int
	from int
}

// truthful has the watches tell what happens.
func truthful(k *kube) *feed {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.feed = &feed{objects: map[string]mirrored{}}
	k.set.ResourceVersion = "1"
	k.feed.tell(k)
	return k.feed
}

func versionOf(o metav1.Object) int {
	v, _ := strconv.Atoi(o.GetResourceVersion())
	return v
}

// The selectors of the watches.
const ofSet, ofPods, ofLease = "metadata.name=etcd", "app=etcd", "metadata.name=quorate-etcd"

// tell feed what has become of every object.
func (t *feed) tell(k *kube) {
	if t == nil {
		return
	}
	now := map[string]mirrored{}
	if was, ok := t.objects[ofSet+"/etcd"]; ok && !equality.Semantic.DeepEqual(was, mirrored(k.set)) {
		k.version++
		k.set.ResourceVersion = strconv.Itoa(k.version)
	}
	now[ofSet+"/etcd"] = k.set.DeepCopy()
	for _, p := range k.pods {
		was, ok := t.objects[ofPods+"/"+p.Name]
		if ok && was.GetResourceVersion() == p.ResourceVersion && !equality.Semantic.DeepEqual(was, mirrored(p)) {
			k.version++
			p.ResourceVersion = strconv.Itoa(k.version)
		}
		now[ofPods+"/"+p.Name] = p.DeepCopy()
	}
	if k.lease != nil {
		now[ofLease+"/"+k.lease.Name] = k.lease.DeepCopy()
	}
	add := func(key string, e watch.EventType, o mirrored) {
		of, _, _ := strings.Cut(key, "/")
		t.changes = append(t.changes, change{of, watch.Event{Type: e, Object: o}, versionOf(o)})
	}
	for key, was := range t.objects {
		if is, ok := now[key]; !ok || is.GetUID() != was.GetUID() {
			gone, _ := was.DeepCopyObject().(mirrored)
			k.version++
			gone.SetResourceVersion(strconv.Itoa(k.version))
			add(key, watch.Deleted, gone)
		}
	}
	for key, is := range now {
		switch was, ok := t.objects[key]; {
		case !ok || is.GetUID() != was.GetUID():
			if versionOf(is) < k.version && ok { // It came after its predecessor had gone.
				k.version++
				t.renumber(k, is)
			}
			add(key, watch.Added, is)
		case is.GetResourceVersion() != was.GetResourceVersion():
			add(key, watch.Modified, is)
		}
	}
	t.objects = now
	t.deliver()
}

// renumber gives a pod the newest resourceVersion.
func (t *feed) renumber(k *kube, o mirrored) {
	o.SetResourceVersion(strconv.Itoa(k.version))
	for _, p := range k.pods {
		if p.UID == o.GetUID() {
			p.ResourceVersion = o.GetResourceVersion()
		}
	}
}

func (t *feed) deliver() {
	if t.late {
		return
	}
	for _, w := range t.watches {
		for ; w.next < len(t.changes); w.next++ {
			if c := t.changes[w.next]; c.of == w.of && !w.IsStopped() && (!t.future || c.version > w.from) {
				w.Action(c.Type, c.Object.DeepCopyObject())
			}
		}
	}
}

// hold has the watches lag behind until they are let go.
func (k *kube) hold() (letGo func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.feed.late = true
	return func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.feed.late = false
		k.feed.deliver()
	}
}

// interrupt ends all watches. Those that are opened again have expired, if the API server has forgotten what was.
func (k *kube) interrupt(forgotten bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if forgotten {
		k.version++
		k.feed.since = k.version
	}
	for _, w := range k.feed.watches {
		w.Stop()
	}
	k.feed.watches = nil
}

func (t *feed) open(opts metav1.ListOptions) (watch.Interface, error) {
	w := &subscriber{RaceFreeFakeWatcher: watch.NewRaceFreeFake(), of: opts.FieldSelector + opts.LabelSelector,
		next: len(t.changes)}
	if from, err := strconv.Atoi(opts.ResourceVersion); err == nil {
		if from < t.since {
			return nil, apierrors.NewResourceExpired("too old resource version")
		}
		w.from = from
		for w.next > 0 && t.changes[w.next-1].version > from {
			w.next--
		}
	} else {
		for key, o := range t.objects {
			if of, _, _ := strings.Cut(key, "/"); of == w.of {
				w.Add(o.DeepCopyObject())
			}
		}
	}
	t.watches = append(t.watches, w)
	t.deliver()
	return w, nil
}
