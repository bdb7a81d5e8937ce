package network

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// launcherVerb is the first argument that turns the harness's binary into the
// launcher. What follows: the file of the network namespace, the directory with the
// pod's files, the program and its arguments.
const launcherVerb = "__enter-pod-network"

// launcherFailed is the exit code of a launcher that did not get as far as the
// program; container runtimes use the same for a container that cannot be started.
const launcherFailed = 128

// MaybeRunLauncher makes the harness's binary serve as the launcher of pods' programs
// as well, so that no other binary has to be found. Call it first in main or TestMain.
// It returns at once in an ordinary run; in a launcher it enters the pod's network
// and becomes the program.
func MaybeRunLauncher() {
	if len(os.Args) < 2 || os.Args[1] != launcherVerb {
		return
	}
	if len(os.Args) < 5 {
		fmt.Fprintf(os.Stderr, "usage: %s %s NETWORK-NAMESPACE FILES PROGRAM [ARGUMENT…]\n", os.Args[0], launcherVerb)
		os.Exit(launcherFailed)
	}
	err := launch(os.Args[2], os.Args[3], os.Args[4:])
	fmt.Fprintf(os.Stderr, "enter pod network %s: %v\n", os.Args[2], err)
	os.Exit(launcherFailed)
}

// launch returns only with an error.
func launch(namespace, files string, argv []string) error {
	program, err := exec.LookPath(argv[0])
	if err != nil {
		return err
	}
	// Namespaces belong to a thread. exec keeps the thread that calls it.
	runtime.LockOSThread()
	// So does the parent-death signal, which this thread does not have if it is
	// not the one that was forked.
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(syscall.SIGKILL), 0, 0, 0); err != nil {
		return fmt.Errorf("set the parent-death signal: %w", err)
	}
	file, err := os.Open(namespace)
	if err != nil {
		// This is also what a launcher sees whose harness has just died.
		return err
	}
	if err := unix.Setns(int(file.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter the network namespace: %w", err)
	}
	file.Close()
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("create a mount namespace: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	for _, name := range []string{"hosts", "resolv.conf", "nsswitch.conf"} {
		target := filepath.Join("/etc", name)
		if _, err := os.Stat(target); os.IsNotExist(err) && name != "hosts" {
			// Nothing to hide, and there is nothing to mount on.
			continue
		}
		if err := unix.Mount(filepath.Join(files, name), target, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mount %s: %w", target, err)
		}
	}
	return syscall.Exec(program, argv, os.Environ())
}
