package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// variable says which guard is taken away.
const variable = "QUORATE_MUTANT"

// helper is what the guards ask whether they are there. It is compiled beside them.
const helper = `package %s

import "os"

var mutantIs = os.Getenv("` + variable + `")

func mutantKept(n string) bool { return mutantIs != n }
`

// judgeHelper lets a guard of the decision hold nothing. What it says stays as it is.
const judgeHelper = `
func mutantJudge(n string, judge func(*Assessment, *Replica) Verdict) func(*Assessment, *Replica) Verdict {
	return func(a *Assessment, s *Replica) Verdict {
		v := judge(a, s)
		v.Pass = v.Pass || !mutantKept(n)
		return v
	}
}
`

// site is a guard: what is to stand in its place, where n is its number.
type site struct {
	from, to int
	name     string
	with     func(text string, n int) string
}

// never and always are a condition that is taken away.
func never(text string, n int) string {
	return fmt.Sprintf("mutantKept(%q) && (%s)", strconv.Itoa(n), text)
}
func always(text string, n int) string {
	return fmt.Sprintf("(!mutantKept(%q) || (%s))", strconv.Itoa(n), text)
}

// sitesOf are the guards in a file.
func sitesOf(path, name string, rows bool) (pkg string, text []byte, sites []site, err error) {
	text, err = os.ReadFile(path)
	if err != nil {
		return "", nil, nil, err
	}
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, path, text, parser.SkipObjectResolution)
	if err != nil {
		return "", nil, nil, err
	}
	offset := func(p token.Pos) int { return set.Position(p).Offset }
	words := func(n ast.Node) string {
		var b bytes.Buffer
		_ = printer.Fprint(&b, set, n)
		return strings.Join(strings.Fields(b.String()), " ")
	}
	in := ""
	add := func(e ast.Expr, told string, with func(string, int) string) {
		if plain := words(e); plain != "err != nil" && plain != "err == nil" {
			what := fmt.Sprintf("%s %s: %s", name, in, told)
			sites = append(sites, site{offset(e.Pos()), offset(e.End()), what, with})
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			in = n.Name.Name
		case *ast.KeyValueExpr:
			if key, ok := n.Key.(*ast.Ident); rows && ok && key.Name == "judge" {
				in = "judge"
				add(n.Value, words(n.Value), func(text string, i int) string {
					return fmt.Sprintf("mutantJudge(%q, %s)", strconv.Itoa(i), text)
				})
			}
		case *ast.IfStmt:
			if !rows && leaves(n.Body.List) {
				for _, e := range parts(n.Cond, token.LOR) {
					add(e, words(e), never)
				}
			}
		case *ast.SwitchStmt:
			for _, c := range n.Body.List {
				if clause := c.(*ast.CaseClause); !rows && n.Tag == nil {
					for _, e := range clause.List {
						for _, e := range parts(e, token.LOR) {
							add(e, words(e), never)
						}
					}
				}
			}
		case *ast.ReturnStmt:
			for _, e := range n.Results {
				for _, with := range []struct {
					op   token.Token
					with func(string, int) string
				}{{token.LAND, always}, {token.LOR, never}} {
					if all := parts(e, with.op); !rows && len(all) > 1 {
						for _, e := range all {
							add(e, "… "+words(e), with.with)
						}
					}
				}
			}
		}
		return true
	})
	slices.SortFunc(sites, func(a, b site) int { return cmp.Compare(a.from, b.from) })
	// What is inside of another one is a part of it.
	kept := sites[:0]
	for _, s := range sites {
		if len(kept) == 0 || s.from >= kept[len(kept)-1].to {
			kept = append(kept, s)
		}
	}
	return file.Name.Name, text, kept, nil
}

// parts are the operands of an expression, or the expression itself.
func parts(e ast.Expr, op token.Token) []ast.Expr {
	switch b := e.(type) {
	case *ast.ParenExpr:
		if all := parts(b.X, op); len(all) > 1 {
			return all
		}
	case *ast.BinaryExpr:
		if b.Op == op {
			return append(parts(b.X, op), parts(b.Y, op)...)
		}
	}
	return []ast.Expr{e}
}

// leaves is true for statements after which the function, or the turn of a loop, is over.
func leaves(body []ast.Stmt) bool {
	if len(body) == 0 {
		return false
	}
	switch body[len(body)-1].(type) {
	case *ast.ReturnStmt, *ast.BranchStmt:
		return true
	}
	return false
}

