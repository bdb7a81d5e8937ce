package rollout

import (
	"slices"
	"strconv"
	"strings"
	"time"
)

// Assessment is the state with its facts joined: what the rules reason about.
type Assessment struct {
	// Replicas are the StatefulSet's own ordinals, lowest first.
	Replicas []Replica
	// External are the voters without a pod in our ordinals: members elsewhere, ghosts of an
	// old scale-in, and members whose pods are being scaled away. They always count as voters,
	// and never as survivors, because somebody else may take them at any time without asking
	// us; [Policy.TrustedMembers] says which may be relied on all the same.
	External []*Member

	// Ghosts are the members that an ordinal of ours has left behind, voters and learners, however long they
	// have been there.
	Ghosts []Ghost

	// Voters and Quorum come from etcd's member list, never from spec.replicas.
	Voters, Quorum int
	// Serving is how many voters serve.
	Serving int
	// HighestIndex is the highest raft log index that any member reports.
	HighestIndex uint64
	// Leader is the leader's member ID, 0 when there is none.
	Leader uint64
	// Inconsistent names the first fact that contradicts another, empty if none.
	Inconsistent string

	// survivors is how many serving voters nobody is known to take: of our own replicas, and the
	// trusted ones elsewhere. Every rule that asks how many stay asks here.
	survivors int
	// trusted are the voters elsewhere that serve and may be relied on; on untrusted, which
	// serve as well, nobody may. The pods of some of them terminate already.
	trusted                []*Member
	untrusted, terminating int
	// scaledAway are our pods out of range that are about to go, and whose members vote.
	scaledAway []*Pod
	// unmatched counts our pods in range that no member could be matched to, and strangers the voters elsewhere that
	// may run in one of them all the same: no pod out of range is theirs, and no ordinal of ours has left them behind.
	unmatched, strangers int
	// onlyMember: exactly one voter and one replica.
	onlyMember bool
	// servingForSure is how many voters serve, but for a suspect.
	servingForSure int
	// noSpace is true while some member says that there is an alarm NOSPACE.
	noSpace bool
	// goingAway are those of scaledAway that went lately, and taken is how many members others take, or may be about
	// to take.
	goingAway []*Pod
	taken     int
	// ownNode is the node of the coordinator's own pod, empty if it has none.
	ownNode string
	// readTerm is the highest raft term among the answers to linearizable reads.
	readTerm uint64
	// trial says how far the new revision has proved itself.
	trial trial
	// differing are the members whose data differ.
	differing []Difference
	// begins is true before the first pod of the rollout goes.
	begins bool
	// step is what [Assessment.Step] has put together.
	step *Step

	state  State
	policy Policy
}

// trial counts the pods that run the new revision, or will in place of what is going. Those
// under way have not settled, and some of them are failing.
type trial struct{ settled, underWay, failing int }

// Assess joins the facts of a state. It does not decide anything; see [Assessment.Decide].
func Assess(s State, p Policy) *Assessment {
	a := join(s, p)
	a.remember(s.Memory)
	return a
}

