package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The page for whoever embeds Quorate, and the patch that it shows beside this module.
const (
	pageFile  = "../../docs/embedding.md"
	patchFile = "../../docs/etcd-backup-restore-0.43.0.patch"
)

func content(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// patched is what the patch does to a file.
type patched struct {
	name           string
	added, removed []string
}

func readPatch(t *testing.T) (files []patched) {
	t.Helper()
	for line := range strings.Lines(content(t, patchFile)) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case strings.HasPrefix(line, "+++ b/"):
			files = append(files, patched{name: line[len("+++ b/"):]})
		case strings.HasPrefix(line, "---"):
		case strings.HasPrefix(line, "+"):
			last := &files[len(files)-1]
			last.added = append(last.added, line[1:])
		case strings.HasPrefix(line, "-"):
			last := &files[len(files)-1]
			last.removed = append(last.removed, line[1:])
		}
	}
	return files
}

// flat is source without its indentation, so that a part of a function can stand alone.
func flat(text string) string {
	return regexp.MustCompile(`(?m)^[\t ]+`).ReplaceAllString(text, "")
}

func TestThePageShowsOnlyCodeThatIsCompiled(t *testing.T) {
	sources := []string{content(t, "../../test/cmd/host/main.go")}
	ours, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range ours {
		if !strings.HasSuffix(name, "_test.go") {
			sources = append(sources, content(t, name))
		}
	}
	for _, f := range readPatch(t) {
		sources = append(sources, strings.Join(f.added, "\n")+"\n")
	}
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(content(t, pageFile), -1)
	for _, b := range blocks {
		if !slices.ContainsFunc(sources, func(s string) bool { return strings.Contains(flat(s), flat(b[1])) }) {
			t.Errorf("%s has code that stands nowhere else:\n%s", pageFile, b[1])
		}
	}
	if len(blocks) < 3 {
		t.Errorf("%d blocks of code", len(blocks))
	}
}

func TestThePageCountsTheLinesThatThePatchTakes(t *testing.T) {
	text := content(t, pageFile)
	added, code, replaced := 0, 0, 0
	for _, f := range readPatch(t) {
		if row := fmt.Sprintf("| `%s` | %d |", f.name, len(f.added)); !strings.Contains(text, row) {
			t.Errorf("%s does not say %s", pageFile, row)
		}
		added += len(f.added) - len(f.removed)
		replaced += len(f.removed)
		imports := false
		for _, line := range f.added {
			line = strings.TrimSpace(line)
			switch {
			case line == "import (":
				imports = true
			case imports:
				imports = line != ")"
			case line == "" || strings.HasPrefix(line, "//") || strings.HasPrefix(line, `"`):
			default:
				code++
			}
		}
	}
	if words := fmt.Sprintf("a patch of %d lines", added); !strings.Contains(content(t, "../../README.md"), words) {
		t.Errorf("the front page does not say: %s", words)
	}
	want := fmt.Sprintf("It adds %d lines and replaces %d. Of these %d are code,", added, replaced, code)
	if !strings.Contains(strings.Join(strings.Fields(text), " "), want) {
		t.Errorf("%s does not say: %s", pageFile, want)
	}
}

// It is built from the module's source, with this library. The packages of the host are compiled once more, and all
// others are in the cache, because the settings and the versions are those of this module.
func TestThePatchBuildsAndRaisesNothingElse(t *testing.T) {
	var host struct{ Dir string }
	if err := list(t, "list", "-m", "-json", hosts).Decode(&host); err != nil {
		t.Fatal(err)
	}
	library, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	change, err := filepath.Abs(patchFile)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(host.Dir)); err != nil {
		t.Fatal(err)
	}
	run := func(name string, args ...string) {
		t.Helper()
		cmd := exec.Command(name, args...)
		cmd.Dir = dir
		// Without the ceiling git would find the checkout that the folder for temporary files may lie in.
		cmd.Env = append(os.Environ(), "PWD="+dir, "GOFLAGS=-mod=mod", "GIT_CEILING_DIRECTORIES="+filepath.Dir(dir))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
		}
	}
	run("git", "apply", "--unidiff-zero", change)
	const module = "github.com/quorate/quorate"
	run("go", "mod", "edit", "-require="+module+"@v0.0.0", "-replace="+module+"="+library)
	before := content(t, filepath.Join(dir, "go.mod"))
	run("go", "build", "-trimpath", "./pkg/server", "./cmd")
	if after := content(t, filepath.Join(dir, "go.mod")); !sameModules(before, after) {
		t.Errorf("go.mod was\n%s\nand is now\n%s", before, after)
	}
	// It is formatted like the rest of the host.
	var names []string
	for _, f := range readPatch(t) {
		names = append(names, f.name)
	}
	format := exec.Command("gofmt", append([]string{"-l"}, names...)...)
	format.Dir = dir
	if out, err := format.CombinedOutput(); err != nil || len(bytes.TrimSpace(out)) > 0 {
		t.Errorf("gofmt: %v: %s", err, out)
	}
}

// sameModules compares what two go.mod files require, in any order.
func sameModules(a, b string) bool {
	modules := func(text string) []string {
		found := regexp.MustCompile(`(?m)^\s*(?:require )?([\w./~-]+\.[\w./~-]+ v\S+)`).FindAllString(text, -1)
		for i := range found {
			found[i] = strings.TrimPrefix(strings.TrimSpace(found[i]), "require ")
		}
		slices.Sort(found)
		return found
	}
	return slices.Equal(modules(a), modules(b))
}
