package rollout

import "slices"

// Blocking is an operation on the record that stops a member for a while, such as a defragmentation. Nobody knows
// whether it still does.
type Blocking struct {
	// Operation is its name on the record.
	Operation string
	Member    MemberRef
	// Process is the member's at the time at which that was decided.
	Process Process
}

// Process is one process of a member. What was asked of it ends with it. Without a PodUID it is not known.
type Process struct {
	// PodUID is that of its pod, and Restarts the restart count of the etcd container, which has another process each
	// time.
	PodUID   string
	Restarts int
}

// processOf is the process of a replica's member, as far as it is known.
func processOf(r *Replica) Process {
	if r.Pod == nil {
		return Process{}
	}
	return Process{PodUID: r.Pod.UID, Restarts: r.Pod.Etcd.Restarts}
}

// runs is true for the pod in which the process is still the one that runs.
func (p Process) runs(pod *Pod) bool {
	return pod.Etcd.State == ContainerRunning && pod.UID == p.PodUID && pod.Etcd.Restarts == p.Restarts
}

// Unblocked is true if the member that may still be stopped answers reads, or cannot be stopped any more: its process
// has ended, it has left the list of members, or it was one of another cluster. Without a quorum nobody answers, so
// nobody is relied on, and the cure must not wait for it. It does not say for how long that has been so.
func (a *Assessment) Unblocked() bool {
	over, _ := unblocked(a)
	return over
}

// unblocked is [Assessment.Unblocked], and what is seen of the operation.
func unblocked(a *Assessment) (over bool, seen string) {
	on, etcd := a.state.UnderWay, &a.state.Etcd
	if on == nil {
		return true, ""
	}
	ended := func(which func(*Pod) bool) bool {
		return !slices.ContainsFunc(a.state.Pods, func(p Pod) bool { return which(&p) })
	}
	switch {
	case on.Process.PodUID != "" && ended(on.Process.runs):
		return true, "the process that it was asked of has ended"
	case !etcd.Known && ended(func(p *Pod) bool { return p.Etcd.State == ContainerRunning }):
		return true, "nobody knows the members, and no pod's etcd runs" // The record may not tell the process.
	case !etcd.Known:
		return false, "nobody knows the members, and its process may still run"
	case etcd.ClusterID != on.Member.Cluster:
		return true, "that was a member of another cluster"
	}
	i := slices.IndexFunc(etcd.Members, func(m Member) bool { return m.ID == on.Member.ID })
	switch {
	case i < 0 && etcd.Linearizable:
		return true, "it has left the list of members"
	case i < 0:
		return false, "it is not on the list of members, which may be an old one"
	case a.answers(&etcd.Members[i]):
		return true, "it answers"
	}
	for j := range a.Replicas {
		r := &a.Replicas[j]
		if r.Member == &etcd.Members[i] && (r.Pod == nil || r.Pod.Etcd.State != ContainerRunning) {
			return true, "its process has ended"
		}
	}
	if a.Voters > 1 && !slices.ContainsFunc(etcd.Members, func(m Member) bool { return !m.Learner && a.answers(&m) }) {
		return true, "no voter answers, so none is relied on"
	}
	return false, "it does not answer yet, and its process still runs"
}

// underWay keeps everything else from beginning, as the record's protocol does.
func underWay(a *Assessment, _ *Replica) Verdict {
	on := a.state.UnderWay
	if on == nil {
		return Verdict{Pass: true}
	}
	over, seen := unblocked(a)
	if over {
		seen += ". This has to stay so for half a minute, and until half a minute after the end of the call's time"
	} else {
		seen += ". It has to answer for half a minute after the end of the call's time, or its process has to end"
	}
	return Verdict{text: "nobody knows how an operation on the record ended, " + on.Operation + " " +
		on.Member.Name + ": " + seen}
}
