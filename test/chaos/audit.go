package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"github.com/quorate/quorate/test/harness"
	"github.com/quorate/quorate/test/harness/apiproxy"
	"github.com/quorate/quorate/test/harness/traffic"
)

// again is how long a watch that broke waits before it is tried again.
const again = 200 * time.Millisecond

// auditor collects the evidence about one cluster. It asks no part of the product.
type auditor struct {
	cluster  *harness.Cluster
	api      *apiproxy.Proxy
	observer *traffic.Observer
	// settleTimeout is the sidecars'.
	settleTimeout time.Duration
	// began is when the evidence begins.
	began  time.Time
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu        sync.Mutex
	pods      []PodChange
	present   map[string]PodChange // the last change of each pod that exists, by UID
	lease     []LeaseChange
	deletions []*Deletion
	scalings  []*Scaling
	faults    []*Window
	unheard   []*Unheard
	asked     []time.Time
	ghosts    []string
	expelled  []string
	problems  []error
	changed   chan struct{} // closed, and replaced, with every change
}

// audit starts an auditor. The observer must watch the same cluster, and goes on until
// after the auditor has stopped.
func audit(client kubernetes.Interface, api *apiproxy.Proxy, cluster *harness.Cluster, observer *traffic.Observer,
	settleTimeout time.Duration) *auditor {
	ctx, cancel := context.WithCancel(context.Background())
	a := &auditor{
		cluster: cluster, api: api, observer: observer, settleTimeout: settleTimeout, began: time.Now(), cancel: cancel,
		present: map[string]PodChange{}, changed: make(chan struct{}),
		scalings: []*Scaling{{At: time.Now(), Done: time.Now(), Replicas: len(cluster.Pods())}},
	}
	pods := client.CoreV1().Pods(harness.Namespace)
	leases := client.CoordinationV1().Leases(harness.Namespace)
	ofCluster := metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=" + cluster.Spec.Name}
	ofRecord := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField,
		cluster.RecordName()).String()}
	a.done.Go(func() {
		err := observe(ctx, ofCluster,
			func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				return pods.List(ctx, o)
			}, pods.Watch, a.podsListed, a.podChanged)
		a.problem(err)
	})
	a.done.Go(func() {
		err := observe(ctx, ofRecord,
			func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				return leases.List(ctx, o)
			}, leases.Watch, a.leasesListed, a.leaseChanged)
		a.problem(err)
	})
	return a
}

func (a *auditor) stop() {
	a.cancel()
	a.done.Wait()
}

// observe lists and then watches, over outages of the API server, until the context ends.
// It goes on from where a watch broke, so that nothing is missed; only where the API server
// has forgotten what came next is the list read again.
func observe(
	ctx context.Context, options metav1.ListOptions,
	list func(context.Context, metav1.ListOptions) (runtime.Object, error),
	open func(context.Context, metav1.ListOptions) (watch.Interface, error),
	listed func(list runtime.Object, again bool) error,
	changed func(watch.Event) error,
) error {
	version, lists := "", 0
	for ctx.Err() == nil {
		if version == "" {
			whole, err := list(ctx, options)
			if err != nil {
				pass(ctx, again)
				continue
			}
			if err := listed(whole, lists > 0); err != nil {
				return err
			}
			lists++
			of, err := meta.ListAccessor(whole)
			if err != nil {
				return err
			}
			version = of.GetResourceVersion()
		}
		options.ResourceVersion = version
		w, err := open(ctx, options)
		options.ResourceVersion = ""
		if err != nil {
			if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
				version = ""
			}
			pass(ctx, again)
			continue
		}
		for event := range w.ResultChan() {
			if event.Type == watch.Error {
				if err := apierrors.FromObject(event.Object); apierrors.IsResourceExpired(err) ||
					apierrors.IsGone(err) {
					version = ""
				}
				break
			}
			object, err := meta.Accessor(event.Object)
			if err == nil {
				version = object.GetResourceVersion()
				err = changed(event)
			}
			if err != nil {
				w.Stop()
				return err
			}
		}
		w.Stop()
		pass(ctx, again)
	}
	return nil
}

