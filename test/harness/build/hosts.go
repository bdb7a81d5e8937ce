package build

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// The hosts: the programs that Quorate lives beside in the pods of etcd-druid, and etcd-druid itself.
// Each is built as its project releases it, from a module in test/hosts.
const (
	// Druid is etcd-druid.
	Druid Target = "druid-0.37.1"
	// Wrapper34 and Wrapper35 are the releases of etcd-wrapper that have etcd 3.4.34 and 3.5.27 inside.
	Wrapper34 Target = "wrapper-0.6.2"
	Wrapper35 Target = "wrapper-0.7.0"
	// BackupRestore is the release of etcd-backup-restore that runs beside Wrapper34.
	BackupRestore Target = "etcdbrctl-0.41.2"
	// BackupRestoreNext is the one that runs beside Wrapper35. DropIn is the same with Quorate inside.
	BackupRestoreNext Target = "etcdbrctl-0.43.0"
	DropIn            Target = "etcdbrctl"
)

// Hosts are all of them.
var Hosts = []Target{Wrapper34, Wrapper35, BackupRestore, BackupRestoreNext, DropIn, Druid}

// HostsVariable is the environment variable that names a folder with the sources of the hosts: its folder
// "goproxy" is asked before the usual module proxy, which may lack them. Whoever sets it wants the hosts, so
// that a missing one is an error.
const HostsVariable = "QUORATE_HOSTS"

// gardener is the path of the hosts' modules. The checksum database does not know a folder's modules, but
// their hashes are in go.sum.
const gardener = "github.com/gardener/"

// ErrNoHosts says that no module proxy has the sources of a host, and that nobody has asked for them by
// [HostsVariable]. What runs on the hosts is left out then.
var ErrNoHosts = errors.New("the sources of etcd-druid and its programs are not to be had")

// hostRecipe builds the program pkg of a module of gardener's. The version is that of its go.mod, and is stamped
// into a variable of it where there is one.
func hostRecipe(target Target, pkg, variable string, path func(*Binaries) *string) recipe {
	r := recipe{dir: filepath.Join("test", "hosts", string(target)), pkg: gardener + pkg, path: path}
	module, _, _ := strings.Cut(pkg, "/")
	r.host = gardener + module
	if variable != "" {
		_, version, _ := strings.Cut(string(target), "-")
		r.ldflags = fmt.Sprintf(" -X %s/%s=v%s", r.host, variable, version)
	}
	return r
}

// hostProxy is the environment that lets the go command find the hosts.
func (b *builder) hostProxy(ctx context.Context) ([]string, error) {
	folder := os.Getenv(HostsVariable)
	if folder == "" {
		return nil, nil
	}
	folder, err := filepath.Abs(folder)
	if err != nil {
		return nil, err
	}
	usual, err := exec.CommandContext(ctx, b.goTool, "env", "GOPROXY").Output()
	if err != nil {
		return nil, fmt.Errorf("go env GOPROXY: %w", err)
	}
	// The folder has the hosts alone. What they need comes from the usual proxies.
	proxies := strings.TrimSpace(string(usual))
	if first := "file://" + filepath.ToSlash(filepath.Join(folder, "goproxy")); !strings.HasPrefix(proxies, first) {
		proxies = first + "," + proxies
	}
	return []string{"GOPROXY=" + proxies, "GONOSUMDB=" + gardener + "*"}, nil
}

// fetchHost brings the sources of a host into the module cache, and returns their folder.
func (b *builder) fetchHost(ctx context.Context) (string, error) {
	proxy, err := b.hostProxy(ctx)
	if err != nil {
		return "", err
	}
	fetch := exec.CommandContext(ctx, b.goTool, "mod", "download", "-json", b.recipe.host)
	fetch.Dir = filepath.Join(b.root, b.recipe.dir)
	fetch.Env = append(os.Environ(), append(proxy, "PWD="+fetch.Dir, "GOWORK=off")...)
	// If it fails, its answer says why, or what it prints beside one.
	out, err := fetch.Output()
	var module struct{ Dir, Error string }
	var exit *exec.ExitError
	switch {
	case json.Unmarshal(out, &module) == nil && module.Error != "":
		err = errors.New(oneLine(module.Error))
	case errors.As(err, &exit) && len(exit.Stderr) > 0:
		err = errors.New(oneLine(string(exit.Stderr)))
	}
	switch {
	case err == nil:
		b.env = proxy
		return module.Dir, nil
	case ctx.Err() != nil:
		return "", ctx.Err()
	case len(proxy) > 0, strings.Contains(err.Error(), "checksum mismatch"):
		return "", fmt.Errorf("fetch %s: %w; with %s=%q", b.recipe.host, err, HostsVariable,
			os.Getenv(HostsVariable))
	}
	return "", fmt.Errorf("%w: %w; set %s to a folder that has them", ErrNoHosts, err, HostsVariable)
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// Source is the folder in the module cache with the sources of a host, for what else is in there.
func Source(ctx context.Context, target Target) (string, error) {
	return withBuilder(ctx, lines(nil), func(b *builder) (string, error) {
		b.target, b.recipe = target, recipes[target]
		if b.recipe.host == "" {
			return "", fmt.Errorf("sources of %s: it is not one of the hosts", target)
		}
		return b.fetchHost(ctx)
	})
}
