package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/quorate/quorate/internal/report"
)

var update = flag.Bool("update", false, "write the dumps and the expected output of the situations anew")

// runPlan runs the real command and returns what it prints.
func runPlan(t testing.TB, args ...string) (stdout string, err error) {
	t.Helper()
	cmd := root()
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	cmd.SetArgs(append([]string{"plan"}, args...))
	err = cmd.ExecuteContext(t.Context())
	return out.String(), err
}

func codeOf(err error) int {
	var bad badInput
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errWaiting):
		return exitWaiting
	case errors.As(err, &bad):
		return exitBadInput
	}
	return exitFailure
}

// dumpArgs are the arguments for the dumps that a folder has.
func dumpArgs(dir string) []string {
	args := []string{"--now", now.Format(time.RFC3339), "-f", filepath.Join(dir, "objects.yaml")}
	for _, part := range []string{"member-list", "endpoint-status", "endpoint-health"} {
		file := filepath.Join(dir, part+".json")
		if _, err := os.Stat(file); err == nil {
			args = append(args, "--"+part, file)
		}
	}
	return args
}

func TestPlanOfEverySituation(t *testing.T) {
	base := filepath.Join("testdata", "plan")
	if *update {
		if err := os.RemoveAll(base); err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range situations {
		t.Run(s.name, func(t *testing.T) {
			dir := filepath.Join(base, s.name)
			if *update {
				writeFiles(t, dir, s.make().files(t))
			}
			args := append(dumpArgs(dir), s.args...)
			for _, part := range []struct{ output, file string }{{"json", "expected.json"}, {"table", "expected.txt"}} {
				out, err := runPlan(t, append(args, "-o", part.output)...)
				if code := codeOf(err); code != s.code {
					t.Fatalf("exit code %d, want %d (%v)\n%s", code, s.code, err, out)
				}
				if part.output == "json" {
					if got := summaryOf(t, out); got != s.want {
						t.Errorf("decides\n%q, want\n%q:\n%s", got, s.want, out)
					}
				}
				if *update {
					writeFiles(t, dir, map[string][]byte{part.file: []byte(out)})
				}
				want, err := os.ReadFile(filepath.Join(dir, part.file))
				if err != nil {
					t.Fatal(err)
				}
				if out != string(want) {
					t.Errorf("%s differs (go test ./cmd/quorate -update writes it anew); got\n%s\nwant\n%s", part.file, out, want)
				}
			}
		})
	}
}

// A plan is the same in YAML and in JSON, one step or all of them.
func TestAPlanInYAML(t *testing.T) {
	args := dumpArgs(filepath.Join("testdata", "plan", "healthy-first-pod"))
	for _, all := range [][]string{nil, {"--all"}} {
		text, err := runPlan(t, append(append(slices.Clone(args), all...), "-o", "json")...)
		if err != nil {
			t.Fatal(err)
		}
		got, err := runPlan(t, append(append(slices.Clone(args), all...), "-o", "yaml")...)
		if err != nil {
			t.Fatal(err)
		}
		asJSON, err := yaml.YAMLToJSON([]byte(got))
		if err != nil || got == text {
			t.Fatalf("%v\n%s", err, got)
		}
		var a, b any
		if err := errors.Join(json.Unmarshal([]byte(text), &a), json.Unmarshal(asJSON, &b)); err != nil || !reflect.DeepEqual(a, b) {
			t.Errorf("%v: %s is not\n%s", err, got, text)
		}
	}
}

// The folders and the situations are the same, so that no dump is forgotten.
func TestEveryDumpIsASituation(t *testing.T) {
	entries, err := os.ReadDir(filepath.Join("testdata", "plan"))
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, s := range situations {
		if known[s.name] {
			t.Errorf("two situations are named %s", s.name)
		}
		known[s.name] = true
	}
	for _, e := range entries {
		if !known[e.Name()] {
			t.Errorf("testdata/plan/%s is no situation of this test", e.Name())
		}
	}
}

func summaryOf(t *testing.T, out string) string {
	t.Helper()
	var p report.Plan
	if strings.HasPrefix(out, "[") {
		var all []report.Plan
		if err := json.Unmarshal([]byte(out), &all); err != nil {
			t.Fatal(err)
		}
		p = all[0]
	} else if err := json.Unmarshal([]byte(out), &p); err != nil {
		t.Fatal(err)
	}
	return summary(p)
}

func writeFiles(t testing.TB, dir string, files map[string][]byte) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
