package versions

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	bolt "go.etcd.io/bbolt"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/quorate/quorate/pkg/rollout"
)

// decided is what a coordinator would decide about three members in good health, and a template that gives them
// another image of etcd.
func decided(m rollout.Membership, image string, arguments ...string) rollout.Decision {
	return rollout.Decide(state(m, image, arguments...), rollout.DefaultPolicy())
}

// decidedAtARestart is the same while one of them restarts.
func decidedAtARestart(m rollout.Membership, image string, arguments ...string) rollout.Decision {
	s := state(m, image, arguments...)
	s.Etcd.Members = slices.Clone(m.Members)
	for i := range s.Etcd.Members {
		if s.Etcd.Members[i].Name == name(1) {
			s.Etcd.Members[i].Probe = rollout.Probe{Read: rollout.Failed}
		}
	}
	p := &s.Pods[1]
	p.Ready, p.ContainersReady, p.Etcd.Ready, p.Etcd.Restarts = false, false, false, 1
	return rollout.Decide(s, rollout.DefaultPolicy())
}

func state(m rollout.Membership, image string, arguments ...string) rollout.State {
	running := rollout.Container{State: rollout.ContainerRunning, Ready: true}
	s := rollout.State{
		Set: rollout.Set{
			Name: "etcd", UID: "set", Replicas: 3, OnDelete: true, UpdateRevision: "new",
			Etcd: rollout.Program{Image: image, Arguments: commanded(arguments)},
		},
		Etcd: m,
	}
	for i := range 3 {
		s.Pods = append(s.Pods, rollout.Pod{
			Name: name(i), UID: name(i), ResourceVersion: "1", Ordinal: i, MemberName: name(i), Revision: "old",
			Owned: true, Ready: true, ContainersReady: true, Initialized: true, Etcd: running, Sidecar: running,
		})
	}
	return s
}

// commanded are arguments of etcd's command, given as name or name=value.
func commanded(arguments []string) (all []rollout.Argument) {
	for _, a := range arguments {
		name, value, _ := strings.Cut(a, "=")
		all = append(all, rollout.Argument{Name: name, Value: value, Place: "args"})
	}
	return all
}

// withData writes something, as every cluster has data that is in use. Without, 3.4 does not keep how far it has
// applied its log (see [TestAnEmptyClusterOf34DoesNotReach36]).
func (s *servers) withData() {
	s.t.Helper()
	_, err := s.as(user{}).Put(s.t.Context(), "key", "value")
	require.NoError(s.t, err)
}

// clusterVersion waits until the members have agreed on a version of the cluster, as they do some seconds after they
// have started.
func (s *servers) clusterVersion(minor string) {
	s.t.Helper()
	s.retry("the version of the cluster is "+minor, func() error {
		request, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, s.url(0)+"/version", http.NoBody)
		require.NoError(s.t, err)
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		var said struct {
			Cluster string `json:"etcdcluster"`
		}
		if err := json.NewDecoder(answer.Body).Decode(&said); err != nil || !strings.HasPrefix(said.Cluster, minor) {
			return fmt.Errorf("it is %s, %w", said.Cluster, err)
		}
		return nil
	})
}

// beside lets a test run beside others, because it mostly waits. With -matrix it builds as well, one after the other.
func beside(t *testing.T) {
	t.Helper()
	if !*matrix {
		t.Parallel()
	}
}

