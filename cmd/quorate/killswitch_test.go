package main

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/record"
	"github.com/quorate/quorate/pkg/rollout"
)

// pausedIn are the StatefulSets whose Lease has a pause.
func pausedIn(a *api) []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	var paused []string
	for _, lease := range a.allLeases() {
		if record.Controls(&lease).Paused {
			paused = append(paused, lease.Namespace+"/"+strings.TrimPrefix(lease.Name, "quorate-"))
		}
	}
	slices.Sort(paused)
	return paused
}

func TestTheKillSwitch(t *testing.T) {
	everywhere := []string{"garden/etcd-events", "garden/etcd-main", "shoot/etcd-main", "shoot/etcd-new"}
	for _, tc := range []struct {
		name, args string
		// before are paused already.
		before []string
		fails  string // The Lease whose writing is refused.
		code   int
		says   []string
		paused []string
	}{
		{
			name: "pauses whatever Quorate may roll, with a Lease or without one", args: "pause -A --yes",
			says: []string{
				"shoot/etcd-new is paused\n", "garden/etcd-main is paused\n",
				"4 of 4 are paused; to undo that: quorate resume -A\n",
			}, paused: everywhere,
		},
		{
			name: "in one namespace", args: "pause -l app=etcd --yes",
			says:   []string{"2 of 2 are paused; to undo that: quorate resume -n garden -l 'app=etcd'\n"},
			paused: []string{"garden/etcd-events", "garden/etcd-main"},
		},
		{
			name: "by labels", args: "pause -A -l tier=test --yes",
			says:   []string{"2 of 2 are paused; to undo that: quorate resume -A -l 'tier=test'\n"},
			paused: []string{"garden/etcd-events", "shoot/etcd-new"},
		},
		{
			name: "by names, which needs no confirmation", args: "pause sts/etcd-main etcd-events",
			says:   []string{"2 of 2 are paused; to undo that: quorate resume -n garden etcd-main etcd-events\n"},
			paused: []string{"garden/etcd-events", "garden/etcd-main"},
		},
		{
			name: "says which are paused already", args: "pause -A --yes", before: []string{"garden/etcd-main"},
			says: []string{
				"quorate: 1 of them is paused already; a later resume of all ends those pauses too\n",
				"3 of 3 are paused",
			}, paused: everywhere,
		},
		{
			name: "asks", args: "pause -A", code: 2,
			says: []string{
				"pause 4 StatefulSets in all namespaces: " + strings.Join(everywhere, ", ") + "\n",
				"--yes: is required, because there is no terminal to ask on",
			},
		},
		{
			name: "asks about one", args: "pause -l tier=test", code: 2,
			says: []string{"pause 1 StatefulSet in namespace garden with the labels tier=test: garden/etcd-events\n"},
		},
		{
			name: "one that fails does not keep the others", args: "pause -A --yes", fails: "quorate-etcd-events",
			code: 1, says: []string{
				"quorate: garden/etcd-events: patch Lease quorate-etcd-events: ", "3 of 4 are paused",
				"1 of 4 could not be paused: garden/etcd-events: ",
				"deploy/fleet-operator.yaml has the role to patch leases. Have it applied, and bound to you: kubectl " +
					"create clusterrolebinding quorate-fleet-operator --clusterrole=quorate-fleet-operator --user=alice",
			}, paused: []string{"garden/etcd-main", "shoot/etcd-main", "shoot/etcd-new"},
		},
		{
			name: "a name that is misspelt keeps all of them", args: "pause etcd-main etcd-evnts", code: 2,
			says: []string{"there is no StatefulSet etcd-evnts in namespace garden; did you mean etcd-events?"},
		},
		{
			name: "resumes what is paused", args: "resume -A --yes",
			before: []string{"garden/etcd-main", "shoot/etcd-main"}, says: []string{"2 of 2 are resumed; to undo that: quorate pause -A\n"},
		},
		{
			name: "resumes by labels", args: "resume -A -l tier=prod --yes",
			before: []string{"garden/etcd-events", "garden/etcd-main"},
			says:   []string{"1 of 1 is resumed"}, paused: []string{"garden/etcd-events"},
		},
		{
			name: "has nothing to resume", args: "resume -A --yes",
			says: []string{"quorate: there is nothing to resume in all namespaces\n"},
		},
		{
			name: "cannot wait for many", args: "pause -A --wait", code: 2,
			says: []string{"--wait: goes with one StatefulSet"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := clusters(t)
			a.refuses = tc.fails
			for _, name := range tc.before {
				namespace, set, _ := strings.Cut(name, "/")
				a.leaseOf(namespace, "quorate-"+set).Annotations[rollout.ControlPaused] = "true"
			}
			stdout, stderr, code := invoke(t, "quorate", answering(t, a), strings.Fields(tc.args)...)
			if code != tc.code {
				t.Errorf("exit code %d, want %d", code, tc.code)
			}
			for _, want := range tc.says {
				if !strings.Contains(stdout+stderr, want) {
					t.Errorf("%q is not in\n%s%s", want, stdout, stderr)
				}
			}
			if got := pausedIn(a); !slices.Equal(got, tc.paused) {
				t.Errorf("paused are %q, want %q", got, tc.paused)
			}
		})
	}
}

func TestTheKillSwitchAsksForTheNumber(t *testing.T) {
	const unchanged = "nothing was changed"
	for answer, want := range map[string]string{"37\n": "", "36\n": unchanged, "yes\n": unchanged, "": unchanged} {
		var out bytes.Buffer
		err, got := ask(t.Context(), strings.NewReader(answer), &out, "how many they are", "37"), ""
		if err != nil {
			got = err.Error()
		}
		if got != want || out.String() != "Type how many they are (37) to go on: " {
			t.Errorf("%q: %q %q", answer, got, &out)
		}
	}
}
