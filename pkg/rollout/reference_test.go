package rollout_test

import (
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/quorate/quorate/pkg/rollout"
)

var update = flag.Bool("update", false, "write the expected files anew")

func TestTheReferencePageIsWhatTheCodeSays(t *testing.T) {
	page := filepath.Join("..", "..", "docs", "reference.md")
	if *update {
		if err := os.WriteFile(page, []byte(rollout.Reference()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if string(have) != rollout.Reference() {
		t.Errorf("%s is out of date; run go test ./pkg/rollout -run Reference -update", page)
	}
}

func TestEveryRuleAndGuardIsInTheReference(t *testing.T) {
	documented := map[string]bool{}
	check := func(name, protects, do string) {
		if documented[name] {
			t.Errorf("%s is documented twice", name)
		}
		documented[name] = true
		if protects == "" || do == "" {
			t.Errorf("%s lacks what it protects or what to do", name)
		}
	}
	for _, e := range rollout.Rules {
		check(string(e.Name), e.Protects, e.Do)
	}
	for i := range rollout.Guards {
		e := &rollout.Guards[i]
		check(string(e.Name), e.Protects, e.Do)
	}
	for name, kind := range declaredConstants(t) {
		if !documented[name] {
			t.Errorf("%s %s is not documented", kind, name)
		}
		delete(documented, name)
	}
	for name := range documented {
		t.Errorf("%s is documented but not declared", name)
	}
}

// declaredConstants finds the values of all constants of type Rule or Guard in the
// package's source.
func declaredConstants(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok {
				return true
			}
			kind, ok := spec.Type.(*ast.Ident)
			if !ok || kind.Name != "Rule" && kind.Name != "Guard" || len(spec.Values) == 0 {
				return true
			}
			if lit, ok := spec.Values[0].(*ast.BasicLit); ok {
				name, err := strconv.Unquote(lit.Value)
				if err != nil {
					t.Fatal(err)
				}
				found[name] = kind.Name
			}
			return true
		})
	}
	if len(found) < 20 {
		t.Fatalf("found only %d constants: the search is broken", len(found))
	}
	return found
}
