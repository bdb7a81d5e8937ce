package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// checked type-checks a package of one file.
func checked(t *testing.T, path, source string, imports ...*types.Package) *types.Package {
	t.Helper()
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, "p.go", source, 0)
	if err != nil {
		t.Fatal(err)
	}
	pkg, err := (&types.Config{Importer: packagesOf(imports)}).Check(path, files, []*ast.File{file}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return pkg
}

// packagesOf imports these packages and no other.
type packagesOf []*types.Package

func (all packagesOf) Import(path string) (*types.Package, error) {
	for _, p := range all {
		if p.Path() == path {
			return p, nil
		}
	}
	return nil, fmt.Errorf("%s is not there", path)
}

// surfaceOf describes a source that imports nothing.
func surfaceOf(t *testing.T, source string) []string {
	t.Helper()
	return surface("example.com/m", checked(t, "example.com/m/pkg/p", "package p\n"+source))
}

func TestTheSurfaceIsWhatOthersCanName(t *testing.T) {
	for _, test := range []struct {
		name, source string
		want         []string
	}{
		{"nothing unexported", "const a = 1; var b int; type c struct{ D int }; func (c) E() {}; func f() {}", nil},
		{"a constant with its value", "const A uint8 = 1 << 2", []string{"pkg/p.A const uint8 = 4"}},
		{"a variable", "var A []map[string]int", []string{"pkg/p.A var []map[string]int"}},
		{"a function without the names of parameters, however deep",
			"func A(x, y int, f func(z *string) (e error), more ...[]func(b bool)) (n int, err error) { return }",
			[]string{"pkg/p.A func(int, int, func(*string) error, ...[]func(bool)) (int, error)"}},
		{"a generic function", "func A[T any](x T) T { return x }", []string{"pkg/p.A func[T any](x T) T"}},
		{"an alias", "type A = []int", []string{"pkg/p.A alias []int"}},
		{"exported fields", "type A struct { B string; c int }",
			[]string{"pkg/p.A type struct", "pkg/p.A.B field string"}},
		{"an exported embedded type, whose methods stand there",
			"type A struct{ *B }; type B int; func (*B) C() {}",
			[]string{"pkg/p.A type struct", "pkg/p.A.B embedded *pkg/p.B", "pkg/p.B type int",
				"pkg/p.B.C method (*B) func()"}},
		{"what an unexported embedded type lends", "type A struct{ b }; type b struct { C int }; func (*b) D() {}",
			[]string{"pkg/p.A type struct", "pkg/p.A.C field int", "pkg/p.A.D method (*A) func()"}},
		{"methods with their receiver", "type A int; func (A) B(s string) {}; func (*A) C() {}; func (A) d() {}",
			[]string{"pkg/p.A type int", "pkg/p.A.B method (A) func(string)", "pkg/p.A.C method (*A) func()"}},
		{"a generic type", "type A[K comparable] struct { B K }",
			[]string{"pkg/p.A type[K comparable] struct", "pkg/p.A.B field K"}},
		{"an interface with the list of its methods", "type A interface { B(n int) error; C() }",
			[]string{"pkg/p.A type interface{B; C}", "pkg/p.A.B method func(int) error", "pkg/p.A.C method func()"}},
		{"an interface that only its package implements", "type A interface { B(); c() }",
			[]string{"pkg/p.A type interface{B; unexported methods}", "pkg/p.A.B method func()"}},
		{"a constraint", "type A interface { ~int | string }", []string{"pkg/p.A type interface{~int | string}"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := surfaceOf(t, test.source); !slices.Equal(got, test.want) {
				t.Errorf("got  %q\nwant %q", got, test.want)
			}
		})
	}
}