// join joins what was seen in one observation. How long things have lasted is left to remember.
func join(s State, p Policy) *Assessment {
	a := &Assessment{state: s, policy: p.under(s.Controls)}
	members := s.Etcd.Members
	for i := range members {
		m := &members[i]
		if !m.Learner {
			a.Voters++
			if m.Probe.Read == Answered && !m.deniesToVote() {
				a.readTerm = max(a.readTerm, m.Probe.ReadTerm)
			}
		}
		if m.Probe.Status != nil {
			a.HighestIndex = max(a.HighestIndex, m.Probe.Status.Index)
		}
	}
	for i := range members {
		if m := &members[i]; !m.Learner && a.serves(m) {
			a.Serving++
			a.servingForSure += btoi(!s.suspects(m))
		}
	}
	if s.Etcd.Known {
		a.Quorum = a.Voters/2 + 1
	}
	for i := range s.Pods {
		if p := &s.Pods[i]; p.Name == s.Self && p.Owned {
			a.ownNode = p.Node
		}
	}
	a.begins = s.Begins()
	a.Leader = a.leader()
	a.Inconsistent = contradiction(&a.state)
	a.noSpace = a.state.Etcd.told(func(st *Status) bool { return st.NoSpace })

	if !s.Set.plausible() {
		return a // It holds, and there are no ordinals to speak of.
	}
	var few [8]*Member // More than most clusters have; so they take no memory of their own.
	taken := few[:0]
	a.Replicas = make([]Replica, 0, s.Set.Replicas)
	for n := s.Set.Start; n < s.Set.Start+s.Set.Replicas; n++ {
		replica := a.replica(n)
		if replica.Member != nil {
			// Counted twice, one serving member would make up for one that does not.
			if i := slices.Index(taken, replica.Member); i >= 0 && a.Inconsistent == "" {
				a.Inconsistent = "member " + strconv.FormatUint(replica.Member.ID, 16) + " matches more than one " +
					"pod, by its name or its URLs: " + replica.Name + " is the second"
			}
			taken = append(taken, replica.Member)
		}
		a.Replicas = append(a.Replicas, replica)
	}
	for i := range members {
		if m := &members[i]; !m.Learner && !slices.Contains(taken, m) {
			a.External = append(a.External, m)
		}
	}
	a.onlyMember = a.Voters == 1 && len(a.Replicas) == 1
	a.findGhosts(taken)
	a.count()
	return a
}

// Etcd is what etcd's members have told.
func (a *Assessment) Etcd() Membership { return a.state.Etcd }

// count sums up the replicas and the voters elsewhere.
func (a *Assessment) count() {
	for i := range a.Replicas {
		r := &a.Replicas[i]
		if r.Unlisted {
			a.unmatched++
		}
	}
	// While some pod of ours matches no member, any voter elsewhere may be the one that runs in it, whatever the
	// operator says.
	trusted := func(m *Member) bool {
		return a.unmatched == 0 && m.Name != "" && slices.Contains(a.policy.TrustedMembers, m.Name)
	}
	for _, m := range a.External {
		away := a.state.podOutOfRange(m)
		a.strangers += btoi(away == nil && a.ghost(m.ID) == nil)
		// With OrderedReady the StatefulSet controller may wait for the other pods first.
		if away != nil && (away.Terminating || !a.state.Set.OrderedReady) {
			a.scaledAway = append(a.scaledAway, away)
		}
		switch {
		case !a.serves(m):
		case away == nil && trusted(m) && !a.state.suspects(m):
			a.trusted = append(a.trusted, m)
		default:
			a.untrusted++
			a.terminating += btoi(away != nil && away.Terminating || a.state.suspects(m))
		}
	}
}

// remember makes the assessment rest on a memory. It says everything that depends on how long things
// have lasted, anew each time.
func (a *Assessment) remember(m Memory) {
	a.state.Memory, a.trial, a.survivors = m, trial{}, len(a.trusted)
	a.goingAway = slices.DeleteFunc(slices.Clone(a.scaledAway), func(p *Pod) bool {
		return !a.lately(p.Name, AwaySeen)
	})
	a.taken = len(a.goingAway)
	a.differing = a.state.differences()
	for i := range a.Ghosts {
		a.Ghosts[i].Silent = a.state.Ages[a.Ghosts[i].sighted(GhostSeen)]
	}
	for i := range a.Replicas {
		r := &a.Replicas[i]
		if r.Pod != nil {
			a.rememberPod(r)
		}
		a.rememberLeaving(r)
		r.awayFor = a.Age(r.Name, AwaySeen)
		if r.Member != nil {
			r.pace = m.Paces[r.Member.ID]
		}
		r.failing = a.fails(r)
		r.deadFor = a.deadFor(r)
		a.survivors += btoi(r.survives())
		switch {
		case r.Settled:
			a.trial.settled++
		case r.Going() || !r.Outdated:
			// What is going comes back with the new revision, whoever has taken it.
			a.trial.underWay++
			a.trial.failing += btoi(r.failing)
		}
	}
}

