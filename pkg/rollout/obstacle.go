package rollout

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// obstacle is one reason for which a pod that should settle does not, and what an operator does about it. A guard's row
// has to advise for all of them at once. Where the reason is known, its advice replaces that.
type obstacle struct {
	// looks says how it shows.
	looks string
	// do is the advice. Capital words in it stand for names: POD, NODE, CONTAINER, the ID of
	// its member, and NAME and NAMESPACE of the StatefulSet.
	do string
	// template is true where the template is to blame, or what it refers to: only then the advice is to change it.
	template bool
	// stays is true for what mostly lasts until somebody acts, although the rollout only waits.
	stays bool
	// late is true for what is in the normal course until the pod fails.
	late bool
	// is says whether that is the replica's reason.
	is func(a *Assessment, r *Replica) bool
}

// obstacles are asked from the top, and the first that is one counts: what keeps a pod away, then what keeps its
// containers from running, then what keeps its member from voting.
var obstacles = []obstacle{
	{
		looks: "the StatefulSet controller says why it cannot create the pod",
		do: "The API server refuses the new pod, and the reason quotes it. Make room in the quota, fix the webhook, " +
			"or create what is missing. The StatefulSet controller tries again by itself: `kubectl describe " +
			"statefulset -n NAMESPACE NAME` shows when.",
		stays: true,
		is:    func(a *Assessment, r *Replica) bool { return r.Pod == nil && a.state.Set.NotCreated != "" },
	},
	{
		looks: "the pod terminates, and its grace period is not over",
		do: "Nothing, if it may take that long. `kubectl logs -n NAMESPACE POD --all-containers` shows what it is " +
			"still doing. To give it 30 seconds from now on: `kubectl delete pod -n NAMESPACE POD " +
			"--grace-period=30`. Never use 0 or --force, because its processes may keep running.",
		is: func(_ *Assessment, r *Replica) bool { return r.graceLeft() > 0 },
	},
	{
		looks: "the pod terminates, its grace period is over, and it has finalizers",
		do: "Whatever has set the finalizers has to remove them: look at that controller. `kubectl get pod -n " +
			"NAMESPACE POD -o yaml` shows them.",
		stays: true,
		is: func(_ *Assessment, r *Replica) bool {
			return r.Pod != nil && r.Pod.Terminating && r.Pod.Grace > 0 && len(r.Pod.Finalizers) > 0
		},
	},
	{
		looks: "the pod terminates, and its grace period is over",
		do: "Its kubelet has not reported that it has ended. See whether the node is lost: `kubectl get node NODE`. " +
			"If the node is certainly off, `kubectl taint node NODE " +
			"node.kubernetes.io/out-of-service=nodeshutdown:NoExecute` lets the pod go. While the node may still be " +
			"running, do not delete the pod with --force.",
		stays: true,
		is: func(_ *Assessment, r *Replica) bool {
			return r.Pod != nil && r.Pod.Terminating && r.Pod.Grace > 0 && r.Pod.Node != ""
		},
	},
	{
		looks: "the pod has finished as a whole (Succeeded, Evicted, Failed)",
		do: "Nothing: the StatefulSet controller deletes the pod and creates it again. If that does not happen, look " +
			"at kube-controller-manager.",
		is: func(_ *Assessment, r *Replica) bool { return r.Pod != nil && !r.Going() && r.Pod.Finished },
	},
	{
		looks: "no node accepts the pod (Unschedulable)",
		do: "No node accepts the pod, and the reason quotes the scheduler. Make room, uncordon a node or add " +
			"one, or bring back the node that its volume is bound to (`kubectl describe pod -n NAMESPACE POD`, " +
			"`kubectl get nodes`). The new template is to blame only if it asks for more than the old one did, " +
			"or for another node.",
		is: func(_ *Assessment, r *Replica) bool {
			return r.unscheduled()
		},
	},
	{
		looks: "an image cannot be pulled (ImagePullBackOff, ErrImagePull, InvalidImageName)",
		do: "Check that the image exists, and that the node may pull it: `kubectl describe pod -n NAMESPACE POD`. If " +
			"its name is wrong, fix the template, or roll it back (`kubectl rollout undo -n NAMESPACE " +
			"statefulset/NAME`): the pod is replaced first. If the registry is down, the kubelet tries again by " +
			"itself.",
		template: true,
		is: stopped(func(c Container) bool {
			return strings.Contains(c.Reason, "Image") || c.Reason == "RegistryUnavailable"
		}),
	},
	{
		looks: "a container cannot be created (CreateContainerConfigError, RunContainerError)",
		do: "The kubelet cannot create the container CONTAINER. Usually a Secret, a ConfigMap or a command that the " +
			"template names does not exist: `kubectl describe pod -n NAMESPACE POD`. Create what is missing, or fix " +
			"the template: the pod is replaced first.",
		template: true,
		is: stopped(func(c Container) bool {
			return strings.HasPrefix(c.Reason, "CreateContainer") || c.Reason == "RunContainerError"
		}),
	},
	{
		looks: "a container is killed because it has too little memory (OOMKilled)",
		do: "The container CONTAINER needs more memory than the template allows. Raise the template's memory limit: " +
			"the pod is replaced first.",
		template: true,
		is: stopped(func(c Container) bool {
			return strings.Contains(c.Reason+" "+c.Why, "OOMKilled")
		}),
	},
	{
		looks: "etcd does not run, and etcd's list has no member for the pod",
		do: "etcd's member list has no such member, so this one cannot join. See in the log of the host's sidecar " +
			"why it does not add the member, and in etcd's own log why etcd exits: `kubectl logs -n NAMESPACE POD -c " +
			"CONTAINER --previous`. Look at the template only if etcd exits for another reason.",
		is: func(_ *Assessment, r *Replica) bool { return r.ContainerDead && r.Unlisted && !r.Going() },
	},
	{
		looks: "a container exits again and again (CrashLoopBackOff)",
		do: "See why it exits: `kubectl logs -n NAMESPACE POD -c CONTAINER --previous`. Fix the template, or roll it " +
			"back (`kubectl rollout undo -n NAMESPACE statefulset/NAME`): the pod is replaced first.",
		template: true,
		is:       stopped(func(Container) bool { return true }),
	},
	{
		looks: "the node is still setting the pod up (ContainerCreating, PodInitializing)",
		do: "The node is still setting the pod up. `kubectl describe pod -n NAMESPACE POD` shows what it waits for: " +
			"a volume that another node has not released (Multi-Attach), a network, a Secret, or an init container. " +
			"Fix that; a new template would wait for the same thing.",
		late: true,
		is: func(_ *Assessment, r *Replica) bool {
			return r.Liveness == Starting && !r.Going() && r.Pod.Etcd.State != ContainerTerminated
		},
	},
	{
		looks: "one side does not accept the other's certificate (x509)",
		do:    doCertificate,
		stays: true,
		is:    func(_ *Assessment, r *Replica) bool { return r.barred() == ByCertificate },
	},
	{
		looks: "etcd's authentication is on, and etcd does not know who is asking",
		do:    doLogin,
		stays: true,
		is:    func(_ *Assessment, r *Replica) bool { return r.barred() == ByLogin },
	},
	{
		looks: "the member is catching up with the others, and its container has exited meanwhile",
		do: "See why its last process ended: `kubectl logs -n NAMESPACE POD -c CONTAINER --previous`. If it ran out " +
			"of memory (OOMKilled), it needs a higher limit while it loads its data. Otherwise nothing: the member " +
			"is catching up.",
		is: func(_ *Assessment, r *Replica) bool { return r.catchesUp && r.Pod.Etcd.Restarts > 0 },
	},
	{
		looks: "the member is catching up with the others, from their log or by a snapshot",
		do: "Nothing: the member is catching up, and the rollout goes on when it has. Do not restart it or delete " +
			"its pod, or it starts over. While it receives a snapshot, no entry counts as applied. If the number " +
			"does not change for longer than its database takes over the network, look at its disk and network: " +
			"`kubectl logs -n NAMESPACE POD -c CONTAINER`.",
		is: func(_ *Assessment, r *Replica) bool { return r.catchesUp && !r.SidecarSick },
	},
	{
		looks: "the member serves, but does not report how far it is behind",
		do: "Its member serves, but does not report how far it is behind. The reason says why: usually etcd's user " +
			"may not ask for the status.",
		is: func(_ *Assessment, r *Replica) bool {
			return r.Voter && r.Evidence == Serving && !r.Going() && r.Member.Probe.Status == nil
		},
	},
	{
		looks: "the member is a learner that answers",
		do: "The learner is waiting for its host to promote it: see the host's log, or run `etcdctl member " +
			"promote ID`.",
		late: true,
		is:   func(_ *Assessment, r *Replica) bool { return r.unpromoted() },
	},
}

