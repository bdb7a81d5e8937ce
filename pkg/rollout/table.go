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
		Protects: "Quorate does not guess what a control means if it cannot read it.",
		Looks:    "`Hold`: the reason names the annotation, its value and what is allowed.",
		Do:       "Correct the annotation on the Lease.",
	},
	{
		Name: GuardPaused, rules: []Rule{RuleHeld}, judge: paused,
		Commands: []string{"quorate resume -n NAMESPACE NAME"},
		Protects: "An operator has paused the rollout.",
		Looks:    "`Hold`: the Lease `quorate-<statefulset>` has quorate.dev/paused: \"true\".",
		Do: "When the rollout may go on, run `quorate resume NAME`. You can also remove the annotation, or set it to " +
			"\"false\".",
	},
	{
		Name: GuardStaleRevision, rules: []Rule{RuleHeld}, judge: staleRevision,
		Commands: []string{"kubectl describe statefulset -n NAMESPACE NAME"},
		clears:   true,
		Protects: "Until the StatefulSet controller has observed the newest template, `status.updateRevision` is " +
			"that of an older one. Quorate would then take up-to-date pods for outdated ones, or the reverse.",
		Looks: "`Wait`, normally for well under a second.",
		Do:    "If it lasts, look at the StatefulSet controller (kube-controller-manager).",
	},
	{
		Name: GuardInconsistent, rules: []Rule{RuleHeld}, judge: inconsistent,
		Commands: []string{"quorate plan -n NAMESPACE NAME", "kubectl get pods -n NAMESPACE -o wide"},
		Protects: "Two facts contradict each other, or a fact is missing: two pods have one ordinal; two members " +
			"have one name, or match one pod; two members lead at the same term; a member belongs to another " +
			"cluster; or a pod has no container with the name that etcd's should have.",
		Looks: "`Hold`: the reason names the facts.",
		Do: "Find out which fact is wrong. A foreign cluster ID usually means that DNS or an endpoint leads " +
			"elsewhere. If the containers have other names, set `etcd-container` and `sidecar-container`. If a pod's " +
			"template has lost etcd's container, fix the template, and then delete the pod by hand.",
	},
	{
		Name: GuardCorrupt, rules: []Rule{RuleHeld}, judge: corrupt,
		Commands:    []string{"quorate plan -n NAMESPACE NAME"},
		overridable: true,
		Protects: "etcd raises a CORRUPT alarm when its leader finds that the members' data differ. No update cures " +
			"that, and a successful read proves nothing. The alarm is about the members whose hash is not that of a " +
			"quorum. It names nobody if no hash is that of a quorum, or if etcd is 3.5 from 3.5.7 on. It stays when " +
			"its member leaves the list. It may be false: before 3.5.10, a member that is restarted during a " +
			"compaction, for example by an update, remembers a wrong hash of that compaction (etcd-io/etcd#15919). " +
			"HashKV is computed anew each time.",
		Looks: "`Hold`: the reason names the members that the alarm is about, by pod and ID, and says which of them " +
			"are no longer on etcd's list. If the members run several versions of etcd, it names those too.",
		Do: "Find the lowest revision that `etcdctl endpoint status --cluster -w json` shows, and compare the " +
			"members' hashes at it: `etcdctl endpoint hashkv --cluster --rev REVISION -w json`. Compare only hashes " +
			"with the same compact_revision; if it differs, ask again. If all hashes are equal, the alarm is false, " +
			"or its member is gone: run `etcdctl alarm disarm`, which ends all alarms. If the alarm comes back " +
			"during an update and all hashes are still equal, override this guard for the rest of the update. If " +
			"hashes differ, the alarm is true: follow etcd's disaster recovery for data corruption, for each member " +
			"whose hash is not that of a quorum. Disarm the alarm afterwards. May be overridden.",
	},
	{
		Name: GuardCutOff, rules: []Rule{RuleHeld}, judge: cutOff,
		Commands:    []string{"kubectl get pods -n NAMESPACE -o wide", "kubectl get nodes"},
		overridable: true, asksWhoAnswers: true,
		Protects: "Other members may be running, but nothing is heard from them: no answer, no refused connection, " +
			"and no news from their kubelets or nodes. If that is true of all of them, this coordinator may be the " +
			"one that is cut off. The same holds if it is true of enough members to be a quorum, and no member " +
			"serves. What the kubelets said last may then be old. A refused connection, an error from etcd itself, " +
			"and news from a kubelet count as signs. A node that is Ready does not: it stays Ready for most of a " +
			"minute after a cut.",
		Looks: "`Hold`, until something is heard or another sidecar takes over.",
		Do: "Repair the network of the coordinator's pod or node. Nodes without power look the same, and no update " +
			"cures those: bring them back. May be overridden. Even then, what the kubelets said last is not believed.",
	},
	{
		Name: GuardUnderWay, rules: []Rule{RuleHeld}, judge: underWay,
		Commands: []string{"quorate history -n NAMESPACE NAME"},
		clears:   true,
		Protects: "The record names an operation that stops a member for a while: a defragmentation, or disarming an " +
			"alarm. Nobody knows how the call ended, and it may still arrive. So the member counts as not serving, " +
			"and nothing else begins. The operation is not repeated.",
		Looks: "`Wait`, until the call's time is over and the member has answered for half a minute, or until half a " +
			"minute after its process has ended. The reason says what is known about it.",
		Do: "Nothing, as long as the member's etcd is being defragmented. If it does not come back, end its process: " +
			"restart its etcd container, or delete its pod if its data outlives the pod. First make sure that a " +
			"quorum of the others answers. The member is out already, but nothing checks this for you. Its database " +
			"is then the old one or the new one, and it is whole. Once the process has ended and the call's time has " +
			"been over for half a minute, work goes on, even if the member does not answer.",
	},
	{
		Name: GuardPartition, rules: []Rule{RuleNotServingFirst, RuleServing}, judge: partition,
		Commands: []string{"kubectl get lease -n NAMESPACE quorate-NAME -o yaml"},
		asked:    partitioned,
		Protects: "Pods with an ordinal below the partition stay as they are. A crash is not bound by that: under " +
			"OnDelete every recreated pod gets the new revision.",
		Looks: "`Complete` or `Hold`, with outdated pods below the partition.",
		Do:    "Lower quorate.dev/partition on the Lease, or remove it.",
	},
	{
		Name: GuardVotersUnknown, rules: []Rule{RuleNotServingFirst, RuleServing, RuleDefragment}, judge: votersKnown,
		Commands: []string{
			"kubectl get pods -n NAMESPACE -o wide",
			"kubectl logs -n NAMESPACE POD --all-containers --tail=50",
		},
		overridable: true, asksWhoAnswers: true,
		Protects: "Without a member list nobody knows who votes. Quorum then counts as lost, and only pods whose " +
			"container is dead may go. If no list can be read through consensus, Quorate uses the list of one " +
			"member, which may be old. While some member serves, a pod whose container is not dead then goes only if " +
			"a quorum of the voters on that list return the same voters.",
		Looks: "`Hold`: no member answers with a member list, or too few have the same one.",
		Do:    "Make sure that at least one member is well, and that the certificates are. May be overridden.",
	},
	{
		Name: GuardMayVote, rules: []Rule{RuleNotServingFirst}, judge: mayVote,
		Commands:    []string{"kubectl describe pod -n NAMESPACE POD", "quorate plan -n NAMESPACE NAME"},
		overridable: true, asksWhoAnswers: true,
		Protects: "\"Down\" does not mean \"not voting\". When quorum is lost, no pod is Ready, and a broken client " +
			"listener makes a voting member look dead to both witnesses. So while some member serves, a process goes " +
			"only if the serving voters alone are a quorum, or if those that are left could still be one: they " +
			"serve, or they are Down while their process runs. A dead member goes, unless too few others are left to " +
			"be the quorum that a serving member proves: one of the dead then votes. A member that is Unknown does " +
			"not count, because it may hang without its kubelet having noticed. Neither does a member that others " +
			"are about to take (OthersLeaving). This is stricter than DEP-07 step 2, which deletes the pod.",
		Looks: "`Hold`: the verdict says how many could still vote.",
		Do:    "Bring another member back, or repair the client listener. May be overridden.",
	},
	{
		Name: GuardQuorumPatience, rules: []Rule{RuleNotServingFirst}, judge: quorumPatience,
		Commands: []string{"kubectl get pods -n NAMESPACE -o wide"},
		clears:   true, overridable: true, asksWhoAnswers: true,
		Protects: "When quorum is lost, a live process rejoins as soon as a peer returns. Restarting all of them at " +
			"once turns a blip into an outage (DEP-07 does that). So a live process is left alone for " +
			"`settle-timeout`, and as long as anything else is still coming up.",
		Looks: "`Wait`: the verdict says for how long quorum has been lost.",
		Do:    "Bring a peer back. If the live processes need the update too, wait, or override this guard.",
	},
	{
		Name: GuardRevisionSuspect, rules: []Rule{RuleNotServingFirst}, judge: revisionSuspect,
		Commands: []string{
			"kubectl describe pod -n NAMESPACE POD",
			"kubectl logs -n NAMESPACE POD --all-containers --tail=50",
		},
		overridable: true,
		Protects: "Until one pod of the new revision has settled, nothing speaks for that revision. A member whose " +
			"node has merely rebooted comes back by itself on the old one. So while a pod of the new revision is " +
			"under way (terminating, missing, or not settled yet), no other pod goes that may come back: no process " +
			"that runs, and nothing that has been down for less than `settle-timeout`. A broken revision then costs " +
			"at most one member that served or would have come back. A container that its kubelet backs off from " +
			"(CrashLoopBackOff, ImagePullBackOff) goes at once, or after `settle-timeout` while an updated pod fails.",
		Looks: "`Wait` for the pod that is under way, or `Hold` once it fails.",
		Do: "Nothing while the new pod comes up. If it fails, fix the template or roll it back. If quorum is lost " +
			"for good and the update is the cure, the new revision cannot prove itself before others follow: " +
			"override this guard. May be overridden.",
	},
	{
		Name: GuardUpdatedFailing, rules: []Rule{RuleUpdatedSettle}, judge: updatedFailing,
		Commands: []string{
			"kubectl describe pod -n NAMESPACE POD",
			"kubectl logs -n NAMESPACE POD --all-containers --tail=50",
		},
		overridable: true,
		Protects:    "A revision that fails on one pod must not reach the next one.",
		Looks:       "`Hold`: the updated pod is dead, or has not settled within `settle-timeout`.",
		Do: "Find out why the pod fails: see `kubectl describe pod`, its logs and those of its sidecar. If the " +
			"template is to blame, fix it or roll it back: the failing pod is replaced first. " + withoutQuorum +
			" May be overridden.",
	},
	{
		Name: GuardOthersLeaving, rules: []Rule{RuleServing, RuleDefragment}, judge: othersLeaving,
		Commands: []string{"kubectl get nodes"},
		asked:    someLeave, clears: true, overridable: true,
		Protects: "etcd clusters often go down because something else happens during a drain. While others take a " +
			"member, Quorate removes none that serves, defragments none, and counts only on the rest. A member is " +
			"leaving if its pod has the condition `DisruptionTarget`, if its pod terminates or is missing and " +
			"Quorate did not remove it, if its pod is being scaled away, or if its pod is being resized in place " +
			"with a restart of etcd. It is also leaving if its node is cordoned, no longer exists, or has a " +
			"`NoExecute` taint that the pod does not tolerate for good. The taint of a known drainer counts as a " +
			"cordon, whatever the pod tolerates: that of Karpenter, the cluster autoscaler or a cloud's termination " +
			"handler, or one that `drain-taints` names. Nodes are only read with `read-nodes`. A node that cannot be " +
			"read may be cordoned. A cordon alone holds the rollout for `leaving-patience` from when the coordinator " +
			"first sees it, because a node may stay cordoned for days. After that, the pods on cordoned nodes go " +
			"last, because a pod whose volume fits nowhere else stays Pending. A member that was taken and does not " +
			"come back holds the rollout for as long as a cordon, and at least for `settle-timeout`: it may be " +
			"waiting for a pod that only Quorate replaces. After that it only counts as unavailable.",
		Looks: "`Wait`: the verdict names the members, and says why they count as leaving.",
		Do: "Let the drain (or the scale-in) finish, and let the pod come back. If a node is not going to be drained " +
			"after all, uncordon it, and remove a drainer's taint from it. May be overridden: a member that is about " +
			"to go then counts as one that stays.",
	},
	{
		Name: GuardUpgradePath, rules: []Rule{RuleNotServingFirst, RuleServing}, judge: checked(GuardUpgradePath),
		Commands: []string{"quorate plan -n NAMESPACE NAME --all"},
		asked:    stepHarms, overridable: true, forOthers: true,
		Protects: "A change of etcd's version that is known to fail, or to lose quorum, does not begin. `quorate " +
			"plan --all` shows every known problem with its source. The members report their own versions. If one " +
			"does not, the tag of its pod's image counts. The new version is the tag of the image in the new " +
			"template, if the image is named etcd or is a known release of etcd-wrapper. If that version cannot be " +
			"read, Quorate says so and does not hold; quorate.dev/etcd-versions on the Lease can name it. The guard " +
			"is asked about every member that would get another minor version, even one that does not serve: what it " +
			"becomes would hurt the others. A pod that is deleted by anyone else still comes back with the new " +
			"template. The guard then keeps holding the members that still run an older version. It is never asked " +
			"once every voter whose pod does not have the new revision has been dead for `settle-timeout`: the " +
			"update may then be the cure. Nor is it asked about a member that already runs the new minor version, or " +
			"on the way back to a revision that is older than this pod's.",
		Looks: "`Hold`: the verdict has the versions, what would happen, and the way out. The reason begins with AT " +
			"RISK while the guard keeps a member that does not serve, and others do.",
		Do: "Set the template to the version that the verdict names, and go on from there. While a member of the old " +
			"version is left, that also brings back those that already have the new one. If a member does not come " +
			"back on the old version, this is its way out too. May be overridden, if you know better: `quorate " +
			"override -n NAMESPACE NAME UpgradePath --reason=TEXT`.",
	},
	{
		Name: GuardDowngrade, rules: []Rule{RuleNotServingFirst, RuleServing}, judge: checked(GuardDowngrade),
		Commands: []string{"quorate plan -n NAMESPACE NAME --all"},
		asked:    stepDown, overridable: true,
		Protects: "A member whose minor version is below the cluster's does not start, unless etcd was told of the " +
			"downgrade. So no member is replaced by such a one. Members report an enabled downgrade from 3.6 on. The " +
			"cluster's version is the lowest minor version of its members. The guard is not asked about a member " +
			"that has been dead for `settle-timeout`, which has nothing to lose, or on the way back to a revision " +
			"that is older than this pod's.",
		Looks: "`Hold`: the verdict has the versions.",
		Do: "From 3.6 on, run `etcdctl downgrade validate VERSION`, and then `etcdctl downgrade enable VERSION`. " +
			"Before 3.6, the only way down is a backup. May be overridden.",
	},
	{
		Name: GuardKnownArguments, rules: []Rule{RuleNotServingFirst, RuleServing}, judge: knownArguments,
		Commands: []string{"quorate plan -n NAMESPACE NAME --all"},
		asked:    newArguments, overridable: true,
		Protects: "Before a member gets another version, up or down, that version must know the arguments that the " +
			"template gives to etcd, and their values. etcd does not start with an argument that it does not know. " +
			"It ignores an environment variable that it does not know, and the verdict names the variable. But it " +
			"refuses a value that it does not know, even one from the environment. `quorate plan --all` shows all " +
			"that is known of each release from 3.4.0 to 3.7.3, and what 3.8 has removed. These are reported as not " +
			"checked: a later version, the arguments of another program such as etcd-wrapper, what etcd's " +
			"configuration file says, and a value that is not in the template. With a configuration file, etcd does " +
			"not read its environment, but it still does not start with an argument that it does not know. Within " +
			"one minor version, the guard holds only for what the release before knew. It is not asked about a " +
			"member that has been dead for `settle-timeout`, on the way back to a revision that is older than this " +
			"pod's, or once a pod of the new revision has settled.",
		Looks: "`Hold`: the verdict names each argument, variable and value, where the template sets it, and what to " +
			"do about it.",
		Do: "Remove the arguments from the template, or replace them as the verdict says. May be overridden.",
	},
	{
		Name: GuardListsAgree, rules: []Rule{RuleNotServingFirst, RuleServing}, judge: listsAgree, asked: listsTold,
		Commands:    []string{"quorate plan -n NAMESPACE NAME"},
		overridable: true,
		Protects: "Before the first pod of a rollout goes, all voters that serve must have the same member list. " +
			"Quorum is counted by one of these lists, and a restarted member believes its own (etcd-io/etcd#13196, " +
			"etcd-io/etcd#20967). A member that does not serve is asked about only if it would get another minor " +
			"version.",
		Looks: "`Hold`: the verdict shows two lists that differ. For a moment, one member may simply be behind.",
		Do: "Find out which list is right: ask each member with `etcdctl member list --endpoints`. Remove what " +
			"should not be there with `etcdctl member remove`. If the update is the cure, override the guard. May be " +
			"overridden.",
	},
	{
		Name: GuardPodsListed, rules: []Rule{RuleServing}, judge: podsListed, asked: somePodsUnlisted,
		Commands:    []string{"quorate plan -n NAMESPACE NAME"},
		overridable: true,
		Protects: "Quorum is counted by etcd's member list. A pod that was Ready once and is not on that list may " +
			"run a member that was removed or that split off, and may vote in a cluster of its own " +
			"(etcd-io/etcd#15787). While its etcd runs, no member that serves goes, and neither does a pod about " +
			"which nothing is known. A dead pod is replaced. A pod that has never been Ready is on its way onto the " +
			"list. If as many voters elsewhere may run in such pods, the pods could not be matched to members, and " +
			"QuorumFloor says so.",
		Looks: "`Hold`: the verdict names the pods.",
		Do: "See what that pod's own etcd says: `etcdctl member list --endpoints` with its own address. If it should " +
			"be a member, let its host add it back, or add it with `etcdctl member add`. If it is in a cluster of " +
			"its own, find out first which of the two clusters has your data. Then remove its pod and its data, so " +
			"that it joins again. May be overridden, if you know that it votes nowhere.",
	},
	{
		Name: GuardDataAgrees, rules: []Rule{RuleNotServingFirst, RuleServing}, judge: dataAgrees, asked: dataTold,
		Commands: []string{"quorate plan -n NAMESPACE NAME"},
		clears:   true, overridable: true,
		Protects: "The voters must have the same data, as far as they report it: how many log entries each has " +
			"applied, and the revision of its data, which an entry raises by at most one. Data may differ without " +
			"any alarm (etcd-io/etcd#13766, etcd-io/etcd#14211). Each removal of another member brings the one that " +
			"differs closer to deciding what clients read. While some differ, no member that serves is removed. " +
			"Leadership moves only to a member of a majority whose data agree. The numbers are not from the same " +
			"moment. So it takes five looks in a row, over at least ten seconds, to prove a difference; until then " +
			"Quorate looks again. Learners do not count, and neither do members that do not report their status; the " +
			"verdict says so. A difference that does not show in these numbers is not found.",
		Looks: "`Wait` while single looks find it; `Hold` once it is proven. The verdict has the two members, their " +
			"numbers, and who is in the minority if a majority agrees.",
		Do: "Compare the data themselves, best while nobody writes: `etcdctl endpoint hashkv --cluster`. Replace the " +
			"member that differs from the others: remove it with `etcdctl member remove`, and add it again, without " +
			"its data, with `etcdctl member add`. If no majority agrees, follow etcd's disaster recovery. May be " +
			"overridden. Even then, no member of the minority is given the lead.",
	},
	{
		Name: GuardQuorumFloor, rules: []Rule{RuleServing}, judge: quorumFloor,
		Commands:    []string{"kubectl get pods -n NAMESPACE -o wide", "quorate plan -n NAMESPACE NAME"},
		overridable: true, asksWhoAnswers: true,
		Protects: "The serving voters that stay must be at least a quorum of the voters in etcd's member list. That " +
			"is counted without the member that is removed, and without everything that is already going. Some " +
			"voters have no pod among the StatefulSet's ordinals: members elsewhere, ghosts, and pods that are being " +
			"scaled away. They count as voters but not as voters that stay, because they may go at any time without " +
			"asking Quorate. `trusted-members` names those elsewhere that may be relied on. A single voter with one " +
			"replica is exempt. Two voters always hold.",
		Looks: "`Hold`: \"2 of 3 voters serve, quorum 2, removing this one leaves 1\".",
		Do: "Bring members back. `quorate status` names the ghosts: remove them with `quorate remove-member -n " +
			"NAMESPACE NAME --all-ghosts`. If some or all of the sidecars are too old for that, see OldSidecars. If " +
			"a pod is not Ready, see PodsServe. Remove other members that should go with `etcdctl member remove ID`. " +
			"Make two voters three or one; see [one etcd cluster in several " +
			"StatefulSets](operations.md#one-etcd-cluster-in-several-statefulsets). If the pods cannot be matched to " +
			"members, name the members like their pods, or let their peer URLs begin with the pod's name. If " +
			"members advertise only addresses that several of them answer (a Service, 0.0.0.0, localhost), " +
			"nobody can tell them apart: see [members that advertise a shared " +
			"address](operations.md#members-that-advertise-a-shared-address). May be overridden, at " +
			"the price of quorum.",
	},
	{
		Name: GuardUnavailableBudget, rules: []Rule{RuleServing}, judge: unavailableBudget,
		Commands: []string{"kubectl get pods -n NAMESPACE -o wide"},
		clears:   true, overridable: true,
		Protects: "At most `max-unavailable` members of this StatefulSet (a number, or a percentage of the replicas, " +
			"rounded down and at least 1: KEP-961) are unavailable at once. Unavailable means not serving, missing, " +
			"terminating, leaving, or updated and not settled. An outdated pod that serves with a sick sidecar does " +
			"not count. Otherwise three sick sidecars would block their own cure (cluster-etcd-operator#994).",
		Looks: "`Wait`: the verdict counts them.",
		Do:    "Bring the unavailable member back. May be overridden.",
	},
	{
		Name: GuardCanary, rules: []Rule{RuleServing}, judge: canary,
		clears: true, overridable: true,
		Protects: "The first pod of a revision goes alone, even if the budget would allow more.",
		Looks:    "`Wait`, until the first updated pod has settled.",
		Do:       "Nothing. May be overridden.",
	},
	{
		Name: GuardEndpointFloor, rules: []Rule{RuleServing}, judge: endpointFloor,
		Commands: []string{"kubectl get pods -n NAMESPACE -o wide"},
		clears:   true, overridable: true,
		Protects: "Clients reach etcd through a Service that lists only Ready pods. So after a Ready pod is removed, " +
			"a quorum of replicas must still be Ready. A pod that is not Ready costs no endpoint.",
		Looks: "`Wait`: the verdict counts the Ready pods.",
		Do:    "Bring back the containers of the pods that are not Ready, including the sidecars. May be overridden.",
	},
	{
		Name: GuardCaughtUp, rules: []Rule{RuleServing}, judge: caughtUp,
		Commands: []string{"quorate plan -n NAMESPACE NAME"},
		clears:   true, overridable: true,
		Protects: "A member that lags cannot take over soon. So only those that are less than `max-lag` entries " +
			"behind count towards the quorum that stays.",
		Looks: "`Wait`: the verdict has the lag.",
		Do: "Wait for the follower to catch up. If it does not, look at its disk and network. If statuses are " +
			"missing, find out why the members do not answer, or give the statuses to `quorate plan`. May be " +
			"overridden.",
	},
	{
		Name: GuardDataSurvives, rules: []Rule{RuleNotServingFirst, RuleServing}, judge: dataSurvives,
		Commands:    []string{"quorate plan -n NAMESPACE NAME"},
		overridable: true,
		Protects: "If the data dies with the pod (no persistent volume), a removal must leave a quorum of voters " +
			"that hold data. A voter holds data if it serves, or if its outdated pod has been Ready once. What " +
			"counts is the volume that is mounted where etcd keeps its data, whatever else is mounted: " +
			"`etcd-data-dir`, otherwise `--data-dir` or `ETCD_DATA_DIR` in the pod template, otherwise " +
			"/var/etcd/data. A log elsewhere (`--wal-dir`) counts like the data. Both the template and the pod " +
			"itself are checked, because the pod may have an older template with another volume. A directory that " +
			"only etcd's own configuration file names cannot be seen. A pod whose volume claim somebody has deleted " +
			"does not go either, because the claim and the data go with it (kubernetes#89910). Only `quorate plan " +
			"-f` knows that, if the claims are in the file: neither a sidecar nor a live `plan` reads them.",
		Looks: "`Hold`: the verdict counts the voters with data.",
		Do: "Use persistent volumes. If the template has them by now and an old pod does not, its data does not move " +
			"by itself: take a backup first. If the volumes are persistent, say where the data is with " +
			"`etcd-data-dir`. If there is only one member, or if the data may be lost, set `allow-volatile-data` or " +
			"override this guard. A claim that is being deleted cannot be saved: take a backup, or replace the pod's " +
			"member on purpose while every other one serves.",
	},
	{
		Name: GuardHostGates, rules: []Rule{RuleServing}, judge: hostGates,
		Commands:    []string{"quorate plan -n NAMESPACE NAME"},
		overridable: true,
		Protects: "The host's own checks, for example that the last backup succeeded (DEP-01). They do not apply to " +
			"a pod whose sidecar is sick, unless the gate says so: the pod would block its own cure.",
		Looks: "`Hold`: the verdict names the gate.",
		Do:    "Fix what the gate checks. May be overridden.",
	},
	{
		Name: GuardRecreation, rules: []Rule{RuleNotServingFirst, RuleServing}, judge: recreation,
		Commands: []string{"kubectl get pods -n NAMESPACE -o wide", "kubectl describe statefulset -n NAMESPACE NAME"},
		asked:    orderedReady, clears: true, overridable: true,
		Protects: "With `podManagementPolicy: OrderedReady`, the API's default, the StatefulSet controller creates a " +
			"pod only when every lower ordinal is Running, Ready, available and not terminating. Until then, a pod " +
			"that is removed stays away. So among the pods that do not serve, the lowest goes first, and a live " +
			"pod is never removed just to make way for a dead one. With `Parallel`, the guard is not asked.",
		Looks: "`Wait` while a lower pod comes up; `Hold` while a live lower pod is not Ready.",
		Do: "Bring the lower pod back. It may be unready only because quorum is lost, and then the dead ones above " +
			"it cannot be recreated before it: run `kubectl delete statefulset -n NAMESPACE NAME --cascade=orphan`, " +
			"which leaves its pods, and apply it again with `podManagementPolicy: Parallel`. May be overridden: " +
			"the pod then stays away until the lower ones are Ready.",
	},
	{
		Name: GuardReturns, rules: []Rule{RuleNotServingFirst, RuleServing}, judge: returns, asked: mayNotReturn,
		Commands:    []string{"kubectl describe statefulset -n NAMESPACE NAME"},
		overridable: true,
		Protects: "A pod that is removed must come back. The StatefulSet controller goes through its pods from the " +
			"lowest ordinal. It fails at a pod that lacks the volume of a claim template, before it creates a higher " +
			"one (kubernetes#141876). Pods lack it if the StatefulSet was recreated around them with another claim " +
			"template (`kubectl delete statefulset --cascade=orphan`). The name of the new revision is also a label " +
			"of every new pod, so more than 63 characters make each of them invalid (kubernetes#64023). The guard is " +
			"asked only if there is such a pod or such a name.",
		Looks: "`Hold`: the verdict names the pod and the claim, or the name of the revision.",
		Do: "For a claim: recreate the StatefulSet with its former claim templates (`kubectl delete statefulset -n " +
			"NAMESPACE NAME --cascade=orphan`, which leaves its pods, and apply it again). For a name: only a " +
			"StatefulSet with a shorter name helps, which is another StatefulSet. May be overridden, at the " +
			"price of a pod that stays away.",
	},
	{
		Name: GuardLeaderLast, rules: []Rule{RuleServing}, judge: leaderLast,
		Commands: []string{"quorate plan -n NAMESPACE NAME"},
		clears:   true, overridable: true,
		Protects: "A healthy leader never goes before a follower that is a candidate, whatever keeps the follower. " +
			"While the members that answer agree on no leader, as during an election, any voter may be the leader, " +
			"and none goes.",
		Looks: "It appears beside what keeps the follower, or as `Wait` while no leader is known.",
		Do: "See what keeps the followers. If no leader is known for longer than an election takes, see what the " +
			"members' statuses say (`etcdctl endpoint status --cluster`). May be overridden.",
	},
	{
		Name: GuardBeforeLast, rules: []Rule{RuleNotServingFirst, RuleServing}, judge: beforeLast, asked: endsStep,
		Commands:    []string{"quorate resume -n NAMESPACE NAME"},
		overridable: true, forOthers: true,
		Protects: "With `hold-before-last` (off by default), a rollout to another minor version of etcd stops before " +
			"the last member of the old version goes. Until then a template of the old version brings everybody " +
			"back. After that the version of the cluster rises, and a member of the old version no longer starts. So " +
			"the guard is asked even about a last member that does not serve. It is never asked once every voter has " +
			"been dead for `settle-timeout`, on the way back to a revision that is older than this pod's, or within " +
			"a minor version.",
		Looks: "`Hold`, with one outdated pod left. The reason begins with AT RISK if its member does not serve, and " +
			"others do.",
		Do: "Make sure that clients work with the new version. Then run `quorate resume NAME`, which lets this " +
			"rollout finish, and no other one. Or set the template back. May be overridden. An override that does " +
			"not end also counts for later rollouts.",
	},
	{
		Name: GuardDisruptionBudget, rules: []Rule{RuleServing}, judge: disruptionBudget,
		Commands: []string{"kubectl describe poddisruptionbudget -n NAMESPACE", "kubectl get pods -n NAMESPACE -o " +
			"wide"},
		asked: evicted, clears: true, overridable: true,
		Protects: "A Ready pod is removed through the eviction API, unless `removal: delete` says otherwise. A " +
			"PodDisruptionBudget is the only arbiter between Quorate and a drain, and a DELETE does not count " +
			"against it. The API may refuse an eviction (HTTP 429 means: not now). A watch tells when the budget " +
			"allows one. If that is not enough, a dry run asks first, which counts for nothing and changes nothing. " +
			"While a pod has just become Ready, Quorate asks again after about 60 ms and then more and more slowly, " +
			"otherwise after seconds.",
		Looks: "`Wait`: the reason quotes the API server, which names the budget and its numbers. `Hold` if no " +
			"waiting helps: more than one budget matches the pod, or the budget needs as many healthy pods as there " +
			"are. A budget that needs two pods or more protects nothing if there is one member, one pod is wanted, " +
			"and the budget is about that pod alone. In that case the pod is deleted.",
		Do: "See what the budget counts (`kubectl describe poddisruptionbudget`), and bring unhealthy pods back. If " +
			"the rollout holds, leave one budget that matches the pods, and let it allow one of them to go " +
			"(`maxUnavailable: 1`). Or set `removal: delete`, so that Quorate's own guards decide alone. The running " +
			"sidecars still have the old value: to let them delete at once, override the guard. May be overridden: " +
			"pods are then deleted, and a drain may take another one before the budget has noticed.",
	},
	{
		Name: GuardTerminating, rules: []Rule{RuleUpdatedSettle}, judge: terminating,
		Commands: []string{"kubectl describe statefulset -n NAMESPACE NAME", "kubectl get nodes"},
		clears:   true,
		Protects: "A pod that is missing or terminating counts as unavailable. Its processes may still run.",
		Looks:    "`Wait`, for as long as the grace period and the recreation take.",
		Do: "If it lasts, the pod's node may be lost (`kubectl get nodes`), or the pod cannot be recreated (`kubectl " +
			"describe statefulset`): a quota, a webhook or a missing ServiceAccount may refuse it. `quorate status` " +
			"and `quorate plan` quote the API server, if you may read events.",
	},
	{
		Name: GuardUpdatedPending, rules: []Rule{RuleUpdatedSettle}, judge: updatedPending,
		Commands: []string{"kubectl describe pod -n NAMESPACE POD"},
		clears:   true,
		Protects: "An updated pod that is still coming up counts as unavailable. If one of its containers has " +
			"restarted, it has to stay Ready for ten seconds first: a crash loop without a readiness probe is Ready " +
			"for a moment at every start. At the first start two seconds are enough, because a kubelet notices a " +
			"crash within that time. None are needed once the pod's sidecar has reported in etcd. A learner has to " +
			"be promoted first, which is up to its host: until it votes, it proves nothing about the new revision.",
		Looks: "`Wait`. A member that catches up (see [below](#what-keeps-a-new-pod-from-settling)) is waited for, " +
			"however long that takes.",
		Do: "Nothing, unless it turns into UpdatedFailing.",
	},
	{
		Name: GuardRequestBinding, rules: []Rule{RuleRemoveGhost}, judge: requestBinding,
		clears: true,
		Protects: "A request to remove a member is about the one that the operator saw: its ID, its name and the ID " +
			"of its cluster must all match. So a request that comes back from a backup (k3s#8359) removes nothing, " +
			"and neither does one whose ID a restored cluster has given to another member.",
		Looks: "`Hold`: the reason says what does not match. `Wait` while there is no member list.",
		Do:    "Look at `quorate status`, and ask again for the member that it names.",
	},
	{
		Name: GuardNoGhost, rules: []Rule{RuleRemoveGhost}, judge: noGhost,
		clears: true,
		Protects: "Only a ghost is removed. Its name is that of a pod of this StatefulSet, with an ordinal that the " +
			"StatefulSet does not have. (If it has never started, every peer URL is that pod's.) It has no pod, and " +
			"has not answered for `ghost-after`. A member that serves is never removed. Neither is one of another " +
			"StatefulSet of the same cluster, one that was renamed, or one of `trusted-members`.",
		Looks: "`Hold`: the reason says why it is not a ghost. `Wait` until it has been one for long enough, or its " +
			"last pod is gone.",
		Do: "Wait, or leave the member alone. To remove a member that is not a ghost, use `etcdctl member remove`.",
	},
	{
		Name: GuardPodsServe, rules: []Rule{RuleRemoveGhost}, judge: podsServe,
		clears: true,
		Protects: "The membership changes only while every pod of the StatefulSet exists, is Ready, and has a voter " +
			"that serves.",
		Looks: "`Wait`: the verdict counts them.",
		Do: "Bring the pods back. A rollout that is under way goes first. If ghosts hold the very rollout that would " +
			"bring a pod back (QuorumFloor), remove them with `etcdctl member remove ID` while every other member " +
			"serves. `etcdctl member list` shows the IDs.",
	},
	{
		Name: GuardMembershipMoves, rules: []Rule{RuleRemoveGhost}, judge: membershipMoves,
		clears: true,
		Protects: "Only one change of the membership happens at a time. Somebody else is about to make one if a " +
			"member is new or has never started, if a learner is waiting for the host to promote it, or if a pod is " +
			"being scaled away (k0smotron#1481).",
		Looks: "`Wait`: the reason names the member or the pod.",
		Do: "Nothing, until the other change is over. If a member was added by mistake and never started, use " +
			"`etcdctl member remove`.",
	},
	{
		Name: GuardGhostQuorum, rules: []Rule{RuleRemoveGhost}, judge: ghostQuorum,
		clears: true,
		Protects: "The member list must be one that a quorum has agreed on. By that list, the voters that serve and " +
			"stay must be a quorum before the removal and after it. Voters without a pod of this StatefulSet do not " +
			"count among them.",
		Looks: "`Wait`: the verdict has the numbers.",
		Do:    "Bring members back.",
	},
	{
		Name: GuardSuspectMember, rules: []Rule{RuleRemoveGhost}, judge: suspectMember,
		Protects: "A removal whose outcome is not known, and that must not be repeated, may still happen. The record " +
			"has room for one such member. It counts as a voter, and never as one that stays.",
		Looks: "`Hold`: the reason names the member.",
		Do: "Ask for the removal of that same member again. If it should stay, and its removal was requested longer " +
			"ago than any request may take, run `quorate remove-member -n NAMESPACE NAME --forget MEMBER`.",
	},
	{
		Name: GuardOldSidecars, rules: []Rule{RuleRemoveGhost, RuleDefragment}, judge: oldSidecars,
		clears: true, overridable: true,
		Protects: "No removal of a member and no defragmentation begins while any sidecar is, or might be, too old " +
			"to know it on the record. An older sidecar leaves such a record alone. So if the coordinator ended " +
			"half-way, the older one could not go on, and a way back to its version would have to wait. A sidecar " +
			"that reports no version, as none does without the lock, is judged by its pod's revision. With an alarm " +
			"NOSPACE the guard does not wait. etcd then accepts no report from a sidecar, and that update may be " +
			"waiting for the cure, which may be waiting for ghosts. An older sidecar does no harm meanwhile, because " +
			"it leaves the record alone.",
		Looks: "`Wait`: the reason names its pod.",
		Do: "Finish the update of the sidecars first. If it cannot go on because of ghosts (QuorumFloor), override " +
			"this guard with `quorate override -n NAMESPACE NAME OldSidecars --reason=TEXT`, ask again, and end the " +
			"override with `--clear`. If no sidecar knows the request, the request runs out, and no pod is named " +
			"here. Then remove the ghost with `etcdctl member remove ID` while every other member serves; " +
			"`etcdctl member list` shows the ID. May be overridden.",
	},
	{
		Name: GuardAllServing, rules: []Rule{RuleDefragment}, judge: allServing,
		Commands: []string{"kubectl get pods -n NAMESPACE -o wide"},
		clears:   true, overridable: true, asksWhoAnswers: true,
		Protects: "A member that is being defragmented answers nothing, for seconds or minutes. So before that, " +
			"every voter must serve and have caught up, no pod may be missing, or new and not settled, and the " +
			"voters without this one must be a quorum. This is asked before each member (DEP-01 asks for full health " +
			"before each). A single member is exempt. Two voters never pass, because both are needed.",
		Looks: "`Wait`: the verdict names who is not well, or counts the voters and names the ghosts among them.",
		Do: "Bring that member back. A ghost does not come back: remove it with `quorate remove-member`. While " +
			"nobody can have the lock in etcd, as with NOSPACE, that request is not carried out: make sure that " +
			"every other member serves, and use `etcdctl member remove ID`. May be overridden, at the price of an " +
			"outage while the member is away.",
	},
	{
		Name: GuardFollowersFirst, rules: []Rule{RuleDefragment}, judge: followersFirst,
		clears: true, overridable: true,
		Protects: "The leader is defragmented last, and not while it leads. It would keep every write waiting, and " +
			"the others would elect a new leader once it has been silent for long enough. (DEP-01 has the leader " +
			"last too, but in place.)",
		Looks: "It appears beside what keeps a follower; as `Wait` while no leader is known; as `Hold` when " +
			"leadership could not be moved twice.",
		Do: "Find out why the leader does not hand over (`etcdctl move-leader`). May be overridden: it is then " +
			"defragmented while it leads.",
	},
	{
		Name: GuardAppliesSnapshots, rules: []Rule{RuleDefragment}, judge: appliesSnapshots,
		asked: snapshotsUnsafe, clears: true, overridable: true,
		Protects: "Before etcd 3.5.23 and 3.6.5, a member that is defragmented while it applies a snapshot from the " +
			"leader may end up with a broken database (etcd-io/etcd#20271). etcd's API does not show a snapshot. But " +
			"one is sent only to a member that is thousands of entries behind, and that member answers no " +
			"linearizable read. So a member that answers them and is at most 500 entries behind receives none. The " +
			"guard is not asked about newer versions. It is not known which release of 3.4 fixed this, so it is " +
			"asked about all of 3.4.",
		Looks: "`Wait`: the verdict has the number of entries. A learner of such a version is never defragmented.",
		Do:    "Update etcd. May be overridden.",
	},
	{
		Name: GuardHostDefragments, rules: []Rule{RuleDefragment}, judge: hostDefragments,
		asked: hostHasSchedule, overridable: true,
		Protects: "etcd-backup-restore defragments all members on its own schedule, and asks nobody. Quorate then " +
			"only says what it would do, because two members at a time could cost the quorum. With an alarm NOSPACE " +
			"it does not wait.",
		Looks: "`Hold`: the verdict has the schedule. If nobody has asked for a defragmentation, it is `Idle`.",
		Do: "Leave it to the host. Or give the host a schedule that never comes, such as " +
			"`--defragmentation-schedule=\"0 0 30 2 *\"` (in an Etcd of etcd-druid " +
			"`spec.etcd.defragmentationSchedule`). May be overridden, while the host's next defragmentation is far " +
			"off.",
	},
	{
		Name: GuardOwnURL, rules: []Rule{RuleDefragment}, judge: ownURL, asked: answersAtShared, clears: true,
		Protects: "Several members may advertise the same URL, such as that of a Service. If a connection to it " +
			"breaks, the next one may lead to another member, and two members would be defragmented at once. So " +
			"Quorate sends this request only to a member's own URL.",
		Looks: "`Wait`: the member does not answer at its own URL now. `Hold`: it advertises none.",
		Do: "Find out why the member's own URL does not answer. If it has none, give each member one: set " +
			"`--advertise-client-urls` to the pod's own name. May not be overridden, because the request would not " +
			"be sent.",
	},
	{
		Name: GuardDefragmentFails, rules: []Rule{RuleDefragment}, judge: defragmentFails,
		asked: hasTried, overridable: true, clears: true,
		Protects: "A defragmentation that fails stops its member each time. After two failures in a row, or after " +
			"one that etcd does not permit, this coordinator does not try again. An attempt that could not even be " +
			"sent does not count, and is repeated after a pause.",
		Looks: "`Hold`: the verdict says how it failed. `Wait` until the next attempt.",
		Do: "A disk needs as much free space as the database has data. With authentication on, etcd's user needs the " +
			"role root. Then run `quorate defragment NAME` again.",
	},
	{
		Name: GuardNoSpace, // The duty itself holds by this name.
		Protects: "With an alarm NOSPACE etcd takes no writes. A defragmentation frees only what has been deleted " +
			"and compacted. Each coordinator rewrites a full database once in any case, because etcd shows what is " +
			"free only after the next write. The alarm is disarmed when every database is below 90 % of its quota. " +
			"Otherwise the next writes would raise it again. When a member leaves the list, etcd keeps its alarm " +
			"(etcd-io/etcd#14379), even if `quorate remove-member` removed it. Such an alarm says nothing about the " +
			"databases that are left. So it is disarmed as soon as none of them is known to be full, even while a " +
			"member does not answer.",
		Looks: "`Hold`: the reason names the database, its quota, and where the quota comes from; or it says why " +
			"etcd does not disarm the alarm. If members that have left the list raised it, the reason names their " +
			"IDs. `Wait`: Quorate will try again to disarm it.",
		Do: "Compact the history (`etcdctl compact REVISION`) and delete what is not needed; etcd permits both. Or " +
			"give etcd a larger quota (`--quota-backend-bytes`). If the quota is not the one in the reason, set the " +
			"option `quota-bytes`. If the option `keep-no-space` is set, ask with `quorate defragment NAME`. To end " +
			"the alarm by hand, whoever raised it, run `etcdctl alarm disarm`.",
	},
}
