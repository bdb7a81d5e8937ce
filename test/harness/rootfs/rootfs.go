// Package rootfs gives a container's process a root file system of its own, as a container runtime
// does. It needs root, and a process that has nothing else to do any more than to become the
// container's program (see network.MaybeRunLauncher).
//
// The root is a new tmpfs in a new mount namespace, so everything in it vanishes with the container's
// last process. It has:
//
//   - the volumes at their paths, and nothing else that the container could write outside of the tmpfs;
//   - the image's program as /<name of its file>;
//   - the machine's /usr, /bin, /lib and such, read-only, in the place of an image's shell and tools;
//   - /etc with the users root, nonroot and nobody, and with the names that the pod's network gives it;
//   - /proc and /sys of the machine, read-only, and the harmless devices of /dev;
//   - empty and of its own: /tmp, /run, /var, and the users' homes.
package rootfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Mount is a file or a folder of the machine in the container.
type Mount struct {
	// Path is where the container sees it. It is made where it is missing.
	Path string
	// Source is the machine's path. It has to exist.
	Source   string
	ReadOnly bool
}

// Container is what a container's process sees, and who it is.
type Container struct {
	// Folder is an empty folder of the machine. The root is mounted on it, where nobody else sees it.
	Folder string
	// Program is the path of the image's program on the machine. Optional: without it there are only the
	// machine's tools.
	Program string
	// Mounts are in any order.
	Mounts []Mount
	// ReadOnly makes everything but the mounts read-only.
	ReadOnly bool
	// Hostname is the name of the machine that it believes to run on.
	Hostname string
	// Joins is the ID of a process of the container. It is 0 for the first one, which builds the root;
	// the others share it, and need of the above nothing.
	Joins int

	// Dir is the working directory. It is made where it is missing.
	Dir string
	// User and Group are who the process runs as. Groups are its further groups.
	User, Group int
	Groups      []int
	// NoNewPrivileges keeps the process from getting more rights than it has, as by a setuid program.
	NoNewPrivileges bool
}

// user is a user of every image.
type user struct {
	id         int
	name, home string
}

// users are those of the distroless images, where the user nonroot is.
var users = []user{{0, "root", "/root"}, {65532, "nonroot", "/home/nonroot"}, {65534, "nobody", "/nonexistent"}}

// Home is the home of a user in every container, as /etc/passwd there has it.
func Home(id int) string {
	if u := find(id); u != nil {
		return u.home
	}
	return "/"
}

// GroupOf is the group of a user in every container, as /etc/passwd there has it: its own, and root's
// for a user that is not there.
func GroupOf(id int) int {
	if u := find(id); u != nil {
		return u.id
	}
	return 0
}

func find(id int) *user {
	i := slices.IndexFunc(users, func(u user) bool { return u.id == id })
	if i < 0 {
		return nil
	}
	return &users[i]
}

// ProgramPath is where a container has the program of its image.
func ProgramPath(program string) string { return "/" + filepath.Base(program) }

// machine is where the machine's own root is while the container's is being built.
const machine = "/.machine"

// Enter makes the calling thread the container's: exec must come next, on the same thread. After an
// error the process has to end.
func (c Container) Enter() error {
	enter := c.build
	if c.Joins != 0 {
		enter = c.join
	}
	if err := enter(); err != nil {
		return err
	}
	return c.become()
}

