package chaos

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/quorate/quorate/test/harness"
	"github.com/quorate/quorate/test/harness/apiproxy"
	"github.com/quorate/quorate/test/harness/node"
)

const (
	// breath is how long after the end of one fault the next of its lane may begin: a
	// crashed container is back then more often than not.
	breath = 4 * time.Second
	// mendWithin bounds the end of a fault. It waits, for example, for an API server that
	// another fault has stopped.
	mendWithin = time.Minute
	// injectWithin bounds its beginning, for the same reason.
	injectWithin = 10 * time.Second

	// drainEvery is how long a drain waits between two tries; kubectl waits five seconds. The
	// more often it tries, the more of the moments that matter it hits.
	drainEvery = 300 * time.Millisecond

	// wholeWithin bounds the wait for a cluster of which no pod is away.
	wholeWithin = 20 * time.Second
	// wordWithin bounds the wait for the last words of kubelets that are to be cut off, and startsLater is for how long
	// their containers are terminated after a reboot: the words have arrived then.
	wordWithin, startsLater = 6 * time.Second, 4 * time.Second
	// evidenceIsNew is how long after a fault no removal can be excused by what was true before it.
	evidenceIsNew = maxEvidenceAge + 2*certainty
	// witnessEvery is how often the harness itself looks whether a process runs.
	witnessEvery = 100 * time.Millisecond

	etcd, sidecar = "etcd", "backup-restore"
)

// silencing are the faults that can keep a member from answering. (An operator's removals do,
// too; each is a fault of its own.)
var silencing = []FaultKind{
	KillEtcd, KillBoth, StopEtcd, StopBoth, CutOff, Separate, Isolate, LoseNode, Reboot, DeletePod, FullDisk, SlowDisk,
	CutZone,
}

// ofSidecars are the faults that a lasting sidecar can be hit by: they are about no member, and do not end it.
var ofSidecars = []FaultKind{StopSidecar, NoAPI, SlowAPI, Forbid}

// needsNamespaces are the faults that need a network, names that resolve, or mounts, of the harness's own, and
// needsFUSE those that need a mount of FUSE.
var (
	needsNamespaces = []FaultKind{CutOff, Separate, Isolate, FullDisk, SlowDisk, AddGhost, CutZone}
	needsFUSE       = []FaultKind{SlowDisk}
)

// unplayable are the faults that the machine has no means for.
func unplayable(mode harness.Mode, slowDisks bool) []FaultKind {
	switch {
	case mode != harness.Namespaces:
		return needsNamespaces
	case !slowDisks:
		return needsFUSE
	default:
		return nil
	}
}

// play plays the lanes of a round, each when its moments come, until all are over or the
// context ends. When it returns every fault has ended.
func (l *life) play(ctx context.Context, lanes [][]Fault, since time.Time) {
	var playing sync.WaitGroup
	for _, lane := range lanes {
		playing.Go(func() {
			for i, f := range lane {
				if i > 0 {
					pass(ctx, breath)
				}
				l.playOne(ctx, f, since)
			}
		})
	}
	playing.Wait()
}

func (l *life) playOne(ctx context.Context, f Fault, since time.Time) {
	if !l.audit.awaitRemovals(ctx, since, f.Removals) {
		return
	}
	if f.During != "" {
		if _, ok := l.audit.awaitWork(ctx, f.During); !ok {
			return
		}
	}
	if pass(ctx, f.Delay); ctx.Err() != nil {
		return
	}
	if slices.Contains(unplayable(l.mode, l.slowDisks), f.Kind) {
		l.figures.missed(f.Kind)
		return
	}
	switch f.Kind {
	case HoldRemoval:
		l.hold(ctx, f, l.cluster.Removing)
	case HoldIntent:
		l.hold(ctx, f, l.cluster.WritingIntent)
	case Drain:
		l.drain(ctx, f, l.victims(f, since))
	case DrainAll:
		l.drain(ctx, f, l.cluster.Pods())
	case CordonAndDrain:
		l.cordonAndDrain(ctx, f, l.victims(f, since)[0])
	case FillQuota, Loosen, LoosenAndAsk, AddGhost:
		l.work(ctx, f)
	case KillBefore, KillOnIt, KillCalling, KillEnding:
		l.killAt(ctx, f)
	case CutZone:
		l.cutZone(ctx, f, since)
	case Hands:
		l.grab(ctx, f, since)
	default:
		l.hit(ctx, f, l.victims(f, since))
	}
}

