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

// haunted is a world whose coordinator has told of ghosts.
func haunted(t *testing.T, ghosts ...string) *world {
	t.Helper()
	w := told(t, complete)
	r, h, err := report.FromNotes(w.lease.Annotations)
	if err != nil {
		t.Fatal(err)
	}
	for i, name := range ghosts {
		r.Ghosts = append(r.Ghosts, report.Ghost{Member: name, ID: hexOf(memberID(3 + i)), Cluster: "c1", Pod: name,
			Since: time.Now().Add(-20 * time.Minute), Costs: "5 voters need a quorum of 3, and without it 4 need 3",
			Do: "If it is gone for good: `quorate remove-member etcd-main " + name + "`."})
	}
	for key, value := range report.Notes(r, h) {
		w.control(key, value)
	}
	return w
}

// requested is the request that is written, nil if it is taken off.
func requested(t *testing.T, annotations map[string]*string) *rollout.Request {
	t.Helper()
	text := annotations[record.RequestAnnotation]
	if text == nil {
		return nil
	}
	var r rollout.Request
	if err := json.Unmarshal([]byte(*text), &r); err != nil {
		t.Fatal(err)
	}
	return &r
}

// coordinates answers requests as a coordinator does.
func coordinates(t *testing.T, answer func(w *world, q *rollout.Request, r *report.Report, h *report.History)) func(*world,
	map[string]*string) {
	return func(w *world, annotations map[string]*string) {
		q := requested(t, annotations)
		if q == nil {
			return
		}
		r, h, err := report.FromNotes(w.lease.Annotations)
		if err != nil {
			t.Error(err)
		}
		r.Asked = q
		answer(w, q, &r, &h)
		for key, value := range report.Notes(r, h) {
			w.control(key, value)
		}
	}
}

func removes(w *world, q *rollout.Request, r *report.Report, h *report.History) {
	delete(w.lease.Annotations, record.RequestAnnotation)
	r.Ghosts = r.Ghosts[1:]
	*h = h.Add(report.Entry{At: time.Now(), What: report.MemberRemoved, Pod: q.Name, By: "etcd-main-1"})
}

func holds(action rollout.ActionName, guard rollout.Guard) func(*world, *rollout.Request, *report.Report, *report.History) {
	return func(_ *world, _ *rollout.Request, r *report.Report, _ *report.History) {
		r.Others = []report.Work{{Duty: rollout.DutyGhosts, Action: action, Guard: guard,
			Rule: rollout.RuleRemoveGhost, Reason: "etcd-main-3 is not removed: it serves", Do: "Leave it alone."}}
	}
}

