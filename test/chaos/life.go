package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate/quorate/test/chaos/soak"
	"github.com/quorate/quorate/test/harness"
	"github.com/quorate/quorate/test/harness/disk"
	"github.com/quorate/quorate/test/harness/traffic"
)

const (
	clusterName = "main"
	mostMembers = 5
	// maxEvidenceAge is the sidecar's default; it is given all the same, so that the
	// auditor and the sidecars mean the same.
	maxEvidenceAge = 6 * time.Second
	// probeTimeout is the sidecar's default. The observer waits as long.
	probeTimeout = 2 * time.Second
	// observeEvery is twice as seldom as the observer's default: two cores are few for five
	// members.
	observeEvery = 200 * time.Millisecond
	// writeEvery is as seldom as it can be while a lost write still shows at once.
	writeEvery = 50 * time.Millisecond

	// diskSize holds an etcd, however long it lives: five log segments of 64 MB and the next two, its database, and a
	// copy of that.
	diskSize = 512 << 20
	// quota is what a member's database may grow to: more than the traffic of a life takes, and little enough to
	// be filled in a moment.
	quota = 16 << 20

	startLimit = 20 * time.Minute // the first build included
	readyLimit = 3 * time.Minute
	// faultPhase is how long after a change faults may last.
	faultPhase = time.Minute
	// recoverWithin is how long after the last fault a rollout may take. It covers every
	// back-off there is (a sidecar that gave up lets others try for 10 s and more, a
	// container waits up to 8 s, an election some seconds) and a slow machine.
	recoverWithin = 3 * time.Minute
	// verifyLimit bounds the final reads, linearLimit the check of the history.
	verifyLimit = time.Minute
	linearLimit = time.Minute
	closeLimit  = 2 * time.Minute
	// watchLag is how long the auditor's watch may be behind at the end of a round.
	watchLag = 10 * time.Second

	look         = 250 * time.Millisecond
	tellEvery    = 20 * time.Second
	touchedLabel = "touched"
)

func (l *life) etcdArgs() []string {
	args := []string{fmt.Sprintf("--quota-backend-bytes=%d", quota)}
	if l.soaking != nil {
		args = append(args, soakingEtcd...)
	}
	return args
}

func (l *life) sidecarArgs() []string {
	args := append(slices.Clone(flags), "--settle-timeout="+l.script.SettleTimeout.String())
	if l.soaking != nil {
		args = append(args, fmt.Sprintf("--listen-address=$(POD_IP):%d", metricsPort))
	}
	return args
}

// flags are the sidecar's. The lock and the record are short-lived, so that a change of
// coordinator is; they are the same as in the scenarios. All duties are on, and what they wait for is short.
var flags = []string{"--lock-ttl=3s", "--record-duration=8s", "--max-evidence-age=" + maxEvidenceAge.String(),
	"--probe-timeout=" + probeTimeout.String(), "--read-nodes", "--leaving-patience=10s", "--ghost-after=4s",
	"--defragment-when=30%,2MiB,90%", "--defragment-window=00:00-24:00", "--defragment-timeout=10s"}

// life is one cluster's life by its script.
type life struct {
	script Script
	mode   harness.Mode
	// slowDisks is true if the disk of one member can be made slow.
	slowDisks bool
	dir       string
	say       func(string)
	figures   *Figures
	began     time.Time

	env      *harness.Env
	cluster  *harness.Cluster
	disks    map[string]*disk.Disk
	journal  *harness.Journal
	observer *traffic.Observer
	client   *traffic.Client
	audit    *auditor
	// soaking takes what sidecars occupy, in a soak.
	soaking *soak.File
	// judged and worked are how many removals and operations on members have been judged.
	judged, worked int
	lastJudged     time.Time
	// asked is what an operator has asked for and not got yet.
	asked pending

	mu    sync.Mutex
	fault error // a fault that could not be ended: whatever follows means nothing
}

// Failure is a promise that was not kept.
type Failure struct {
	Seed uint64
	// Round is 0 for what is about all of them.
	Round int
	// What was wrong, one thing a line.
	What []string
}

