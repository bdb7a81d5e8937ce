package main

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/quorate/quorate/pkg/rollout"
)

// assumed are clusters that Quorate does not roll, with what it would do to them if it did.
var assumed = []struct {
	situation
	assumes []rollout.Assumption
}{
	{situation{"rolling-update-with-a-change-pending", "Remove etcd-main-2 - Serving", "", 3, foreign},
		[]rollout.Assumption{rollout.AssumedOnDelete, rollout.AssumedSidecars}},
	{situation{"rolling-update-and-nothing-to-roll", "Remove etcd-main-2 - Serving", "--all", 3, func(w *world) {
		foreign(w)
		complete(w)
	}}, []rollout.Assumption{rollout.AssumedOnDelete, rollout.AssumedOutdated, rollout.AssumedSidecars}},
	{situation{"one-cluster-in-two-statefulsets", "Hold - QuorumFloor Serving", "", 3, func(w *world) {
		foreign(w)
		w.addMember(3, "etcd-other-0")
		w.addMember(4, "etcd-other-1")
	}}, []rollout.Assumption{rollout.AssumedOnDelete, rollout.AssumedSidecars}},
	{situation{"a-single-member-without-a-volume", "Hold - DataSurvives Serving", "", 1, func(w *world) {
		foreign(w)
		w.set.Spec.VolumeClaimTemplates = nil
	}}, []rollout.Assumption{rollout.AssumedOnDelete, rollout.AssumedSidecars}},
	{situation{"in-the-shadow", "Remove etcd-main-2 - Serving", "--all", 3, func(w *world) {
		withSidecar(w)
		w.control(rollout.ControlPaused, "true")
	}}, []rollout.Assumption{rollout.AssumedResumed}},
	{situation{"nothing-has-to-be-assumed", "Remove etcd-main-2 - Serving", "", 3, withSidecar}, nil},
	{situation{"a-bad-control-is-not-assumed-away", "Hold - BadControl Held", "", 3,
		setting(rollout.ControlPaused, "yes please")}, []rollout.Assumption{rollout.AssumedSidecars}},
}

func TestAPlanOfWhatQuorateWouldDo(t *testing.T) {
	base := emptied(t, filepath.Join("testdata", "assumed"))
	for _, s := range assumed {
		t.Run(s.name, func(t *testing.T) {
			code := 0
			if strings.HasPrefix(s.want, "Hold ") {
				code = exitWaiting
			}
			args := slices.Concat(s.make().dumped(t), strings.Fields(s.args), []string{"--assume-on-delete"})
			table, err := runPlan(t, args...)
			if codeOf(err) != code {
				t.Errorf("exit code %d, want %d (%v)", codeOf(err), code, err)
			}
			expect(t, filepath.Join(base, s.name+".txt"), table)
			text, _ := runPlan(t, append(args, "-o", "json")...)
			p := plansOf(t, text)[0]
			if got := summary(p); got != s.want || !slices.Equal(p.Assumed, s.assumes) {
				t.Errorf("decides %q and assumes %q, want %q and %q", got, p.Assumed, s.want, s.assumes)
			}
			if got := asTable(t, text); got != table {
				t.Errorf("the JSON renders as\n%s\nthe table is\n%s", got, table)
			}
		})
	}
}

// Without the flag a plan is as before, and says how to see more.
func TestAPlanOfAForeignStatefulSetPointsToTheFlag(t *testing.T) {
	out, err := runPlan(t, with(3, foreign).dumped(t)...)
	if err != nil || !strings.HasPrefix(out, "Idle\n") || !strings.Contains(out, "add --assume-on-delete to this") {
		t.Errorf("%v\n%s", err, out)
	}
	w := with(3, func(w *world) { foreign(w); w.noHealth = true })
	if out, err = runPlan(t, w.dumped(t)...); err != nil || !strings.HasPrefix(out, "Idle\n") {
		t.Errorf("without the flag nobody needs etcd: %v\n%s", err, out)
	}
	out, err = runPlan(t, append(w.dumped(t), "--assume-on-delete")...)
	if codeOf(err) != exitFailure || !strings.Contains(out, "quorate plan --assume-on-delete -f ") {
		t.Errorf("with it, the command that asks has the flag too: %v\n%s", err, out)
	}
}

// Live, etcd is asked for each member's own list, as before the first pod of a rollout goes.
func TestALivePlanOfWhatQuorateWouldDo(t *testing.T) {
	etcd := membersOf(t, 3)
	kubeconfig := apiServer(t, with(3, func(w *world) {
		foreign(w)
		complete(w)
	}))
	out, code := live(t, kubeconfig, "", "-e", etcd.URL(0), "--assume-on-delete")
	if code != 0 || !strings.HasPrefix(out, "Assuming that the update strategy is OnDelete, every pod is outdated and "+
		"every pod has a sidecar:\nRemove etcd-main-2 ") || !strings.Contains(out, "ListsAgree") {
		t.Errorf("exit code %d\n%s", code, out)
	}
}
