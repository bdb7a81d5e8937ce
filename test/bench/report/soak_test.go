package report

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorate/quorate/test/chaos/soak"
)

// soaked is a run of an hour in which the second sidecar leaks so many goroutines in all.
func soaked(began time.Time, leaks float64) *soak.Run {
	r := &soak.Run{Began: began, Cluster: "seed 1: 3 members"}
	for at := 0.0; at <= time.Hour.Seconds(); at += 30 {
		r.Looks = append(r.Looks, soak.Look{Seconds: at, Sidecars: []soak.Sidecar{
			{Pod: "lasting-0", PID: 1, Lasts: true, Role: soak.Waiting, Anonymous: 20.25, Heap: 5, Goroutines: 60,
				Connections: 9},
			{Pod: "lasting-1", PID: 2, Lasts: true, Role: soak.Waiting, Anonymous: 18, Heap: 4,
				Goroutines: 40 + int(leaks*at/time.Hour.Seconds()), Connections: 6},
			{Pod: "main-0", PID: 3, Role: soak.Waiting, Anonymous: 15, Heap: 4, Goroutines: 30, Connections: 6},
		}, Leases: &soak.Leases{Running: 5, All: 5}})
	}
	return r
}

func TestThePageOfSoaksSaysWhatGrew(t *testing.T) {
	first := time.Date(2026, 11, 23, 22, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		name  string
		leaks float64
		wrong []string
		says  []string
	}{
		{"nothing", 0, nil, []string{
			"from 2 runs of `make soak`, on 2026-11-23 to 2026-11-24",
			"**Nothing grew in 2.0 hours of chaos.**",
			"| 1 | anonymous memory, MiB | lasting-0 | 1 | 20.2 | 20.2 | 24.3 | 20.2 | no |",
			"| 2 | leases in etcd without a key | etcd | 1 | 0 | 0 | 2 | 0 | no |",
			"| 2 | 2026-11-24 00:00:00 | 1 | seed 1: 3 members |",
			"violations  0",
		}},
		{"goroutines", 40, []string{"run 2: growth: goroutines of lasting-1, waiting (members: 1): 54.5 in the " +
			"second quarter of 1.0 h, 75.0 in the last (at most 65.0)"}, []string{
			"In 2.0 hours of chaos, this was wrong:**\n\n* run 2: growth: goroutines of lasting-1, waiting",
			"| 2 | goroutines | lasting-1, waiting (members: 1) | 1 | 54.5 | 75 | 65.0 | 80 | **yes** |",
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "page.md")
			wrong, err := WriteSoak(path, []*soak.Run{soaked(first, 0), soaked(first.Add(2*time.Hour), c.leaks)},
				"violations  0\n")
			require.NoError(t, err)
			require.Equal(t, c.wrong, wrong)
			page, err := os.ReadFile(path)
			require.NoError(t, err)
			for _, text := range c.says {
				require.Contains(t, string(page), text)
			}
		})
	}
}
