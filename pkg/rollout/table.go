package rollout

// The names of the guards, in the order of their rows.
const (
	GuardBadControl        Guard = "BadControl"
	GuardPaused            Guard = "Paused"
	GuardStaleRevision     Guard = "StaleRevision"
	GuardInconsistent      Guard = "Inconsistent"
	GuardCorrupt           Guard = "Corrupt"
	GuardCutOff            Guard = "CutOff"
	GuardPartition         Guard = "Partition"
	GuardVotersUnknown     Guard = "VotersUnknown"
	GuardMayVote           Guard = "MayVote"
	GuardQuorumPatience    Guard = "QuorumPatience"
	GuardRevisionSuspect   Guard = "RevisionSuspect"
	GuardUpdatedFailing    Guard = "UpdatedFailing"
	GuardOthersLeaving     Guard = "OthersLeaving"
	GuardUpgradePath       Guard = "UpgradePath"
	GuardDowngrade         Guard = "Downgrade"
	GuardKnownArguments    Guard = "KnownArguments"
	GuardListsAgree        Guard = "ListsAgree"
	GuardPodsListed        Guard = "PodsListed"
	GuardDataAgrees        Guard = "DataAgrees"
	GuardQuorumFloor       Guard = "QuorumFloor"
	GuardUnavailableBudget Guard = "UnavailableBudget"
	GuardCanary            Guard = "Canary"
	GuardEndpointFloor     Guard = "EndpointFloor"
	GuardCaughtUp          Guard = "CaughtUp"
	GuardDataSurvives      Guard = "DataSurvives"
	GuardHostGates         Guard = "HostGates"
	GuardRecreation        Guard = "Recreation"
	GuardReturns           Guard = "Returns"
	GuardLeaderLast        Guard = "LeaderLast"
	GuardBeforeLast        Guard = "BeforeLast"
	GuardDisruptionBudget  Guard = "DisruptionBudget"
	GuardTerminating       Guard = "Terminating"
	GuardUpdatedPending    Guard = "UpdatedPending"
	GuardRequestBinding    Guard = "RequestBinding"
	GuardNoGhost           Guard = "NoGhost"
	GuardPodsServe         Guard = "PodsServe"
	GuardMembershipMoves   Guard = "MembershipMoves"
	GuardGhostQuorum       Guard = "GhostQuorum"
	GuardOldSidecars       Guard = "OldSidecars"
	GuardSuspectMember     Guard = "SuspectMember"
	GuardUnderWay          Guard = "UnderWay"
	GuardAllServing        Guard = "AllServing"
	GuardFollowersFirst    Guard = "FollowersFirst"
	GuardAppliesSnapshots  Guard = "AppliesSnapshots"
	GuardHostDefragments   Guard = "HostDefragments"
	GuardOwnURL            Guard = "OwnURL"
	GuardDefragmentFails   Guard = "DefragmentFails"
	GuardNoSpace           Guard = "NoSpace"
)