// pass waits for d or until the context ends.
func pass(ctx context.Context, d time.Duration) { _ = harness.Pass(ctx, d) }

func (a *auditor) problem(err error) {
	if err == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.problems = append(a.problems, err)
}

// err is what kept the auditor from seeing everything.
func (a *auditor) err() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return errors.Join(a.problems...)
}

func (a *auditor) podChanged(event watch.Event) error {
	pod, ok := event.Object.(*corev1.Pod)
	if !ok {
		return fmt.Errorf("a watch of pods delivered %T", event.Object)
	}
	c, err := podChange(pod)
	if err != nil {
		return err
	}
	c.Gone = event.Type == watch.Deleted
	a.mu.Lock()
	defer a.mu.Unlock()
	a.addPod(c)
	return nil
}

func podChange(pod *corev1.Pod) (PodChange, error) {
	version, err := strconv.ParseInt(pod.ResourceVersion, 10, 64)
	if err != nil {
		return PodChange{}, fmt.Errorf("resourceVersion %q of pod %s is no number: %w",
			pod.ResourceVersion, pod.Name, err)
	}
	return PodChange{
		At: time.Now(), Version: version, Pod: pod.Name, UID: string(pod.UID),
		Terminates: pod.DeletionTimestamp != nil, Ready: harness.IsReady(pod), Etcd: etcdState(pod),
	}, nil
}

// etcdState is what the kubelet says of the pod's etcd.
func etcdState(pod *corev1.Pod) Container {
	for i := range pod.Status.ContainerStatuses {
		c := &pod.Status.ContainerStatuses[i]
		switch {
		case c.Name != etcd:
		case c.State.Running != nil:
			return Running
		case c.State.Terminated != nil:
			return Terminated
		case c.State.Waiting != nil && slices.Contains([]string{"CrashLoopBackOff", "ErrImagePull", "ImagePullBackOff"},
			c.State.Waiting.Reason):
			return BacksOff
		}
	}
	return Starting
}

// addPod takes a change in. The caller holds the mutex.
func (a *auditor) addPod(c PodChange) {
	a.pods = append(a.pods, c)
	if c.Gone {
		delete(a.present, c.UID)
	} else {
		a.present[c.UID] = c
	}
	a.news()
}

func (a *auditor) news() {
	close(a.changed)
	a.changed = make(chan struct{})
}

