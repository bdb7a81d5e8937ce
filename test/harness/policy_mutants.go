package harness

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/cel-go/common"
	"github.com/google/cel-go/common/ast"
	cel "github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/parser"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

// PolicyMutant is a policy without one of its clauses.
type PolicyMutant struct {
	// Name says what it lacks, and can be the name of a test.
	Name string
	Spec *admissionregistrationv1.ValidatingAdmissionPolicySpec
}

// PolicyMutants takes away, one at a time, every rule about resources, every condition, every validation, and every
// clause of their expressions: an operand of && or ||, one side of a choice, and an element of a list that something
// has to be in. A single rule or validation stays, because nothing would be left without it.
func PolicyMutants(spec *admissionregistrationv1.ValidatingAdmissionPolicySpec) ([]PolicyMutant, error) {
	var all []PolicyMutant
	add := func(name string, change func(*admissionregistrationv1.ValidatingAdmissionPolicySpec)) {
		mutant := spec.DeepCopy()
		change(mutant)
		all = append(all, PolicyMutant{strings.NewReplacer("quorate.dev/", "", "/", " ").Replace(name), mutant})
	}
	var failed error
	clauses := func(where, expression string,
		field func(*admissionregistrationv1.ValidatingAdmissionPolicySpec) *string) {
		mutants, err := withoutClauses(expression)
		failed = errors.Join(failed, err)
		for _, m := range mutants {
			add(where+": "+m.name, func(s *admissionregistrationv1.ValidatingAdmissionPolicySpec) {
				*field(s) = m.expression
			})
		}
	}
	if rules := spec.MatchConstraints.ResourceRules; len(rules) > 1 {
		for i, r := range rules {
			add(fmt.Sprintf("the rule for %s of %s", r.Operations, r.Resources),
				func(s *admissionregistrationv1.ValidatingAdmissionPolicySpec) {
					s.MatchConstraints.ResourceRules = slices.Delete(s.MatchConstraints.ResourceRules, i, i+1)
				})
		}
	}
	for i, c := range spec.MatchConditions {
		add("the condition "+c.Name, func(s *admissionregistrationv1.ValidatingAdmissionPolicySpec) {
			s.MatchConditions = slices.Delete(s.MatchConditions, i, i+1)
		})
		clauses("the condition "+c.Name, c.Expression,
			func(s *admissionregistrationv1.ValidatingAdmissionPolicySpec) *string {
				return &s.MatchConditions[i].Expression
			})
	}
	for i, v := range spec.Variables {
		clauses("the variable "+v.Name, v.Expression,
			func(s *admissionregistrationv1.ValidatingAdmissionPolicySpec) *string {
				return &s.Variables[i].Expression
			})
	}
	for i, v := range spec.Validations {
		where := fmt.Sprintf("the validation %d", i+1)
		if len(spec.Validations) > 1 {
			add(where, func(s *admissionregistrationv1.ValidatingAdmissionPolicySpec) {
				s.Validations = slices.Delete(s.Validations, i, i+1)
			})
		}
		clauses(where, v.Expression, func(s *admissionregistrationv1.ValidatingAdmissionPolicySpec) *string {
			return &s.Validations[i].Expression
		})
	}
	return all, failed
}

// mutated is an expression without a clause.
type mutated struct{ name, expression string }

// withoutClauses takes every clause out of an expression. Macros are not expanded, so that what is in them is found.
func withoutClauses(expression string) (all []mutated, err error) {
	p, err := parser.NewParser(parser.EnableOptionalSyntax(true))
	if err != nil {
		return nil, err
	}
	parsed, wrong := p.Parse(common.NewTextSource(expression))
	if len(wrong.GetErrors()) > 0 {
		return nil, fmt.Errorf("%s: %s", expression, wrong.ToDisplayString())
	}
	unparse := func(e ast.Expr) string {
		text, failed := parser.Unparse(e, parsed.SourceInfo())
		err = errors.Join(err, failed)
		return text
	}
	factory := ast.NewExprFactory()
	// in puts something in the place of a part for a moment. The parts of that part stay the same.
	in := func(part, other ast.Expr, name string) {
		kept := factory.NewUnspecifiedExpr(part.ID())
		kept.SetKindCase(part)
		part.SetKindCase(other)
		all = append(all, mutated{name, unparse(parsed.Expr())})
		part.SetKindCase(kept)
	}
	var walk func(e ast.Expr)
	walk = func(e ast.Expr) {
		switch e.Kind() {
		default: // It has no parts.
		case ast.SelectKind:
			walk(e.AsSelect().Operand())
		case ast.ListKind:
			for _, element := range e.AsList().Elements() {
				walk(element)
			}
		case ast.CallKind:
			call := e.AsCall()
			args := call.Args()
			switch call.FunctionName() {
			case cel.LogicalAnd, cel.LogicalOr:
				neutral := types.Bool(call.FunctionName() == cel.LogicalAnd)
				for _, a := range args {
					// One that is joined by the same operator is no operand, but several.
					if a.Kind() != ast.CallKind || a.AsCall().FunctionName() != call.FunctionName() {
						in(a, factory.NewLiteral(a.ID(), neutral), unparse(a))
					}
				}
			case cel.Conditional:
				in(e, args[1], "always as if "+unparse(args[0]))
				in(e, args[2], "never as if "+unparse(args[0]))
			case cel.In:
				if list := args[1]; list.Kind() == ast.ListKind {
					elements := list.AsList().Elements()
					for i, element := range elements {
						in(list, factory.NewList(list.ID(), slices.Delete(slices.Clone(elements), i, i+1), nil),
							unparse(element)+" in the list")
					}
				}
			}
			if call.IsMemberFunction() {
				walk(call.Target())
			}
			for _, a := range args {
				walk(a)
			}
		}
	}
	walk(parsed.Expr())
	return all, err
}