func (f *Failure) Error() string {
	where := fmt.Sprintf("seed %d", f.Seed)
	if f.Round > 0 {
		where += fmt.Sprintf(", round %d", f.Round)
	}
	return where + ":\n  " + strings.Join(f.What, "\n  ")
}

func (l *life) tell(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	l.say(fmt.Sprintf("%6.1fs  %s", time.Since(l.began).Seconds(), text))
	if l.env != nil {
		l.env.Timeline.Note("chaos", "%s", text)
	}
}

// note goes only to the timeline.
func (l *life) note(format string, args ...any) { l.env.Timeline.Note("fault", format, args...) }

func (l *life) broken(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fault = errors.Join(l.fault, err)
}

func (l *life) isBroken() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.fault
}

// run plays the script: no round begins after until. It cleans up whatever happens.
func (l *life) run(ctx context.Context, until time.Time) (err error) {
	l.began = time.Now()
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeLimit)
		defer cancel()
		err = errors.Join(err, l.close(closing))
	}()
	if err := l.start(ctx); err != nil {
		return err
	}
	if l.soaking == nil {
		return l.chapter(ctx, until)
	}
	return l.soak(ctx, until)
}

// chapter plays the rounds of the script, and checks the history of the traffic meanwhile.
func (l *life) chapter(ctx context.Context, until time.Time) error {
	for n, r := range l.script.Rounds {
		if n > 0 && time.Now().After(until) {
			break
		}
		if err := l.round(ctx, n+1, r); err != nil {
			l.keep()
			return err
		}
	}
	if err := l.verify(ctx); err != nil {
		l.keep()
		return err
	}
	return nil
}

func (l *life) start(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	l.env, err = harness.Start(ctx, harness.Options{Dir: l.dir, Network: l.mode,
		NodeAddresses: l.mode == harness.Namespaces, Progress: func(string) {}})
	if err != nil {
		return err
	}
	if err := harness.InstallGuard(ctx, l.env.Plane.AdminConfig()); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(l.dir, "script.txt"), []byte(l.script.String()), 0o644); err != nil {
		return err
	}
	if err := l.makeDisks(); err != nil {
		return err
	}
	ctx, cancel = context.WithTimeout(ctx, readyLimit)
	defer cancel()
	l.cluster, err = l.env.CreateCluster(ctx, harness.Spec{
		Name: clusterName, Replicas: l.script.Replicas, EtcdImage: l.script.Image,
		PlainText: l.script.PlainText, OwnNodes: true,
		StopDelay: l.script.StopDelay, EtcdArgs: l.etcdArgs(),
		Components:  []string{"nodes"},
		SidecarArgs: l.sidecarArgs(),
	})
	if err != nil {
		return err
	}
	if l.soaking != nil {
		for _, pod := range lastingPods() {
			if err := l.cluster.RunBeside(ctx, pod); err != nil {
				return err
			}
		}
	}
	l.journal = l.cluster.ReadLogs()
	if err := l.cluster.WaitReady(ctx); err != nil {
		return err
	}
	return l.attend(ctx)
}

// attend begins to watch the cluster, and to write to it.
func (l *life) attend(ctx context.Context) (err error) {
	observing := l.cluster.ObserverConfig()
	observing.Period, observing.Timeout = observeEvery, probeTimeout
	if l.observer, err = traffic.StartObserver(ctx, observing); err != nil {
		return err
	}
	l.audit = audit(l.env.Client, l.env.API, l.cluster, l.observer, l.script.SettleTimeout)
	l.judged, l.worked, l.lastJudged = 0, 0, time.Now()
	writing := l.cluster.TrafficConfig()
	writing.Interval = writeEvery
	l.client, err = traffic.Start(ctx, writing)
	return err
}

