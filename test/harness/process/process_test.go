package process_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
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

func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	// State is the first field after the command's closing bracket.
	return !strings.HasPrefix(string(stat[bytes.LastIndexByte(stat, ')')+1:]), " Z")
}

func TestTheDescendantsOfTheGroupAreGoneWhenTheProcessIsDone(t *testing.T) {
	output, log, err := os.Pipe()
	require.NoError(t, err)
	defer output.Close()
	defer log.Close()
	lines := bufio.NewScanner(output)
	p := shell(t, `(sleep 3600 & echo $!; wait) & echo $!; wait`, func(s *process.Spec) { s.Log = log })
	var pids []int
	for range 2 {
		require.True(t, lines.Scan())
		pid, err := strconv.Atoi(lines.Text())
		require.NoError(t, err)
		pids = append(pids, pid)
	}
	// Only the shell is killed; a child and a grandchild outlive it.
	require.NoError(t, syscall.Kill(p.PID(), syscall.SIGKILL))
	select {
	case <-p.Done():
	case <-time.After(time.Minute):
		t.Fatalf("process %d has not ended", p.PID())
	}
	for _, pid := range pids {
		_, err := os.Stat(fmt.Sprintf("/proc/%d", pid))
		require.ErrorIs(t, err, os.ErrNotExist, "descendant %d", pid)
	}
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
		require.NoError(t, p.Stop(t.Context(), time.Minute))
		require.Equal(t, 143, p.ExitCode(), "killed by the end of a thread")
	})
}
