package network

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/quorate/quorate/test/harness/process"
	"github.com/quorate/quorate/test/harness/rootfs"
)

const (
	// roleVariable makes the test binary play one of the roles below.
	roleVariable = "QUORATE_TEST_ROLE"
)

var roles = map[string]func(){
	"pod":                podProgram,
	"exit-7-inside":      func() { mustReexec(); os.Exit(7) },
	"print-term-inside":  printTermInside,
	"harness-with-a-pod": harnessWithAPod,
}

func TestMain(m *testing.M) {
	MaybeRunLauncher()
	if role := os.Getenv(roleVariable); role != "" {
		roles[role]()
		os.Exit(1)
	}
	if NamespacesAvailable() == nil {
		if err := ReexecInNamespace(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction(process.SpawnerGoroutine))
}

func needNamespaces(t *testing.T) {
	t.Helper()
	err := NamespacesAvailable()
	if err != nil && os.Getenv(RequireVariable) != "" {
		t.Fatalf("%s is set, but: %v", RequireVariable, err)
	}
	if err != nil {
		t.Skipf("needs network namespaces: %v", err)
	}
}

func newNamespaces(t *testing.T) *Namespaces {
	t.Helper()
	needNamespaces(t)
	n, err := NewNamespaces(filepath.Join(t.TempDir(), "network"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, n.Close()) })
	return n
}

// The roles.

func mustReexec() {
	if err := ReexecInNamespace(); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

func printTermInside() {
	mustReexec()
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM)
	fmt.Println(os.Getpid())
	<-signals
	fmt.Println("terminated")
	os.Exit(0)
}

// harnessWithAPod prints its PID and those of two processes in a pod, and waits to be killed. The second is
// in a container, as a user without rights.
func harnessWithAPod() {
	mustReexec()
	dir, err := os.MkdirTemp("", "quorate-network")
	fatal(err)
	n, err := NewNamespaces(filepath.Join(dir, "network"))
	fatal(err)
	attachment, err := n.Attach(context.Background(), Pod{Namespace: "ns", Name: "etcd-0", UID: "1"})
	fatal(err)
	folder := filepath.Join(dir, "container")
	fatal(os.Mkdir(folder, 0o755))
	contained, err := attachment.Contain(rootfs.Container{Folder: folder, User: 65532, Group: 65532})
	fatal(err)
	pids := []any{os.Getpid()}
	for _, argv := range [][]string{append(attachment.Launcher, "sleep", "3600"), append(contained, "sleep", "3600")} {
		p, err := process.Start(process.Spec{Name: "in the pod", Path: argv[0], Args: argv[1:], Log: os.Stderr})
		fatal(err)
		becomeSleep(p)
		pids = append(pids, p.PID())
	}
	fatal(os.RemoveAll(dir))
	fmt.Println(pids...)
	select {}
}

// becomeSleep waits until the launcher has become the program.
func becomeSleep(p *process.Process) {
	for {
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.PID()))
		if strings.HasPrefix(string(line), "sleep") {
			return
		}
		select {
		case <-p.Done():
			fmt.Println("the launcher failed with", p.ExitCode())
			os.Exit(1)
		case <-time.After(time.Millisecond):
		}
	}
}

