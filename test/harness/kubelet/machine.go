package kubelet

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// machineVerb is the first argument that makes the harness's binary the first process of a node.
const machineVerb = "__be-a-node"

// machine is a node as its first process has to know it. All paths are the harness's, which the node has too.
type machine struct {
	Name string
	// Dir is the node's folder. It has the configuration and the logs, and what a disk of the node has.
	Dir string
	// Binds are folders of the harness that the node has too, by the node's paths.
	Binds map[string]string
	// Address is the node's, with the length of the prefix, and MAC that of its bridge. Gateway leads to the harness.
	Address, MAC, Gateway string
	// Runtime is the folder of the container runtime, Images the archive of all images.
	Runtime, Images string
	// Kubelet is the kubelet's command line.
	Kubelet []string
	// Memory keeps the node's disk in memory.
	Memory bool
}

// The files and folders in a node's folder.
const (
	libDir, logDir, etcDir = "lib", "log", "etc"
	containerdConfig       = etcDir + "/containerd.toml"
	kubeletConfig          = etcDir + "/kubelet.yaml"
	resolvConfig           = etcDir + "/resolv.conf"
	kubeletLog             = "kubelet.log"
	runtimeLog             = "containerd.log"
)

const (
	runtimeSocket = "/run/containerd/containerd.sock"
	// poll is how often a node that starts looks for what it waits for.
	poll = 20 * time.Millisecond
	// kubeletAgain is how long a kubelet that has ended stays away, as kubeadm's service says.
	kubeletAgain = 10 * time.Second
	// startTimeout bounds the start of the container runtime. It takes a second.
	startTimeout = time.Minute
)

// covered are what a kubelet sets for the whole machine. In a node, files are in their place.
var covered = map[string]string{
	"vm/overcommit_memory": "1", "vm/panic_on_oom": "0", "kernel/panic": "10", "kernel/panic_on_oops": "1",
	"kernel/keys/root_maxkeys": "1000000", "kernel/keys/root_maxbytes": "25000000",
}

// MaybeRun makes the harness's binary serve as the first process of nodes as well, and as what cleans up behind them.
// Call it first in main or TestMain. It returns at once in an ordinary run.
func MaybeRun() {
	if len(os.Args) != 3 {
		return
	}
	switch os.Args[1] {
	case sweeperVerb:
		runSweeper(os.Args[2])
	case machineVerb:
		runMachine(os.Args[2])
	}
}

func runMachine(text string) {
	var m machine
	err := json.Unmarshal([]byte(text), &m)
	if err == nil {
		err = m.run()
	}
	fmt.Fprintf(os.Stderr, "node %s: %v\n", m.Name, err)
	os.Exit(1)
}

// run is the node's life. It returns only with an error.
func (m machine) run() error {
	for _, step := range []func() error{m.makeRoot, m.joinNetwork} {
		if err := step(); err != nil {
			return err
		}
	}
	bin := filepath.Join(m.Runtime, "usr")
	path := "PATH=" + strings.Join([]string{bin + "/bin", bin + "/sbin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"}, ":")
	env := []string{path, "HOME=/root", "CONTAINERD_ADDRESS=" + runtimeSocket}
	start := func(log string, argv ...string) (int, error) {
		file, err := os.OpenFile(filepath.Join(m.Dir, log), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
		if err != nil {
			return 0, err
		}
		defer file.Close()
		p, err := os.StartProcess(argv[0], argv, &os.ProcAttr{Env: env, Files: []*os.File{nil, file, file}})
		if err != nil {
			return 0, err
		}
		pid := p.Pid
		return pid, p.Release()
	}
	containerd, err := start(runtimeLog, bin+"/bin/containerd", "--config", filepath.Join(m.Dir, containerdConfig))
	if err != nil {
		return err
	}
	if err := m.loadImages(bin+"/bin/ctr", env); err != nil {
		return err
	}
	for {
		kubelet, err := start(kubeletLog, m.Kubelet...)
		if err != nil {
			return err
		}
		for ended := 0; ended != kubelet; {
			// Orphans are collected too, as by any first process.
			ended, err = unix.Wait4(-1, nil, 0, nil)
			if err != nil && !errors.Is(err, unix.EINTR) {
				return err
			}
			if ended == containerd {
				return fmt.Errorf("the container runtime has ended; see %s", runtimeLog)
			}
		}
		time.Sleep(kubeletAgain)
	}
}

// makeRoot gives the node a root of its own: the machine's, with a layer in memory that takes whatever is written.
func (m machine) makeRoot() error {
	if err := unix.Sethostname([]byte(m.Name)); err != nil {
		return err
	}
	base := filepath.Join(m.Dir, "root")
	if err := mount("tmpfs", base, "tmpfs", 0, ""); err != nil {
		return err
	}
	root, upper, work := base+"/root", base+"/upper", base+"/work"
	for _, dir := range []string{root, upper, work} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
	}
	if err := mount("overlay", root, "overlay", 0, "lowerdir=/,upperdir="+upper+",workdir="+work); err != nil {
		return err
	}
	binds := map[string]string{"/dev": "/dev", "/sys": "/sys", "/var/log": filepath.Join(m.Dir, logDir)}
	if !m.Memory {
		binds["/var/lib"] = filepath.Join(m.Dir, libDir)
	}
	for path, source := range m.Binds {
		binds[path] = source
	}
	for path, source := range binds {
		if err := mount(source, root+path, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return err
		}
	}
	if m.Memory {
		if err := mount("tmpfs", root+"/var/lib", "tmpfs", 0, ""); err != nil {
			return err
		}
	}
	for path, kind := range map[string]string{"/proc": "proc", "/run": "tmpfs"} {
		if err := mount(kind, root+path, kind, 0, ""); err != nil {
			return err
		}
	}
	old := root + "/run/old"
	if err := os.Mkdir(old, 0o700); err != nil {
		return err
	}
	if err := unix.PivotRoot(root, old); err != nil {
		return fmt.Errorf("change the root: %w", err)
	}
	if err := os.Chdir("/"); err != nil {
		return err
	}
	if err := unix.Unmount("/run/old", unix.MNT_DETACH); err != nil {
		return err
	}
	// What the harness mounts later in a folder that it shares is seen here, and nothing the other way round.
	for _, flags := range []uintptr{unix.MS_SLAVE, unix.MS_SHARED} {
		if err := unix.Mount("", "/", "", unix.MS_REC|flags, ""); err != nil {
			return err
		}
	}
	if err := os.MkdirAll("/run/covered", 0o755); err != nil {
		return err
	}
	for name, value := range covered {
		file := "/run/covered/" + filepath.Base(name)
		if err := os.WriteFile(file, []byte(value+"\n"), 0o644); err != nil {
			return err
		}
		if err := mount(file, "/proc/sys/"+name, "", unix.MS_BIND, ""); err != nil && !errors.Is(err, unix.ENOENT) {
			return err
		}
	}
	// The names of pods are the kubelet's business, and the runtime shall find none when it looks for a registry.
	return os.WriteFile("/etc/resolv.conf", nil, 0o644)
}

