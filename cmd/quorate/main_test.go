package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// runMain makes the test binary the command itself, so that exit codes are real.
const runMain = "QUORATE_TEST_RUNS_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(runMain) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// command returns the command, which ends with the test at the latest.
func command(t *testing.T, env []string, args ...string) (*exec.Cmd, *bytes.Buffer, *bytes.Buffer) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, os.Args[0], args...)
	cmd.Env = append(
		[]string{runMain + "=1", "PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "GOCOVERDIR=" + t.TempDir()},
		env...,
	)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	return cmd, &stdout, &stderr
}

func exitCode(t *testing.T, err error) int {
	t.Helper()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.ExitCode()
	}
	t.Fatal(err)
	return -1
}

func TestExitCodes(t *testing.T) {
	pod := []string{"POD_NAME=etcd-main-0", "POD_NAMESPACE=garden"}
	for _, tc := range []struct {
		name   string
		env    []string
		args   []string
		code   int
		stdout string
		stderr string // the whole of it, one line
	}{
		{"no command shows what there is", nil, nil, 0, "sidecar", ""},
		{"help is no error", nil, []string{"--help"}, 0, "Exit codes", ""},
		{"help for a command is no error", nil, []string{"sidecar", "--help"}, 0, "--endpoints", ""},
		{"the version is no error", nil, []string{"--version"}, 0, "quorate version", ""},
		{
			"an unknown command is bad input", nil, []string{"sidekick"}, 2, "",
			`quorate: unknown command "sidekick"; see quorate --help`,
		},
		{"an unknown flag is bad input", nil, []string{"sidecar", "--loud"}, 2, "", "quorate: unknown flag: --loud; see quorate sidecar --help"},
		{
			"an unknown flag before any command is bad input", nil, []string{"--loud"}, 2, "",
			"quorate: unknown flag: --loud; see quorate --help",
		},
		{
			"an argument too many for a shell's completion is bad input", nil,
			[]string{"completion", "bash", "extra"}, 2, "",
			`quorate: quorate completion bash takes no argument, and got "extra"; see quorate completion bash --help`,
		},
		{
			"an argument too many is bad input", pod, []string{"sidecar", "etcd-main"}, 2, "",
			`quorate: quorate sidecar takes no argument, and got "etcd-main"; see quorate sidecar --help`,
		},
		{
			"a value of the wrong kind is bad input", pod, []string{"sidecar", "--max-unavailable=many"}, 2, "",
			`quorate: --max-unavailable: "many" is neither a number nor a percentage such as 40%`,
		},
		{
			"a bad value is bad input", pod, []string{"sidecar", "-e", "etcd"}, 2, "",
			`quorate: --endpoints: "etcd": not a client URL such as https://etcd-main-0.etcd-main-peer.ns.svc:2379`,
		},
		{
			"a bad duration is bad input", pod, []string{"sidecar", "--lock-ttl=1s"}, 2, "",
			"quorate: --lock-ttl: 1s: must be whole seconds, at least 2s: etcd counts leases in seconds and grants none below",
		},
		{
			"a file that is not there is bad input", pod, []string{"sidecar", "--config=/nowhere"}, 2, "",
			`quorate: --config: "/nowhere": no such file or directory`,
		},
		{
			"a plan reads its file as well", nil, []string{"plan", "-f", "-", "--config=/nowhere"}, 2, "",
			`quorate: --config: "/nowhere": no such file or directory`,
		},
		{"help has headings", nil, []string{"sidecar", "--help-all"}, 0, "\n\nTiming flags:\n", ""},
		{
			"a missing name is bad input", []string{"POD_NAMESPACE=garden"}, []string{"sidecar"}, 2, "",
			`quorate: --statefulset: is required (or set --pod-name or POD_NAME to a name that ends in an ordinal, ` +
				`such as etcd-main-0; it is "")`,
		},
		{
			"no way to Kubernetes is bad input", pod, []string{"sidecar"}, 2, "",
			"quorate: --kubeconfig: is not set, nor is KUBECONFIG, and this is not a pod: " +
				"unable to load in-cluster configuration, KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT must be defined",
		},
		{
			"a plan without a cluster is bad input", []string{"HOME=/nobody"},
			[]string{"plan", "--statefulset=etcd-main"}, 2, "",
			"quorate: --kubeconfig: is not set, nor is KUBECONFIG, there is no /nobody/.kube/config, " +
				"and this is not a pod: name the cluster with one of them",
		},
		{
			"a plan knows kubectl's contexts", []string{"HOME=/nobody"},
			[]string{"plan", "--statefulset=etcd-main", "--context=mars"}, 2, "",
			`quorate: --kubeconfig: "/nobody/.kube/config": context "mars" does not exist`,
		},
		{
			"KUBECONFIG is read", append(pod, "KUBECONFIG=/nowhere"), []string{"sidecar"}, 2, "",
			`quorate: KUBECONFIG: "/nowhere": no such file or directory`,
		},
		{
			"every bad value has a line of its own", pod,
			[]string{"sidecar", "--namespace=a/b", "--lock-ttl=1s", "--kubeconfig=/nowhere"}, 2, "",
			strings.Join([]string{
				`quorate: --kubeconfig: "/nowhere": no such file or directory`,
				`quorate: --namespace: "a/b": a lowercase RFC 1123 label must consist of lower case alphanumeric ` +
					"characters or '-', and must start and end with an alphanumeric character",
				"quorate: --lock-ttl: 1s: must be whole seconds, at least 2s: etcd counts leases in seconds and grants none below",
			}, "\n"),
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cmd, stdout, stderr := command(t, tc.env, tc.args...)
			if code := exitCode(t, cmd.Run()); code != tc.code {
				t.Errorf("exit code %d, want %d", code, tc.code)
			}
			if got := strings.TrimSuffix(stderr.String(), "\n"); got != tc.stderr {
				t.Errorf("stderr:\n got %s\nwant %s", got, tc.stderr)
			}
			if !strings.Contains(stdout.String(), tc.stdout) || (tc.stdout == "" && stdout.Len() > 0) {
				t.Errorf("stdout %q, want it to say %q", stdout.String(), tc.stdout)
			}
		})
	}
}

