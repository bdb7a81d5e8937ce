package cost

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/quorate/quorate/test/bench/result"
	"github.com/quorate/quorate/test/harness"
)

// samplePeriod is how often a [Sampler] looks. What a process needs between the last look and
// its end is not seen, and neither is memory that is given back between two looks.
const samplePeriod = 200 * time.Millisecond

// Sampler adds up what the processes of one container need, in all pods of a cluster and in
// those that replace them. Of a process that runs when the sampler starts counts what it needs
// from then on, of any other all of it.
//
// Where pods have network namespaces, a process begins as the harness's launcher: its 20 or 30
// ms of processor time are in the sum, its memory is not.
type Sampler struct {
	cancel context.CancelFunc
	done   chan struct{}
	// usage is complete when done is closed.
	usage result.Usage
}

// StartSampler starts a sampler, which has had its first look when this returns. It ends with
// the context or by [Sampler.Stop].
func StartSampler(ctx context.Context, env *harness.Env, cluster *harness.Cluster, container string) *Sampler {
	return startSampler(ctx, func() map[string]int { return processes(env, container, cluster.Pods()...) })
}

// processes are those that the container of each pod runs now.
func processes(env *harness.Env, container string, pods ...string) map[string]int {
	pids := map[string]int{}
	for _, pod := range pods {
		if pid, ok := env.Nodes.PID(pod, container); ok {
			pids[pod] = pid
		}
	}
	return pids
}

// startSampler follows the processes that find names, one for each name at a time.
func startSampler(ctx context.Context, find func() map[string]int) *Sampler {
	ctx, cancel := context.WithCancel(ctx)
	s := &Sampler{cancel: cancel, done: make(chan struct{})}
	// The harness's launcher is the program that this is.
	launcher, _ := os.Readlink("/proc/self/exe")
	l := tally{find: find, launcher: launcher, running: map[string]sample{}}
	l.look(true)
	go func() {
		defer close(s.done)
		ticker := time.NewTicker(samplePeriod)
		defer ticker.Stop()
		for ended := false; !ended; {
			select {
			case <-ticker.C:
			case <-ctx.Done():
				ended = true
			}
			l.look(false)
		}
		s.usage = l.usage
	}()
	return s
}

// Stop ends the sampler after a last look, and returns what it saw.
func (s *Sampler) Stop() result.Usage {
	s.cancel()
	<-s.done
	return s.usage
}

// sample is a process and its processor time at the last look.
type sample struct {
	pid int
	cpu time.Duration
}

// tally is what a sampler knows.
type tally struct {
	find func() map[string]int
	// launcher is a program that counts for nothing: a process that runs it is about to become
	// the container's.
	launcher string
	running  map[string]sample
	usage    result.Usage
}

// look takes a sample of every process. What processes needed before the first one does not
// count.
func (l *tally) look(first bool) {
	for name, pid := range l.find() {
		if program, err := os.Readlink(filepath.Join("/proc", strconv.Itoa(pid), "exe")); err != nil ||
			program == l.launcher {
			continue
		}
		cpu, err := harness.ProcessorTime(pid)
		if err != nil {
			continue // It has just ended.
		}
		before := l.running[name]
		if before.pid != pid {
			before = sample{pid: pid}
			l.usage.Processes++
			if first {
				before.cpu = cpu
			}
		}
		l.usage.CPUSeconds += (cpu - before.cpu).Seconds()
		l.running[name] = sample{pid: pid, cpu: cpu}
		if memory, err := harness.MemoryOf(pid); err == nil {
			l.usage.Anonymous = max(l.usage.Anonymous, memory.AnonymousMiB())
			l.usage.Resident = max(l.usage.Resident, memory.ResidentMiB())
		}
	}
}