func mount(source, target, kind string, flags uintptr, options string) error {
	if info, err := os.Stat(source); flags&unix.MS_BIND == 0 || err == nil && info.IsDir() {
		if err := os.MkdirAll(target, 0o755); err != nil {
			return err
		}
	}
	if err := unix.Mount(source, target, kind, flags, options); err != nil {
		return fmt.Errorf("mount %s on %s: %w", source, target, err)
	}
	return nil
}

// joinNetwork connects the node, and the bridge of its pods, to the link that the harness gives it.
func (m machine) joinNetwork() error {
	link := func(name string) (netlink.Link, error) {
		for deadline := time.Now().Add(startTimeout); ; time.Sleep(poll) {
			if l, err := netlink.LinkByName(name); err == nil || time.Now().After(deadline) {
				return l, err
			}
		}
	}
	lo, err := link("lo")
	if err != nil {
		return err
	}
	uplink, err := link(nodeUplink)
	if err != nil {
		return fmt.Errorf("find the link to the others: %w", err)
	}
	mac, err := net.ParseMAC(m.MAC)
	if err != nil {
		return err
	}
	// Without an address of its own, a bridge takes that of one of its ports, and another one when that port goes.
	bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: nodeBridge, HardwareAddr: mac}}
	address, err := netlink.ParseAddr(m.Address)
	if err != nil {
		return err
	}
	for _, step := range []func() error{
		func() error { return netlink.LinkSetUp(lo) },
		func() error { return netlink.LinkAdd(bridge) },
		func() error { return netlink.LinkSetUp(bridge) },
		func() error { return netlink.LinkSetMaster(uplink, bridge) },
		func() error { return netlink.LinkSetUp(uplink) },
		func() error { return netlink.AddrAdd(bridge, address) },
		func() error {
			return netlink.RouteAdd(&netlink.Route{LinkIndex: bridge.Attrs().Index, Gw: net.ParseIP(m.Gateway)})
		},
	} {
		if err := step(); err != nil {
			return fmt.Errorf("connect the node: %w", err)
		}
	}
	return nil
}

// loadImages waits for the container runtime, and gives it the images if it does not have them from before.
func (m machine) loadImages(ctr string, env []string) error {
	run := func(args ...string) error {
		command := exec.Command(ctr, args...)
		command.Env = env
		if out, err := command.CombinedOutput(); err != nil {
			return fmt.Errorf("ctr %s: %w: %s", args[0], err, out)
		}
		return nil
	}
	for deadline := time.Now().Add(startTimeout); ; time.Sleep(poll) {
		conn, err := net.Dial("unix", runtimeSocket)
		if err == nil {
			_ = conn.Close()
			break
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the container runtime does not start: %w; see %s", err, runtimeLog)
		}
	}
	loaded := "/var/lib/loaded"
	if _, err := os.Stat(loaded); err == nil {
		return nil
	}
	if err := run("-n", "k8s.io", "images", "import", "--all-platforms", m.Images); err != nil {
		return err
	}
	return os.WriteFile(loaded, nil, 0o644)
}
