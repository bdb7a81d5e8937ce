// Package build compiles the programs that the harness runs: the sidecar under test
// from the root module, the Kubernetes control plane from test/cmd/kube, and etcd from
// one small module per version.
//
// Go's build cache decides what is rebuilt: when nothing has changed, a call takes
// seconds and links nothing. The first build of the control plane compiles
// Kubernetes and takes some minutes. While one program is compiled, the modules of the next
// ones are downloaded. Whoever watches a build is told how far it is, see [Watcher].
//
// Programs end up in .build/bin at the root of the repository. Several test processes may build
// at once: they take turns through a lock file, and a program is replaced by a rename, so that
// a start meanwhile gets the old one or the new one, whole.
//
// With QUORATE_RACE=1 in the environment the sidecar is built with the race detector,
// if a C compiler is there. With QUORATE_KUBERNETES=1.35.4 the control plane is of that release, and
// QUORATE_ETCD=3.7.3 does the same for the etcd servers of clusters.
package build

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/quorate/quorate/test/harness/process"
)

const (
	rootModule = "github.com/quorate/quorate"

	// RaceVariable is the environment variable that asks, with the value 1, for a
	// sidecar built with the race detector.
	RaceVariable = "QUORATE_RACE"

	raceSuffix = "-race"

	// lockPoll is how often a waiting builder tries the lock file. flock cannot be
	// waited for with a deadline.
	lockPoll = 100 * time.Millisecond
)

// Target names one program.
type Target string

// The programs of the harness.
const (
	// Quorate is the sidecar under test.
	Quorate Target = "quorate"
	// Etcd34, Etcd35 and Etcd36 are etcd servers, one per minor version; see also [Etcd].
	Etcd34 Target = "etcd-3.4"
	Etcd35 Target = "etcd-3.5"
	Etcd36 Target = "etcd-3.6"
	// Kube is the Kubernetes control plane.
	Kube Target = "kube"
	// Kubectl, Helm and Etcdctl are what people type.
	Kubectl Target = "kubectl"
	Helm    Target = "helm"
	Etcdctl Target = "etcdctl"
	// Etcdutl restores snapshots, for etcd 3.5.
	Etcdutl Target = "etcdutl"
	// Host is a program that embeds the library.
	Host Target = "host"
	// Demo is what shows all this.
	Demo Target = "demo"
)

// Binaries are absolute paths of programs. A program that was not asked for has an
// empty path.
type Binaries struct {
	Kube, Etcd34, Etcd35, Etcd36, Quorate, Kubectl, Helm, Etcdctl, Etcdutl, Host, Demo string
	// Those of the hosts.
	Druid, Wrapper34, Wrapper35, BackupRestore, BackupRestoreNext, DropIn string
}

// Race reports whether the sidecar is built with the race detector.
func (b Binaries) Race() bool { return strings.HasSuffix(b.Quorate, raceSuffix) }

// recipe says how a target is built.
type recipe struct {
	dir  string // of the module, relative to the root of the repository
	pkg  string // of the program, relative to dir
	path func(*Binaries) *string
	// ldflags are added to the usual ones.
	ldflags string
	// host is the module of a host's program, which no module proxy may have.
	host string
}

var recipes = map[Target]recipe{
	Quorate: {dir: ".", pkg: "./cmd/quorate", path: func(b *Binaries) *string { return &b.Quorate }},
	Etcd34:  {dir: "test/etcd/v34", pkg: ".", path: func(b *Binaries) *string { return &b.Etcd34 }},
	Etcd35:  {dir: "test/etcd/v35", pkg: ".", path: func(b *Binaries) *string { return &b.Etcd35 }},
	Etcd36:  {dir: "test/etcd/v36", pkg: ".", path: func(b *Binaries) *string { return &b.Etcd36 }},
	Kube:    {dir: "test", pkg: "./cmd/kube", path: func(b *Binaries) *string { return &b.Kube }},
	Kubectl: {dir: "test/kubectl", pkg: ".", path: func(b *Binaries) *string { return &b.Kubectl }},
	Helm: {dir: "test/helm", pkg: "helm.sh/helm/v4/cmd/helm",
		path: func(b *Binaries) *string { return &b.Helm }},
	Etcdctl: {dir: "test/etcd/v36", pkg: "go.etcd.io/etcd/etcdctl/v3",
		path: func(b *Binaries) *string { return &b.Etcdctl }},
	Etcdutl: {dir: "test/etcd/v35", pkg: "go.etcd.io/etcd/etcdutl/v3",
		path: func(b *Binaries) *string { return &b.Etcdutl }},
	Host: {dir: "test", pkg: "./cmd/host", path: func(b *Binaries) *string { return &b.Host }},
	Demo: {dir: "test", pkg: "./cmd/demo", path: func(b *Binaries) *string { return &b.Demo }},

	Druid: hostRecipe(Druid, "etcd-druid/cmd", "internal/version.gitVersion",
		func(b *Binaries) *string { return &b.Druid }),
	BackupRestoreNext: {dir: "cmd/etcdbrctl", pkg: gardener + "etcd-backup-restore",
		host:    gardener + "etcd-backup-restore",
		ldflags: " -X " + gardener + "etcd-backup-restore/pkg/version.Version=v0.43.0",
		path:    func(b *Binaries) *string { return &b.BackupRestoreNext }},
	DropIn: {dir: "cmd/etcdbrctl", pkg: ".", host: gardener + "etcd-backup-restore",
		path: func(b *Binaries) *string { return &b.DropIn }},
	Wrapper34: hostRecipe(Wrapper34, "etcd-wrapper", "", func(b *Binaries) *string { return &b.Wrapper34 }),
	Wrapper35: hostRecipe(Wrapper35, "etcd-wrapper", "", func(b *Binaries) *string { return &b.Wrapper35 }),
	BackupRestore: hostRecipe(BackupRestore, "etcd-backup-restore", "pkg/version.Version",
		func(b *Binaries) *string { return &b.BackupRestore }),
}

