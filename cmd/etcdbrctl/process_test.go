package main

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

const on = "--enable-quorum-aware-pod-updates"

// said is what a host has told once it is well: what it logs, without what differs between any two runs, and the names
// of its metrics.
type said struct {
	log, metrics []string
}

var (
	message = regexp.MustCompile(`level=(\w+) msg="((?:[^"\\]|\\.)*)"(?: actor=(\S+))?`)
	varies  = regexp.MustCompile(`/tmp/\S*|home\d+|[-+]?\d[-+.:\w]*`)
	metric  = regexp.MustCompile(`(?m)^# TYPE (\S+) (\S+)`)
)

// tell waits until a host is well and repeats itself, and returns what the host has said and what Quorate has.
func (p *process) tell() (host, quorate said) {
	p.f.t.Helper()
	p.well()
	p.until("the second delta snapshot is logged", func() bool {
		return strings.Count(p.logged(), "Renewed delta snapshot lease") > 1
	})
	for _, m := range message.FindAllStringSubmatch(p.logged(), -1) {
		line := m[1] + ": " + varies.ReplaceAllString(m[2], "N")
		if m[3] == "quorate" {
			quorate.log = append(quorate.log, line)
		} else {
			host.log = append(host.log, line)
		}
	}
	for _, m := range metric.FindAllStringSubmatch(p.get(p.port, "/metrics"), -1) {
		if strings.HasPrefix(m[1], "quorate_") {
			quorate.metrics = append(quorate.metrics, m[1])
		} else {
			host.metrics = append(host.metrics, m[1]+" "+m[2])
		}
	}
	for _, s := range []*[]string{&host.log, &host.metrics, &quorate.log, &quorate.metrics} {
		slices.Sort(*s)
		*s = slices.Compact(*s)
	}
	return host, quorate
}

// differ reports what is in only one of two lists.
func differ(t *testing.T, what string, alone, ours []string) {
	t.Helper()
	for _, line := range alone {
		if !slices.Contains(ours, line) {
			t.Errorf("only the host alone has this %s: %s", what, line)
		}
	}
	for _, line := range ours {
		if !slices.Contains(alone, line) {
			t.Errorf("the host alone does not have this %s: %s", what, line)
		}
	}
}

func TestTheHostWorksAsItDoesAlone(t *testing.T) {
	f := newFixture(t)
	p := f.run(alone)
	want, _ := p.tell()
	if code := p.terminate(); code != 0 || len(want.log) < 30 || len(want.metrics) < 50 {
		t.Fatalf("exit code %d, %d lines, %d metrics", code, len(want.log), len(want.metrics))
	}

	t.Run("off, nothing of ours runs", func(t *testing.T) {
		f := newFixture(t)
		p := f.run(quorate)
		host, ours := p.tell()
		differ(t, "line", want.log, host.log)
		differ(t, "metric", want.metrics, host.metrics)
		if len(ours.log)+len(ours.metrics) > 0 || f.keys() > 0 || f.hasAsked("quorate") {
			t.Errorf("got %+v, %d keys", ours, f.keys())
		}
		if code := p.terminate(); code != 0 {
			t.Errorf("exit code %d", code)
		}
	})

	t.Run("on, it also coordinates", func(t *testing.T) {
		f := newFixture(t)
		page := freePort(t)
		p := f.run(quorate, on, "--pod-update-listen-address=127.0.0.1:"+page)
		p.until("the sidecar waits for the lock", func() bool { return f.keys() > 0 })
		host, ours := p.tell()
		differ(t, "line", want.log, host.log)
		differ(t, "metric", want.metrics, host.metrics)
		if len(ours.metrics) == 0 || !f.hasAsked("quorate") {
			t.Errorf("got %+v", ours)
		}
		if !strings.Contains(p.get(page, "/"), "etcd-main") {
			t.Error("there is no page")
		}
		if code := p.terminate(); code != 0 || f.keys() != 0 {
			t.Errorf("exit code %d, %d keys are left", code, f.keys())
		}
	})
}

