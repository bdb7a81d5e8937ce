package harness

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/resmap"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	"github.com/quorate/quorate/test/harness/build"
)

// shippedName is the name of the StatefulSet that deploy/ is written for, and shippedNamespace that of its
// namespace, where one has to be said.
const shippedName, shippedNamespace = "etcd-main", "garden"

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

// rights are what Quorate ships for the sidecars. Those of the whole cluster are nil without a component that
// has them, and the account is with one that leaves it to others.
type rights struct {
	account        *corev1.ServiceAccount
	role           *rbacv1.Role
	binding        *rbacv1.RoleBinding
	clusterRole    *rbacv1.ClusterRole
	clusterBinding *rbacv1.ClusterRoleBinding
	// policy and policyBinding are what more than RBAC limits them, nil without a component that has them.
	policy        *admissionregistrationv1.ValidatingAdmissionPolicy
	policyBinding *admissionregistrationv1.ValidatingAdmissionPolicyBinding
}

// rules are those of all Roles.
func (r *rights) rules() []rbacv1.PolicyRule {
	if r.clusterRole == nil {
		return r.role.Rules
	}
	return slices.Concat(r.role.Rules, r.clusterRole.Rules)
}

// access is what Quorate ships for the sidecars, with some of deploy/components. It is renamed for another
// StatefulSet as deploy/base/kustomization.yaml says.
func access(name string, components ...string) (*rights, error) {
	key := strings.Join(components, ",")
	text, ok := built.Load(key)
	if !ok {
		m, err := manifests("base", components...)
		if err != nil {
			return nil, err
		}
		data, err := m.AsYaml()
		if err != nil {
			return nil, err
		}
		text, _ = built.LoadOrStore(key, string(data))
	}
	return parseAccess(strings.NewReplacer(shippedName, name, shippedNamespace, Namespace).Replace(text.(string)))
}

func parseAccess(text string) (*rights, error) {
	r := &rights{}
	into := map[string]any{"ServiceAccount": &r.account, "Role": &r.role, "RoleBinding": &r.binding,
		"ClusterRole": &r.clusterRole, "ClusterRoleBinding": &r.clusterBinding, "ValidatingAdmissionPolicy": &r.policy,
		"ValidatingAdmissionPolicyBinding": &r.policyBinding}
	for _, document := range strings.Split(text, "\n---\n") {
		var kind struct{ Kind string }
		if err := yaml.Unmarshal([]byte(document), &kind); err != nil {
			return nil, err
		}
		target, ok := into[kind.Kind]
		if !ok {
			return nil, fmt.Errorf("deploy/: a %q that is not expected, or a second one", kind.Kind)
		}
		delete(into, kind.Kind)
		if err := yaml.UnmarshalStrict([]byte(document), target); err != nil {
			return nil, fmt.Errorf("deploy/: %s: %w", kind.Kind, err)
		}
	}
	if r.role == nil || r.binding == nil || (r.clusterRole == nil) != (r.clusterBinding == nil) ||
		(r.policy == nil) != (r.policyBinding == nil) {
		return nil, errors.New("deploy/: expected a Role and a RoleBinding, and a ClusterRole or a policy only with " +
			"a binding")
	}
	return r, nil
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