// play takes away each guard of the package in turn, of those whose names have something in them.
func (t target) play(ctx context.Context, root, only string, tell func(line)) (err error) {
	work, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	dir := filepath.Join(root, t.dir)
	files := t.files
	if len(files) == 0 {
		all, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil {
			return err
		}
		for _, f := range all {
			if !strings.HasSuffix(f, "_test.go") {
				files = append(files, filepath.Base(f))
			}
		}
	}
	replace := map[string]string{}
	var names []string
	pkg := ""
	for _, f := range files {
		path := filepath.Join(dir, f)
		var text []byte
		var sites []site
		if pkg, text, sites, err = sitesOf(path, t.dir+"/"+f, t.rows); err != nil {
			return err
		}
		var out bytes.Buffer
		last := 0
		for _, s := range sites {
			out.Write(text[last:s.from])
			out.WriteString(s.with(string(text[s.from:s.to]), len(names)))
			last = s.to
			names = append(names, s.name)
		}
		out.Write(text[last:])
		copied := filepath.Join(work, f)
		if err := os.WriteFile(copied, out.Bytes(), 0o600); err != nil {
			return err
		}
		replace[path] = copied
	}
	help := fmt.Sprintf(helper, pkg)
	if t.rows {
		help += judgeHelper
	}
	if err := os.WriteFile(filepath.Join(work, "mutants_helper.go"), []byte(help), 0o600); err != nil {
		return err
	}
	replace[filepath.Join(dir, "mutants_helper.go")] = filepath.Join(work, "mutants_helper.go")
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(work, "overlay.json"), overlay, 0o600); err != nil {
		return err
	}
	judges := t.judges
	if len(judges) == 0 {
		judges = []judge{{dir: t.dir, limit: time.Minute}}
	}
	binary := func(i int) string { return filepath.Join(work, fmt.Sprintf("%d.test", i)) }
	for i, j := range judges {
		overlay := filepath.Join(work, "overlay.json")
		cmd := exec.CommandContext(ctx, "go", "test", "-c", "-overlay", overlay, "-o", binary(i), ".")
		cmd.Dir = filepath.Join(root, j.dir)
		if text, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("compile %s: %w\n%s", j.dir, err, text)
		}
		if by := j.miss(ctx, root, binary(i), ""); by != "" {
			return fmt.Errorf("%s fails as it is: %s", j.dir, by)
		}
	}
	seen := map[string]int{}
	for n, name := range names {
		if seen[name]++; seen[name] > 1 {
			name += fmt.Sprintf(" (%d)", seen[name])
		}
		if !strings.Contains(name, only) {
			continue
		}
		caught := ""
		for i, j := range judges {
			if caught = j.miss(ctx, root, binary(i), strconv.Itoa(n)); caught != "" {
				break
			}
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		tell(line{guard: name, room: t.room, caught: caught})
	}
	return nil
}

var failed = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)

// crash is the first line of why a program ended.
func crash(text []byte) string {
	for _, l := range strings.Split(string(text), "\n") {
		if strings.HasPrefix(l, "panic:") || strings.HasPrefix(l, "fatal error:") {
			return l
		}
	}
	return tail(text)
}

// miss runs the tests without a guard, and says which one misses it.
func (j judge) miss(ctx context.Context, root, binary, n string) string {
	limited, cancel := context.WithTimeout(ctx, j.limit)
	defer cancel()
	cmd := exec.CommandContext(limited, binary, "-test.short", "-test.failfast", "-test.run", j.run,
		"-test.skip", j.skip)
	cmd.Dir = filepath.Join(root, j.dir)
	cmd.Env = append(os.Environ(), variable+"="+n)
	text, err := cmd.CombinedOutput()
	if err == nil {
		return ""
	}
	switch all := failed.FindAllSubmatch(text, -1); {
	case len(all) > 0:
		// The name of a subtest says more than that of the test that it is in.
		longest := slices.MaxFunc(all[:min(2, len(all))], func(a, b [][]byte) int { return len(a[1]) - len(b[1]) })
		return "`" + strings.ReplaceAll(string(longest[1]), "_", " ") + "`"
	case limited.Err() != nil:
		return "the tests of `" + j.dir + "` do not end"
	}
	return "the tests of `" + j.dir + "` crash: " + crash(text)
}
