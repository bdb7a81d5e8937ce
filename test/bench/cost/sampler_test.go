package cost

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorate/quorate/test/harness"
)

// spenderVariable makes the test binary a program that spends.
const spenderVariable = "QUORATE_TEST_SPENDER"

// spend uses 50 ms of processor time and 8 MiB more for every line that it reads, and then
// answers with a line.
func spend() {
	var kept [][]byte
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); fmt.Println(len(kept)) {
		block := make([]byte, 8<<20)
		for i := 0; i < len(block); i += os.Getpagesize() {
			block[i] = 1
		}
		kept = append(kept, block)
		began, _ := harness.ProcessorTime(os.Getpid())
		for now := began; now-began < 50*time.Millisecond; now, _ = harness.ProcessorTime(os.Getpid()) {
		}
	}
}

// spender is such a process.
type spender struct {
	t       *testing.T
	command *exec.Cmd
	in      io.WriteCloser
	out     *bufio.Reader
}

func newSpender(t *testing.T) *spender {
	t.Helper()
	s := &spender{t: t, command: exec.Command(os.Args[0])}
	s.command.Env = append(os.Environ(), spenderVariable+"=1")
	var err error
	s.in, err = s.command.StdinPipe()
	require.NoError(t, err)
	out, err := s.command.StdoutPipe()
	require.NoError(t, err)
	s.out = bufio.NewReader(out)
	require.NoError(t, s.command.Start())
	t.Cleanup(s.end)
	s.spend()
	return s
}

func (s *spender) pid() int { return s.command.Process.Pid }

// spend makes the process spend once.
func (s *spender) spend() {
	s.t.Helper()
	_, err := io.WriteString(s.in, "\n")
	require.NoError(s.t, err)
	_, err = s.out.ReadString('\n')
	require.NoError(s.t, err)
}

func (s *spender) end() {
	_ = s.in.Close()
	_ = s.command.Wait()
}

// spent is the processor time of the process.
func (s *spender) spent() float64 {
	s.t.Helper()
	d, err := harness.ProcessorTime(s.pid())
	require.NoError(s.t, err)
	return d.Seconds()
}

func TestATallyOfProcesses(t *testing.T) {
	pids := map[string]int{}
	l := tally{find: func() map[string]int { return pids }, running: map[string]sample{}}
	old, other := newSpender(t), newSpender(t)
	pids["a-0"], pids["a-1"] = old.pid(), other.pid()
	before := old.spent()
	l.look(true)
	require.Equal(t, 2, l.usage.Processes)
	require.Zero(t, l.usage.CPUSeconds, "what was spent before does not count")

	old.spend()
	spent := old.spent() - before
	l.look(false)
	l.look(false)
	require.GreaterOrEqual(t, l.usage.CPUSeconds, 0.05)
	require.Less(t, l.usage.CPUSeconds, spent+other.spent(), "what was spent since then")
	memory, err := harness.MemoryOf(old.pid())
	require.NoError(t, err)
	require.GreaterOrEqual(t, l.usage.Anonymous, 16.0, "of the one that has most")
	require.LessOrEqual(t, l.usage.Anonymous, memory.AnonymousMiB()+8)
	require.GreaterOrEqual(t, l.usage.Resident, l.usage.Anonymous)

	sofar := l.usage.CPUSeconds
	old.end()
	l.look(false)
	require.GreaterOrEqual(t, l.usage.CPUSeconds, sofar, "what has ended counts")
	require.Equal(t, 2, l.usage.Processes)

	fresh := newSpender(t)
	pids["a-0"] = fresh.pid()
	delete(pids, "a-1")
	sofar = l.usage.CPUSeconds
	l.look(false)
	require.Equal(t, 3, l.usage.Processes)
	require.GreaterOrEqual(t, l.usage.CPUSeconds-sofar, 0.05, "all that a process spent which came later")
}

func TestALauncherIsNotYetTheContainersProgram(t *testing.T) {
	program, err := os.Readlink("/proc/self/exe")
	require.NoError(t, err)
	s := newSpender(t)
	l := tally{find: func() map[string]int { return map[string]int{"a-0": s.pid()} }, launcher: program,
		running: map[string]sample{}}
	l.look(true)
	l.look(false)
	require.Zero(t, l.usage)
	l.launcher = "/something/else"
	l.look(false)
	require.Equal(t, 1, l.usage.Processes)
	require.GreaterOrEqual(t, l.usage.CPUSeconds, 0.05)
}

func TestASamplerLooksUntilItIsStopped(t *testing.T) {
	looks := make(chan struct{})
	first := true
	s := startSampler(t.Context(), func() map[string]int {
		if !first {
			<-looks
		}
		first = false
		return map[string]int{"gone": 1 << 30}
	})
	looks <- struct{}{}
	looks <- struct{}{}
	close(looks)
	require.Zero(t, s.Stop(), "a process that does not run needs nothing")
	require.Zero(t, s.Stop(), "as often as one likes")
}