func (a *Assessment) rememberPod(r *Replica) {
	pod := r.Pod
	answers := r.joined == Down && r.Member != nil && r.Member.Probe.Status != nil
	r.heard = a.hears(r)
	// Its words stay as they were when a kubelet's node is cut off, and the same cut takes our probe, so that one event
	// would look like two witnesses while the member votes on the other side. So there has to be a sign that this very
	// pod can be heard: it has no node yet, or it is on our own, or it is heard from here or through the API server.
	r.believed = pod.Node == "" || pod.Node == a.ownNode || r.heard
	liveness := livenessOf(pod, answers, a.Age(pod.UID, TerminatedSeen) >= a.policy.DeadAfter)
	r.ContainerDead = liveness == Dead
	r.Evidence, r.Liveness = r.joined, NotDown
	switch {
	case r.joined != Down:
	case liveness == Alive || pod.Terminating || r.believed:
		r.Liveness = liveness
	case a.Age(pod.UID, SilentSeen) >= a.policy.SettleTimeout:
		r.Liveness = Alive // It may run for all that anybody knows, so it is spared like what runs.
	default:
		r.Evidence = Unknown
	}
	r.PodSettled, r.Settled, r.Settles, r.Unannounced = false, false, 0, false
	if r.Outdated || pod.Terminating || !pod.Ready {
		return
	}
	ready, probation := a.Age(pod.UID, ReadySeen), a.state.probation(pod)
	left := max(0, a.state.Set.MinReady-ready, probation-ready)
	if r.PodSettled = left == 0; !r.useful() {
		return
	}
	r.Settled, r.Settles = r.PodSettled, left
	r.Unannounced = !r.Settled && probation == noticedAfter && ready >= a.state.Set.MinReady
}

// hears is true where a connection to the pod's own address was refused in this look, or where its kubelet or its
// node has said something new since the silence began. The node condition Ready is no such sign: it stays true for
// most of a minute after a cut.
func (a *Assessment) hears(r *Replica) bool {
	if !r.silent {
		return true
	}
	silence := a.Age(r.Pod.UID, SilentSeen)
	newer := func(words string) bool {
		age, seen := a.state.Ages[Sighting{words, SaidSeen}]
		return seen && age < silence
	}
	return newer(r.Pod.word()) || r.Pod.Heartbeat != "" && newer(r.Pod.heartbeat())
}

// fails is true for an updated pod that will not settle by itself. One that has finished as a whole is about to be
// replaced by the StatefulSet controller.
func (a *Assessment) fails(r *Replica) bool {
	if r.Going() || r.Outdated || r.Settled {
		return false
	}
	return r.ContainerDead && !r.Pod.Finished ||
		!r.hasTime() && a.Age(r.Pod.UID, UnsettledSeen) >= a.policy.SettleTimeout
}

// hasTime is true for a member that catches up, for however long: its revision does not fail for that. While it lasts,
// it is not known whether the pod would settle. A container that has ended, and a sick sidecar, are reasons of their
// own not to.
func (r *Replica) hasTime() bool { return r.catchesUp && r.Pod.Etcd.Restarts == 0 && !r.SidecarSick }

// CatchesUp is true for a member that is far behind, and that follows the leader: it receives the log, or a snapshot.
func (r *Replica) CatchesUp() bool { return r.catchesUp }

// catchesUp is true for a member whose leader has still to give it much of the log, or a snapshot.
func (a *Assessment) catchesUp(r *Replica) bool {
	if r.Going() || r.Member == nil || r.Member.Probe.Status == nil || r.CaughtUp || r.Member.deniesToVote() {
		return false
	}
	return a.Leader != 0 && r.Member.Probe.Status.Leader == a.Leader && r.Pod.Etcd.State == ContainerRunning
}

// deadFor says for how long no process of the replica's member has run. A crash loop runs for a moment between its
// restarts, and backs off for at most as long as settleTimeout. So those moments do not count, or it would never be old
// enough. A pod that is merely terminating may have a process. A member that answers has one, whatever its kubelet
// says.
func (a *Assessment) deadFor(r *Replica) time.Duration {
	switch {
	case r.Member != nil && (r.Member.Probe.Read == Answered || r.Member.Probe.Status != nil):
		return 0
	case r.Pod == nil:
		return a.Age(r.Name, AwaySeen)
	}
	down := a.Age(r.Pod.UID, NotRunningSeen)
	if r.ContainerDead && r.Pod.Etcd.State == ContainerWaiting {
		down = max(down, a.Age(r.Pod.UID, RestartingSeen))
	}
	return down
}

