package build_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/quorate/quorate/test/harness/build"
)

const patience = 10 * time.Minute

// The tests below build a tiny repository of the same layout, so that they can break
// it and change it.

func TestBuildIsIncremental(t *testing.T) {
	repository := newRepository(t)
	writeProgram(t, repository, "one")
	first := buildQuorate(t)
	require.Equal(t, filepath.Join(repository, ".build", "bin", "quorate"), first)
	require.Equal(t, "one", output(t, first))
	before := stat(t, first)

	t.Run("a program that has not changed is not built again", func(t *testing.T) {
		var lines []string
		_, err := build.Some(deadline(t), func(line string) { lines = append(lines, line) }, build.Quorate)
		require.NoError(t, err)
		require.Equal(t, []string{"quorate: up to date"}, lines)
		require.True(t, os.SameFile(before, stat(t, first)))
	})
	t.Run("a changed program is built, and whoever has the old file open keeps it whole", func(t *testing.T) {
		content, err := os.ReadFile(first)
		require.NoError(t, err)
		old, err := os.Open(first)
		require.NoError(t, err)
		defer old.Close()
		writeProgram(t, repository, "two")
		require.Equal(t, first, buildQuorate(t))
		require.Equal(t, "two", output(t, first))
		still, err := io.ReadAll(old)
		require.NoError(t, err)
		require.True(t, bytes.Equal(content, still), "the old program was overwritten")
	})
	t.Run("a program that somebody removed is built again", func(t *testing.T) {
		require.NoError(t, os.RemoveAll(filepath.Join(repository, ".build")))
		require.Equal(t, "two", output(t, buildQuorate(t)))
	})
}

func TestRaceDetectorOnRequest(t *testing.T) {
	repository := newRepository(t)
	writeProgram(t, repository, "plain")
	t.Setenv(build.RaceVariable, "1")
	t.Run("with a C compiler the sidecar gets the race detector, in a file of its own", func(t *testing.T) {
		if _, err := exec.LookPath("gcc"); err != nil {
			t.Skip("no gcc")
		}
		t.Setenv("CC", "gcc")
		path := buildQuorate(t)
		require.Equal(t, "quorate-race", filepath.Base(path))
		out, err := exec.Command("go", "version", "-m", path).Output()
		require.NoError(t, err)
		require.Contains(t, string(out), "-race=true")
	})
	t.Run("without one it is built without, and says so", func(t *testing.T) {
		t.Setenv("CC", "no-such-compiler")
		var lines []string
		binaries, err := build.Some(deadline(t), func(line string) { lines = append(lines, line) }, build.Quorate)
		require.NoError(t, err)
		require.Equal(t, "quorate", filepath.Base(binaries.Quorate))
		require.Contains(t, lines, `quorate: QUORATE_RACE=1 has no effect: C compiler "no-such-compiler" not found`)
	})
}

func TestFailures(t *testing.T) {
	repository := newRepository(t)
	t.Run("code that does not compile is quoted", func(t *testing.T) {
		require.NoError(t, os.WriteFile(filepath.Join(repository, "cmd", "quorate", "main.go"),
			[]byte("package main\n\nfunc main() { nonsense() }\n"), 0o644))
		_, err := build.Some(deadline(t), nil, build.Quorate)
		require.ErrorContains(t, err, "build quorate: ")
		require.ErrorContains(t, err, "main.go:3:15: undefined: nonsense")
	})
	t.Run("a target that does not exist is named", func(t *testing.T) {
		_, err := build.Some(deadline(t), nil, "nosuch")
		require.ErrorContains(t, err, `"nosuch"`)
	})
	t.Run("a build that has to wait for another one says so, and gives up with its context", func(t *testing.T) {
		file, err := os.OpenFile(filepath.Join(repository, ".build", "lock"), os.O_RDWR|os.O_CREATE, 0o644)
		require.NoError(t, err)
		defer file.Close()
		require.NoError(t, unix.Flock(int(file.Fd()), unix.LOCK_EX))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var lines []string
		_, err = build.Some(ctx, func(line string) {
			lines = append(lines, line)
			cancel()
		}, build.Quorate)
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, []string{"waiting for another process that is building"}, lines)
	})
	t.Run("a build whose context has ended leaves nothing locked", func(t *testing.T) {
		writeProgram(t, repository, "one")
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := build.Some(ended, nil, build.Quorate)
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, "one", output(t, buildQuorate(t)))
	})
	t.Run("outside a checkout the error says where to run", func(t *testing.T) {
		t.Chdir(t.TempDir())
		_, err := build.Some(deadline(t), nil, build.Quorate)
		require.ErrorContains(t, err, "run inside a checkout")
	})
}

func TestBuildsAtOnceTakeTurns(t *testing.T) {
	repository := newRepository(t)
	writeProgram(t, repository, "one")
	results := make(chan error)
	for range 3 {
		go func() {
			_, err := build.Some(deadline(t), nil, build.Quorate)
			results <- err
		}()
	}
	for range 3 {
		require.NoError(t, <-results)
	}
	require.Equal(t, "one", output(t, filepath.Join(repository, ".build", "bin", "quorate")))
}