// What to do about what keeps answers back. The whole cluster may have that as well.
const (
	doCertificate = "Renew the certificate that the error is about, or give Quorate the certificate authority that " +
		"signed it. etcd reads a renewed certificate by itself as soon as it is in the pod. No update is needed for " +
		"that."
	doLogin = "Let Quorate sign in with a user that etcd knows (`--etcd-username`, `--etcd-password`; in a host, the " +
		"client that the host gives to Quorate). The members may be serving all the same: nobody can tell until then."
	doShared = "Give each member an address of its own: set `--advertise-client-urls` to its pod's own name, and " +
		"replace the pods once by hand, one at a time. Members that advertise only addresses that several of them " +
		"answer cannot be told apart: see [members that advertise a shared address]" +
		"(operations.md#members-that-advertise-a-shared-address)."
)

// stopped asks about the container that does not run: that of etcd, or the sidecar's.
func stopped(is func(Container) bool) func(*Assessment, *Replica) bool {
	return func(_ *Assessment, r *Replica) bool {
		c := r.stopped()
		return c != nil && is(*c)
	}
}

// stopped is the container that its kubelet has tried to start, and that does not run; nil if there is none. That of
// etcd comes first.
func (r *Replica) stopped() *Container {
	switch {
	case r.Pod == nil || r.Pod.Terminating || r.Pod.Finished:
	case r.ContainerDead:
		return &r.Pod.Etcd
	case r.SidecarSick && r.Pod.Initialized && r.Pod.Sidecar.State == ContainerWaiting &&
		!startingReasons[r.Pod.Sidecar.Reason]:
		return &r.Pod.Sidecar
	}
	return nil
}