// victims resolves whom a fault hits, as things are now.
func (l *life) victims(f Fault, since time.Time) []string {
	pods := l.cluster.Pods()
	var names []string
	for _, v := range f.Victims {
		var name string
		switch v {
		case TheLeader:
			name = l.leader()
		case TheCoordinator:
			if name = l.audit.holder(); name == outside && slices.Contains(ofSidecars, f.Kind) {
				name = l.audit.writer()
			}
		case TheNewest:
			name = l.audit.newest(since)
		default:
			n, _ := strconv.Atoi(string(v)) // The script has made it.
			name = pods[n%len(pods)]
		}
		if !slices.Contains(pods, name) && !l.lasts(name) {
			name = pods[0] // There is none yet, or it has been scaled away.
		}
		names = append(names, name)
	}
	return names
}

// leader is the pod whose member leads, empty if none does.
func (l *life) leader() string {
	s := l.observer.Latest()
	for _, p := range s.Probes {
		if name := p.Names[s.Leader]; name != "" {
			return name
		}
	}
	return ""
}

// hit begins a fault at all victims at once, lets it last, and ends it.
func (l *life) hit(ctx context.Context, f Fault, victims []string) {
	if len(victims) == 0 {
		victims = []string{""}
	}
	if len(victims) > 1 {
		l.figures.outage() // Only a majority is hit together.
	}
	var hitting sync.WaitGroup
	for _, pod := range victims {
		hitting.Go(func() { l.hitOne(ctx, f, pod) })
	}
	hitting.Wait()
}

func (l *life) hitOne(ctx context.Context, f Fault, pod string) {
	text := strings.TrimSpace(string(f.Kind) + " " + pod)
	// The quorum guard may deny that a pod is deleted. Of that one, the deletion itself tells.
	ended := l.audit.fault(text, slices.Contains(silencing, f.Kind) && f.Kind != DeletePod)
	defer ended()
	injecting, cancel := context.WithTimeout(ctx, injectWithin)
	mend, err := l.inject(injecting, f, pod)
	cancel()
	l.note("%s%s", text, map[bool]string{true: fmt.Sprintf(": %v", err)}[err != nil])
	switch {
	case err == nil:
		l.figures.hit(f.Kind)
	case !harness.DeniedByGuard(err): // A denial has been counted as one.
		l.figures.missed(f.Kind)
	}
	if mend == nil {
		return
	}
	if err == nil {
		pass(ctx, f.For)
	}
	l.mend(ctx, text, mend)
}

// mend ends a fault, whatever has ended meanwhile, and tries until it can.
func (l *life) mend(ctx context.Context, what string, mend func(context.Context) error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), mendWithin)
	defer cancel()
	for {
		err := mend(ctx)
		if err == nil {
			l.note("over: %s", what)
			return
		}
		if pass(ctx, again); ctx.Err() != nil {
			l.broken(fmt.Errorf("end of the fault %q: %w", what, err))
			return
		}
	}
}

