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
// corev1 are both named v1. Parameters have no names, for a new name changes nothing. A type of an
// internal package goes by the alias that one of the packages exports for it. Where none does, the line
// shows the internal name: a host can hold such a value, but cannot name its type.
func surface(module string, packages ...*types.Package) []string {
	d := describer{module: module, public: map[string]types.Type{}}
	d.each(packages, func(obj types.Object) {
		if name, ok := obj.(*types.TypeName); ok && name.IsAlias() {
			if t, ok := d.behind(name); ok {
				d.public[t.String()] = name.Type()
			}
		}
	})
	d.each(packages, d.object)
	slices.Sort(d.lines)
	return d.lines
}

type describer struct {
	module string
	// public has the alias of each type of an internal package that has one.
	public map[string]types.Type

	pkg   *types.Package // The one that is described now.
	lines []string
}

// each calls do for everything that the packages export.
func (d *describer) each(packages []*types.Package, do func(types.Object)) {
	for _, d.pkg = range packages {
		for _, name := range d.pkg.Scope().Names() {
			if obj := d.pkg.Scope().Lookup(name); obj.Exported() {
				do(obj)
			}
		}
	}
}

func (d *describer) add(name, format string, args ...any) {
	d.lines = append(d.lines, d.folder(d.pkg)+"."+name+" "+fmt.Sprintf(format, args...))
}

func (d *describer) folder(pkg *types.Package) string {
	return strings.TrimPrefix(pkg.Path(), d.module+"/")
}

func (d *describer) text(t types.Type) string {
	return types.TypeString(d.unnamed(t), d.folder)
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
			d.alias(obj)
			return
		}
		d.named(obj.Name(), obj.Type().(*types.Named))
	}
}

// alias describes another name for a type. A host cannot name a type of the module's internal packages
// in any other way, so such an alias stands for the type itself, with all its fields and methods. Any
// other type is described where it is declared, or belongs to another module.
func (d *describer) alias(obj *types.TypeName) {
	if named, ok := d.behind(obj); ok {
		d.named(obj.Name(), named)
		return
	}
	d.add(obj.Name(), "alias %s", d.text(types.Unalias(obj.Type())))
}

// behind returns the type of an internal package that the alias names.
func (d *describer) behind(alias *types.TypeName) (*types.Named, bool) {
	named, ok := types.Unalias(alias.Type()).(*types.Named)
	return named, ok && d.hidden(named.Obj().Pkg())
}

// hidden tells whether the package is the module's own and out of a host's reach.
func (d *describer) hidden(pkg *types.Package) bool {
	return pkg != nil && strings.HasPrefix(pkg.Path(), d.module+"/") && internal(pkg.Path())
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

// unnamed returns the type without the names of parameters, and with public names only, as far as
// there are any.
func (d *describer) unnamed(t types.Type) types.Type {
	switch t := t.(type) {
	case *types.Named:
		if public, ok := d.public[t.String()]; ok {
			return public
		}
	case *types.Signature:
		if t.TypeParams().Len() > 0 {
			return t // Its parameters belong to this signature alone.
		}
		return types.NewSignatureType(nil, nil, nil, d.tuple(t.Params()), d.tuple(t.Results()), t.Variadic())
	case *types.Pointer:
		return types.NewPointer(d.unnamed(t.Elem()))
	case *types.Slice:
		return types.NewSlice(d.unnamed(t.Elem()))
	case *types.Array:
		return types.NewArray(d.unnamed(t.Elem()), t.Len())
	case *types.Map:
		return types.NewMap(d.unnamed(t.Key()), d.unnamed(t.Elem()))
	case *types.Chan:
		return types.NewChan(t.Dir(), d.unnamed(t.Elem()))
	}
	return t
}

func (d *describer) tuple(t *types.Tuple) *types.Tuple {
	var vars []*types.Var
	for v := range t.Variables() {
		vars = append(vars, types.NewParam(v.Pos(), v.Pkg(), "", d.unnamed(v.Type())))
	}
	return types.NewTuple(vars...)
}
