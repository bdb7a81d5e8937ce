package rollout

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Replica is one ordinal of the StatefulSet: its pod, its member, and what is known
// of the two together.
type Replica struct {
	Ordinal int
	// Name is the name of the ordinal's pod, whether it exists or not.
	Name string
	// Pod is nil when the pod is missing or belongs to somebody else.
	Pod *Pod
	// Member is nil when the member list does not name it, or is not known.
	Member *Member

	Evidence Evidence
	Liveness Liveness
	// ContainerDead: whatever etcd says, no process of this member runs, and the
	// kubelet's own attempts to start one have failed.
	ContainerDead bool

	// Unlisted: an obtained member list has no member for the pod that is there.
	Unlisted bool
	// Voter is true for a member that counts towards quorum.
	Voter bool
	// Leader is true when a majority of the answering members name it.
	Leader bool
	// Outdated is true when the pod has another revision than the StatefulSet's
	// update revision.
	Outdated bool
	// Lag is how many log entries the member has still to apply, as far as known;
	// CaughtUp is true when that is known to be less than the policy's MaxLag.
	Lag      uint64
	CaughtUp bool
	// PodSettled: what can be said of Settled without etcd. The pod is up to date, and has been Ready for
	// minReadySeconds, and for a while longer if one of its containers has restarted, or if its sidecar has not said
	// yet that it is there.
	PodSettled bool
	// Settled: PodSettled, and its member is a voter that serves and has caught up. A learner is not before its host
	// has promoted it.
	Settled bool
	// Settles is after how long it will have settled, if it stays as it is, and zero if time alone does not settle
	// it. Unannounced is true where the word of its sidecar, that it is there, would settle it at once.
	Settles     time.Duration
	Unannounced bool
	// SidecarSick: the backup-restore container is not ready.
	SidecarSick bool
	// Self: the coordinator's own pod.
	Self bool
	// Leaving: a voter that others are about to take, or have taken.
	Leaving bool
	// Suspect: an earlier removal of ours may still remove its member from etcd's list.
	Suspect bool

	// joined is what the two witnesses say together, before it is asked whether the kubelet can be heard.
	joined Evidence
	// silent: nothing has come from the member's pod in this observation, neither an answer nor a refusal.
	silent bool
	// heard: its pod can be heard, from here or through the API server. believed: so its kubelet is a witness when it
	// says that the member is dead or starting.
	heard, believed bool
	// catchesUp: the leader has still to give its member much of the log. pace is by how many entries a second it comes
	// closer, 0 where that is not known.
	catchesUp bool
	pace      float64
	// awayFor is for how long the pod has been seen missing or terminating.
	awayFor time.Duration
	// failing: it is an updated pod that will not settle by itself.
	failing bool
	// deadFor is for how long no process of its member has run.
	deadFor time.Duration
	// mayLeave: its node could not be read just now, so it may be about to be drained. No other one that serves goes
	// for a while. Nothing else waits for it, least of all a cure.
	mayLeave bool
	// taking says in words what else is about to take its pod; empty if nothing does.
	taking string
	// yields: it is leaving, and the operator does not say that it is to be counted on all the same.
	yields bool
	// Stopped: an operation on the record may still keep the member from answering.
	Stopped bool
}

// Going is true when the replica's pod is on its way out or not there.
func (r *Replica) Going() bool { return r.Pod == nil || r.Pod.Terminating }

// stays is true for a replica whose pod is there, and that nobody is about to take, nor an operation on the record:
// neither an earlier removal of ours from etcd's list, nor what may keep its member from answering.
func (r *Replica) stays() bool { return !r.Going() && !r.yields && !r.Suspect && !r.Stopped }

// survives is true for a serving voter that is not on its way out.
func (r *Replica) survives() bool { return r.Voter && r.stays() && r.Evidence == Serving }

// useful is true for a voter that serves and has caught up, so that another may go.
func (r *Replica) useful() bool { return r.Voter && r.Evidence == Serving && r.CaughtUp }

// unpromoted is true for a learner that answers.
func (r *Replica) unpromoted() bool {
	return r.Member != nil && r.Member.Learner && r.Evidence == Serving
}

// candidate is true for a pod that a rule may consider: it is outdated and still there.
func (r *Replica) candidate() bool { return r.Outdated && !r.Going() }

// available is true for what a PodDisruptionBudget counts as available: every Ready pod, also one
// whose member does not answer us, because it may serve others. Its removal has to be charged to the
// budget, or a drain takes another one at the same time. (The chaos tests found a member of unknown
// health that was deleted beside the pod that a drain had just taken.) A pod that is not Ready may be
// evicted only while enough others are, so its cure would have to wait for them.
func (r *Replica) available() bool { return r.Evidence != Down && r.Pod.Ready }

