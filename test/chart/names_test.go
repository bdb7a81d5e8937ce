package chart

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// step is something that one applies: a file or a kustomization of deploy, or the chart with some values.
type step struct {
	path, values string
}

// ways are the orders in which the pages have the manifests applied.
var ways = []struct {
	name  string
	steps []step
}{
	{"by kustomize", []step{{path: "base"}, {path: "operator.yaml"}, {path: "sidecar-patch.yaml"},
		{path: "bootstrap-job.yaml"}, {path: "monitoring"}, {path: "fleet-operator.yaml"}}},
	{"by Helm", []step{{path: "chart", values: "least"}, {path: "sidecar-patch.yaml"}, {path: "bootstrap-job.yaml"}}},
	{"by Helm, with everything", []step{{path: "chart", values: "everything"}}},
	{"by Helm, with nodes", []step{{path: "chart", values: "nodes"}}},
	{"by Helm, with druid", []step{{path: "chart", values: "druid"}}},
	{"by kustomize, for another StatefulSet", []step{{path: "overlays/etcd-events"}}},
	{"with druid", []step{{path: "druid"}, {path: "druid/access"}, {path: "druid/etcd.yaml"},
		{path: "bootstrap-job.yaml"}}},
}

// given are the objects that are the user's, by the file that names them, and the words by which it says so.
var given = map[string]struct {
	names []string
	words string
}{
	"sidecar-patch.yaml": {[]string{"volume etcd-ca", "volume etcd-client-tls"}, "The volumes are yours"},
	"bootstrap-job.yaml": {[]string{"Secret etcd-main-ca", "Secret etcd-main-client-tls"}, "The Secrets are yours"},
}

// everywhere are what Kubernetes makes in every namespace.
var everywhere = []string{"ServiceAccount default", "ConfigMap kube-root-ca.crt"}

// madeByOthers is what etcd-druid makes for an Etcd, as the comment of deploy/druid/access says.
var madeByOthers = map[string][]string{
	"with druid": {"ServiceAccount etcd-main"}, "by Helm, with druid": {"ServiceAccount etcd-main"},
}

// A pod whose ServiceAccount nobody made is never created. That cost a member once.
func TestEveryManifestMakesWhatItNames(t *testing.T) {
	covered := map[string]bool{}
	for _, way := range ways {
		made := slices.Concat(everywhere, madeByOthers[way.name])
		for _, s := range way.steps {
			text := applied(t, s)
			covered[s.path] = true
			users := given[s.path]
			if len(users.names) > 0 && !strings.Contains(text, users.words) {
				t.Errorf("deploy/%s does not say %q", s.path, users.words)
			}
			objects := decode(t, text)
			for _, o := range objects {
				made = append(made, kindAndName(o))
			}
			var named []string
			for _, o := range objects {
				named = append(named, names(o, "")...)
			}
			if s.path == "base" && len(named) < 2 {
				t.Errorf("deploy/base names %q: a test that finds no names proves nothing", named)
			}
			for _, name := range named {
				if !slices.Contains(made, name) && !slices.Contains(users.names, name) {
					t.Errorf("%s: deploy/%s names the %s, which nothing before has made", way.name, s.path, name)
				}
			}
			for _, name := range users.names {
				if !slices.Contains(named, name) {
					t.Errorf("deploy/%s does not name the %s any more", s.path, name)
				}
			}
		}
	}
	for _, path := range manifestsOf(t) {
		if !covered[path] && !covered[filepath.Dir(path)] {
			t.Errorf("deploy/%s is in no way of applying the manifests", path)
		}
	}
}

