package report_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/quorate/quorate/internal/report"
	"github.com/quorate/quorate/pkg/rollout"
)

// eventAPI notes what is asked, and answers a patch with an error of choice.
type eventAPI struct {
	asked []string
	told  []string
	patch error
}

func (a *eventAPI) Create(_ context.Context, e *corev1.Event, _ metav1.CreateOptions) (*corev1.Event, error) {
	a.asked = append(a.asked, "create")
	a.told = append(a.told, e.Type+" "+e.Reason+" "+e.Message)
	return e, nil
}

func (a *eventAPI) Patch(
	context.Context,
	string,
	types.PatchType,
	[]byte,
	metav1.PatchOptions,
	...string,
) (*corev1.Event, error) {
	a.asked = append(a.asked, "patch")
	return &corev1.Event{}, a.patch // A clientset's answer is never nil.
}

// events are what the events say that are written while something is told.
func events(t *testing.T, tell func(*report.Recorder)) []string {
	t.Helper()
	api := &eventAPI{}
	r := report.NewRecorder(api, "etcd-main-0", time.Second, func(err error) { t.Error(err) })
	r.About("garden", "etcd-main", "uid")
	tell(r)
	ended, end := context.WithCancel(t.Context())
	end()
	r.Run(ended) // It writes what is still to be written.
	return api.told
}

