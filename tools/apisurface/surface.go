package main

import (
	"fmt"
	"go/types"
	"slices"
	"strings"
)

// surface describes what a package exports, in the order of the identifiers. A line is an
// identifier, a space, and what it is:
//
//	coordinator.DefaultLockTTL const time.Duration = 10000000000
//	coordinator.Config type struct
//	coordinator.Config.Namespace field string
//	coordinator.Coordinator.Run method (*Coordinator) func(context.Context) error
//
// Packages of the module go by their folder, all others by their full path: appsv1 and
// corev1 are both named v1. Parameters have no names, for a new name changes nothing.
func surface(pkg *types.Package, module string) []string {
	d := describer{pkg: pkg, module: module}
	for _, name := range pkg.Scope().Names() {
		if obj := pkg.Scope().Lookup(name); obj.Exported() {
			d.object(obj)
		}
	}
	slices.Sort(d.lines)
	return d.lines
}

type describer struct {
	pkg    *types.Package
	module string
	lines  []string
}

func (d *describer) add(name, format string, args ...any) {
	d.lines = append(d.lines, d.folder(d.pkg)+"."+name+" "+fmt.Sprintf(format, args...))
}

func (d *describer) folder(pkg *types.Package) string {
	return strings.TrimPrefix(pkg.Path(), d.module+"/")
}

func (d *describer) text(t types.Type) string {
	return types.TypeString(unnamed(t), d.folder)
}

func (d *describer) object(obj types.Object) {
	switch obj := obj.(type) {
	case *types.Const:
		d.add(obj.Name(), "const %s = %s", d.text(obj.Type()), obj.Val().ExactString())
	case *types.Var:
		d.add(obj.Name(), "var %s", d.text(obj.Type()))
	case *types.Func:
		d.add(obj.Name(), "%s", d.text(obj.Type()))
	case *types.TypeName:
		if obj.IsAlias() {
			d.add(obj.Name(), "alias %s", d.text(types.Unalias(obj.Type())))
			return
		}
		d.named(obj.Name(), obj.Type().(*types.Named))
	}
}

func (d *describer) named(name string, t *types.Named) {
	kind := "type" + d.parameters(t.TypeParams())
	switch u := t.Underlying().(type) {
	case *types.Struct:
		d.add(name, "%s struct", kind)
		d.fields(name, u)
	case *types.Interface:
		d.contract(name, kind, u)
		return // Its methods are there already.
	default:
		d.add(name, "%s %s", kind, d.text(u))
	}
	d.methods(name, t)
}

func (d *describer) parameters(list *types.TypeParamList) string {
	var all []string
	for p := range list.TypeParams() {
		all = append(all, p.Obj().Name()+" "+d.text(p.Constraint()))
	}
	if all == nil {
		return ""
	}
	return "[" + strings.Join(all, ", ") + "]"
}

func (d *describer) fields(name string, s *types.Struct) {
	for f := range s.Fields() {
		switch {
		case f.Exported() && f.Embedded():
			d.add(name+"."+f.Name(), "embedded %s", d.text(f.Type()))
		case f.Exported():
			d.add(name+"."+f.Name(), "field %s", d.text(f.Type()))
		case f.Embedded():
			// Its fields are reached through the struct, although it is not.
			t := f.Type()
			if p, ok := t.Underlying().(*types.Pointer); ok {
				t = p.Elem()
			}
			if s, ok := t.Underlying().(*types.Struct); ok {
				d.fields(name, s)
			}
		}
	}
}

// contract describes an interface: its own line lists the methods, for one more breaks
// those who implement it.
func (d *describer) contract(name, kind string, i *types.Interface) {
	var names []string
	hidden := false
	for m := range i.Methods() {
		if !m.Exported() {
			hidden = true
			continue
		}
		names = append(names, m.Name())
		d.add(name+"."+m.Name(), "method %s", d.text(m.Type()))
	}
	for e := range i.EmbeddedTypes() {
		if _, ok := e.Underlying().(*types.Interface); !ok {
			names = append(names, d.text(e)) // A constraint's set of types.
		}
	}
	if hidden {
		names = append(names, "unexported methods")
	}
	slices.Sort(names)
	d.add(name, "%s interface{%s}", kind, strings.Join(names, "; "))
}

// methods describes the methods of a type and its pointer. Those of an exported embedded
// type are promised where that type is.
func (d *describer) methods(name string, t *types.Named) {
	values, all := types.NewMethodSet(t), types.NewMethodSet(types.NewPointer(t))
	for m := range all.Methods() {
		if !m.Obj().Exported() || d.promoted(t, m) {
			continue
		}
		receiver := "*" + name
		if values.Lookup(m.Obj().Pkg(), m.Obj().Name()) != nil {
			receiver = name
		}
		d.add(name+"."+m.Obj().Name(), "method (%s) %s", receiver, d.text(m.Obj().Type()))
	}
}

// promoted tells whether the method comes from an exported embedded type.
func (d *describer) promoted(t *types.Named, m *types.Selection) bool {
	s, ok := t.Underlying().(*types.Struct)
	return ok && len(m.Index()) > 1 && s.Field(m.Index()[0]).Exported()
}

// unnamed returns the type without the names of parameters.
func unnamed(t types.Type) types.Type {
	switch t := t.(type) {
	case *types.Signature:
		if t.TypeParams().Len() > 0 {
			return t // Its parameters belong to this signature alone.
		}
		return types.NewSignatureType(nil, nil, nil, tuple(t.Params()), tuple(t.Results()), t.Variadic())
	case *types.Pointer:
		return types.NewPointer(unnamed(t.Elem()))
	case *types.Slice:
		return types.NewSlice(unnamed(t.Elem()))
	case *types.Array:
		return types.NewArray(unnamed(t.Elem()), t.Len())
	case *types.Map:
		return types.NewMap(unnamed(t.Key()), unnamed(t.Elem()))
	case *types.Chan:
		return types.NewChan(t.Dir(), unnamed(t.Elem()))
	}
	return t
}

func tuple(t *types.Tuple) *types.Tuple {
	var vars []*types.Var
	for v := range t.Variables() {
		vars = append(vars, types.NewParam(v.Pos(), v.Pkg(), "", unnamed(v.Type())))
	}
	return types.NewTuple(vars...)
}
