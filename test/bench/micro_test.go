package bench

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// How long something may take that takes a moment, and how often it is looked for.
const (
	microPatience = time.Minute
	microTick     = 20 * time.Millisecond
)

// module writes a checkout with one package in each of its two modules.
func module(t *testing.T, test string) (root string) {
	t.Helper()
	root = t.TempDir()
	for _, dir := range []string{"", "test", "test/explorer"} {
		require.NoError(t, os.MkdirAll(filepath.Join(root, dir), 0o755))
	}
	for file, text := range map[string]string{
		"go.mod": "module a\n\ngo 1.26.0\n", "a_test.go": test,
		"test/go.mod": "module a/test\n\ngo 1.26.0\n", "test/explorer/e_test.go": test,
	} {
		require.NoError(t, os.WriteFile(filepath.Join(root, file), []byte(text), 0o644))
	}
	return root
}

func TestMicroReturnsWhatBenchstatReads(t *testing.T) {
	root := module(t, "package a\n\nimport \"testing\"\n\nfunc BenchmarkIt(b *testing.B) {\n\tfor b.Loop() "+
		"{\n\t}\n}\n\nfunc TestIt(t *testing.T) { t.Error(\"tests do not run\") }\n")
	var said []string
	out, err := Micro(t.Context(), root, true, func(line string) { said = append(said, line) })
	require.NoError(t, err)
	require.Equal(t, []string{"micro-benchmarks of a", "micro-benchmarks of a/test/explorer"}, said)
	require.Equal(t, 2, strings.Count(out, "\nBenchmarkIt"), out)
	require.Equal(t, 2, strings.Count(out, " allocs/op\n"), out)
	require.Contains(t, out, "\npkg: a\n")
	require.Contains(t, out, "\ncpu: ")
}

func TestMicroSaysWhatFailed(t *testing.T) {
	root := module(t,
		"package a\n\nimport \"testing\"\n\nfunc BenchmarkIt(b *testing.B) { b.Fatal(\"the world is flat\") }\n")
	_, err := Micro(t.Context(), root, true, func(string) {})
	require.ErrorContains(t, err, "the world is flat")
	require.ErrorContains(t, err, "./...")
}

func TestMicroEndsWithItsContextAndLeavesNoProcess(t *testing.T) {
	// The benchmark never ends by itself; it writes down who it is.
	mark := filepath.Join(t.TempDir(), "pid")
	root := module(t, "package a\n\nimport (\n\t\"os\"\n\t\"strconv\"\n\t\"testing\"\n\t\"time\"\n)\n\nfunc "+
		"BenchmarkIt(b *testing.B) {\n\t_ = os.WriteFile("+
		"os.Getenv(\"MARK\"), []byte(strconv.Itoa(os.Getpid())), 0o644)\n\t<-time.After(time.Hour)\n}\n")
	t.Setenv("MARK", mark)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := Micro(ctx, root, true, func(string) {})
		ended <- err
	}()
	var pid []byte
	require.Eventually(t, func() bool { pid, _ = os.ReadFile(mark); return len(pid) > 0 }, microPatience, microTick,
		"the benchmark begins")
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
	require.Eventually(t, func() bool {
		_, err := os.Stat("/proc/" + string(pid))
		return os.IsNotExist(err)
	}, microPatience, microTick, "process %s is still there", pid)
}

func TestTheMakefileRunsTheSame(t *testing.T) {
	makefile, err := os.ReadFile("../../Makefile")
	require.NoError(t, err)
	for _, m := range microbenchmarks {
		command := "go " + strings.Join(microArgs("$(BENCH_COUNT)", "$(BENCH_TIME)", m.packages), " ")
		command = strings.Replace(command, "^$", "'^$$'", 1)
		if m.dir != "." {
			command = "cd " + m.dir + " && " + command
		}
		require.Contains(t, string(makefile), command)
	}
	require.Contains(t, string(makefile), "\nBENCH_COUNT ?= "+microCount+"\nBENCH_TIME ?= "+microTime+"\n")
}