// targetOf is the pod as it was seen.
func targetOf(r *Replica) Target {
	return Target{Pod: r.Name, UID: r.Pod.UID, ResourceVersion: r.Pod.ResourceVersion, Ordinal: r.Ordinal}
}

// steadyAfter is how long a pod of which a container has restarted has to be Ready before
// that counts: the first back-off of a kubelet, within which a crash loop shows again.
const steadyAfter = 10 * time.Second

// noticedAfter is how long a pod of which no container has restarted has to be Ready before that counts, unless its
// sidecar has said that it is there. A kubelet looks once a second whether containers still run
// (genericPlegRelistPeriod in Kubernetes' pkg/kubelet/kubelet.go). The other second is for what it finds to arrive.
const noticedAfter = 2 * time.Second

// probation is how long the pod has to be Ready, to prove that it stays up. A container without a readiness probe, as
// druid's sidecar is, counts as ready from the moment at which it runs. One that crashes at every start makes its pod
// Ready each time, for a second or so, and the next pod would get the broken revision too. A sidecar that has said in
// etcd that it is there has proved that it works.
func (s *State) probation(p *Pod) time.Duration {
	switch {
	case p.Etcd.Restarts > 0 || p.Sidecar.Restarts > 0:
		return steadyAfter
	case slices.Contains(s.Sidecars.Present, p.UID):
		return 0
	}
	return noticedAfter
}

// DescribePod says in a few words what is known of the replica without etcd.
func (r *Replica) DescribePod() string {
	switch {
	case r.Going():
		return r.away()
	case r.ContainerDead:
		return "its etcd container does not run (" + r.Pod.Etcd.inWords() + ")"
	case r.unscheduled():
		return "its pod is not scheduled (" + r.Pod.Etcd.inWords() + ")"
	case !r.Pod.Ready:
		return "its pod is not Ready"
	case !r.Outdated && !r.PodSettled:
		return "its pod has not been Ready for long enough"
	}
	return "its pod is Ready"
}

// away says what is known of a pod that is missing or terminating.
func (r *Replica) away() string {
	if r.Pod == nil {
		return "its pod is missing"
	}
	text := "its pod is terminating"
	switch p := r.Pod; {
	case p.Grace == 0:
	case r.graceLeft() > 0:
		text += fmt.Sprintf(", and may take until %s (grace period %s, at most %s left)",
			p.GraceEnds.UTC().Format("2006-01-02 15:04:05 UTC"), inDays(p.Grace), inDays(r.graceLeft()))
	default:
		text += fmt.Sprintf(", although its grace period of %s is over", inDays(p.Grace))
	}
	if len(r.Pod.Finalizers) > 0 {
		text += ", finalizers: " + strings.Join(r.Pod.Finalizers, ", ")
	}
	return text
}

// unscheduled is true for a pod that has no node, where the scheduler says why.
func (r *Replica) unscheduled() bool {
	return !r.Going() && r.Pod.Node == "" && r.Pod.Etcd.State == ContainerAbsent && r.Pod.Etcd.Reason != ""
}

// graceLeft is how much of its grace period a pod that terminates has left at most, as far as that is known: it may
// have terminated for longer than anybody has seen it.
func (r *Replica) graceLeft() time.Duration {
	if r.Pod == nil || !r.Pod.Terminating {
		return 0
	}
	return max(0, r.Pod.Grace-r.awayFor)
}

// inDays is a duration as people say it, to the second.
func inDays(d time.Duration) string {
	const day = 24 * time.Hour
	d = d.Round(time.Second)
	text := d.String()
	if d%time.Minute == 0 {
		text = strings.TrimSuffix(text, "0s")
	}
	if d%time.Hour == 0 {
		text = strings.TrimSuffix(text, "0m")
	}
	if days := d / day; days > 1 {
		if text = strconv.Itoa(int(days)) + "d"; d%day != 0 {
			text += inDays(d % day)
		}
	}
	return text
}

// progress says how far a member that is behind has come, and when it will be there, as far as that is known.
func (r *Replica) progress() string {
	applied := r.Member.Probe.Status.Applied
	all := applied + r.Lag
	text := fmt.Sprintf("%d of %d log entries, %d behind", applied, all, r.Lag)
	if all >= 1e6 {
		const million = 1e6
		text = fmt.Sprintf("%.1f of %.1f million log entries, %.1f million behind", float64(applied)/million,
			float64(all)/million, float64(r.Lag)/million)
		text = strings.Replace(text, "0.0 of", strconv.FormatUint(applied, 10)+" of", 1)
	}
	if r.pace > 0 {
		left := time.Duration(float64(r.Lag)/r.pace) * time.Second
		switch {
		case left >= 2*time.Hour:
			text += fmt.Sprintf(", about %d h to go", int(left.Hours()+0.5))
		case left >= 90*time.Second:
			text += fmt.Sprintf(", about %d min to go", int(left.Minutes()+0.5))
		default:
			text += ", about a minute to go"
		}
	}
	return "applied " + text
}

