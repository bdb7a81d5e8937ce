package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"

	"github.com/quorate/quorate/internal/report"
	"github.com/quorate/quorate/pkg/rollout"
)

// longestHelp is how many lines of flags somebody reads.
const longestHelp = 60

func TestHelpIsShortAndHelpAllHasEveryFlag(t *testing.T) {
	for _, verb := range root().Commands() {
		if verb.Name() == "completion" {
			continue
		}
		short, _, code := invoke(t, "quorate", "", verb.Name(), "--help")
		whole, _, codeAll := invoke(t, "quorate", "", verb.Name(), "--help-all")
		if code != 0 || codeAll != 0 {
			t.Errorf("%s: exit codes %d, %d", verb.Name(), code, codeAll)
		}
		_, flags, _ := strings.Cut(short, "\nFlags:")
		if lines := strings.Count(flags, "\n"); lines > longestHelp {
			t.Errorf("%s: %d lines of flags", verb.Name(), lines)
		}
		verb.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if !f.Hidden && !strings.Contains(whole, "--"+f.Name+" ") {
				t.Errorf("%s --help-all has no --%s", verb.Name(), f.Name)
			}
		})
		if strings.Contains(short, "--tls-server-name") || !strings.Contains(short, "more flags") &&
			verb.Name() != "version" {
			t.Errorf("%s --help shows what few people need", verb.Name())
		}
	}
}

func TestAPluginsUsersReadWhatTheyType(t *testing.T) {
	for _, verb := range root().Commands() {
		if verb.Name() == "completion" {
			continue
		}
		stdout, _, _ := invoke(t, "kubectl-quorate", "", verb.Name(), "--help")
		for line := range strings.Lines(stdout) {
			line = strings.ReplaceAll(line, "kubectl quorate ", "")
			if strings.Contains(line, "quorate "+verb.Name()) && verb.Name() != "sidecar" {
				t.Errorf("%s: %s", verb.Name(), line)
			}
		}
	}
	for text, want := range map[string]string{
		"see quorate status -n garden etcd-main": "see kubectl quorate status -n garden etcd-main",
		"`quorate plan` and quorate history":     "`kubectl quorate plan` and kubectl quorate history",
		"kubectl quorate resume":                 "kubectl quorate resume",
		"runs `quorate sidecar`":                 "runs `quorate sidecar`",
		"kubectl exec pod -- quorate plan":       "kubectl exec pod -- quorate plan",
		"the Lease quorate-status quorate":       "the Lease quorate-status quorate",
	} {
		if got := asPlugin(text); got != want {
			t.Errorf("%q: %q", text, got)
		}
	}
}

// TestAPluginsUsersReadCommandsInReportsAsTheyTypeThem: what a coordinator has written to the Lease names the command,
// and so do the guards' advice, the commands about a guard, and what this command says itself.
func TestAPluginsUsersReadCommandsInReportsAsTheyTypeThem(t *testing.T) {
	paused := answering(t, &api{world: told(t, func(w *world) { w.control("quorate.dev/paused", "true") })})
	haunted := told(t, healthy)
	r, h, err := report.FromNotes(haunted.lease.Annotations)
	if err != nil {
		t.Fatal(err)
	}
	r.Action, r.Guard = rollout.ActionHold, rollout.GuardQuorumFloor
	r.Reason = "1 of 4 voters serve; have the ghosts removed with `quorate remove-member`"
	r.Ghosts = []report.Ghost{{Member: "etcd-main-3", Do: "Run quorate remove-member etcd-main etcd-main-3."}}
	h[0].Reason = "ask again with quorate defragment"
	for key, value := range report.Notes(r, h) {
		haunted.control(key, value)
	}
	ghosts := answering(t, &api{world: haunted})
	for _, tc := range []struct {
		args, kubeconfig, says string
		// reworded is false where the same is said to everybody.
		reworded bool
	}{
		{"status etcd-main", paused, "\n    kubectl quorate resume -n garden etcd-main\n", true},
		{"status etcd-main", ghosts, "Run kubectl quorate remove-member etcd-main etcd-main-3.", true},
		{"status -A -o wide", ghosts, "'kubectl quorate remove-member'", true},
		{"status etcd-main --watch --timeout=1s", ghosts, "'kubectl quorate remove-member'", true},
		{"plan etcd-main -e http://127.0.0.1:1", ghosts, "kubectl quorate status -n garden etcd-main", true},
		{"history etcd-main", ghosts, "ask again with kubectl quorate defragment", true},
		{"status etcd-main -o json", ghosts, " quorate remove-member etcd-main etcd-main-3", false},
		{"history etcd-main -o yaml", ghosts, "ask again with quorate defragment", false},
	} {
		stdout, stderr, _ := invoke(t, "kubectl-quorate", tc.kubeconfig, strings.Fields(tc.args)...)
		said := stdout + stderr
		if !strings.Contains(said, tc.says) {
			t.Errorf("%s: %q is not in\n%s", tc.args, tc.says, said)
		}
		if bare := strings.ReplaceAll(said, "kubectl quorate ", ""); tc.reworded && commandLine.MatchString(bare) {
			t.Errorf("%s: %q in\n%s", tc.args, commandLine.FindString(bare), said)
		}
	}
	var b bytes.Buffer
	s := report.Status{Report: report.Report{Plan: report.Plan{Work: report.Work{Action: rollout.ActionHold,
		Reason: "to let it go: quorate resume etcd-main"}}}}
	if err := s.Table(&b, report.Screen{Width: 32, Reword: asPlugin}); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(b.String(), "  to let it go: kubectl quorate\n  resume etcd-main\n") {
		t.Errorf("it is wrapped as it reads:\n%s", &b)
	}
}

