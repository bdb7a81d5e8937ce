// Package versions tries what Quorate knows of etcd on real servers of many releases.
package versions

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/quorate/quorate/pkg/rollout"
	"github.com/quorate/quorate/test/harness/build"
)

var matrix = flag.Bool("matrix", false,
	"try every release of the table, not only those that the harness has (takes some minutes of building)")

// release is one row of the table in docs/versions.md.
type release struct {
	build.Release
	// target is what the harness already has. It is empty for the ones only in -matrix.
	target build.Target
	// What is refused to a user who has not the role root.
	list, status, move bool
}

// siblings35 stand in for modules of 3.5.27 that are not served.
var siblings35 = map[string]string{
	"api/v3": "3.5.23", "client/pkg/v3": "3.5.23", "client/v2": "2.305.23", "client/v3": "3.5.23", "pkg/v3": "3.5.23",
	"raft/v3": "3.5.23",
}

// releases are both sides of each border that proxies serve, and the newest. They have no
// 3.5.28, nor 3.5.29 and 3.5.30.
var releases = []release{
	{Release: build.Release{Version: "3.4.34"}, target: build.Etcd34},
	{Release: build.Release{Version: "3.5.0"}},
	{Release: build.Release{Version: "3.5.23"}},
	{Release: build.Release{Version: "3.5.27", Instead: siblings35}},
	{Release: build.Release{Version: "3.5.31", Instead: map[string]string{"raft/v3": "3.5.33"}},
		status: true, move: true},
	{Release: build.Release{Version: "3.5.32", Instead: map[string]string{"raft/v3": "3.5.33"}}, move: true},
	{Release: build.Release{Version: "3.5.35"}, target: build.Etcd35, move: true},
	{Release: build.Release{Version: "3.6.0"}, status: true, move: true},
	{Release: build.Release{Version: "3.6.8"}, status: true, move: true},
	{Release: build.Release{Version: "3.6.9"}, list: true, status: true, move: true},
	{Release: build.Release{Version: "3.6.11"}, status: true, move: true},
	{Release: build.Release{Version: "3.6.12"}, move: true},
	{Release: build.Release{Version: "3.6.16"}, target: build.Etcd36, move: true},
	{Release: build.Release{Version: "3.7.3"}, move: true},
}

func say(line string) { fmt.Fprintln(os.Stderr, line) }

// own builds what the harness has, once.
var own = sync.OnceValues(func() (build.Binaries, error) {
	return build.Some(context.Background(), say, build.Etcd34, build.Etcd35, build.Etcd36)
})

// program returns a release's server.
func (r release) program(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("real servers are not for -short")
	}
	if r.target == "" && !*matrix {
		t.Skip("only with -matrix")
	}
	if r.target != "" {
		b, err := own()
		require.NoError(t, err)
		return map[build.Target]string{build.Etcd34: b.Etcd34, build.Etcd35: b.Etcd35, build.Etcd36: b.Etcd36}[r.target]
	}
	path, err := build.Etcd(t.Context(), say, r.Release)
	require.NoError(t, err)
	return path
}

func find(t *testing.T, version string) release {
	for _, r := range releases {
		if r.Version == version {
			return r
		}
	}
	t.Fatalf("no release %s in the table", version)
	return release{}
}