func (r *Replica) barred() Barred {
	if r.Member == nil || r.Evidence == Serving {
		return 0
	}
	return r.Member.Probe.Barred
}

// onlyShared is true for a member that nobody can tell from others.
func (r *Replica) onlyShared() bool {
	return r.Evidence == Unknown && r.Member != nil && r.Member.Probe.OnlyShared
}

// obstacleOf is why a replica does not settle, nil where that is not known.
func (a *Assessment) obstacleOf(r *Replica) *obstacle {
	i := slices.IndexFunc(obstacles, func(c obstacle) bool { return c.is(a, r) })
	if i < 0 {
		return nil
	}
	return &obstacles[i]
}

// Do is what an operator does about the guard that keeps the rollout: about the obstacle where that is known, or else
// all that the guard's row says. It is empty where no guard keeps it.
func (d *Decision) Do() string {
	row := RowOf(d.Guard)
	a := d.Assessment
	switch {
	case row == nil:
		return ""
	case d.about != nil:
		return a.Advice(d.Guard, d.about)
	}
	first, always := "", row.Do
	if row.asksWhoAnswers {
		switch by := a.barred(); {
		case by == ByCertificate:
			first = doCertificate + " "
		case by == ByLogin:
			first = doLogin + " "
		case slices.ContainsFunc(a.Replicas, func(r Replica) bool { return r.onlyShared() }):
			first = doShared + " "
		}
	}
	switch d.Guard { //nolint:exhaustive // The rows of the others say all of it.
	case GuardQuorumFloor:
		if elsewhere := a.doElsewhere(); elsewhere != "" { // The rest of the row would bury it.
			return a.Named(first + elsewhere +
				"Otherwise bring members back. May be overridden, at the price of quorum.")
		}
	case GuardOthersLeaving:
		var only bool
		if first, only = a.doResized(); only {
			return a.Named(strings.TrimSpace(first))
		}
	case GuardQuorumPatience:
		always += " Otherwise " + a.patience() + "."
	}
	if first != "" {
		first += "Otherwise: "
	}
	return a.Named(first + always)
}