func TestAnAliasStandsForATypeThatNobodyElseCanName(t *testing.T) {
	const hidden = "type Policy struct { Most Amount; secret int }; type Amount int; func (Amount) Of(n int) int { " +
		"return n }; " +
		"type Pods interface { List() []Pod }; type Pod struct { Name string }"
	for _, test := range []struct {
		name, source string
		want         []string
	}{
		{"with its fields, whose types have no public name", "type Policy = hidden.Policy",
			[]string{"pkg/p.Policy type struct", "pkg/p.Policy.Most field internal/hidden.Amount"}},
		{"with its methods, and everywhere",
			"type ( Policy = hidden.Policy; Amount = hidden.Amount ); func F(a []*hidden.Amount) {}",
			[]string{"pkg/p.Amount type int", "pkg/p.Amount.Of method (Amount) func(int) int",
				"pkg/p.F func([]*pkg/p.Amount)",
				"pkg/p.Policy type struct", "pkg/p.Policy.Most field pkg/p.Amount"}},
		{"an interface", "type Pods = hidden.Pods",
			[]string{"pkg/p.Pods type interface{List}", "pkg/p.Pods.List method func() []internal/hidden.Pod"}},
		{"but not a type made of it", "type Pods = []hidden.Pod", []string{"pkg/p.Pods alias []internal/hidden.Pod"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			inner := checked(t, "example.com/m/internal/hidden", "package hidden\n"+hidden)
			pkg := checked(t, "example.com/m/pkg/p",
				"package p\nimport \"example.com/m/internal/hidden\"\n"+test.source, inner)
			if got := surface("example.com/m", pkg); !slices.Equal(got, test.want) {
				t.Errorf("got  %q\nwant %q", got, test.want)
			}
		})
	}
}

func TestADifferenceBreaksOrAdds(t *testing.T) {
	const source = "type A interface { B() }; type C struct { D int }; func E(n int) {}"
	for _, test := range []struct {
		name, source            string
		removed, changed, added []string
	}{
		{"no difference", source, nil, nil, nil},
		{"a new name for a parameter is none", strings.Replace(source, "E(n", "E(m", 1), nil, nil, nil},
		{"a function gone", strings.Replace(source, "func E", "func e", 1), []string{"pkg/p.E"}, nil, nil},
		{"a field gone", strings.Replace(source, "D int", "", 1), []string{"pkg/p.C.D"}, nil, nil},
		{"another parameter", strings.Replace(source, "n int", "n uint", 1), nil, []string{"pkg/p.E"}, nil},
		{"another field", strings.Replace(source, "D int", "D int; F int", 1), nil, nil, []string{"pkg/p.C.F"}},
		{"another function", source + "; func G() {}", nil, nil, []string{"pkg/p.G"}},
		{"another method of an interface breaks who implements it", strings.Replace(source, "B()", "B(); F()", 1),
			nil, []string{"pkg/p.A"}, []string{"pkg/p.A.F"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			d := compare(surfaceOf(t, source), surfaceOf(t, test.source))
			var changed []string
			for _, lines := range d.changed {
				changed = append(changed, lines[1])
			}
			for _, lists := range [][2][]string{{d.removed, test.removed}, {changed, test.changed},
				{d.added, test.added}} {
				for i, line := range lists[0] {
					lists[0][i], _, _ = strings.Cut(line, " ")
				}
				if !slices.Equal(lists[0], lists[1]) {
					t.Errorf("got %q, want %q in\n%s", lists[0], lists[1], d)
				}
			}
			if text := d.String(); strings.Contains(text, "Breaking") != (test.removed != nil || test.changed != nil) ||
				strings.Contains(text, "Added") != (test.added != nil) {
				t.Errorf("it says:\n%s", text)
			}
		})
	}
}

func TestTheRecordAgreesWithWhatItWasMadeFrom(t *testing.T) {
	record := filepath.Join(t.TempDir(), "api.txt")
	if err := run(record, true, []string{"golang.org/x/mod/semver"}); err != nil {
		t.Fatal(err)
	}
	if err := run(record, false, []string{"golang.org/x/mod/semver"}); err != nil {
		t.Error(err)
	}
	if err := run(record, false, []string{"golang.org/x/mod/module"}); err == nil {
		t.Error("another package's API agrees with the record")
	}
}

func TestWhatCannotBeReadIsNoEmptyAPI(t *testing.T) {
	record := filepath.Join(t.TempDir(), "api.txt")
	for _, pattern := range []string{"./no/such/folder", "."} {
		if err := run(record, true, []string{pattern}); err == nil {
			t.Errorf("%s: an API was recorded", pattern)
		}
	}
	if err := run(record, false, []string{"golang.org/x/mod/semver"}); err == nil ||
		!strings.Contains(err.Error(), "make api-update") {
		t.Errorf("no record: %v", err)
	}
}
