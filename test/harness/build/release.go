package build

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// Release is one release of etcd that a test builds for itself, from a module that is written
// for it under .build.
type Release struct {
	// Version is etcd's, such as 3.5.35.
	Version string
	// Instead names what stands in for siblings of the server's module that proxies do not
	// serve in this version: the last part of their path, such as raft/v3, with the version
	// to take. What is tested of a release lies in the server's module itself.
	Instead map[string]string
}

// KubernetesVariable is the environment variable that asks for another release of Kubernetes than
// that of test/go.mod, such as 1.35.4: the control plane is built from it.
const KubernetesVariable = "QUORATE_KUBERNETES"

// EtcdVariable is the environment variable that asks for another release of etcd than 3.5.35 in the clusters that do
// not say which they want: 3.4.34, or any from 3.5 on, such as 3.7.3.
const EtcdVariable = "QUORATE_ETCD"

const (
	// etcdSource is the main package of every release of etcd from 3.5 on.
	etcdSource = "test/etcd/v35/main.go"
	kubeSource = "test/cmd/kube/main.go"
)

// Etcd builds a release and returns where it is. See [Some], which this may follow but not
// run at the same time as.
func Etcd(ctx context.Context, progress func(line string), r Release) (string, error) {
	return withBuilder(ctx, lines(progress), func(b *builder) (string, error) {
		b.meter.begin(Target("etcd-"+r.Version), 1, 1)
		text := "module etcd\n\ngo 1.26.0\n\nrequire go.etcd.io/etcd/server/v3 v" + r.Version + "\n"
		for _, module := range slices.Sorted(maps.Keys(r.Instead)) {
			path := "go.etcd.io/etcd/" + module
			text += fmt.Sprintf("\nreplace %s => %s v%s\n", path, path, strings.TrimPrefix(r.Instead[module], "v"))
		}
		// The version is a variable of a sibling's, which may be another's.
		path, err := b.release(ctx, "etcd", r.Version, etcdSource, text,
			" -X go.etcd.io/etcd/api/v3/version.Version="+r.Version)
		if err != nil {
			return "", fmt.Errorf("build %s: %w", b.target, err)
		}
		return path, nil
	})
}

// kubernetes builds the control plane of a release of Kubernetes, with the staging modules that belong to it.
func (b *builder) kubernetes(ctx context.Context, version string) (string, error) {
	minor, found := strings.CutPrefix(version, "1.")
	if !found {
		return "", fmt.Errorf("%s=%q is no release of Kubernetes; give one such as 1.36.3", KubernetesVariable, version)
	}
	download := exec.CommandContext(ctx, b.goTool, "mod", "download", "-json", kubernetesModule+"@v"+version)
	download.Dir = b.root
	out, err := download.Output()
	var answer struct{ GoMod, Error string }
	if jsonErr := json.Unmarshal(out, &answer); jsonErr != nil || answer.GoMod == "" {
		return "", fmt.Errorf("download %s v%s: %w", kubernetesModule, version,
			cmp.Or(err, jsonErr, errors.New(answer.Error)))
	}
	goMod, err := os.ReadFile(answer.GoMod)
	if err != nil {
		return "", err
	}
	text := "module kube\n\ngo 1.26.0\n\nrequire " + kubernetesModule + " v" + version + "\n\nreplace (\n"
	for line := range strings.Lines(string(goMod)) {
		if path, target, is := strings.Cut(line, "=>"); is && strings.Contains(target, "./staging/src/") {
			path = strings.TrimPrefix(strings.TrimSpace(path), "replace ")
			text += fmt.Sprintf("\t%s => %s v0.%s\n", path, path, minor)
		}
	}
	return b.release(ctx, "kube", version, kubeSource, text+")\n", kubernetesIs("v"+version))
}

const kubernetesModule = "k8s.io/kubernetes"

// kubernetesIs lets the programs say of which release they are. Helm refuses a chart for another one.
func kubernetesIs(version string) string {
	return " -X k8s.io/component-base/version.gitVersion=" + version
}

// release builds one release of a program, from a module that is written for it.
func (b *builder) release(ctx context.Context, name, version, source, goMod, ldflags string) (string, error) {
	b.target = Target(name + "-" + version)
	b.recipe = recipe{dir: filepath.Join(".build", name, version), pkg: ".", ldflags: ldflags}
	if err := b.writeModule(source, goMod); err != nil {
		return "", err
	}
	if err := b.run(ctx, b.meter.downloading(b.target), "tidy "+version, "0", "mod", "tidy"); err != nil {
		return "", err
	}
	return b.build(ctx)
}

// writeModule writes the module of the recipe, unless it is there.
func (b *builder) writeModule(source, text string) error {
	dir := filepath.Join(b.root, b.recipe.dir)
	main, err := os.ReadFile(filepath.Join(b.root, source))
	if err != nil {
		return err
	}
	// Tidied, go.mod says more than this; what was wanted is kept beside it.
	if old, err := os.ReadFile(filepath.Join(dir, "wanted")); err == nil && string(old) == text {
		return nil
	}
	return cmp.Or(
		os.MkdirAll(dir, 0o755),
		os.WriteFile(filepath.Join(dir, "main.go"), main, 0o644),
		ignoreMissing(os.Remove(filepath.Join(dir, "go.sum"))),
		os.WriteFile(filepath.Join(dir, "go.mod"), []byte(text), 0o644),
		os.WriteFile(filepath.Join(dir, "wanted"), []byte(text), 0o644),
	)
}

func ignoreMissing(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}