// Settles is after how long some updated pod will have settled by time alone, and zero if there is none. Announced is
// false where the word of a sidecar, that it is there, would settle one at once.
func (a *Assessment) Settles() (after time.Duration, announced bool) {
	announced = true
	for i := range a.Replicas {
		if r := &a.Replicas[i]; r.Settles > 0 && (after == 0 || r.Settles < after) {
			after = r.Settles
		}
		announced = announced && !a.Replicas[i].Unannounced
	}
	return after, announced
}

// word and heartbeat are how the ages of what the kubelet and the node have said last are asked for.
func (p *Pod) word() string { return p.UID + " said " + p.Said }

func (p *Pod) heartbeat() string { return p.UID + " heartbeat " + p.Heartbeat }

// Speaker is the UID of the pod that words are about.
func (s Sighting) Speaker() string {
	uid, _, _ := strings.Cut(s.UID, " ")
	return uid
}

// Supersedes is true for words of the same kind about the same pod: there is only one of them at a time.
func (s Sighting) Supersedes(old Sighting) bool {
	kind := func(words string) string { return words[:strings.LastIndexByte(words, ' ')+1] }
	return s.Condition == SaidSeen && old.Condition == SaidSeen && kind(s.UID) == kind(old.UID)
}

// silence is true for a replica from whose pod nothing has come in this observation: no answer of the member, not even
// a refusal, and no refused connection. While there is no member list, no member was asked.
func (r *Replica) silence() bool {
	if r.Going() || r.Pod.Node == "" || r.Pod.Heard {
		return false
	}
	return r.Member == nil || !r.Member.speaks()
}

// speaks is true for a member from which anything has come in this observation: an answer, its status, or an error of
// etcd's own.
func (m *Member) speaks() bool {
	return m.Probe.Read == Answered || m.Probe.Status != nil || m.Probe.Replied
}

// serves is true for a member that itself answered a read in this observation. Of a voter's,
// which is linearizable, the term must be the highest among all such answers: a member that
// was paused may answer one read from before the pause (etcd before 3.5.28 and 3.6.9,
// etcd-io/etcd#20418). The highest itself always serves, so that a member behind never makes
// quorum look lost. A term of zero is not known, and says nothing.
func (a *Assessment) serves(m *Member) bool { return a.answers(m) && !a.state.stopped(m) }

// answers is true for such a member, whatever may still happen to it.
func (a *Assessment) answers(m *Member) bool {
	return m.Probe.Read == Answered && !m.deniesToVote() &&
		(m.Learner || m.Probe.ReadTerm == 0 || m.Probe.ReadTerm == a.readTerm)
}

// deniesToVote is true for a member that the list has as a voter, and that says itself that it is a learner. It counts
// among the voters, because the others wait for its vote, and never among those that serve.
func (m *Member) deniesToVote() bool {
	return !m.Learner && m.Probe.Status != nil && m.Probe.Status.Learner
}

func (a *Assessment) replica(ordinal int) Replica {
	s := &a.state
	replica := Replica{Ordinal: ordinal}
	var few [64]byte // Longer than most names; so it takes no memory of its own.
	name := s.Set.appendPodName(few[:0], ordinal)
	memberName := ""
	for i := range s.Pods {
		pod := &s.Pods[i]
		if pod.Name != string(name) {
			continue
		}
		replica.Name, memberName = pod.Name, pod.MemberName
		if pod.Owned {
			replica.Pod = pod
		}
	}
	if replica.Name == "" {
		replica.Name = string(name)
		memberName = replica.Name
	}
	if s.Etcd.Known {
		var second *Member
		replica.Member, second = memberOf(s.Etcd.Members, replica.Name, memberName)
		if second != nil && a.Inconsistent == "" {
			a.Inconsistent = "pod " + replica.Name + " matches more than one member by the first label of their " +
				"URLs: " + replica.Member.label() + " and " + second.label()
		}
	}
	others, serves := a.servingForSure, false
	if m := replica.Member; m != nil {
		replica.Stopped = a.state.stopped(m)
		replica.Voter = !m.Learner
		replica.Leader = m.ID == a.Leader && a.Leader != 0
		serves = a.serves(m)
		replica.Suspect = a.state.suspects(m)
		if replica.Voter && serves {
			others--
		}
		lag, known := a.lag(m)
		replica.Lag, replica.CaughtUp = lag, known && lag < a.policy.MaxLag
	}
	replica.joined = evidenceOf(replica.Pod, replica.Member, s.Etcd.Known, serves, others, a.Quorum)
	replica.Evidence, replica.silent = replica.joined, replica.silence()
	replica.Unlisted = s.Etcd.Known && replica.Pod != nil && replica.Member == nil
	replica.Self = replica.Name == s.Self
	if pod := replica.Pod; pod != nil {
		replica.Outdated = s.Set.Outdated(pod)
		replica.SidecarSick = !pod.Sidecar.Ready
	}
	replica.catchesUp = a.catchesUp(&replica)
	return replica
}

