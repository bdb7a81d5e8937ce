package network

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/quorate/quorate/test/harness/rootfs"
)

// The first arguments that turn the harness's binary into the launcher. What follows: the file of
// the network namespace, the directory with the pod's files, for containerVerb the
// [rootfs.Container] as JSON, the program and its arguments.
const (
	launcherVerb  = "__enter-pod-network"
	containerVerb = "__enter-container"
)

// launcherFailed is the exit code of a launcher that did not get as far as the
// program; container runtimes use the same for a container that cannot be started.
const launcherFailed = 128

// MaybeRunLauncher makes the harness's binary serve as the launcher of pods' programs
// as well, so that no other binary has to be found. Call it first in main or TestMain.
// It returns at once in an ordinary run; in a launcher it enters the pod's network
// and becomes the program.
func MaybeRunLauncher() {
	if len(os.Args) < 2 || os.Args[1] != launcherVerb && os.Args[1] != containerVerb {
		return
	}
	rest := os.Args[2:]
	var container *rootfs.Container
	if os.Args[1] == containerVerb && len(rest) > 2 {
		container = &rootfs.Container{}
		if err := json.Unmarshal([]byte(rest[2]), container); err != nil {
			fmt.Fprintf(os.Stderr, "read what the container sees: %v\n", err)
			os.Exit(launcherFailed)
		}
		rest = append(rest[:2:2], rest[3:]...)
	}
	if len(rest) < 3 {
		fmt.Fprintf(os.Stderr, "usage: %s %s NETWORK-NAMESPACE FILES PROGRAM [ARGUMENT…]\n"+
			"       %[1]s %s NETWORK-NAMESPACE FILES CONTAINER PROGRAM [ARGUMENT…]\n",
			os.Args[0], launcherVerb, containerVerb)
		os.Exit(launcherFailed)
	}
	err := launch(rest[0], rest[1], container, rest[2:])
	fmt.Fprintf(os.Stderr, "start %s: %v\n", rest[2], err)
	os.Exit(launcherFailed)
}

// launch returns only with an error.
func launch(namespace, files string, container *rootfs.Container, argv []string) error {
	parent := os.Getppid()
	// Namespaces belong to a thread. exec keeps the thread that calls it.
	runtime.LockOSThread()
	file, err := os.Open(namespace)
	if err != nil {
		// This is also what a launcher sees whose harness has just died.
		return fmt.Errorf("enter the network of the pod: %w", err)
	}
	if err := unix.Setns(int(file.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter the network namespace: %w", err)
	}
	file.Close()
	enter := hideNames
	if container != nil {
		enter = func(files string) error { return enterContainer(files, *container) }
	}
	if err := enter(files); err != nil {
		return err
	}
	program, err := exec.LookPath(argv[0])
	if err != nil {
		return err
	}
	// The parent-death signal is the thread's, and this thread does not have it if it is not the one
	// that was forked. It is also lost when the user changes.
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(syscall.SIGKILL), 0, 0, 0); err != nil {
		return fmt.Errorf("set the parent-death signal: %w", err)
	}
	if os.Getppid() != parent {
		return errors.New("the harness has died")
	}
	return syscall.Exec(program, argv, os.Environ())
}

// names are the files of the pod's network that a program sees in /etc.
var names = []string{"hosts", "resolv.conf", "nsswitch.conf"}

// hideNames mounts the pod's files over the machine's.
func hideNames(files string) error {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("create a mount namespace: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	for _, name := range names {
		target := filepath.Join("/etc", name)
		if _, err := os.Stat(target); os.IsNotExist(err) && name != "hosts" {
			// Nothing to hide, and there is nothing to mount on.
			continue
		}
		if err := unix.Mount(filepath.Join(files, name), target, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mount %s: %w", target, err)
		}
	}
	return nil
}

// enterContainer makes the container's root, with the pod's files in it.
func enterContainer(files string, container rootfs.Container) error {
	for _, name := range names {
		container.Mounts = append(container.Mounts,
			rootfs.Mount{Path: filepath.Join("/etc", name), Source: filepath.Join(files, name), ReadOnly: true})
	}
	if err := container.Enter(); err != nil {
		return fmt.Errorf("enter the container: %w", err)
	}
	return nil
}