// makeDisks gives every member a disk of its own, where it can be had.
func (l *life) makeDisks() error {
	l.disks = map[string]*disk.Disk{}
	if l.mode != harness.Namespaces {
		return nil
	}
	for n := range mostMembers {
		pod := fmt.Sprintf("%s-%d", clusterName, n)
		d, err := disk.New(l.env.Nodes.ClaimDir(harness.Namespace, clusterName+"-"+pod), diskSize,
			l.slowDisks && n == l.script.SlowDisk)
		if err != nil {
			return err
		}
		l.disks[pod] = d
	}
	return nil
}

// close ends everything that is still running.
func (l *life) close(ctx context.Context) error {
	var errs []error
	if l.client != nil {
		// Verified already, or of no interest any more.
		ended, cancel := context.WithCancel(ctx)
		cancel()
		_, _ = l.client.Stop(ended)
	}
	if l.audit != nil {
		l.audit.stop()
	}
	if l.observer != nil {
		l.observer.Stop()
	}
	if l.journal != nil {
		l.journal.Stop()
	}
	if l.env != nil {
		errs = append(errs, l.env.Close(ctx))
	}
	for _, d := range l.disks {
		errs = append(errs, d.Close())
	}
	return errors.Join(errs...)
}

// round plays one round, and judges it.
func (l *life) round(ctx context.Context, n int, r Round) error {
	l.tell("seed %d round %d/%d: %s", l.script.Seed, n, len(l.script.Rounds), r)
	began := time.Now()
	faults := l.figures.faults()
	before, err := l.pods(ctx)
	if err != nil {
		return err
	}
	o := &operation{life: l, change: r.Change, began: began, begun: make(chan struct{})}

	// Faults end when the rollout is complete, so that the next one can begin.
	faulty, calm := context.WithTimeout(ctx, faultPhase)
	operating, stop := context.WithCancel(ctx)
	var acting sync.WaitGroup
	l.asked.begin = func(ask func(context.Context)) { acting.Go(func() { ask(operating) }) }
	defer func() { calm(); stop(); acting.Wait() }()
	operated := make(chan error, 1)
	acting.Go(func() { operated <- o.run(operating) })
	played := make(chan struct{})
	acting.Go(func() {
		defer close(played)
		select {
		case <-o.begun:
			l.play(faulty, r.Lanes, began)
		case <-faulty.Done():
		}
	})

	limit := recoverWithin
	if r.Change.Kind.scales() {
		limit *= 2 // It is several rollouts.
	}
	state, err := l.follow(ctx, operated, played, calm, limit)
	if err != nil {
		return err
	}
	if err := l.isBroken(); err != nil {
		return err
	}
	var wrong []string
	if state != "" {
		wrong = append(wrong, fmt.Sprintf("not complete %v after the last fault: %s", limit, state))
	}
	pass(ctx, 2*certainty) // The samples after the last removal count too.
	if state == "" {
		if err := l.oversee(ctx, before, began); err != nil {
			return err
		}
	}
	judgements, violations, err := l.judge()
	if err != nil {
		return err
	}
	wrong = append(append(wrong, o.judge(judgements)...), violations...)
	if err := l.audit.err(); err != nil {
		return fmt.Errorf("the auditor did not see everything: %w", err)
	}
	raced, err := l.races()
	if err != nil {
		return err
	}
	wrong = append(wrong, raced...)
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	l.figures.round(r, time.Since(began))
	l.tell("  %s", l.outcome(judgements, faults, time.Since(began)))
	if len(wrong) > 0 {
		return &Failure{Seed: l.script.Seed, Round: n, What: wrong}
	}
	return nil
}

// outcome is a round in a few words.
func (l *life) outcome(judgements []Judgement, before int, took time.Duration) string {
	var removals []string
	for _, j := range judgements {
		removals = append(removals, fmt.Sprintf("%s by %s", j.Pod, j.By))
	}
	p := l.client.Progress()
	return fmt.Sprintf("complete after %.1f s; faults: %d; removals: %s; acknowledged writes so far: %d",
		took.Seconds(), l.figures.faults()-before, strings.Join(removals, ", "), p.Acknowledged)
}

