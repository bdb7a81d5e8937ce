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

// ErrNoEmulator says that programs of another architecture cannot be run here.
var ErrNoEmulator = errors.New("qemu-user-static is not to be had")

// Runtime returns the folder with what runtimePackages hold.
func Runtime(ctx context.Context, progress func(line string)) (string, error) {
	return unpacked(ctx, progress, "runtime", ErrNoRuntime, runtimePackages...)
}

// Emulator returns a program that runs static programs of an architecture, as Go calls it.
func Emulator(ctx context.Context, progress func(line string), arch string) (string, error) {
	name := "qemu-" + map[string]string{"arm64": "aarch64", "amd64": "x86_64"}[arch] + "-static"
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	dir, err := unpacked(ctx, progress, "qemu", ErrNoEmulator, "qemu-user-static")
	return filepath.Join(dir, "usr", "bin", name), err
}

// unpacked returns the folder with what packages hold. They are downloaded once, and unpacked, not installed.
func unpacked(ctx context.Context, progress func(line string), name string, missing error, packages ...string) (
	string, error) {
	return withBuilder(ctx, lines(progress), func(b *builder) (string, error) {
		b.target = Target(name)
		dir := filepath.Join(b.root, ".build", name)
		if _, err := os.Stat(dir); err == nil {
			return dir, nil
		}
		for _, tool := range []string{"apt-get", "dpkg-deb"} {
			if _, err := exec.LookPath(tool); err != nil {
				return "", fmt.Errorf("%w: %w", missing, err)
			}
		}
		b.report("downloading %s", strings.Join(packages, ", "))
		// What is there is whole: it gets its name when all of it has been unpacked.
		fresh := filepath.Join(tempDir(b.root), name)
		if err := os.Mkdir(fresh, 0o755); err != nil {
			return "", err
		}
		apt := func(args ...string) error {
			command := exec.CommandContext(ctx, "apt-get", append([]string{"-qq"}, args...)...)
			command.Dir = fresh
			if out, err := command.CombinedOutput(); err != nil {
				return fmt.Errorf("%w: apt-get %s: %w: %s", missing, args[0], err, oneLine(string(out)))
			}
			return nil
		}
		download := append([]string{"download"}, packages...)
		if err := apt(download...); err != nil {
			// A new machine knows no packages yet, and an old one those that were replaced since.
			if err := apt("update"); err != nil {
				return "", err
			}
			if err := apt(download...); err != nil {
				return "", err
			}
		}
		files, err := filepath.Glob(filepath.Join(fresh, "*.deb"))
		if err != nil {
			return "", err
		}
		for _, file := range files {
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
