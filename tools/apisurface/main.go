// Command apisurface compares the library's exported API with the one on record, so that
// no change of it lands unseen.
//
//	apisurface -record docs/api.txt [-update] [packages]
//
// It runs in the library's folder. The record has a line for every exported identifier of
// every package that is named and that others can import, with its type, and one for each exported field and
// method. Whatever differs from it fails the check, additions too: the record stays whole,
// and every change of the API is in the diff that a reviewer reads.
//
// What a difference means follows semantic versioning. Before v1.0.0 an addition is free,
// and -update records it. A line that is gone or reads differently may stop a host from
// compiling: it needs a new minor version and a line in CHANGELOG.md that says what a host
// has to change. From v1.0.0 on it would need a new major version. An interface's line lists
// its methods, because a method more breaks those who implement it.
//
// It does not see behaviour, nor what breaks only code that Go's own promise of
// compatibility leaves out: struct literals without field names, and a struct that can no
// longer be compared.
//
// The exit code is 1 when the API differs, and 2 when it could not be read.
package main

import (
	"errors"
	"flag"
	"fmt"
	"go/types"
	"os"
	"slices"
	"strings"

	"golang.org/x/tools/go/packages"
)

const header = `# The exported API of the packages that a host needs, one line for each identifier, field and method.
# The other packages can be imported as well. They change without notice before v1, as their documentation says.
# Made by "make api-update"; "make api" fails when the code differs from it.
`

var errDiffers = errors.New("the API differs from its record")

func main() {
	record := flag.String("record", "", "file with the API on record")
	update := flag.Bool("update", false, "write the record instead of comparing with it")
	flag.Parse()
	err := run(*record, *update, flag.Args())
	if err == nil {
		return
	}
	fmt.Fprintln(os.Stderr, "apisurface:", err)
	if errors.Is(err, errDiffers) {
		os.Exit(1)
	}
	os.Exit(2)
}

func run(record string, update bool, patterns []string) error {
	if record == "" {
		return errors.New("-record is empty: name the file with the API on record")
	}
	current, err := load(patterns)
	if err != nil {
		return err
	}
	if update {
		return os.WriteFile(record, []byte(header+strings.Join(current, "\n")+"\n"), 0o644)
	}
	text, err := os.ReadFile(record)
	if err != nil {
		return fmt.Errorf("-record: %w; make api-update writes it", err)
	}
	d := compare(entries(string(text)), current)
	if d.empty() {
		return nil
	}
	fmt.Print(d)
	return fmt.Errorf("%w %s", errDiffers, record)
}

// load returns the surface of all packages that match the patterns and that a host can
// import.
func load(patterns []string) ([]string, error) {
	loaded, err := packages.Load(&packages.Config{
		Mode: packages.NeedName | packages.NeedModule | packages.NeedImports |
			packages.NeedTypes,
	}, patterns...)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(loaded, func(a, b *packages.Package) int { return strings.Compare(a.PkgPath, b.PkgPath) })
	module := ""
	var public []*types.Package
	for _, p := range loaded {
		if len(p.Errors) > 0 {
			return nil, fmt.Errorf("package %s: %w", p.PkgPath, p.Errors[0])
		}
		if p.Name == "main" || internal(p.PkgPath) {
			continue
		}
		if p.Module == nil {
			return nil, fmt.Errorf("package %s belongs to no module: run this in the library's folder", p.PkgPath)
		}
		module, public = p.Module.Path, append(public, p.Types)
	}
	lines := surface(module, public...)
	if len(lines) == 0 {
		return nil, fmt.Errorf("%q: no package with an exported identifier", patterns)
	}
	return lines, nil
}

func internal(path string) bool {
	return strings.Contains("/"+path+"/", "/internal/")
}

// entries are the record's lines without its comments.
func entries(text string) []string {
	var lines []string
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "#") {
			lines = append(lines, line)
		}
	}
	return lines
}