// follow waits until the operator is done and the rollout complete with no fault left. It
// returns what is missing if that takes longer than the limit after the last fault.
func (l *life) follow(ctx context.Context, operated <-chan error, played <-chan struct{}, calm func(),
	limit time.Duration) (missing string, err error) {
	ticker := time.NewTicker(look)
	defer ticker.Stop()
	told := time.Now()
	var over time.Time // when the last fault was
	done := false
	for {
		select {
		case <-ctx.Done():
			return "", context.Cause(ctx)
		case <-l.env.Plane.Failed():
			return "", l.env.Plane.Err()
		case err := <-operated:
			if err != nil {
				return "", err
			}
			done = true
		case <-played:
			played, over = nil, time.Now()
		case <-ticker.C:
		}
		complete, state := l.complete(ctx)
		switch {
		case done && complete && played == nil:
			return "", nil
		case done && complete:
			calm()
		case !over.IsZero() && time.Since(over) > limit:
			return state, nil
		case time.Since(told) > tellEvery:
			told = time.Now()
			l.tell("  … %s", state)
		}
	}
}

// complete reports whether all pods are updated and Ready, all members serve, and the record
// is at rest; if not, what is missing.
func (l *life) complete(ctx context.Context) (bool, string) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	set, err := l.set(ctx)
	if err != nil {
		return false, err.Error()
	}
	pods, err := l.cluster.ListPods(ctx)
	if err != nil {
		return false, err.Error()
	}
	updated := 0
	for i := range pods {
		if p := &pods[i]; p.DeletionTimestamp == nil && harness.IsReady(p) &&
			harness.Revision(p) == set.Status.UpdateRevision {
			updated++
		}
	}
	want := int(*set.Spec.Replicas)
	sample, record := l.observer.Latest(), l.audit.record()
	if record == nil {
		return false, "nobody has written the record yet"
	}
	state := fmt.Sprintf("%d of %d pods updated and Ready, %d of %d voters serve, record held by %q %s", updated, want,
		sample.Serving, sample.Voters, record.Holder, record.Work.Operation)
	asked := l.asked.String()
	if asked != "" {
		state += ", asked for and not done: " + asked
	}
	observed := set.Status.ObservedGeneration >= set.Generation
	return asked == "" && observed && updated == want && len(pods) == want && sample.Serving == want &&
		sample.Voters == want && record.Holder == "" && record.Intent == (Intent{}) && record.Work == (Work{}), state
}

func (l *life) set(ctx context.Context) (*appsv1.StatefulSet, error) {
	return l.env.Client.AppsV1().StatefulSets(harness.Namespace).Get(ctx, clusterName, metav1.GetOptions{})
}

// pods are the names of the pods that there are, by UID.
func (l *life) pods(ctx context.Context) (map[string]string, error) {
	list, err := l.cluster.ListPods(ctx)
	names := map[string]string{}
	for i := range list {
		names[string(list[i].UID)] = list[i].Name
	}
	return names, err
}

// oversee waits until the auditor has seen all there was to see in a round that is complete,
// for as long as a watch may lag.
func (l *life) oversee(ctx context.Context, before map[string]string, began time.Time) error {
	after, err := l.pods(ctx)
	if err != nil {
		return err
	}
	for until := time.Now().Add(watchLag); ; pass(ctx, again) {
		missing := l.audit.evidence().Overlooked(before, after, began, time.Now())
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case len(missing) == 0:
			return nil
		case time.Now().After(until):
			return fmt.Errorf("the auditor did not see everything: %s", strings.Join(missing, "; "))
		}
	}
}

// judge returns the judgements that are new, and what is wrong with them.
func (l *life) judge() (fresh []Judgement, wrong []string, err error) {
	evidence := l.audit.evidence()
	if evidence.Rewritten, err = rewritten(l.cluster.EtcdLogs()); err != nil {
		return nil, nil, err
	}
	all, works := evidence.judgeAll()
	fresh, l.judged = all[min(l.judged, len(all)):], len(all)
	worked := works[min(l.worked, len(works)):]
	l.worked = len(works)
	l.figures.judged(fresh)
	for _, j := range fresh {
		l.note("audit: %s", j)
		wrong = append(wrong, j.Violations...)
	}
	for _, j := range worked {
		l.note("audit: %s", j)
		wrong = append(wrong, j.Violations...)
	}
	together := append(evidence.Together(l.lastJudged), evidence.Departed()...)
	l.lastJudged = time.Now()
	l.figures.worked(worked, together)
	return fresh, append(wrong, together...), nil
}

