package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate/quorate/internal/membership"
	"github.com/quorate/quorate/internal/record"
	"github.com/quorate/quorate/internal/report"
	"github.com/quorate/quorate/internal/rollout"
	"github.com/quorate/quorate/internal/workload"
)

// outside is what is seen of a world at a time.
func (w *world) outside(t testing.TB, at time.Time, asked bool) report.Outside {
	t.Helper()
	dump := &workload.Dump{StatefulSets: []appsv1.StatefulSet{*w.set}}
	for _, p := range w.pods {
		dump.Pods = append(dump.Pods, *p)
	}
	if w.lease != nil {
		dump.Leases = append(dump.Leases, *w.lease)
	}
	var etcd rollout.Membership
	if asked {
		var d membership.Dump
		d.MemberList, d.EndpointStatus, d.EndpointHealth = w.etcd(t)
		var err error
		if etcd, err = d.Membership(); err != nil {
			t.Fatal(err)
		}
	}
	o, err := outside(dump, w.set, workload.DefaultNames(), etcd, at)
	if err != nil {
		t.Fatal(err)
	}
	o.Asked, o.Policy = asked, rollout.DefaultPolicy()
	return o
}

// tells lets a coordinator decide on the world as it is, and write that to the Lease.
func (w *world) tells(t testing.TB, at time.Time, changes ...func(*report.Sight)) {
	t.Helper()
	seen := w.outside(t, now, true)
	policy := rollout.DefaultPolicy()
	s := report.Sight{
		Namespace: "garden", StatefulSet: "etcd-main", At: at, State: seen.State,
		Policy: &policy, Coordinator: "etcd-main-1", Epoch: 4,
	}
	s.State.Self = s.Coordinator
	for _, change := range changes {
		change(&s)
	}
	s.Decision = rollout.Decide(s.State, policy)
	r := report.New(s, report.Report{})
	r.Since, r.Started = at.Add(-3*time.Minute), at.Add(-5*time.Minute)
	for i := range r.Members {
		r.Members[i].Since = at.Add(-4 * time.Minute)
	}
	holder, underWay := "etcd-main-1_uid", "under way"
	if s.Decision.Action.Name() == rollout.ActionComplete {
		r.Started, r.Ended, holder, underWay = time.Time{}, r.Since, "", "none"
	}
	w.control("quorate.dev/rollout", underWay)
	w.lease.Annotations[record.SchemaAnnotation] = "1"
	w.lease.Annotations[record.IntentAnnotation] = `{"operation":"none"}`
	epoch, seconds := int32(4), int32(15)
	w.lease.Spec = coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseTransitions: &epoch,
		LeaseDurationSeconds: &seconds, RenewTime: &metav1.MicroTime{Time: at}}
	h := report.History{{At: at.Add(-5 * time.Minute), What: report.Removed, Pod: "etcd-main-2", Rule: "Serving",
		Revision: newRevision, By: "etcd-main-1", Epoch: 4, Reason: "its member serves"}}
	for key, value := range report.Notes(r, h) {
		w.lease.Annotations[key] = value
	}
}

// held: its coordinator has not given the record back yet.
func (w *world) held() {
	holder := "etcd-main-1_uid"
	w.lease.Spec.HolderIdentity = &holder
}

// second is a rollout whose first pod has settled, and whose second is coming up.
func second(w *world) {
	w.settled(2)
	w.updated(1, 20*time.Second)
	w.stopped(1, 20*time.Second, "PodInitializing")
}

// broken is a rollout whose first pod crashes at every start.
func broken(w *world) {
	w.updated(2, 10*time.Minute)
	w.stopped(2, 9*time.Minute, "CrashLoopBackOff")
}