// podsListed takes a list in. Of a list that was read again only the differences count.
func (a *auditor) podsListed(whole runtime.Object, again bool) error {
	list, ok := whole.(*corev1.PodList)
	if !ok {
		return fmt.Errorf("a list of pods is %T", whole)
	}
	version, err := strconv.ParseInt(list.ResourceVersion, 10, 64)
	if err != nil {
		return fmt.Errorf("resourceVersion %q of a list is no number: %w", list.ResourceVersion, err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	listed := map[string]bool{}
	for i := range list.Items {
		listed[string(list.Items[i].UID)] = true
	}
	for uid, old := range a.present {
		if !listed[uid] {
			a.addPod(PodChange{At: time.Now(), Version: version, Pod: old.Pod, UID: uid, Gone: true, Relisted: true})
		}
	}
	for i := range list.Items {
		c, err := podChange(&list.Items[i])
		if err != nil {
			return err
		}
		old, known := a.present[c.UID]
		if c.Relisted = again; !known || old.Version != c.Version {
			a.addPod(c)
		}
	}
	return nil
}

func (a *auditor) leaseChanged(event watch.Event) error {
	lease, ok := event.Object.(*coordinationv1.Lease)
	if !ok {
		return fmt.Errorf("a watch of Leases delivered %T", event.Object)
	}
	if event.Type == watch.Deleted {
		lease = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{ResourceVersion: lease.ResourceVersion}}
	}
	return a.addLease(lease, false)
}

func (a *auditor) addLease(lease *coordinationv1.Lease, relisted bool) error {
	version, err := strconv.ParseInt(lease.ResourceVersion, 10, 64)
	if err != nil {
		return fmt.Errorf("resourceVersion %q of the Lease is no number: %w", lease.ResourceVersion, err)
	}
	c := LeaseChange{At: time.Now(), Version: version, Relisted: relisted,
		GuardOff: lease.Annotations[guardAnnotation] == "off"}
	c.Intent, c.Work = intentIn(lease.Annotations[harness.IntentAnnotation])
	if lease.Spec.HolderIdentity != nil {
		c.Holder, _, _ = strings.Cut(*lease.Spec.HolderIdentity, "_")
	}
	if c.Holder != "" && lease.Spec.LeaseTransitions != nil {
		c.Needed = neededIn(lease.Annotations[harness.NeededAnnotation], *lease.Spec.LeaseTransitions)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.lease = append(a.lease, c)
	a.news()
	return nil
}

// guardAnnotation turns the quorum guard off.
const guardAnnotation = "quorate.dev/guard"

// neededIn reads which pods quorum rests on, by name, as Quorate writes it. It counts in its epoch alone.
func neededIn(text string, epoch int32) map[string]string {
	var n struct {
		Epoch int32
		Pods  map[string]string
	}
	if json.Unmarshal([]byte(text), &n) != nil || n.Epoch != epoch {
		return nil
	}
	return n.Pods
}

// intentIn reads an intent as Quorate writes it; empty where there is none.
func intentIn(text string) (Intent, Work) {
	var i struct {
		Operation, Pod, UID string
		Member              struct {
			ID, Name string
			URLs     []string
		}
	}
	if json.Unmarshal([]byte(text), &i) != nil || !slices.Contains(worksOn, i.Operation) {
		return Intent{i.Pod, i.UID}, Work{}
	}
	w := Work{Operation: i.Operation, ID: i.Member.ID, Member: i.Member.Name}
	if w.Member == "" && len(i.Member.URLs) > 0 { // It has never started.
		_, host, _ := strings.Cut(i.Member.URLs[0], "://")
		w.Member, _, _ = strings.Cut(host, ".")
	}
	return Intent{}, w
}

func (a *auditor) leasesListed(whole runtime.Object, again bool) error {
	list, ok := whole.(*coordinationv1.LeaseList)
	if !ok {
		return fmt.Errorf("a list of Leases is %T", whole)
	}
	for i := range list.Items {
		if err := a.addLease(&list.Items[i], again); err != nil {
			return err
		}
	}
	return nil
}

// deleted notes a pod that the harness deletes or evicts, before it does; the function that it
// returns, that this was refused.
func (a *auditor) deleted(d Deletion) (refused func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	noted := &d
	a.deletions = append(a.deletions, noted)
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.deletions = slices.DeleteFunc(a.deletions, func(other *Deletion) bool { return other == noted })
	}
}

// scaled notes a number of replicas, before it is changed; the function that it returns, that
// this has been done. It begins a rollout if nothing was outdated before.
func (a *auditor) scaled(replicas int, begins bool) (done func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	noted := &Scaling{At: time.Now(), Replicas: replicas, Begins: begins}
	a.scalings = append(a.scalings, noted)
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		noted.Done = time.Now()
	}
}

// fault notes that a fault begins, and whether it can silence a member; the function that it
// returns, that it has ended.
func (a *auditor) fault(text string, silences bool) (ended func()) {
	w := &Window{Fault: text, Silences: silences, From: time.Now()}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.faults = append(a.faults, w)
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		w.To = time.Now()
	}
}

