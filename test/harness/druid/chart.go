package druid

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/template"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/quorate/quorate/test/harness/objects"
)

// chart is etcd-druid's Helm chart, as its release has it.
type chart struct {
	dir       string
	namespace string
	// values are those of the chart itself, with ours on top.
	values map[string]any
	// files are what the chart reads besides its templates.
	files files
}

// files is what Helm calls .Files.
type files map[string][]byte

// Get is what a template calls.
func (f files) Get(name string) string { return string(f[name]) }

// openChart reads the chart and puts values over its own.
func openChart(dir, namespace string, values map[string]any, extra files) (*chart, error) {
	text, err := os.ReadFile(filepath.Join(dir, "values.yaml"))
	if err != nil {
		return nil, fmt.Errorf("read the chart: %w", err)
	}
	own := map[string]any{}
	if err := yaml.Unmarshal(text, &own); err != nil {
		return nil, fmt.Errorf("read the chart's values: %w", err)
	}
	overlay(own, values)
	return &chart{dir: dir, namespace: namespace, values: own, files: extra}, nil
}

// overlay puts values into others, by key.
func overlay(onto, values map[string]any) {
	for key, value := range values {
		below, isMap := onto[key].(map[string]any)
		if deeper, ok := value.(map[string]any); ok && isMap {
			overlay(below, deeper)
		} else {
			onto[key] = value
		}
	}
}

// render renders some of the chart's templates. It knows those of Helm's functions that they use.
func (c *chart) render(names ...string) ([]*unstructured.Unstructured, error) {
	templates := template.New("chart").Option("missingkey=zero")
	templates.Funcs(template.FuncMap{
		"include": func(name string, data any) (string, error) {
			var out strings.Builder
			err := templates.ExecuteTemplate(&out, name, data)
			return out.String(), err
		},
		"toYaml": func(value any) (string, error) {
			text, err := yaml.Marshal(value)
			return strings.TrimSuffix(string(text), "\n"), err
		},
		"nindent": func(spaces int, text string) string {
			margin := "\n" + strings.Repeat(" ", spaces)
			return margin + strings.ReplaceAll(text, "\n", margin)
		},
		"hasKey":   func(in map[string]any, key string) bool { _, has := in[key]; return has },
		"toString": func(value any) string { return fmt.Sprint(value) },
		"b64enc":   func(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) },
		"sha256sum": func(text string) string {
			sum := sha256.Sum256([]byte(text))
			return hex.EncodeToString(sum[:])
		},
		"trunc": func(length int, text string) string { return text[:min(length, len(text))] },
	})
	var all []*unstructured.Unstructured
	for _, name := range append([]string{"_helpers.tpl"}, names...) {
		text, err := os.ReadFile(filepath.Join(c.dir, "templates", name))
		if err != nil {
			return nil, fmt.Errorf("read the chart: %w", err)
		}
		parsed, err := templates.New(name).Parse(string(text))
		if err != nil {
			return nil, fmt.Errorf("read the chart: %w", err)
		}
		var out bytes.Buffer
		err = parsed.Execute(&out, map[string]any{
			"Values": c.values, "Files": c.files, "Release": map[string]any{"Namespace": c.namespace},
		})
		if err != nil {
			return nil, fmt.Errorf("render the chart: %w", err)
		}
		rendered, err := objects.Decode(out.Bytes())
		if err != nil {
			return nil, fmt.Errorf("render the chart's %s: %w", name, err)
		}
		all = append(all, rendered...)
	}
	return all, nil
}

// definitions are the chart's CustomResourceDefinitions.
func (c *chart) definitions() ([]*unstructured.Unstructured, error) {
	paths, err := filepath.Glob(filepath.Join(c.dir, "crds", "*.yaml"))
	if err != nil {
		return nil, err
	}
	var all []*unstructured.Unstructured
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("read the chart: %w", err)
		}
		crds, err := objects.Decode(text)
		if err != nil {
			return nil, fmt.Errorf("read the chart's %s: %w", filepath.Base(path), err)
		}
		all = append(all, crds...)
	}
	return all, nil
}