// Age says how long a condition has been seen without a break.
func (a *Assessment) Age(uid string, c Condition) time.Duration {
	return a.state.Ages[Sighting{UID: uid, Condition: c}]
}

// Sightings lists the conditions that hold in this observation and whose age
// matters. A caller keeps for each how long it has been listed without a break, and passes that
// back as [Memory.Ages]. The list itself does not depend on any memory.
func (a *Assessment) Sightings() []Sighting {
	var seen []Sighting
	if a.Serving == 0 {
		seen = append(seen, Sighting{Condition: QuorumLostSeen})
	}
	for i := range a.Replicas {
		replica := &a.Replicas[i]
		pod := replica.Pod
		if replica.Going() {
			seen = append(seen, Sighting{replica.Name, AwaySeen})
		}
		if pod == nil {
			continue
		}
		seen = append(seen, Sighting{pod.UID, PodSeen})
		if pod.Ready {
			seen = append(seen, Sighting{pod.UID, ReadySeen})
		}
		if pod.Cordoned || pod.NodeUnknown {
			seen = append(seen, Sighting{pod.UID, CordonedSeen})
		}
		// While the member serves, its kubelet's bad news is old: two short restarts are not one long one.
		serves := replica.joined == Serving
		if pod.Etcd.State == ContainerTerminated && !serves {
			seen = append(seen, Sighting{pod.UID, TerminatedSeen})
		}
		if pod.Etcd.State != ContainerRunning && !serves {
			seen = append(seen, Sighting{pod.UID, NotRunningSeen})
		}
		if pod.Etcd.Restarts > 0 && !pod.Etcd.Ready && !serves {
			seen = append(seen, Sighting{pod.UID, RestartingSeen})
		}
		if replica.silent {
			seen = append(seen, Sighting{pod.UID, SilentSeen})
		}
		if pod.Said != "" {
			seen = append(seen, Sighting{pod.word(), SaidSeen})
		}
		if pod.Heartbeat != "" || pod.NodeSilent { // That it is silent is another word than the next heartbeat.
			seen = append(seen, Sighting{pod.heartbeat(), SaidSeen})
		}
		if !replica.Outdated && !replica.Stopped && !replica.hasTime() && (!pod.Ready || !replica.useful()) {
			seen = append(seen, Sighting{pod.UID, UnsettledSeen})
		}
	}
	for _, p := range a.scaledAway {
		seen = append(seen, Sighting{p.Name, AwaySeen})
	}
	for i := range a.Ghosts {
		seen = append(seen, a.Ghosts[i].sighted(GhostSeen))
	}
	for i := range a.state.Etcd.Members {
		if len(a.Ghosts) > 0 {
			seen = append(seen, a.state.Etcd.Members[i].sighted(MemberSeen))
		}
	}
	return seen
}

// leader returns the ID that a majority of the answering members name at the
// highest term, or 0. Where some serve, only they are asked: one that is cut off from its
// peers answers for its own status, and without pre-vote, as in etcd 3.4, it raises its own
// term without end.
func (a *Assessment) leader() uint64 {
	members := a.state.Etcd.Members
	var term, named uint64
	answering, votes, lead := 0, 0, 0
	for i := range members {
		st := members[i].Probe.Status
		switch {
		case st == nil || a.Serving > 0 && !a.serves(&members[i]) || st.Term < term:
			continue
		case st.Term > term:
			term, answering, lead = st.Term, 0, 0
		}
		answering++
		// Whom a majority names is left over when each vote is set off against another.
		if lead == 0 {
			named = st.Leader
		}
		if st.Leader == named {
			lead++
		} else {
			lead--
		}
	}
	listed := false
	for i := range members {
		m := &members[i]
		listed = listed || m.ID == named
		if st := m.Probe.Status; st != nil && st.Term == term && st.Leader == named && (a.Serving == 0 || a.serves(m)) {
			votes++
		}
	}
	if !listed || 2*votes <= answering {
		return 0
	}
	return named
}

