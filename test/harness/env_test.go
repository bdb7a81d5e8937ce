package harness

import (
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/quorate/quorate/test/harness/build"
)

func TestThereAreImagesOnlyOfWhatWasBuilt(t *testing.T) {
	e := &Env{Binaries: build.Binaries{Quorate: "/quorate", Etcd35: "/etcd-3.5", Kube: "/kube"}}
	e.servers = servers(e.Binaries)
	require.Equal(t, []string{Etcd35, Sidecar, SidecarNext}, slices.Sorted(maps.Keys(e.images())))
	e.Binaries.Druid, e.Binaries.DropIn = "/druid", "/etcdbrctl"
	require.Contains(t, e.images(), DropIn)
	require.Len(t, e.images(), 5, "the init container's has only a shell, and needs no program")
}