// build makes the root, and leaves the machine's.
func (c Container) build() error {
	if c.Program != "" {
		c.Mounts = append(c.Mounts, Mount{Path: ProgramPath(c.Program), Source: c.Program, ReadOnly: true})
	}
	for i, m := range c.Mounts {
		source, err := filepath.EvalSymlinks(m.Source)
		if err != nil {
			return err
		}
		c.Mounts[i].Source = source
	}
	if err := unix.Unshare(unix.CLONE_NEWNS | unix.CLONE_NEWUTS); err != nil {
		return fmt.Errorf("create mount and UTS namespaces: %w", err)
	}
	if err := unix.Sethostname([]byte(c.Hostname)); err != nil {
		return fmt.Errorf("set the host name to %q: %w", c.Hostname, err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := unix.Mount("tmpfs", c.Folder, "tmpfs", 0, "mode=0755"); err != nil {
		return fmt.Errorf("mount a tmpfs on %s: %w", c.Folder, err)
	}
	syscall.Umask(0)
	if err := os.Mkdir(filepath.Join(c.Folder, machine), 0o700); err != nil {
		return err
	}
	if err := unix.PivotRoot(c.Folder, filepath.Join(c.Folder, machine)); err != nil {
		return fmt.Errorf("make %s the root: %w", c.Folder, err)
	}
	if err := os.Chdir("/"); err != nil {
		return err
	}
	// From here on every path is looked up as the container sees it, symbolic links included.
	if err := c.fill(); err != nil {
		return err
	}
	if err := unix.Unmount(machine, unix.MNT_DETACH); err != nil {
		return fmt.Errorf("leave the machine's root: %w", err)
	}
	if err := os.Remove(machine); err != nil {
		return err
	}
	syscall.Umask(0o022)
	if c.ReadOnly {
		if err := unix.Mount("", "/", "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""); err != nil {
			return fmt.Errorf("make the root read-only: %w", err)
		}
	}
	return nil
}

// fill puts everything into the new root.
func (c Container) fill() error {
	var errs []error
	try := func(err error) { errs = append(errs, err) }
	for _, dir := range []string{"/etc", "/dev", "/run", "/var"} {
		try(os.Mkdir(dir, 0o755))
	}
	for _, dir := range []string{"/tmp", "/dev/shm"} {
		try(os.Mkdir(dir, 0o777|fs.ModeSticky))
	}
	try(makeUsers())
	for _, name := range []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32",
		"/etc/alternatives", "/etc/ld.so.cache"} {
		try(tool(name))
	}
	for _, name := range []string{"/proc", "/sys"} {
		try(bind(Mount{Path: name, Source: name, ReadOnly: true}))
	}
	for _, name := range []string{"null", "zero", "full", "random", "urandom"} {
		try(bind(Mount{Path: "/dev/" + name, Source: "/dev/" + name}))
	}
	for name, target := range map[string]string{"fd": "", "stdin": "/0", "stdout": "/1", "stderr": "/2"} {
		try(os.Symlink("/proc/self/fd"+target, "/dev/"+name))
	}
	// What is mounted below another mount comes after it.
	mounts := slices.Clone(c.Mounts)
	slices.SortStableFunc(mounts, func(a, b Mount) int { return depth(a.Path) - depth(b.Path) })
	for _, m := range mounts {
		try(bind(m))
	}
	if c.Dir != "" {
		try(os.MkdirAll(c.Dir, 0o755))
	}
	return errors.Join(errs...)
}

func depth(path string) int { return strings.Count(filepath.Clean(path), "/") }

func makeUsers() error {
	var passwd, group strings.Builder
	for _, u := range users {
		fmt.Fprintf(&passwd, "%s:x:%d:%d:%s:%s:/sbin/nologin\n", u.name, u.id, u.id, u.name, u.home)
		fmt.Fprintf(&group, "%s:x:%d:\n", u.name, u.id)
		if u.name == "nobody" {
			continue
		}
		if err := os.MkdirAll(filepath.Dir(u.home), 0o755); err != nil {
			return err
		}
		if err := errors.Join(os.Mkdir(u.home, 0o700), os.Chown(u.home, u.id, u.id)); err != nil {
			return err
		}
	}
	return errors.Join(os.WriteFile("/etc/passwd", []byte(passwd.String()), 0o644),
		os.WriteFile("/etc/group", []byte(group.String()), 0o644))
}

// tool makes what the machine has of its programs visible, under the same name.
func tool(name string) error {
	info, err := os.Lstat(machine + name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode()&fs.ModeSymlink != 0:
		target, err := os.Readlink(machine + name)
		if err != nil {
			return err
		}
		return os.Symlink(target, name)
	}
	return bind(Mount{Path: name, Source: name, ReadOnly: true})
}

// bind makes a part of the machine visible in the new root.
func bind(m Mount) error {
	source := machine + m.Source
	info, err := os.Stat(source)
	if err != nil {
		return err
	}
	if info.IsDir() {
		err = os.MkdirAll(m.Path, 0o755)
	} else {
		err = makeFile(m.Path)
	}
	if err != nil {
		return fmt.Errorf("make the place for the mount: %w", err)
	}
	if err := unix.Mount(source, m.Path, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("mount %s on %s: %w", m.Source, m.Path, err)
	}
	if !m.ReadOnly {
		return nil
	}
	if err := unix.MountSetattr(unix.AT_FDCWD, m.Path, unix.AT_RECURSIVE,
		&unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}); err != nil {
		return fmt.Errorf("make %s read-only (Linux 5.12 or later): %w", m.Path, err)
	}
	return nil
}

func makeFile(path string) error {
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, nil, 0o644)
}

// lookAgain is how often join looks whether the container's first process has built its root. It takes
// some milliseconds for that.
const lookAgain = 5 * time.Millisecond

// join enters the root of a running container.
func (c Container) join() error {
	proc := fmt.Sprintf("/proc/%d", c.Joins)
	for {
		built, err := rootBuilt(proc)
		if err != nil {
			return fmt.Errorf("join the container of process %d: %w", c.Joins, err)
		}
		if built {
			break
		}
		time.Sleep(lookAgain)
	}
	var files []*os.File
	for _, kind := range []string{"uts", "mnt"} {
		file, err := os.Open(filepath.Join(proc, "ns", kind))
		if err != nil {
			return err
		}
		defer file.Close()
		files = append(files, file)
	}
	// A thread that shares its root and working directory with others cannot change its mounts.
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return err
	}
	for _, file := range files {
		if err := unix.Setns(int(file.Fd()), 0); err != nil {
			return fmt.Errorf("enter %s: %w", file.Name(), err)
		}
	}
	return nil
}

// rootBuilt reports whether a process has a root of its own by now that is complete.
func rootBuilt(proc string) (bool, error) {
	own, err := os.Stat("/")
	if err != nil {
		return false, err
	}
	its, err := os.Stat(filepath.Join(proc, "root"))
	if err != nil {
		return false, err
	}
	if os.SameFile(own, its) {
		return false, nil
	}
	_, err = os.Lstat(filepath.Join(proc, "root", machine))
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	return false, err
}

// become gives the process its working directory and its user.
func (c Container) become() error {
	if c.Dir != "" {
		if err := os.Chdir(c.Dir); err != nil {
			return err
		}
	}
	if c.NoNewPrivileges {
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			return fmt.Errorf("forbid new privileges: %w", err)
		}
	}
	if err := syscall.Setgroups(c.Groups); err != nil {
		return fmt.Errorf("set the groups %v: %w", c.Groups, err)
	}
	if err := syscall.Setgid(c.Group); err != nil {
		return fmt.Errorf("become group %d: %w", c.Group, err)
	}
	if err := syscall.Setuid(c.User); err != nil {
		return fmt.Errorf("become user %d: %w", c.User, err)
	}
	return nil
}