// What is held would have failed, and what is not held does not.
func TestAStepThatIsHeldWouldHaveFailed(t *testing.T) {
	beside(t)
	for _, tc := range []struct {
		from, to  string
		arguments []string
		guard     rollout.Guard // Empty where it goes.
		// left is how many members serve afterwards.
		left int
		// often is true for what is tried without -matrix too.
		often bool
	}{
		{"3.4.34", "3.5.35", nil, "", 3, false},
		{"3.5.35", "3.6.16", nil, "", 3, false},
		// The new member writes what the others do not understand. They end, and quorum is lost.
		{"3.4.34", "3.6.16", nil, rollout.GuardUpgradePath, 0, true},
		{"3.5.35", "3.7.3", nil, rollout.GuardUpgradePath, 2, false},
		// That this goes well here is no promise that it always does.
		{"3.6.9", "3.7.3", nil, rollout.GuardUpgradePath, 3, false},
		{"3.6.11", "3.7.3", nil, "", 3, false},
		{"3.5.35", "3.4.34", nil, rollout.GuardDowngrade, 2, false},
		{"3.6.16", "3.5.35", nil, rollout.GuardDowngrade, 2, true},
		{"3.5.35", "3.6.16", []string{"enable-v2=false"}, rollout.GuardKnownArguments, 2, true},
	} {
		t.Run(strings.Join(append([]string{tc.from, "to", tc.to}, tc.arguments...), " "), func(t *testing.T) {
			beside(t)
			if !tc.often && !*matrix {
				t.Skip("only with -matrix")
			}
			from, to := find(t, tc.from).program(t), find(t, tc.to).program(t)
			s := startServers(t, from, from, from)
			s.withData()
			s.clusterVersion(tc.from[:3])
			m := s.await("all agree on the leader", func(m rollout.Membership) bool { return leader(m) != nil })
			d := decided(m, "etcd:"+tc.to, tc.arguments...)
			require.Equal(t, tc.guard, d.Guard, "%s", d.Reason())
			d = decidedAtARestart(m, "etcd:"+tc.to, tc.arguments...)
			require.Equal(t, tc.guard, d.Guard, "a member restarts: %s", d.Reason())
			require.Equal(t, tc.guard == "", d.Acts(), "a member restarts: %s", d.Reason())

			s.stop(2)
			var extra []string
			for _, a := range tc.arguments {
				extra = append(extra, "--"+a)
			}
			s.start(2, to, "existing", extra...)
			switch tc.left {
			case 3:
				s.await("the new member serves", func(m rollout.Membership) bool {
					return serving(m) == 3 && told(m, 2) == tc.to
				})
			case 2:
				s.ends(2)
				m = s.await("the others still serve", func(m rollout.Membership) bool {
					return serving(m) == 2 && leader(m) != nil
				})
				require.Len(t, m.Members, 3)
			default:
				s.ends(0)
				s.ends(1)
			}
		})
	}
}

// ends waits until a member's process has ended by itself.
func (s *servers) ends(i int) {
	s.t.Helper()
	s.retry(name(i)+" ends by itself", func() error {
		if state := s.state(i); state == "runs" {
			return errors.New("it runs")
		}
		return nil
	})
	s.t.Logf("%s %s", name(i), s.state(i))
}

func TestADowngradeThatWasEnabledGoes(t *testing.T) {
	beside(t)
	from, to := find(t, "3.6.16").program(t), find(t, "3.5.35").program(t)
	s := startServers(t, from, from, from)
	s.withData()
	s.clusterVersion("3.6")
	m := s.await("all agree on the leader", func(m rollout.Membership) bool { return leader(m) != nil })
	require.Equal(t, rollout.GuardDowngrade, decided(m, "etcd:3.5.35").Guard)

	enable := &pb.DowngradeRequest{Action: pb.DowngradeRequest_ENABLE, Version: "3.5.0"}
	_, err := pb.NewMaintenanceClient(s.as(user{}).ActiveConnection()).Downgrade(t.Context(), enable)
	require.NoError(t, err)
	m = s.await("all tell of it", func(m rollout.Membership) bool {
		return !slices.ContainsFunc(m.Members, func(x rollout.Member) bool {
			return x.Probe.Status == nil || x.Probe.Status.DowngradeTo != "3.5.0"
		})
	})
	require.Empty(t, decided(m, "etcd:3.5.35").Guard, "it was enabled")
	require.Equal(t, rollout.GuardDowngrade, decided(m, "etcd:3.4.34").Guard, "not so far")
	require.Equal(t, rollout.GuardUpgradePath, decided(m, "etcd:3.7.3").Guard, "the cluster's version is lower now")

	// The downgrade itself is etcd's. Once in a while its member of 3.5 comes back from 3.6 without knowing the
	// cluster's version, refuses every request as "not capable", and nobody tells it again.
	if !*matrix {
		return
	}
	// It takes some seconds until the member's data are those of the older version.
	s.retry("the data of the member are ready", func() error {
		st, err := s.as(user{}).Status(t.Context(), s.url(2))
		if err == nil && st.StorageVersion != "3.5.0" {
			err = fmt.Errorf("storage version %s", st.StorageVersion)
		}
		return err
	})
	s.stop(2)
	s.start(2, to, "existing")
	m = s.await("the older member serves", func(m rollout.Membership) bool {
		return serving(m) == 3 && told(m, 2) == "3.5.35"
	})
	require.Empty(t, decided(m, "etcd:3.5.35").Guard, "and the others follow")
}

