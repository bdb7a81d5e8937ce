package main

import (
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// freeAddress is one on which nobody listens.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func fetch(t *testing.T, url string) (code int, body string, err error) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return response.StatusCode, string(text), err
}

// The page shows what the coordinator has told, though neither etcd nor, for the health,
// anything else answers.
func TestASidecarServesItsPage(t *testing.T) {
	kubeconfig := apiServer(t, told(t, broken))
	address := freeAddress(t)
	cmd, _, _ := command(
		t, []string{"POD_NAME=etcd-main-0", "POD_NAMESPACE=garden"}, "sidecar", "-e", "http://"+freeAddress(t),
		"--kubeconfig", kubeconfig, "--listen-address", address,
	)
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	deadline := time.After(30 * time.Second)
	for {
		if _, _, err = fetch(t, "http://"+address+"/healthz"); err == nil {
			break
		}
		select {
		case <-deadline:
			_ = cmd.Process.Kill()
			t.Fatal(err)
		case <-time.After(10 * time.Millisecond):
		}
	}
	for path, want := range map[string]string{
		"/healthz": "ok\n",
		"/metrics": "(?s)go_goroutines .*process_start_time_seconds " +
			`.*quorate_coordinator\{namespace="garden",statefulset="etcd-main"\}`,
		"/": `(?s)garden/etcd-main.*<h1>.*AT RISK</b>: quorum 2/3.*Hold: ` +
			`<a href="[^"]*#updatedfailing">UpdatedFailing</a>.*etcd-main-1, epoch 4`,
		"/status.json": `(?s)"safety": "AT RISK".*"word": "coordinator"`,
	} {
		code, body, err := fetch(t, "http://"+address+path)
		if err != nil || code != http.StatusOK || !regexp.MustCompile(want).MatchString(body) {
			t.Errorf("%s: %v %d, want %s in\n%s", path, err, code, want, body)
		}
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := exitCode(t, cmd.Wait()); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if _, _, err := fetch(t, "http://"+address+"/healthz"); err == nil {
		t.Error("it is served after the end")
	}
}

func TestAPortThatCannotBeHadIsAnErrorAtTheStart(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	cmd, _, stderr := command(
		t, []string{"POD_NAME=etcd-main-0", "POD_NAMESPACE=garden"}, "sidecar", "--kubeconfig",
		apiServer(t, newWorld(3)), "--listen-address", taken.Addr().String(),
	)
	code, said := exitCode(t, cmd.Run()), stderr.String()
	if code != exitFailure || !strings.Contains(said, `quorate: --listen-address: "`+taken.Addr().String()+`": `) ||
		!strings.Contains(said, "address already in use") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
}
