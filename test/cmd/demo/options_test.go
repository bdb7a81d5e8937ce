package main

import (
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOptions(t *testing.T) {
	none := func(string) string { return "" }
	env := func(name string) string {
		return map[string]string{"SCENARIO": sickMember, "STRATEGY": rollingUpdate}[name]
	}

	t.Run("without anything it is a healthy cluster, rolled by Quorate", func(t *testing.T) {
		o, err := parse(nil, none, io.Discard)
		require.NoError(t, err)
		require.Equal(t, []any{healthy, onDelete, 3, nodesAuto}, []any{o.scenario, o.strategy, o.replicas, o.nodes})
	})
	t.Run("the environment chooses, and flags have the last word", func(t *testing.T) {
		o, err := parse([]string{"--strategy=OnDelete"}, env, io.Discard)
		require.NoError(t, err)
		require.Equal(t, sickMember, o.scenario)
		require.Equal(t, onDelete, o.strategy)
	})
	t.Run("help tells the flags and the exit codes", func(t *testing.T) {
		var b strings.Builder
		_, err := parse([]string{"--help"}, none, &b)
		require.ErrorIs(t, err, flag.ErrHelp)
		require.Contains(t, b.String(), "-strategy")
		require.Contains(t, b.String(), "Exit code: 0")
	})
	full := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(full, "x"), nil, 0o600))
	for args, want := range map[string]string{
		"--scenario=ill":     `--scenario "ill": use healthy or sick-member or druid`,
		"--strategy=ondel":   `--strategy "ondel": use OnDelete or RollingUpdate`,
		"--network=bridge":   `--network "bridge": use loopback or namespaces`,
		"--nodes=vm":         `--nodes "vm": use auto or kubelet or agent`,
		"--replicas=1":       `--replicas 1: use 3 to 7`,
		"--timeout=0s":       `--timeout 0s: give a positive duration`,
		"--dir=" + full:      `is not empty; name a new or empty directory`,
		"up":                 `unexpected argument "up"`,
		"--replicas=many":    "replicas",
		"--no-such-flag=yes": "no-such-flag",
	} {
		t.Run("a bad value is named: "+args, func(t *testing.T) {
			_, err := parse([]string{args}, none, io.Discard)
			require.ErrorContains(t, err, want)
		})
	}
	t.Run("so many members that a sick one costs no quorum are refused where the loss is to be seen",
		func(t *testing.T) {
			_, err := parse([]string{"--replicas=5"}, env, io.Discard)
			require.ErrorContains(t, err, "--replicas 5: with --scenario sick-member")
			for _, args := range [][]string{
				{"--replicas=4"}, {"--replicas=5", "--strategy=OnDelete"}, {"--replicas=5", "--scenario=healthy"},
			} {
				_, err := parse(args, env, io.Discard)
				require.NoError(t, err, args)
			}
		})
	t.Run("etcd-druid's pods need namespaces, and Quorate rolls them", func(t *testing.T) {
		_, err := parse([]string{"--scenario=druid"}, none, io.Discard)
		require.NoError(t, err)
		_, err = parse([]string{"--scenario=druid", "--network=loopback"}, none, io.Discard)
		require.ErrorContains(t, err, "--network loopback: with --scenario druid use namespaces")
		_, err = parse([]string{"--scenario=druid", "--replicas=5"}, none, io.Discard)
		require.ErrorContains(t, err, "--replicas 5: with --scenario druid use 3")
		_, err = parse([]string{"--scenario=druid"}, func(name string) string {
			return map[string]string{"STRATEGY": rollingUpdate}[name]
		}, io.Discard)
		require.ErrorContains(t, err, "--strategy RollingUpdate: with --scenario druid use OnDelete")
	})
	t.Run("real nodes have a network of their own", func(t *testing.T) {
		_, err := parse([]string{"--nodes=kubelet", "--network=loopback"}, none, io.Discard)
		require.ErrorContains(t, err, "--network loopback: with --nodes kubelet give none")
	})
	t.Run("every bad value is named at once", func(t *testing.T) {
		_, err := parse([]string{"--scenario=ill", "--strategy=x"}, none, io.Discard)
		require.ErrorContains(t, err, "--scenario")
		require.ErrorContains(t, err, "--strategy")
	})
}

func TestThePodsRunOnRealNodesWhereTheyCanBeHad(t *testing.T) {
	missing := errors.New("the packages of a container runtime are not to be had")
	for _, c := range []struct {
		name, nodes, network, scenario string
		real                           error
		wantNodes, wantNetwork         string
		said                           bool
	}{
		{"there are real nodes", nodesAuto, "", healthy, nil, nodesKubelet, "namespaces", false},
		{"etcd-druid's pods run there too", nodesAuto, "", etcdDruid, nil, nodesKubelet, "namespaces", false},
		{"they are asked for", nodesKubelet, "", healthy, nil, nodesKubelet, "namespaces", false},
		{"there are none", nodesAuto, "", healthy, missing, nodesAgent, "loopback", true},
		{"there are none for etcd-druid", nodesAuto, "", etcdDruid, missing, nodesAgent, "namespaces", true},
		{"the agent is asked for", nodesAgent, "", healthy, nil, nodesAgent, "loopback", false},
		{"the agent's network is asked for", nodesAuto, "namespaces", healthy, nil, nodesAgent, "namespaces", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			var said []string
			o, err := options{nodes: c.nodes, network: c.network, scenario: c.scenario}.settled(
				func() error { return c.real }, func(line string) { said = append(said, line) })
			require.NoError(t, err)
			require.Equal(t, []string{c.wantNodes, c.wantNetwork}, []string{o.nodes, o.network})
			if !c.said {
				require.Empty(t, said)
				return
			}
			require.Len(t, said, 1)
			require.Contains(t, said[0], missing.Error(), "one line says why")
		})
	}
	_, err := options{nodes: nodesKubelet}.settled(func() error { return missing }, nil)
	require.EqualError(t, err, "--nodes kubelet: "+missing.Error()+"; use agent")
}