// inject begins a fault. The function that it returns ends it; nil if it is over at once. It
// may return both an end and an error: then it has begun in part.
func (l *life) inject(ctx context.Context, f Fault, pod string) (mend func(context.Context) error, err error) {
	c := l.cluster
	signal := func(sig syscall.Signal, containers ...string) error {
		for _, name := range containers {
			if e := c.Signal(pod, name, sig); e != nil && err == nil {
				err = e
			}
		}
		return err
	}
	// A container that has been replaced meanwhile is none that was halted.
	resume := func(containers ...string) func(context.Context) error {
		return func(context.Context) error {
			for _, name := range containers {
				_ = c.Signal(pod, name, syscall.SIGCONT)
			}
			return nil
		}
	}
	local := func(undo func(string) error) func(context.Context) error {
		return func(context.Context) error { return undo(pod) }
	}
	lift := func(stop func()) func(context.Context) error {
		return func(context.Context) error { stop(); return nil }
	}
	asks := func(r *apiproxy.Request) bool { return r.Pod == pod }
	if l.lasts(pod) && !slices.Contains(ofSidecars, f.Kind) {
		return nil, fmt.Errorf("%s has no member, and is to live", pod)
	}
	switch f.Kind {
	case KillEtcd:
		return nil, signal(syscall.SIGKILL, etcd)
	case KillSidecar, KillCalling:
		return nil, signal(syscall.SIGKILL, sidecar)
	case KillBoth:
		return nil, signal(syscall.SIGKILL, etcd, sidecar)
	case StopEtcd:
		return resume(etcd), signal(syscall.SIGSTOP, etcd)
	case StopSidecar:
		return resume(sidecar), signal(syscall.SIGSTOP, sidecar)
	case StopBoth:
		return resume(etcd, sidecar), signal(syscall.SIGSTOP, etcd, sidecar)
	case CutOff:
		return local(c.Reconnect), c.CutOff(pod)
	case Isolate:
		return local(c.Rejoin), c.Isolate(pod)
	case Separate:
		pods := c.Pods()
		other := pods[(slices.Index(pods, pod)+1)%len(pods)]
		return func(context.Context) error { return c.Reunite(pod, other) }, c.Separate(pod, other)
	case LoseNode:
		err := c.LoseNode(ctx, pod)
		if errors.Is(err, node.ErrLost) {
			return nil, err // The fault that has taken it brings it back.
		}
		return func(ctx context.Context) error { return c.RestoreNode(ctx, pod) }, err
	case Reboot:
		err := c.CutPower(ctx, pod)
		if errors.Is(err, node.ErrLost) {
			return nil, err
		}
		return func(ctx context.Context) error { return c.PowerOn(ctx, pod, f.Starts) }, err
	case DeletePod:
		uid := l.audit.uid(pod)
		if uid == "" {
			return nil, fmt.Errorf("there is no pod %s that could be deleted", pod)
		}
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: pod, UID: types.UID(uid)}}
		return nil, l.attempt(Deletion{Pod: pod, UID: uid, Way: harness.ByDelete},
			func() error { return c.Take(ctx, harness.ByDelete, p) })
	case GuardOff:
		return func(ctx context.Context) error { return l.quorate(ctx, "guard", clusterName, "--on") },
			l.quorate(ctx, "guard", clusterName, "--off")
	case FullDisk:
		d := l.disks[pod]
		return func(context.Context) error { return d.Free() }, d.Fill()
	case SlowDisk:
		d := l.disks[pod]
		d.SetDelay(f.By)
		return lift(func() { d.SetDelay(0) }), nil
	case NoAPI:
		return lift(l.env.API.Refuse(asks, 0)), nil
	case SlowAPI:
		return lift(l.env.API.Delay(asks, f.By)), nil
	case SlowAllAPI:
		return lift(l.env.API.Delay(func(r *apiproxy.Request) bool { return r.Pod != "" }, f.By)), nil
	case Forbid:
		return lift(l.env.API.Refuse(func(r *apiproxy.Request) bool { return asks(r) && f.Refused.denies(r) },
			http.StatusForbidden)), nil
	case PauseControllers:
		return func(context.Context) error { return l.env.Plane.ResumeControllers() }, l.env.Plane.PauseControllers()
	case StopAPI:
		return l.env.Plane.StartAPIServer, l.env.Plane.StopAPIServer(ctx)
	case PauseAPI:
		// Another fault may have killed it meanwhile, and so ended this one.
		return func(context.Context) error { _ = l.env.Plane.ResumeAPIServer(); return nil },
			l.env.Plane.PauseAPIServer()
	default:
		return nil, fmt.Errorf("fault %q is not injected like this", f.Kind)
	}
}

