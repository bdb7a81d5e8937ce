package process_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/quorate/quorate/test/harness/process"
)

// The test binary plays the harness that dies: with this variable set it starts a
// child, prints the child's PID and then kills itself.
const dieWithChild = "QUORATE_TEST_DIE_WITH_CHILD"

// Go never ends a program's first thread, whatever happens to the goroutine that is locked to
// it. So the first thread belongs to the main goroutine here, and no test can be given it.
func init() { runtime.LockOSThread() }

func TestMain(m *testing.M) {
	if os.Getenv(dieWithChild) != "" {
		harnessThatDies()
	}
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction(process.SpawnerGoroutine))
}

func harnessThatDies() {
	p, err := process.Start(process.Spec{Name: "child", Path: "sleep", Args: []string{"3600"}})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(p.PID())
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

func shell(t *testing.T, script string, change ...func(*process.Spec)) *process.Process {
	t.Helper()
	spec := process.Spec{Name: "test shell", Path: "/bin/sh", Args: []string{"-c", script}}
	for _, c := range change {
		c(&spec)
	}
	p, err := process.Start(spec)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Stop(context.Background(), 0)) })
	return p
}

// deadline bounds waits that must succeed; it is generous since machines are busy.
func deadline(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func wait(t *testing.T, p *process.Process) {
	t.Helper()
	select {
	case <-p.Done():
	case <-deadline(t).Done():
		t.Fatalf("process %d has not ended", p.PID())
	}
}

// pipe gives the reading end of the process's output, line by line.
func pipe(t *testing.T) (*bufio.Scanner, func(*process.Spec)) {
	r, w, err := os.Pipe()
	require.NoError(t, err)
	t.Cleanup(func() { r.Close(); w.Close() })
	return bufio.NewScanner(r), func(s *process.Spec) { s.Log = w }
}

func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	// State is the first field after the command's closing bracket.
	return !strings.HasPrefix(string(stat[bytes.LastIndexByte(stat, ')')+1:]), " Z")
}

func TestExit(t *testing.T) {
	t.Run("the exit code is the program's own", func(t *testing.T) {
		p := shell(t, "exit 7")
		wait(t, p)
		require.Equal(t, 7, p.ExitCode())
		require.Zero(t, p.ExitSignal())
		require.False(t, p.Ended().Before(p.Started()))
	})
	t.Run("a signal gives 128 plus its number", func(t *testing.T) {
		p := shell(t, "sleep 3600")
		require.NoError(t, p.Signal(syscall.SIGKILL))
		wait(t, p)
		require.Equal(t, 137, p.ExitCode())
		require.Equal(t, syscall.SIGKILL, p.ExitSignal())
	})
	t.Run("no zombie stays when nobody waits", func(t *testing.T) {
		p := shell(t, "exit 0")
		wait(t, p)
		_, err := os.Stat(fmt.Sprintf("/proc/%d", p.PID()))
		require.ErrorIs(t, err, os.ErrNotExist)
	})
	t.Run("a signal after the end is refused", func(t *testing.T) {
		p := shell(t, "exit 0")
		wait(t, p)
		require.ErrorIs(t, p.Signal(syscall.SIGTERM), os.ErrProcessDone)
	})
	t.Run("descendants of the group are gone when the process is done", func(t *testing.T) {
		lines, output := pipe(t)
		p := shell(t, `(sleep 3600 & echo $!; wait) & echo $!; wait`, output)
		var pids []int
		for range 2 {
			require.True(t, lines.Scan())
			pid, err := strconv.Atoi(lines.Text())
			require.NoError(t, err)
			pids = append(pids, pid)
		}
		// Only the shell is killed; a child and a grandchild outlive it.
		require.NoError(t, syscall.Kill(p.PID(), syscall.SIGKILL))
		wait(t, p)
		for _, pid := range pids {
			_, err := os.Stat(fmt.Sprintf("/proc/%d", pid))
			require.ErrorIs(t, err, os.ErrNotExist, "descendant %d", pid)
		}
	})
}