// As long as one member of the old minor version is left, the others come back to it; see --hold-before-last.
func TestTheWayBackIsOpenUntilTheLastMemberHasGone(t *testing.T) {
	beside(t)
	for _, step := range [][2]string{{"3.5.35", "3.6.16"}, {"3.4.34", "3.5.35"}} {
		t.Run(step[0]+" to "+step[1], func(t *testing.T) {
			if step[0] == "3.4.34" && !*matrix {
				t.Skip("only with -matrix")
			}
			from, to := find(t, step[0]).program(t), find(t, step[1]).program(t)
			s := startServers(t, from, from, from)
			s.withData()
			s.clusterVersion(step[0][:3])
			roll := func(program, version string, members ...int) {
				for _, i := range members {
					s.stop(i)
					s.start(i, program, "existing")
					s.await(name(i)+" serves", func(m rollout.Membership) bool {
						return serving(m) == 3 && leader(m) != nil && told(m, i) == version
					})
				}
			}
			roll(to, step[1], 0, 1)
			s.withData()
			roll(from, step[0], 0, 1)
			s.withData()
			roll(to, step[1], 0, 1, 2)
			s.clusterVersion(step[1][:3])
			s.stop(0)
			s.start(0, from, "existing")
			s.ends(0)
		})
	}
}

// What the table says that a version does not know is refused by that version, and it accepts everything else. What
// another version offers, and the table does not have, is known to it. The first and the last release of each minor
// version are compared by their sources (make versions-flags).
func TestEveryArgumentOfTheTableIsRefusedByTheVersionThatDoesNotKnowIt(t *testing.T) {
	beside(t)
	all := map[string]bool{}
	for i := range rollout.Checks {
		for _, a := range rollout.Checks[i].Arguments() {
			all[a] = true
		}
	}
	require.NotEmpty(t, all)
	versions := []string{"3.4.34", "3.5.35", "3.6.16", "3.7.3"}
	for _, version := range versions {
		if *matrix || find(t, version).target != "" {
			for _, name := range offers(t, find(t, version).program(t)) {
				all[name] = true
			}
		}
	}
	for _, version := range versions {
		t.Run(version, func(t *testing.T) {
			v, is := rollout.ParseVersion(version)
			require.True(t, is)
			program := find(t, version).program(t)
			for a := range all {
				name, _, valued := strings.Cut(a, "=")
				switch {
				case !valued:
					require.Equal(t, rollout.Knows(v, name), knows(t, program, name), "%s and --%s", version, a)
				case !rollout.Knows(v, a):
					// Some values are not looked at before the server starts.
					gate := ""
					if name == "feature-gates" {
						gate = "=true"
					}
					err := run(t, program, "--"+a+gate, "--data-dir="+t.TempDir(), "--log-level=error")
					require.Error(t, err, "%s and --%s", version, a)
				}
			}
		})
	}
}

// offers are the arguments in a server's help.
func offers(t *testing.T, program string) (names []string) {
	t.Helper()
	help, err := exec.CommandContext(t.Context(), program, "--help").CombinedOutput()
	require.NoError(t, err)
	for _, found := range regexp.MustCompile(`(?m)^\s+--([a-z0-9-]+)`).FindAllStringSubmatch(string(help), -1) {
		// Some help is ahead of its server.
		if knows(t, program, found[1]) {
			names = append(names, found[1])
		}
	}
	require.Greater(t, len(names), 50, "the help was read")
	return names
}