// patience says how long a process that runs is left alone while quorum is lost, and what comes after that.
func (a *Assessment) patience() string {
	return fmt.Sprintf("a live process is left alone for %d s without quorum, and may be replaced after that, when "+
		"nothing else is coming up", int(a.policy.SettleTimeout.Seconds()))
}

// LeftAlone says what happens if nobody does anything, where the guard alone does not tell that. It is empty for what
// holds anyway, and for what mostly ends by itself.
func (d *Decision) LeftAlone() string {
	switch _, waits := d.Action.(Wait); {
	case waits && d.Guard == GuardQuorumPatience:
		return d.Assessment.patience()
	case waits && d.about != nil:
		return d.Assessment.LeftAlone(d.about)
	}
	return ""
}

// LeftAlone is [Decision.LeftAlone] of a wait for a replica.
func (a *Assessment) LeftAlone(r *Replica) string {
	if c := a.obstacleOf(r); c != nil && c.stays {
		return "it stays so until somebody acts"
	}
	return ""
}

// Named puts the real names into a text, in which NAMESPACE and NAME stand for those of the StatefulSet, and more pairs
// may be given. A command without its namespace would be about whatever has the same name in the reader's own.
func (a *Assessment) Named(text string, more ...string) string {
	set := &a.state.Set
	if set.Namespace == "" {
		more = append(more, "-n NAMESPACE ", "") // The embedder has not said which it is.
	}
	return strings.NewReplacer(append(more, "NAMESPACE", set.Namespace, "NAME", set.Name)...).Replace(text)
}

// Advice is what an operator does about a replica that a guard waits for, or that fails.
func (a *Assessment) Advice(guard Guard, r *Replica) string {
	c := a.obstacleOf(r)
	if c == nil || c.late && !r.failing {
		return a.Named(RowOf(guard).Do)
	}
	container, node := a.state.Set.Etcd.Container, ""
	if s := r.stopped(); s != nil && s == &r.Pod.Sidecar {
		container = a.state.Set.Sidecar
	}
	if r.Pod != nil {
		node = r.Pod.Node
	}
	if container == "" {
		container = "etcd"
	}
	id := "ID"
	if r.Member != nil {
		id = strconv.FormatUint(r.Member.ID, 16)
	}
	text := a.Named(c.do, "ID", id, "POD", r.Name, "NODE", node, "CONTAINER", container)
	if c.template && a.Serving == 0 && a.state.Etcd.Known {
		text += " " + withoutQuorum
	}
	return text
}

// withoutQuorum is the advice for an updated pod that fails while quorum is lost.
const withoutQuorum = "While quorum is lost no pod can settle, even if the template is right. The reason then names " +
	"the guard that keeps the next pod (RevisionSuspect for a process that runs). If the template is the cure, " +
	"override that guard."

// barred is what keeps the first answer back that the member itself would have given, or the member list.
func (a *Assessment) barred() Barred {
	for i := range a.Replicas {
		if by := a.Replicas[i].barred(); by != 0 {
			return by
		}
	}
	return a.state.Etcd.Barred
}

// unanswered says why the first member does not answer that may well serve, and nothing if there is none: nobody can
// tell it from others, or there is no way to ask it.
func (a *Assessment) unanswered() string {
	for i := range a.Replicas {
		r := &a.Replicas[i]
		if r.barred() != 0 || r.onlyShared() {
			return "; " + r.Name + ": " + r.Member.Probe.Detail
		}
	}
	return ""
}