// races are the data races that the sidecars have reported so far.
func (l *life) races() ([]string, error) {
	wrong, err := judgeLogs(l.cluster.SidecarLogs())
	l.figures.raced(len(wrong))
	return wrong, err
}

// verify ends the traffic and checks its history.
func (l *life) verify(ctx context.Context) error {
	verifying, cancel := context.WithTimeout(ctx, verifyLimit)
	defer cancel()
	history, err := l.client.Stop(verifying)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var wrong []string
	if err != nil {
		wrong = append(wrong, err.Error())
	}
	figures := traffic.NewFigures(history, l.observer.Stop())
	for i, v := range figures.Traffic.Violations {
		if i == 10 {
			wrong = append(wrong, fmt.Sprintf("and %d more", len(figures.Traffic.Violations)-i))
			break
		}
		wrong = append(wrong, v.String())
	}
	linear, err := Linearizable(history, linearLimit, l.dir)
	if err != nil {
		return err
	}
	for _, key := range linear.Illegal {
		wrong = append(wrong, fmt.Sprintf("%s is not linearizable", key))
	}
	_, late, err := l.judge() // What was removed since the last round.
	if err != nil {
		return err
	}
	raced, err := l.races()
	if err != nil {
		return err
	}
	wrong = append(append(wrong, late...), raced...)
	for _, o := range l.figures.life(figures, linear, l.audit.evidence()) {
		l.tell("  seed %d: without quorum for %.1f s at %.1f s, which no fault of the script explains", l.script.Seed,
			o.Seconds, o.From.Sub(l.began).Seconds())
	}
	l.tell("  seed %d: %s", l.script.Seed, told(figures, linear))
	if len(wrong) > 0 {
		return &Failure{Seed: l.script.Seed, Round: len(l.script.Rounds), What: wrong}
	}
	return nil
}

// keep saves what a failure is to be understood by.
func (l *life) keep() {
	save := func(name string, value any) {
		data, err := json.Marshal(value)
		if err == nil {
			err = os.WriteFile(filepath.Join(l.dir, name), data, 0o644)
		}
		if err != nil {
			l.note("%s could not be kept: %v", name, err)
		}
	}
	evidence := l.audit.evidence()
	evidence.Rewritten, _ = rewritten(l.cluster.EtcdLogs()) // What cannot be read has been told.
	save("evidence.json", evidence)
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	history, _ := l.client.Stop(ended) // The history is there, verified or not.
	save("history.json", history)
}

// operation is the operator's part of a round.
type operation struct {
	*life
	change Change
	began  time.Time
	// begun is closed when the first change has been made.
	begun chan struct{}
	// good is the template as it was before, and touches counts the changes of this round.
	good    *corev1.PodTemplateSpec
	touches int
	// bad is the time in which a bad revision was out.
	bad Window
	// whole is true if every pod had the bad revision.
	whole bool
}

