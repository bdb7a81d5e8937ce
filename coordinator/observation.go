package coordinator

import (
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/quorate/quorate/internal/record"
	"github.com/quorate/quorate/internal/workload"
	"github.com/quorate/quorate/pkg/rollout"
	"github.com/quorate/quorate/selfupdate"
)

// observation is what one look has seen. It is a value: what is added to it later, because a decision lacks it, makes
// another one.
type observation struct {
	moment
	// view is what the look goes by in place of what Kubernetes says live, nil if it is live.
	view *cachedView
	// etcdTook is how long etcd's members took to answer.
	etcdTook time.Duration
	workload workload.Observation
	// record is what is believed of the Lease, and odd is what makes no sense there.
	record record.Record
	odd    []string
	// needed is what the Lease says that quorum rests on.
	needed record.Needed
	// state is what the decision rests on, but for what is remembered.
	state rollout.State
	// peers are the other sidecars.
	peers peers
	// promotable is true where the StatefulSet's status.currentRevision is behind, and we are to set it.
	promotable bool
	// unread is true where nothing has been read live since the rollout began.
	unread bool

	// gatesAsked is true once state has the answers of the host's gates.
	gatesAsked bool
	budget     budget
	// confirmed is true once a live reading has shown that the view is true. Otherwise changed is what it has shown.
	confirmed bool
	changed   *workload.Observation
	// faults are what failed without keeping the look from its end.
	faults []fault
}

// moment is when a look began. Nothing that is read for it is older. BegunAt is the same by the wall clock, and read is
// the same on the monotonic clock in a look that reads the pods live.
type moment struct {
	begun   record.Instant
	begunAt time.Time
	read    time.Time
}

// budget is what is known of the PodDisruptionBudget.
type budget struct {
	// allows is what the watch tells, if known.
	known, allows bool
	// asked is true once nothing more is to be found out about it, and answered if the API server has said so.
	asked, answered bool
	refusal         *rollout.Refusal
}

// peers are the other sidecars that take part in the election, if that is known.
type peers struct {
	all   []selfupdate.Peer
	known bool
}

// join puts together what was read. It is the one place where a coordinator makes the state that a decision rests on.
func (c *Coordinator) join(w workload.Observation, lease *coordinationv1.Lease, etcd rollout.Membership) observation {
	o := observation{workload: w}
	o.record, o.odd = validate(lease, w.Set, w.Pods, c.cfg.RecordDuration)
	o.needed = record.NeededOf(lease)
	o.state, _ = record.StateOf(w.Set, w.Pods, etcd, lease, o.record, time.Now()) // What is wrong with it is told.
	o.state.Self, o.state.NoLock = c.self.Pod, !c.owned()
	o.state.InWindow = c.cfg.Policy.DefragmentWindow.Contains(time.Now())
	o.promotable = c.promotable(w.Set)
	return o
}

// promotable is true when status.currentRevision is behind, and we are to set it.
func (c *Coordinator) promotable(set rollout.Set) bool {
	return c.cfg.PromoteCurrentRevision && set.Unpromoted() && c.notPromoted != set.UpdateRevision
}
