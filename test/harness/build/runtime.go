package build

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// runtimePackages are the packages of Debian, or of a system like it, that a real node needs beside Kubernetes: the
// container runtime, the plugins that give pods their network, and the shell of the images.
var runtimePackages = []string{"containerd", "runc", "containernetworking-plugins", "busybox-static"}

// ErrNoRuntime says that there is no container runtime for real nodes here.
var ErrNoRuntime = errors.New("the packages of a container runtime are not to be had")

// Runtime returns the folder with what runtimePackages hold. They are downloaded once, and unpacked, not installed.
func Runtime(ctx context.Context, progress func(line string)) (string, error) {
	return withBuilder(ctx, lines(progress), func(b *builder) (string, error) {
		b.target = "runtime"
		dir := filepath.Join(b.root, ".build", "runtime")
		if _, err := os.Stat(dir); err == nil {
			return dir, nil
		}
		for _, tool := range []string{"apt-get", "dpkg-deb"} {
			if _, err := exec.LookPath(tool); err != nil {
				return "", fmt.Errorf("%w: %w", ErrNoRuntime, err)
			}
		}
		b.report("downloading %s", strings.Join(runtimePackages, ", "))
		// What is there is whole: it gets its name when all of it has been unpacked.
		fresh := filepath.Join(tempDir(b.root), "runtime")
		if err := os.Mkdir(fresh, 0o755); err != nil {
			return "", err
		}
		apt := func(args ...string) error {
			command := exec.CommandContext(ctx, "apt-get", append([]string{"-qq"}, args...)...)
			command.Dir = fresh
			if out, err := command.CombinedOutput(); err != nil {
				return fmt.Errorf("%w: apt-get %s: %w: %s", ErrNoRuntime, args[0], err, oneLine(string(out)))
			}
			return nil
		}
		download := append([]string{"download"}, runtimePackages...)
		if err := apt(download...); err != nil {
			// A new machine knows no packages yet, and an old one those that were replaced since.
			if err := apt("update"); err != nil {
				return "", err
			}
			if err := apt(download...); err != nil {
				return "", err
			}
		}
		packages, err := filepath.Glob(filepath.Join(fresh, "*.deb"))
		if err != nil {
			return "", err
		}
		for _, file := range packages {
			if out, err := exec.CommandContext(ctx, "dpkg-deb", "-x", file, fresh).CombinedOutput(); err != nil {
				return "", fmt.Errorf("unpack %s: %w: %s", file, err, oneLine(string(out)))
			}
			if err := os.Remove(file); err != nil {
				return "", err
			}
		}
		return dir, os.Rename(fresh, dir)
	})
}
