package soak_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorate/quorate/test/chaos/soak"
)

// runOf is a run in which everything is steady, but for what change makes of each look.
func runOf(lasts time.Duration, change func(hours float64, l *soak.Look)) *soak.Run {
	r := &soak.Run{Seed: 7, Began: time.Date(2026, 11, 23, 0, 0, 0, 0, time.UTC), Cluster: "three members"}
	for at := time.Duration(0); at <= lasts; at += 5 * time.Second {
		// Garbage comes and is collected, and some of everything comes and goes with the work.
		n := int(at/(5*time.Second)) % 12
		steady := soak.Sidecar{Anonymous: 20 + 0.1*float64(n), Heap: 4 + 0.5*float64(n), Goroutines: 40 + n,
			Connections: 7 + n%3, Role: soak.Waiting}
		first, second, member := steady, steady, steady
		first.Pod, first.PID, first.Lasts = "lasting-0", 10, true
		second.Pod, second.PID, second.Lasts = "lasting-1", 11, true
		member.Pod, member.PID = "main-0", 12+int(at/time.Minute)
		look := soak.Look{Seconds: at.Seconds(), Sidecars: []soak.Sidecar{first, second, member},
			Leases: &soak.Leases{Running: 5, All: 5 + n%2}}
		if change != nil {
			change(at.Hours(), &look)
		}
		r.Looks = append(r.Looks, look)
	}
	return r
}

// grown has two more members. Each is away now and then, for as long as a pod takes to be replaced.
func grown(l *soak.Look) {
	for i, pod := range []string{"main-1", "main-2"} {
		if int(l.Seconds)%60/20 != i {
			more := l.Sidecars[2]
			more.Pod = pod
			l.Sidecars = append(l.Sidecars, more)
		}
	}
}

func TestOnlyWhatGoesOnGrowingGrows(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(hours float64, l *soak.Look)
		grows  []string
	}{
		{"nothing, while all is steady", nil, nil},
		{"memory that nobody gives back", func(h float64, l *soak.Look) { l.Sidecars[0].Anonymous += 10 * h },
			[]string{"anonymous memory of lasting-0"}},
		{"a heap that holds on to more and more", func(h float64, l *soak.Look) { l.Sidecars[1].Heap += 5 * h },
			[]string{"Go heap after a collection of lasting-1"}},
		{"not a heap with more garbage, which is collected", func(_ float64, l *soak.Look) {
			if l.Seconds > 3600 && int(l.Seconds)%60 > 5 {
				l.Sidecars[1].Heap += 10
			}
		}, nil},
		{"goroutines that never end", func(h float64, l *soak.Look) { l.Sidecars[0].Goroutines += int(20 * h) },
			[]string{"goroutines of lasting-0, waiting"}},
		{"connections that nobody closes", func(h float64, l *soak.Look) { l.Sidecars[0].Connections += int(10 * h) },
			[]string{"connections of lasting-0, waiting"}},
		{"leases that nobody revokes", func(h float64, l *soak.Look) { l.Leases.All += int(3*h) - 2 },
			[]string{"leases in etcd beyond one for each running sidecar of etcd"}},
		{"leases that nobody knows of", func(h float64, l *soak.Look) { l.Leases.Bare += int(8 * h) },
			[]string{"leases in etcd without a key of etcd"}},
		{"not leases of more sidecars", func(h float64, l *soak.Look) {
			l.Leases.All, l.Leases.Running = l.Leases.All+int(8*h), l.Leases.Running+int(8*h)
		}, nil},
		{"what every new sidecar needs more of",
			func(h float64, l *soak.Look) { l.Sidecars[2].Goroutines += int(20 * h) },
			[]string{"goroutines of " + soak.Pods + ", waiting"}},
		{"not what fills once and stays", func(h float64, l *soak.Look) {
			l.Sidecars[0].Anonymous += 30 * min(h, 0.4)
		}, nil},
		{"not who coordinates in the end, and has waited before", func(h float64, l *soak.Look) {
			if h > 1.2 && h < 1.9 {
				l.Sidecars[0].Role, l.Sidecars[0].Goroutines = soak.Coordinating, 80
			}
		}, nil},
		{"not who has the lock in the end, without anything to do", func(h float64, l *soak.Look) {
			if h > 1.2 && h < 1.9 {
				l.Sidecars[0].Role, l.Sidecars[0].Connections = soak.Owning, 14
			}
		}, nil},
		{"not a cluster that becomes larger, where there is more to ask", func(h float64, l *soak.Look) {
			if h > 0.85 {
				grown(l)
				l.Sidecars[0].Goroutines += 20
			}
		}, nil},
		{"goroutines that never end in a cluster that becomes larger", func(h float64, l *soak.Look) {
			if l.Sidecars[0].Goroutines += int(20 * h); h > 0.85 {
				grown(l)
			}
		}, []string{"goroutines of lasting-0, waiting (members: 3)"}},
		{"goroutines that every turn as coordinator leaves behind", func(h float64, l *soak.Look) {
			s := &l.Sidecars[0]
			s.Goroutines += int(20 * h)
			if int(h*10)%2 == 0 {
				s.Role = soak.Coordinating
				s.Goroutines += 40
			}
		}, []string{"goroutines of lasting-0, coordinating", "goroutines of lasting-0, waiting"}},
		{"not what was high once", func(h float64, l *soak.Look) {
			if h > 1.8 && h < 1.9 {
				l.Sidecars[0].Goroutines += 500
			}
		}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			trends, wrong := runOf(2*time.Hour, c.change).Judge()
			require.GreaterOrEqual(t, len(trends), 3*len(soak.Measures)+2)
			require.Len(t, wrong, len(c.grows), "%q", wrong)
			for i, grows := range c.grows {
				require.Contains(t, wrong[i], "growth: "+grows)
			}
		})
	}
}

