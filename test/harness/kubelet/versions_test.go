package kubelet

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAVersionIsWhatAProgramSaysWithoutWhatADistributionAdds(t *testing.T) {
	t.Parallel()
	for said, want := range map[string]string{
		"v1.36.3": "1.36.3",
		"containerd github.com/containerd/containerd 1.6.20~ds1 1.6.20~ds1-1+deb12u3\n": "1.6.20",
		"runc version 1.1.5+ds1\ncommit: 1.1.5+ds1-1+deb12u1\nspec: 1.0.2-dev\n":        "1.1.5",
		"nothing": "of an unknown version",
	} {
		require.Equal(t, want, release(said))
	}
}