// What is built on the base without making the account, as the component's comment says.
func TestAnAccountOfTheUsersIsNeitherMadeNorDeleted(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(deploy, "components", "existing-account", "kustomization.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	comment, _, _ := strings.Cut(string(text), "apiVersion:")
	var body []string
	for line := range strings.Lines(comment) {
		if inner, ok := strings.CutPrefix(line, "#   "); ok {
			body = append(body, strings.NewReplacer("../../", "", "<account>", "mine").Replace(inner))
		}
	}
	dir := t.TempDir()
	for _, part := range []string{"base", "components"} {
		if err := os.CopyFS(filepath.Join(dir, part), os.DirFS(filepath.Join(deploy, part))); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(dir, "kustomization.yaml")
	if err := os.WriteFile(file, []byte(strings.Join(body, "")), 0o600); err != nil {
		t.Fatal(err)
	}
	built := kustomized(t, dir)
	if strings.Contains(built, "kind: ServiceAccount\nmetadata") || !strings.Contains(built, "name: mine") {
		t.Errorf("%s\nmakes\n%s", strings.Join(body, ""), built)
	}
}

// applied is what a step sends to the API server, with the comments of a file.
func applied(t *testing.T, s step) string {
	t.Helper()
	path := filepath.Join(deploy, s.path)
	switch info, err := os.Stat(path); {
	case err != nil:
		t.Fatal(err)
	case s.values != "":
		return rendered(t, s.values)
	case info.IsDir():
		return kustomized(t, path)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func decode(t *testing.T, text string) (objects []map[string]any) {
	t.Helper()
	for doc := range strings.SplitSeq(text, "\n---\n") {
		var o map[string]any
		if err := yaml.Unmarshal([]byte(doc), &o); err != nil {
			t.Fatal(err)
		}
		if o["kind"] != nil {
			objects = append(objects, o)
		}
	}
	return objects
}

func kindAndName(o map[string]any) string {
	return o["kind"].(string) + " " + o["metadata"].(map[string]any)["name"].(string)
}

// names are the other objects that something names, and the volumes that a pod does not have itself.
func names(value any, under string) (found []string) {
	text := func(m map[string]any, key string) string { s, _ := m[key].(string); return s }
	switch v := value.(type) {
	case []any:
		for _, one := range v {
			found = append(found, names(one, under)...)
		}
	case map[string]any:
		kind, name := text(v, "kind"), text(v, "name")
		switch under {
		case "roleRef":
			found = append(found, kind+" "+name)
		case "subjects":
			if kind == "ServiceAccount" {
				found = append(found, kind+" "+name)
			}
		case "configMap", "configMapRef", "configMapKeyRef":
			found = append(found, "ConfigMap "+name)
		case "secret", "secretRef", "secretKeyRef", "imagePullSecrets":
			found = append(found, "Secret "+name+text(v, "secretName"))
		case "persistentVolumeClaim":
			found = append(found, "PersistentVolumeClaim "+text(v, "claimName"))
		}
		if account := text(v, "serviceAccountName"); account != "" {
			found = append(found, "ServiceAccount "+account)
		}
		if policy := text(v, "policyName"); policy != "" && under == "spec" {
			found = append(found, "policy "+policy)
		}
		if containers, ok := v["containers"].([]any); ok {
			found = append(found, missingVolumes(containers, v["volumes"])...)
		}
		for key, inner := range v {
			for _, name := range names(inner, key) {
				if policy, is := strings.CutPrefix(name, "policy "); is && kind != "" {
					name = strings.TrimSuffix(kind, "Binding") + " " + policy
				}
				found = append(found, name)
			}
		}
	}
	return found
}

// missingVolumes are those that containers mount and their pod does not have.
func missingVolumes(containers []any, volumes any) (missing []string) {
	var has []string
	all, _ := volumes.([]any)
	for _, v := range all {
		has = append(has, v.(map[string]any)["name"].(string))
	}
	for _, c := range containers {
		mounts, _ := c.(map[string]any)["volumeMounts"].([]any)
		for _, m := range mounts {
			if name := m.(map[string]any)["name"].(string); !slices.Contains(has, name) {
				missing = append(missing, "volume "+name)
			}
		}
	}
	return missing
}

// manifestsOf are the manifests of deploy, without those of components, which are part of a kustomization, and the
// chart's.
func manifestsOf(t *testing.T) (paths []string) {
	t.Helper()
	err := filepath.WalkDir(deploy, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(deploy, path)
		if entry.IsDir() && (relative == "chart" || relative == "components") {
			return fs.SkipDir
		}
		if filepath.Ext(path) == ".yaml" {
			paths = append(paths, relative)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return paths
}
