package kubelet

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// sweeperVerb is the first argument that makes the harness's binary a sweeper.
const sweeperVerb = "__sweep-control-groups"

// sweepAgain is how soon what could not be removed is tried again. A process that was killed takes a moment to end.
const sweepAgain = 50 * time.Millisecond

// hierarchies are where control groups are mounted: one folder with version 2, and several with version 1.
func hierarchies() ([]string, error) {
	// Not of the first thread, which may have been left in another namespace.
	file, err := os.Open("/proc/thread-self/mounts")
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var found []string
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		if f := strings.Fields(lines.Text()); len(f) > 2 && (f[2] == "cgroup" || f[2] == "cgroup2") {
			found = append(found, f[1])
		}
	}
	slices.Sort(found)
	return slices.Compact(found), lines.Err()
}

const (
	// NodesVariable is the environment variable that says what pods run on: "kubelet" for real nodes, "auto" for real
	// nodes where they can be had, and "agent", or nothing, for the node agent.
	NodesVariable = "QUORATE_NODES"
	// RequireVariable is the environment variable that makes it a failure if NodesVariable asks for real nodes and they
	// cannot be had.
	RequireVariable = "QUORATE_REQUIRE_NODES"
)

// Asked reports whether NodesVariable asks for real nodes.
func Asked() bool {
	asked := os.Getenv(NodesVariable)
	return asked == "kubelet" || asked == "auto"
}

// Required reports whether they are asked for, and nothing else will do.
func Required() bool { return Asked() && os.Getenv(RequireVariable) != "" }

// Available says why there can be no nodes here, although there are namespaces. It is nil if there can.
func Available() error {
	probe := fmt.Sprintf("quorate-probe-%d", os.Getpid())
	err := makeGroups(probe)
	return errors.Join(err, sweep(probe))
}

// makeGroups makes a control group in every hierarchy.
func makeGroups(name string) error {
	all, err := hierarchies()
	if err == nil && len(all) == 0 {
		err = errors.New("no control groups are mounted")
	}
	for _, h := range all {
		err = errors.Join(err, os.MkdirAll(filepath.Join(h, name), 0o755))
	}
	return err
}

// favour gives the pods of a node ten times the weight of a process of the harness. Otherwise all of them together had
// the weight of one, because the control planes, kubelets and clients of all nodes run in the group of the machine. On
// two cores with several clusters, members then stood still for a second and more, as they would on no real node.
func favour(name string) error {
	all, err := hierarchies()
	for _, h := range all {
		for file, weight := range map[string]string{"cpu.shares": "10240", "cpu.weight": "1000"} { // Version 1 and 2.
			path := filepath.Join(h, name, file)
			if _, missing := os.Stat(path); missing == nil {
				err = errors.Join(err, os.WriteFile(path, []byte(weight), 0))
			}
		}
	}
	return err
}

// sweep removes the control groups that match, with all below them. Their processes must have been killed. It tries for
// a while.
func sweep(pattern string) error {
	all, err := hierarchies()
	if err != nil {
		return err
	}
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(sweepAgain) {
		var left []string
		for _, h := range all {
			found, _ := filepath.Glob(filepath.Join(h, pattern)) // The pattern is ours.
			for _, group := range found {
				removeTree(group)
				if _, err := os.Stat(group); err == nil {
					left = append(left, group)
				}
			}
		}
		if len(left) == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("control groups cannot be removed: %v", left)
		}
	}
}

// removeTree removes the folders of control groups, the lowest first. Their files are not files.
func removeTree(group string) {
	var folders []string
	_ = filepath.WalkDir(group, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() {
			folders = append(folders, path)
		}
		return nil // What is gone meanwhile need not be removed.
	})
	slices.Reverse(folders)
	for _, folder := range folders {
		_ = unix.Rmdir(folder)
	}
}

// sweeper is a process that outlives the harness by a moment. Control groups belong to the whole machine, and nothing
// but a process can remove them after a harness that was killed.
type sweeper struct {
	command *exec.Cmd
	// alive is closed by the harness's end, however that comes.
	alive io.Closer
}

// startSweeper lets the control groups that match be removed when the harness ends.
func startSweeper(pattern string) (*sweeper, error) {
	command := exec.Command("/proc/self/exe", sweeperVerb, pattern)
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	alive, err := command.StdinPipe()
	if err != nil {
		return nil, err
	}
	return &sweeper{command, alive}, command.Start()
}

// finish lets the sweeper do its work, and waits for it.
func (s *sweeper) finish() error {
	_ = s.alive.Close()
	if err := s.command.Wait(); err != nil {
		return fmt.Errorf("control groups of nodes are left behind: %w", err)
	}
	return nil
}

// runSweeper is the sweeper's life.
func runSweeper(pattern string) {
	_, _ = io.Copy(io.Discard, os.Stdin)
	if err := sweep(pattern); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// pidsIn are the processes of a control group, as this process sees them.
func pidsIn(group string) (pids []int) {
	all, err := hierarchies()
	if err != nil {
		return nil
	}
	for _, h := range all {
		text, err := os.ReadFile(filepath.Join(h, group, "cgroup.procs"))
		if err != nil {
			continue // Not every hierarchy has all groups.
		}
		for _, field := range strings.Fields(string(text)) {
			if pid, err := strconv.Atoi(field); err == nil {
				pids = append(pids, pid)
			}
		}
		if len(pids) > 0 {
			return pids
		}
	}
	return nil
}

// isFirst reports whether a process is the first of its PID namespace, and the container's program. Before that, it is
// the runtime's.
func isFirst(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return false
	}
	first := false
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "NSpid:"); ok {
			fields := strings.Fields(rest)
			first = len(fields) > 0 && fields[len(fields)-1] == "1"
		}
		if rest, ok := strings.CutPrefix(line, "Name:"); ok && strings.Contains(rest, "runc") {
			return false
		}
	}
	return first
}