// All builds everything that clusters run on, the quickest first, so that a mistake in the
// code at hand shows before Kubernetes is compiled. See [Some].
func All(ctx context.Context, progress func(line string)) (Binaries, error) {
	return Some(ctx, progress, Quorate, Etcd34, Etcd35, Etcd36, Kube)
}

// Some builds the targets as [Watch] does. It tells progress, which may be nil, what it is doing; calls come one at a
// time.
func Some(ctx context.Context, progress func(line string), targets ...Target) (Binaries, error) {
	return Watch(ctx, lines(progress), targets)
}

// Watch builds the targets in the order given and returns where they are. The modules of those that have not been
// built yet are downloaded meanwhile, in the same order, and then those of what is ahead: targets that somebody is
// going to build next.
//
// The working directory must be inside a checkout of the repository, as it is in every
// test. Errors name the target, carry the end of the go command's output and say what to do; when ctx
// ends, the compiler is killed and the error is ctx's.
func Watch(ctx context.Context, watcher Watcher, targets []Target, ahead ...Target) (Binaries, error) {
	return withBuilder(ctx, watcher, func(b *builder) (binaries Binaries, err error) {
		var all []*builder
		for _, target := range slices.Concat(targets, ahead) {
			how, known := recipes[target]
			if !known {
				return Binaries{}, fmt.Errorf("build %q: no such target; use one of the constants of this package",
					target)
			}
			one := *b
			one.target, one.recipe, one.fetched = target, how, make(chan error, 1)
			all = append(all, &one)
		}
		stop := fetchAll(ctx, all)
		defer stop()
		for i, one := range all[:len(targets)] {
			b.meter.begin(one.target, i+1, len(targets))
			if err := one.make(ctx); err != nil {
				return Binaries{}, fmt.Errorf("build %s: %w", targets[i], err)
			}
			*recipes[targets[i]].path(&binaries) = one.binary
		}
		return binaries, nil
	})
}

// make builds the target when its modules are there.
func (b *builder) make(ctx context.Context) (err error) {
	select {
	case err = <-b.fetched:
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		return err
	}
	if version := b.otherKubernetes(); version != "" {
		b.binary, err = b.kubernetes(ctx, version)
		return err
	}
	if b.target == Kube {
		if b.recipe.ldflags, err = b.kubernetesRequired(); err != nil {
			return err
		}
	}
	b.binary, err = b.build(ctx)
	return err
}

// kubernetesRequired are the flags that let Kubernetes say of which release it is: of the one that test/go.mod
// requires.
func (b *builder) kubernetesRequired() (string, error) {
	content, err := os.ReadFile(filepath.Join(b.root, b.recipe.dir, "go.mod"))
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(content)) {
		if fields := strings.Fields(line); len(fields) == 2 && fields[0] == kubernetesModule {
			return kubernetesIs(fields[1]), nil
		}
	}
	return "", nil
}

// otherKubernetes is the release that is built in place of that of test/go.mod, "" for none.
func (b *builder) otherKubernetes() string {
	if b.target != Kube {
		return ""
	}
	return os.Getenv(KubernetesVariable)
}

// withBuilder hands a builder to do, alone of all processes.
func withBuilder[T any](ctx context.Context, watcher Watcher,
	do func(b *builder) (T, error)) (none T, err error) {
	root, err := Root()
	if err != nil {
		return none, err
	}
	goTool, err := exec.LookPath("go")
	if err != nil {
		return none, fmt.Errorf("find the go command: %w; install Go and put it in PATH", err)
	}
	if err := os.MkdirAll(binDir(root), 0o755); err != nil {
		return none, fmt.Errorf("make the build directory: %w", err)
	}
	unlock, err := lock(ctx, filepath.Join(root, ".build", "lock"), watcher.Told)
	if err != nil {
		return none, err
	}
	defer unlock()
	// A compiler that is killed leaves its files behind, and so did one whose builder was killed too.
	if err := errors.Join(os.RemoveAll(tempDir(root)), os.Mkdir(tempDir(root), 0o755)); err != nil {
		return none, fmt.Errorf("make the build directory: %w", err)
	}
	defer os.RemoveAll(tempDir(root))
	return do(&builder{goTool: goTool, root: root, meter: &meter{watcher: watcher}})
}

