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

	"github.com/quorate/quorate/internal/record"
	"github.com/quorate/quorate/internal/report"
	"github.com/quorate/quorate/internal/workload"
	"github.com/quorate/quorate/membership"
	"github.com/quorate/quorate/pkg/rollout"
)

// outside is what is seen of a world at a time.
func (w *world) outside(t testing.TB, at time.Time, asked bool) report.Outside {
	t.Helper()
	dump := &workload.Dump{StatefulSets: []appsv1.StatefulSet{*w.set}}
	for _, p := range w.pods {
		dump.Pods = append(dump.Pods, *p)
	}
	for _, e := range w.events {
		dump.Events = append(dump.Events, *e)
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
	w.lease.Spec = coordinationv1.LeaseSpec{
		HolderIdentity: &holder, LeaseTransitions: &epoch, LeaseDurationSeconds: &seconds,
		RenewTime: &metav1.MicroTime{Time: at},
	}
	h := report.History{{
		At: at.Add(-5 * time.Minute), What: report.Removed, Pod: "etcd-main-2", Rule: "Serving",
		Revision: newRevision, By: "etcd-main-1", Epoch: 4, Reason: "its member serves",
	}}
	for key, value := range report.Notes(r, h) {
		w.lease.Annotations[key] = value
	}
}

// claims: somebody claimed the record so long ago, and has reported nothing since.
func (w *world) claims(ago time.Duration) {
	*w.lease.Spec.LeaseTransitions++
	w.lease.Spec.RenewTime = &metav1.MicroTime{Time: now.Add(-ago)}
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

// justNow is how long ago somebody has told who tells.
const justNow = 3 * time.Second

func resumed(w *world) { delete(w.lease.Annotations, "quorate.dev/paused") }

func outdatedAgain(w *world) { w.set.Status.UpdateRevision = "etcd-main-66b7c5d9f4" }

var statusSituations = []struct {
	name string
	want string // action, guard, whose word
	// change makes the world. Its coordinator has told of that so long ago, or never: 0.
	change func(*world)
	ago    time.Duration
	// sight is what only the coordinator sees, and then what has changed since it told.
	sight func(*report.Sight)
	then  func(*world)
	asked bool
}{
	{name: "a coordinator tells", want: "Wait UpdatedPending coordinator", change: second, ago: justNow},
	{
		name: "a coordinator tells of a broken revision", want: "Hold UpdatedFailing coordinator",
		change: broken, ago: justNow,
	},
	{
		name: "a coordinator that has fallen silent is not believed", want: "Wait - kubernetes",
		change: broken, ago: 12 * time.Minute,
	},
	{
		name: "a coordinator that has just claimed the record is not called silent", want: "Wait - kubernetes",
		change: broken, ago: 12 * time.Minute, then: func(w *world) { w.claims(justNow) },
	},
	{
		name: "one that claimed the record long ago, and never reported, is", want: "Wait - kubernetes",
		change: broken, ago: 12 * time.Minute, then: func(w *world) { w.claims(11 * time.Minute) },
	},
	{
		name: "a coordinator that has not seen the newest revision yet is not believed", want: "Wait - kubernetes",
		change: broken, ago: justNow, then: outdatedAgain,
	},
	{name: "outdated pods and nobody who has taken that up", want: "Wait - kubernetes", change: healthy},
	{
		name: "a pause that the coordinator has not seen yet", want: "Hold Paused coordinator",
		change: second, ago: justNow, then: func(w *world) { w.control("quorate.dev/paused", "true") },
	},
	{
		name: "a resumption that the coordinator has not seen yet", want: "Wait - kubernetes",
		change: func(w *world) {
			second(w)
			w.control("quorate.dev/paused", "true")
		},
		ago: justNow, then: resumed,
	},
	{
		name: "a bad control that the coordinator has not seen mended yet", want: "Wait - kubernetes",
		change: func(w *world) {
			second(w)
			w.control("quorate.dev/paused", "yes")
		},
		ago: justNow, then: resumed,
	},
	{
		name: "complete below a partition that has been lifted since", want: "Wait - kubernetes",
		change: partitioned, ago: justNow,
		then: func(w *world) {
			w.held()
			delete(w.lease.Annotations, "quorate.dev/partition")
		},
	},
	{
		name: "complete, by who holds the record still, and a pod has gone since", want: "Wait Terminating kubernetes",
		change: complete, ago: justNow,
		then: func(w *world) {
			w.held()
			w.removePod(1)
		},
	},
	{
		name: "complete, by who holds the record still", want: "Complete - coordinator",
		change: complete, ago: justNow, then: (*world).held,
	},
	{
		name: "every control, two of them bad, and nobody who coordinates", want: "Hold BadControl kubernetes",
		change: func(w *world) {
			w.control("quorate.dev/paused", "yes")
			w.control("quorate.dev/partition", "1")
			w.control("quorate.dev/max-unavailable", "half")
			w.control("quorate.dev/override-guards", "QuorumFloor,Canary")
		},
	},
	{
		name: "an override is loud", want: "Remove - coordinator",
		change: func(w *world) {
			w.updated(2, 10*time.Minute)
			w.sick(2)
			w.control("quorate.dev/max-unavailable", "2")
			w.control("quorate.dev/override-guards", "UpdatedFailing,UnavailableBudget,Canary,EndpointFloor")
			w.control("quorate.dev/override-until", "2026-01-02T15:34:05Z")
			w.control("quorate.dev/override-by", "alice")
			w.control("quorate.dev/override-reason", "the volume of etcd-main-2 is lost")
		},
		ago: justNow,
	},
	{
		name: "quorum is lost and the coordinator has no lock", want: "Wait QuorumPatience coordinator",
		change: func(w *world) { w.quorumLost(2 * time.Minute) },
		ago:    justNow, sight: func(s *report.Sight) { s.Fallback = true },
	},
	{
		name: "a host that tells of its backups", want: "Hold HostGates coordinator", change: healthy, ago: justNow,
		sight: func(s *report.Sight) {
			s.State.Gates = []rollout.Gate{{Name: report.GateBackup, Detail: "the last full snapshot failed at 14:50"}}
		},
	},
	{name: "complete since yesterday", want: "Complete - kubernetes", change: complete, ago: day},
	{name: "complete a moment ago", want: "Complete - coordinator", change: complete, ago: justNow},
	{
		name: "complete a moment ago, and a pod has gone since", want: "Wait Terminating kubernetes",
		change: complete, ago: justNow, then: func(w *world) { w.removePod(1) },
	},
	{name: "complete without a Lease", want: "Complete - kubernetes", change: complete},
	{
		name: "up to date and Ready, but its coordinator fell silent before the end", want: "Wait - kubernetes",
		change: second, ago: 12 * time.Minute,
		then: func(w *world) {
			w.pods[0], w.pods[1] = newPod(0), newPod(1)
			w.settled(0, 1)
		},
	},
	{
		name: "outdated again after the last rollout was complete", want: "Wait - kubernetes",
		change: complete, ago: day, then: outdatedAgain,
	},
	{
		name: "a pod that is missing, without a word", want: "Wait Terminating kubernetes",
		change: func(w *world) {
			complete(w)
			w.removePod(1)
		},
	},
	{
		name: "a pod that is up to date and not Ready for long enough", want: "Wait UpdatedPending kubernetes",
		change: func(w *world) {
			w.settled(0, 1)
			w.updated(2, 20*time.Second)
			w.set.Spec.MinReadySeconds = 60
		},
	},
	{
		name: "a template that was not observed yet is never complete", want: "Wait StaleRevision kubernetes",
		change: complete, ago: day, then: func(w *world) { w.set.Generation++ },
	},
	{name: "below a partition pods may stay behind", want: "Complete - kubernetes", change: partitioned},
	{name: "the StatefulSet controller rolls", want: "Idle - kubernetes", change: foreign},
	{
		name: "etcd is asked, and the time is the coordinator's", want: "Hold UpdatedFailing own",
		change: broken, ago: justNow, asked: true,
	},
	{
		name: "etcd is asked, and the coordinator's memory counts", want: "Wait DisruptionBudget own",
		change: healthy, ago: justNow, sight: evictionsRefused, asked: true,
	},
	{
		name: "etcd is asked, and the last word is too old to count", want: "Remove - own",
		change: healthy, ago: 12 * time.Minute, sight: evictionsRefused, asked: true,
	},
	{
		name: "etcd is asked in vain, and the coordinator tells", want: "Hold UpdatedFailing coordinator",
		change: broken, ago: justNow, then: func(w *world) { w.members = nil }, asked: true,
	},
}

// statusSituation is the world of a situation above.
func statusSituation(t testing.TB, i int) *world {
	t.Helper()
	s := &statusSituations[i]
	w := with(3, s.change)
	if s.ago > 0 {
		var changes []func(*report.Sight)
		if s.sight != nil {
			changes = append(changes, s.sight)
		}
		w.tells(t, now.Add(-s.ago), changes...)
	}
	if s.then != nil {
		s.then(w)
	}
	return w
}

// partitioned: all that is at or above the partition is up to date.
func partitioned(w *world) {
	w.settled(2)
	w.control("quorate.dev/partition", "2")
}

// evictionsRefused: a PodDisruptionBudget refuses every eviction.
func evictionsRefused(s *report.Sight) {
	s.Policy.Removal = rollout.RemoveByEviction
	s.State.RefusedEviction = rollout.Refusal{Words: "Cannot evict pod as it would violate the pod's disruption budget."}
}

// wholeStatus are the situations whose report is kept in YAML too, as a record of the format. Of the others, what
// DEP-01 wants is kept in lines, beside the table.
var wholeStatus = []string{
	"an override is loud", "complete since yesterday", "etcd is asked, and the coordinator's memory counts",
}

// inLines are the conditions and members of DEP-01, a line each.
func inLines(s report.EtcdStatus) string {
	var b strings.Builder
	fmt.Fprintf(&b, "\nDEP-01, by %s: cluster size %d, replicas %d\n", s.Word, s.ClusterSize, s.Replicas)
	at := func(t time.Time) string {
		if t.IsZero() {
			return "-"
		}
		return t.Format(time.RFC3339)
	}
	for _, c := range s.Conditions {
		fmt.Fprintf(&b, "%s %s %s, since %s, seen %s: %s\n", c.Type, c.Status, c.Reason, at(c.LastTransitionTime),
			at(c.LastHeartbeatTime), c.Message)
	}
	for _, m := range s.Members {
		fmt.Fprintf(&b, "%q %q %q %s %s, since %s: %s\n", m.Name, m.ID, m.Role, m.Status, m.Reason,
			at(m.LastTransitionTime), m.Message)
	}
	return b.String()
}

func TestStatusOfEverySituation(t *testing.T) {
	base := emptied(t, filepath.Join("testdata", "status"))
	for i, tc := range statusSituations {
		t.Run(tc.name, func(t *testing.T) {
			w := statusSituation(t, i)
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
			if err := s.Table(&table, report.Screen{}); err != nil {
				t.Fatal(err)
			}
			// Modules permit no apostrophe in a file's name.
			stem := filepath.Join(base, strings.NewReplacer(" ", "-", ",", "", "'", "").Replace(tc.name))
			if !slices.Contains(wholeStatus, tc.name) {
				expect(t, stem+".txt", table.String()+inLines(s.Etcd()))
				return
			}
			expect(t, stem+".txt", table.String())
			if err := encode(&dep01, "yaml", "EtcdStatus", s.Etcd()); err != nil {
				t.Fatal(err)
			}
			expect(t, stem+".yaml", dep01.String())
		})
	}
}

// What only a coordinator could know is never said on Kubernetes' word.
func TestKubernetesKnowsNothingOfEtcd(t *testing.T) {
	for i, tc := range statusSituations {
		s := report.Look(statusSituation(t, i).outside(t, now, false))
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

func TestAPodThatTheAPIRefusesIsToldInItsOwnWords(t *testing.T) {
	why := `pods "etcd-main-2" is forbidden: exceeded quota: pods`
	w := with(3, func(w *world) { w.refused(2, why) })
	if out, err := runPlan(t, w.dumped(t)...); codeOf(err) != exitWaiting || !strings.Contains(out, why) {
		t.Errorf("plan does not say %q: %v\n%s", why, err, out)
	}
	for _, asked := range []bool{true, false} {
		if s := report.Look(w.outside(t, now, asked)); !strings.Contains(s.Reason, why) {
			t.Errorf("by its own word, etcd asked: %v: %s", asked, s.Reason)
		}
	}
	// A coordinator may not read events.
	told := with(3, func(w *world) { w.removePod(2) })
	told.tells(t, now.Add(-justNow))
	told.events = w.events
	if s := report.Look(told.outside(t, now, false)); s.Word != report.CoordinatorsWord ||
		!strings.Contains(s.Reason, why) {
		t.Errorf("by the word %v: %s", s.Word, s.Reason)
	}
}