// unhears notes that the kubelet of a pod cannot be heard any more. The first function that it returns notes whether
// the process of etcd runs, and the second that the kubelet can be heard again.
func (a *auditor) unhears(pod string) (sees func(runs bool), heard func()) {
	u := &Unheard{Pod: pod, From: time.Now()}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.unheard = append(a.unheard, u)
	return func(runs bool) {
			a.mu.Lock()
			defer a.mu.Unlock()
			if n := len(u.Seen); n == 0 || u.Seen[n-1].Runs != runs {
				u.Seen = append(u.Seen, Seen{At: time.Now(), Runs: runs})
			}
		}, func() {
			a.mu.Lock()
			defer a.mu.Unlock()
			u.To = time.Now()
		}
}

// awaitWord waits until the kubelets of all these pods say this of their etcds. It returns false when the context has
// ended before.
func (a *auditor) awaitWord(ctx context.Context, pods []string, word Container) bool {
	return a.awaitPods(ctx, len(pods), func(c PodChange) bool { return slices.Contains(pods, c.Pod) && c.Etcd == word })
}

// awaitWhole waits until so many pods are Ready, and none goes, or the context ends.
func (a *auditor) awaitWhole(ctx context.Context, pods int) {
	a.awaitPods(ctx, pods, func(c PodChange) bool { return c.Ready && !c.Terminates })
}

func (a *auditor) awaitPods(ctx context.Context, n int, match func(PodChange) bool) bool {
	for {
		a.mu.Lock()
		changed, matches := a.changed, 0
		for _, c := range a.present {
			if match(c) {
				matches++
			}
		}
		a.mu.Unlock()
		if matches == n {
			return true
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}

// ghostAsked notes that an operator asks for the removal of ghosts.
func (a *auditor) ghostAsked() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked = append(a.asked, time.Now())
}

// ghostAdded notes a voter that never starts, by the pod that it is named after.
func (a *auditor) ghostAdded(pod string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ghosts = append(a.ghosts, pod)
}

// expels notes members that the harness itself removes from the list, before it does.
func (a *auditor) expels(members []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.expelled = append(a.expelled, members...)
}

// awaitWork waits until the record names an operation on a member, and returns who holds the record. It returns
// false when the context has ended before.
func (a *auditor) awaitWork(ctx context.Context, operations ...string) (holder string, ok bool) {
	for {
		a.mu.Lock()
		changed := a.changed
		var now LeaseChange
		if n := len(a.lease); n > 0 {
			now = a.lease[n-1]
		}
		a.mu.Unlock()
		if slices.Contains(operations, now.Work.Operation) {
			return now.Holder, true
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return "", false
		}
	}
}

// uid is that of the pod as last seen, empty when there is none.
func (a *auditor) uid(pod string) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	for uid, c := range a.present {
		if c.Pod == pod && !c.Terminates {
			return uid
		}
	}
	return ""
}

// there reports whether the pod with this UID still exists.
func (a *auditor) there(uid string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, there := a.present[uid]
	return there
}

// holder is the pod that last held the record, empty when none has yet.
func (a *auditor) holder() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, c := range slices.Backward(a.lease) {
		if c.Holder != "" {
			return c.Holder
		}
	}
	return ""
}

// writer is the pod whose sidecar has last written the record, empty when none has yet.
func (a *auditor) writer() string {
	for _, r := range slices.Backward(a.api.Records(a.cluster.WritingRecord)) {
		if r.Verdict/100 == 2 {
			return r.Pod
		}
	}
	return ""
}

// record is the record as last seen, nil when there has been none.
func (a *auditor) record() *LeaseChange {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.lease) == 0 {
		return nil
	}
	return &a.lease[len(a.lease)-1]
}

// newest is the pod that was created last since then, empty when none was.
func (a *auditor) newest(since time.Time) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	known, newest := map[string]bool{}, ""
	for _, c := range a.pods {
		if !known[c.UID] && !c.At.Before(since) {
			newest = c.Pod
		}
		known[c.UID] = true
	}
	return newest
}

// removed counts the pods that began to terminate since then. The caller holds the mutex.
func (a *auditor) removed(since time.Time) int {
	ended := map[string]bool{}
	n := 0
	for _, c := range a.pods {
		if (c.Terminates || c.Gone) && !ended[c.UID] {
			ended[c.UID] = true
			if !c.At.Before(since) {
				n++
			}
		}
	}
	return n
}

