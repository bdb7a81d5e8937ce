package disk_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/quorate/quorate/test/harness/disk"
	"github.com/quorate/quorate/test/harness/network"
)

func TestMain(m *testing.M) {
	network.MaybeRunLauncher()
	if network.NamespacesAvailable() == nil {
		if err := network.ReexecInNamespace(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

func mounted(t *testing.T, slow bool) (*disk.Disk, string) {
	t.Helper()
	if err := network.NamespacesAvailable(); err != nil {
		require.Empty(t, os.Getenv(network.RequireVariable), "mounts are required but not available: %v", err)
		t.Skipf("needs mounts: %v", err)
	}
	if err := disk.SlowAvailable(); slow && err != nil {
		require.Empty(t, os.Getenv(network.RequireVariable), "%v", err)
		t.Skip(err)
	}
	dir := filepath.Join(t.TempDir(), "data")
	d, err := disk.New(dir, 8<<20, slow)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	return d, dir
}

func TestAFullDiskTakesNothingUntilItIsFreed(t *testing.T) {
	for _, slow := range []bool{false, true} {
		t.Run(fmt.Sprintf("with FUSE: %v", slow), func(t *testing.T) {
			d, dir := mounted(t, slow)
			path := filepath.Join(dir, "file")
			page := make([]byte, 64<<10)
			require.NoError(t, os.WriteFile(path, page, 0o600))
			require.NoError(t, d.Fill())
			require.ErrorIs(t, os.WriteFile(path+".more", page, 0o600), unix.ENOSPC)
			require.NoError(t, d.Free())
			require.NoError(t, os.WriteFile(path+".more", page, 0o600))
			require.NoError(t, d.Free(), "freeing twice does nothing")
			content, err := os.ReadFile(path)
			require.NoError(t, err)
			require.Equal(t, page, content)
		})
	}
}

func TestASlowDiskLetsEverySyncWaitAndNothingElse(t *testing.T) {
	d, dir := mounted(t, true)
	require.True(t, d.CanBeSlow())
	const delay = 700 * time.Millisecond
	file, err := os.Create(filepath.Join(dir, "file"))
	require.NoError(t, err)
	defer file.Close()
	sync := func() time.Duration {
		_, err := file.WriteString("x")
		require.NoError(t, err)
		began := time.Now()
		require.NoError(t, unix.Fdatasync(int(file.Fd())))
		return time.Since(began)
	}
	d.SetDelay(delay)
	require.GreaterOrEqual(t, sync(), delay)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	d.SetDelay(0)
	for sync() >= delay {
		require.NoError(t, ctx.Err(), "it stays slow")
	}
}

// Whoever inherits a file keeps its space, also when it is deleted.
func TestAProgramInheritsNothingOfASlowDiskFromWhoStartsIt(t *testing.T) {
	_, dir := mounted(t, true)
	created, err := os.Create(filepath.Join(dir, "file"))
	require.NoError(t, err)
	defer created.Close()
	opened, err := os.Open(created.Name())
	require.NoError(t, err)
	defer opened.Close()

	program := exec.CommandContext(t.Context(), "cat")
	stdin, err := program.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, program.Start())
	descriptors := fmt.Sprintf("/proc/%d/fd", program.Process.Pid)
	entries, err := os.ReadDir(descriptors)
	require.NoError(t, err)
	require.NotEmpty(t, entries)
	for _, entry := range entries {
		target, err := os.Readlink(filepath.Join(descriptors, entry.Name()))
		require.NoError(t, err)
		require.NotContains(t, target, dir)
	}
	require.NoError(t, stdin.Close())
	require.NoError(t, program.Wait())
}
