package result_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/quorate/quorate/test/bench/result"
)

func TestEveryArmAndCaseIsFoundByItsName(t *testing.T) {
	for _, arm := range result.Arms {
		require.Equal(t, arm, result.ArmOf(arm.Name), "no two arms share a name")
		require.NotEmpty(t, arm.Title)
		require.NotEmpty(t, arm.About)
	}
	for _, c := range result.Cases {
		require.Equal(t, c, result.CaseOf(c.Name), "no two cases share a name")
		require.NotEmpty(t, c.Title)
		require.NotEmpty(t, c.About)
		require.Positive(t, c.Members)
	}
	require.Equal(t, result.Arm{Name: "other", Title: "other"}, result.ArmOf("other"))
	require.Equal(t, result.Case{Name: "other", Title: "other"}, result.CaseOf("other"))
}
