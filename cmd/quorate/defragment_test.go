package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/record"
	"github.com/quorate/quorate/internal/report"
	"github.com/quorate/quorate/pkg/rollout"
)

// defragments plays a coordinator that answers a request with what it sees, and does what it is asked to do once the
// request names the cluster, unless the change keeps it from that.
func defragments(t *testing.T, change func(*report.Sight)) func(*world, rollout.Request) {
	return func(w *world, r rollout.Request) {
		w.settled(0, 1, 2)
		w.tells(t, time.Now(), func(s *report.Sight) {
			s.State.Request, s.State.Sidecars.Known = &r, true
			if r.Cluster != 0 {
				change(s)
			}
		})
		if r.Cluster == 0 {
			return
		}
		history, err := json.Marshal(report.History{
			{At: r.At.Add(-time.Hour), What: report.Defragmented, Pod: "etcd-main-9", Reason: "long ago"},
			{At: r.At.Add(time.Millisecond), What: report.Defragmented, Pod: "etcd-main-2", Reason: "away for 4s"},
		})
		if err != nil {
			t.Error(err)
		}
		w.control(report.HistoryAnnotation, string(history))
	}
}

func allDone(s *report.Sight) {
	s.State.Tries = map[uint64]rollout.Try{}
	for _, m := range s.State.Etcd.Members {
		s.State.Tries[m.ID] = rollout.Try{Done: true}
	}
}

func TestDefragmentAsksTheCoordinator(t *testing.T) {
	for _, tc := range []struct {
		name        string
		world       func(*world)
		coordinates func(*world, rollout.Request)
		args        string
		code        int
		says        []string
		silent      string
	}{
		{"and says what was done", complete, defragments(t, allDone), "--yes", 0, []string{
			"etcd-main-0: 3.9 MiB, in use 2.0 MiB, a defragmentation would free 2.0 MiB; quota 2.0 GiB (etcd's default",
			"Defragmented etcd-main-2: away for 4s", "Complete: no database has enough free space in it",
		}, "etcd-main-9"},
		{"and only shows the databases in a dry run", complete, defragments(t, allDone), "--dry-run", 0,
			[]string{"etcd-main-2: 3.9 MiB"}, "Defragmented"},
		{"and needs a word if there is no terminal", complete, defragments(t, allDone), "", 2, []string{"--yes"},
			"Defragmented"},
		{"and ends when it is out of time", complete, defragments(t, func(*report.Sight) {}), "--yes " +
			"--timeout=1500ms", 1,
			[]string{"Defragment etcd-main-", "--timeout: not done after 1.5s"}, ""},
		{"and ends when nobody answers", complete, nil, "--yes --timeout=300ms", 1,
			[]string{"--timeout: not done after 300ms"}, "MiB"},
		{"and not where nobody coordinates", foreign, nil, "--yes", 1, []string{"is RollingUpdate, not OnDelete"},
			"MiB"},
		{"and takes no negative time", complete, nil, "--timeout=-1s", 2, []string{"must not be negative"}, "MiB"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := &api{world: with(3, tc.world), coordinates: tc.coordinates}
			a.control("example.com/foreign", "stays")
			stdout, stderr, code := invoke(t, "quorate", answering(t, a), strings.Fields("defragment "+
				"etcd-main "+tc.args)...)
			if code != tc.code {
				t.Errorf("exit code %d", code)
			}
			for _, want := range tc.says {
				if !strings.Contains(stdout+stderr, want) {
					t.Errorf("%q is not in\n%s\n%s", want, stdout, stderr)
				}
			}
			if tc.silent != "" && strings.Contains(stdout, tc.silent) {
				t.Errorf("%q is in\n%s", tc.silent, stdout)
			}
			a.change(func(w *world) {
				if text, ok := w.lease.Annotations[record.RequestAnnotation]; ok {
					t.Errorf("the request still stands: %s", text)
				}
			})
		})
	}
}

func TestDefragmentEndsWhenTheCoordinatorRefuses(t *testing.T) {
	a := &api{world: with(3, complete), coordinates: defragments(t, func(s *report.Sight) {
		s.State.Tries = map[uint64]rollout.Try{}
		for _, m := range s.State.Etcd.Members {
			s.State.Tries[m.ID] = rollout.Try{Failed: 2, Words: "no space left on device"}
		}
	})}
	a.control("example.com/foreign", "stays")
	_, stderr, code := invoke(t, "quorate", answering(t, a), "defragment", "etcd-main", "--yes", "--timeout=20s")
	if code != exitFailure || !strings.Contains(stderr, "refused (DefragmentFails)") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
}