func TestWhatEveryReleaseTells(t *testing.T) {
	for _, r := range releases {
		t.Run(r.Version, func(t *testing.T) {
			program := r.program(t)
			s := startServers(t, program, program, program)
			m := s.await("all agree on the leader", func(m rollout.Membership) bool { return leader(m) != nil })

			require.True(t, m.Linearizable, "the list is agreed on")
			require.NotZero(t, m.ClusterID)
			for i := range m.Members {
				x := &m.Members[i]
				require.Equal(t, rollout.Answered, x.Probe.Read, x.Name)
				require.Equal(t, r.Version, x.Probe.Status.Version, x.Name)
				require.Equal(t, x.Probe.Status.Term, x.Probe.ReadTerm, "%s: the term of its read", x.Name)
				require.NotZero(t, x.Probe.Status.Applied, x.Name)
			}

			t.Run("leadership is moved, and the terms tell", func(t *testing.T) {
				from, to := leader(m), follower(m)
				require.NoError(t, s.observer(user{}).MoveLeader(t.Context(), m, from.ID, to.ID))
				after := s.await("all have heard of it", func(m rollout.Membership) bool {
					return leader(m) != nil && leader(m).ID == to.ID
				})
				require.Greater(t, after.Members[0].Probe.ReadTerm, m.Members[0].Probe.ReadTerm)
			})
			t.Run("an alarm is told by every member", func(t *testing.T) {
				for _, alarm := range []pb.AlarmType{pb.AlarmType_NOSPACE, pb.AlarmType_CORRUPT} {
					s.alarm(pb.AlarmRequest_ACTIVATE, m.Members[1].ID, alarm)
					s.await("all tell of the alarm "+alarm.String(), func(m rollout.Membership) bool {
						for i := range m.Members {
							st := m.Members[i].Probe.Status
							if st == nil || st.NoSpace != (alarm == pb.AlarmType_NOSPACE) ||
								st.Corrupt != (alarm == pb.AlarmType_CORRUPT) {
								return false
							}
						}
						return m.Known
					})
					s.alarm(pb.AlarmRequest_DEACTIVATE, m.Members[1].ID, alarm)
				}
				s.await("all serve again", func(m rollout.Membership) bool { return serving(m) == 3 })
			})
			t.Run("a learner is told from a voter, and answers before it votes", func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				// etcd takes no new member before its members have been connected for some seconds.
				s.retry("a learner is added", func() error {
					_, err := s.as(user{}).MemberAddAsLearner(ctx, []string{s.peerURL(3)})
					return err
				})
				m := s.await("it is on the list", func(m rollout.Membership) bool { return len(m.Members) == 4 })
				fresh := m.Members[len(m.Members)-1]
				for _, x := range m.Members {
					if x.Name == "" {
						fresh = x
					}
				}
				require.True(t, fresh.Learner && fresh.Probe.Read == rollout.Failed, "%+v", fresh)
				require.Equal(t, "the member has never started", fresh.Probe.Detail)

				s.processes = append(s.processes, nil)
				s.start(3, program, "existing")
				m = s.await("it answers", func(m rollout.Membership) bool { return serving(m) == 4 })
				require.True(t, m.Linearizable)
				_, err := s.as(user{}).MemberRemove(ctx, fresh.ID)
				require.NoError(t, err)
				s.kill(3)
				s.processes = s.processes[:3]
				s.await("it is gone", func(m rollout.Membership) bool { return len(m.Members) == 3 && serving(m) == 3 })
			})
			t.Run("a user who is not root is refused what the table says, and told what to grant", func(t *testing.T) {
				r.refusals(t, s)
			})
			t.Run("without quorum nobody can sign in, and that is known within one timeout", func(t *testing.T) {
				s.kill(1)
				s.kill(2)
				ctx, cancel := context.WithTimeout(t.Context(), 2*probeTimeout)
				defer cancel()
				begin := time.Now()
				m, err := s.observer(plain).Observe(ctx)
				require.NoError(t, ctx.Err(), "the look ended by itself")
				require.False(t, m.Known, "%+v", m)
				t.Logf("the look took %v: %v", time.Since(begin).Round(time.Millisecond), err)
			})
		})
	}
}

// refusals compares what a plain user is refused with the table.
func (r release) refusals(t *testing.T, s *servers) {
	s.authenticate()
	o := s.observer(plain)
	m, err := o.Observe(t.Context())
	t.Logf("refused: list %v (%v)", !m.Known, err)
	require.Equal(t, r.list, !m.Known, "%v", err)
	if r.list {
		require.ErrorContains(t, err, "etcd refuses the member list (permission denied): grant its user the role root")
		require.Equal(t, 3, strings.Count(err.Error(), "etcd refuses the member list"))
		require.Contains(t, m.Detail, "grant its user the role root")
	}
	// What root knows is enough to ask as another user.
	known := s.awaitAs(root, "root knows everything", func(m rollout.Membership) bool {
		return m.Linearizable && serving(m) == 3 && leader(m) != nil
	})
	if !r.list {
		require.True(t, m.Linearizable)
		for i := range m.Members {
			p := m.Members[i].Probe
			require.Equal(t, rollout.Answered, p.Read, "%+v", p)
			require.NotZero(t, p.ReadTerm)
			require.Equal(t, r.status, p.Status == nil, "%+v", p)
			if r.status {
				require.Contains(t, p.Detail,
					"no status: etcd refuses Status (permission denied): grant its user the role root")
			}
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), probeTimeout)
	defer cancel()
	err = movedAs(ctx, s, plain, known)
	t.Logf("refused: status %v, moving leadership %v", r.status, err)
	require.Equal(t, r.move, err != nil, "%v", err)
	if r.move {
		require.ErrorContains(t, err,
			"etcd refuses to move leadership (permission denied): grant its user the role root")
	}

	t.Run("with the role root nothing is", func(t *testing.T) {
		_, err := s.as(root).UserGrantRole(t.Context(), plain.name, root.name)
		require.NoError(t, err)
		m := s.awaitAs(plain, "it knows everything", func(m rollout.Membership) bool {
			return m.Linearizable && serving(m) == 3 && leader(m) != nil
		})
		require.NoError(t, movedAs(t.Context(), s, plain, m))
	})
}