// A variable is only looked at where its flag is known, and not at all beside a configuration file. The command is
// parsed in any case.
func TestWhatEtcdDoesWithItsEnvironment(t *testing.T) {
	beside(t)
	const goesOn = "failed to list data directory" // It comes so far, and no further: that is a file here.
	for _, tc := range []struct {
		name, version, variable string
		arguments               []string
		file                    bool
		says                    string
	}{
		{"a variable that is not known is ignored", "3.6.16", "ETCD_ENABLE_V2=false", nil, false, goesOn},
		{"a value that is not known is refused", "3.6.16", "ETCD_V2_DEPRECATION=not-yet", nil, false, "invalid value"},
		{"it was known before", "3.5.35", "ETCD_V2_DEPRECATION=not-yet", nil, false, goesOn},
		{"an empty one is none", "3.6.16", "ETCD_V2_DEPRECATION=", nil, false, goesOn},
		{"with a file, the environment is not read", "3.6.16", "ETCD_V2_DEPRECATION=not-yet", nil, true, goesOn},
		{"but the command is parsed", "3.6.16", "", []string{"--enable-v2=false"}, true, "not defined: -enable-v2"},
		{"with its values", "3.6.16", "", []string{"--v2-deprecation=not-yet"}, true, "invalid value"},
		{"a value may be refused later", "3.5.35", "", []string{"--logger=capnslog"}, false, "is removed in v3.5"},
		{"with a file, such a one is dropped", "3.5.35", "", []string{"--logger=capnslog"}, true, goesOn},
		{"as by 3.6, without a v2 proxy", "3.6.16", "", []string{"--discovery-fallback=proxy"}, false, "v2 proxy is"},
		{"and not with a file", "3.6.16", "", []string{"--discovery-fallback=proxy"}, true, goesOn},
	} {
		t.Run(tc.name, func(t *testing.T) {
			program, file := find(t, tc.version).program(t), filepath.Join(t.TempDir(), "etcd.yaml")
			require.NoError(t, os.WriteFile(file, []byte("name: default\ndata-dir: "+file+"\n"), 0o600))
			args := append(slices.Clone(tc.arguments), "--data-dir="+file)
			if tc.file {
				args = append(args, "--config-file="+file)
			}
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			command := exec.CommandContext(ctx, program, args...)
			command.Env = append(os.Environ(), tc.variable)
			said, err := command.CombinedOutput()
			require.NoError(t, ctx.Err(), "it runs: %s", said)
			require.Error(t, err)
			require.Contains(t, string(said), tc.says)
		})
	}
}

// knows is true for an argument that a server accepts.
func knows(t *testing.T, program, argument string) bool {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), program, "--"+argument+"=true", "--version").CombinedOutput()
	if err != nil {
		// Some arguments take no such value.
		return !strings.Contains(string(out), "flag provided but not defined")
	}
	return true
}

// run runs a program to its end, which has to come by itself.
func run(t *testing.T, program string, args ...string) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	err := exec.CommandContext(ctx, program, args...).Run()
	require.NoError(t, ctx.Err(), "%s %v runs", program, args)
	return err
}

// zombie writes a member into the database of every member, which 3.5 does not look at.
func (s *servers) zombie(id uint64) {
	s.t.Helper()
	member := map[string]any{"id": id, "name": "zombie", "peerURLs": []string{"http://127.0.0.9:2380"},
		"clientURLs": []string{"http://127.0.0.9:2379"}}
	value, err := json.Marshal(member)
	require.NoError(s.t, err)
	for i := range s.processes {
		db, err := bolt.Open(filepath.Join(s.dir, name(i), "member", "snap", "db"), 0o600, nil)
		require.NoError(s.t, err)
		require.NoError(s.t, db.Update(func(tx *bolt.Tx) error {
			return tx.Bucket([]byte("members")).Put(fmt.Appendf(nil, "%x", id), value)
		}))
		require.NoError(s.t, db.Close())
	}
}