func fatal(err error) {
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

const (
	controlPort = "7000"
	echoPort    = "7001"
)

// podProgram runs in a pod: an echo server, and a control server through which the
// test makes it resolve names and talk to other pods.
func podProgram() {
	echo, err := net.Listen("tcp", ":"+echoPort)
	fatal(err)
	go func() {
		for {
			conn, err := echo.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(conn, conn) }()
		}
	}()
	var mu sync.Mutex
	connections := map[string]net.Conn{}
	say := func(w http.ResponseWriter, text string, err error) {
		switch {
		case timedOut(err):
			text = "timeout"
		case err != nil:
			text = "error: " + err.Error()
		}
		fmt.Fprint(w, text)
	}
	http.HandleFunc("/resolve", func(w http.ResponseWriter, r *http.Request) {
		addresses, err := net.DefaultResolver.LookupHost(r.Context(), r.FormValue("name"))
		var dns *net.DNSError
		if errors.As(err, &dns) && dns.IsNotFound {
			say(w, "not found", nil)
			return
		}
		say(w, strings.Join(addresses, ","), err)
	})
	http.HandleFunc("/open", func(w http.ResponseWriter, r *http.Request) {
		timeout, _ := time.ParseDuration(r.FormValue("timeout"))
		conn, err := net.DialTimeout("tcp", net.JoinHostPort(r.FormValue("to"), echoPort), timeout)
		if err == nil {
			mu.Lock()
			connections[r.FormValue("to")] = conn
			mu.Unlock()
		}
		say(w, "ok", err)
	})
	http.HandleFunc("/echo", func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		conn := connections[r.FormValue("to")]
		mu.Unlock()
		timeout, _ := time.ParseDuration(r.FormValue("timeout"))
		_ = conn.SetDeadline(time.Now().Add(timeout))
		_, err := fmt.Fprintln(conn, r.FormValue("text"))
		reader := bufio.NewReader(conn)
		for line := ""; err == nil && line != r.FormValue("text")+"\n"; {
			line, err = reader.ReadString('\n') // lines of earlier calls come first
		}
		say(w, "ok", err)
	})
	fatal(http.ListenAndServe(":"+controlPort, nil))
}

// timedOut reports whether no answer came, not even a refusal.
func timedOut(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}

// testPod is a pod that runs podProgram.
type testPod struct {
	t          *testing.T
	pod        Pod
	attachment Attachment
	process    *process.Process
	client     *http.Client
}

func startPod(t *testing.T, n *Namespaces, ordinal int, uid string) *testPod {
	t.Helper()
	name := fmt.Sprintf("etcd-%d", ordinal)
	p := &testPod{t: t, pod: Pod{Namespace: "ns", Name: name, UID: uid, Hostname: name, Subdomain: "etcd-peer"}}
	var err error
	p.attachment, err = n.Attach(context.Background(), p.pod)
	require.NoError(t, err)
	p.process, err = process.Start(process.Spec{
		Name: name, Path: os.Args[0], Env: append(os.Environ(), roleVariable+"=pod"),
		Launcher: p.attachment.Launcher, Log: os.Stderr,
	})
	require.NoError(t, err)
	p.client = &http.Client{Transport: &http.Transport{DialContext: p.attachment.Dial, DisableKeepAlives: true}}
	t.Cleanup(func() { require.NoError(t, p.process.Stop(context.Background(), 0)) })
	require.Eventually(t, func() bool {
		conn, err := p.attachment.Dial(context.Background(), "tcp", net.JoinHostPort(p.attachment.IP, controlPort))
		if err == nil {
			conn.Close()
		}
		return err == nil
	}, time.Minute, 5*time.Millisecond)
	return p
}

