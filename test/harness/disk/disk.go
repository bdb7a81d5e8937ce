// Package disk gives a pod a disk of its own: a small one that can be filled up, and that
// can be made slow.
//
// The disk is a tmpfs. A slow one has a FUSE file system on top that passes everything on
// and lets every fsync wait; it is served by the process that made it. Both are mounts, so
// they need root, and a mount namespace of the harness's own, so that nothing is left on
// the host however the harness ends: see network.ReexecInNamespace.
package disk

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// ballast is the name of the file that fills the disk. It lies beside the data.
const ballast = "ballast"

// steps are the sizes in which a disk is filled: quickly, and in the end to the last page.
var steps = []int64{16 << 20, 1 << 20, 4 << 10}

// Disk is a mounted disk. Its methods may be called from any goroutine.
type Disk struct {
	dir, backing string
	server       *fuse.Server // nil when it cannot be slow
	delay        atomic.Int64
}

// fuseDevice is what FUSE is opened by.
const fuseDevice = "/dev/fuse"

// SlowAvailable returns nil when disks can be made slow here, else an error that says what
// the machine lacks. Containers of root often have no such device.
func SlowAvailable() error {
	device, err := os.OpenFile(fuseDevice, os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("slow disks need FUSE: %w", err)
	}
	return device.Close()
}

// New mounts a disk of size bytes at dir, which is created when missing. Memory is taken
// only for what is written. A pod's processes see it if they are started later.
//
// With slow the disk can be made slow; it is a little slower all the time then. That needs
// more than mounts: see [SlowAvailable].
func New(dir string, size int64, slow bool) (*Disk, error) {
	d := &Disk{dir: dir, backing: dir}
	if slow {
		d.backing = dir + ".backing"
	}
	for _, path := range []string{d.dir, d.backing} {
		if err := os.MkdirAll(path, 0o777); err != nil {
			return nil, fmt.Errorf("make disk %s: %w", dir, err)
		}
	}
	if err := unix.Mount("tmpfs", d.backing, "tmpfs", 0, fmt.Sprintf("size=%d,mode=0777", size)); err != nil {
		return nil, fmt.Errorf("mount a tmpfs at %s: %w", d.backing, err)
	}
	if !slow {
		return d, nil
	}
	if err := d.serve(); err != nil {
		return nil, errors.Join(fmt.Errorf("mount a FUSE file system at %s: %w", d.dir, err),
			unix.Unmount(d.backing, unix.MNT_DETACH))
	}
	return d, nil
}

// serve mounts the file system that can be slow.
func (d *Disk) serve() error {
	data := &fs.LoopbackRoot{Path: d.backing}
	root := &node{LoopbackNode: &fs.LoopbackNode{RootData: data}, disk: d}
	data.RootNode = root
	cache := time.Second
	var err error
	d.server, err = fs.Mount(d.dir, root, &fs.Options{
		EntryTimeout: &cache, AttrTimeout: &cache,
		// No helper program is needed: the harness is root.
		MountOptions: fuse.MountOptions{DirectMountStrict: true, FsName: "slow-disk", Name: "quorate"},
	})
	return err
}

// node is a file or directory.
type node struct {
	*fs.LoopbackNode
	disk *Disk
}

var (
	_ fs.NodeCreater     = (*node)(nil)
	_ fs.NodeFsyncer     = (*node)(nil)
	_ fs.NodeWrapChilder = (*node)(nil)
)

// Create keeps a new file from the programs that this process starts. They would inherit it, and what is deleted would
// take its space until the last of them has ended. When a file is opened, the library sees to that itself.
func (n *node) Create(ctx context.Context, name string, flags, mode uint32, out *fuse.EntryOut) (*fs.Inode,
	fs.FileHandle, uint32, syscall.Errno,
) {
	return n.LoopbackNode.Create(ctx, name, flags|syscall.O_CLOEXEC, mode, out)
}

// WrapChild makes a node of what a directory holds.
func (n *node) WrapChild(_ context.Context, child fs.InodeEmbedder) fs.InodeEmbedder {
	return &node{LoopbackNode: child.(*fs.LoopbackNode), disk: n.disk}
}

// Fsync is fsync and fdatasync. What waits here cannot even be killed, so a delay has an
// end of its own, as that of a disk.
func (n *node) Fsync(ctx context.Context, f fs.FileHandle, flags uint32) syscall.Errno {
	if delay := time.Duration(n.disk.delay.Load()); delay > 0 {
		timer := time.NewTimer(delay)
		defer timer.Stop()
		<-timer.C
	}
	if file, ok := f.(fs.FileFsyncer); ok {
		return file.Fsync(ctx, flags)
	}
	return 0 // A directory; a tmpfs has nothing to do for it.
}

// CanBeSlow reports whether SetDelay has an effect.
func (d *Disk) CanBeSlow() bool { return d.server != nil }

// SetDelay makes every fsync from now on take so much longer; 0 makes the disk as quick as
// it can be. It has no effect on a disk that cannot be slow.
func (d *Disk) SetDelay(delay time.Duration) { d.delay.Store(int64(delay)) }

// Fill takes all space that is left. Space that a program has reserved before is its own:
// etcd goes on until it needs more.
func (d *Disk) Fill() error {
	file, err := os.OpenFile(filepath.Join(d.backing, ballast), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("fill disk %s: %w", d.dir, err)
	}
	defer file.Close()
	end, err := file.Seek(0, 2)
	if err != nil {
		return fmt.Errorf("fill disk %s: %w", d.dir, err)
	}
	for _, step := range steps {
		for {
			err := unix.Fallocate(int(file.Fd()), 0, end, step)
			if errors.Is(err, unix.EINTR) {
				continue
			}
			if errors.Is(err, unix.ENOSPC) {
				break
			}
			if err != nil {
				return fmt.Errorf("fill disk %s: %w", d.dir, err)
			}
			end += step
		}
	}
	return nil
}

// Free gives back what Fill has taken.
func (d *Disk) Free() error {
	err := os.Remove(filepath.Join(d.backing, ballast))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("free disk %s: %w", d.dir, err)
	}
	return nil
}

// Close takes the disk away, and all that is on it. Nobody may use it any more.
func (d *Disk) Close() error {
	d.SetDelay(0)
	var errs []error
	if d.server != nil {
		// Detached: namespaces of processes that have just ended may hold it for a moment.
		errs = append(errs, unix.Unmount(d.dir, unix.MNT_DETACH))
	}
	errs = append(errs, unix.Unmount(d.backing, unix.MNT_DETACH))
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("unmount disk %s: %w", d.dir, err)
	}
	return nil
}