func TestRemoveMember(t *testing.T) {
	const three = "etcd-main-3"
	for _, tc := range []struct {
		name    string
		make    func(t *testing.T) *world
		answer  func(*world, *rollout.Request, *report.Report, *report.History)
		args    []string
		code    int
		says    []string
		written int
	}{
		{"one by its name", func(t *testing.T) *world { return haunted(t, three, "etcd-main-4") }, removes,
			[]string{three}, 0, []string{"5 voters need a quorum of 3", three + ": removed from etcd's member list"}, 1},
		{"one by its ID", func(t *testing.T) *world { return haunted(t, three) }, removes,
			[]string{hexOf(memberID(3))}, 0, []string{three + ": removed from etcd's member list"}, 1},
		{"all of them, one after the other", func(t *testing.T) *world { return haunted(t, three, "etcd-main-4") }, removes,
			[]string{"--all-ghosts"}, 0, []string{three + ": removed", "etcd-main-4: removed"}, 2},
		{"what is only looked at", func(t *testing.T) *world { return haunted(t, three) }, nil,
			[]string{"--all-ghosts", "--dry-run"}, 0, []string{"has not answered for 20m"}, 0},
		{"what the coordinator refuses, and the request is taken back", func(t *testing.T) *world { return haunted(t, three) },
			holds(rollout.ActionHold, rollout.GuardNoGhost), []string{three}, 1,
			[]string{"refused (NoGhost): etcd-main-3 is not removed: it serves. What to do: Leave it alone."}, 2},
		{"what is taken off without a word", func(t *testing.T) *world { return haunted(t, three) },
			func(w *world, _ *rollout.Request, _ *report.Report, _ *report.History) {
				delete(w.lease.Annotations, record.RequestAnnotation)
			}, []string{three}, 1, []string{"is not on the Lease any more, and was not carried out"}, 1},
		{"what etcd refuses", func(t *testing.T) *world { return haunted(t, three) },
			func(w *world, q *rollout.Request, r *report.Report, h *report.History) {
				holds(rollout.ActionWait, "")(w, q, r, h)
				r.Faults = []string{"the member was not removed: grant its user the role root"}
				delete(w.lease.Annotations, record.RequestAnnotation)
			}, []string{three}, 1, []string{"it serves; the member was not removed: grant its user the role root"}, 1},
		{"what becomes a suspect", func(t *testing.T) *world { return haunted(t, three) },
			func(w *world, q *rollout.Request, _ *report.Report, h *report.History) {
				delete(w.lease.Annotations, record.RequestAnnotation)
				*h = h.Add(report.Entry{At: time.Now(), What: report.MemberSuspected, Pod: q.Name, Reason: "it may still happen"})
			}, []string{three}, 1, []string{"it may still happen"}, 1},
		{"what is no ghost", func(t *testing.T) *world { return haunted(t, three) }, nil, []string{"etcd-main-2"}, 1,
			[]string{`"etcd-main-2" is not known to be a ghost; ghosts are: etcd-main-3`}, 0},
		{"where there is no ghost", func(t *testing.T) *world { return haunted(t) }, nil, []string{"--all-ghosts"}, 1,
			[]string{"no ghost is known"}, 0},
		{"where nobody coordinates", quiet(foreign), nil, []string{"--all-ghosts"}, 1, []string{"not OnDelete"}, 0},
		{"where there is no suspect", func(t *testing.T) *world { return haunted(t, three) }, nil, []string{"--forget", three},
			1, []string{"there is no suspect on the Lease"}, 0},
		{"the suspect, which is relied on again", func(t *testing.T) *world {
			w := haunted(t, three)
			w.control(record.IntentAnnotation,
				`{"operation":"none","suspect":{"id":"7","name":"etcd-main-3","cluster":"193"}}`)
			return w
		}, func(w *world, q *rollout.Request, _ *report.Report, _ *report.History) {
			if q.Operation == rollout.RequestForgetMember && q.Member == 7 && q.Cluster == 193 {
				w.control(record.IntentAnnotation, `{"operation":"none"}`)
				delete(w.lease.Annotations, record.RequestAnnotation)
			}
		}, []string{"--forget", three}, 0, []string{three + ": no longer a suspect"}, 1},
		{"another one than the suspect", func(t *testing.T) *world {
			w := haunted(t, three)
			w.control(record.IntentAnnotation,
				`{"operation":"none","suspect":{"id":"7","name":"etcd-main-3","cluster":"193"}}`)
			return w
		}, nil, []string{"--forget", "etcd-main-4"}, 1, []string{"the suspect is etcd-main-3 (ID 7)"}, 0},
		{"nothing is bad input", quiet(complete), nil, nil, 2, []string{"name the members"}, 0},
		{"both are bad input", quiet(complete), nil, []string{three, "--all-ghosts"}, 2, []string{"one of them"}, 0},
		{"nobody can look all the time", quiet(complete), nil, []string{three, "--every=1ms"}, 2,
			[]string{"--every: 1ms: must be at least 100ms"}, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := &api{world: tc.make(t)}
			if tc.answer != nil {
				a.patched = coordinates(t, tc.answer)
			}
			args := append([]string{"remove-member", "--every=100ms", "etcd-main"}, tc.args...)
			out, errs, code := invoke(t, "quorate", answering(t, a), args...)
			for _, says := range tc.says {
				if !strings.Contains(out+errs, says) {
					t.Errorf("it does not say %q:\n%s%s", says, out, errs)
				}
			}
			if n := len(a.written()); code != tc.code || n != tc.written {
				t.Errorf("exit code %d, %d writes\n%s%s", code, n, out, errs)
			}
		})
	}
}

func TestTheStatefulSetComesBeforeItsMembers(t *testing.T) {
	out, errs, code := invoke(t, "quorate", apiServer(t, haunted(t, "etcd-main-3")), "remove-member", "etcd-main-3")
	if code != 2 || !strings.Contains(errs, "name the members of the StatefulSet etcd-main-3, or give --all-ghosts, or "+
		"--forget; if etcd-main-3 is a member, put its StatefulSet first") {
		t.Errorf("%d\n%s%s", code, out, errs)
	}
}

func TestTheStatusTellsOfGhostsFromTheLease(t *testing.T) {
	out, _, code := invoke(t, "quorate", apiServer(t, haunted(t, "etcd-main-3")), "status", "etcd-main")
	if code != 0 || !strings.Contains(out, "GHOST        etcd-main-3 has no pod and has not answered for 20m; 5 voters need a "+
		"quorum of 3, and without it 4 need 3. If it is gone for good: 'quorate remove-member etcd-main etcd-main-3'.") {
		t.Errorf("%d\n%s", code, out)
	}
}
