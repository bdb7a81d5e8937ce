package bench

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/quorate/quorate/test/bench/result"
	"github.com/quorate/quorate/test/harness"
)

// perEnvironment is how many trials share a control plane and nodes. An API server that has
// seen many clusters is slower than one that has not, and so would be the later trials.
const perEnvironment = 12

// closeLimit bounds the end of a control plane and of all that runs on it.
const closeLimit = 2 * time.Minute

// Options say what to measure.
type Options struct {
	// Rounds is how often every case is played with every arm.
	Rounds int
	// Pairs is how many pairs of [Paired] each case that decides has at least, in rounds beyond Rounds if need be.
	Pairs int
	// Cases and Arms restrict the trials to those; nil for all.
	Cases, Arms []string
	// For is after how long no new trial begins, 0 for no limit.
	For time.Duration
	// Seed draws the order.
	Seed uint64
	// Short leaves as much as shows that everything works.
	Short bool
	// Lanes is how many trials run at a time. One is right where milliseconds count, so healthy
	// clusters always run alone. Two on two cores save time.
	Lanes int
	// Keep leaves the data and logs of all processes in the directory.
	Keep bool
	// Network is harness.Namespaces or harness.Loopback.
	Network harness.Mode
	// RealNodes plays [Core] on real kubelets, unless Cases and Arms say what else. It needs harness.Namespaces and one
	// lane, because all environments with real nodes would share the machine's control groups and names.
	RealNodes bool
	// Published are the trials of an earlier run, by which is estimated how long this one takes.
	Published []result.Trial
	// Dir takes the results. Data and logs of a trial are there while it runs, and stay after
	// one that could not be measured.
	Dir string
	// Say is told what is going on, line by line.
	Say func(line string)
}

// Trials does the trials, and writes each to the directory when it ends.
func Trials(ctx context.Context, o Options) error {
	todo, err := o.plan()
	if err != nil {
		return err
	}
	o.Say(o.estimate(todo))
	r := &run{options: o, began: time.Now()}
	for _, p := range slices.Concat(todo...) {
		r.total, r.members = r.total+1, max(r.members, p.setting.members)
	}
	defer harness.CollectRarely()()
	for _, turn := range turns(todo, o.Lanes) {
		if err = r.lanes(ctx, turn); err != nil {
			break
		}
	}
	if left := r.total - r.done; err == nil && left > 0 {
		o.Say(fmt.Sprintf("%v have passed: %d of %d trials are left out", o.For, left, r.total))
	}
	return err
}

// turn is what so many lanes do before anything else is done.
type turn struct {
	lanes  int
	groups [][]planned
}

// turns are those of a run, round after round, so that a limit of time costs the last rounds
// and no case. In each round come first those that want the machine for themselves.
func turns(todo [][]planned, lanes int) []turn {
	if lanes <= 1 {
		return []turn{{1, todo}}
	}
	var all []turn
	for len(todo) > 0 {
		alone, beside := turn{lanes: 1}, turn{lanes: lanes}
		round := todo[0][0].round
		for len(todo) > 0 && todo[0][0].round == round {
			if todo[0][0].setting.alone {
				alone.groups = append(alone.groups, todo[0])
			} else {
				beside.groups = append(beside.groups, todo[0])
			}
			todo = todo[1:]
		}
		all = append(all, alone, beside)
	}
	return all
}

// run is what the lanes have in common.
type run struct {
	options Options
	began   time.Time
	total   int
	// members is how many the largest cluster has.
	members int

	mu   sync.Mutex
	done int
	// keep leaves the logs, because a trial could not be measured.
	keep bool
}

// lanes takes a turn. Each lane has control planes of its own.
func (r *run) lanes(ctx context.Context, t turn) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	queue := make(chan []planned, len(t.groups))
	for _, group := range t.groups {
		queue <- group
	}
	close(queue)
	errs := make([]error, t.lanes)
	var lanes sync.WaitGroup
	for lane := range t.lanes {
		lanes.Go(func() {
			if errs[lane] = r.lane(ctx, queue); errs[lane] != nil {
				cancel()
			}
		})
	}
	lanes.Wait()
	return errors.Join(errs...)
}