// cutZone cuts a majority off from the zone of the API server. Their etcds may crash before, so that the last words of
// their kubelets are bad. They come back when nobody hears of it any more, and are a quorum on their side.
func (l *life) cutZone(ctx context.Context, f Fault, since time.Time) {
	// What is being replaced does not come back on the other side.
	whole, cancel := context.WithTimeout(ctx, wholeWithin)
	l.audit.awaitWhole(whole, len(l.cluster.Pods()))
	cancel()
	if ctx.Err() != nil {
		return
	}
	l.figures.outage()
	away := l.victims(f, since)
	left := slices.DeleteFunc(l.cluster.Pods(), func(pod string) bool { return slices.Contains(away, pod) })
	if i := slices.Index(away, l.audit.newest(since)); i >= 0 && f.Removals > 0 {
		// An updated pod that fails would hold the rollout by itself. Those that are away are to be next.
		away[i], left[0] = left[0], away[i]
	}
	injecting, cancel := context.WithTimeout(ctx, injectWithin)
	defer cancel()
	revive, err := l.crash(injecting, f.LastWords, away)
	text := fmt.Sprintf("%s: %s, their kubelets' last word %q", f.Kind, strings.Join(away, ", "), f.LastWords)
	if err != nil {
		revive()
		l.note("%s: %v", text, err)
		l.figures.missed(f.Kind)
		return
	}
	// Those who are left without a quorum are silenced by it.
	var ends []func()
	for _, pod := range left {
		ends = append(ends, l.audit.fault(fmt.Sprintf("%s, and left alone: %s", f.Kind, pod), true))
	}
	witnesses := map[string]func(bool){}
	mend, err := l.cluster.CutZone(injecting, away)
	for _, pod := range away {
		sees, heard := l.audit.unhears(pod)
		witnesses[pod], ends = sees, append(ends, heard)
	}
	// A removal soon after the cut would be excused by what was true before it. So nobody reaches the API server until
	// no evidence is that old any more: whatever a coordinator in the zone does then is its own fault.
	serve := l.env.API.Refuse(func(r *apiproxy.Request) bool { return slices.Contains(left, r.Pod) }, 0)
	revive()
	l.note("%s%s", text, map[bool]string{true: fmt.Sprintf(": %v", err)}[err != nil])
	watching, stop := context.WithCancel(context.WithoutCancel(ctx))
	var watch sync.WaitGroup
	watch.Go(func() {
		for watching.Err() == nil {
			for pod, sees := range witnesses {
				_, runs := l.env.Nodes.PID(pod, etcd)
				sees(runs)
			}
			pass(watching, witnessEvery)
		}
	})
	if err != nil {
		l.figures.missed(f.Kind)
	} else {
		l.figures.hit(f.Kind)
		pass(ctx, evidenceIsNew)
		serve()
		pass(ctx, f.For)
	}
	serve()
	if mend != nil {
		l.mend(ctx, text, mend)
	}
	stop()
	watch.Wait()
	for _, end := range ends {
		end()
	}
}

// crash makes the etcds of pods crash, if that is to be the last word of their kubelets, and waits until they have said
// so. The function that it returns lets the etcds start again.
func (l *life) crash(ctx context.Context, word Container, pods []string) (revive func(), err error) {
	var ends []func()
	revive = func() {
		for _, end := range ends {
			end()
		}
	}
	boots := func(pod string) func() {
		return func() {
			l.mend(ctx, fmt.Sprintf("%s %s", Reboot, pod), func(ctx context.Context) error {
				return l.cluster.PowerOn(ctx, pod, startsLater)
			})
		}
	}
	switch word {
	case BacksOff:
		for _, pod := range pods {
			ends = append(ends, l.audit.fault(fmt.Sprintf("%s, again and again: %s", KillEtcd, pod), true))
			loop, err := l.cluster.CrashLoop(ctx, pod)
			if err != nil {
				return revive, err
			}
			ends = append(ends, loop.Stop)
		}
	case Terminated:
		for _, pod := range pods {
			ends = append(ends, l.audit.fault(fmt.Sprintf("%s: %s", Reboot, pod), true))
			err := l.cluster.CutPower(ctx, pod)
			if errors.Is(err, node.ErrLost) {
				return revive, err // The fault that has taken it brings it back.
			}
			ends = append(ends, boots(pod))
			if err != nil {
				return revive, err
			}
		}
		// Whatever comes, no node stays without power.
		revive()
		ends = nil
	default:
		return revive, nil
	}
	waiting, cancel := context.WithTimeout(ctx, wordWithin)
	defer cancel()
	if !l.audit.awaitWord(waiting, pods, word) {
		l.note("not all kubelets of %s have said %q in time; they are cut off all the same", strings.Join(pods, ", "),
			word)
	}
	return revive, nil
}

