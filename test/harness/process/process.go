// Package process runs the child processes of the harness: control plane,
// etcd members, sidecars, everything.
//
// It gives four promises that os/exec alone does not give:
//
//   - A child dies when the harness dies, even when the harness is killed with
//     SIGKILL. The kernel's parent-death signal does this. It is bound to the
//     thread that forked, not to the process, so all children are forked by one
//     goroutine that keeps its thread until the harness ends.
//   - A child leads a process group of its own. Signals go to the whole group,
//     and a Ctrl-C in the terminal reaches the harness alone.
//   - When the child ends, whatever is left of its group is killed and reaped
//     before [Process.Done] closes, as a container runtime does when the first
//     process of a container ends. So "done" means that ports, locks and files
//     are free. For this the harness declares itself the reaper of its orphaned
//     descendants (PR_SET_CHILD_SUBREAPER).
//   - No zombie stays, whether or not anybody looks at the Process again.
//
// What it cannot promise: a descendant that leaves the group (setsid) is not
// known here, and when the harness itself is killed with SIGKILL only the direct
// children get the parent-death signal.
//
// The forking goroutine lives as long as the program. Tests that look for leaked
// goroutines ignore it by name:
//
//	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction(process.SpawnerGoroutine))
package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// killPatience is how long Stop waits after SIGKILL. The kernel ends a killed process at
	// once unless it is stuck in uninterruptible I/O, so a wait this long means a broken disk.
	killPatience = 30 * time.Second

	// logDrain is how long the reaper waits for the rest of the output after
	// the process has ended. Only a descendant that left the process group can
	// still hold the pipe open by then.
	logDrain = 2 * time.Second
)

// Spec says what to run.
type Spec struct {
	// Name stands for the process in error messages, e.g. "kube-apiserver" or
	// "etcd-main-0/etcd". Required.
	Name string
	// Path is the program. A relative path without a slash is looked up in the
	// harness's PATH. Required.
	Path string
	// Args are the arguments after the program's name.
	Args []string
	// Env is the whole environment as KEY=value. Nil means the harness's own
	// environment; an empty, non-nil slice means none.
	Env []string
	// Dir is the working directory; empty means the harness's own.
	Dir string

	// Log receives stdout and stderr. It must not be set together with LogPath.
	// An *os.File is handed to the child as it is; any other writer is fed by a
	// goroutine through a pipe.
	Log io.Writer
	// LogPath names a file to which stdout and stderr are appended; it is
	// created, with its directory, when missing. Without Log and LogPath the
	// output is dropped.
	LogPath string

	// Launcher is put in front of Path and Args: the command that runs is
	// Launcher[0] with Launcher[1:], Path and Args as its arguments. The
	// launcher must replace itself by the program (exec), so that PID, signals
	// and exit code are the program's own.
	Launcher []string

	// Namespaces are the new namespaces that the process gets, as flags of clone(2). With a PID namespace, whatever the
	// process has started ends with it.
	Namespaces uintptr
}

// Process is a child process that has been started. All methods may be called at
// any time from any goroutine.
type Process struct {
	name    string
	pid     int
	started time.Time
	done    chan struct{}

	mu     sync.Mutex
	ending bool // the PID must not be signalled any more: it is about to be reaped

	// Written before done closes, read after it.
	exitCode int
	signal   syscall.Signal
	ended    time.Time
}

// Start starts the program and returns as soon as the kernel has accepted it
// (exec succeeded). The process is not bound to any context: it runs until it
// ends by itself, is stopped, or the harness ends.
//
// An error names the process and the program: the program is missing or not
// executable, the working directory does not exist, the log cannot be opened.
func Start(spec Spec) (*Process, error) {
	if spec.Name == "" {
		return nil, fmt.Errorf("start process: Spec.Name is empty (program %q); give it a name for messages", spec.Path)
	}
	if spec.Path == "" {
		return nil, fmt.Errorf("start %s: Spec.Path is empty; name the program to run", spec.Name)
	}
	if spec.Log != nil && spec.LogPath != "" {
		return nil, fmt.Errorf("start %s: both Spec.Log and Spec.LogPath (%q) are set; set one",
			spec.Name, spec.LogPath)
	}

	argv := append([]string{spec.Path}, spec.Args...)
	if len(spec.Launcher) > 0 {
		program, err := exec.LookPath(spec.Path)
		if err != nil {
			// Without this check the launcher would start and fail later, and
			// a missing program would look like a crash.
			return nil, fmt.Errorf("start %s: %w", spec.Name, err)
		}
		argv[0] = program
		argv = append(append([]string{}, spec.Launcher...), argv...)
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = spec.Env
	cmd.Dir = spec.Dir
	cmd.WaitDelay = logDrain
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL, Cloneflags: spec.Namespaces}
	switch {
	case spec.Log != nil:
		cmd.Stdout, cmd.Stderr = spec.Log, spec.Log
	case spec.LogPath != "":
		file, err := openLog(spec.LogPath)
		if err != nil {
			return nil, fmt.Errorf("start %s: open log: %w", spec.Name, err)
		}
		// The child has its own descriptor once it runs.
		defer file.Close()
		cmd.Stdout, cmd.Stderr = file, file
	}

	p := &Process{name: spec.Name, done: make(chan struct{})}
	if err := startOnSpawner(cmd); err != nil {
		return nil, fmt.Errorf("start %s: %s: %w", spec.Name,
			strings.Join(argv[:min(len(argv), len(spec.Launcher)+1)], " "), err)
	}
	p.pid, p.started = cmd.Process.Pid, time.Now()
	go p.reap(cmd)
	return p, nil
}

