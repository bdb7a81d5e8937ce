package report

import (
	"runtime/debug"
	"testing"
)

func TestTheBuildIsThatOfQuorateWhoeverTheHostIs(t *testing.T) {
	const host = "example.org/host"
	commit := []debug.BuildSetting{{Key: "vcs", Value: "git"}, {Key: "vcs.revision", Value: "c0ffee"}}
	for _, tc := range []struct {
		name string
		info debug.BuildInfo
		told string
		want build
	}{
		{"our own program: all of it is known", debug.BuildInfo{GoVersion: "go1.26",
			Main: debug.Module{Path: module, Version: "v0.2.0"}, Settings: commit},
			"v0.2.0", build{"v0.2.0", "c0ffee", "go1.26"}},
		{"our own program, of a folder without tags", debug.BuildInfo{GoVersion: "go1.26",
			Main: debug.Module{Path: module, Version: "(devel)"}}, "", build{"(devel)", "", "go1.26"}},
		{"a host that requires a release: that release, and not the host's own version or commit",
			debug.BuildInfo{GoVersion: "go1.26", Main: debug.Module{Path: host, Version: "v9.9.9"}, Settings: commit,
				Deps: []*debug.Module{{Path: "example.org/other", Version: "v1.0.0"},
					{Path: module, Version: "v0.2.0"}}},
			"v9.9.9", build{"v0.2.0", "", "go1.26"}},
		{"a host with a copy of us in a folder: what the host tells",
			debug.BuildInfo{Main: debug.Module{Path: host}, Settings: commit,
				Deps: []*debug.Module{{Path: module, Version: "v0.1.0", Replace: &debug.Module{Path: "../quorate"}}}},
			"v9.9.9", build{"v9.9.9", "", ""}},
		{"a module beside ours, in our repository: it tells the version, and its commit is ours",
			debug.BuildInfo{Main: debug.Module{Path: module + "/cmd/etcdbrctl", Version: "v0.2.1"}, Settings: commit,
				Deps: []*debug.Module{{Path: module, Version: "v0.0.0", Replace: &debug.Module{Path: "../.."}}}},
			"v0.2.1", build{"v0.2.1", "c0ffee", ""}},
		{"a module whose name only begins like ours",
			debug.BuildInfo{Main: debug.Module{Path: module + "-fork"}, Settings: commit}, "v1", build{"v1", "", ""}},
		{"nothing is known", debug.BuildInfo{}, "", build{"(devel)", "", ""}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := buildOf(&tc.info, tc.told); got != tc.want {
				t.Errorf("%+v, want %+v", got, tc.want)
			}
		})
	}
}
