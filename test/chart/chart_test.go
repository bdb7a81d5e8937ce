// Package chart renders the Helm chart with Helm's own library. It is a module of its own, because Helm brings more
// dependencies than all other tests. What it renders is kept in testdata, and package harness applies that to a real
// API server.
package chart

import (
	"flag"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/lint/support"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "write testdata anew")

const deploy = "../../deploy"

// TestMain keeps Helm from telling of the links that the chart has to the alerts and the dashboard.
func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler))
	os.Exit(m.Run())
}

// values are what people may want of the chart.
var values = []struct {
	name, yaml string
}{
	{"least", "statefulSet: etcd-main"},
	{"druid", "statefulSet: etcd-main\nserviceAccount: {create: false}\npromoteCurrentRevision: true"},
	{"nodes", "statefulSet: etcd-main\nreadNodes: true"},
	{"least-privilege", "statefulSet: etcd-main\nleastPrivilege: {enabled: true}"},
	{"quorum-guard", "statefulSet: etcd-main\nquorumGuard: {enabled: true}"},
	{"everything", `
statefulSet: etcd-main
members: 3
serviceAccount: {name: etcd-account}
podDisruptionBudget: {create: true, matchLabels: {app: etcd-main}}
readNodes: true
promoteCurrentRevision: true
leastPrivilege: {enabled: true}
quorumGuard: {enabled: true}
people: {create: true, viewers: [support], operators: [oncall]}
networkPolicy:
  create: true
  matchLabels: {app: etcd-main}
  from: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: monitoring}}}]
podMonitor: {create: true, matchLabels: {app: etcd-main}, labels: {release: prometheus}}
prometheusRule: {create: true}
dashboard: {create: true}
`},
}

func TestTheChartRendersWhatIsKept(t *testing.T) {
	for _, tc := range values {
		t.Run(tc.name, func(t *testing.T) {
			got, err := render(t, tc.yaml)
			if err != nil {
				t.Fatal(err)
			}
			// The alerts and the dashboard are long, and tested where they are.
			name := filepath.Join("testdata", tc.name+".yaml")
			if *update {
				if err := os.WriteFile(name, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(name)
			if err != nil || got != string(want) {
				t.Errorf("it is not what is in %s (go test -update writes that): %v\n%s", name, err, got)
			}
		})
	}
}

func TestTheChartPassesHelmLint(t *testing.T) {
	for _, tc := range values {
		var given map[string]any
		if err := yaml.Unmarshal([]byte(tc.yaml), &given); err != nil {
			t.Fatal(err)
		}
		result := lint.RunAll(filepath.Join(deploy, "chart"), given, "garden")
		for _, m := range result.Messages {
			if m.Severity >= support.WarningSev {
				t.Errorf("%s: %v", tc.name, m)
			}
		}
	}
}

// Bad values are refused before anything is installed, and the error names them.
func TestTheSchemaRefusesBadValues(t *testing.T) {
	for _, tc := range []struct{ name, yaml, says string }{
		{"no StatefulSet", "{}", "statefulSet"},
		{"a StatefulSet with a capital letter", "statefulSet: Etcd", "statefulSet"},
		{"a misspelt value", "statefulSet: etcd-main\nreadNode: true", "readNode"},
		{"no member", "statefulSet: etcd-main\nmembers: 0", "members"},
		{"a budget without labels", "statefulSet: etcd-main\npodDisruptionBudget: {create: true}",
			"podDisruptionBudget.matchLabels"},
		{"a policy without labels", "statefulSet: etcd-main\nnetworkPolicy: {create: true}",
			"networkPolicy.matchLabels"},
		{"a monitor without labels", "statefulSet: etcd-main\npodMonitor: {create: true}", "podMonitor.matchLabels"},
		{"an interval without a unit", "statefulSet: etcd-main\npodMonitor: {interval: \"30\"}", "interval"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if _, err := render(t, tc.yaml); err == nil || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("the error does not name %q: %v", tc.says, err)
			}
		})
	}
}