func TestStop(t *testing.T) {
	t.Run("SIGTERM comes first and the process may finish its work", func(t *testing.T) {
		lines, output := pipe(t)
		p := shell(t, `trap 'exit 3' TERM; echo ready; while :; do sleep 0.01; done`, output)
		require.True(t, lines.Scan())
		require.NoError(t, p.Stop(deadline(t), time.Minute))
		require.Equal(t, 3, p.ExitCode())
	})
	t.Run("a process that ignores SIGTERM is killed after the grace", func(t *testing.T) {
		lines, output := pipe(t)
		p := shell(t, `trap '' TERM; echo ready; while :; do sleep 0.01; done`, output)
		require.True(t, lines.Scan())
		begin := time.Now()
		require.NoError(t, p.Stop(deadline(t), 200*time.Millisecond))
		require.GreaterOrEqual(t, time.Since(begin), 200*time.Millisecond)
		require.Equal(t, 137, p.ExitCode())
	})
	t.Run("the end of the context cuts the grace short", func(t *testing.T) {
		lines, output := pipe(t)
		p := shell(t, `trap '' TERM; echo ready; while :; do sleep 0.01; done`, output)
		require.True(t, lines.Scan())
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		defer cancel()
		require.NoError(t, p.Stop(ctx, time.Hour))
		require.Equal(t, 137, p.ExitCode())
	})
	t.Run("a process halted by SIGSTOP is continued so that it can end by itself", func(t *testing.T) {
		lines, output := pipe(t)
		p := shell(t, `trap 'exit 3' TERM; echo ready; while :; do sleep 0.01; done`, output)
		require.True(t, lines.Scan())
		require.NoError(t, p.Signal(syscall.SIGSTOP))
		require.NoError(t, p.Stop(deadline(t), time.Minute))
		require.Equal(t, 3, p.ExitCode())
	})
	t.Run("stopping a process that has ended is no error", func(t *testing.T) {
		p := shell(t, "exit 0")
		wait(t, p)
		require.NoError(t, p.Stop(deadline(t), time.Second))
	})
	t.Run("many may stop and signal at the same time", func(t *testing.T) {
		p := shell(t, "sleep 3600")
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() { _ = p.Stop(deadline(t), time.Minute) })
			all.Go(func() { _ = p.Signal(syscall.SIGTERM) })
		}
		all.Wait()
		require.Equal(t, 143, p.ExitCode())
	})
}

func TestSpec(t *testing.T) {
	t.Run("a missing program is named in the error", func(t *testing.T) {
		_, err := process.Start(process.Spec{Name: "member", Path: "/no/such/etcd"})
		require.ErrorContains(t, err, "member")
		require.ErrorContains(t, err, "/no/such/etcd")
	})
	t.Run("a missing program behind a launcher is an error of Start, not a crash", func(t *testing.T) {
		_, err := process.Start(process.Spec{Name: "member", Path: "/no/such/etcd", Launcher: []string{"/usr/bin/env"}})
		require.ErrorContains(t, err, "/no/such/etcd")
	})
	t.Run("two logs are refused", func(t *testing.T) {
		_, err := process.Start(process.Spec{Name: "x", Path: "true", Log: io.Discard, LogPath: "y"})
		require.ErrorContains(t, err, "LogPath")
	})
	t.Run("a log file is created with its directory and appended to", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "logs", "a.log")
		for _, word := range []string{"one", "two"} {
			wait(t, shell(t, "echo "+word+"; echo "+word+" >&2", func(s *process.Spec) { s.LogPath = path }))
		}
		content, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, "one\none\ntwo\ntwo\n", string(content))
	})
	t.Run("a writer has everything when the process is done", func(t *testing.T) {
		var buffer bytes.Buffer
		wait(t, shell(t, "echo out; echo err >&2", func(s *process.Spec) { s.Log = &buffer }))
		require.Equal(t, "out\nerr\n", buffer.String())
	})
	t.Run("environment and directory are exactly those given", func(t *testing.T) {
		var buffer bytes.Buffer
		dir, err := filepath.EvalSymlinks(t.TempDir())
		require.NoError(t, err)
		p, err := process.Start(process.Spec{Name: "env", Path: "/usr/bin/env", Env: []string{"A=1"},
			Dir: dir, Log: &buffer})
		require.NoError(t, err)
		wait(t, p)
		require.Contains(t, buffer.String(), "A=1\n")
		require.NotContains(t, buffer.String(), "PATH=")
	})
	t.Run("the launcher comes before the program", func(t *testing.T) {
		var buffer bytes.Buffer
		wait(t, shell(t, `echo "$WHO"`, func(s *process.Spec) {
			s.Launcher = []string{"/usr/bin/env", "WHO=launcher"}
			s.Log = &buffer
		}))
		require.Equal(t, "launcher\n", buffer.String())
	})
}

func TestChildOfAKilledHarness(t *testing.T) {
	t.Run("dies with it", func(t *testing.T) {
		harness := exec.Command(os.Args[0])
		harness.Env = append(os.Environ(), dieWithChild+"=1")
		output, err := harness.Output()
		require.ErrorContains(t, err, "killed")
		pid, err := strconv.Atoi(strings.TrimSpace(string(output)))
		require.NoError(t, err, "output %q", output)
		require.Eventually(t, func() bool { return !alive(pid) }, time.Minute, 5*time.Millisecond)
	})
	t.Run("survives the end of the thread that asked for the child", func(t *testing.T) {
		started := make(chan *process.Process, 1)
		thread := make(chan int, 1)
		go func() {
			// A goroutine that ends while locked takes its thread with it, unless that is the first one (see init).
			runtime.LockOSThread()
			thread <- syscall.Gettid()
			started <- shell(t, "exec sleep 3600")
		}()
		p, tid := <-started, <-thread
		require.Eventually(t, func() bool {
			_, err := os.Stat(fmt.Sprintf("/proc/self/task/%d", tid))
			return os.IsNotExist(err)
		}, time.Minute, time.Millisecond)
		require.NoError(t, p.Stop(deadline(t), time.Minute))
		require.Equal(t, 143, p.ExitCode(), "killed by the end of a thread")
	})
}