var statusSituations = []struct {
	name  string
	want  string // action, guard, whose word
	asked bool
	make  func(testing.TB) *world
}{
	{"a coordinator tells", "Wait UpdatedPending coordinator", false, func(t testing.TB) *world {
		w := with(3, second)()
		w.tells(t, now.Add(-3*time.Second))
		return w
	}},
	{"a coordinator tells of a broken revision", "Hold UpdatedFailing coordinator", false, func(t testing.TB) *world {
		w := with(3, broken)()
		w.tells(t, now.Add(-3*time.Second))
		return w
	}},
	{"a coordinator that has fallen silent is not believed", "Wait - kubernetes", false, func(t testing.TB) *world {
		w := with(3, broken)()
		w.tells(t, now.Add(-12*time.Minute))
		return w
	}},
	{"a coordinator that has not seen the newest revision yet is not believed", "Wait - kubernetes", false,
		func(t testing.TB) *world {
			w := with(3, broken)()
			w.tells(t, now.Add(-3*time.Second))
			w.set.Status.UpdateRevision = "etcd-main-66b7c5d9f4"
			return w
		}},
	{"outdated pods and nobody who has taken that up", "Wait - kubernetes", false,
		func(testing.TB) *world { return with(3, func(*world) {})() }},
	{"a pause that the coordinator has not seen yet", "Hold Paused coordinator", false, func(t testing.TB) *world {
		w := with(3, second)()
		w.tells(t, now.Add(-3*time.Second))
		w.control("quorate.dev/paused", "true")
		return w
	}},
	{"a resumption that the coordinator has not seen yet", "Wait - kubernetes", false, func(t testing.TB) *world {
		w := with(3, func(w *world) {
			second(w)
			w.control("quorate.dev/paused", "true")
		})()
		w.tells(t, now.Add(-3*time.Second))
		delete(w.lease.Annotations, "quorate.dev/paused")
		return w
	}},
	{"a bad control that the coordinator has not seen mended yet", "Wait - kubernetes", false,
		func(t testing.TB) *world {
			w := with(3, func(w *world) {
				second(w)
				w.control("quorate.dev/paused", "yes")
			})()
			w.tells(t, now.Add(-3*time.Second))
			delete(w.lease.Annotations, "quorate.dev/paused")
			return w
		}},
	{"complete below a partition that has been lifted since", "Wait - kubernetes", false, func(t testing.TB) *world {
		w := with(3, func(w *world) {
			w.settled(2)
			w.control("quorate.dev/partition", "2")
		})()
		w.tells(t, now.Add(-3*time.Second))
		w.held()
		delete(w.lease.Annotations, "quorate.dev/partition")
		return w
	}},
	{"complete, by who holds the record still, and a pod has gone since", "Wait Terminating kubernetes", false,
		func(t testing.TB) *world {
			w := with(3, func(w *world) { w.settled(0, 1, 2) })()
			w.tells(t, now.Add(-3*time.Second))
			w.held()
			w.removePod(1)
			return w
		}},
	{"complete, by who holds the record still", "Complete - coordinator", false, func(t testing.TB) *world {
		w := with(3, func(w *world) { w.settled(0, 1, 2) })()
		w.tells(t, now.Add(-3*time.Second))
		w.held()
		return w
	}},
	{"every control, two of them bad, and nobody who coordinates", "Hold BadControl kubernetes", false,
		func(testing.TB) *world {
			return with(3, func(w *world) {
				w.control("quorate.dev/paused", "yes")
				w.control("quorate.dev/partition", "1")
				w.control("quorate.dev/max-unavailable", "half")
				w.control("quorate.dev/override-guards", "QuorumFloor,Canary")
			})()
		}},
	{"an override is loud", "Remove - coordinator", false, func(t testing.TB) *world {
		w := with(3, func(w *world) {
			w.updated(2, 10*time.Minute)
			w.sick(2)
			w.control("quorate.dev/max-unavailable", "2")
			w.control("quorate.dev/override-guards", "UpdatedFailing,UnavailableBudget,Canary,EndpointFloor")
		})()
		w.tells(t, now.Add(-3*time.Second))
		return w
	}},
	{"quorum is lost and the coordinator has no lock", "Wait QuorumPatience coordinator", false,
		func(t testing.TB) *world {
			w := with(3, func(w *world) { w.quorumLost(2 * time.Minute) })()
			w.tells(t, now.Add(-3*time.Second), func(s *report.Sight) { s.Fallback = true })
			return w
		}},
	{"a host that tells of its backups", "Hold HostGates coordinator", false, func(t testing.TB) *world {
		w := with(3, func(*world) {})()
		w.tells(t, now.Add(-3*time.Second), func(s *report.Sight) {
			s.State.Gates = []rollout.Gate{{Name: report.GateBackup, Detail: "the last full snapshot failed at 14:50"}}
		})
		return w
	}},
	{"complete since yesterday", "Complete - kubernetes", false, func(t testing.TB) *world {
		w := with(3, func(w *world) { w.settled(0, 1, 2) })()
		w.tells(t, now.Add(-day))
		return w
	}},
	{"complete a moment ago", "Complete - coordinator", false, func(t testing.TB) *world {
		w := with(3, func(w *world) { w.settled(0, 1, 2) })()
		w.tells(t, now.Add(-3*time.Second))
		return w
	}},
	{"complete a moment ago, and a pod has gone since", "Wait Terminating kubernetes", false,
		func(t testing.TB) *world {
			w := with(3, func(w *world) { w.settled(0, 1, 2) })()
			w.tells(t, now.Add(-3*time.Second))
			w.removePod(1)
			return w
		}},
	{"complete without a Lease", "Complete - kubernetes", false, func(testing.TB) *world {
		return with(3, func(w *world) { w.settled(0, 1, 2) })()
	}},
	{"up to date and Ready, but its coordinator fell silent before the end", "Wait - kubernetes", false,
		func(t testing.TB) *world {
			w := with(3, second)()
			w.tells(t, now.Add(-12*time.Minute))
			w.pods[0], w.pods[1] = newPod(0), newPod(1)
			w.settled(0, 1)
			return w
		}},
	{"outdated again after the last rollout was complete", "Wait - kubernetes", false, func(t testing.TB) *world {
		w := with(3, func(w *world) { w.settled(0, 1, 2) })()
		w.tells(t, now.Add(-day))
		w.set.Status.UpdateRevision = "etcd-main-66b7c5d9f4"
		return w
	}},
	{"a pod that is missing, without a word", "Wait Terminating kubernetes", false, func(testing.TB) *world {
		return with(3, func(w *world) {
			w.settled(0, 1, 2)
			w.removePod(1)
		})()
	}},
	{"a pod that is up to date and not Ready for long enough", "Wait UpdatedPending kubernetes", false,
		func(testing.TB) *world {
			return with(3, func(w *world) {
				w.settled(0, 1)
				w.updated(2, 20*time.Second)
				w.set.Spec.MinReadySeconds = 60
			})()
		}},
	{"a template that was not observed yet is never complete", "Wait StaleRevision kubernetes", false,
		func(t testing.TB) *world {
			w := with(3, func(w *world) { w.settled(0, 1, 2) })()
			w.tells(t, now.Add(-day))
			w.set.Generation++
			return w
		}},
	{"below a partition pods may stay behind", "Complete - kubernetes", false, func(testing.TB) *world {
		return with(3, func(w *world) {
			w.settled(2)
			w.control("quorate.dev/partition", "2")
		})()
	}},
	{"the StatefulSet controller rolls", "Idle - kubernetes", false, func(testing.TB) *world {
		return with(3,
			func(w *world) { w.set.Spec.UpdateStrategy.Type = appsv1.RollingUpdateStatefulSetStrategyType })()
	}},
	{"etcd is asked, and the time is the coordinator's", "Hold UpdatedFailing own", true, func(t testing.TB) *world {
		w := with(3, broken)()
		w.tells(t, now.Add(-3*time.Second))
		return w
	}},
	{"etcd is asked, and the coordinator's memory counts", "Wait DisruptionBudget own", true,
		func(t testing.TB) *world {
			w := with(3, func(*world) {})()
			w.tells(t, now.Add(-3*time.Second), evictionsRefused)
			return w
		}},
	{"etcd is asked, and the last word is too old to count", "Remove - own", true, func(t testing.TB) *world {
		w := with(3, func(*world) {})()
		w.tells(t, now.Add(-12*time.Minute), evictionsRefused)
		return w
	}},
	{"etcd is asked in vain, and the coordinator tells", "Hold UpdatedFailing coordinator", true,
		func(t testing.TB) *world {
			w := with(3, broken)()
			w.tells(t, now.Add(-3*time.Second))
			w.members = nil
			return w
		}},
}

