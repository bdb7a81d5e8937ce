package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"golang.org/x/term"
	"sigs.k8s.io/yaml"

	"github.com/quorate/quorate/internal/report"
)

// checkOutput checks the value of --output.
func checkOutput(value string, allowed ...string) error {
	if slices.Contains(allowed, value) {
		return nil
	}
	last := len(allowed) - 1
	return badInput{fmt.Errorf("--output: %q: use %s or %s", value, strings.Join(allowed[:last], ", "), allowed[last])}
}

// encode writes a value for programs.
func encode(w io.Writer, output string, value any) error {
	if output == "yaml" {
		text, err := yaml.Marshal(value)
		if err != nil {
			return err
		}
		_, err = w.Write(text)
		return err
	}
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(value)
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
	file, ok := w.(*os.File)
	return ok && term.IsTerminal(int(file.Fd())) //nolint:gosec // File descriptors are small.
}

// screen is what the output is shown on. It has colours on terminals only, and not if NO_COLOR is set (no-color.org).
func screen(w io.Writer) report.Screen {
	if !isTerminal(w) {
		return report.Screen{}
	}
	s := report.Screen{Paint: report.Paint(os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb")}
	// Where the terminal does not say how wide it is, lines are as long as they are.
	s.Width, _, _ = term.GetSize(int(w.(*os.File).Fd())) //nolint:gosec // File descriptors are small.
	return s
}