// The host then ends its process from its logger, without coming back to its main.
func TestASidecarThatIsStoppedBeforeItsMemberServesGivesBackTheLock(t *testing.T) {
	for _, program := range []string{alone, quorate} {
		t.Run(program, func(t *testing.T) {
			f := newFixture(t)
			f.client = "http://127.0.0.1:" + freePort(t) // Other members can still be reached.
			var args []string
			if program == quorate {
				args = append(args, on)
			}
			p := f.run(program, args...)
			p.until("it waits for its member", func() bool {
				return strings.Contains(p.logged(), "Checking if etcd is running")
			})
			if program == quorate {
				p.until("it has the lock all the same", func() bool { return f.keys() > 0 })
			}
			if code := p.terminate(); code != 1 || f.keys() != 0 {
				t.Errorf("exit code %d, %d keys are left", code, f.keys())
			}
		})
	}
}

func TestARolloutWaitsForTheSnapshotsLeases(t *testing.T) {
	f := newFixture(t)
	f.mu.Lock()
	full := f.objects[leasePath+"etcd-main-full-snap"]
	delete(f.objects, leasePath+"etcd-main-full-snap")
	f.mu.Unlock()
	f.change(setPath, `{"status":{"updateRevision":"newer"}}`)
	p := f.run(quorate, on)
	p.until("the rollout holds", func() bool { return strings.Contains(p.logged(), "BackupReady") })
	if !strings.Contains(p.logged(), "Unknown: the Leases of the snapshots cannot be read") {
		t.Error("nobody says why")
	}
	f.mu.Lock()
	if f.evicted {
		t.Error("the pod was removed")
	}
	f.objects[leasePath+"etcd-main-full-snap"] = full
	f.mu.Unlock()
	f.change(leasePath+"etcd-main-full-snap", fmt.Sprintf(`{"metadata":{"creationTimestamp":%q}}`,
		time.Now().UTC().Format(time.RFC3339)))
	p.until("the pod is removed", func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.evicted
	})
}

// memory is what a process has in use once its garbage is collected, in KiB.
type memory struct{ heap, anonymous, resident int }

func (p *process) memory() (m memory) {
	p.f.t.Helper()
	if p.get(p.port, "/debug/pprof/heap?gc=1") == "" {
		p.f.t.Fatal("the garbage is not collected")
	}
	for line := range strings.Lines(p.get(p.port, "/metrics")) {
		if value, ok := strings.CutPrefix(line, "go_memstats_heap_alloc_bytes "); ok {
			bytes, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			if err != nil {
				p.f.t.Fatal(err)
			}
			m.heap = int(bytes) / 1024
		}
	}
	rollup, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", p.Process.Pid))
	if err != nil {
		p.f.t.Skip(err)
	}
	for line := range strings.Lines(string(rollup)) {
		fields := strings.Fields(line)
		switch fields[0] {
		case "Rss:":
			m.resident, _ = strconv.Atoi(fields[1])
		case "Anonymous:":
			m.anonymous, _ = strconv.Atoi(fields[1])
		}
	}
	return m
}

func TestTheHostNeedsLittleMoreMemory(t *testing.T) {
	const profiling = "--enable-profiling=true" // Of the host's own.
	alone, off, on := newFixture(t).run(alone, profiling), newFixture(t).run(quorate, profiling),
		newFixture(t).run(quorate, profiling, on)
	least := map[*process]memory{}
	for range 20 {
		for _, p := range []*process{alone, off, on} {
			p.well()
			m := p.memory()
			if before, ok := least[p]; ok {
				m = memory{min(m.heap, before.heap), min(m.anonymous, before.anonymous),
					min(m.resident, before.resident)}
			}
			least[p] = m
		}
	}
	t.Logf("KiB: alone %+v, off %+v, on %+v", least[alone], least[off], least[on])
	for _, tc := range []struct {
		name        string
		got, atMost int
	}{
		{"off, in its heap", least[off].heap - least[alone].heap, 1024},
		{"off, anonymous", least[off].anonymous - least[alone].anonymous, 3072},
		// How much of the program's file is resident depends on what the kernel has read ahead: two to six MiB.
		{"off, resident", least[off].resident - least[alone].resident, 8192},
		{"on, in its heap", least[on].heap - least[alone].heap, 2048},
		{"on, anonymous", least[on].anonymous - least[alone].anonymous, 5120},
	} {
		if tc.got > tc.atMost {
			t.Errorf("%s: %d KiB more, at most %d", tc.name, tc.got, tc.atMost)
		}
	}
}