func TestWhatProgramsReadHasAVersionAndAKind(t *testing.T) {
	kubeconfig := answering(t, &api{world: told(t, second)})
	files := strings.Join(with(3, healthy).dumped(t), " ")
	for args, want := range map[string]string{
		"status etcd-main":    "EtcdStatus",
		"status -A":           "Fleet",
		"plan " + files:       "Plan",
		"plan --all " + files: "PlanList",
		"history etcd-main":   "HistoryEntryList",
		"version":             "Version",
	} {
		stdout, stderr, _ := invoke(t, "quorate", kubeconfig, append(strings.Fields(args), "-o", "json")...)
		var got struct {
			APIVersion, Kind string
			Items            []struct{ APIVersion, Kind string }
		}
		if err := json.Unmarshal([]byte(stdout), &got); err != nil {
			t.Errorf("%s: %v\n%s%s", args, err, stdout, stderr)
			continue
		}
		if got.APIVersion != apiVersion || got.Kind != want {
			t.Errorf("%s: %s %s, want %s", args, got.APIVersion, got.Kind, want)
		}
		kind, isList := strings.CutSuffix(want, "List")
		if isList && (len(got.Items) == 0 || got.Items[0].APIVersion != apiVersion || got.Items[0].Kind != kind) {
			t.Errorf("%s: its items are %v", args, got.Items)
		}
	}
}

// kubectl looks for kubectl_complete-quorate in the PATH, and gives it the words behind "kubectl quorate".
func TestKubectlCompletesTheWordsOfThePlugin(t *testing.T) {
	dir := t.TempDir()
	script, err := os.ReadFile(filepath.Join("..", "..", "deploy", "kubectl_complete-quorate"))
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"kubectl_complete-quorate": string(script),
		// kubectl runs the plugin of the name that follows.
		"kubectl": "#!/usr/bin/env sh\nplugin=kubectl-$1\nshift\nexec \"$plugin\" \"$@\"\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil { //nolint:gosec // It is run.
			t.Fatal(err)
		}
	}
	if err := os.Symlink(os.Args[0], filepath.Join(dir, "kubectl-quorate")); err != nil {
		t.Fatal(err)
	}
	// What Quorate may come to roll is completed where that is asked about.
	kubernetes := newWorld(3).set
	foreign(&world{set: kubernetes})
	kubernetes.Name = "etcd-today"
	kubeconfig := answering(t, &api{world: newWorld(3), others: []appsv1.StatefulSet{*kubernetes}})
	for args, want := range map[string]string{
		"status ":             "etcd-main\n:",
		"check ":              "etcd-main\netcd-today\n:",
		"plan ":               "etcd-main\netcd-today\n:",
		"check etcd-main -o ": "table\n",
		"override etcd-main ": "AllServing\n",
		"status -o ":          "table\n",
		"def":                 "defragment\t",
	} {
		cmd, stdout, stderr := command(t, []string{"PATH=" + dir + ":" + os.Getenv("PATH"), "KUBECONFIG=" + kubeconfig},
			strings.Split(args, " ")...)
		cmd.Path = filepath.Join(dir, "kubectl_complete-quorate")
		cmd.Args[0] = cmd.Path
		if code := exitCode(t, cmd.Run()); code != 0 || !strings.HasPrefix(stdout.String(), want) {
			t.Errorf("%q: exit code %d\n%s%s", args, code, stdout, stderr)
		}
	}
	if info, err := os.Stat(filepath.Join("..", "..", "deploy", "kubectl_complete-quorate")); err != nil ||
		info.Mode().Perm()&0o111 == 0 {
		t.Errorf("it cannot be run: %v %v", info, err)
	}
}

func TestANumberAloneIsSeconds(t *testing.T) {
	for text, want := range map[string]time.Duration{"5": 5 * time.Second, "90s": 90 * time.Second, "0": 0,
		"1h": time.Hour} {
		var got time.Duration
		cmd := &cobra.Command{}
		cmd.Flags().DurationVar(&got, "timeout", time.Minute, "")
		takeSeconds(cmd.Flags())
		if err := cmd.Flags().Set("timeout", text); err != nil || got != want {
			t.Errorf("%q: %v, want %v (%v)", text, got, want, err)
		}
	}
	// The settings of the policy are written as in a sidecar's file.
	_, stderr, code := invoke(t, "quorate", "", "plan", "etcd-main", "--settle-timeout=300")
	if code != exitBadInput || !strings.Contains(stderr, `--settle-timeout: "300": is not a duration`) {
		t.Errorf("exit code %d: %s", code, stderr)
	}
	_, stderr, code = invoke(t, "quorate", apiServer(t, with(3, complete)), "status", "etcd-main",
		"--request-timeout=5")
	if code != 0 {
		t.Errorf("exit code %d: %s", code, stderr)
	}
}
