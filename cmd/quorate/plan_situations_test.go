package main

import (
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// situation is one case that an operator meets, with what Quorate has to make of it.
type situation struct {
	name string
	// want is "Action target guard rule" of the decision, "-" where there is none. It
	// is written by hand: -update does not change it.
	want string
	// args are further arguments of the command, with spaces between them.
	args string
	// members is how many there are, and change makes the situation of a healthy cluster.
	members int
	change  func(*world)
}

func (s situation) make() *world { return with(s.members, s.change) }

var situations = []situation{
	{"healthy-first-pod", "Remove etcd-main-2 - Serving", "", 3, healthy},
	{"complete", "Complete - - Complete", "", 3, complete},
	{"whole-order", "Remove etcd-main-2 - Serving", "--all", 3, healthy},
	{"own-pod-last-among-followers", "Remove etcd-main-1 - Serving", "--self=etcd-main-2", 3, healthy},
	{"delete-a-healthy-pod", "Remove etcd-main-2 - Serving", "--removal=delete", 3, healthy},
	{"evict-never-a-sick-pod", "Remove etcd-main-1 - Serving", "", 3, func(w *world) { w.sick(1) }},
	{"crash-looping-outdated-pod", "Remove etcd-main-1 - NotServingFirst", "", 3, func(w *world) {
		w.stopped(1, time.Hour, "CrashLoopBackOff")
	}},
	{"image-pull-back-off-of-an-older-fix", "Remove etcd-main-2 - NotServingFirst", "", 3, func(w *world) {
		w.stopped(2, 10*time.Minute, "ImagePullBackOff")
		w.pods[2].Labels[appsv1.ControllerRevisionHashLabelKey] = "etcd-main-66c5d4f7b9"
	}},
	{"two-crash-looping-quorum-lost", "Remove etcd-main-2 - NotServingFirst", "", 3, func(w *world) {
		w.quorumLost(20 * time.Minute)
		w.stopped(1, 20*time.Minute, "CrashLoopBackOff")
		w.stopped(2, 20*time.Minute, "CrashLoopBackOff")
	}},
	{"quorum-just-lost-all-alive", "Wait - QuorumPatience NotServingFirst", "", 3, func(w *world) {
		w.quorumLost(20 * time.Second)
	}},
	{"quorum-lost-for-long-all-alive", "Remove etcd-main-2 - NotServingFirst", "", 3, func(w *world) {
		w.quorumLost(20 * time.Minute)
	}},
	{"quorum-lost-but-a-pod-is-still-ready", "Wait - QuorumPatience NotServingFirst", "", 3, func(w *world) {
		w.quorumLost(20 * time.Minute)
		etcdOf(w.pods[0]).Ready = true
		set(w.pods[0], corev1.PodReady, corev1.ConditionTrue, 2*day)
		set(w.pods[0], corev1.ContainersReady, corev1.ConditionTrue, 2*day)
	}},
	{"alive-member-may-vote", "Wait - Terminating UpdatedSettle", "", 3, func(w *world) {
		w.silent(1, time.Hour)
		w.stopped(2, time.Hour, "CrashLoopBackOff")
		w.removePod(2)
	}},
	{"node-lost", "Remove etcd-main-1 - NotServingFirst", "", 3, func(w *world) {
		w.members[1].noStatus, w.members[1].unhealthy = true, true
		set(w.pods[1], corev1.PodReady, corev1.ConditionFalse, 3*time.Minute)
	}},
	{"member-silent-but-its-pod-ready", "Remove etcd-main-1 - Serving", "", 3, func(w *world) {
		w.settled(2)
		w.members[1].noStatus, w.members[1].unhealthy = true, true
		w.settled(0)
		w.pods[0].Labels[appsv1.ControllerRevisionHashLabelKey] = oldRevision
	}},
	{"stuck-terminating", "Wait - Terminating UpdatedSettle", "", 3, func(w *world) {
		w.silent(1, 10*time.Minute)
		w.terminating(1, 10*time.Minute)
	}},
	{"pod-missing", "Wait - Terminating UpdatedSettle", "", 3, func(w *world) {
		w.silent(1, time.Minute)
		w.removePod(1)
	}},
	{"updated-pod-failing", "Hold - UpdatedFailing UpdatedSettle", "", 3, func(w *world) {
		w.updated(2, 3*time.Minute)
		w.stopped(2, 3*time.Minute, "CrashLoopBackOff")
	}},
	{"updated-pod-alive-too-long", "Hold - UpdatedFailing UpdatedSettle", "", 3, func(w *world) {
		w.updated(2, 10*time.Minute)
		w.silent(2, 10*time.Minute)
	}},
	{"updated-sidecar-failing", "Hold - UpdatedFailing UpdatedSettle", "", 3, func(w *world) {
		w.updated(2, 2*time.Hour)
		w.sick(2)
	}},
	{"fix-of-a-failing-update", "Remove etcd-main-2 - NotServingFirst", "", 3, func(w *world) {
		w.updated(2, 10*time.Minute)
		w.stopped(2, 10*time.Minute, "ErrImagePull")
		w.set.Status.UpdateRevision = "etcd-main-85b4d9c6f4"
	}},
	{"updated-pod-coming-up", "Wait - UpdatedPending UpdatedSettle", "", 3, func(w *world) {
		w.updated(2, 30*time.Second)
		w.stopped(2, 30*time.Second, "ContainerCreating")
	}},
	{"updated-pod-catching-up", "Wait - UpdatedPending UpdatedSettle", "", 3, func(w *world) {
		w.updated(2, time.Minute)
		w.members[2].applied, w.members[2].index = 1200, 81234
	}},
	{"updated-pod-not-ready-long-enough", "Wait - UpdatedPending UpdatedSettle", "", 3, func(w *world) {
		w.updated(2, time.Minute)
		w.set.Spec.MinReadySeconds = 120
	}},
	{"three-sick-sidecars", "Remove etcd-main-2 - Serving", "", 3, func(w *world) { w.sick(0, 1, 2) }},
	{"sick-sidecar-of-the-leader-goes-before-followers", "MoveLeader etcd-main-0 - HandOverLeadership", "", 3,
		func(w *world) { w.sick(0) }},
	{"second-follower", "Remove etcd-main-1 - Serving", "", 3, func(w *world) { w.settled(2) }},
	{"leader-waits-for-its-followers", "Wait - CaughtUp Serving", "", 3, func(w *world) {
		w.members[0].index, w.members[0].applied = 200000, 200000
		w.members[1].applied, w.members[2].applied = 90000, 90000
	}},
	{"leader-hands-over", "MoveLeader etcd-main-0 - HandOverLeadership", "", 3, func(w *world) {
		w.settled(1, 2)
	}},
	{"former-leader-goes-last", "Remove etcd-main-0 - Serving", "", 3, func(w *world) {
		w.settled(1, 2)
		w.lead(2)
	}},
	{"single-member", "Remove etcd-main-0 - Serving", "", 1, healthy},
	{"single-member-coming-back", "Wait - UpdatedPending UpdatedSettle", "", 1, func(w *world) {
		w.updated(0, 20*time.Second)
		w.stopped(0, 20*time.Second, "PodInitializing")
	}},
	{"two-voters", "Hold - QuorumFloor Serving", "", 2, healthy},
	{"two-ghosts-of-a-scale-in", "Hold - QuorumFloor Serving", "", 3, func(w *world) {
		for i := 3; i < 5; i++ {
			m := w.addMember(i, "etcd-main-"+strconv.Itoa(i))
			m.noStatus, m.unhealthy = true, true
		}
	}},
	{"serving-external-voter", "Hold - QuorumFloor Serving", "", 3, externalVoter},
	{
		"serving-external-voter-trusted", "Remove etcd-main-2 - Serving", "--trusted-members=migration-0", 3,
		externalVoter,
	},
	{"learner-goes-as-a-follower", "Remove etcd-main-3 - Serving", "", 4, func(w *world) {
		w.members[3].learner = true
	}},
	{"paused", "Hold - Paused Held", "", 3, setting("quorate.dev/paused", "true")},
	{"bad-control", "Hold - BadControl Held", "", 3, func(w *world) {
		w.control("quorate.dev/max-unavailable", "half")
	}},
	{"misspelt-control", "Hold - BadControl Held", "", 3, func(w *world) {
		w.control("quorate.dev/pause", "true")
	}},
	{"partition-reached", "Complete - - Complete", "", 3, func(w *world) {
		w.settled(2)
		w.control("quorate.dev/partition", "2")
	}},
	{"partition-keeps-a-failing-pod", "Hold - QuorumFloor Serving", "", 3, func(w *world) {
		w.stopped(0, time.Hour, "CrashLoopBackOff")
		w.lead(1)
		w.control("quorate.dev/partition", "1")
	}},
	{"max-unavailable-2-of-5-canary", "Wait - UpdatedPending UpdatedSettle", "", 5, func(w *world) {
		w.updated(4, 30*time.Second)
		w.stopped(4, 30*time.Second, "ContainerCreating")
		w.control("quorate.dev/max-unavailable", "2")
	}},
	{"max-unavailable-2-of-5", "Remove etcd-main-2 - Serving", "", 5, func(w *world) {
		w.settled(4)
		w.updated(3, 30*time.Second)
		w.stopped(3, 30*time.Second, "ContainerCreating")
		w.control("quorate.dev/max-unavailable", "40%")
	}},
	{"override", "Remove etcd-main-1 - Serving", "", 3, func(w *world) {
		w.updated(2, 10*time.Minute)
		w.sick(2)
		w.control("quorate.dev/override-guards", "UpdatedFailing,UnavailableBudget,Canary,EndpointFloor")
	}},
	{"stale-generation", "Wait - StaleRevision Held", "", 3, func(w *world) { w.set.Generation = 8 }},
	{"no-status-of-the-statefulset", "Wait - StaleRevision Held", "", 3, func(w *world) {
		w.set.Status = appsv1.StatefulSetStatus{}
	}},
	{"rolling-update-strategy", "Idle - - NotOurs", "", 3, foreign},
	{"corrupt-alarm", "Hold - Corrupt Held", "", 3, func(w *world) {
		w.members[1].errors = []string{"memberID:11506440682180278878 alarm:CORRUPT "}
	}},
	{"nospace-alarm", "Remove etcd-main-2 - Serving", "", 3, func(w *world) {
		for _, m := range w.members {
			m.errors = []string{"memberID:11506440682180278878 alarm:NOSPACE "}
		}
	}},
	{"alarm-of-a-member-that-is-gone", "Disarm 4d2 - Defragment", "", 3, func(w *world) {
		for i, m := range w.members {
			w.settled(i)
			m.errors = []string{"memberID:1234 alarm:NOSPACE "}
		}
	}},
	{"evicted-pod", "Remove etcd-main-1 - NotServingFirst", "", 3, func(w *world) {
		w.evicted(1, 2*time.Minute)
	}},
	{"evicted-updated-pod", "Wait - UpdatedPending UpdatedSettle", "", 3, func(w *world) {
		w.updated(2, 20*time.Minute)
		w.evicted(2, time.Minute)
	}},
	{"leader-not-known", "Wait - LeaderLast Serving", "", 3, func(w *world) {
		for _, m := range w.members {
			m.leader = 0
		}
	}},
	{"two-leaders-at-one-term", "Hold - Inconsistent Held", "", 3, func(w *world) {
		w.members[2].leader = w.members[2].id
	}},
	{"deposed-leader-at-an-older-term", "Remove etcd-main-2 - Serving", "", 3, func(w *world) {
		w.lead(1)
		w.members[0].leader, w.members[0].term = w.members[0].id, 4
	}},
	{"duplicate-member-names", "Hold - Inconsistent Held", "", 3, func(w *world) {
		w.members[2].name = "etcd-main-1"
	}},
	{"foreign-cluster", "Hold - Inconsistent Held", "", 3, func(w *world) {
		w.members[2].cluster = otherCluster
	}},
	{"pod-of-another-owner", "Hold - Inconsistent Held", "", 3, func(w *world) {
		w.pods[1].OwnerReferences[0].UID = "ffffffff-0000-4000-8000-000000000000"
	}},
	{"two-pods-of-one-ordinal", "Hold - Inconsistent Held", "", 3, func(w *world) {
		p := newPod(1)
		p.Name, p.UID = "etcd-main-01", "7f1c1d5e-0000-4000-8000-000000000099"
		w.pods = append(w.pods, p)
	}},
	{"negative-ordinal", "Hold - Inconsistent Held", "", 3, func(w *world) {
		p := newPod(1)
		p.Name, p.UID = "etcd-main--1", "7f1c1d5e-0000-4000-8000-000000000099"
		w.pods = append(w.pods, p)
	}},
	{"pod-being-scaled-away", "Wait - OthersLeaving Serving", "", 4, scaledIn},
	{"pod-being-scaled-away-terminating", "Wait - OthersLeaving Serving", "", 4, func(w *world) {
		scaledIn(w)
		w.terminating(3, 5*time.Second)
	}},
	{"pods-being-scaled-away-from-5-to-3", "Wait - OthersLeaving Serving", "", 5, scaledIn},
	{
		"pod-being-scaled-away-named-as-trusted", "Wait - OthersLeaving Serving", "--trusted-members=etcd-main-3", 4,
		scaledIn,
	},
	{"drain-beside-the-rollout", "Wait - OthersLeaving Serving", "", 3, func(w *world) { w.drained(1) }},
	{"drain-of-the-leader", "MoveLeader etcd-main-0 - MakeWay", "", 3, func(w *world) { w.drained(0) }},
	{"node-cordoned-just-now", "Wait - OthersLeaving Serving", "", 3, func(w *world) { w.cordoned(1, time.Minute) }},
	{"node-cordoned-since-yesterday", "Remove etcd-main-1 - Serving", "", 3, func(w *world) { w.cordoned(2, day) }},
	{"pod-scaled-away-without-a-member", "Remove etcd-main-2 - Serving", "", 3, func(w *world) {
		p := newPod(3)
		w.pods = append(w.pods, p)
	}},
	{"member-names-that-match-no-pod", "Hold - QuorumFloor Serving", "", 3, func(w *world) {
		for i, m := range w.members {
			m.name, m.host = "member-"+strconv.Itoa(i), "10.0.0."+strconv.Itoa(i+1)
		}
	}},
	{"etcd-container-of-another-name", "Hold - Inconsistent Held", "", 3, otherContainer},
	{
		"etcd-container-of-another-name-given", "Remove etcd-main-2 - Serving", "--etcd-container=member", 3,
		otherContainer,
	},
	{"ordered-ready-two-dead", "Remove etcd-main-1 - NotServingFirst", "", 5, func(w *world) {
		w.set.Spec.PodManagementPolicy = appsv1.OrderedReadyPodManagement
		w.stopped(1, 20*time.Minute, "CrashLoopBackOff")
		w.stopped(3, 20*time.Minute, "CrashLoopBackOff")
	}},
	{"ordered-ready-dead-above-live-with-quorum-lost", "Hold - Recreation NotServingFirst", "", 3, func(w *world) {
		w.set.Spec.PodManagementPolicy = appsv1.OrderedReadyPodManagement
		w.quorumLost(20 * time.Minute)
		w.stopped(1, 20*time.Minute, "CrashLoopBackOff")
		w.stopped(2, 20*time.Minute, "CrashLoopBackOff")
	}},
	{"restarted-while-the-first-updated-pod-comes-up", "Wait - UpdatedPending UpdatedSettle", "", 3, func(w *world) {
		w.updated(2, 30*time.Second)
		w.stopped(2, 20*time.Second, "ContainerCreating")
		w.quorumLost(15 * time.Second)
		w.stopped(1, 15*time.Second, "PodInitializing")
	}},
	{"scale-out-from-1-to-3", "Wait - UpdatedPending UpdatedSettle", "", 3, func(w *world) {
		w.updated(1, time.Minute)
		w.updated(2, time.Minute)
		w.members[1].unstarted = true
		w.members = w.members[:2]
		w.settingUp(1)
		w.settingUp(2)
	}},
	{"emptydir-data-of-a-dead-member-kept", "Wait - UpdatedPending UpdatedSettle", "", 3, func(w *world) {
		// The update took the data of 2 with it; 1 still has its own.
		emptyDir(w)
		w.quorumLost(20 * time.Minute)
		w.stopped(1, 20*time.Minute, "CrashLoopBackOff")
		w.updated(2, time.Minute)
		w.stopped(2, 50*time.Second, "ContainerCreating")
	}},
	{"emptydir-data-healthy", "Remove etcd-main-2 - Serving", "", 3, emptyDir},
	{"emptydir-data-of-a-single-member", "Hold - DataSurvives Serving", "", 1, emptyDir},
	{"emptydir-data-of-a-single-member-allowed", "Remove etcd-main-0 - Serving", "--allow-volatile-data", 1, emptyDir},
	{"one-member-under-two-pods", "Hold - Inconsistent Held", "", 3, func(w *world) {
		w.members[2].host = w.members[1].host // And nobody is at etcd-main-1's own name.
		w.members[1].name, w.members[1].host = "etcd-main-0-old", "etcd-main-9"
	}},
	{"cut-off", "Hold - CutOff Held", "--self=etcd-main-0", 3, func(w *world) {
		w.members[0].unhealthy = true
		for _, m := range w.members[1:] {
			m.noStatus, m.unhealthy = true, true
		}
	}},
	{"ordinals-that-start-at-5", "Remove etcd-main-5 - Serving", "", 6, func(w *world) {
		w.set.Spec.Ordinals = &appsv1.StatefulSetOrdinals{Start: 5}
		one := int32(1)
		w.set.Spec.Replicas = &one
		w.pods, w.members = w.pods[5:], w.members[5:]
		w.lead(0)
	}},
	{"two-minor-versions", "Hold - UpgradePath Serving", "--all", 3, newImage("quay.io/coreos/etcd:v3.7.0")},
	{"two-minor-versions-and-a-member-that-crash-loops", "Hold - UpgradePath NotServingFirst", "", 3, func(w *world) {
		newImage("quay.io/coreos/etcd:v3.7.0")(w)
		w.stopped(1, time.Hour, "CrashLoopBackOff")
	}},
	{"two-minor-versions-and-nobody-left", "Remove etcd-main-2 - NotServingFirst", "", 3, func(w *world) {
		newImage("quay.io/coreos/etcd:v3.7.0")(w)
		for o := range 3 {
			w.stopped(o, time.Hour, "CrashLoopBackOff")
		}
	}},
	{"an-image-that-says-no-version", "Remove etcd-main-2 - Serving", "", 3, newImage("etcd-wrapper:v9.9.9")},
	{"an-image-whose-version-is-said", "Hold - UpgradePath Serving", "", 3, func(w *world) {
		newImage("etcd-wrapper:v9.9.9")(w)
		w.control("quorate.dev/etcd-versions", "etcd-wrapper:v9.9.9=3.6.16")
	}},
	{"an-argument-that-3.6-does-not-know", "Hold - KnownArguments Serving", "", 3, func(w *world) {
		newImage("etcd:3.6.16")(w)
		w.set.Spec.Template.Spec.Containers[0].Command = []string{"etcd", "--enable-v2"}
		w.control("quorate.dev/override-guards", "UpgradePath")
	}},
	{"hold-before-the-last-member", "Hold - BeforeLast Serving", "--hold-before-last", 3, func(w *world) {
		newImage("etcd:3.6.16")(w)
		for _, i := range []int{1, 2} {
			w.settled(i)
			w.members[i].version = "3.6.16"
		}
		w.members[0].version = "3.5.35"
	}},
	{"updated-pod-receives-a-snapshot", "Wait - UpdatedPending UpdatedSettle", "", 3, func(w *world) {
		w.updated(2, 9*time.Minute)
		w.silent(2, 9*time.Minute)
		w.members[2].noStatus = false
		for i := range w.members[:2] {
			w.members[i].index, w.members[i].applied = 5_000_000, 5_000_000
		}
		w.members[2].index, w.members[2].applied = 1_200_000, 1_200_000
	}},
	{"updated-pod-finds-no-node", "Wait - UpdatedPending UpdatedSettle", "", 3, func(w *world) {
		w.updated(2, 12*time.Minute)
		w.silent(2, 12*time.Minute)
		p := w.pods[2]
		p.Spec.NodeName = ""
		p.Status = corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable,
			Message: "0/5 nodes are available: 5 node(s) had volume node affinity conflict.",
		}}}
	}},
	{"updated-pod-waits-for-its-volume", "Hold - UpdatedFailing UpdatedSettle", "", 3, func(w *world) {
		w.updated(2, 7*time.Minute)
		w.stopped(2, 7*time.Minute, "ContainerCreating")
	}},
	{"updated-pod-with-an-expired-certificate", "Hold - UpdatedFailing UpdatedSettle", "", 3, func(w *world) {
		w.updated(2, 10*time.Minute)
		w.silent(2, 10*time.Minute)
		w.members[2].healthError = "x509: certificate has expired or is not yet valid"
	}},
	{"nobody-has-signed-in", "Hold - QuorumFloor Serving", "", 3, func(w *world) {
		for _, m := range w.members {
			m.unhealthy, m.healthError = true, "etcdserver: user name is empty"
		}
	}},
	{"terminating-for-a-week", "Wait - Terminating UpdatedSettle", "", 3, func(w *world) {
		week := 7 * day
		at, grace := ago(40*time.Minute-week), int64(week.Seconds())
		w.pods[1].DeletionTimestamp, w.pods[1].DeletionGracePeriodSeconds = &at, &grace
	}},
	{"prefixed-member-names", "Remove etcd-main-2 - Serving", "", 3, func(w *world) {
		for _, m := range w.members {
			m.name = "shoot--dev-" + m.name
		}
	}},
}

// newImage: the template has another image of etcd.
func newImage(image string) func(w *world) {
	return func(w *world) { w.set.Spec.Template.Spec.Containers[0].Image = image }
}

// scaledIn: three replicas are wanted, and the pods beyond are still there.
func scaledIn(w *world) { *w.set.Spec.Replicas = 3 }

func externalVoter(w *world) {
	m := w.addMember(3, "migration-0")
	m.host = "migration-0.other.svc"
	w.lead(0)
}

func otherContainer(w *world) {
	for i := range w.set.Spec.Template.Spec.Containers[:1] {
		w.set.Spec.Template.Spec.Containers[i].Name = "member"
	}
	for _, p := range w.pods {
		p.Spec.Containers[0].Name, etcdOf(p).Name = "member", "member"
	}
}

func emptyDir(w *world) {
	w.set.Spec.VolumeClaimTemplates = nil
	w.set.Spec.Template.Spec.Volumes = []corev1.Volume{
		{Name: "data", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
	}
	for _, p := range w.pods {
		p.Spec.Volumes = w.set.Spec.Template.Spec.Volumes
	}
}
