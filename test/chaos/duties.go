package chaos

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/quorate/quorate/test/harness"
	"github.com/quorate/quorate/test/harness/apiproxy"
)

const (
	// askWithin bounds one attempt of an operator's to have something done; then there is another.
	askWithin = time.Minute
	// killedAfter is how long a request is held whose sidecar is killed meanwhile.
	killedAfter = 300 * time.Millisecond
	// wasted is how many MiB a database has too many when it is loose.
	wasted = 4
)

// pending is what an operator has asked for and not got yet.
type pending struct {
	// begin runs a function until the round is over.
	begin func(func(ctx context.Context))
	mu    sync.Mutex
	what  []string
}

// String names it, empty for nothing.
func (p *pending) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.what, ", ")
}

func (p *pending) add(what string) (done func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.what = append(p.what, what)
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		i := slices.Index(p.what, what)
		p.what = slices.Delete(p.what, i, i+1)
	}
}

// ask has an operator try until it is done. The round is not complete before. Faults may end meanwhile.
func (l *life) ask(what string, try func(ctx context.Context) (done bool, err error)) {
	done := l.asked.add(what)
	l.asked.begin(func(ctx context.Context) {
		for ctx.Err() == nil {
			trying, cancel := context.WithTimeout(ctx, askWithin)
			over, err := try(trying)
			cancel()
			if err == nil && over {
				l.note("done: %s", what)
				done()
				return
			}
			if err != nil {
				l.note("%s: %v", what, err)
			}
			pass(ctx, time.Second)
		}
	})
}

// quorate runs the command as an operator does.
func (l *life) quorate(ctx context.Context, args ...string) error {
	command := exec.CommandContext(ctx, l.env.Binaries.Quorate, append(args, "-n", harness.Namespace,
		"--kubeconfig="+l.env.Plane.KubeconfigPath())...)
	// Whoever is interrupted takes the request back.
	command.Cancel = func() error { return command.Process.Signal(syscall.SIGINT) }
	command.WaitDelay = injectWithin
	output, err := command.CombinedOutput()
	if err != nil {
		return fmt.Errorf("quorate %s: %w: %s", args[0], err, output)
	}
	return nil
}

// removeGhosts asks for the removal of all ghosts, until none is listed.
func (l *life) removeGhosts() {
	l.ask("the removal of ghosts", func(ctx context.Context) (bool, error) {
		members, err := l.cluster.Members(ctx)
		if err != nil || len(members) <= len(l.cluster.Pods()) {
			return err == nil, err
		}
		l.audit.ghostAsked()
		return false, l.quorate(ctx, "remove-member", clusterName, "--all-ghosts")
	})
}

// until tries what needs a quorum, and perhaps more, until it is done or the context ends.
func (l *life) until(ctx context.Context, try func(ctx context.Context) error) bool {
	for ctx.Err() == nil {
		trying, cancel := context.WithTimeout(ctx, injectWithin)
		err := try(trying)
		cancel()
		if err == nil {
			return true
		}
		pass(ctx, time.Second)
	}
	return false
}

// work gives the coordinator other work than the rollout. What it is to do about it, it has to do also when the faults
// are over.
func (l *life) work(ctx context.Context, f Fault) {
	var begun bool
	switch f.Kind {
	case FillQuota:
		begun = l.until(ctx, l.cluster.Fill)
	case AddGhost:
		begun = l.until(ctx, func(ctx context.Context) error {
			l.audit.ghostAdded(l.cluster.Spare())
			return l.cluster.AddGhost(ctx, l.cluster.Spare())
		})
	default:
		begun = l.until(ctx, func(ctx context.Context) error { return l.cluster.Waste(ctx, wasted) })
	}
	l.note("%s%s", f.Kind, map[bool]string{false: ": in vain"}[begun])
	if begun {
		l.figures.hit(f.Kind)
	} else {
		l.figures.missed(f.Kind) // But what an attempt has done of which nothing was heard has to end all the same.
	}
	pass(ctx, f.For)
	switch f.Kind {
	case AddGhost:
		l.removeGhosts()
	case FillQuota:
		made := false
		l.ask("writes, for which there is room again", func(ctx context.Context) (bool, error) {
			if !made {
				if err := l.cluster.Waste(ctx, 0); err != nil {
					return false, err
				}
				made = true
			}
			alarms, err := l.cluster.Alarms(ctx)
			return err == nil && alarms == 0, err
		})
	case LoosenAndAsk:
		l.ask("a defragmentation", func(ctx context.Context) (bool, error) {
			err := l.quorate(ctx, "defragment", clusterName, "--yes")
			return err == nil, err
		})
	default: // The sidecars' policy wants a defragmentation.
	}
}

// cordonAndDrain drains a node as kubectl drain does, and lets it be used again after a while.
func (l *life) cordonAndDrain(ctx context.Context, f Fault, pod string) {
	var node string
	found := l.until(ctx, func(ctx context.Context) (err error) {
		node, err = l.cluster.NodeOf(ctx, pod)
		return err
	})
	if !found {
		l.figures.missed(f.Kind)
		return
	}
	if l.until(ctx, func(ctx context.Context) error { return l.cluster.Cordon(ctx, node) }) {
		l.drain(ctx, f, []string{pod})
		pass(ctx, f.For)
	}
	l.mend(ctx, "cordon of "+node, func(ctx context.Context) error { return l.cluster.Uncordon(ctx, node) })
}

// killAt kills the sidecar that has put an operation on a member on record, or is about to.
func (l *life) killAt(ctx context.Context, f Fault) {
	if f.Kind == KillCalling {
		holder, ok := l.audit.awaitWork(ctx, worksOn...)
		if !ok {
			return
		}
		pass(ctx, f.For)
		l.hit(ctx, Fault{Kind: f.Kind}, []string{holder})
		return
	}
	f.Outcome, f.For = Lost, killedAfter
	if f.Kind == KillOnIt {
		f.Outcome = AnswerLost
	}
	f.While = &Fault{Kind: KillSidecar, Victims: []Victim{TheCoordinator}}
	begun := map[string]bool{}
	l.hold(ctx, f, func(r *apiproxy.Request) bool {
		text, told := r.Annotation(harness.IntentAnnotation)
		if !told || r.Pod == "" || !l.cluster.WritingRecord(r) {
			return false
		}
		_, work := intentIn(text)
		if works := work.Operation != ""; f.Kind != KillEnding || works {
			begun[r.Pod] = works
			return works && f.Kind != KillEnding
		}
		return begun[r.Pod]
	})
}