func (p *testPod) ask(path string, values ...string) string {
	p.t.Helper()
	query := url.Values{"timeout": {"60s"}}
	for i := 0; i < len(values); i += 2 {
		query.Set(values[i], values[i+1])
	}
	response, err := p.client.Get("http://" + net.JoinHostPort(p.attachment.IP, controlPort) + path +
		"?" + query.Encode())
	require.NoError(p.t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(p.t, err)
	return string(body)
}

// short is a deadline that must pass; nothing is asserted about how fast the rest is.
const short = "300ms"

func TestCut(t *testing.T) {
	whole := t // a pod started in one subtest serves the next ones too
	n := newNamespaces(t)
	a, b, c := startPod(t, n, 0, "a"), startPod(t, n, 1, "b"), startPod(t, n, 2, "c")
	aIP, bIP, cIP := a.attachment.IP, b.attachment.IP, c.attachment.IP
	dialHub := func(ip string, timeout time.Duration) error {
		conn, err := net.DialTimeout("tcp", net.JoinHostPort(ip, echoPort), timeout)
		if err == nil {
			conn.Close()
		}
		return err
	}
	for _, x := range []struct{ from, to *testPod }{{a, b}, {b, a}, {a, c}} {
		require.Equal(t, "ok", x.from.ask("/open", "to", x.to.attachment.IP))
		require.Equal(t, "ok", x.from.ask("/echo", "to", x.to.attachment.IP, "text", "before"))
	}

	t.Run("nothing passes a cut link in either direction, on old and new connections", func(t *testing.T) {
		require.NoError(t, n.Cut("etcd-0", "ns/etcd-1"))
		for _, x := range []struct{ from, to *testPod }{{a, b}, {b, a}} {
			require.Equal(t, "timeout",
				x.from.ask("/echo", "to", x.to.attachment.IP, "text", "during", "timeout", short))
			require.Equal(t, "timeout", x.from.ask("/open", "to", x.to.attachment.IP, "timeout", short))
		}
	})
	t.Run("other links stay", func(t *testing.T) {
		require.Equal(t, "ok", a.ask("/echo", "to", cIP, "text", "during"))
		require.NoError(t, dialHub(aIP, time.Minute))
	})
	t.Run("the successor of a pod inherits the cut", func(t *testing.T) {
		require.NoError(t, b.process.Stop(context.Background(), 0))
		require.NoError(t, n.Detach(context.Background(), b.pod))
		b = startPod(whole, n, 1, "b2")
		bIP = b.attachment.IP
		require.Equal(t, "timeout", b.ask("/open", "to", aIP, "timeout", short))
		require.Equal(t, "timeout", a.ask("/open", "to", bIP, "timeout", short))
	})
	t.Run("a healed link works again at once", func(t *testing.T) {
		require.NoError(t, n.Heal("etcd-1", "etcd-0"))
		require.Equal(t, "ok", a.ask("/open", "to", bIP))
		require.Equal(t, "ok", b.ask("/open", "to", aIP))
	})
	t.Run("a connection outlives a cut", func(t *testing.T) {
		require.NoError(t, n.Cut("etcd-0", "etcd-2"))
		require.Equal(t, "timeout", a.ask("/echo", "to", cIP, "text", "during", "timeout", short))
		require.NoError(t, n.Heal("etcd-0", "etcd-2"))
		require.Equal(t, "ok", a.ask("/echo", "to", cIP, "text", "after"))
	})
	t.Run("a pod that is cut off from the hub still talks to pods and to its kubelet", func(t *testing.T) {
		require.NoError(t, n.Cut("etcd-0", Hub))
		require.True(t, timedOut(dialHub(aIP, 300*time.Millisecond)))
		require.Equal(t, "ok", a.ask("/open", "to", bIP), "asked through Attachment.Dial")
		require.NoError(t, n.Heal("etcd-0", Hub))
		require.NoError(t, dialHub(aIP, time.Minute))
	})
	t.Run("an isolated pod reaches nobody, not even one that comes later, until it rejoins", func(t *testing.T) {
		require.NoError(t, n.Isolate("etcd-0"))
		later := startPod(t, n, 3, "d")
		for _, ip := range []string{bIP, cIP, later.attachment.IP, n.HubAddress()} {
			require.Equal(t, "timeout", a.ask("/open", "to", ip, "timeout", short), ip)
		}
		require.True(t, timedOut(dialHub(aIP, 300*time.Millisecond)))
		require.Equal(t, "timeout", later.ask("/open", "to", aIP, "timeout", short))
		require.Equal(t, "ok", later.ask("/open", "to", bIP))
		require.Equal(t, "ok", a.ask("/open", "to", "127.0.0.1"), "its own loopback")
		require.NoError(t, n.Rejoin("etcd-0"))
		require.Equal(t, "ok", later.ask("/open", "to", aIP))
		require.NoError(t, dialHub(aIP, time.Minute))
	})
	t.Run("healing one link leaves the others cut", func(t *testing.T) {
		require.NoError(t, n.Cut("etcd-0", "etcd-1"))
		require.NoError(t, n.Cut("etcd-0", "etcd-2"))
		require.NoError(t, n.Isolate("etcd-1"))
		require.NoError(t, n.Heal("etcd-0", "etcd-1"))
		require.Equal(t, "timeout", a.ask("/open", "to", bIP, "timeout", short), "isolated")
		require.Equal(t, "timeout", a.ask("/open", "to", cIP, "timeout", short))
		require.NoError(t, n.Rejoin("etcd-1"))
		require.NoError(t, n.Heal("etcd-0", "etcd-2"))
		require.Equal(t, "ok", a.ask("/open", "to", bIP))
		require.Equal(t, "ok", a.ask("/open", "to", cIP))
	})
	t.Run("a misspelt endpoint is an error", func(t *testing.T) {
		require.ErrorContains(t, n.Cut("etcd-0", "etcd-7"), `"etcd-7"`)
		require.ErrorContains(t, n.Isolate("ns/hub"), `"ns/hub"`)
		require.ErrorContains(t, n.Cut("etcd-0", "ns/etcd-0"), "itself")
	})
	t.Run("an ambiguous endpoint is an error", func(t *testing.T) {
		n.AddressOf("other", "etcd-0")
		require.ErrorContains(t, n.Isolate("etcd-0"), "ambiguous")
	})
}

// outside returns a command that runs the test binary as a harness that is not yet in
// namespaces of its own.
func outside(role string) *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, outsideVariable+"=") {
			cmd.Env = append(cmd.Env, variable)
		}
	}
	cmd.Env = append(cmd.Env, roleVariable+"="+role)
	return cmd
}