func openLog(path string) (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	return os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
}

// reap waits for the end of the process, kills what is left of its group, and
// collects all of them.
func (p *Process) reap(cmd *exec.Cmd) {
	// WNOWAIT leaves the process a zombie: until it is collected below, the
	// kernel cannot give its PID, and so its group ID, to anybody else.
	for {
		err := unix.Waitid(unix.P_PID, p.pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	ended := time.Now()
	p.mu.Lock()
	p.ending = true
	p.mu.Unlock()
	_ = syscall.Kill(-p.pid, syscall.SIGKILL)

	// The error of Wait repeats the exit status, or says that the output was
	// not drained in time; the state tells what happened to the process.
	_ = cmd.Wait()
	for {
		// The rest of the group became our children when their parents ended.
		_, err := unix.Wait4(-p.pid, nil, 0, nil)
		if err != nil && !errors.Is(err, unix.EINTR) {
			break // ECHILD: nobody is left
		}
	}

	status := cmd.ProcessState.Sys().(syscall.WaitStatus)
	p.exitCode = status.ExitStatus()
	if status.Signaled() {
		p.signal = status.Signal()
		p.exitCode = 128 + int(status.Signal())
	}
	p.ended = ended
	close(p.done)
}

// Name returns the name given in the Spec.
func (p *Process) Name() string { return p.name }

// PID returns the process ID, which is the ID of its process group too.
func (p *Process) PID() int { return p.pid }

// Started returns when the process was started.
func (p *Process) Started() time.Time { return p.started }

// Done returns a channel that closes when the process has ended and nothing of its
// process group is left.
func (p *Process) Done() <-chan struct{} { return p.done }

// ExitCode returns the exit code, or 128 plus the signal's number when a signal
// ended the process (as a shell and a container runtime do). It waits for Done.
func (p *Process) ExitCode() int {
	<-p.done
	return p.exitCode
}

// ExitSignal returns the signal that ended the process, or 0 when it exited by
// itself. It waits for Done.
func (p *Process) ExitSignal() syscall.Signal {
	<-p.done
	return p.signal
}

// Ended returns when the process ended. It waits for Done.
func (p *Process) Ended() time.Time {
	<-p.done
	return p.ended
}

// Signal sends a signal to the whole process group. It returns
// [os.ErrProcessDone] when the process has already ended.
func (p *Process) Signal(sig syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ending {
		return os.ErrProcessDone
	}
	if err := syscall.Kill(-p.pid, sig); err != nil {
		return fmt.Errorf("send %s to %s (process group %d): %w", unix.SignalName(sig), p.name, p.pid, err)
	}
	return nil
}

// Stop ends the process: SIGTERM, then SIGKILL after grace (0 or less: at once) or
// when the context ends, whichever is first. It returns nil when the process has
// been reaped, however it ended; stopping a process that has ended is no error. A
// process that was stopped with SIGSTOP is continued, so that it can react.
//
// The error says that even SIGKILL had no effect for half a minute.
func (p *Process) Stop(ctx context.Context, grace time.Duration) error {
	if grace > 0 && ctx.Err() == nil {
		// Errors mean that the process is gone, or will show below.
		_ = p.Signal(syscall.SIGTERM)
		_ = p.Signal(syscall.SIGCONT)
		timer := time.NewTimer(grace)
		defer timer.Stop()
		select {
		case <-p.done:
			return nil
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	_ = p.Signal(syscall.SIGKILL)
	timer := time.NewTimer(killPatience)
	defer timer.Stop()
	select {
	case <-p.done:
		return nil
	case <-timer.C:
		return fmt.Errorf("stop %s: process %d is still there %s after SIGKILL; look at its state in /proc/%d/stack",
			p.name, p.pid, killPatience, p.pid)
	}
}
