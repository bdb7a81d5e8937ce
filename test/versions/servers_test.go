package versions

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/quorate/quorate/membership"
	"github.com/quorate/quorate/pkg/rollout"
	"github.com/quorate/quorate/test/harness/network"
	"github.com/quorate/quorate/test/harness/process"
)

const (
	// patience bounds what has to happen, probeTimeout one step of a look.
	patience     = time.Minute
	probeTimeout = 5 * time.Second
	lookEvery    = 50 * time.Millisecond
)

// servers are the members of one cluster, as processes of this machine.
type servers struct {
	t            *testing.T
	dir          string
	network      *network.Loopback
	client, peer int
	programs     []string
	processes    []*process.Process
}

// startServers starts a cluster with a member for each program, and waits until all of them
// serve. They end with the test.
func startServers(t *testing.T, programs ...string) *servers {
	t.Helper()
	return startServersWith(t, nil, programs...)
}

// startServersWith does the same with extra arguments for all of them.
func startServersWith(t *testing.T, extra []string, programs ...string) *servers {
	t.Helper()
	loopback, err := network.NewLoopback()
	require.NoError(t, err)
	ports, err := loopback.Ports(2379, 2380)
	require.NoError(t, err)
	s := &servers{
		t: t, dir: t.TempDir(), network: loopback, client: ports[0], peer: ports[1],
		programs: programs, processes: make([]*process.Process, len(programs)),
	}
	t.Cleanup(func() {
		for i := range s.processes {
			s.kill(i)
		}
		require.NoError(t, loopback.Close())
	})
	for i, program := range programs {
		s.start(i, program, "new", extra...)
	}
	s.await("every member serves", func(m rollout.Membership) bool {
		return len(m.Members) == len(programs) && serving(m) == len(programs)
	})
	return s
}

func name(i int) string { return fmt.Sprint("etcd-", i) }

func (s *servers) url(i int) string {
	return fmt.Sprintf("http://%s:%d", s.network.AddressOf("versions", name(i)), s.client)
}

func (s *servers) peerURL(i int) string {
	return fmt.Sprintf("http://%s:%d", s.network.AddressOf("versions", name(i)), s.peer)
}

func (s *servers) urls() (urls []string) {
	for i := range s.processes {
		urls = append(urls, s.url(i))
	}
	return urls
}

// start starts a member's process, on the data that it has left, with extra arguments.
func (s *servers) start(i int, program, state string, extra ...string) {
	s.t.Helper()
	var initial []string
	for n := range s.processes {
		initial = append(initial, name(n)+"="+s.peerURL(n))
	}
	p, err := process.Start(process.Spec{
		Name: name(i), Path: program, LogPath: filepath.Join(s.dir, name(i)+".log"),
		Args: append([]string{
			"--name=" + name(i), "--data-dir=" + filepath.Join(s.dir, name(i)),
			"--listen-client-urls=" + s.url(i), "--advertise-client-urls=" + s.url(i),
			"--listen-peer-urls=" + s.peerURL(i), "--initial-advertise-peer-urls=" + s.peerURL(i),
			"--initial-cluster=" + strings.Join(initial, ","), "--initial-cluster-state=" + state,
			"--log-level=error",
		}, extra...),
	})
	require.NoError(s.t, err)
	s.processes[i] = p
}

// stop ends a member as a kubelet does, kill at once.
func (s *servers) stop(i int) {
	s.t.Helper()
	require.NoError(s.t, s.processes[i].Stop(context.Background(), patience))
}

func (s *servers) kill(i int) {
	if p := s.processes[i]; p != nil {
		_ = p.Signal(syscall.SIGCONT)
		_ = p.Stop(context.Background(), 0)
	}
}

// user is the etcd user. With an empty name there is none.
type user struct{ name, password string }

var (
	root  = user{"root", "root's"}
	plain = user{"quorate", "quorate's"}
)

// dial opens clients as a user.
func (u user) dial(endpoints []string) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{
		Endpoints: endpoints, Username: u.name, Password: u.password,
		DialTimeout: probeTimeout, Logger: zap.NewNop(),
	})
}