// A member that was removed long ago, and is still in the databases. 3.5 does not show it; 3.6 believes in it; what
// goes through 3.5.26 or later is rid of it.
func TestAZombieComesBackIn36(t *testing.T) {
	beside(t)
	for _, tc := range []struct {
		from  string
		guard rollout.Guard
		comes bool
	}{
		{"3.5.23", rollout.GuardUpgradePath, true},
		{"3.5.35", "", false},
	} {
		t.Run("from "+tc.from, func(t *testing.T) {
			from, to := find(t, tc.from).program(t), find(t, "3.6.16").program(t)
			s := startServers(t, from, from, from)
			s.withData()
			for i := range 3 {
				s.stop(i)
			}
			s.zombie(0xdead)
			s.zombie(0xbeef)
			for i := range 3 {
				s.start(i, from, "existing")
			}
			m := s.await("all serve", func(m rollout.Membership) bool { return serving(m) == 3 && leader(m) != nil })
			require.Len(t, m.Members, 3, "%s shows no zombie", tc.from)
			with, err := s.observer(user{}).ObserveWithLists(t.Context())
			require.NoError(t, err)
			require.Equal(t, with.Members[0].Probe.OwnList, with.Members[2].Probe.OwnList, "nor does any list")
			require.NotEmpty(t, with.Members[0].Probe.OwnList)
			require.Equal(t, tc.guard, decided(m, "etcd:3.6.16").Guard)

			s.stop(2)
			s.start(2, to, "existing")
			if !tc.comes {
				m = s.await("the new member serves", func(m rollout.Membership) bool {
					return serving(m) == 3 && told(m, 2) == "3.6.16"
				})
				require.Len(t, m.Members, 3)
				return
			}
			var lists rollout.Membership
			s.retry("the new member counts five voters, and the others three", func() error {
				lists, err = s.observer(user{}, 0).ObserveWithLists(t.Context())
				if err != nil || len(lists.Members) != 3 || strings.Count(lists.Members[2].Probe.OwnList+
					lists.Members[1].Probe.OwnList+lists.Members[0].Probe.OwnList, ",") != 2+2+4 {
					return fmt.Errorf("%+v, %w", lists, err)
				}
				return nil
			})
			require.Equal(t, rollout.GuardListsAgree, decided(lists, "etcd:3.6.17").Guard, "the next rollout is held")
		})
	}
}

// 3.4 keeps how far it has applied its log with the keys only. Where nothing was written since the members were
// added, a member that starts as 3.5.26 or later adds them once more, one by one, and takes those that are still to
// come for zombies: it notes that they were removed. It believes otherwise itself, and 3.6 believes the note. So what
// is tested with 3.4 needs a key; a cluster with Quorate in it has one.
func TestAnEmptyClusterOf34DoesNotReach36(t *testing.T) {
	for _, written := range []bool{true, false} {
		t.Run(fmt.Sprintf("with data: %v", written), func(t *testing.T) {
			if !*matrix {
				t.Skip("only with -matrix")
			}
			first, second := find(t, "3.4.34").program(t), find(t, "3.5.35").program(t)
			third := find(t, "3.6.16").program(t)
			s := startServers(t, first, first, first)
			if written {
				s.withData()
			}
			for i := range 3 {
				s.stop(i)
				s.start(i, second, "existing")
				s.await("all serve", func(m rollout.Membership) bool { return serving(m) == 3 && leader(m) != nil })
			}
			s.stop(2)
			s.start(2, third, "existing")
			if written {
				s.await("the new member serves", func(m rollout.Membership) bool {
					return serving(m) == 3 && told(m, 2) == "3.6.16"
				})
				return
			}
			s.retry("a member is told that it was removed, and ends", func() error {
				if s.state(0) == "runs" && s.state(1) == "runs" && s.state(2) == "runs" {
					return errors.New("all run")
				}
				return nil
			})
		})
	}
}