func TestARunThatSaysNothingIsWrong(t *testing.T) {
	t.Run("because it was too short", func(t *testing.T) {
		_, wrong := runOf(soak.Least-time.Minute, nil).Judge()
		require.Len(t, wrong, 2*len(soak.Measures))
		require.Contains(t, wrong[0], "whether there is growth in anonymous memory of lasting-0: not seen for 20m0s")
	})
	t.Run("because no sidecar lasted", func(t *testing.T) {
		_, wrong := runOf(time.Hour, func(_ float64, l *soak.Look) { l.Sidecars = l.Sidecars[2:] }).Judge()
		require.Equal(t, []string{"no lasting sidecar was seen"}, wrong)
	})
	t.Run("because there were more leases than sidecars can have", func(t *testing.T) {
		_, wrong := runOf(time.Hour, func(h float64, l *soak.Look) {
			if h == 0.25 {
				l.Leases.All = 11
			}
		}).Judge()
		require.Equal(t, []string{"11 leases were in etcd after 0.2 h, and 5 sidecars ran: each has one, and its " +
			"predecessor may have left another"}, wrong)
		_, wrong = runOf(time.Hour, func(h float64, l *soak.Look) {
			if h == 0.25 {
				l.Leases.All, l.Leases.Running = 10, 2 // Some have just ended.
			}
		}).Judge()
		require.Empty(t, wrong)
	})
	t.Run("because one has ended that was to last", func(t *testing.T) {
		_, wrong := runOf(time.Hour, func(h float64, l *soak.Look) {
			if h > 0.5 {
				l.Sidecars[0].PID = 99
			}
		}).Judge()
		require.Equal(t, []string{"lasting-0 has ended and begun again: it has had 2 processes"}, wrong)
	})
}

func TestARunIsReadAsItWasWritten(t *testing.T) {
	run := runOf(time.Minute, nil)
	path := filepath.Join(t.TempDir(), "new", "soak.jsonl")
	file, err := soak.Create(path, soak.Run{Seed: run.Seed, Began: run.Began, Cluster: run.Cluster})
	require.NoError(t, err)
	run.Looks[3].Leases = nil
	for _, l := range run.Looks {
		require.NoError(t, file.Add(l))
	}
	require.NoError(t, file.Close(map[string]int{"Seeds": 2}))
	read, err := soak.Read(path)
	require.NoError(t, err)
	run.Chaos = []byte(`{"Seeds":2}`)
	require.Equal(t, run, read)

	text, err := os.ReadFile(path)
	require.NoError(t, err)
	var kept bytes.Buffer
	small := gzip.NewWriter(&kept)
	_, err = small.Write(text)
	require.NoError(t, errors.Join(err, small.Close()))
	require.NoError(t, os.WriteFile(path+".gz", kept.Bytes(), 0o644))
	read, err = soak.Read(path + ".gz")
	require.NoError(t, err)
	require.Equal(t, run, read, "compressed, as a published run is kept")
	lines := strings.SplitAfter(string(text), "\n")
	cut := strings.Join(lines[:5], "") + lines[5][:20]
	require.NoError(t, os.WriteFile(path, []byte(cut), 0o644))
	read, err = soak.Read(path)
	require.NoError(t, err, "it was interrupted while it wrote a line")
	require.Equal(t, run.Looks[:4], read.Looks)

	require.NoError(t, os.WriteFile(path, []byte(lines[0]+lines[1][:20]+"\n"+lines[2]), 0o644))
	_, err = soak.Read(path)
	require.ErrorContains(t, err, "line 2")
	require.NoError(t, os.WriteFile(path, []byte(lines[1]), 0o644))
	_, err = soak.Read(path)
	require.ErrorContains(t, err, "does not begin with the head of a run")
}
