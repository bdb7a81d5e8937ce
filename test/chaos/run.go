package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/quorate/quorate/test/harness"
	"github.com/quorate/quorate/test/harness/build"
	"github.com/quorate/quorate/test/harness/disk"
)

// Options say how long to go on, and with what.
type Options struct {
	// Seed is the first seed; the next ones follow it.
	Seed uint64
	// Duration is after how long no new round begins. The last round takes about half a
	// minute, and [LastRound] at the very worst.
	Duration time.Duration
	// Network is harness.Namespaces or harness.Loopback. Without namespaces the faults
	// that need them are left out, and counted as missed; without FUSE slow disks are, unless
	// [harness.RequireNamespaces] is set in the environment.
	Network harness.Mode
	// Dir takes data and logs, in a directory for each seed. Those of a seed that came to
	// a good end are removed.
	Dir string
	// Soak is a file that takes what sidecars occupy meanwhile. With it, there is one cluster for all seeds, with
	// sidecars that live through all of it.
	Soak string
	// Say is told what is going on, line by line.
	Say func(line string)
}

// LastRound is how long after [Options.Duration] a run ends at the latest: faults, the
// recovery of a rollout of several steps, and the verification.
const LastRound = faultPhase + 2*recoverWithin + verifyLimit + linearLimit + closeLimit

// Run plays seed after seed until the time is over or something is wrong. The figures are
// those of all that was played. An error is a [Failure] where a promise was not kept.
func Run(ctx context.Context, o Options) (*Figures, error) {
	figures := &Figures{}
	binaries, err := build.All(ctx, o.Say)
	if err != nil {
		return figures, fmt.Errorf("build the binaries: %w", err)
	}
	if binaries.Race() {
		o.Say("with the race detector in the sidecars")
	}
	slowDisks := o.Network == harness.Namespaces
	if err := disk.SlowAvailable(); slowDisks && err != nil {
		if os.Getenv(harness.RequireNamespaces) != "" {
			return figures, err
		}
		o.Say(fmt.Sprintf("without slow disks: %v", err))
		slowDisks = false
	}
	until := time.Now().Add(o.Duration)
	if o.Soak != "" {
		return figures, o.soak(ctx, until, slowDisks, figures)
	}
	for seed := o.Seed; ctx.Err() == nil && time.Now().Before(until); seed++ {
		dir := filepath.Join(o.Dir, fmt.Sprintf("seed-%d", seed))
		l := &life{script: Draw(seed), mode: o.Network, slowDisks: slowDisks, dir: dir, say: o.Say, figures: figures}
		if err := l.run(ctx, until); err != nil {
			if ctx.Err() != nil {
				return figures, errors.Join(context.Cause(ctx), os.RemoveAll(dir))
			}
			return figures, err
		}
		if err := os.RemoveAll(dir); err != nil {
			return figures, fmt.Errorf("remove what is left of seed %d: %w", seed, err)
		}
	}
	return figures, context.Cause(ctx)
}