// awaitRemovals waits until n pods have begun to terminate since then. It returns false when
// the context has ended before.
func (a *auditor) awaitRemovals(ctx context.Context, since time.Time, n int) bool {
	for {
		a.mu.Lock()
		done, changed := a.removed(since) >= n, a.changed
		a.mu.Unlock()
		if done {
			return true
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}

// evidence is all that has been collected so far.
func (a *auditor) evidence() *Evidence {
	o := a.observer.Snapshot()
	e := &Evidence{MaxEvidenceAge: maxEvidenceAge, SettleTimeout: a.settleTimeout, Readings: map[string][]Reading{},
		Members: map[string]string{}, Requests: a.requests()}
	pods := map[string]string{}
	for n := range mostMembers {
		pod := fmt.Sprintf("%s-%d", a.cluster.Spec.Name, n)
		pods[a.cluster.Endpoint(pod)] = pod
	}
	for _, s := range o.Samples {
		e.Votings = append(e.Votings, Voting{At: o.Start.Add(s.At), Voters: s.Voters})
		for _, p := range s.Probes {
			r := Reading{Asked: o.Start.Add(s.At), Learner: p.Learner}
			if p.Serving && p.ReadOf == o.Cluster {
				r.Answered = o.Start.Add(p.ReadAt)
			}
			e.Readings[pods[p.Endpoint]] = append(e.Readings[pods[p.Endpoint]], r)
		}
	}
	for id, name := range o.Names {
		e.Members[strconv.FormatUint(id, 10)] = name
	}
	e.Listed = membersIn(o.Samples)
	a.mu.Lock()
	defer a.mu.Unlock()
	e.Expelled = slices.Clone(a.expelled)
	e.Pods, e.Lease = slices.Clone(a.pods), slices.Clone(a.lease)
	for _, d := range a.deletions {
		e.Deletions = append(e.Deletions, *d)
	}
	for _, s := range a.scalings {
		e.Scalings = append(e.Scalings, *s)
	}
	for _, w := range a.faults {
		e.Faults = append(e.Faults, *w)
	}
	for _, u := range a.unheard {
		noted := *u
		noted.Seen = slices.Clone(u.Seen)
		e.Unheard = append(e.Unheard, noted)
	}
	e.Asked, e.Ghosts = slices.Clone(a.asked), slices.Clone(a.ghosts)
	return e
}

// membersIn are the IDs on the list as the most advanced member tells it in the last sample in which one does.
func membersIn(samples []traffic.Sample) []string {
	for _, s := range slices.Backward(samples) {
		best := traffic.Probe{}
		for _, p := range s.Probes {
			if p.Members > 0 && (p.Term > best.Term || p.Term == best.Term && p.Index > best.Index) {
				best = p
			}
		}
		if best.Members == 0 {
			continue
		}
		var ids []string
		for id := range best.Names {
			ids = append(ids, strconv.FormatUint(id, 10))
		}
		slices.Sort(ids)
		return ids
	}
	return nil
}

// requests are what sidecars asked through the proxy.
func (a *auditor) requests() []Request {
	var requests []Request
	for _, r := range a.api.Records(func(r *apiproxy.Request) bool {
		return a.cluster.Removing(r) || a.cluster.WritingRecord(r)
	}) {
		q := Request{Removal: r.Removes(), By: r.Pod, At: r.At, Forwarded: r.Forwarded, Verdict: r.Verdict,
			Answered: r.Ended}
		if q.Removal {
			q.Intent.Pod = r.Name
			if p := r.Preconditions(); p != nil && p.UID != nil {
				q.Intent.UID = string(*p.UID)
			}
		} else {
			text, told := r.Annotation(harness.IntentAnnotation)
			if !told {
				continue // It leaves the record as it is, as whoever takes a request off the Lease does.
			}
			q.Intent, q.Work = intentIn(text)
		}
		requests = append(requests, q)
	}
	return requests
}
