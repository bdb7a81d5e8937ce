package network

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// outsideVariable tells a re-executed harness which namespaces it came from. It is
// more than a flag, so that a variable left over in a shell cannot make a harness
// take the host's network for its own.
const outsideVariable = "QUORATE_OUTSIDE_NAMESPACES"

// ownProgram is the program that runs, even when its file has been replaced or removed since,
// as by another build in the same checkout.
const ownProgram = "/proc/self/exe"

// namespaceIDs identifies the network and mount namespaces of this process. It asks for those of its own thread.
// /proc/self is the first thread, which Go never ends: if a goroutine changed its namespaces there, as newNamespace
// may, it stays in them.
func namespaceIDs() (string, error) {
	var ids []string
	for _, kind := range []string{"net", "mnt"} {
		id, err := os.Readlink("/proc/thread-self/ns/" + kind)
		if err != nil {
			return "", err
		}
		ids = append(ids, id)
	}
	return strings.Join(ids, ","), nil
}

// InNamespace reports whether this process runs in namespaces made by [ReexecInNamespace].
func InNamespace() bool {
	outside := strings.Split(os.Getenv(outsideVariable), ",")
	ids, err := namespaceIDs()
	if err != nil || len(outside) != 2 {
		return false
	}
	now := strings.Split(ids, ",")
	return now[0] != outside[0] && now[1] != outside[1]
}

// RequireVariable is the environment variable that makes it a failure, for CI, where what needs
// namespaces or mounts of its own would be skipped.
const RequireVariable = "QUORATE_REQUIRE_NAMESPACES"

// NamespacesAvailable returns nil when [ReexecInNamespace] and [NewNamespaces] can
// work here, else an error that says what is missing: root, the right to create
// namespaces, the kernel's bridge and veth devices, or what a container's root file
// system needs. It tries them out in namespaces of its own, which are gone when it
// returns.
func NamespacesAvailable() error {
	if os.Geteuid() != 0 {
		return fmt.Errorf("network namespaces need root (running as uid %d)", os.Geteuid())
	}
	result := make(chan error)
	go func() {
		// The thread is in other namespaces afterwards, so it must not be used
		// again: it ends with a goroutine that is still locked to it.
		runtime.LockOSThread()
		result <- tryNamespaces()
	}()
	return <-result
}

func tryNamespaces() error {
	if err := unix.Unshare(unix.CLONE_NEWNET | unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("create network and mount namespaces: %w (in a container this needs CAP_SYS_ADMIN)", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := unix.Mount("/etc/hosts", "/etc/hosts", "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount /etc/hosts: %w", err)
	}
	handle, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("open netlink: %w", err)
	}
	defer handle.Close()
	bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "probe0"}}
	if err := handle.LinkAdd(bridge); err != nil {
		return fmt.Errorf("create a bridge: %w (CONFIG_BRIDGE, CAP_NET_ADMIN)", err)
	}
	veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "probe1"}, PeerName: "probe2"}
	if err := handle.LinkAdd(veth); err != nil {
		return fmt.Errorf("create a veth pair: %w (CONFIG_VETH)", err)
	}
	return tryRoot(os.TempDir())
}

// tryRoot tries what a container's root needs: read-only mounts, and another root. The thread cannot look
// up the machine's files any more afterwards.
func tryRoot(folder string) error {
	if err := unix.MountSetattr(unix.AT_FDCWD, "/etc/hosts", unix.AT_RECURSIVE,
		&unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}); err != nil {
		return fmt.Errorf("make a mount read-only: %w (Linux 5.12 or later)", err)
	}
	if err := unix.Mount("tmpfs", folder, "tmpfs", 0, ""); err != nil {
		return fmt.Errorf("mount a tmpfs on %s: %w", folder, err)
	}
	old := filepath.Join(folder, "old")
	if err := os.Mkdir(old, 0o700); err != nil {
		return err
	}
	if err := unix.PivotRoot(folder, old); err != nil {
		return fmt.Errorf("change the root: %w (not possible on an initial ramdisk)", err)
	}
	return nil
}

// ReexecInNamespace moves the harness into a network and a mount namespace of its own,
// so that the host's interfaces, routes and mounts are never touched and everything
// vanishes with the harness's processes. Call it early in main or TestMain, after
// [MaybeRunLauncher] and before starting goroutines.
//
// Outside it runs the program again inside, with the same arguments, environment,
// working directory and standard streams, passes on signals, and exits with the
// inner one's exit code (128 plus the number when a signal ended it); it returns
// only when it could not start it. Inside it brings up lo and returns nil. When the
// outer process is killed the inner one dies with it.
//
// The inner process is in a process group of its own, so it gets a signal of the
// terminal once; it must not read from the terminal.
func ReexecInNamespace() error {
	if InNamespace() {
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			return fmt.Errorf("make mounts private: %w", err)
		}
		return loopbackUp(nil)
	}
	ids, err := namespaceIDs()
	if err != nil {
		return fmt.Errorf("read own namespaces: %w", err)
	}
	// From here on this process only waits. The thread must outlive the child, to
	// which its end would be the death of the parent.
	runtime.LockOSThread()
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1,
		syscall.SIGUSR2, syscall.SIGWINCH)
	cmd := exec.Command(ownProgram, os.Args[1:]...)
	cmd.Args[0] = os.Args[0]
	cmd.Env = append(os.Environ(), outsideVariable+"="+ids)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS,
		Setpgid:    true,
		Pdeathsig:  syscall.SIGKILL,
	}
	if err := cmd.Start(); err != nil {
		signal.Stop(signals)
		runtime.UnlockOSThread()
		return fmt.Errorf("run %s in new namespaces: %w", os.Args[0], err)
	}
	go func() {
		for s := range signals {
			_ = cmd.Process.Signal(s)
		}
	}()
	err = cmd.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		fmt.Fprintf(os.Stderr, "wait for %s in new namespaces: %v\n", os.Args[0], err)
		os.Exit(1)
	}
	status := cmd.ProcessState.Sys().(syscall.WaitStatus)
	if status.Signaled() {
		os.Exit(128 + int(status.Signal()))
	}
	os.Exit(status.ExitStatus())
	return nil
}

// loopbackUp brings up lo; a nil handle means the namespace of this process.
func loopbackUp(handle *netlink.Handle) error {
	if handle == nil {
		handle = &netlink.Handle{}
	}
	lo, err := handle.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("find lo: %w", err)
	}
	if err := handle.LinkSetUp(lo); err != nil {
		return fmt.Errorf("bring up lo: %w", err)
	}
	return nil
}