// drain evicts the pods one after the other, as kubectl drain does of one node after the other:
// each until the eviction is allowed, and then until the pod has gone. It gives up with the
// context.
func (l *life) drain(ctx context.Context, f Fault, pods []string) {
	l.figures.hit(f.Kind)
	for _, pod := range pods {
		l.note("drain the node of %s", pod)
		uid := ""
		for uid == "" && ctx.Err() == nil {
			if uid = l.evict(ctx, pod); uid == "" {
				pass(ctx, drainEvery)
			}
		}
		for ctx.Err() == nil && l.audit.there(uid) {
			pass(ctx, drainEvery)
		}
	}
}

// evict tries once to evict a pod, and returns the UID of the one that goes; empty while it is
// not allowed.
func (l *life) evict(ctx context.Context, pod string) string {
	uid := l.audit.uid(pod)
	if uid == "" {
		return "" // It is on its way already, or not there yet.
	}
	ctx, cancel := context.WithTimeout(ctx, injectWithin)
	defer cancel()
	// From now on it may have gone by this hand, whatever is heard of it. Its successor may be there already, and must
	// not go for it: nobody would know by whom.
	refused := false
	err := l.attempt(Deletion{Pod: pod, UID: uid, Way: harness.ByEviction, Drain: true}, func() (err error) {
		refused, err = l.cluster.EvictOnly(ctx, pod, types.UID(uid))
		return err
	})
	switch {
	case refused:
		l.figures.refusedEviction()
		return ""
	case harness.DeniedByGuard(err):
		return "" // It has been counted. Whoever drains tries again, as after a refusal.
	case err != nil:
		l.note("evict %s: %v", pod, err)
		return ""
	}
	l.note("evicted %s, as a drain does", pod)
	l.figures.eviction()
	return uid
}

// hold catches the next request of a kind and does with it what the script says.
func (l *life) hold(ctx context.Context, f Fault, match apiproxy.Match) {
	waiting, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel() // What is held in the end is dropped.
	held := l.env.API.Hold(waiting, match)
	request, err := held.Reached(ctx)
	if err != nil {
		return // Nobody asked any more.
	}
	text := fmt.Sprintf("%s (%s)", f.Kind, request)
	ended := l.audit.fault(text, false)
	defer ended()
	l.figures.hit(f.Kind)
	l.note("%s", text)
	at := f.Outcome == AnswerLost || f.Outcome == Failed
	if at {
		l.forward(ctx, held.Forward)
	}
	var meanwhile sync.WaitGroup
	if f.While != nil {
		meanwhile.Go(func() {
			victims := l.victims(*f.While, time.Time{})
			if f.While.Victims[0] == TheCoordinator {
				victims = []string{request.Pod}
			} else if pods := l.cluster.Pods(); victims[0] == request.Name {
				victims[0] = pods[(slices.Index(pods, victims[0])+1)%len(pods)]
			}
			if victims[0] != "" {
				l.hit(ctx, *f.While, victims)
			}
		})
	}
	pass(ctx, f.For)
	switch f.Outcome {
	case Released:
		l.forward(ctx, held.Release)
	case Failed:
		held.Refuse(500)
	case AnswerLost, Lost:
		held.Drop()
	}
	l.note("over: %s, %s", text, f.Outcome)
	meanwhile.Wait()
}

// forward lets a held request go on. The API server may be away; then it is lost.
func (l *life) forward(ctx context.Context, forward func(context.Context) (int, error)) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), injectWithin)
	defer cancel()
	status, err := forward(ctx)
	l.note("the request that was held: %d%s", status, map[bool]string{true: fmt.Sprintf(" (%v)", err)}[err != nil])
}