// Root returns the root directory of the repository: the nearest directory, from the
// working directory upwards, whose go.mod declares the module of the library.
func Root() (string, error) {
	start, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find the repository: %w", err)
	}
	for dir := start; ; dir = filepath.Dir(dir) {
		content, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && declares(string(content), rootModule) {
			return dir, nil
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return "", fmt.Errorf("find the repository: %w", err)
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("find the repository: no go.mod of %s in %s or above; run inside a checkout",
				rootModule, start)
		}
	}
}

func declares(goMod, module string) bool {
	for line := range strings.Lines(goMod) {
		if fields := strings.Fields(line); len(fields) >= 2 && fields[0] == "module" {
			return strings.Trim(fields[1], `"`) == module
		}
	}
	return false
}

func binDir(root string) string  { return filepath.Join(root, ".build", "bin") }
func tempDir(root string) string { return filepath.Join(root, ".build", "tmp") }

type builder struct {
	goTool, root string
	target       Target
	recipe       recipe
	meter        *meter
	// env is added to the environment of the go command.
	env []string
	// fetched says that the modules are there, or why not.
	fetched chan error
	// binary is what was built.
	binary string
}

func (b *builder) build(ctx context.Context) (string, error) {
	name, cgo, flags := string(b.target), "0", []string(nil)
	if b.target == Quorate && os.Getenv(RaceVariable) == "1" {
		if compiler, ok := b.cCompiler(ctx); ok {
			// A name of its own, so that switching back and forth links nothing.
			name, cgo, flags = name+raceSuffix, "1", []string{"-race"}
		} else {
			b.report("%s=1 has no effect: C compiler %q not found", RaceVariable, compiler)
		}
	}
	bin := filepath.Join(binDir(b.root), name)
	// -buildvcs=false: stamping the commit would relink everything at every commit.
	// -v names the packages as they are compiled, for the progress.
	args := append([]string{"build", "-v", "-trimpath", "-buildvcs=false", "-ldflags=-s -w" + b.recipe.ldflags,
		"-o", bin}, flags...)
	started := time.Now()
	before, _ := os.Stat(bin)
	err := b.run(ctx, b.meter.compiling(b.target), "build "+name, cgo, append(args, b.recipe.pkg)...)
	if err != nil {
		return "", err
	}
	after, err := os.Stat(bin)
	if err != nil {
		return "", err
	}
	if before != nil && os.SameFile(before, after) {
		b.meter.finished(b.target, upToDate)
	} else {
		b.meter.finished(b.target, fmt.Sprintf("built in %s", time.Since(started).Round(100*time.Millisecond)))
	}
	return bin, nil
}

// run runs the go command in the module of the recipe, and tells output what it prints.
func (b *builder) run(ctx context.Context, output *output, name, cgo string, args ...string) error {
	dir := filepath.Join(b.root, b.recipe.dir)
	command, err := process.Start(process.Spec{
		Name: "go " + name, Path: b.goTool, Args: args, Dir: dir, Log: output,
		// Each module is built with its own go.mod, whatever workspace surrounds it. The go command
		// puts a program in its place by a rename if it has linked it on the same file system.
		Env: slices.Concat(os.Environ(), b.env,
			[]string{"PWD=" + dir, "CGO_ENABLED=" + cgo, "GOWORK=off", "GOTMPDIR=" + tempDir(b.root)}),
	})
	if err != nil {
		return err
	}
	select {
	case <-command.Done():
	case <-ctx.Done():
		// The whole process group goes, compilers included; half a result is left
		// nowhere, because the go command writes its caches atomically, or cleans up at its next start.
		return errors.Join(ctx.Err(), command.Stop(ctx, 0))
	}
	if code := command.ExitCode(); code != 0 {
		said := output.tail()
		return fmt.Errorf("go %s in %s: exit code %d\n%s\n%s", strings.Join(args, " "), dir, code, said, advice(said))
	}
	return nil
}

func (b *builder) report(format string, args ...any) {
	b.meter.told(string(b.target) + ": " + fmt.Sprintf(format, args...))
}

// cCompiler returns the C compiler that cgo would use and whether it is there.
func (b *builder) cCompiler(ctx context.Context) (string, bool) {
	out, err := exec.CommandContext(ctx, b.goTool, "env", "CC").Output()
	fields := strings.Fields(string(out))
	if err != nil || len(fields) == 0 {
		return "CC", false
	}
	_, err = exec.LookPath(fields[0])
	return fields[0], err == nil
}

// lock takes the lock file, which the kernel frees when its holder ends in whatever
// way.
func lock(ctx context.Context, path string, progress func(string)) (unlock func(), err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open the lock of the build directory: %w", err)
	}
	ticker := time.NewTicker(lockPoll)
	defer ticker.Stop()
	for waiting := false; ; waiting = true {
		err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { _ = file.Close() }, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			_ = file.Close()
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		if !waiting {
			progress("waiting for another process that is building")
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			_ = file.Close()
			return nil, fmt.Errorf("wait for another build to release %s: %w", path, ctx.Err())
		}
	}
}
