package harness

import (
	"testing"

	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

func TestAPolicyIsTriedWithoutEachOfItsClauses(t *testing.T) {
	const c, v = "!(a.?b.orValue('') in ['x', 'y'])", "has(a.b) ? a.b : c"
	const whole = "a && b && l.exists(x, x == 1 || x[?'2'].hasValue())"
	mutants, err := PolicyMutants(&admissionregistrationv1.ValidatingAdmissionPolicySpec{
		MatchConstraints: &admissionregistrationv1.MatchResources{
			ResourceRules: make([]admissionregistrationv1.NamedRuleWithOperations, 1),
		},
		MatchConditions: []admissionregistrationv1.MatchCondition{{Name: "c", Expression: c}},
		Variables:       []admissionregistrationv1.Variable{{Name: "v", Expression: v}},
		Validations:     []admissionregistrationv1.Validation{{Expression: whole}},
	})
	require.NoError(t, err)
	var got []string
	for _, m := range mutants {
		text := "gone"
		if len(m.Spec.MatchConditions) > 0 {
			text = m.Spec.MatchConditions[0].Expression + "; " + m.Spec.Variables[0].Expression + "; " +
				m.Spec.Validations[0].Expression
		}
		got = append(got, m.Name+" => "+text)
	}
	require.ElementsMatch(t, []string{
		"the condition c => gone",
		`the condition c: "x" in the list => !(a.?b.orValue("") in ["y"]); ` + v + "; " + whole,
		`the condition c: "y" in the list => !(a.?b.orValue("") in ["x"]); ` + v + "; " + whole,
		"the variable v: always as if has(a.b) => " + c + "; a.b; " + whole,
		"the variable v: never as if has(a.b) => " + c + "; c; " + whole,
		"the validation 1: a => " + c + "; " + v + `; true && b && l.exists(x, x == 1 || x[?"2"].hasValue())`,
		"the validation 1: b => " + c + "; " + v + `; a && true && l.exists(x, x == 1 || x[?"2"].hasValue())`,
		`the validation 1: l.exists(x, x == 1 || x[?"2"].hasValue()) => ` + c + "; " + v + "; a && b && true",
		"the validation 1: x == 1 => " + c + "; " + v + `; a && b && l.exists(x, false || x[?"2"].hasValue())`,
		`the validation 1: x[?"2"].hasValue() => ` + c + "; " + v + "; a && b && l.exists(x, x == 1 || false)",
	}, got)

	_, err = PolicyMutants(&admissionregistrationv1.ValidatingAdmissionPolicySpec{
		MatchConstraints: &admissionregistrationv1.MatchResources{},
		Validations:      []admissionregistrationv1.Validation{{Expression: "a &&"}},
	})
	require.ErrorContains(t, err, "Syntax error")
}