// evictionsRefused: a PodDisruptionBudget refuses every eviction.
func evictionsRefused(s *report.Sight) {
	s.Policy.Removal = rollout.RemoveByEviction
	s.State.RefusedEviction = rollout.Refusal{Words: "Cannot evict pod as it would violate the pod's disruption " +
		"budget."}
}

// wholeStatus are the situations whose report is kept in YAML too, as a record of the format.
// Of the others DEP-01's part is kept; the table shows the report.
var wholeStatus = []string{
	"an override is loud", "complete since yesterday", "etcd is asked, and the coordinator's memory counts",
}

func TestStatusOfEverySituation(t *testing.T) {
	base := emptied(t, filepath.Join("testdata", "status"))
	for _, tc := range statusSituations {
		t.Run(tc.name, func(t *testing.T) {
			w := tc.make(t)
			seen := w.outside(t, now, tc.asked && len(w.members) > 0)
			seen.Asked = tc.asked
			if m := seen.Last.Memory; m != nil && seen.Last.Fresh(now, seen.Lease) {
				seen.Policy = m.Policy
			}
			s := report.Look(seen)
			if got := fmt.Sprint(s.Action, " ", cmp.Or(s.Guard, "-"), " ", s.Word); got != tc.want {
				t.Errorf("says %q, want %q", got, tc.want)
			}
			var table, dep01 bytes.Buffer
			if err := s.Table(&table, false); err != nil {
				t.Fatal(err)
			}
			var dep01Only struct {
				report.EtcdStatus
				Rollout struct{} `json:"rollout,omitzero"`
			}
			dep01Only.EtcdStatus = s.Etcd()
			var kept any = dep01Only
			if slices.Contains(wholeStatus, tc.name) {
				kept = s.Etcd()
			}
			if err := encode(&dep01, "yaml", kept); err != nil {
				t.Fatal(err)
			}
			// Modules permit no apostrophe in a file's name.
			stem := filepath.Join(base, strings.NewReplacer(" ", "-", ",", "", "'", "").Replace(tc.name))
			expect(t, stem+".txt", table.String())
			expect(t, stem+".yaml", dep01.String())
		})
	}
}

// What only a coordinator could know is never said on Kubernetes' word.
func TestKubernetesKnowsNothingOfEtcd(t *testing.T) {
	for _, tc := range statusSituations {
		s := report.Look(tc.make(t).outside(t, now, false))
		if s.Word != report.KubernetesWord {
			continue
		}
		for _, m := range s.Members {
			if m.Member+m.ID+m.Role+m.Evidence != "" || m.Lag != nil || m.Voter || !m.Since.IsZero() {
				t.Errorf("%s: %+v", tc.name, m)
			}
		}
		if s.Voters+s.Serving+s.Quorum != 0 {
			t.Errorf("%s: %d voters, %d serving, quorum %d", tc.name, s.Voters, s.Serving, s.Quorum)
		}
		for _, c := range s.Etcd().Conditions[:2] {
			if c.Status != metav1.ConditionUnknown || c.Reason != report.ReasonNotAsked {
				t.Errorf("%s: %+v", tc.name, c)
			}
		}
		text, err := json.Marshal(s.Etcd())
		if err != nil || strings.Contains(string(text), "0001-01-01") {
			t.Errorf("%s: a time that is none: %v %s", tc.name, err, text)
		}
	}
}
