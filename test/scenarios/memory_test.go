package scenarios

import (
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/quorate/quorate/test/harness"
)

func TestTheMembersDataIsInMemory(t *testing.T) {
	if err := harness.NamespacesAvailable(); err != nil {
		t.Skipf("the members' data is on the disk, because nothing can be mounted: %v", err)
	}
	for _, mode := range []harness.Mode{harness.Loopback, harness.Namespaces} {
		var fs unix.Statfs_t
		require.NoError(t, unix.Statfs(environment(t, mode).VolumesDir(), &fs))
		require.EqualValues(t, unix.TMPFS_MAGIC, fs.Type, "the members' data is in memory")
	}
}