// as returns a client of a user, for the first three members.
func (s *servers) as(u user) *clientv3.Client {
	s.t.Helper()
	c, err := u.dial(s.urls()[:3]) // Not a learner, which does not answer.
	require.NoError(s.t, err)
	s.t.Cleanup(func() { _ = c.Close() })
	return c
}

// observer returns an observer that signs in as a user, and knows some of the members.
func (s *servers) observer(u user, known ...int) *membership.Observer {
	var endpoints []string
	for _, i := range known {
		endpoints = append(endpoints, s.url(i))
	}
	if len(known) == 0 {
		endpoints = s.urls()
	}
	o := membership.NewObserver(u.dial, endpoints, probeTimeout)
	s.t.Cleanup(o.Close)
	return o
}

// retry does something until it succeeds.
func (s *servers) retry(what string, do func() error) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	again := time.NewTicker(lookEvery)
	defer again.Stop()
	for {
		err := do()
		if err == nil {
			return
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			for i := range s.processes {
				log, _ := os.ReadFile(filepath.Join(s.dir, name(i)+".log"))
				s.t.Logf("%s (%s):\n%s", name(i), s.state(i), log[max(0, len(log)-4000):])
			}
			s.t.Fatalf("waited in vain until %s: %v", what, err)
		}
	}
}

// state says whether a member's process runs.
func (s *servers) state(i int) string {
	p := s.processes[i]
	if p == nil {
		return "never started"
	}
	select {
	case <-p.Done():
		return fmt.Sprintf("ended with code %d, signal %v", p.ExitCode(), p.ExitSignal())
	default:
		return "runs"
	}
}

// await looks until something is so, and returns that look.
func (s *servers) await(what string, so func(m rollout.Membership) bool) rollout.Membership {
	s.t.Helper()
	return s.awaitAs(user{}, what, so)
}

func (s *servers) awaitAs(u user, what string, so func(m rollout.Membership) bool) (m rollout.Membership) {
	s.t.Helper()
	o := s.observer(u)
	s.retry(what, func() (err error) {
		if m, err = o.Observe(s.t.Context()); !so(m) {
			return fmt.Errorf("%+v, %w", m, err)
		}
		return nil
	})
	return m
}

func serving(m rollout.Membership) (n int) {
	for i := range m.Members {
		if m.Members[i].Probe.Read == rollout.Answered {
			n++
		}
	}
	return n
}

// leader is the member that all who tell name as the leader, nil if they do not agree.
func leader(m rollout.Membership) *rollout.Member {
	var id uint64
	for i := range m.Members {
		switch st := m.Members[i].Probe.Status; {
		case st == nil || st.Leader == 0:
		case id != 0 && id != st.Leader:
			return nil
		default:
			id = st.Leader
		}
	}
	for i := range m.Members {
		if m.Members[i].ID == id && id != 0 {
			return &m.Members[i]
		}
	}
	return nil
}

// follower is the first voter that does not lead.
func follower(m rollout.Membership) *rollout.Member {
	for i := range m.Members {
		if x := &m.Members[i]; !x.Learner && x.Name != "" && x.ID != leader(m).ID {
			return x
		}
	}
	return nil
}

// authenticate turns authentication on, with a plain user who may do what the documentation
// grants and nothing else.
func (s *servers) authenticate() {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	c := s.as(user{})
	for _, u := range []user{root, plain} {
		_, err := c.UserAdd(ctx, u.name, u.password)
		require.NoError(s.t, err)
		_, err = c.RoleAdd(ctx, u.name)
		require.NoError(s.t, err)
		_, err = c.UserGrantRole(ctx, u.name, u.name)
		require.NoError(s.t, err)
	}
	_, err := c.RoleGrantPermission(ctx, plain.name, "/quorate/", clientv3.GetPrefixRangeEnd("/quorate/"),
		clientv3.PermissionType(clientv3.PermReadWrite))
	require.NoError(s.t, err)
	_, err = c.AuthEnable(ctx)
	require.NoError(s.t, err)
}

// alarm raises an alarm of a member, or disarms it.
func (s *servers) alarm(do pb.AlarmRequest_AlarmAction, of uint64, which pb.AlarmType) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	_, err := pb.NewMaintenanceClient(s.as(user{}).ActiveConnection()).
		Alarm(ctx, &pb.AlarmRequest{Action: do, MemberID: of, Alarm: which})
	require.NoError(s.t, err)
}
