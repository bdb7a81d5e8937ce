package build_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorate/quorate/test/harness/build"
)

// fakeGo is a go command that compiles nothing. It notes what it is asked for, and a test can give it more to do in a
// file that is called like that: "list kube", or "build kube".
const fakeGo = `#!/bin/sh
for last; do :; done
case "$*" in *" -o "*) out=${*#* -o }; out=${out%% *};; esac
call="$1 $(basename "$last")"
echo "$call" >>"$FAKE/calls"
if [ "$1" = list ]; then
	echo 'go: downloading example.org/a v1.0.0' >&2
	printf '%s\n' unsafe fmt "example.org/$(basename "$last")"
fi
[ ! -e "$FAKE/$call" ] || . "$FAKE/$call" || exit 1
[ "$1" != build ] || { printf '%s\n' fmt "example.org/$(basename "$last")"; echo "$call" >"$out"; }
`

// fake puts fakeGo in the place of go, in a repository of its own, and returns its folder.
func fake(t *testing.T, calls map[string]string) string {
	t.Helper()
	newRepository(t)
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go"), []byte(fakeGo), 0o755))
	for call, does := range calls {
		require.NoError(t, os.WriteFile(filepath.Join(dir, call), []byte(does), 0o644))
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	t.Setenv("FAKE", dir)
	return dir
}

func calls(t *testing.T, fake string) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(fake, "calls"))
	require.NoError(t, err)
	require.NoError(t, os.Remove(filepath.Join(fake, "calls")))
	return strings.Split(strings.TrimSpace(string(text)), "\n")
}

// await is shell that waits for a file of the fake's.
func await(file string) string {
	return fmt.Sprintf("until [ -e \"$FAKE/%s\" ]; do sleep 0.01; done\n", file)
}

func touch(file string) string { return fmt.Sprintf(": >\"$FAKE/%s\"\n", file) }

// recorder is a watcher that remembers.
type recorder struct {
	mu              sync.Mutex
	moved, finished []string
	onMoved         func(build.State)
}

func (r *recorder) Moved(s build.State) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.moved = append(r.moved, s.String())
	if r.onMoved != nil {
		r.onMoved(s)
	}
}

func (r *recorder) Finished(target build.Target, s build.State, how string) {
	how, _, _ = strings.Cut(how, " in ")
	r.finished = append(r.finished, fmt.Sprintf("%s, %d of %d, %s", target, s.Nth, s.Of, how))
}

func (r *recorder) Told(string) {}

func TestModulesAreDownloadedWhileSomethingElseIsCompiled(t *testing.T) {
	// Each of the two waits for the other.
	f := fake(t, map[string]string{
		"list kube":     await("compiling") + touch("downloading"),
		"build quorate": touch("compiling") + await("downloading"),
	})
	var r recorder
	binaries, err := build.Watch(deadline(t), &r, []build.Target{build.Quorate, build.Kube})
	require.NoError(t, err)
	require.FileExists(t, binaries.Quorate)
	require.FileExists(t, binaries.Kube)
	require.ElementsMatch(t, []string{"list quorate", "list kube", "build quorate", "build kube"}, calls(t, f))
	require.Equal(t, []string{"quorate, 1 of 2, built", "kube, 2 of 2, built"}, r.finished)
	require.Contains(t, r.moved, "quorate (1 of 2): downloading, 1 modules")
	require.Contains(t, r.moved, "quorate (1 of 2); kube: 1 modules")
	require.Contains(t, r.moved, "kube (2 of 2): 1 of 2 packages")
	require.Equal(t, "kube (2 of 2): linking", r.moved[len(r.moved)-1])

	t.Run("what is in the cache counts as compiled", func(t *testing.T) {
		require.NoError(t, os.WriteFile(filepath.Join(f, "build kube"), []byte(
			"echo example.org/kube; echo built >\"$out\"; exit"), 0o644))
		require.NoError(t, os.Remove(binaries.Kube))
		_, err := build.Watch(deadline(t), &r, []build.Target{build.Kube})
		require.NoError(t, err)
		require.Equal(t, "kube (1 of 1): linking", r.moved[len(r.moved)-1])
		require.NoError(t, os.Remove(filepath.Join(f, "build kube")))
		calls(t, f)
	})
	t.Run("what has been built needs no look at its modules", func(t *testing.T) {
		_, err := build.Watch(deadline(t), &r, []build.Target{build.Quorate, build.Kube})
		require.NoError(t, err)
		require.Equal(t, []string{"build quorate", "build kube"}, calls(t, f))
	})
}

