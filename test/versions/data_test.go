package versions

import (
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quorate/quorate/membership"
	"github.com/quorate/quorate/pkg/rollout"
)

var dataMinutes = flag.Float64("data-minutes", 0.1, "for how many minutes each version's data are looked at under load")

// compared are the versions whose data are looked at: the newest release of each minor version.
var compared = []string{"3.4.34", "3.5.35", "3.6.16", "3.7.3"}

// What two members say is not of one moment. However much happens to a healthy cluster, no difference is proven in it.
func TestTheDataOfAHealthyClusterAreNeverProvenToDiffer(t *testing.T) {
	t.Parallel()
	for _, version := range compared {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			program := find(t, version).program(t)
			var extra []string
			if version < "3.7" { // So that a member is soon so far behind that it needs a snapshot.
				extra = []string{"--snapshot-count=1000"}
			}
			s := startServersWith(t, extra, program, program, program)
			until := time.Now().Add(time.Duration(*dataMinutes * float64(time.Minute)))
			writes := s.load()
			looks := s.compare()
			for first := true; first || time.Now().Before(until); first = false {
				s.happen(program, extra, writes)
			}
			looked := looks()
			t.Logf("etcd %s: %d writes, %d looks: %d found a difference, at most %d in a row, and %d proved one",
				version, writes.Load(), looked.all, looked.found, looked.row, looked.proved)
			require.Zero(t, looked.proved, looked.last)
			require.NotZero(t, looked.all)
		})
	}
}

// A member whose database was changed is found, also while something is written.
func TestADatabaseThatWasChangedIsProvenToDiffer(t *testing.T) {
	t.Parallel()
	for _, version := range compared {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			program := find(t, version).program(t)
			s := startServers(t, program, program, program)
			c := s.as(user{})
			for i := range 100 {
				_, err := c.Put(t.Context(), fmt.Sprint("key-", i%10), "value")
				require.NoError(t, err)
			}
			s.stop(2)
			s.rewrite(2, 300)
			s.start(2, program, "existing")
			s.await("it serves again", func(m rollout.Membership) bool { return serving(m) == 3 })

			o := s.observer(user{})
			var course rollout.Comparison
			var m rollout.Membership
			begun := time.Now()
			again := time.NewTicker(time.Second / 2)
			defer again.Stop()
			for ; time.Since(begun) < patience; <-again.C {
				_, err := c.Put(t.Context(), "key", "value")
				require.NoError(t, err)
				m, err = o.Observe(t.Context())
				require.NoError(t, err)
				course = course.Look(time.Now(), m)
				if proven(course) == 2 {
					break
				}
			}
			t.Logf("etcd %s: proven after %.1f s", version, time.Since(begun).Seconds())
			for _, d := range course.Differ() {
				require.True(t, d.Proven(), "%+v", d)
				require.Equal(t, name(2), nameOf(m, d.More), "its revision is the higher one")
			}
			require.Equal(t, 2, proven(course), "it differs from both others, which agree: %+v", course.Differ())
		})
	}
}

func nameOf(m rollout.Membership, id uint64) string {
	for i := range m.Members {
		if m.Members[i].ID == id {
			return m.Members[i].Name
		}
	}
	return ""
}

func proven(c rollout.Comparison) (n int) {
	for _, d := range c.Differ() {
		if d.Proven() {
			n++
		}
	}
	return n
}

// looked is what looks at the members' data have found.
type looked struct {
	all, found, row, proved int
	last                    string
}

// compare looks at the data as a coordinator does, and more often. The function that it returns ends that.
func (s *servers) compare() (end func() looked) {
	ctx, cancel := context.WithCancel(s.t.Context())
	o := membership.NewObserver(user{}.dial, s.urls(), time.Second)
	var all looked
	var looking sync.WaitGroup
	looking.Go(func() {
		defer o.Close()
		var course rollout.Comparison
		again := time.NewTicker(lookEvery)
		defer again.Stop()
		for row := 0; ctx.Err() == nil; <-again.C {
			m, _ := o.Observe(ctx)
			if ctx.Err() != nil {
				return
			}
			course = course.Look(time.Now(), m)
			if all.all++; len(course.Differ()) == 0 {
				row = 0
				continue
			}
			row++
			all.found, all.row = all.found+1, max(all.row, row)
			if proven(course) > 0 {
				all.proved++
				all.last = fmt.Sprintf("%+v of %+v", course.Differ(), m)
			}
		}
	})
	return func() looked { cancel(); looking.Wait(); return all }
}