func TestAnEventsReasonIsWhatHappenedAndItsMessageSaysWhy(t *testing.T) {
	keeps := func(minutes int, w report.Work) func(*report.Recorder) {
		return func(r *report.Recorder) {
			r.Show(report.Report{At: noon, Since: noon.Add(-time.Duration(minutes) * time.Minute),
				Plan: report.Plan{Work: w, Voters: 3, Quorum: 2, Serving: 3}})
		}
	}
	happened := func(e report.Entry) func(*report.Recorder) {
		e.Reason = "because of this"
		return func(r *report.Recorder) { r.Tell(e, "") }
	}
	const (
		rolls, hold, wait = rollout.DutyRoll, rollout.ActionHold, rollout.ActionWait
		ghosts, away      = rollout.DutyGhosts, rollout.DutyMakeWay
		safe              = "SAFE: quorum 3/3, one may fail. "
	)
	for _, tc := range []struct {
		name string
		tell func(*report.Recorder)
		want []string
	}{
		{"a pod", happened(report.Entry{What: report.Removed, Pod: "etcd-main-2", Revision: "rev-2",
			Rule: "NotServingFirst"}),
			[]string{"Normal PodRemoved Removed etcd-main-2 for revision rev-2, by the rule NotServingFirst: because " +
				"of this"}},
		{"a pod whose removal was found on record", happened(report.Entry{What: report.Removed, Pod: "etcd-main-2",
			Revision: "rev-2"}), []string{"Normal PodRemoved Removed etcd-main-2 for revision rev-2: because of this"}},
		{"a pod that guards would have held", happened(report.Entry{What: report.Removed, Pod: "etcd-main-2",
			Revision: "rev-2", Rule: "Serving", Overridden: []string{"Canary"}}),
			[]string{"Normal PodRemoved Removed etcd-main-2 for revision rev-2, by the rule Serving: because of this",
				"Warning GuardsOverridden Canary would have held this, and is overridden by " +
					"quorate.dev/override-guards on the Lease: Removed etcd-main-2 for revision rev-2, by the rule " +
					"Serving: because of this"}},
		{"the leader", happened(report.Entry{What: report.LeaderMoved, Pod: "etcd-main-2", To: "etcd-main-1",
			Rule: "HandOverLeadership"}), []string{"Normal LeaderMoved Moved etcd's leadership from etcd-main-2 to " +
			"etcd-main-1, by the rule HandOverLeadership: because of this"}},
		{"the coordinator", happened(report.Entry{What: report.HandedOver, Pod: "etcd-main-0", To: "etcd-main-1"}),
			[]string{"Normal HandedOver etcd-main-0 lets etcd-main-1 coordinate: because of this"}},
		{"the end", happened(report.Entry{What: report.Completed, Revision: "rev-2", Rule: "Complete"}),
			[]string{"Normal RolloutCompleted The rollout of revision rev-2 is complete: because of this"}},
		{"a member", happened(report.Entry{What: report.MemberRemoved, Pod: "etcd-main-3", Rule: "RemoveGhost"}),
			[]string{"Normal MemberRemoved Removed the member etcd-main-3 from etcd's list: because of this"}},
		{"a member that may still go", happened(report.Entry{What: report.MemberSuspected, Pod: "etcd-main-3"}),
			[]string{"Normal MemberRemovalGivenUp The member etcd-main-3: because of this"}},
		{"a database", happened(report.Entry{What: report.Defragmented, Pod: "etcd-main-1", Rule: "Defragment"}),
			[]string{"Normal Defragmented Defragmented the member of etcd-main-1: because of this"}},
		{"a database that stays as it is", happened(report.Entry{What: report.Defragmented, Pod: "etcd-main-1",
			Result: report.OutcomeFailed}),
			[]string{"Warning DefragmentationFailed Defragmenting the member of etcd-main-1: because of this"}},
		{"an alarm", happened(report.Entry{What: report.Disarmed, Pod: "etcd-main-1"}),
			[]string{"Normal AlarmDisarmed Disarmed the alarm NOSPACE of etcd-main-1: because of this"}},
		{"an alarm that stays", happened(report.Entry{What: report.Disarmed, Pod: "etcd-main-1",
			Result: report.OutcomeUnclear}), []string{"Warning AlarmNotDisarmed etcd-main-1: because of this"}},
		{"the end of an override", happened(report.Entry{What: report.OverrideEnded}),
			[]string{"Normal OverrideEnded because of this"}},
		{"what a newer version tells", happened(report.Entry{What: "Juggled"}), nil},

		{"a hold", keeps(2, report.Work{Duty: rolls, Action: hold, Rule: "Serving", Guard: "QuorumFloor",
			Reason: "2 of 3 voters serve", Do: "Bring members back."}),
			[]string{"Warning RolloutHeld " + safe + "QuorumFloor has held the rollout for 2m0s: 2 of 3 voters " +
				"serve. If nobody does anything: nothing more is rolled until the cause is gone. etcd goes on " +
				"serving. What to do: Bring members back."}},
		{"a wait is no warning", keeps(2, report.Work{Duty: rolls, Action: wait, Rule: "Serving", Guard: "CaughtUp",
			Reason: "etcd-main-1 is 900 entries behind."}),
			[]string{"Normal RolloutWaiting " + safe + "CaughtUp has kept the rollout waiting for 2m0s: etcd-main-1 " +
				"is 900 entries behind. If nobody does anything: the rollout goes on by itself when that is over. " +
				"etcd goes on serving."}},
		{"a short wait", keeps(0, report.Work{Duty: rolls, Action: wait, Guard: "CaughtUp"}), nil},
		{"what holds everything", keeps(2, report.Work{Duty: rollout.DutyHeld, Action: hold, Guard: "Paused",
			Reason: "r"}), []string{"Warning RolloutHeld " + safe + "Paused has held everything for 2m0s: r. If " +
			"nobody does anything: nothing more is done until the cause is gone. etcd goes on serving."}},
		{"a wait of the ghosts", keeps(2, report.Work{Duty: ghosts, Action: wait, Guard: "PodsServe", Reason: "r"}),
			[]string{"Normal MemberRemovalWaiting " + safe + "PodsServe has kept the removal of a member waiting for " +
				"2m0s: r. If nobody does anything: the removal of a member goes on by itself when that is over. etcd " +
				"goes on serving."}},
		{"a hold of the leader", keeps(2, report.Work{Duty: away, Action: hold, Guard: "DataAgrees", Reason: "r"}),
			[]string{"Warning LeaderMoveHeld AT RISK: quorum 3/3, but the members' data differ. DataAgrees has held " +
				"the change of etcd's leader for 2m0s: r. If nobody does anything: the change of etcd's leader is " +
				"not done until the cause is gone. Clients may read different data from different members."}},
		{"a hold of a database", keeps(2, report.Work{Duty: rollout.DutyDefragment, Action: hold, Guard: "OwnURL",
			Reason: "r"}), []string{"Warning DefragmentationHeld " + safe + "OwnURL has held the defragmentation for " +
			"2m0s: r. If nobody does anything: the defragmentation is not done until the cause is gone. etcd goes on " +
			"serving."}},

		{"an override", func(r *report.Recorder) { r.Override(&report.Report{Overrides: []string{"Canary"}}) },
			[]string{"Warning GuardsOverridden Canary will not hold this rollout, nor any later one, until cleared. " +
				"What to do: as soon as it is not needed any more, quorate override etcd-main --clear " +
				"--namespace garden"}},
		{"a sidecar that failed", func(r *report.Recorder) { r.Fault("it broke") },
			[]string{"Warning CoordinatorUnfit etcd-main-0: it broke"}},
		{"a fault with which it goes on", func(r *report.Recorder) { r.Warn(report.ReasonRecordIgnored, "odd") },
			[]string{"Warning RecordIgnored etcd-main-0: odd"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := events(t, tc.tell); !slices.Equal(got, tc.want) {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
}

// The operator's page lists the reasons, some of them in one row, and nothing else has this form there.
var (
	listed = regexp.MustCompile("(?m)^\\| (`.+`) \\| (Normal|Warning) \\|")
	reason = regexp.MustCompile("`(\\w+)`")
)

func TestTheOperatorsPageListsEveryReason(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "operations.md"))
	if err != nil {
		t.Fatal(err)
	}
	var documented []string
	for _, row := range listed.FindAllStringSubmatch(string(text), -1) {
		for _, r := range reason.FindAllStringSubmatch(row[1], -1) {
			documented = append(documented, r[1])
		}
	}
	source, err := os.ReadFile("events.go")
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, row := range regexp.MustCompile(`Reason\w+ += "(\w+)"`).FindAllStringSubmatch(string(source), -1) {
		want = append(want, row[1])
	}
	for _, row := range regexp.MustCompile(`kept\{"(\w+)"`).FindAllStringSubmatch(string(source), -1) {
		want = append(want, row[1]+"Held", row[1]+"Waiting")
	}
	slices.Sort(documented)
	slices.Sort(want)
	want = slices.Compact(want)
	if len(want) < 20 || !slices.Equal(documented, want) {
		t.Errorf("listed are %q, and there are %q", documented, want)
	}
}

func TestAnEventThatRepeatsIsCountedUp(t *testing.T) {
	events := schema.GroupResource{Resource: "events"}
	for _, tc := range []struct {
		name   string
		patch  error
		asked  []string
		failed bool
	}{
		{"it is patched", nil, []string{"create", "patch"}, false},
		{"one that is forgotten is written anew",
			apierrors.NewNotFound(events, "x"), []string{"create", "patch", "create"}, false},
		{"one that may not be patched is a fault, and no flood of new ones",
			apierrors.NewForbidden(events, "x", errors.New("y")), []string{"create", "patch"}, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				api := &eventAPI{patch: tc.patch}
				var failed []error
				r := report.NewRecorder(
					api,
					"etcd-main-0",
					time.Second,
					func(err error) { failed = append(failed, err) },
				)
				r.About("garden", "etcd-main", "uid")
				r.Override(&report.Report{Overrides: []string{"Canary"}})
				r.Override(&report.Report{Overrides: []string{"Canary"}})
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					r.Run(ctx)
				}()
				synctest.Wait()
				cancel()
				<-ended
				if !slices.Equal(api.asked, tc.asked) {
					t.Errorf("asked %v, want %v", api.asked, tc.asked)
				}
				if tc.failed != (len(failed) > 0) || tc.failed && !errors.Is(failed[0], tc.patch) {
					t.Errorf("faults %v, want any: %t", failed, tc.failed)
				}
			})
		})
	}
}