// What can be mended while it runs is retried; only a signal ends the sidecar, with
// exit code 0.
func TestASidecarRunsUntilItIsAskedToStop(t *testing.T) {
	// Nobody listens where etcd should be, and in one case the Kubernetes API.
	address := freeAddress(t)
	kubeconfig := kubeconfigFor(t, "https://"+address)
	for _, tc := range []struct {
		signal     syscall.Signal
		kubeconfig string
		says       []string
	}{
		{syscall.SIGTERM, kubeconfig, []string{"the workload cannot be read", "read pod etcd-main-0"}},
		{syscall.SIGINT, apiServer(t, with(3, complete)), []string{"no etcd session"}},
	} {
		t.Run(tc.signal.String(), func(t *testing.T) {
			cmd, stdout, _ := command(
				t, []string{"POD_NAME=etcd-main-0", "POD_NAMESPACE=garden"}, "sidecar", "-e", "http://"+address,
				"--kubeconfig", tc.kubeconfig, "--log-format=json",
			)
			log, err := os.Create(filepath.Join(t.TempDir(), "log"))
			if err != nil {
				t.Fatal(err)
			}
			cmd.Stderr = log
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			logged := func() string {
				text, err := os.ReadFile(log.Name())
				if err != nil {
					t.Fatal(err)
				}
				return string(text)
			}
			deadline := time.After(30 * time.Second)
			for !strings.Contains(logged(), tc.says[0]) {
				select {
				case <-deadline:
					_ = cmd.Process.Kill()
					t.Fatalf("it does not say: %s\n%s", tc.says[0], logged())
				case <-time.After(10 * time.Millisecond):
				}
			}
			if err := cmd.Process.Signal(tc.signal); err != nil {
				t.Fatal(err)
			}
			if code := exitCode(t, cmd.Wait()); code != 0 {
				t.Errorf("exit code %d, want 0", code)
			}
			for _, want := range append([]string{`"actor":"quorate"`, `"statefulset":"garden/etcd-main"`}, tc.says...) {
				if !strings.Contains(logged(), want) {
					t.Errorf("the log does not say %s:\n%s", want, logged())
				}
			}
			if stdout.Len() > 0 {
				t.Errorf("stdout %q", stdout)
			}
		})
	}
}
