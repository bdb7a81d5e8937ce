package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/quorate/quorate/test/harness/process"
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
	microCount, microTime           = "6", "100ms"
	microCountShort, microTimeShort = "1", "1x"
)

// microArgs are the arguments of the go command.
func microArgs(count, benchtime, packages string) []string {
	return []string{"test", "-run", "^$", "-bench", ".", "-benchmem", "-count", count, "-benchtime",
		benchtime, packages}
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
		if err := goTest(ctx, filepath.Join(root, m.dir), microArgs(count, benchtime, m.packages), &out,
			say); err != nil {
			return out.String(), fmt.Errorf("micro-benchmarks in %s (%s): %w", filepath.Join(root, m.dir),
				m.packages, err)
		}
	}
	return out.String(), nil
}

// CompileMicro compiles the micro-benchmarks and fetches what they need. Micro does so itself where
// modules can be fetched.
func CompileMicro(ctx context.Context, root string, say func(string)) error {
	for _, m := range microbenchmarks {
		dir := filepath.Join(root, m.dir)
		if err := goTest(ctx, dir, []string{"test", "-run", "^$", m.packages}, io.Discard, say); err != nil {
			return fmt.Errorf("compile the micro-benchmarks in %s (%s): %w", dir, m.packages, err)
		}
	}
	return nil
}

func goTest(ctx context.Context, dir string, args []string, out io.Writer, say func(string)) error {
	goTool, err := exec.LookPath("go")
	if err != nil {
		return fmt.Errorf("the micro-benchmarks need the go command: %w", err)
	}
	both := &benchLog{out: out, say: say}
	p, err := process.Start(process.Spec{
		Name: "go test", Path: goTool, Args: args, Dir: dir, Log: both,
		// As the sidecar is built.
		Env: append(os.Environ(), "CGO_ENABLED=0"),
	})
	if err != nil {
		return err
	}
	select {
	case <-p.Done():
	case <-ctx.Done():
		// Nothing of it is worth waiting for; the benchmarks are children of the go command and
		// end with it.
		return errors.Join(ctx.Err(), p.Stop(context.WithoutCancel(ctx), 0))
	}
	if code := p.ExitCode(); code != 0 {
		return fmt.Errorf("go %s: exit code %d:\n%s", strings.Join(args, " "), code, both.end)
	}
	return nil
}

// benchLog passes the output on, says which package it is about, and keeps its end, where go test
// says what failed.
type benchLog struct {
	out io.Writer
	say func(string)
	// line is what has come of the current line.
	line, end []byte
}

func (l *benchLog) Write(p []byte) (int, error) {
	const kept = 2000
	l.end = append(l.end, p...)
	l.end = l.end[max(0, len(l.end)-kept):]
	for line := range bytes.Lines(p) {
		if l.line = append(l.line, line...); !bytes.HasSuffix(l.line, []byte("\n")) {
			break
		}
		if pkg, ok := bytes.CutPrefix(l.line, []byte("pkg: ")); ok {
			l.say("micro-benchmarks of " + string(bytes.TrimSpace(pkg)))
		}
		l.line = l.line[:0]
	}
	return l.out.Write(p)
}