func (r *run) lane(ctx context.Context, queue <-chan []planned) error {
	l := &environments{run: r, open: map[string]*environment{}}
	err := r.groups(ctx, queue, l)
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeLimit)
	defer cancel()
	return errors.Join(err, l.close(closing))
}

func (r *run) groups(ctx context.Context, queue <-chan []planned, l lab) error {
	for group := range queue {
		for _, p := range group {
			if o := r.options; o.For > 0 && time.Since(r.began) > o.For {
				return nil
			}
			t, err := p.do(ctx, l)
			if err != nil {
				return err
			}
			if r.options.RealNodes {
				t.Nodes = result.RealNodes
			}
			if err := result.WriteTrial(r.options.Dir, t); err != nil {
				return err
			}
			r.finished(t)
		}
	}
	return nil
}

func (r *run) finished(t result.Trial) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.done++
	r.keep = r.keep || t.Trouble != ""
	r.options.Say(fmt.Sprintf("%3d of %d  %s", r.done, r.total, line(t)))
}

// directory is a new one for a control plane.
func (r *run) directory() (string, error) {
	work := filepath.Join(r.options.Dir, "work")
	if err := os.MkdirAll(work, 0o755); err != nil {
		return "", err
	}
	return os.MkdirTemp(work, "")
}

// line is a trial in a line.
func line(t result.Trial) string {
	text := fmt.Sprintf("round %d %-15s %-15s leader %d: ", t.Round, t.Case, t.Arm, t.Leader)
	if t.Trouble != "" {
		return text + "could not be measured: " + t.Trouble
	}
	how := fmt.Sprintf("%5.1f s", t.Seconds)
	if !t.Completed {
		how = fmt.Sprintf("not done after %.0f s", t.Seconds)
	}
	if t.Ratio > 0 {
		how += fmt.Sprintf(" (%.3f)", t.Ratio)
	}
	how += fmt.Sprintf(", machine still for %.0f ms", 1000*t.StoodStill)
	if t.Etcd != nil {
		return text + how
	}
	quorum := "quorum kept"
	if t.WithoutQuorum > 0 {
		quorum = fmt.Sprintf("WITHOUT QUORUM %.1f s", t.WithoutQuorum)
	}
	return text + fmt.Sprintf("%s, %s, stall %.0f ms, leader changes %d+%d", how, quorum, 1000*t.WriteStall,
		t.Planned, t.Unplanned)
}

// environments are the control planes in use, one for each set of feature gates.
type environments struct {
	run  *run
	open map[string]*environment
}

type environment struct {
	*harness.Env
	dir  string
	used int
}

func (l *environments) env(ctx context.Context, gates map[string]bool) (*harness.Env, error) {
	key := fmt.Sprint(gates)
	e := l.open[key]
	if e != nil && e.used >= perEnvironment {
		if err := l.drop(ctx, gates); err != nil {
			return nil, err
		}
		e = nil
	}
	if e == nil {
		dir, err := l.run.directory()
		if err != nil {
			return nil, err
		}
		env, err := harness.Start(ctx,
			harness.Options{Dir: dir, Network: l.run.options.Network, RealNodes: l.run.options.RealNodes,
				Nodes: l.run.members, FeatureGates: maps.Clone(gates), Patient: true, InMemory: true, Audit: true})
		if err != nil {
			return nil, err
		}
		e = &environment{Env: env, dir: dir}
		l.open[key] = e
	}
	e.used++
	return e.Env, nil
}

func (l *environments) drop(ctx context.Context, gates map[string]bool) error {
	key := fmt.Sprint(gates)
	e := l.open[key]
	delete(l.open, key)
	return l.shut(ctx, e)
}

func (l *environments) shut(ctx context.Context, e *environment) error {
	err := e.Close(ctx)
	l.run.mu.Lock()
	defer l.run.mu.Unlock()
	if l.run.keep || l.run.options.Keep {
		return err
	}
	return errors.Join(err, os.RemoveAll(e.dir))
}

func (l *environments) close(ctx context.Context) error {
	var errs []error
	for _, e := range l.open {
		errs = append(errs, l.shut(ctx, e))
	}
	return errors.Join(errs...)
}
