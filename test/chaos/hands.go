package chaos

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/quorate/quorate/test/harness"
	"github.com/quorate/quorate/test/harness/traffic"
)

// handsEvery is how long hands wait between two tries. Two cores have more to do than to answer them.
const handsEvery = 150 * time.Millisecond

// grab lets hands try to take another pod, in every way in turn, while one is away and the record names pods that
// quorum rests on. They know what is under way, but not which pods can be spared. When they have taken one, they wait
// until all are back, so that whatever is lost is lost by one pod too many.
func (l *life) grab(ctx context.Context, f Fault, since time.Time) {
	ctx, cancel := context.WithTimeout(ctx, f.For)
	defer cancel()
	first := l.victims(f, since)[0]
	way := slices.Index(harness.Ways, f.Way)
	tries := 0
	for {
		now, ok := l.audit.awaitNeeded(ctx)
		if !ok {
			break
		}
		left := left(l.audit.others(""), now)
		if len(left) > 0 && len(left) < len(l.cluster.Pods()) {
			i := max(slices.IndexFunc(left, func(c PodChange) bool { return c.Pod == first }), 0)
			pod := left[(i+tries/len(harness.Ways))%len(left)]
			if l.take(ctx, harness.Ways[(way+tries)%len(harness.Ways)], pod) {
				l.audit.awaitWhole(ctx, len(l.cluster.Pods()))
			}
			tries++
		}
		pass(ctx, handsEvery)
	}
	l.note("over: %s, who tried %d times", f.Kind, tries)
	if tries > 0 {
		l.figures.hit(f.Kind)
	} else {
		l.figures.missed(f.Kind)
	}
}

// left are those of the pods that are not away: Ready, and with nothing about to be done to them.
func left(pods []PodChange, now LeaseChange) []PodChange {
	return slices.DeleteFunc(pods, func(c PodChange) bool {
		return !c.Ready || c.Pod == now.Intent.Pod || c.Pod == now.Work.Member
	})
}

// take tries once to take a pod, or all of the cluster's that are on its node.
func (l *life) take(ctx context.Context, way string, pod PodChange) (took bool) {
	ctx, cancel := context.WithTimeout(ctx, injectWithin)
	defer cancel()
	pods, each := []corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Name: pod.Pod, UID: types.UID(pod.UID)}}}, way
	if way == harness.ByNode {
		each = harness.ByDelete // So that each of them is noted.
		node, err := l.cluster.NodeOf(ctx, pod.Pod)
		if err != nil || node == "" {
			return false
		}
		pods[0].Spec.NodeName = node
		if pods, err = l.cluster.OnNodeOf(ctx, &pods[0]); err != nil {
			return false
		}
	}
	for i := range pods {
		p := &pods[i]
		err := l.attempt(Deletion{Pod: p.Name, UID: string(p.UID), Way: way, Hands: true},
			func() error { return l.cluster.Take(ctx, each, p) })
		if err == nil {
			l.note("hands take %s by %s", p.Name, way)
			took = true
		}
	}
	return took
}

// attempt lets the harness itself take a pod, and counts a denial of the quorum guard.
func (l *life) attempt(d Deletion, take func() error) error {
	spare := l.audit.spares(d.Pod)
	err := l.audit.attempt(d, take)
	if harness.DeniedByGuard(err) {
		if !d.Hands { // They are denied all the time.
			l.note("the quorum guard denies that %s goes by %s", d.Pod, d.Way)
		}
		l.figures.denied(d.Way, spare)
	}
	return err
}

// attempt notes that the harness takes a pod, before it does, because the pod may go although no answer arrives. It
// forgets what was refused, which excuses nothing.
func (a *auditor) attempt(d Deletion, take func() error) error {
	d.At = time.Now()
	withdraw := a.deleted(d)
	err := take()
	if harness.DeniedByGuard(err) || apierrors.IsTooManyRequests(err) || apierrors.IsNotFound(err) ||
		apierrors.IsConflict(err) {
		withdraw()
	}
	return err
}

// awaitNeeded waits until the record names pods that quorum rests on. It returns false when the context has ended.
func (a *auditor) awaitNeeded(ctx context.Context) (now LeaseChange, ok bool) {
	for ctx.Err() == nil {
		a.mu.Lock()
		changed := a.changed
		if n := len(a.lease); n > 0 {
			now = a.lease[n-1]
		}
		a.mu.Unlock()
		if len(now.Needed) > 0 {
			return now, true
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
	return LeaseChange{}, false
}

// others are the pods besides one that do not go, in the order of their names.
func (a *auditor) others(pod string) []PodChange {
	a.mu.Lock()
	defer a.mu.Unlock()
	var others []PodChange
	for _, c := range a.present {
		if c.Pod != pod && !c.Terminates {
			others = append(others, c)
		}
	}
	slices.SortFunc(others, func(a, b PodChange) int { return ordinal(a.Pod) - ordinal(b.Pod) })
	return others
}

// spares reports whether the voters are a quorum without this pod.
func (a *auditor) spares(pod string) bool {
	now := LeaseChange{}
	if r := a.record(); r != nil {
		now = *r
	}
	return suffices(a.observer.Latest(), a.others(pod), now)
}

// suffices reports whether the members of these pods are a quorum: those that served when last asked, and to which
// nothing is about to be done.
func suffices(sample traffic.Sample, pods []PodChange, now LeaseChange) bool {
	serving := 0
	for _, p := range sample.Probes {
		name := p.Names[p.MemberID]
		stays := slices.ContainsFunc(pods, func(c PodChange) bool { return c.Pod == name })
		if p.Serving && !p.Learner && stays && name != now.Intent.Pod && name != now.Work.Member {
			serving++
		}
	}
	return sample.Voters > 0 && serving >= sample.Voters/2+1
}