func TestModulesOfWhatIsAheadAreDownloadedAsLongAsSomethingIsCompiled(t *testing.T) {
	f := fake(t, map[string]string{
		"list kube":  touch("downloading") + "sleep 1000",
		"build demo": await("downloading"),
	})
	binaries, err := build.Watch(deadline(t), &recorder{}, []build.Target{build.Demo}, build.Kube, build.Host)
	require.NoError(t, err)
	require.Equal(t, "demo", filepath.Base(binaries.Demo))
	require.Empty(t, binaries.Kube)
	require.ElementsMatch(t, []string{"list demo", "build demo", "list kube"}, calls(t, f), "nobody waits for it")
}

func TestABuildThatIsInterrupted(t *testing.T) {
	f := fake(t, map[string]string{
		"build quorate": "touch \"$GOTMPDIR/half\"; sleep 1000 & echo $! >\"$FAKE/pid\"; echo fmt; wait",
		"list kube":     await("never"),
	})
	ctx, interrupt := context.WithCancel(deadline(t))
	r := recorder{onMoved: func(s build.State) {
		if s.Packages == 1 {
			interrupt()
		}
	}}
	began := time.Now()
	_, err := build.Watch(ctx, &r, []build.Target{build.Quorate, build.Kube})
	require.ErrorIs(t, err, context.Canceled)
	require.Less(t, time.Since(began), patience/2, "nobody waits for a compiler")

	root, err := build.Root()
	require.NoError(t, err)
	require.NoDirExists(t, filepath.Join(root, ".build", "tmp"), "no half result is left")
	text, err := os.ReadFile(filepath.Join(f, "pid"))
	require.NoError(t, err)
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	require.NoError(t, err)
	require.ErrorIs(t, syscall.Kill(pid, 0), syscall.ESRCH, "nor a compiler")

	t.Run("goes on at the next start", func(t *testing.T) {
		require.NoError(t, os.Remove(filepath.Join(f, "build quorate")))
		require.NoError(t, os.Remove(filepath.Join(f, "list kube")))
		_, err := build.Watch(deadline(t), &recorder{}, []build.Target{build.Quorate, build.Kube})
		require.NoError(t, err)
	})
}

func TestAFailureHasTheLastLinesAndSaysWhatToDo(t *testing.T) {
	for call, c := range map[string]struct{ says, want string }{
		"list kube": {`Get "https://proxy.golang.org/a": dial tcp: no route to host`,
			"Modules could not be downloaded. Look at the network and at GOPROXY"},
		"build kube":   {"link: write x: no space left on device", "Free some space"},
		"list quorate": {"verifying a@v1.0.0: checksum mismatch", "A module is not the one of go.sum"},
		"build quorate": {"k8s.io/api: compile: signal: killed",
			"The machine ran out of memory. GOFLAGS=-p=1 compiles one package at a time"},
	} {
		t.Run(call, func(t *testing.T) {
			fake(t, map[string]string{call: "for i in $(seq 100); do echo \"go: downloading example.org/$i v1\"; " +
				"echo \"line $i: said\"; done\necho '" + c.says + "'; false"})
			_, err := build.Watch(deadline(t), &recorder{}, []build.Target{build.Quorate, build.Kube})
			_, target, _ := strings.Cut(call, " ")
			require.ErrorContains(t, err, "build "+target+": go ")
			require.ErrorContains(t, err, "\nline 100: said\n"+c.says+"\n"+c.want)
			require.NotContains(t, err.Error(), "line 1: said", "only the last lines")
			require.NotContains(t, err.Error(), "downloading example", "what went well is no cause")
		})
	}
}

func TestAStateInOneLine(t *testing.T) {
	for want, s := range map[string]build.State{
		"kube (2 of 4)":                          {},
		"kube (2 of 4): 7 packages":              {Packages: 7},
		"kube (2 of 4): 7 of 2286 packages":      {Packages: 7, All: 2286},
		"kube (2 of 4): linking":                 {Packages: 2286, All: 2286},
		"kube (2 of 4): downloading, 12 modules": {Fetching: build.Kube, Modules: 12},
		"kube (2 of 4): 1812 of 2286 packages; druid-0.37.1: 12 modules": {Packages: 1812, All: 2286,
			Fetching: build.Druid, Modules: 12},
	} {
		s.Target, s.Nth, s.Of = build.Kube, 2, 4
		require.Equal(t, want, s.String())
	}
}