func TestReexec(t *testing.T) {
	needNamespaces(t)
	gone := func(pid int) func() bool {
		return func() bool {
			stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
			return err != nil || strings.Contains(string(stat), ") Z ")
		}
	}
	start := func(t *testing.T, role string) (*exec.Cmd, *bufio.Scanner) {
		cmd := outside(role)
		output, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		lines := bufio.NewScanner(output)
		require.True(t, lines.Scan())
		return cmd, lines
	}
	t.Run("the exit code is that of the inner process", func(t *testing.T) {
		err := outside("exit-7-inside").Run()
		var exit *exec.ExitError
		require.ErrorAs(t, err, &exit)
		require.Equal(t, 7, exit.ExitCode())
	})
	t.Run("signals are passed on", func(t *testing.T) {
		cmd, lines := start(t, "print-term-inside")
		inner, err := strconv.Atoi(lines.Text())
		require.NoError(t, err)
		require.NotEqual(t, cmd.Process.Pid, inner)
		require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
		require.True(t, lines.Scan())
		require.Equal(t, "terminated", lines.Text())
		require.NoError(t, cmd.Wait())
	})
	t.Run("the inner process dies with the outer", func(t *testing.T) {
		cmd, lines := start(t, "print-term-inside")
		inner, err := strconv.Atoi(lines.Text())
		require.NoError(t, err)
		require.NoError(t, cmd.Process.Kill())
		require.Eventually(t, gone(inner), time.Minute, 5*time.Millisecond)
		require.Error(t, cmd.Wait())
	})
	t.Run("processes in pods die with the harness", func(t *testing.T) {
		cmd, lines := start(t, "harness-with-a-pod")
		var pids []int
		for _, text := range strings.Fields(lines.Text()) {
			pid, err := strconv.Atoi(text)
			require.NoError(t, err, lines.Text())
			pids = append(pids, pid)
		}
		require.Len(t, pids, 3, lines.Text())
		for _, inPod := range pids[1:] {
			require.False(t, gone(inPod)())
		}
		require.NoError(t, syscall.Kill(pids[0], syscall.SIGKILL))
		for _, inPod := range pids[1:] {
			require.Eventually(t, gone(inPod), time.Minute, 5*time.Millisecond)
		}
		var exit *exec.ExitError
		require.ErrorAs(t, cmd.Wait(), &exit)
		require.Equal(t, 137, exit.ExitCode())
	})
	t.Run("a harness outside refuses to build a network on the host", func(t *testing.T) {
		outer := os.Getenv(outsideVariable)
		t.Setenv(outsideVariable, "")
		_, err := NewNamespaces(t.TempDir())
		require.ErrorContains(t, err, "ReexecInNamespace")
		ids, err := namespaceIDs()
		require.NoError(t, err)
		require.NotEqual(t, outer, ids)
		t.Setenv(outsideVariable, ids)
		_, err = NewNamespaces(t.TempDir())
		require.ErrorContains(t, err, "ReexecInNamespace", "a variable that names the namespace we are in")
	})
}
