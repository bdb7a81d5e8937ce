package build

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
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

// etcdSource is the main package of every release from 3.5 on.
const etcdSource = "test/etcd/v35/main.go"

// Etcd builds a release and returns where it is. See [Some], which this may follow but not
// run at the same time as.
func Etcd(ctx context.Context, progress func(line string), r Release) (string, error) {
	return withBuilder(ctx, progress, func(b *builder) (string, error) {
		b.target = Target("etcd-" + r.Version)
		dir := filepath.Join(".build", "etcd", r.Version)
		if err := r.write(b.root, filepath.Join(b.root, dir)); err != nil {
			return "", fmt.Errorf("build %s: %w", b.target, err)
		}
		// The version is a variable of a sibling's, which may be another's.
		b.recipe = recipe{dir: dir, pkg: ".", ldflags: " -X go.etcd.io/etcd/api/v3/version.Version=" + r.Version}
		if err := b.run(ctx, "tidy "+r.Version, "0", "mod", "tidy"); err != nil {
			return "", fmt.Errorf("build %s: %w", b.target, err)
		}
		path, err := b.build(ctx)
		if err != nil {
			return "", fmt.Errorf("build %s: %w", b.target, err)
		}
		return path, nil
	})
}

// write writes the module, unless it is there.
func (r Release) write(root, dir string) error {
	text := "module etcd\n\ngo 1.26.0\n\nrequire go.etcd.io/etcd/server/v3 v" + r.Version + "\n"
	for _, module := range slices.Sorted(maps.Keys(r.Instead)) {
		path := "go.etcd.io/etcd/" + module
		text += fmt.Sprintf("\nreplace %s => %s v%s\n", path, path, strings.TrimPrefix(r.Instead[module], "v"))
	}
	source, err := os.ReadFile(filepath.Join(root, etcdSource))
	if err != nil {
		return err
	}
	// Tidied, go.mod says more than this; what was wanted is kept beside it.
	if old, err := os.ReadFile(filepath.Join(dir, "wanted")); err == nil && string(old) == text {
		return nil
	}
	return cmp.Or(
		os.MkdirAll(dir, 0o755),
		os.WriteFile(filepath.Join(dir, "main.go"), source, 0o644),
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
