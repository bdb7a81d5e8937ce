package rollout

import (
	"maps"
	"slices"
	"time"
)

// Predict returns the decisions of a whole rollout from here, assuming that every
// replaced pod settles and that nothing else happens. The last one is the first that
// changes nothing: Complete, or where the rollout would stop.
func Predict(s State, p Policy) []Decision {
	var all []Decision
	// Each ordinal needs at the most a removal and a defragmentation, with a transfer before either. One ghost may
	// go, and an alarm end.
	for range 4*len(s.Pods) + 5 {
		d := Decide(s, p)
		all = append(all, d)
		if !d.Acts() {
			break
		}
		s = Settled(s, d)
	}
	return all
}

// Settled returns the state after a decision has taken effect and settled, as a fair
// world would have it: a ghost that is removed is gone, a removed pod is back at the update revision, Ready, with its
// member serving, and a leadership that was handed over has arrived. Processes that
// were merely without quorum serve again once there is one.
func Settled(s State, d Decision) State {
	s.Pods = slices.Clone(s.Pods)
	s.Etcd.Members = slices.Clone(s.Etcd.Members)
	s.Ages = maps.Clone(s.Ages)
	if s.Ages == nil {
		s.Ages = map[Sighting]time.Duration{}
	}
	if d.Acts() {
		d.Action.settle(&s, d.Assessment)
		s.rejoin(d.Assessment)
	}
	return s
}

// recreate replaces a pod as the StatefulSet controller does.
func (s *State) recreate(uid string) {
	for i := range s.Pods {
		pod := &s.Pods[i]
		if pod.UID != uid {
			continue
		}
		pod.UID += "'"
		pod.Revision = s.Set.UpdateRevision
		pod.Created = slices.MaxFunc(s.Pods, func(x, y Pod) int { return x.Created.Compare(y.Created) }).Created
		pod.Terminating, pod.VolatileData = false, s.Set.VolatileData
		pod.Finished, pod.Unclaimed = false, nil
		pod.Node, pod.Cordoned, pod.Drained, pod.NodeUnknown = "", false, "", false
		pod.Leaving, pod.Evicted = "", false
		pod.Grace, pod.GraceEnds, pod.Finalizers, pod.ClaimsGoing = 0, time.Time{}, nil, nil
		pod.Ready, pod.ContainersReady, pod.Initialized = true, true, true
		pod.Etcd = Container{State: ContainerRunning, Ready: true}
		pod.Sidecar = Container{State: ContainerRunning, Ready: true}
		s.stayReady(pod.UID)
	}
}

// stayReady lets a pod be Ready for long enough to count.
func (s *State) stayReady(uid string) {
	seen := Sighting{uid, ReadySeen}
	s.Ages[seen] = max(s.Ages[seen], s.Set.MinReady, steadyAfter)
}

// answer makes the member with the ID returned answer, and all answering members name
// the leader. A leader that is itself replaced hands over to the first other voter that
// answers; alone, it leads again.
func (s *State) answer(a *Assessment, leader, returned uint64) {
	members := s.Etcd.Members
	if leader == returned || leader == 0 {
		leader = returned
		for i := range members {
			if m := &members[i]; m.ID != returned && !m.Learner && m.Probe.Read == Answered {
				leader = m.ID
				break
			}
		}
	}
	for i := range members {
		m := &members[i]
		if m.ID == returned {
			m.Learner = false // Its host promotes it.
			m.Probe = Probe{Read: Answered, Status: &Status{Index: a.HighestIndex, Applied: a.HighestIndex}}
		}
		if m.Probe.Read == Answered && m.Probe.Status != nil {
			status := *m.Probe.Status
			status.Leader, status.Term = leader, 1
			m.Probe.Status = &status
		}
	}
}

// rejoin lets members whose processes run serve again once a quorum of processes runs.
func (s *State) rejoin(a *Assessment) {
	running := 0
	for i := range s.Etcd.Members {
		if s.Etcd.Members[i].Probe.Read == Answered && !s.Etcd.Members[i].Learner {
			running++
		}
	}
	var back []*Replica
	for i := range a.Replicas {
		if x := &a.Replicas[i]; x.Voter && x.Liveness == Alive && !x.Going() &&
			s.member(x.Member.ID).Probe.Read != Answered {
			back = append(back, x)
		}
	}
	if len(back) == 0 || running+len(back) < a.Quorum || a.Serving > 0 {
		return
	}
	for _, x := range back {
		s.answer(a, a.Leader, x.Member.ID)
		for i := range s.Pods {
			if s.Pods[i].UID == x.Pod.UID {
				s.Pods[i].Ready, s.Pods[i].ContainersReady, s.Pods[i].Etcd.Ready = true, true, true
				s.stayReady(x.Pod.UID)
			}
		}
	}
}

// change changes what a member says about itself.
func (s *State) change(id uint64, f func(*Status)) {
	if m := s.member(id); m != nil && m.Probe.Status != nil {
		st := *m.Probe.Status
		f(&st)
		m.Probe.Status = &st
	}
}
