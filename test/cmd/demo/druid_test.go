package main

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/quorate/quorate/test/harness/build"
)

func TestWhatTheScenarioDruidLacksIsSaidInOneLineWithWhatToDo(t *testing.T) {
	ofDruid := options{scenario: etcdDruid}
	missing := errors.New("network namespaces need root")
	require.NoError(t, withoutNamespaces(ofDruid, nil))
	require.EqualError(t, withoutNamespaces(ofDruid, missing),
		`--scenario "druid": network namespaces need root; run it as root, or see another scenario`)
	require.EqualError(t, withoutNamespaces(options{scenario: healthy, network: "namespaces"}, missing),
		`--network "namespaces": network namespaces need root; use "loopback"`)
	require.NoError(t, withoutNamespaces(options{scenario: healthy}, missing))

	var asked []build.Target
	has := func(_ context.Context, target build.Target) (string, error) {
		asked = append(asked, target)
		if target == build.Wrapper35 && len(asked) > len(hosts) {
			return "", build.ErrNoHosts
		}
		return "", nil
	}
	require.NoError(t, withoutHosts(t.Context(), has))
	require.Equal(t, hosts, asked, "every host is looked for")
	err := withoutHosts(t.Context(), has)
	require.ErrorIs(t, err, build.ErrNoHosts)
	require.ErrorContains(t, err, `--scenario "druid": `)
	require.NotContains(t, err.Error(), "\n")
}

func TestAllIsWellWhenEveryColumnOfTheEtcdSaysSo(t *testing.T) {
	etcd := func(ready bool, conditions map[string]string) *unstructured.Unstructured {
		var all []any
		for kind, status := range conditions {
			all = append(all, map[string]any{"type": kind, "status": status})
		}
		return &unstructured.Unstructured{Object: map[string]any{
			"status": map[string]any{"ready": ready, "conditions": all}}}
	}
	for name, c := range map[string]struct {
		ready bool
		spoil map[string]string
		want  bool
	}{
		"all is well":                        {true, nil, true},
		"it is not ready":                    {false, nil, false},
		"there is no quorum":                 {true, map[string]string{"Ready": "False"}, false},
		"a member has not been heard of yet": {true, map[string]string{"AllMembersReady": "Unknown"}, false},
		"there is no backup yet":             {true, map[string]string{"BackupReady": "Unknown"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			conditions := map[string]string{"Ready": "True", "AllMembersReady": "True", "BackupReady": "True",
				"ClusterIDMismatch": "False"}
			for kind, status := range c.spoil {
				conditions[kind] = status
			}
			require.Equal(t, c.want, allIsWell(etcd(c.ready, conditions)))
		})
	}
	require.False(t, allIsWell(&unstructured.Unstructured{Object: map[string]any{}}), "it is new")
}

func TestTheScenarioDruidSaysItsOwnVersionsAndWeighsNoHost(t *testing.T) {
	o := good()
	o.scenario = etcdDruid
	o.memory.Anonymous = 100 << 20
	j := o.judge()
	require.True(t, j.ok, j.broken)
	require.Contains(t, j.line, "all 3 members run etcd 3.5.27")
	for _, l := range o.summary() {
		require.NotContains(t, l.text, "memory")
	}
	require.Contains(t, introduction(o.options), "from etcd 3.4.34 to 3.5.27")
}