// Guards are all guards, a row each, in the order in which they are asked.
var Guards = []Row{
	{
		Name: GuardBadControl, rules: []Rule{RuleHeld}, judge: badControl,
		Commands: []string{"kubectl get lease -n NAMESPACE quorate-NAME -o yaml"},
		Protects: "A control that cannot be read is never guessed at.",
		Looks:    "`Hold`: the reason names the annotation, its value and what is allowed.",
		Do:       "Correct the annotation on the Lease.",
	},
	{
		Name: GuardPaused, rules: []Rule{RuleHeld}, judge: paused,
		Commands: []string{"quorate resume -n NAMESPACE NAME"},
		Protects: "The operator's word.",
		Looks:    "`Hold`: the Lease `quorate-<statefulset>` has quorate.dev/paused: \"true\".",
		Do:       "Remove the annotation, or set it to \"false\".",
	},
	{
		Name: GuardStaleRevision, rules: []Rule{RuleHeld}, judge: staleRevision,
		Commands: []string{"kubectl describe statefulset -n NAMESPACE NAME"},
		clears:   true,
		Protects: "While the StatefulSet controller has not observed the newest template, " +
			"`status.updateRevision` describes an older one, and up-to-date pods would be taken for " +
			"outdated or the reverse.",
		Looks: "`Wait`, normally for well under a second.",
		Do:    "If it lasts, look at the StatefulSet controller (kube-controller-manager).",
	},
	{
		Name: GuardInconsistent, rules: []Rule{RuleHeld}, judge: inconsistent,
		Commands: []string{"quorate plan -n NAMESPACE NAME", "kubectl get pods -n NAMESPACE -o wide"},
		Protects: "Two facts contradict each other, or one tells nothing: two pods of one ordinal, two members " +
			"of one name or under one pod, two leaders at one term, a member of another cluster, a pod " +
			"without the container that etcd is expected to run in.",
		Looks: "`Hold`: the reason names them.",
		Do: "Find out which is wrong. A foreign cluster ID usually is DNS or an endpoint that leads " +
			"elsewhere. If the containers have other names, say which (`etcd-container`, " +
			"`sidecar-container`); a pod whose template has lost etcd's container has to be deleted by " +
			"hand once the template is right.",
	},
	{
		Name: GuardCorrupt, rules: []Rule{RuleHeld}, judge: corrupt,
		Commands:    []string{"quorate plan -n NAMESPACE NAME"},
		overridable: true,
		Protects: "etcd raises a CORRUPT alarm when a check by its leader finds that members' data differ. No update " +
			"cures that, and a read that succeeds proves nothing. The alarm is about the members whose hash is not " +
			"that of a quorum. It names nobody if no hash is that of a quorum, and in 3.5 from 3.5.7 on. It stays " +
			"when its member leaves the list. It may be false: before 3.5.10, a member that is restarted during a " +
			"compaction, for example by an update, remembers a wrong hash of that compaction " +
			"(etcd-io/etcd#15919). HashKV is computed afresh each time.",
		Looks: "`Hold`: the reason names the members that the alarm is about, by their pods and IDs, and says which " +
			"of them are no longer on etcd's list. If the members run several versions of etcd, it names those too.",
		Do: "Find the lowest revision that `etcdctl endpoint status --cluster -w json` shows, and compare the " +
			"members' hashes at it: `etcdctl endpoint hashkv --cluster --rev REVISION -w json`. Compare hashes only " +
			"where compact_revision is the same; if it is not, ask again. If all hashes are equal, the alarm is " +
			"false, or its member is gone: run `etcdctl alarm disarm`, which ends all alarms. If the alarm comes " +
			"back during an update, and all hashes are equal again, override this guard for the rest of the update. " +
			"If hashes differ, the alarm is true: follow etcd's disaster recovery for data corruption, for each " +
			"member whose hash is not that of a quorum, and disarm the alarm afterwards. May be overridden.",
	},
	{
		Name: GuardCutOff, rules: []Rule{RuleHeld}, judge: cutOff,
		Commands:    []string{"kubectl get pods -n NAMESPACE -o wide", "kubectl get nodes"},
		overridable: true, asksWhoAnswers: true,
		Protects: "Nothing comes from other members that may run: no answer, no refused connection, and nothing new " +
			"from their kubelets or nodes. Where that is so of all of them, or of enough to be a quorum while no " +
			"member serves, this coordinator may be the one that is cut off, and what the kubelets said last may be " +
			"old news. A refused connection, an error of etcd's own, and a kubelet's new word are signs. A node that " +
			"is Ready is none: it stays so for most of a minute after a cut.",
		Looks: "`Hold` until something is heard, or another sidecar takes over.",
		Do: "Mend the network of the coordinator's pod or node. Nodes without power look the same, and no update " +
			"cures those: bring them back. May be overridden; what the kubelets said last is " +
			"not believed then either.",
	},
	{
		Name: GuardUnderWay, rules: []Rule{RuleHeld}, judge: underWay,
		Commands: []string{"quorate history -n NAMESPACE NAME"},
		clears:   true,
		Protects: "The record names an operation that stops a member for a while, a defragmentation or the end of an " +
			"alarm, and nobody knows how its call ended. It may still arrive, so its member counts as not " +
			"serving, and " +
			"nothing else begins. It is not repeated.",
		Looks: "`Wait`, until the call's time is over and the member has answered for half a minute, or until as " +
			"long after its process has ended. The reason says what is seen of it.",
		Do: "Nothing, as long as the member's etcd is defragmented. If it does not come back, end its process: " +
			"restart its etcd container, or delete its pod if its data outlives it. Look first that a quorum of the " +
			"others answers: the member is out anyway, but nobody checks that for you. Its database is the old one " +
			"then, or the new one, and whole. When the call's time has been over for half a minute, work goes on, " +
			"also if the member does not answer.",
	},
	{
		Name: GuardPartition, rules: []Rule{RuleNotServingFirst, RuleServing}, judge: partition,
		Commands: []string{"kubectl get lease -n NAMESPACE quorate-NAME -o yaml"},
		asked:    partitioned,
		Protects: "Ordinals below the partition stay as they are. It cannot bind a crash: under OnDelete every " +
			"recreated pod gets the new revision.",
		Looks: "`Complete` or `Hold`, with outdated pods below the partition.",
		Do:    "Lower or remove quorate.dev/partition on the Lease.",
	},
	{
		Name: GuardVotersUnknown, rules: []Rule{RuleNotServingFirst, RuleServing, RuleDefragment}, judge: votersKnown,
		Commands: []string{
			"kubectl get pods -n NAMESPACE -o wide",
			"kubectl logs -n NAMESPACE POD --all-containers --tail=50",
		},
		overridable: true, asksWhoAnswers: true,
		Protects: "Without a member list nobody knows who votes. Quorum counts as lost, and only pods whose " +
			"container is dead may go. Where no list could be read through consensus, one member's own is " +
			"used, which may be old: while some member serves, only pods whose container is dead go, and " +
			"all others only when a quorum of the voters on it return the same voters.",
		Looks: "`Hold`: no member answers with a member list, or too few have the same.",
		Do:    "See that at least one member and the certificates are well. May be overridden.",
	},
	{
		Name: GuardMayVote, rules: []Rule{RuleNotServingFirst}, judge: mayVote,
		Commands:    []string{"kubectl describe pod -n NAMESPACE POD", "quorate plan -n NAMESPACE NAME"},
		overridable: true, asksWhoAnswers: true,
		Protects: "\"Down\" is not \"not voting\": readiness is false on every pod when quorum is lost, and a " +
			"broken client listener makes a voting member look dead to both witnesses. While some member " +
			"serves, a process goes only if the serving voters alone are a quorum or those left could " +
			"still be one: they serve, or are Down while their process runs. A dead one goes unless too few others " +
			"are left to be the quorum that a serving member proves: then one of the dead votes. A member that is " +
			"Unknown does not count: it may hang without its kubelet having noticed. Nor does one that others are " +
			"about to take (OthersLeaving). DEP-07 step 2 deletes it.",
		Looks: "`Hold`: the verdict says how many could still vote.",
		Do:    "Bring another member back, or cure the listener. May be overridden.",
	},
	{
		Name: GuardQuorumPatience, rules: []Rule{RuleNotServingFirst}, judge: quorumPatience,
		Commands: []string{"kubectl get pods -n NAMESPACE -o wide"},
		clears:   true, overridable: true, asksWhoAnswers: true,
		Protects: "With quorum lost, a live process rejoins the moment a peer returns; restarting all at once " +
			"turns a blip into an outage (DEP-07 does that). It is left alone for `settle-timeout`, and " +
			"as long as anything else is still coming up.",
		Looks: "`Wait`: the verdict says for how long quorum has been lost.",
		Do:    "Bring a peer back. If the update is the cure for live processes too: wait, or override.",
	},
	{
		Name: GuardRevisionSuspect, rules: []Rule{RuleNotServingFirst}, judge: revisionSuspect,
		Commands: []string{
			"kubectl describe pod -n NAMESPACE POD",
			"kubectl logs -n NAMESPACE POD --all-containers --tail=50",
		},
		overridable: true,
		Protects: "Until one pod of the new revision has settled, nothing is known in its favour, and a member " +
			"whose node merely rebooted comes back by itself on the old one. So while a pod of the new " +
			"revision is under way (terminating, missing, or not settled yet) no other goes that may come " +
			"back: no process that runs, and nothing that has been down for less than `settle-timeout`. " +
			"A broken revision then costs at most one member that served or would have come back. What " +
			"its kubelet backs off from (CrashLoopBackOff, ImagePullBackOff) goes at once, and while an " +
			"updated pod fails after `settle-timeout`.",
		Looks: "`Wait` for the pod that is under way, or `Hold` once it fails.",
		Do: "Nothing while it comes up. Then fix or roll back the template. Where quorum is lost for good " +
			"and the update is the cure, it cannot prove itself before others follow: override this " +
			"guard. May be overridden.",
	},
	{
		Name: GuardUpdatedFailing, rules: []Rule{RuleUpdatedSettle}, judge: updatedFailing,
		Commands: []string{
			"kubectl describe pod -n NAMESPACE POD",
			"kubectl logs -n NAMESPACE POD --all-containers --tail=50",
		},
		overridable: true,
		Protects:    "A revision that fails on one pod must not reach the next.",
		Looks:       "`Hold`: the updated pod is dead, or has not settled within `settle-timeout`.",
		Do: "See why the pod fails (`kubectl describe pod`, its logs, those of its sidecar). If the template is to " +
			"blame, fix it or roll it back: the failing pod is replaced first. " + withoutQuorum +
			" May be overridden.",
	},
	{
		Name: GuardOthersLeaving, rules: []Rule{RuleServing, RuleDefragment}, judge: othersLeaving,
		Commands: []string{"kubectl get nodes"},
		asked:    someLeave, clears: true, overridable: true,
		Protects: "What takes etcd clusters down is often a drain beside something else. While others take one " +
			"member, Quorate takes none that serves, nor defragments one, and counts on the others alone. A " +
			"member is leaving when its pod has the condition `DisruptionTarget`, terminates or is missing by " +
			"others' hand, is being scaled away, is being resized in place with a restart of etcd, or when its " +
			"node has a `NoExecute` taint that the pod does not tolerate for good, does not exist any more, or is " +
			"cordoned. The taint of a known drainer counts as a cordon, whatever the pod tolerates: of Karpenter, " +
			"the cluster autoscaler or a cloud's termination handler, or one that `drain-taints` names. Nodes are " +
			"only read with `read-nodes`, and one that cannot be read may be cordoned. A cordon alone holds for " +
			"`leaving-patience` from when the coordinator first sees it; a node may stay cordoned for days. After " +
			"that, the pods on cordoned nodes go after all others, because one whose volume fits nowhere else " +
			"stays Pending. What was taken, and does not come back, holds for as long as a cordon, and at least " +
			"for `settle-timeout`: it may wait for a pod that only Quorate replaces. After that it only counts as " +
			"unavailable.",
		Looks: "`Wait`: the verdict names the members, and what says that they leave.",
		Do: "Let the drain (or the scale-in) end, and the pod come back. Uncordon a node that is not to be drained " +
			"after all, and take a drainer's taint off it. May be overridden: then a member that is about to go " +
			"counts as one that stays.",
	},
	{
		Name: GuardUpgradePath, rules: []Rule{RuleNotServingFirst, RuleServing}, judge: checked(GuardUpgradePath),
		Commands: []string{"quorate plan -n NAMESPACE NAME --all"},
		asked:    stepHarms, overridable: true, forOthers: true,
		Protects: "A change of etcd's version that is known to fail, or to lose quorum, does not begin. `quorate " +
			"plan --all` shows every row of what is known, with its source. The members' versions are what they " +
			"tell, else the tags of their pods' images. The new one is the tag of the image in the new template: " +
			"of an image whose name is etcd, or of a known release of etcd-wrapper. A version that cannot be " +
			"read there is told, and holds nothing; quorate.dev/etcd-versions on the Lease says it. It is asked " +
			"about every member that would get another minor version, also about one that does not serve: what " +
			"it becomes would hurt the others. A pod that goes by another's hand comes back with the new " +
			"template all the same. Then the guard goes on holding the members that still run an older version. " +
			"Never asked once every voter whose pod has not got the new revision has been dead for " +
			"`settle-timeout`: the update may be the cure then. Nor about a member that runs the new minor " +
			"version already, nor on the way back to a revision that is older than this pod's.",
		Looks: "`Hold`: the verdict has the versions, what would happen, and the way out. The reason begins with AT " +
			"RISK while the guard keeps a member that does not serve, and others do.",
		Do: "Let the template name the version that the verdict says, and go on from there: it brings back whoever " +
			"has the new one already, which works while a member of the old one is left. If a member does not come " +
			"back on the old version, this is its way out too. May be overridden, by someone who knows better: " +
			"`quorate override -n NAMESPACE NAME UpgradePath --reason=TEXT`.",
	},
	{
		Name: GuardDowngrade, rules: []Rule{RuleNotServingFirst, RuleServing}, judge: checked(GuardDowngrade),
		Commands: []string{"quorate plan -n NAMESPACE NAME --all"},
		asked:    stepDown, overridable: true,
		Protects: "No member is replaced by one of a minor version below the cluster's, which would not start, " +
			"unless etcd was told of the downgrade. Members tell that from 3.6 on. The cluster's version is the " +
			"lowest minor version of its members. It is not asked about a member that has been dead for " +
			"`settle-timeout`, which has nothing to lose, nor on the way back to a revision that is older than " +
			"this pod's.",
		Looks: "`Hold`: the verdict has the versions.",
		Do: "From 3.6 on: `etcdctl downgrade validate VERSION`, then `etcdctl downgrade enable VERSION`. Before that " +
			"there is no way down but a backup. May be overridden.",
	},
	{
		Name: GuardKnownArguments, rules: []Rule{RuleNotServingFirst, RuleServing}, judge: knownArguments,
		Commands: []string{"quorate plan -n NAMESPACE NAME --all"},
		asked:    newArguments, overridable: true,
		Protects: "Before a member gets another version, up or down: that version knows the arguments that the " +
			"template gives to etcd, and their values. etcd does not start with others. It ignores a variable that " +
			"it does not know, and the verdict names that. But it refuses a value that it does not know, from the " +
			"environment too. `quorate plan --all` shows all that is known of each release from 3.4.0 to 3.7.3, and " +
			"what 3.8 has removed. These are reported as not checked: a later version, the arguments of another " +
			"program such as etcd-wrapper, what etcd's configuration file says, and a value that is not in the " +
			"template. With a configuration file, etcd does not read its environment, but it still does not start " +
			"with an argument that it does not know. Within one minor version, the guard holds only for what the " +
			"release before knew. It is not asked about a member that has been dead for `settle-timeout`, on the " +
			"way back to a revision that is older than this pod's, or once a pod of the new revision has settled.",
		Looks: "`Hold`: the verdict names each argument, variable and value, says where the template sets it, and " +
			"what to do about it.",
		Do: "Remove the arguments from the template, or replace them as the verdict says. May be overridden.",
	},
	{
		Name: GuardListsAgree, rules: []Rule{RuleNotServingFirst, RuleServing}, judge: listsAgree, asked: listsTold,
		Commands:    []string{"quorate plan -n NAMESPACE NAME"},
		overridable: true,
		Protects: "Before the first pod of a rollout goes: the voters that serve have the same member list, each by " +
			"itself. Quorum is counted by one of these lists, and a restarted member believes its own " +
			"(etcd-io/etcd#13196, etcd-io/etcd#20967). A member that does not serve is asked about only where it " +
			"would get another minor version.",
		Looks: "`Hold`: the verdict has two lists that differ. For a moment it may be one member that is behind.",
		Do: "See which is right (`etcdctl member list --endpoints` for each member), and remove what should not be " +
			"there with `etcdctl member remove`. If the update is the cure, override the guard. May be overridden.",
	},
	{
		Name: GuardPodsListed, rules: []Rule{RuleServing}, judge: podsListed, asked: somePodsUnlisted,
		Commands:    []string{"quorate plan -n NAMESPACE NAME"},
		overridable: true,
		Protects: "Quorum is counted by etcd's member list. A pod that was Ready once and is not on it may run a " +
			"member that was removed, or that split off, and vote in a cluster of its own (etcd-io/etcd#15787). " +
			"While its etcd runs, no member that serves goes, and neither does a pod of which nothing is known. A " +
			"dead one is replaced, and one that has never been Ready is on its way onto the list. Where as many " +
			"voters elsewhere may run in such pods, the mapping of names has failed, and QuorumFloor says so.",
		Looks: "`Hold`: the verdict names the pods.",
		Do: "See what that pod's own etcd says: `etcdctl member list --endpoints` with its own address. If it should " +
			"be a member, let its host add it back, or add it with `etcdctl member add`. If it is in a cluster of " +
			"its own, see first which of the two has your data; then remove its pod and its data, so that it joins " +
			"anew. May be overridden, if you know that it votes nowhere.",
	},
	{
		Name: GuardDataAgrees, rules: []Rule{RuleNotServingFirst, RuleServing}, judge: dataAgrees, asked: dataTold,
		Commands: []string{"quorate plan -n NAMESPACE NAME"},
		clears:   true, overridable: true,
		Protects: "The voters have the same data, as far as they say: how many entries of the log each has applied, " +
			"and the revision of its data, which an entry raises by at most one. Data may differ without any alarm " +
			"(etcd-io/etcd#13766, etcd-io/etcd#14211), and each removal beside such a member brings it closer to " +
			"deciding what is read. While some differ, no member that serves is removed, and none is given the lead " +
			"that is not among a majority of voters whose data agree. The numbers are not of one moment. So a " +
			"difference is proven by five looks in a row over at least ten seconds, and until then it is looked at " +
			"again. Learners do not count, nor do members that do not tell their status; the verdict says so. A " +
			"difference that does not show in these numbers is not found.",
		Looks: "`Wait` while it is found in single looks; `Hold` once it is proven. The verdict has the two members, " +
			"their numbers, and who is in the minority if a majority agrees.",
		Do: "Compare the data themselves, best while nobody writes: `etcdctl endpoint hashkv --cluster`. Replace the " +
			"member that differs from the others: remove it with `etcdctl member remove`, and add it again, without " +
			"its data, with `etcdctl member add`. If no majority agrees, follow etcd's disaster recovery. May be " +
			"overridden; also then nobody in the minority is given the lead.",
	},
	{
		Name: GuardQuorumFloor, rules: []Rule{RuleServing}, judge: quorumFloor,
		Commands:    []string{"kubectl get pods -n NAMESPACE -o wide", "quorate plan -n NAMESPACE NAME"},
		overridable: true, asksWhoAnswers: true,
		Protects: "The serving voters that stay, without the one removed and without everything already going, " +
			"are at least a quorum of the voters in etcd's member list. Voters without a pod in the " +
			"StatefulSet's ordinals (members elsewhere, ghosts, pods that are being scaled away) count as " +
			"voters and not among those that stay, because they may go at any time without asking " +
			"Quorate; `trusted-members` names those elsewhere that may be relied on. One voter with one " +
			"replica is exempt; two voters always hold.",
		Looks: "`Hold`: \"2 of 3 voters serve, quorum 2, removing this one leaves 1\".",
		Do: "Bring members back. Remove ghosts with `quorate remove-member -n NAMESPACE NAME --all-ghosts`; `quorate " +
			"status` names them. Where the sidecars are too old for that, or only some of them are new, see " +
			"OldSidecars, and where a pod is not Ready, see PodsServe. Remove other members that are to go with " +
			"`etcdctl member remove ID`. Make two voters three or one; see [one etcd cluster in several " +
			"StatefulSets](operations.md#one-etcd-cluster-in-several-statefulsets). If the mapping has failed: " +
			"name the members like their pods, or let their peer URLs begin with the pod's name. If members " +
			"advertise only addresses that several of them answer (a Service, 0.0.0.0, localhost), nobody can tell " +
			"them apart: see [members that advertise a shared address]" +
			"(operations.md#members-that-advertise-a-shared-address). May be overridden, at the price of quorum.",
	},
	{
		Name: GuardUnavailableBudget, rules: []Rule{RuleServing}, judge: unavailableBudget,
		Commands: []string{"kubectl get pods -n NAMESPACE -o wide"},
		clears:   true, overridable: true,
		Protects: "At most `max-unavailable` members of ours (a number, or a percentage of the replicas, " +
			"rounded down and at least 1: KEP-961) are unavailable at once: not serving, missing, " +
			"terminating, leaving, or updated and not settled. An outdated pod that serves with a sick sidecar " +
			"does not count, or three sick sidecars would block their own cure " +
			"(cluster-etcd-operator#994).",
		Looks: "`Wait`: the verdict counts them.",
		Do:    "Bring the unavailable member back. May be overridden.",
	},
	{
		Name: GuardCanary, rules: []Rule{RuleServing}, judge: canary,
		clears: true, overridable: true,
		Protects: "The first pod of a revision goes alone, also where the budget would allow more.",
		Looks:    "`Wait`, until the first updated pod has settled.",
		Do:       "Nothing. May be overridden.",
	},
	{
		Name: GuardEndpointFloor, rules: []Rule{RuleServing}, judge: endpointFloor,
		Commands: []string{"kubectl get pods -n NAMESPACE -o wide"},
		clears:   true, overridable: true,
		Protects: "Clients reach etcd through a Service that lists only Ready pods: removing a Ready pod leaves " +
			"a quorum of replicas Ready. A pod that is not Ready costs no endpoint.",
		Looks: "`Wait`: the verdict counts Ready pods.",
		Do:    "Bring the unready pods' containers back, the sidecars' included. May be overridden.",
	},
	{
		Name: GuardCaughtUp, rules: []Rule{RuleServing}, judge: caughtUp,
		Commands: []string{"quorate plan -n NAMESPACE NAME"},
		clears:   true, overridable: true,
		Protects: "A survivor that lags cannot stand in soon, so only those less than `max-lag` entries " +
			"behind count towards the floor.",
		Looks: "`Wait`: the verdict names the lag.",
		Do: "Wait for the follower to catch up; look at its disk and network if it does not. Where " +
			"statuses are missing, give them, or see why the members do not answer. May be overridden.",
	},
	{
		Name: GuardDataSurvives, rules: []Rule{RuleNotServingFirst, RuleServing}, judge: dataSurvives,
		Commands:    []string{"quorate plan -n NAMESPACE NAME"},
		overridable: true,
		Protects: "Where the data dies with the pod (no persistent volume), a removal must leave a quorum of " +
			"voters that hold data: they serve, or their outdated pod has been ready once. The volume " +
			"that is mounted where etcd keeps its data decides, whatever else is mounted: " +
			"`etcd-data-dir`, else `--data-dir` or `ETCD_DATA_DIR` in the pod template, else " +
			"/var/etcd/data; a log elsewhere (`--wal-dir`) counts like the data. So it is asked of the " +
			"template and of the very pod, which may be of an older template with another volume. A " +
			"directory that a configuration file of etcd's own names cannot be seen. Nor does a pod go whose volume " +
			"claim somebody has deleted, because claim and data go with it (kubernetes#89910). Only `quorate plan " +
			"-f` knows that, where the claims are in the file: neither a sidecar nor a live `plan` reads them.",
		Looks: "`Hold`: the verdict counts the voters with data.",
		Do: "Use persistent volumes. Where the template has them by now and an old pod has not, its data " +
			"does not move by itself: take a backup first. If the volumes are persistent, say where the " +
			"data is with `etcd-data-dir`. For one member, or if the data may be lost, allow it " +
			"explicitly or override. A claim that is being deleted cannot be saved: take a backup, or let the pod's " +
			"member be replaced on purpose, while every other one serves.",
	},
	{
		Name: GuardHostGates, rules: []Rule{RuleServing}, judge: hostGates,
		Commands:    []string{"quorate plan -n NAMESPACE NAME"},
		overridable: true,
		Protects: "The host's own checks, such as that the last backup succeeded (DEP-01). A pod whose sidecar " +
			"is sick is not bound by them unless the gate says so: it would block its own cure.",
		Looks: "`Hold`: the verdict names the gate.",
		Do:    "Cure what the gate checks. May be overridden.",
	},
	{
		Name: GuardRecreation, rules: []Rule{RuleNotServingFirst, RuleServing}, judge: recreation,
		Commands: []string{"kubectl get pods -n NAMESPACE -o wide", "kubectl describe statefulset -n NAMESPACE NAME"},
		asked:    orderedReady, clears: true, overridable: true,
		Protects: "With `podManagementPolicy: OrderedReady`, the API's default, the StatefulSet controller " +
			"creates a pod only when every lower ordinal is Running, Ready, available and not " +
			"terminating. A pod that is removed before stays away. So the lowest goes first of those that " +
			"do not serve, and a live pod never goes only to open the way for a dead one. With `Parallel` " +
			"it is not asked.",
		Looks: "`Wait` while a lower pod comes up; `Hold` while a live one below is not Ready.",
		Do: "Bring the lower pod back. Where it is not Ready because quorum is lost, and the dead ones " +
			"above cannot be recreated before: `kubectl delete statefulset -n NAMESPACE NAME --cascade=orphan`, " +
			"which leaves its pods, and apply it again with `podManagementPolicy: Parallel`. May be overridden: " +
			"the pod then stays away until the lower ones are Ready.",
	},
	{
		Name: GuardReturns, rules: []Rule{RuleNotServingFirst, RuleServing}, judge: returns, asked: mayNotReturn,
		Commands:    []string{"kubectl describe statefulset -n NAMESPACE NAME"},
		overridable: true,
		Protects: "A pod that is removed comes back. The StatefulSet controller goes through its pods from the " +
			"lowest ordinal, and fails at one that lacks the volume of a claim template, before it creates a higher " +
			"one (kubernetes#141876). Pods lack it when the StatefulSet was made anew around them with another claim " +
			"template (`kubectl delete statefulset --cascade=orphan`). And the name of the new revision is a label " +
			"of every new pod, so more than 63 characters make each of them invalid (kubernetes#64023). Only asked " +
			"where there is such a pod or such a name.",
		Looks: "`Hold`: the verdict names the pod and the claim, or the name of the revision.",
		Do: "For a claim: make the StatefulSet anew with its former claim templates (`kubectl delete statefulset " +
			"-n NAMESPACE NAME --cascade=orphan`, which leaves its pods, and apply it again). For a name: only a " +
			"StatefulSet with a shorter name helps, which is another StatefulSet. May be overridden, at the price of " +
			"a pod that stays away.",
	},
	{
		Name: GuardLeaderLast, rules: []Rule{RuleServing}, judge: leaderLast,
		Commands: []string{"quorate plan -n NAMESPACE NAME"},
		clears:   true, overridable: true,
		Protects: "A healthy leader never goes before a follower that is a candidate, whatever keeps the " +
			"follower. While the members that answer agree on no leader, as during an election, every " +
			"voter may be it, and none goes.",
		Looks: "Together with what keeps the follower; or `Wait`: no leader is known.",
		Do: "Look at what keeps the followers. If no leader is known for longer than an election takes: " +
			"see what the members' statuses say (`etcdctl endpoint status --cluster`). May be overridden.",
	},
	{
		Name: GuardBeforeLast, rules: []Rule{RuleNotServingFirst, RuleServing}, judge: beforeLast, asked: endsStep,
		Commands:    []string{"quorate resume -n NAMESPACE NAME"},
		overridable: true, forOthers: true,
		Protects: "With `hold-before-last`, off by default: a rollout to another minor version of etcd stops before " +
			"the last member of the old one goes. Until then a template of the old version brings everybody back. " +
			"After that the version of the cluster rises, and a member of the old one does not start any more. So it " +
			"is asked about a last member that does not serve as well. Never asked once every voter has been dead " +
			"for `settle-timeout`, on the way back to a revision that is older than this pod's, or within a minor " +
			"version.",
		Looks: "`Hold`, with one outdated pod left. The reason begins with AT RISK if its member does not serve, and " +
			"others do.",
		Do: "See that clients are content with the new version. Then `quorate resume` lets this rollout end, and no " +
			"other one; or set the template back. May be overridden, for every later rollout as well.",
	},
	{
		Name: GuardDisruptionBudget, rules: []Rule{RuleServing}, judge: disruptionBudget,
		Commands: []string{"kubectl describe poddisruptionbudget -n NAMESPACE", "kubectl get pods -n NAMESPACE -o " +
			"wide"},
		asked: evicted, clears: true, overridable: true,
		Protects: "A Ready pod goes through the eviction API, unless `removal: delete` says otherwise: a " +
			"PodDisruptionBudget is the only arbiter between Quorate and a drain, and a DELETE does not " +
			"charge it. It may refuse (HTTP 429 means: not now). A watch tells when it allows an eviction. " +
			"Where that is not enough, a dry run asks first, which charges nothing and changes nothing. " +
			"While a pod has just become Ready it is asked again after about 60 ms and then ever more " +
			"slowly, else after seconds.",
		Looks: "`Wait`: the reason quotes the API server, which names the budget and its numbers. `Hold` " +
			"where no waiting helps: more than one budget matches the pod, or the budget needs as many " +
			"healthy pods as there are. A budget that needs two pods or more protects nothing where there is " +
			"one member, one pod is wanted, and the budget is about that pod alone. There the pod is deleted.",
		Do: "See what the budget counts (`kubectl describe poddisruptionbudget`): bring unhealthy pods " +
			"back. Where it holds: leave one budget that matches the pods, and let it allow one of them " +
			"to go (`maxUnavailable: 1`); or remove with `removal: delete`, so that Quorate's own guards " +
			"decide alone. The sidecars that run have the old value: to let them delete at once, override " +
			"the guard. May be overridden: then pods are deleted, and a drain may take another one before " +
			"the budget has noticed.",
	},
	{
		Name: GuardTerminating, rules: []Rule{RuleUpdatedSettle}, judge: terminating,
		Commands: []string{"kubectl describe statefulset -n NAMESPACE NAME", "kubectl get nodes"},
		clears:   true,
		Protects: "A pod that is missing or terminating counts as unavailable; its processes may still run.",
		Looks:    "`Wait`, for as long as the grace period and the recreation take.",
		Do: "If it lasts: the pod's node may be lost (`kubectl get nodes`), or recreation fails (`kubectl " +
			"describe statefulset`): a quota, a webhook or a missing ServiceAccount may refuse the pod. `quorate " +
			"status` and `quorate plan` quote what the API server says, if you may read events.",
	},
	{
		Name: GuardUpdatedPending, rules: []Rule{RuleUpdatedSettle}, judge: updatedPending,
		Commands: []string{"kubectl describe pod -n NAMESPACE POD"},
		clears:   true,
		Protects: "An updated pod that is still coming up counts as unavailable. One of which a container has " +
			"restarted has to stay Ready for ten seconds first: a crash loop without a readiness probe is " +
			"Ready for a moment at every start. At the first start two seconds are enough, within which a kubelet " +
			"notices a crash, and none are needed where its sidecar has said in etcd that it is there. A learner " +
			"has to be promoted first, which is for its host: until it votes, it proves nothing of the new revision.",
		Looks: "`Wait`. A member that catches up (see [below](#what-keeps-a-new-pod-from-settling)) is waited for, " +
			"however long that takes.",
		Do: "Nothing, until it turns into UpdatedFailing.",
	},
	{
		Name: GuardRequestBinding, rules: []Rule{RuleRemoveGhost}, judge: requestBinding,
		clears: true,
		Protects: "A request to remove a member is about the one that the operator saw: its ID, its name and the " +
			"ID of its cluster all fit. A request that comes back from a backup (k3s#8359), or an ID that " +
			"a restored cluster has given to another member, removes nothing.",
		Looks: "`Hold`: the reason says what does not fit. `Wait` while there is no member list.",
		Do:    "Look at `quorate status`, and ask again for the member that it names.",
	},
	{
		Name: GuardNoGhost, rules: []Rule{RuleRemoveGhost}, judge: noGhost,
		clears: true,
		Protects: "Only a ghost is removed: a member whose name, or, if it has never started, whose every peer URL " +
			"is that of a pod of ours with an ordinal that the StatefulSet does not have, that has no pod, and " +
			"that has not answered for `ghost-after`. A member that serves is never removed, and neither is " +
			"one of another StatefulSet of the same cluster, one that was renamed, or one of `trusted-members`.",
		Looks: "`Hold`: the reason says why it is no ghost. `Wait` until it has been one for long enough, or its " +
			"last pod is gone.",
		Do: "Wait, or leave the member alone. What is no ghost, and is to go all the same, only " +
			"`etcdctl member remove` removes.",
	},
	{
		Name: GuardPodsServe, rules: []Rule{RuleRemoveGhost}, judge: podsServe,
		clears:   true,
		Protects: "The membership changes only while every pod of ours is there, Ready, and has a voter that serves.",
		Looks:    "`Wait`: the verdict counts them.",
		Do: "Bring the pods back. A rollout that is under way goes first. If ghosts hold the very rollout that would " +
			"bring a pod back (QuorumFloor), remove them with `etcdctl member remove ID`, by the ID that `etcdctl " +
			"member list` shows, while every other member serves.",
	},
	{
		Name: GuardMembershipMoves, rules: []Rule{RuleRemoveGhost}, judge: membershipMoves,
		clears: true,
		Protects: "There is one change of the membership at a time. While a member is new, has never started, or is " +
			"a learner that the host is about to promote, or a pod is being scaled away, somebody else is about to " +
			"change it (k0smotron#1481).",
		Looks: "`Wait`: the reason names the member or the pod.",
		Do: "Nothing, until the other change is over. If a member was added by mistake and never started: " +
			"`etcdctl member remove`.",
	},
	{
		Name: GuardGhostQuorum, rules: []Rule{RuleRemoveGhost}, judge: ghostQuorum,
		clears: true,
		Protects: "By a member list that a quorum has agreed on, the voters that serve and stay are a quorum before " +
			"the removal and after it. Voters without a pod of ours do not count among them.",
		Looks: "`Wait`: the verdict has the numbers.",
		Do:    "Bring members back.",
	},
	{
		Name: GuardSuspectMember, rules: []Rule{RuleRemoveGhost}, judge: suspectMember,
		Protects: "A removal whose outcome is not known, and that must not be repeated, may still happen. The record " +
			"has room for one such member. It counts among the voters, and never among those that stay.",
		Looks: "`Hold`: the reason names the member.",
		Do: "Ask for the removal of that very member again. If it is to stay, and the removal was asked for " +
			"longer ago than any request may take: `quorate remove-member -n NAMESPACE NAME --forget MEMBER`.",
	},
	{
		Name: GuardOldSidecars, rules: []Rule{RuleRemoveGhost, RuleDefragment}, judge: oldSidecars,
		clears: true, overridable: true,
		Protects: "No removal of a member and no defragmentation begins while any sidecar is, or might be, too old " +
			"to know it on the record. An older one leaves such a record alone. So if the coordinator ended " +
			"half-way, that one could not go on, and a way back to its version would have to wait. One that " +
			"says nothing, as nobody does without the lock, is known by its pod's revision. With an alarm " +
			"NOSPACE nothing waits for that. etcd takes no sidecar's word then, and that update may wait for " +
			"the cure, which may wait for ghosts. An older sidecar does no harm meanwhile, because it leaves " +
			"the record alone.",
		Looks: "`Wait`: the reason names its pod.",
		Do: "Finish the update of the sidecars first. If it cannot go on because of ghosts (QuorumFloor), " +
			"override this guard, `quorate override -n NAMESPACE NAME OldSidecars --reason=TEXT`, ask again, and " +
			"end that with `--clear`. Where no sidecar knows the request, it runs out, and nobody is named here: " +
			"remove the ghost with `etcdctl member remove ID`, by the ID that `etcdctl member list` shows, while " +
			"every other member serves. May be overridden.",
	},
	{
		Name: GuardAllServing, rules: []Rule{RuleDefragment}, judge: allServing,
		Commands: []string{"kubectl get pods -n NAMESPACE -o wide"},
		clears:   true, overridable: true, asksWhoAnswers: true,
		Protects: "A member that is defragmented answers nothing, for seconds or minutes. So every voter serves " +
			"and has " +
			"caught up before, no pod is missing, or new and not settled, and the voters without this " +
			"one are a " +
			"quorum. It is asked before each member (DEP-01 asks for full health before each). A single member is " +
			"exempt. Two voters never pass, because they need both.",
		Looks: "`Wait`: the verdict names who is not well, or counts the voters, and names the ghosts among them.",
		Do: "Bring that member back. A ghost does not come back: have it removed with `quorate remove-member`. While " +
			"nobody can have the lock in etcd, as with NOSPACE, that is not carried out: see that every other member " +
			"serves, and use `etcdctl member remove ID`. May be overridden, at the price of an outage while the " +
			"member is away.",
	},
	{
		Name: GuardFollowersFirst, rules: []Rule{RuleDefragment}, judge: followersFirst,
		clears: true, overridable: true,
		Protects: "The leader is defragmented last, and not while it leads: it would keep every write waiting, " +
			"and the " +
			"others would elect a new one when it has been silent for long enough (DEP-01 has the leader last, " +
			"in place).",
		Looks: "Together with what keeps a follower; `Wait` while no leader is known; `Hold` when leadership " +
			"could not be " +
			"moved twice.",
		Do: "See why the leader does not hand over (`etcdctl move-leader`). May be overridden: then it is " +
			"defragmented " +
			"while it leads.",
	},
	{
		Name: GuardAppliesSnapshots, rules: []Rule{RuleDefragment}, judge: appliesSnapshots,
		asked: snapshotsUnsafe, clears: true, overridable: true,
		Protects: "Before etcd 3.5.23 and 3.6.5, a member that is defragmented while it applies a snapshot of the " +
			"leader's may be left with a broken database (etcd-io/etcd#20271). No answer of etcd's shows a snapshot. " +
			"But it is sent only to a member that is thousands of entries behind, and that member answers no " +
			"linearizable read. So one that answers them and is at most 500 entries behind receives none. It is not " +
			"asked of newer versions. In which release of 3.4 it was mended is not established, so it is asked of all.",
		Looks: "`Wait`: the verdict has the entries. A learner of such a version is never defragmented.",
		Do:    "Update etcd. May be overridden.",
	},
	{
		Name: GuardHostDefragments, rules: []Rule{RuleDefragment}, judge: hostDefragments,
		asked: hostHasSchedule, overridable: true,
		Protects: "etcd-backup-restore defragments all members by its own schedule, and asks nobody. Quorate " +
			"only tells " +
			"what it would do then, because two members at a time could take the quorum. With an alarm NOSPACE " +
			"it does " +
			"not wait.",
		Looks: "`Hold`: the verdict has the schedule. Without a request it is `Idle`.",
		Do: "Leave it to the host. Or give the host a schedule that never comes, such as " +
			"`--defragmentation-schedule=\"0 0 30 2 *\"` (in an Etcd of etcd-druid " +
			"`spec.etcd.defragmentationSchedule`). " +
			"May be overridden, while the host's next defragmentation is far.",
	},
	{
		Name: GuardOwnURL, rules: []Rule{RuleDefragment}, judge: ownURL, asked: answersAtShared, clears: true,
		Protects: "Several members may advertise one URL, such as that of a Service. If a connection to it breaks, " +
			"the next one may lead to another member, and two members would be defragmented at once. So Quorate " +
			"asks a member to defragment only at a URL of its own.",
		Looks: "`Wait`: the member does not answer at its own URL now. `Hold`: it advertises none.",
		Do: "See why the member's own URL does not answer. If it has none, give each member one: set " +
			"`--advertise-client-urls` to the pod's own name. May not be overridden, because the request would not " +
			"be sent.",
	},
	{
		Name: GuardDefragmentFails, rules: []Rule{RuleDefragment}, judge: defragmentFails,
		asked: hasTried, overridable: true, clears: true,
		Protects: "A defragmentation that fails stops its member each time. After two failures in a row, or one that " +
			"says that it is not permitted, it is not tried again by this coordinator. One that could not even be " +
			"asked for does not count, and is tried again after a pause.",
		Looks: "`Hold`: the verdict says how it failed. `Wait` until the next try.",
		Do: "A disk needs as much free space as the database has data. With authentication on, etcd's user needs the " +
			"role root. Then ask again with `quorate defragment`.",
	},
	{
		Name: GuardNoSpace, // The duty itself holds by this name.
		Protects: "With an alarm NOSPACE etcd takes no writes. A defragmentation frees only what has been deleted " +
			"and compacted. Each coordinator has a full database rewritten once in any case, because etcd tells " +
			"what is free only after the next write. The alarm is disarmed when every database is below 90 % of its " +
			"quota, because the next writes would raise it again otherwise. When a member leaves the list, etcd " +
			"keeps its alarm (etcd-io/etcd#14379), also when `quorate remove-member` removes a ghost. Such an alarm " +
			"says nothing about the databases that are left. So it is disarmed as soon as none of them is known to " +
			"be full, even while a member does not answer.",
		Looks: "`Hold`: the reason names the database, its quota, and where the quota is known from; or why etcd " +
			"does not disarm the alarm. If members that have left the list raised it, the reason names their IDs. " +
			"`Wait`: Quorate will try again to disarm it.",
		Do: "Compact the history (`etcdctl compact REVISION`) and delete what is not needed, which etcd permits. Or " +
			"give etcd a larger quota (`--quota-backend-bytes`). If the quota is another one than the reason says, " +
			"name it with the option `quota-bytes`. If the option `keep-no-space` is set, ask with `quorate " +
			"defragment`. To end the alarm by hand, whoever has raised it, run `etcdctl alarm disarm`.",
	},
}