// Whoever installs by Helm grants the same as by kustomize, and no more.
func TestTheChartGrantsWhatTheKustomizationDoes(t *testing.T) {
	for _, tc := range []struct{ values, folder string }{
		{"least", "base"}, {"druid", "druid/access"},
	} {
		same(t, tc.folder, rightsIn(t, rendered(t, tc.values)),
			rightsIn(t, kustomized(t, filepath.Join(deploy, tc.folder))))
	}
	// What is for the whole cluster.
	cluster := func(text string) (found []map[string]any) {
		for _, o := range rightsIn(t, text) {
			if kind := o["kind"].(string); strings.HasPrefix(kind, "Cluster") || strings.HasPrefix(kind, "Validating") {
				found = append(found, o)
			}
		}
		return found
	}
	for _, tc := range []struct{ values, file string }{
		{"nodes", "nodes/access.yaml"}, {"least-privilege", "least-privilege/policy.yaml"},
		{"quorum-guard", "quorum-guard/policy.yaml"},
	} {
		text, err := os.ReadFile(filepath.Join(deploy, "components", tc.file))
		if err != nil {
			t.Fatal(err)
		}
		same(t, "components/"+tc.file, cluster(rendered(t, tc.values)), cluster(string(text)))
	}
	// The rights of people, which the chart grants in its namespace alone.
	people := func(text string) (found []map[string]any) {
		for _, o := range rightsIn(t, text) {
			name := o["metadata"].(map[string]any)["name"].(string)
			if of := strings.TrimPrefix(name, "etcd-main-"); o["rules"] != nil &&
				(of == "quorate-viewer" || of == "quorate-operator") {
				found = append(found, map[string]any{"metadata": map[string]any{"name": of}, "rules": o["rules"]})
			}
		}
		return found
	}
	text, err := os.ReadFile(filepath.Join(deploy, "operator.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if ours := people(rendered(t, "everything")); len(ours) != 2 {
		t.Errorf("the chart has %d Roles of people", len(ours))
	}
	same(t, "operator.yaml", people(rendered(t, "everything")), people(string(text)))
}

// same compares objects without the labels that Helm wants.
func same(t *testing.T, what string, ours, theirs []map[string]any) {
	t.Helper()
	text := func(list []map[string]any) string {
		var all []string
		for _, o := range list {
			delete(o["metadata"].(map[string]any), "labels")
			raw, err := yaml.Marshal(o)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, string(raw))
		}
		slices.Sort(all)
		return strings.Join(all, "---\n")
	}
	if a, b := text(ours), text(theirs); a != b || len(ours) == 0 {
		t.Errorf("the chart has\n%s\nand %s has\n%s", a, what, b)
	}
}

// kustomized is what kustomize makes of a folder.
func kustomized(t *testing.T, folder string) string {
	t.Helper()
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), folder)
	if err != nil {
		t.Fatal(err)
	}
	text, err := built.AsYaml()
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// rightsIn are the objects that grant something, or limit what is granted, and the accounts to which they do.
func rightsIn(t *testing.T, text string) (found []map[string]any) {
	t.Helper()
	for doc := range strings.SplitSeq(text, "\n---\n") {
		var o map[string]any
		if err := yaml.Unmarshal([]byte(doc), &o); err != nil {
			t.Fatal(err)
		}
		version, _ := o["apiVersion"].(string)
		if strings.HasPrefix(version, "rbac.") || strings.HasPrefix(version, "admissionregistration.") ||
			o["kind"] == "ServiceAccount" {
			found = append(found, o)
		}
	}
	return found
}

func rendered(t *testing.T, name string) string {
	t.Helper()
	for _, tc := range values {
		if tc.name == name {
			text, err := render(t, tc.yaml)
			if err != nil {
				t.Fatal(err)
			}
			return text
		}
	}
	t.Fatalf("no values %s", name)
	return ""
}

// render does what `helm template quorate deploy/chart -n garden` does, but for the notes.
func render(t *testing.T, given string) (string, error) {
	t.Helper()
	c, err := loader.Load(filepath.Join(deploy, "chart"))
	if err != nil {
		t.Fatal(err)
	}
	short(c)
	var vals map[string]any
	if err := yaml.Unmarshal([]byte(given), &vals); err != nil {
		t.Fatal(err)
	}
	all, err := util.ToRenderValues(c, vals, common.ReleaseOptions{Name: "quorate", Namespace: "garden", Revision: 1,
		IsInstall: true}, common.DefaultCapabilities)
	if err != nil {
		return "", err
	}
	files, err := engine.Render(c, all)
	if err != nil {
		return "", err
	}
	var names []string
	for name, text := range files {
		if strings.HasSuffix(name, ".yaml") && strings.TrimSpace(text) != "" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	var docs []string
	for _, name := range names {
		for doc := range strings.SplitSeq(strings.TrimSpace(files[name]), "\n---\n") {
			docs = append(docs, strings.TrimSpace(strings.TrimPrefix(doc, "---\n"))+"\n")
		}
	}
	return strings.Join(docs, "---\n"), nil
}

// short puts two lines in place of the dashboard and the alerts, which are tested where they are.
func short(c *chart.Chart) {
	for _, f := range c.Files {
		switch f.Name {
		case "files/dashboard.json":
			f.Data = []byte(`{"title": "Quorate"}`)
		case "files/alerts.yaml":
			f.Data = []byte("groups:\n- name: quorate\n  rules: []\n")
		}
	}
}

// What people type is run with the program of test/helm, and what it renders is kept with the library.
func TestHelmsProgramAndItsLibraryAreOfOneRelease(t *testing.T) {
	release := func(file string) string {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if fields := strings.Fields(strings.TrimPrefix(line, "require ")); len(fields) >= 2 &&
				fields[0] == "helm.sh/helm/v4" {
				return fields[1]
			}
		}
		t.Fatalf("%s requires no Helm", file)
		return ""
	}
	if library, program := release("../go.mod"), release("../helm/go.mod"); library != program {
		t.Errorf("test/go.mod has %s, and test/helm/go.mod has %s", library, program)
	}
}