// load writes until the test ends, in every way that etcd has, and counts.
func (s *servers) load() *atomic.Int64 {
	ctx, cancel := context.WithCancel(s.t.Context())
	var writing sync.WaitGroup
	s.t.Cleanup(func() { cancel(); writing.Wait() })
	var done atomic.Int64
	for w := range 8 {
		c := s.as(user{})
		writing.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				key := fmt.Sprintf("%d/%d", w, n%50)
				one, end := context.WithTimeout(ctx, 2*time.Second)
				var err error
				switch n % 10 {
				case 0:
					_, err = c.Delete(one, fmt.Sprintf("%d/", w), clientv3.WithPrefix())
				case 1: // Several changes, one revision.
					_, err = c.Txn(one).Then(clientv3.OpPut(key, "a"), clientv3.OpPut(key+"b", "b"),
						clientv3.OpDelete(key+"c")).Commit()
				case 2: // An entry without a revision.
					_, err = c.Delete(one, "nothing")
				case 3: // An entry without a revision, and a revision by one.
					var l *clientv3.LeaseGrantResponse
					if l, err = c.Grant(one, 60); err == nil {
						_, _ = c.Put(one, key, "leased", clientv3.WithLease(l.ID))
						_, _ = c.Revoke(one, l.ID)
					}
				case 4:
					if w == 0 && n%100 == 4 {
						var r *clientv3.PutResponse
						if r, err = c.Put(one, key, "x"); err == nil {
							_, _ = c.Compact(one, r.Header.Revision-10)
						}
					}
				default:
					_, err = c.Put(one, key, strings.Repeat("v", 100))
				}
				end()
				if err == nil {
					done.Add(1)
				}
			}
		})
	}
	return &done
}

// happen lets one thing after the other happen to the cluster.
func (s *servers) happen(program string, extra []string, writes *atomic.Int64) {
	again := time.NewTicker(lookEvery)
	defer again.Stop()
	rest := func(atMost time.Duration, entries int64) {
		before := writes.Load()
		for begun := time.Now(); time.Since(begun) < atMost && writes.Load() < before+entries; {
			<-again.C
		}
	}
	comesBack := func(i int) {
		s.start(i, program, "existing", extra...)
		s.await("it serves again", func(m rollout.Membership) bool { return serving(m) == 3 })
	}
	const many = 1 << 40
	s.stop(2)
	rest(20*time.Second, 7000) // It is to be further behind than the 5000 entries that the others keep.
	comesBack(2)
	s.kill(1)
	comesBack(1)
	require.NoError(s.t, s.processes[0].Signal(syscall.SIGSTOP))
	rest(2*time.Second, many)
	require.NoError(s.t, s.processes[0].Signal(syscall.SIGCONT))
	m := s.await("all serve", func(m rollout.Membership) bool { return serving(m) == 3 })
	s.alarm(pb.AlarmRequest_ACTIVATE, m.Members[0].ID, pb.AlarmType_NOSPACE)
	rest(time.Second, many)
	s.alarm(pb.AlarmRequest_DEACTIVATE, m.Members[0].ID, pb.AlarmType_NOSPACE)
	rest(time.Second, many)
}

// rewrite adds revisions to the database of a member that is stopped.
func (s *servers) rewrite(i, revisions int) {
	s.t.Helper()
	db, err := bbolt.Open(filepath.Join(s.dir, name(i), "member", "snap", "db"), 0o600,
		&bbolt.Options{Timeout: patience, NoFreelistSync: true})
	require.NoError(s.t, err)
	require.NoError(s.t, db.Update(func(tx *bbolt.Tx) error {
		keys := tx.Bucket([]byte("key"))
		last, _ := keys.Cursor().Last()
		highest := binary.BigEndian.Uint64(last)
		for n := range uint64(revisions) {
			revision := highest + 1 + n
			value, err := (&mvccpb.KeyValue{
				Key: []byte("diverged"), Value: []byte("x"), CreateRevision: int64(highest) + 1,
				ModRevision: int64(revision), Version: int64(n) + 1,
			}).Marshal()
			if err != nil {
				return err
			}
			at := append(binary.BigEndian.AppendUint64(nil, revision), '_')
			if err := keys.Put(binary.BigEndian.AppendUint64(at, 0), value); err != nil {
				return err
			}
		}
		return nil
	}))
	require.NoError(s.t, db.Close())
}
