package rollout

import (
	"strconv"
	"strings"
)

// Evidence is what is known of a member.
type Evidence uint8

// The three values. There is no fourth and never only two: a rule that may take
// a member away has to say what it does with Unknown.
const (
	// Unknown: the two witnesses disagree, or one is missing.
	Unknown Evidence = iota
	// Serving: the member itself answered a read in this observation, under its own
	// member ID and cluster ID.
	Serving
	// Down: etcd's probe failed and the kubelet agrees. It does not mean "not
	// voting", see [GuardMayVote].
	Down
)

// String returns the evidence as it is shown to people.
func (e Evidence) String() string {
	switch e {
	case Serving:
		return "Serving"
	case Down:
		return "Down"
	case Unknown:
	}
	return "Unknown"
}

// Liveness splits Down by the state of the etcd container.
type Liveness uint8

// The kinds of Down, in the order in which rule 4 replaces them.
const (
	// NotDown: the member is not Down, or it has no pod.
	NotDown Liveness = iota
	// Dead: the container cannot start or has ended; there is no process to vote.
	Dead
	// Starting: the container is still being set up, or ended just now.
	Starting
	// Alive: the process runs but is not ready; it may vote for others.
	Alive
)

// String returns the liveness as it is shown to people.
func (l Liveness) String() string {
	switch l {
	case Dead:
		return "dead"
	case Starting:
		return "starting"
	case Alive:
		return "alive"
	case NotDown:
	}
	return ""
}

// startingReasons are the waiting reasons of a container that is being set up in
// the normal course. Every other reason a kubelet gives (CrashLoopBackOff,
// ImagePullBackOff, ErrImagePull, InvalidImageName, RunContainerError,
// CreateContainerConfigError, …) says that it tried and failed.
var startingReasons = map[string]bool{
	"":                  true,
	"ContainerCreating": true,
	"PodInitializing":   true,
}

// livenessOf says what the kubelet's word on the etcd container means for a
// member that is Down. A container that has ended counts as dead only after
// deadAfter: the kubelet is about to restart it. A member that answers for itself, as it does
// without a quorum too, has a process: the kubelet was asked before it, and may lag behind.
func livenessOf(pod *Pod, answers, terminatedLongEnough bool) Liveness {
	if answers {
		return Alive
	}
	if pod.Finished {
		return Dead // However short a time ago: no kubelet restarts anything in it.
	}
	switch pod.Etcd.State {
	case ContainerRunning:
		return Alive
	case ContainerTerminated:
		if terminatedLongEnough {
			return Dead
		}
		return Starting
	case ContainerWaiting:
		if pod.Initialized && !startingReasons[pod.Etcd.Reason] {
			return Dead
		}
		return Starting
	case ContainerAbsent:
	}
	return Starting
}

// kubeletWitness is the kubelet's word on whether a member is down.
type kubeletWitness uint8

const (
	kubeletSaysUp kubeletWitness = iota
	kubeletSaysDown
	// nodeLost: the container statuses are stale and only Ready was set false, by
	// the node controller. It counts as a witness only while a quorum of other
	// voters serves, because the node controller and our probe can fail through the
	// same partition.
	nodeLost
)

// witnessOf reads the kubelet's word from the readiness of the etcd container
// alone: Pod Ready would make a sick sidecar look like a dead member.
func witnessOf(pod *Pod) kubeletWitness {
	switch {
	case pod == nil, pod.Terminating, !pod.Etcd.Ready, pod.Etcd.State != ContainerRunning:
		return kubeletSaysDown
	case !pod.Ready && pod.ContainersReady && !pod.ReadinessGates:
		return nodeLost
	}
	return kubeletSaysUp
}

// runs is true when the kubelet says that the etcd process runs, and can know.
func runs(pod *Pod) bool {
	return pod.Etcd.State == ContainerRunning && witnessOf(pod) != nodeLost
}

// evidenceOf joins the two witnesses. member is nil when an obtained list does
// not name it; serves is etcd's word that it does, and servingOthers the number of other
// voters that serve.
func evidenceOf(pod *Pod, member *Member, listKnown, serves bool, servingOthers, quorum int) Evidence {
	etcdSaysDown := false
	switch {
	case !listKnown:
		// No list, so nobody could be probed: only the kubelet speaks. A pod whose
		// container is dead is the one thing it can say for certain.
		etcdSaysDown = pod != nil && livenessOf(pod, false, true) == Dead
	case member == nil:
		etcdSaysDown = true
	case serves:
		return Serving
	case member.Probe.Read == Failed:
		etcdSaysDown = true
	}
	if !etcdSaysDown {
		return Unknown
	}
	switch witnessOf(pod) {
	case kubeletSaysDown:
		return Down
	case nodeLost:
		if listKnown && servingOthers >= quorum {
			return Down
		}
	case kubeletSaysUp:
	}
	return Unknown
}

// firstLabel returns the first DNS label of a URL's host: the pod's name, where
// members are addressed by their pods' names.
func firstLabel(url string) string {
	if _, rest, ok := strings.Cut(url, "://"); ok {
		url = rest
	}
	end := strings.IndexAny(url, ".:/")
	if end < 0 {
		return url
	}
	return url[:end]
}

// memberOf finds the pod's member: by name, and if none has it, by the first DNS
// label of a peer or client URL (a member that never started has no name yet). A second
// one that matches as well is a contradiction: the first is as likely to be the wrong one.
func memberOf(members []Member, podName, memberName string) (member, second *Member) {
	for i := range members {
		if members[i].named(memberName) {
			return &members[i], nil // Two members of one name hold anyway.
		}
	}
	for i := range members {
		switch m := &members[i]; {
		case !m.livesAt(podName):
		case member == nil:
			member = m
		default:
			return member, m
		}
	}
	return member, nil
}

func (m *Member) named(name string) bool { return m.Name != "" && m.Name == name }

// livesAt is true when a peer or client URL of the member begins with the pod's name.
func (m *Member) livesAt(podName string) bool {
	for _, urls := range [2][]string{m.PeerURLs, m.ClientURLs} {
		for _, u := range urls {
			if firstLabel(u) == podName {
				return true
			}
		}
	}
	return false
}

// label is how a member is told to people: by its name, or its ID while it has none.
func (m *Member) label() string { return Label(m.Name, m.ID) }

// Label is how a member is told to people: by its name, or its ID while it has none.
func Label(name string, id uint64) string {
	if name != "" {
		return name
	}
	return strconv.FormatUint(id, 16)
}