// movedAs moves leadership as a user, and back from there.
func movedAs(ctx context.Context, s *servers, u user, m rollout.Membership) error {
	return s.observer(u).MoveLeader(ctx, m, leader(m).ID, follower(m).ID)
}

// A member of 3.4 gives its own list whatever is asked for. With a majority gone, no other
// member has agreed on it.
func TestAMemberThatIsCutOffGivesItsOwnListForNoMore(t *testing.T) {
	for _, version := range []string{"3.4.34", "3.5.35", "3.6.16"} {
		t.Run(version, func(t *testing.T) {
			program := find(t, version).program(t)
			s := startServers(t, program, program, program)
			s.kill(1)
			s.kill(2)
			m, err := s.observer(user{}, 0).Observe(t.Context())
			require.NoError(t, err)
			require.True(t, m.Known)
			require.False(t, m.Linearizable, "nobody can have agreed on it")
			require.Equal(t, 1, m.Agreeing)
			require.Zero(t, serving(m))
		})
	}
}

// As in a rollout of the whole fleet: member by member from one minor version to the next.
func TestMixedVersionsTellTheSame(t *testing.T) {
	for _, step := range [][2]string{{"3.4.34", "3.5.35"}, {"3.5.35", "3.6.16"}, {"3.6.16", "3.7.3"}} {
		t.Run(step[0]+" to "+step[1], func(t *testing.T) {
			from, to := find(t, step[0]).program(t), find(t, step[1]).program(t)
			s := startServers(t, from, from, from)
			for i := range 3 {
				s.stop(i)
				s.start(i, to, "new")
				m := s.await("all serve", func(m rollout.Membership) bool {
					return serving(m) == 3 && leader(m) != nil && told(m, i) == step[1]
				})
				// Each of them gives the same, agreed list when it is asked alone.
				for j := range 3 {
					one, err := s.observer(user{}, j).Observe(t.Context())
					require.NoError(t, err)
					require.True(t, one.Linearizable, "asked %s with %s", name(j), told(m, j))
					require.Len(t, one.Members, 3)
					require.Equal(t, 3, serving(one))
				}
				require.NoError(t, movedAs(t.Context(), s, user{}, m))
				s.await("all have heard who leads", func(m rollout.Membership) bool { return leader(m) != nil })
			}
		})
	}
}

// told is the version that a member tells, by its number.
func told(m rollout.Membership, i int) string {
	for j := range m.Members {
		if x := &m.Members[j]; x.Name == name(i) && x.Probe.Status != nil {
			return x.Probe.Status.Version
		}
	}
	return ""
}

// The table in the documentation is what is tested here.
func TestTheDocumentationHasEveryRelease(t *testing.T) {
	root, err := build.Root()
	require.NoError(t, err)
	text, err := os.ReadFile(filepath.Join(root, "docs", "versions.md"))
	require.NoError(t, err)
	refused := func(is bool) string { return map[bool]string{true: "refused", false: "open"}[is] }
	var rows []string
	for _, r := range releases {
		rows = append(rows, fmt.Sprintf("| %s | %s | %s | %s |", r.Version, refused(r.list), refused(r.status),
			refused(r.move)))
	}
	table := strings.Join(rows, "\n") + "\n"
	require.Contains(t, string(text), table, "docs/versions.md should have:\n%s", table)
}
