package bench

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"time"

	"github.com/quorate/quorate/test/bench/result"
	"github.com/quorate/quorate/test/harness"
)

// perEnvironment is how many trials share a control plane and nodes. An API server that has
// seen many clusters is slower than one that has not, and so would be the later trials.
const perEnvironment = 12

// Options say what to measure.
type Options struct {
	// Rounds is how often every case is played with every arm.
	Rounds int
	// Cases and Arms restrict the trials to those; nil for all.
	Cases, Arms []string
	// For is after how long no new trial begins, 0 for no limit.
	For time.Duration
	// Seed draws the order.
	Seed uint64
	// Short leaves as much as shows that everything works.
	Short bool
	// Keep leaves the data and logs of all processes in the directory.
	Keep bool
	// Network is harness.Namespaces or harness.Loopback.
	Network harness.Mode
	// Dir takes the results. Data and logs of a trial are there while it runs, and stay after
	// one that could not be measured.
	Dir string
	// Say is told what is going on, line by line.
	Say func(line string)
}

// Trials does the trials, and writes each to the directory when it ends.
func Trials(ctx context.Context, o Options) error {
	todo := plan(o.Rounds, o.Cases, o.Arms, o.Seed)
	if o.Short {
		todo = short(o.Seed)
	}
	if len(todo) == 0 {
		return fmt.Errorf("no trial matches cases %q and arms %q; the cases are %q, the arms %q", o.Cases, o.Arms, names(result.Cases, func(c result.Case) string { return c.Name }), names(result.Arms, func(a result.Arm) string { return a.Name }))
	}
	began := time.Now()
	l := &environments{options: o, open: map[string]*environment{}, keep: o.Keep}
	var err error
	for i, p := range todo {
		if o.For > 0 && time.Since(began) > o.For {
			o.Say(fmt.Sprintf("%v have passed: %d of %d trials are left out", o.For, len(todo)-i, len(todo)))
			break
		}
		var t result.Trial
		if t, err = p.do(ctx, l); err != nil {
			break
		}
		if err = result.WriteTrial(o.Dir, t); err != nil {
			break
		}
		o.Say(fmt.Sprintf("%3d of %d  %s", i+1, len(todo), line(t)))
		if t.Trouble != "" {
			l.keep = true
		}
	}
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Minute)
	defer cancel()
	return errors.Join(err, l.close(closing))
}

func names[T any](all []T, name func(T) string) []string {
	list := make([]string, len(all))
	for i, v := range all {
		list[i] = name(v)
	}
	return list
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
	if t.Etcd != nil {
		return text + how
	}
	quorum := "quorum kept"
	if t.WithoutQuorum > 0 {
		quorum = fmt.Sprintf("WITHOUT QUORUM %.1f s", t.WithoutQuorum)
	}
	return text + fmt.Sprintf("%s, %s, stall %.0f ms, leader changes %d+%d", how, quorum, 1000*t.WriteStall, t.Planned, t.Unplanned)
}

// environments are the control planes in use, one for each set of feature gates.
type environments struct {
	options Options
	open    map[string]*environment
	count   int
	// keep leaves the logs.
	keep bool
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
		delete(l.open, key)
		if err := l.shut(ctx, e); err != nil {
			return nil, err
		}
		e = nil
	}
	if e == nil {
		l.count++
		dir := filepath.Join(l.options.Dir, "work", fmt.Sprint(l.count))
		most := 0
		for _, s := range settings {
			most = max(most, s.members)
		}
		env, err := harness.Start(ctx, harness.Options{Dir: dir, Network: l.options.Network, Nodes: most, FeatureGates: maps.Clone(gates), Progress: func(string) {}})
		if err != nil {
			return nil, err
		}
		e = &environment{Env: env, dir: dir}
		l.open[key] = e
	}
	e.used++
	return e.Env, nil
}

func (l *environments) shut(ctx context.Context, e *environment) error {
	err := e.Close(ctx)
	if l.keep {
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
