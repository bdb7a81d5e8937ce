package bench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// microbenchmarks are the runs of go test that make them up: the library's own, and the explorer's,
// which lives in another module. `make bench-micro` does the same.
var microbenchmarks = []struct{ dir, packages string }{
	{".", "./..."},
	{"test", "./explorer"},
}

// How often and how long each micro-benchmark runs: six runs are the fewest of which benchstat
// gives an interval, and everything takes about two minutes. Short runs each once.
const (
	microCount, microTime           = "6", "200ms"
	microCountShort, microTimeShort = "1", "1x"
)

// microArgs are the arguments of the go command.
func microArgs(count, benchtime, packages string) []string {
	return []string{"test", "-run", "^$", "-bench", ".", "-benchmem", "-count", count, "-benchtime", benchtime, packages}
}

// Micro runs the micro-benchmarks of the checkout at root and returns what go test prints, for
// benchstat. With short each runs once, which only shows that they run. What is
// under way is told to say. Cancelling ctx ends all processes at once.
func Micro(ctx context.Context, root string, short bool, say func(string)) (string, error) {
	count, benchtime := microCount, microTime
	if short {
		count, benchtime = microCountShort, microTimeShort
	}
	var out strings.Builder
	for _, m := range microbenchmarks {
		if err := goTest(ctx, filepath.Join(root, m.dir), microArgs(count, benchtime, m.packages), &out, say); err != nil {
			return out.String(), fmt.Errorf("micro-benchmarks in %s (%s): %w", filepath.Join(root, m.dir), m.packages, err)
		}
	}
	return out.String(), nil
}

func goTest(ctx context.Context, dir string, args []string, out *strings.Builder, say func(string)) error {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	// As the other programs of the benchmarks are built, so that cgo's cost is in no figure.
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	// The go command's children end with it: they are what takes the time.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	var complaints strings.Builder
	cmd.Stderr = &complaints
	lines, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	scanner := bufio.NewScanner(lines)
	for scanner.Scan() {
		line := scanner.Text()
		out.WriteString(line + "\n")
		if pkg, ok := strings.CutPrefix(line, "pkg: "); ok {
			say("micro-benchmarks of " + pkg)
		}
	}
	err = errors.Join(scanner.Err(), cmd.Wait())
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("go %s: %w: %s", strings.Join(args, " "), err, tail(out.String()+complaints.String()))
	}
	return nil
}

// tail is the end of a long output, where go test says what failed.
func tail(text string) string {
	const most = 2000
	return text[max(0, len(text)-most):]
}