// run makes the change, step by step, as often as it takes.
func (o *operation) run(ctx context.Context) error {
	if err := o.insist(ctx, func(ctx context.Context) (err error) {
		o.good, err = o.cluster.Template(ctx)
		return err
	}); err != nil {
		return err
	}
	switch o.change.Kind {
	case Upgrade:
		return o.first(ctx, func(t *corev1.PodTemplateSpec) { container(t, etcd).Image = harness.Etcd36 })
	case NewSidecar:
		return o.first(ctx, func(t *corev1.PodTemplateSpec) {
			c := container(t, sidecar)
			c.Image = map[string]string{harness.Sidecar: harness.SidecarNext,
				harness.SidecarNext: harness.Sidecar}[c.Image]
		})
	case Touch:
		return o.first(ctx, o.touch())
	case TouchTwice, Rollback:
		if err := o.rolling(ctx); err != nil {
			return err
		}
		if o.change.Kind == Rollback {
			return o.update(ctx, "roll back", func(t *corev1.PodTemplateSpec) { *t = *o.good.DeepCopy() })
		}
		return o.update(ctx, "touch again", o.touch())
	case BadRevision:
		return o.breakAndFix(ctx)
	case ScaleOut, RollScaleOut:
		return o.scaleOut(ctx, o.change.Kind == RollScaleOut)
	case ScaleIn, RollScaleIn:
		return o.scaleIn(ctx, o.change.Kind == RollScaleIn)
	default:
		return fmt.Errorf("nobody knows how to %q", o.change.Kind)
	}
}

// insist tries until it succeeds, because the API server or quorum may be away.
func (o *operation) insist(ctx context.Context, try func(context.Context) error) error {
	for {
		trying, cancel := context.WithTimeout(ctx, injectWithin)
		err := try(trying)
		cancel()
		if err == nil || ctx.Err() != nil {
			return err
		}
		o.env.Timeline.Note("operator", "tries again: %v", err)
		pass(ctx, time.Second)
	}
}

func (o *operation) update(ctx context.Context, why string, change func(*corev1.PodTemplateSpec)) error {
	return o.insist(ctx, func(ctx context.Context) error {
		return o.cluster.Update(ctx, why, func(set *appsv1.StatefulSet) { change(&set.Spec.Template) })
	})
}

// first is the first change of the round.
func (o *operation) first(ctx context.Context, change func(*corev1.PodTemplateSpec)) error {
	defer close(o.begun)
	return o.update(ctx, o.change.String(), change)
}

// touch makes a template a new revision.
func (o *operation) touch() func(*corev1.PodTemplateSpec) {
	o.touches++
	value := fmt.Sprintf("%s-%d", o.began.UTC().Format("150405.000"), o.touches)
	return func(t *corev1.PodTemplateSpec) { t.Annotations = map[string]string{touchedLabel: value} }
}

func container(t *corev1.PodTemplateSpec, name string) *corev1.Container {
	for i := range t.Spec.Containers {
		if t.Spec.Containers[i].Name == name {
			return &t.Spec.Containers[i]
		}
	}
	panic("the template has no container " + name) // The harness itself has made it.
}