func TestEtcd(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles etcd; run without -short")
	}
	binaries, err := build.Some(deadline(t), func(line string) { t.Log(line) }, build.Etcd34,
		build.Etcd35, build.Etcd36)
	require.NoError(t, err)
	for path, version := range map[string]string{binaries.Etcd34: "etcd Version: 3.4.",
		binaries.Etcd35: "etcd Version: 3.5.", binaries.Etcd36: "etcd Version: 3.6."} {
		out, err := exec.Command(path, "--version").Output()
		require.NoError(t, err)
		require.True(t, strings.HasPrefix(string(out), version), "%s: %s", path, out)
	}
	require.Empty(t, binaries.Kube, "it was not asked for")
}

func TestHosts(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles etcd-druid; run without -short")
	}
	binaries, err := build.Some(deadline(t), func(line string) { t.Log(line) }, build.Hosts...)
	if errors.Is(err, build.ErrNoHosts) {
		t.Skip(err)
	}
	require.NoError(t, err)
	for path, version := range map[string]string{binaries.Druid: "v0.37.1", binaries.BackupRestore: "v0.41.2",
		binaries.BackupRestoreNext: "v0.43.0", binaries.DropIn: "v0.43.0"} {
		out, err := exec.Command(path, "--version").CombinedOutput()
		require.NoError(t, err)
		require.Contains(t, string(out), version, path)
	}
	for path, etcd := range map[string]string{binaries.Wrapper34: "c123b3ea3db3", binaries.Wrapper35: "3.5.27"} {
		out, err := exec.Command("go", "version", "-m", path).Output()
		require.NoError(t, err)
		require.Regexp(t, `\tgo.etcd.io/etcd\S*\tv\S*`+regexp.QuoteMeta(etcd)+`\t`, string(out))
	}
	charts, err := build.Source(deadline(t), build.Druid)
	require.NoError(t, err)
	require.FileExists(t, filepath.Join(charts, "charts", "Chart.yaml"))
}

func TestAHostThatNobodyHas(t *testing.T) {
	repository := newRepository(t)
	module := filepath.Join(repository, "test", "hosts", string(build.Wrapper35))
	require.NoError(t, os.MkdirAll(module, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(module, "go.mod"),
		[]byte("module wrapper\n\nrequire github.com/gardener/etcd-wrapper v0.7.0\n"), 0o644))
	t.Setenv("GOMODCACHE", t.TempDir())
	t.Setenv("GOFLAGS", "-modcacherw")
	t.Setenv("GOPROXY", "off")

	t.Run("can be left out", func(t *testing.T) {
		t.Setenv(build.HostsVariable, "")
		_, err := build.Some(deadline(t), nil, build.Wrapper35)
		require.ErrorIs(t, err, build.ErrNoHosts)
		require.NotContains(t, err.Error(), "\n", "a test that skips says why in one line")
	})
	t.Run("is an error for whoever says where the hosts are", func(t *testing.T) {
		t.Setenv(build.HostsVariable, t.TempDir())
		_, err := build.Some(deadline(t), nil, build.Wrapper35)
		require.ErrorContains(t, err, "fetch github.com/gardener/etcd-wrapper")
		require.NotErrorIs(t, err, build.ErrNoHosts)
	})
	t.Run("is asked for at the usual proxies even if the folder is among them already", func(t *testing.T) {
		folder := t.TempDir()
		t.Setenv(build.HostsVariable, folder)
		t.Setenv("GOPROXY", "file://"+filepath.Join(folder, "goproxy")+",off")
		_, err := build.Some(deadline(t), nil, build.Wrapper35)
		require.ErrorContains(t, err, "disabled by GOPROXY=off", "the last one has the last word")
	})
}

// newRepository makes a repository with only a root module, and enters a directory in
// a nested module of it.
func newRepository(t *testing.T) string {
	t.Helper()
	// The working directory of a process has no symbolic links in its path.
	root, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	for _, dir := range []string{"cmd/quorate", "test/deep", ".build"} {
		require.NoError(t, os.MkdirAll(filepath.Join(root, dir), 0o755))
	}
	require.NoError(t, os.WriteFile(filepath.Join(root, "go.mod"),
		[]byte("// a comment\nmodule github.com/quorate/quorate // another\n\ngo 1.26\n"), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(root, "test", "go.mod"),
		[]byte("module github.com/quorate/quorate/test\n"), 0o644))
	t.Chdir(filepath.Join(root, "test", "deep"))
	return root
}

func writeProgram(t *testing.T, repository, says string) {
	t.Helper()
	program := "package main\n\nimport \"os\"\n\nfunc main() { os.Stdout.WriteString(\"" + says + "\") }\n"
	require.NoError(t, os.WriteFile(filepath.Join(repository, "cmd", "quorate", "main.go"), []byte(program), 0o644))
}

func buildQuorate(t *testing.T) string {
	t.Helper()
	binaries, err := build.Some(deadline(t), nil, build.Quorate)
	require.NoError(t, err)
	return binaries.Quorate
}

func output(t *testing.T, program string) string {
	t.Helper()
	out, err := exec.Command(program).Output()
	require.NoError(t, err)
	return string(out)
}

func stat(t *testing.T, path string) os.FileInfo {
	t.Helper()
	info, err := os.Stat(path)
	require.NoError(t, err)
	return info
}

func deadline(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}
