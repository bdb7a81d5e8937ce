package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/quorate/quorate/test/bench"
	"github.com/quorate/quorate/test/bench/result"
	"github.com/quorate/quorate/test/harness"
)

// header says where and how it is measured.
func header(ctx context.Context, o options) (result.Header, error) {
	h := result.Header{
		Cores: runtime.NumCPU(), CPU: field("/proc/cpuinfo", "model name"), Go: runtime.Version(),
		Lanes: o.Lanes, Network: string(o.Network), Seed: o.Seed, Short: o.Short, Kubernetes: "unknown",
		Etcd:       []string{tag(harness.Etcd35), tag(harness.Etcd36)},
		StartDelay: bench.StartDelay.Seconds(), ReadinessPeriod: bench.ReadinessPeriod.Seconds(),
	}
	var kib int64
	if _, err := fmt.Sscan(field("/proc/meminfo", "MemTotal"), &kib); err == nil {
		h.MemoryMiB = kib >> 10
	}
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return h, fmt.Errorf("ask the kernel's version: %w", err)
	}
	h.Kernel = unix.ByteSliceToString(name.Release[:])
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			if m.Path == "k8s.io/kubernetes" {
				h.Kubernetes = m.Version
			}
		}
	}
	dir, err := root()
	if err != nil {
		return h, err
	}
	// Of a checkout without git the version is not known.
	if out, err := exec.CommandContext(ctx, "git", "-C", dir, "describe", "--always", "--dirty", "--abbrev=12").
		Output(); err == nil {
		h.Version = strings.TrimSpace(string(out))
	}
	return h, nil
}

// buildTheSame is true for two commits of this checkout between which nothing has changed of what is measured.
func buildTheSame(a, b string) bool {
	dir, err := root()
	return err == nil && productUnchanged(dir, a, b)
}

// productUnchanged is true for two commits between which the product's code has not changed, but for whole lines of
// comments. It is false if git does not know one of them, as with one that ends with "-dirty".
func productUnchanged(dir, a, b string) bool {
	if a == b {
		return true
	}
	return exec.Command("git", "-C", dir, "diff", "--quiet",
		"--ignore-matching-lines", `^[[:space:]]*//( |$)`, "--end-of-options", a, b, "--",
		"cmd", "coordinator", "deploy", "internal", "pkg", "go.mod", "go.sum", ":(exclude)*_test.go").Run() == nil
}

func tag(image string) string { return image[strings.LastIndexByte(image, ':')+1:] }

// field is the value of the first line with that name in one of the kernel's tables; empty
// if there is none.
func field(file, name string) string {
	f, err := os.Open(file)
	if err != nil {
		return ""
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if before, value, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(before) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