// breakAndFix rolls out a bad revision, waits until it has failed, and fixes it.
func (o *operation) breakAndFix(ctx context.Context) error {
	o.bad.From = time.Now()
	err := o.first(ctx, func(t *corev1.PodTemplateSpec) {
		switch o.change.Breakage {
		case BadEtcd:
			c := container(t, etcd)
			c.Args = append(c.Args, "--no-such-flag")
		case BadSidecar:
			c := container(t, sidecar)
			c.Args = append(c.Args, "--no-such-flag")
		case NoImage:
			container(t, etcd).Image = harness.Missing
		case HangEtcd:
			c := container(t, etcd)
			c.Command, c.Args = []string{"sh", "-c", "exec sleep infinity"}, nil
		}
	})
	if err != nil {
		return err
	}
	for {
		if failed, _ := o.failed(ctx); failed {
			break
		}
		if pass(ctx, look); ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	pass(ctx, o.change.Patience)
	err = o.insist(ctx, func(ctx context.Context) (err error) {
		_, err = o.failed(ctx)
		return err
	})
	if err != nil {
		return err
	}
	good, touch := o.good, o.touch()
	err = o.update(ctx, "the fix", func(t *corev1.PodTemplateSpec) { *t = *good.DeepCopy(); touch(t) })
	o.bad.To = time.Now()
	return err
}

// failed reports whether a pod of the new revision waits in vain, or hangs, and notes whether all pods
// have that revision.
func (o *operation) failed(ctx context.Context) (failed bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	set, err := o.set(ctx)
	if err != nil {
		return false, err
	}
	pods, err := o.cluster.ListPods(ctx)
	if err != nil {
		return false, err
	}
	bad := 0
	for i := range pods {
		p := &pods[i]
		if p.DeletionTimestamp != nil || harness.Revision(p) != set.Status.UpdateRevision ||
			set.Status.ObservedGeneration < set.Generation {
			continue
		}
		bad++
		for j := range p.Status.ContainerStatuses {
			c := &p.Status.ContainerStatuses[j]
			w := c.State.Waiting
			failed = failed || w != nil && (w.Reason == "CrashLoopBackOff" || w.Reason == "ImagePullBackOff") ||
				o.change.Breakage == HangEtcd && c.Name == etcd && c.State.Running != nil
		}
	}
	o.whole = bad == len(o.cluster.Pods())
	return failed, nil
}

// judge: a bad revision takes at most one pod that served or would have come back by itself,
// and not all of them, unless hands took one of them meanwhile.
func (o *operation) judge(judgements []Judgement) []string {
	if o.change.Kind != BadRevision {
		return nil
	}
	wrong := costs(judgements, o.bad)
	byOthers := slices.ContainsFunc(judgements, func(j Judgement) bool { return j.By == byHands && o.bad.holds(j.At) })
	if o.whole && !byOthers {
		wrong = append(wrong, "a bad revision took all pods")
	}
	return wrong
}

// scaleOut adds one member after the other: an etcd takes one learner at a time. Roll is true
// when an earlier template is to be under way.
func (o *operation) scaleOut(ctx context.Context, roll bool) error {
	if roll {
		if err := o.rolling(ctx); err != nil {
			return err
		}
	}
	if err := o.budget(ctx, mostMembers/2+1); err != nil {
		return err
	}
	for n := len(o.cluster.Pods()) + 1; n <= mostMembers; n++ {
		if err := o.scale(ctx, n, false); err != nil {
			return err
		}
		if n == mostMembers-1 && !roll {
			close(o.begun)
		}
		pods := o.cluster.Pods()
		if err := o.insist(ctx, func(ctx context.Context) error {
			return o.cluster.Promote(ctx, pods[n-1])
		}); err != nil {
			return err
		}
	}
	return nil
}

// scaleIn takes the pods away, and after a while their members.
func (o *operation) scaleIn(ctx context.Context, roll bool) error {
	away := o.cluster.Pods()[3:]
	if roll {
		if err := o.rolling(ctx); err != nil {
			return err
		}
	}
	if err := o.scale(ctx, 3, !roll); err != nil {
		return err
	}
	if !roll {
		close(o.begun)
	}
	pass(ctx, o.change.Patience)
	if o.change.Ghosts {
		o.removeGhosts()
		return o.budget(ctx, 2)
	}
	o.audit.expels(away)
	if err := o.insist(ctx, func(ctx context.Context) error {
		return o.cluster.RemoveMembers(ctx, away...)
	}); err != nil {
		return err
	}
	return o.budget(ctx, 2)
}

// rolling changes the template, and waits until the first pod has gone for it.
func (o *operation) rolling(ctx context.Context) error {
	if err := o.first(ctx, o.touch()); err != nil {
		return err
	}
	waiting, cancel := context.WithTimeout(ctx, faultPhase)
	o.audit.awaitRemovals(waiting, o.began, 1)
	cancel()
	pass(ctx, o.change.Patience)
	return nil
}

func (o *operation) scale(ctx context.Context, replicas int, begins bool) error {
	scaled := o.audit.scaled(replicas, begins)
	err := o.insist(ctx, func(ctx context.Context) error { return o.cluster.Scale(ctx, replicas, nil) })
	if err == nil {
		scaled()
	}
	return err
}

// budget lets the PodDisruptionBudget ask for so many pods: a quorum of the smaller and the
// larger cluster while it is scaled, so that a drain takes no more than it may at any time.
func (o *operation) budget(ctx context.Context, least int) error {
	return o.insist(ctx, func(ctx context.Context) error { return o.cluster.SetMinAvailable(ctx, least) })
}
