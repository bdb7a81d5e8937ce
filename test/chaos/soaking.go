package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/quorate/quorate/test/chaos/soak"
)

const (
	// lasting is how many sidecars live through a whole soak: while one coordinates, the other waits for the lock.
	lasting = 2
	// outside is whom the record names where a sidecar has no member's pod.
	outside = "outside"
	// metricsPort is where sidecars serve their metrics in a soak.
	metricsPort = 8090
	// remembered is for how long after its end a request may still be judged.
	remembered = time.Minute
)

// soakingEtcd are flags of an etcd that has to live for hours on a small disk: by default it would keep more log than
// fits.
var soakingEtcd = []string{"--snapshot-count=5000", "--max-snapshots=2", "--max-wals=2"}

// lastingPods are the pods of the sidecars that live through a whole soak.
func lastingPods() []string {
	names := make([]string, lasting)
	for n := range names {
		names[n] = fmt.Sprintf("lasting-%d", n)
	}
	return names
}

// lasts reports whether the sidecar of a pod is to live as long as the cluster.
func (l *life) lasts(pod string) bool { return l.soaking != nil && slices.Contains(lastingPods(), pod) }

// soak plays seed after seed with one cluster. It is an error if anything grows meanwhile.
func (o Options) soak(ctx context.Context, until time.Time, slowDisks bool, figures *Figures) error {
	script := Draw(o.Seed)
	head, _, _ := strings.Cut(script.String(), "\n")
	began := time.Now()
	file, err := soak.Create(o.Soak, soak.Run{Seed: o.Seed, Began: began, Cluster: head})
	if err != nil {
		return err
	}
	dir := filepath.Join(o.Dir, fmt.Sprintf("seed-%d", o.Seed))
	l := &life{script: script, mode: o.Network, slowDisks: slowDisks, dir: dir, say: o.Say, figures: figures,
		soaking: file}
	played := l.run(ctx, until)
	if err := file.Close(figures); err != nil {
		return errors.Join(played, err)
	}
	if ctx.Err() != nil {
		return errors.Join(context.Cause(ctx), os.RemoveAll(dir))
	}
	if played != nil {
		return played
	}
	run, err := soak.Read(o.Soak)
	if err != nil {
		return err
	}
	trends, wrong := run.Judge()
	for _, t := range trends {
		o.Say("  " + t.String())
	}
	if len(wrong) > 0 {
		return &Failure{Seed: o.Seed, What: wrong}
	}
	return os.RemoveAll(dir)
}

// soak plays the script, and then the next ones, while what the sidecars occupy is measured.
func (l *life) soak(ctx context.Context, until time.Time) (err error) {
	measuring, stop := context.WithCancel(ctx)
	var measured sync.WaitGroup
	measured.Go(func() {
		if err := gaugeOf(l).run(measuring, l.soaking.Add); err != nil {
			l.broken(err)
		}
	})
	defer func() {
		stop()
		measured.Wait()
		err = errors.Join(err, l.isBroken())
	}()
	for {
		if err := l.chapter(ctx, until); err != nil || time.Now().After(until) {
			return err
		}
		if err := l.turnPage(ctx); err != nil {
			return fmt.Errorf("go on with seed %d: %w", l.script.Seed, err)
		}
	}
}

// turnPage goes on with the next seed. What was seen before has been judged, and would only fill memory and disk.
func (l *life) turnPage(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyLimit)
	defer cancel()
	l.audit.stop()
	if err := l.cluster.DropLogs(ctx); err != nil {
		return err
	}
	l.env.API.Forget(time.Now().Add(-remembered))
	l.script = l.script.Next()
	if err := l.attend(ctx); err != nil {
		return err
	}
	// The history of what was written would fill the quota in the end.
	if !l.until(ctx, func(ctx context.Context) error { return l.cluster.Waste(ctx, 0) }) {
		return context.Cause(ctx)
	}
	return nil
}