// maxReplicas is far more than any etcd cluster has; a number above it is an error,
// and would only take memory and time.
const maxReplicas = 1000

// plausible is false for numbers that no API server would store or no etcd cluster have.
func (s *Set) plausible() bool {
	return s.Replicas >= 0 && s.Replicas <= maxReplicas && s.Start >= 0
}

// has is true for the ordinals that pods of the StatefulSet should have.
func (s *Set) has(ordinal int) bool { return ordinal >= s.Start && ordinal < s.Start+s.Replicas }

func (s *Set) podName(ordinal int) string { return string(s.appendPodName(nil, ordinal)) }

func (s *Set) appendPodName(b []byte, ordinal int) []byte {
	return strconv.AppendInt(append(append(b, s.Name...), '-'), int64(ordinal), 10)
}

// contradiction names the first two facts that cannot both be true. On such
// input nothing may be decided.
func contradiction(s *State) string {
	set := &s.Set
	if !set.plausible() {
		return "the StatefulSet has " + strconv.Itoa(set.Replicas) + " replicas from ordinal " +
			strconv.Itoa(set.Start) + " on"
	}
	for i := range s.Pods {
		switch pod := &s.Pods[i]; {
		case pod.Owned && pod.Ordinal < 0:
			return "pod " + pod.Name + " belongs to the StatefulSet and has no ordinal"
		case !pod.Owned && set.has(pod.Ordinal) && pod.Name == set.podName(pod.Ordinal):
			return "pod " + pod.Name + " stands where one of the StatefulSet's belongs, and is not its own"
		case pod.Owned && pod.NoEtcdContainer && set.has(pod.Ordinal):
			return "pod " + pod.Name + " has no container of the name that etcd's is expected to have, so its " +
				"kubelet tells nothing about its member"
		}
		for j := range i {
			if s.Pods[i].Owned && s.Pods[j].Owned && s.Pods[i].Ordinal >= 0 && s.Pods[i].Ordinal == s.Pods[j].Ordinal {
				return "two pods of ordinal " + strconv.Itoa(s.Pods[i].Ordinal) + ": " + s.Pods[j].Name + " and " +
					s.Pods[i].Name
			}
		}
	}
	members := s.Etcd.Members
	for i := range members {
		m := &members[i]
		if m.Probe.Read == WrongCluster {
			return "member " + m.Name + " answers for another cluster (" + m.Probe.Detail + ")"
		}
		for j := range i {
			o := &members[j]
			if m.Name != "" && m.Name == o.Name {
				return "two members are named " + m.Name
			}
			if m.ID == o.ID {
				return "two members have the ID " + strconv.FormatUint(m.ID, 16)
			}
			if a, b := m.Probe.Status, o.Probe.Status; a != nil && b != nil && a.Term == b.Term &&
				a.Leader != 0 && b.Leader != 0 && a.Leader != b.Leader {
				return "members " + o.Name + " and " + m.Name + " name different leaders at term " +
					strconv.FormatUint(a.Term, 10)
			}
		}
	}
	return ""
}

// survivorsWithout counts the survivors that stay when c goes.
func (a *Assessment) survivorsWithout(c *Replica) int { return a.survivors - btoi(c.survives()) }

func (a *Assessment) lag(m *Member) (entries uint64, known bool) {
	if m.Probe.Status == nil {
		return a.HighestIndex, false
	}
	return a.HighestIndex - min(a.HighestIndex, m.Probe.Status.Applied), true
}

func (a *Assessment) replicaOf(pod string) *Replica {
	for i := range a.Replicas {
		if a.Replicas[i].Name == pod {
			return &a.Replicas[i]
		}
	}
	return nil
}

// btoi sorts false before true.
func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}
