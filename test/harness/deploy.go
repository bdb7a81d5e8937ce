package harness

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/resmap"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	"github.com/quorate/quorate/test/harness/build"
)

// shippedName is the name of the StatefulSet that deploy/ is written for.
const shippedName = "etcd-main"

// manifests is the output of `kubectl kustomize` for a folder of deploy/ with some of deploy/components
// on top, made by the library that kubectl uses.
func manifests(folder string, components ...string) (resmap.ResMap, error) {
	root, err := build.Root()
	if err != nil {
		return nil, err
	}
	disk, err := copied(filepath.Join(root, "deploy"))
	if err != nil {
		return nil, err
	}
	kustomization := "resources: [" + path.Join("..", "deploy", folder) + "]\ncomponents:\n"
	for _, c := range components {
		kustomization += "- " + path.Join("..", "deploy", "components", c) + "\n"
	}
	if err := disk.WriteFile("/built/kustomization.yaml", []byte(kustomization)); err != nil {
		return nil, err
	}
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(disk, "/built")
	if err != nil {
		return nil, fmt.Errorf("build deploy/%s with %v: %w", folder, components, err)
	}
	return built, nil
}

// copied is a copy of deploy/ in memory, so that a kustomization can be written beside it that refers
// to it.
func copied(deploy string) (filesys.FileSystem, error) {
	memory := filesys.MakeFsInMemory()
	err := filepath.WalkDir(deploy, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(deploy, name)
		if err != nil {
			return err
		}
		return memory.WriteFile(path.Join("/deploy", filepath.ToSlash(relative)), data)
	})
	return memory, err
}

// built has the YAML that was built already, by its components. A build takes longer than creating a
// cluster.
var built sync.Map

// access is the Role and the RoleBinding that Quorate ships, with some of deploy/components. They are
// renamed for another StatefulSet as deploy/base/kustomization.yaml says.
func access(name string, components ...string) (*rbacv1.Role, *rbacv1.RoleBinding, error) {
	key := strings.Join(components, ",")
	text, ok := built.Load(key)
	if !ok {
		m, err := manifests("base", components...)
		if err != nil {
			return nil, nil, err
		}
		data, err := m.AsYaml()
		if err != nil {
			return nil, nil, err
		}
		text, _ = built.LoadOrStore(key, string(data))
	}
	return parseAccess(strings.ReplaceAll(text.(string), shippedName, name))
}

func parseAccess(text string) (*rbacv1.Role, *rbacv1.RoleBinding, error) {
	var role *rbacv1.Role
	var binding *rbacv1.RoleBinding
	for _, document := range strings.Split(text, "\n---\n") {
		var kind struct{ Kind string }
		if err := yaml.Unmarshal([]byte(document), &kind); err != nil {
			return nil, nil, err
		}
		var into any
		switch {
		case kind.Kind == "Role" && role == nil:
			role = &rbacv1.Role{}
			into = role
		case kind.Kind == "RoleBinding" && binding == nil:
			binding = &rbacv1.RoleBinding{}
			into = binding
		default:
			return nil, nil, fmt.Errorf("deploy/: expected one Role and one RoleBinding, found a %q", kind.Kind)
		}
		if err := yaml.UnmarshalStrict([]byte(document), into); err != nil {
			return nil, nil, fmt.Errorf("deploy/: %s: %w", kind.Kind, err)
		}
	}
	if role == nil || binding == nil {
		return nil, nil, errors.New("deploy/: expected a Role and a RoleBinding")
	}
	return role, binding, nil
}

// operators are the two Roles that are shipped for people, renamed for another StatefulSet.
func operators(name string) (*rbacv1.ClusterRole, *rbacv1.Role, error) {
	documents, err := documentsOf("operator.yaml")
	if err != nil {
		return nil, nil, err
	}
	if len(documents) != 2 {
		return nil, nil, fmt.Errorf("deploy/operator.yaml: expected a ClusterRole and a Role, found %d documents",
			len(documents))
	}
	var viewer rbacv1.ClusterRole
	var operator rbacv1.Role
	return &viewer, &operator, errors.Join(
		yaml.UnmarshalStrict([]byte(strings.ReplaceAll(documents[0], shippedName, name)), &viewer),
		yaml.UnmarshalStrict([]byte(strings.ReplaceAll(documents[1], shippedName, name)), &operator))
}

// documentsOf are the documents of a file of deploy/.
func documentsOf(name string) ([]string, error) {
	root, err := build.Root()
	if err != nil {
		return nil, err
	}
	data, err := os.ReadFile(filepath.Join(root, "deploy", name))
	if err != nil {
		return nil, err
	}
	documents := strings.Split(string(data), "\n---\n")
	if len(documents) > 1 {
		documents = documents[1:] // What comes before the first is a comment.
	}
	return documents, nil
}
