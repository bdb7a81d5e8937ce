package main

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorate/quorate/test/harness"
	"github.com/quorate/quorate/test/harness/build"
)

func TestAScenarioBuildsOnlyWhatItUses(t *testing.T) {
	pair := []build.Target{build.Quorate, build.Etcd35, build.Etcd36, build.Kube}
	for scenario, want := range map[string][]build.Target{
		healthy:    pair,
		sickMember: pair,
		etcdDruid: {build.Quorate, build.Etcd36, build.Kube, build.Kubectl, build.Wrapper34, build.Wrapper35,
			build.BackupRestore, build.DropIn, build.Druid},
	} {
		t.Run(scenario, func(t *testing.T) {
			require.Equal(t, want, programs(scenario))
			for _, h := range hosts {
				require.Contains(t, build.Hosts, h)
			}
		})
	}
	t.Run("the etcds are those that it names", func(t *testing.T) {
		v := options{scenario: healthy}.versions()
		require.Equal(t, []string{harness.Etcd35, harness.Etcd36}, []string{"etcd:" + v.from, "etcd:" + v.to})
		require.True(t, strings.HasPrefix(v.from, strings.TrimPrefix(string(build.Etcd35), "etcd-")))
		require.True(t, strings.HasPrefix(v.to, strings.TrimPrefix(string(build.Etcd36), "etcd-")))
	})
}

func TestWhatWasBuiltOutsideIsKnownInside(t *testing.T) {
	outside := built{Began: time.Now().Add(-10 * time.Minute), Took: 9 * time.Minute,
		Binaries: build.Binaries{Kube: "/bin/kube", DropIn: "/bin/etcdbrctl"}}
	t.Setenv(builtVariable, "")
	_, err := builtOutside(os.Getenv)
	require.ErrorContains(t, err, builtVariable)
	require.NoError(t, outside.handInside(os.Setenv))
	inside, err := builtOutside(os.Getenv)
	require.NoError(t, err)
	require.True(t, outside.Began.Equal(inside.Began), "the time of building counts")
	inside.Began = outside.Began
	require.Equal(t, outside, inside)
}
