package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"
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
		"the Lease quorate-status quorate":       "the Lease quorate-status quorate",
	} {
		if got := asPlugin(text); got != want {
			t.Errorf("%q: %q", text, got)
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
