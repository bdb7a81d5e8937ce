package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"golang.org/x/term"
	"k8s.io/client-go/util/jsonpath"
	"sigs.k8s.io/yaml"

	"github.com/quorate/quorate/internal/report"
)

// Outputs that are neither a table nor a whole object.
const (
	outputWide     = "wide"
	outputName     = "name"
	outputJSONPath = "jsonpath="
)

// checkOutput checks the value of --output.
func checkOutput(value string, allowed ...string) error {
	if slices.Contains(allowed, value) && value != outputJSONPath {
		return nil
	}
	if template, is := strings.CutPrefix(value, outputJSONPath); is && slices.Contains(allowed, outputJSONPath) {
		if err := jsonpath.New("").Parse(template); err != nil || template == "" {
			return badInput{fmt.Errorf("--output: %q: is not a template such as jsonpath={.items[*].name}", value)}
		}
		return nil
	}
	last := len(allowed) - 1
	if allowed = slices.Clone(allowed); allowed[last] == outputJSONPath {
		allowed[last] += "TEMPLATE"
	}
	return badInput{fmt.Errorf("--output: %q: use %s or %s", value, strings.Join(allowed[:last], ", "), allowed[last])}
}

// apiVersion is that of everything that is written for programs. Fields are added to it, and none changes its meaning.
const apiVersion = "quorate.dev/v1alpha1"

// encode writes a value for programs, with its apiVersion and kind. A list becomes an object with items, as in
// Kubernetes.
func encode(w io.Writer, output, kind string, value any) error {
	w, _ = beneath(w)
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	if text, err = typed(text, kind); err != nil {
		return err
	}
	if template, is := strings.CutPrefix(output, outputJSONPath); is {
		var object any
		if err := json.Unmarshal(text, &object); err != nil {
			return err
		}
		path := jsonpath.New("output").AllowMissingKeys(true)
		if err := path.Parse(template); err != nil {
			return badInput{err}
		}
		return path.Execute(w, object)
	}
	if output == "yaml" {
		if text, err = yaml.JSONToYAML(text); err != nil {
			return err
		}
		_, err = w.Write(text)
		return err
	}
	var indented bytes.Buffer
	if err := json.Indent(&indented, text, "", "  "); err != nil {
		return err
	}
	indented.WriteByte('\n')
	_, err = indented.WriteTo(w)
	return err
}

// typed puts apiVersion and kind before the fields of an object. Of a list, each item has them too.
func typed(text []byte, kind string) ([]byte, error) {
	if bytes.HasPrefix(text, []byte("[")) {
		var list struct {
			Items []json.RawMessage `json:"items"`
		}
		if err := json.Unmarshal(text, &list.Items); err != nil {
			return nil, err
		}
		for i := range list.Items {
			var err error
			if list.Items[i], err = typed(list.Items[i], kind); err != nil {
				return nil, err
			}
		}
		var err error
		if text, err = json.Marshal(list); err != nil {
			return nil, err
		}
		kind += "List"
	}
	fields := bytes.TrimPrefix(text, []byte("{"))
	head := fmt.Sprintf(`{"apiVersion":%q,"kind":%q`, apiVersion, kind)
	if !bytes.HasPrefix(fields, []byte("}")) {
		head += ","
	}
	return append([]byte(head), fields...), nil
}

// text is an error in a form that is safe to print. It may have several lines, and may repeat what
// others wrote, such as annotations of the Lease or names of members.
func text(err error) string {
	lines := strings.Split(err.Error(), "\n")
	for i := range lines {
		lines[i] = report.Clean(lines[i])
	}
	return strings.Join(lines, "\n")
}

// isTerminal is true if a person reads the output.
func isTerminal(w any) bool {
	if p, is := w.(pluginWriter); is {
		w = p.Writer
	}
	file, ok := w.(*os.File)
	return ok && term.IsTerminal(int(file.Fd())) //nolint:gosec // File descriptors are small.
}

// screen is what the output is shown on. It has colours on terminals only, and not if NO_COLOR is set (no-color.org).
func screen(w io.Writer) report.Screen {
	if !isTerminal(w) {
		return report.Screen{}
	}
	s := report.Screen{Paint: report.Paint(os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb")}
	w, plugin := beneath(w)
	if plugin {
		s.Reword = asPlugin
	}
	// If the terminal does not say how wide it is, lines are not wrapped.
	s.Width, _, _ = term.GetSize(int(w.(*os.File).Fd())) //nolint:gosec // File descriptors are small.
	return s
}