// Describe says in a few words what is known of the replica.
func (r *Replica) Describe() string {
	if r.Going() {
		return r.away()
	}
	var text, detail string
	told := false // What it has applied is told.
	if r.Member != nil {
		detail = r.Member.Probe.Detail
	}
	switch {
	case r.catchesUp && r.Evidence != Serving:
		text, told = "its member catches up, and answers no reads before it has: "+r.progress(), true
	case r.Evidence == Down && r.unscheduled():
		text = "its pod is not scheduled (" + r.Pod.Etcd.inWords() + ")"
	case r.Evidence == Down:
		text = "its member is Down (" + r.Liveness.String()
		if r.Pod.Etcd.Reason != "" {
			text += ", " + r.Pod.Etcd.inWords()
		}
		text += r.restarts()
		if r.Liveness == Alive && detail != "" { // Nobody answers for what does not run.
			text += ", " + detail
		}
		text += ")"
	case r.Evidence == Unknown && r.joined == Down:
		text = "its member is Unknown (its kubelet says " + r.Pod.Etcd.inWords() + ", but nothing else comes from " +
			"its pod or its node, so that may be old news)"
	case r.Evidence == Unknown && r.Stopped:
		text = "its member is Unknown (an operation on the record may still keep it from answering)"
	case r.Evidence == Unknown && r.Member != nil && r.Member.deniesToVote():
		text = "its member is Unknown (a voter by etcd's list, and a learner by its own word)"
	case r.Evidence == Unknown && r.Member != nil && r.Member.Probe.Read == Answered:
		text = "its member is Unknown (it answered a read of raft term " +
			strconv.FormatUint(r.Member.Probe.ReadTerm, 10) + ", and another one of a later term)"
	case r.Evidence == Unknown && detail != "":
		text = "its member is Unknown (" + detail + ")"
	case r.Evidence == Unknown:
		text = "its member is Unknown"
	case r.Leader:
		text = "its member serves and leads"
	case !r.Voter && r.catchesUp:
		text = "its member is a learner"
	case !r.Voter:
		text = "its member is a learner, waiting to be promoted"
	default:
		text = "its member serves"
	}
	switch {
	case told || r.useful() || r.unpromoted() && !r.catchesUp:
	case r.catchesUp:
		text += ", catches up: " + r.progress()
	case r.Evidence != Serving:
	case r.Member.Probe.Status == nil:
		text += ", how far it is behind is not known"
		if detail != "" {
			text += " (" + detail + ")"
		}
	default:
		text += ", " + r.progress()
	}
	if r.Unlisted {
		text += ", it is not on etcd's member list"
	}
	if r.Member != nil && r.Member.Probe.Status != nil && r.Member.Probe.Status.NoSpace {
		text += ", alarm NOSPACE"
		between := " of "
		for _, id := range r.Member.Probe.Status.NoSpaceOf {
			text, between = text+between+strconv.FormatUint(id, 16), ", "
		}
	}
	if r.SidecarSick && !r.unscheduled() {
		text += ", its sidecar is not ready"
		if words := r.Pod.Sidecar.inWords(); r.Pod.Sidecar.Reason != "" && words != r.Pod.Etcd.inWords() {
			text += " (" + words + ")"
		}
	}
	switch {
	case r.Outdated || r.Settled:
	case r.catchesUp:
		text += r.restarts()
	case r.Evidence != Serving:
	case r.Unannounced:
		text += ", the updated pod has been Ready for less than " + noticedAfter.String() +
			", and its sidecar has not reported in etcd yet"
	case !r.Pod.Ready && !r.SidecarSick:
		text += ", the updated pod is not Ready"
	default:
		text += ", the updated pod has not settled yet" + r.restarts()
	}
	return text
}

// restarts says how often etcd's container has restarted, if it has, and why the last time.
func (r *Replica) restarts() string {
	c := &r.Pod.Etcd
	switch {
	case c.Restarts == 0:
		return ""
	case c.State == ContainerRunning && c.Why != "":
		return ", restarts: " + strconv.Itoa(c.Restarts) + ", " + c.Why
	}
	return ", restarts: " + strconv.Itoa(c.Restarts)
}
