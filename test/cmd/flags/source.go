package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// source is what is read of etcd's server of one release: where flags are defined, and the names that stand for
// strings there.
type source struct {
	files []*ast.File
	// strings are the constants by their names, and lists the variables that are lists of strings.
	strings map[string]string
	lists   map[string][]string
	// valids are the values that a flag takes, by the name of the variable that it is kept in.
	valids map[string][]string
}

// folders have what a flag needs: the flags themselves, and the constants in them.
var folders = [...]string{"embed", "etcdmain", "config", "features"}

// flagsOf reads the flags of etcd's command from the sources of a server: as name, and as name=value for each value of
// a flag that takes only some.
func flagsOf(dir string) (map[string]bool, error) {
	s := source{strings: map[string]string{}, lists: map[string][]string{}, valids: map[string][]string{}}
	for _, folder := range folders {
		if err := s.read(filepath.Join(dir, folder)); err != nil {
			return nil, err
		}
	}
	for _, file := range s.files {
		ast.Inspect(file, s.constants)
	}
	for _, file := range s.files {
		ast.Inspect(file, s.values)
	}
	flags := map[string]bool{}
	var problems []error
	for _, file := range s.files {
		ast.Inspect(file, func(n ast.Node) bool {
			if call, is := n.(*ast.CallExpr); is {
				problems = append(problems, s.flag(call, flags))
			}
			return true
		})
	}
	for _, name := range s.lists["ignored"] {
		flags[name] = true
	}
	return flags, errors.Join(problems...)
}

func (s *source) read(dir string) error {
	names, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // Older releases have fewer folders.
	}
	if err != nil {
		return err
	}
	for _, entry := range names {
		if !strings.HasSuffix(entry.Name(), ".go") || strings.HasSuffix(entry.Name(), "_test.go") {
			continue
		}
		path := filepath.Join(dir, entry.Name())
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		s.files = append(s.files, file)
	}
	return nil
}

// constants notes names that stand for a string, or for a list of strings.
func (s *source) constants(n ast.Node) bool {
	spec, is := n.(*ast.ValueSpec)
	if !is {
		return true
	}
	for i, value := range spec.Values {
		name := spec.Names[i].Name
		if text, known := s.text(value); known {
			s.strings[name] = text
		} else if list, is := value.(*ast.CompositeLit); is {
			s.lists[name] = s.texts(list.Elts)
		}
	}
	return true
}

// values notes which values a variable takes that a flag is kept in.
func (s *source) values(n ast.Node) bool {
	field, is := n.(*ast.KeyValueExpr)
	if !is {
		return true
	}
	key, isName := field.Key.(*ast.Ident)
	call, isCall := field.Value.(*ast.CallExpr)
	if isName && isCall && strings.HasPrefix(lastName(call.Fun), "NewSelectiveString") {
		s.valids[key.Name] = s.texts(call.Args)
	}
	return true
}

// flag notes the flag that a call defines: fs.StringVar(&variable, name, …), and others like it.
func (s *source) flag(call *ast.CallExpr, flags map[string]bool) error {
	method := lastName(call.Fun)
	if method == "AddFlag" && len(call.Args) == 2 { // The flag of the feature gates.
		name, known := s.text(call.Args[1])
		if !known {
			return errors.New("the flag of the feature gates has a name that cannot be read")
		}
		flags[name] = true
		for _, gate := range s.lists["DefaultEtcdServerFeatureGates"] {
			flags[name+"="+gate] = true
		}
		return nil
	}
	selector, is := call.Fun.(*ast.SelectorExpr)
	if !is || !strings.HasSuffix(method, "Var") || lastName(selector.X) != "fs" || len(call.Args) < 3 {
		return nil
	}
	name, known := s.text(call.Args[1])
	if !known {
		if lastName(call.Args[1]) == "f" {
			return nil // One of those that are ignored.
		}
		return fmt.Errorf("a flag has a name that cannot be read: %v", call.Args[1])
	}
	flags[name] = true
	for _, value := range s.valids[lastName(call.Args[0])] {
		flags[name+"="+value] = true
	}
	return nil
}

// texts are the strings that expressions stand for, or the keys of a map.
func (s *source) texts(list []ast.Expr) (texts []string) {
	for _, e := range list {
		if pair, is := e.(*ast.KeyValueExpr); is {
			e = pair.Key
		}
		if text, known := s.text(e); known {
			texts = append(texts, text)
		}
	}
	return texts
}

// text is the string that an expression stands for: a literal, a constant, or one of these as another type.
func (s *source) text(e ast.Expr) (string, bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(e.Value)
		return text, err == nil && e.Kind == token.STRING
	case *ast.CallExpr:
		if len(e.Args) == 1 {
			return s.text(e.Args[0])
		}
	case *ast.Ident, *ast.SelectorExpr:
		text, known := s.strings[lastName(e)]
		return text, known
	}
	return "", false
}

// lastName is the name at the end of a.b.name.
func lastName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	}
	return ""
}
