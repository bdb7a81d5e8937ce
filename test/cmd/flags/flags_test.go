package main

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/quorate/quorate/pkg/rollout"
)

// What is read here looks as etcd's sources do.
func TestTheFlagsInTheSourcesOfAServer(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"config/stage.go": `package config
			type Stage string
			const (
				One = Stage("one")
				Two = Stage("two")
				// Default is the same as another.
				Default = One
			)`,
		"features/features.go": `package features
			const First Feature = "First"
			var DefaultEtcdServerFeatureGates = map[Feature]Spec{First: {Default: true}}`,
		"embed/config.go": `package embed
			const GateFlag = "gates"
			func (cfg *Config) AddFlags(fs *flag.FlagSet) {
				fs.StringVar(&cfg.Name, "name", cfg.Name, "a name")
				fs.Var(values.New(""), "urls", "some URLs")
				cfg.Gates.AddFlag(fs, GateFlag)
			}`,
		"etcdmain/config.go": `package etcdmain
			var ignored = []string{"v", "vv"}
			func newConfig() {
				cfg.cf = configFlags{
					stage: flags.NewSelectiveStringsValue(string(cconfig.Default), string(cconfig.Two)),
				}
				fs := cfg.cf.flagSet
				cfg.ec.AddFlags(fs)
				fs.Var(cfg.cf.stage, "stage", fmt.Sprintf("one of %q", cfg.cf.stage.Valids()))
				for _, f := range cfg.ignored {
					fs.Var(&flags.IgnoredFlag{Name: f}, f, "")
				}
			}`,
		"etcdmain/other.go": `package etcdmain
			func other() { cmd.Flags().StringVar(&x, "of-another-command", "", "") }`,
	} {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	}
	flags, err := flagsOf(dir)
	require.NoError(t, err)
	require.Equal(t, "gates gates=First name stage stage=one stage=two urls v vv",
		strings.Join(slices.Sorted(maps.Keys(flags)), " "))
}

func TestTheFirstAndTheLastReleaseOfEachMinorVersionAreChosen(t *testing.T) {
	versions := []string{"v3.5.0-alpha.0", "v3.5.0", "v3.5.5", "v3.5.7", "v3.6.0", "v3.7.0-rc.0", "v3.7.0", "v3.7.1"}
	told := func(all bool) (s []string) {
		for _, r := range chosen(versions, all) {
			s = append(s, r.tagged)
		}
		return s
	}
	require.Equal(t, []string{"v3.5.0", "v3.5.7", "v3.6.0", "v3.7.0", "v3.7.1"}, told(false))
	require.Equal(t, []string{"v3.5.0", "v3.5.5", "v3.5.7", "v3.6.0", "v3.7.0", "v3.7.1"}, told(true))
}

func TestEveryDifferenceIsTold(t *testing.T) {
	old, fresh := rollout.Version{Major: 3, Minor: 5}, rollout.Version{Major: 3, Minor: 6}
	releases := []release{
		{version: old, flags: map[string]bool{"gone": true, "stays": true, "stays=a": true}},
		{version: fresh, flags: map[string]bool{"new": true, "stays": true, "stays=a": true, "stays=b": true}},
	}
	right := func(v rollout.Version, argument string) bool {
		switch argument {
		case "gone":
			return v == old
		case "new", "stays=b":
			return v == fresh
		}
		return true
	}
	listed := []string{"gone", "new", "stays=b", "logger=capnslog"}
	require.Empty(t, compare(releases, right, listed))
	require.Equal(t, []string{
		"--gone: etcd 3.6.0 does not know it, and the table says that it does",
		"--new: etcd 3.5.0 does not know it, and the table says that it does",
		"--stays=b: etcd 3.5.0 does not know it, and the table says that it does",
	}, compare(releases, func(rollout.Version, string) bool { return true }, listed))
	require.Equal(t, []string{
		"--typo: no release knows it, and the table has it",
		"--stays: etcd 3.6.0 knows it, and the table says that it does not",
	}, compare(releases, func(v rollout.Version, argument string) bool {
		return right(v, argument) && (argument != "stays" || v == old)
	}, append(listed, "typo")))
}
