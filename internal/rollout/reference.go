package rollout

import (
	"fmt"
	"strings"
)

// Entry documents a rule or a guard: the page docs/reference.md is made of these, and a
// test keeps the two together.
type Entry struct {
	// Name is the rule's or guard's stable name.
	Name string
	// Protects says what it is for, with the source of the rule.
	Protects string
	// Looks says what a rollout looks like while it holds; empty for a rule that acts.
	Looks string
	// Do says what an operator does about it.
	Do string
}

// Rules are the rules, in the order in which they are tried.
var Rules = []Entry{
	{string(RuleNotOurs), "Only a StatefulSet with `updateStrategy: OnDelete`, with replicas and not being deleted, is rolled by Quorate. With any other strategy the StatefulSet controller does it.", "`Idle`. Nothing happens, whatever is outdated.", "Set `updateStrategy: {type: OnDelete}` if Quorate is to roll it (etcd-druid: feature gate of DEP-07)."},
	{string(RuleHeld), "No decision rests on stale or contradictory facts, and the operator's pause comes before everything else.", "`Hold` or `Wait` with one of the guards Paused, BadControl, StaleRevision, Inconsistent, Corrupt, CutOff.", "See the guard."},
	{string(RuleComplete), "Nothing at or above the partition is outdated, missing or unsettled.", "`Complete`.", "Nothing."},
	{string(RuleNotServingFirst), "Outdated pods whose members do not serve go first, dead before starting before alive: the update may cure them, and they cost no quorum (DEP-06; DEP-07 step 2). Always by DELETE: a PodDisruptionBudget would block exactly here.", "", "Nothing; see the guards MayVote, QuorumPatience, RevisionSuspect, DataSurvives, Recreation when it does not act."},
	{string(RuleUpdatedSettle), "Updated pods settle before a serving member goes (DEP-07 step 3). An updated pod that fails stops the rollout after that one pod; its fix makes it outdated again, and it is replaced first (kubernetes#67250).", "`Hold` UpdatedFailing, or `Wait` UpdatedPending or Terminating.", "See the guard."},
	{string(RuleServing), "Serving members go one a cycle: sick sidecars first, followers before the leader, unknown ones last, the coordinator's own pod last among equals, higher ordinals first (DEP-06's preference order, DEP-07 step 4).", "", "Nothing; see the guards when it does not act."},
	{string(RuleHandOverLeadership), "A leader hands leadership to the best voter before it goes, so that a healthy rollout costs one change of leader and no election. After two failed transfers its pod goes all the same: etcd's own shutdown tries once more.", "`MoveLeader`, for a moment.", "Nothing."},
}

// Guards are the guards: first those that hold everything, then those of a removal.
var Guards = []Entry{
	{string(GuardPaused), "The operator's word.", "`Hold`: the Lease `quorate-<statefulset>` has " + ControlPaused + ": \"true\".", "Remove the annotation, or set it to \"false\"."},
	{string(GuardBadControl), "A control that cannot be read is never guessed at.", "`Hold`: the reason names the annotation, its value and what is allowed.", "Correct the annotation on the Lease."},
	{string(GuardStaleRevision), "While the StatefulSet controller has not observed the newest template, `status.updateRevision` describes an older one, and up-to-date pods would be taken for outdated or the reverse.", "`Wait`, normally for well under a second.", "If it lasts, look at the StatefulSet controller (kube-controller-manager)."},
	{string(GuardInconsistent), "Two facts contradict each other, or one tells nothing: two pods of one ordinal, two members of one name or under one pod, two leaders at one term, a member of another cluster, a pod without the container that etcd is expected to run in.", "`Hold`: the reason names them.", "Find out which is wrong. A foreign cluster ID usually is DNS or an endpoint that leads elsewhere. If the containers have other names, say which (`--etcd-container`, `--sidecar-container`); a pod whose template has lost etcd's container has to be deleted by hand once the template is right."},
	{string(GuardCorrupt), "A CORRUPT alarm means that members' data differ. No update cures it, and a read that succeeds proves nothing.", "`Hold`.", "Follow etcd's disaster recovery for data corruption; disarm the alarm afterwards. May be overridden."},
	{string(GuardCutOff), "No other member answers although kubelets report their containers ready: then it is this coordinator that is cut off, and it must not act on what it cannot see.", "`Hold` until another member answers or another sidecar takes over.", "Mend the network of the coordinator's pod or node. May be overridden."},
	{string(GuardVotersUnknown), "Without a member list nobody knows who votes. Quorum counts as lost, and only pods whose container is dead may go. Where no list could be read through consensus, one member's own is used, which may be old: while some member serves, only pods whose container is dead go, and all others only when a quorum of the voters on it return the same voters.", "`Hold`: no member answers with a member list, or too few have the same.", "See that at least one member and the certificates are well. May be overridden."},
	{string(GuardUpdatedFailing), "A revision that fails on one pod must not reach the next.", "`Hold`: the updated pod is dead, or has not settled within `--settle-timeout`.", "See why the pod fails (`kubectl describe pod`, its logs, those of its sidecar). Fix or roll back the template: the failing pod is replaced first. With quorum lost no pod can settle, however right the template is: then the reason names the guard that keeps the next pod (RevisionSuspect for a process that runs), and if the template is the cure, override that one. May be overridden."},
	{string(GuardUpdatedPending), "An updated pod that is still coming up counts as unavailable. One of which a container has restarted has to stay Ready for ten seconds first: a crash loop without a readiness probe is Ready for a moment at every start.", "`Wait`.", "Nothing, until it turns into UpdatedFailing."},
	{string(GuardTerminating), "A pod that is missing or terminating counts as unavailable; its processes may still run.", "`Wait`, for as long as the grace period and the recreation take.", "If it lasts: the pod's node may be lost (`kubectl get nodes`), or recreation fails (`kubectl describe statefulset`)."},
	{string(GuardPartition), "Ordinals below the partition stay as they are. It cannot bind a crash: under OnDelete every recreated pod gets the new revision.", "`Complete` or `Hold`, with outdated pods below the partition.", "Lower or remove " + ControlPartition + " on the Lease."},
	{string(GuardMayVote), "\"Down\" is not \"not voting\": readiness is false on every pod when quorum is lost, and a broken client listener makes a voting member look dead to both witnesses. While some member serves, a process goes only if the serving voters alone are a quorum or those left could still be one: they serve, or are Down while their process runs. A member that is Unknown does not count: it may hang without its kubelet having noticed. DEP-07 step 2 deletes it.", "`Hold`: the verdict says how many could still vote.", "Bring another member back, or cure the listener. May be overridden."},
	{string(GuardQuorumPatience), "With quorum lost, a live process rejoins the moment a peer returns; restarting all at once turns a blip into an outage (DEP-07 does that). It is left alone for `--settle-timeout`, and as long as anything else is still coming up.", "`Wait`: the verdict says for how long quorum has been lost.", "Bring a peer back. If the update is the cure for live processes too: wait, or override."},
	{string(GuardRevisionSuspect), "Until one pod of the new revision has settled, nothing is known in its favour, and a member whose node merely rebooted comes back by itself on the old one. So while a pod of the new revision is under way (terminating, missing, or not settled yet) no other goes that may come back: no process that runs, and nothing that has been down for less than `--settle-timeout`. A broken revision then costs at most one member that served or would have come back. What its kubelet backs off from (CrashLoopBackOff, ImagePullBackOff) goes at once, and while an updated pod fails after `--settle-timeout`.", "`Wait` for the pod that is under way, or `Hold` once it fails.", "Nothing while it comes up. Then fix or roll back the template. Where quorum is lost for good and the update is the cure, it cannot prove itself before others follow: override this guard. May be overridden."},
	{string(GuardDataSurvives), "Where the data dies with the pod (no persistent volume), a removal must leave a quorum of voters that hold data: they serve, or their outdated pod has been ready once. The volume that is mounted where etcd keeps its data decides, whatever else is mounted: `--etcd-data-dir`, else `--data-dir` or `ETCD_DATA_DIR` in the pod template, else /var/etcd/data; a log elsewhere (`--wal-dir`) counts like the data. So it is asked of the template and of the very pod, which may be of an older template with another volume. A directory that a configuration file of etcd's own names cannot be seen.", "`Hold`: the verdict counts the voters with data.", "Use persistent volumes. Where the template has them by now and an old pod has not, its data does not move by itself: take a backup first. If the volumes are persistent, say where the data is with `--etcd-data-dir`. For one member, or if the data may be lost, allow it explicitly or override."},
	{string(GuardQuorumFloor), "The serving voters that stay, without the one removed and without everything already going, are at least a quorum of the voters in etcd's member list. Voters without a pod in the StatefulSet's ordinals (members elsewhere, ghosts, pods that are being scaled away) count as voters and not among those that stay, because they may go at any time without asking Quorate; `--trusted-members` names those elsewhere that may be relied on. One voter with one replica is exempt; two voters always hold.", "`Hold`: \"2 of 3 voters serve, quorum 2, removing this one leaves 1\".", "Bring members back; remove ghosts and members that were scaled away with `etcdctl member remove`; make two voters three or one; see [one etcd cluster in several StatefulSets](operations.md#one-etcd-cluster-in-several-statefulsets). If the mapping has failed: name the members like their pods, or let their peer URLs begin with the pod's name. May be overridden, at the price of quorum."},
	{string(GuardUnavailableBudget), "At most `--max-unavailable` members of ours (a number, or a percentage of the replicas, rounded down and at least 1: KEP-961) are unavailable at once: not serving, missing, terminating, or updated and not settled. An outdated pod that serves with a sick sidecar does not count, or three sick sidecars would block their own cure (cluster-etcd-operator#994).", "`Wait`: the verdict counts them.", "Bring the unavailable member back. May be overridden."},
	{string(GuardCanary), "The first pod of a revision goes alone, also where the budget would allow more.", "`Wait`, until the first updated pod has settled.", "Nothing. May be overridden."},
	{string(GuardEndpointFloor), "Clients reach etcd through a Service that lists only Ready pods: removing a Ready pod leaves a quorum of replicas Ready. A pod that is not Ready costs no endpoint.", "`Wait`: the verdict counts Ready pods.", "Bring the unready pods' containers back, the sidecars' included. May be overridden."},
	{string(GuardRecreation), "With `podManagementPolicy: OrderedReady`, the API's default, the StatefulSet controller creates a pod only when every lower ordinal is Running, Ready, available and not terminating. A pod that is removed before stays away. So the lowest goes first of those that do not serve, and a live pod never goes only to open the way for a dead one. With `Parallel` it is not asked.", "`Wait` while a lower pod comes up; `Hold` while a live one below is not Ready.", "Bring the lower pod back. Where it is not Ready because quorum is lost, and the dead ones above cannot be recreated before: `kubectl delete statefulset NAME --cascade=orphan`, which leaves its pods, and apply it again with `podManagementPolicy: Parallel`. May be overridden: the pod then stays away until the lower ones are Ready."},
	{string(GuardCaughtUp), "A survivor that lags cannot stand in soon, so only those less than `--max-lag` entries behind count towards the floor.", "`Wait`: the verdict names the lag.", "Wait for the follower to catch up; look at its disk and network if it does not. Where statuses are missing, give them, or see why the members do not answer. May be overridden."},
	{string(GuardHostGates), "The host's own checks, such as that the last backup succeeded (DEP-01). A pod whose sidecar is sick is not bound by them unless the gate says so: it would block its own cure.", "`Hold`: the verdict names the gate.", "Cure what the gate checks. May be overridden."},
	{string(GuardLeaderLast), "A healthy leader never goes before a follower that is a candidate, whatever keeps the follower. While the members that answer agree on no leader, as during an election, every voter may be it, and none goes.", "Together with what keeps the follower; or `Wait`: no leader is known.", "Look at what keeps the followers. If no leader is known for longer than an election takes: see what the members' statuses say (`etcdctl endpoint status --cluster`). May be overridden."},
	{string(GuardDisruptionBudget), "A Ready pod goes through the eviction API, unless `--removal=delete` says otherwise: a PodDisruptionBudget is the only arbiter between Quorate and a drain, and a DELETE does not charge it. It may refuse (HTTP 429 means: not now). A dry run asks it first, which charges nothing and changes nothing. While a pod has just become Ready it is asked again after 100 ms and then twice that, else after seconds.", "`Wait`: the reason quotes the API server, which names the budget and its numbers. `Hold` where no waiting helps: more than one budget matches the pod, or the budget needs as many healthy pods as there are.", "See what the budget counts (`kubectl describe poddisruptionbudget`): bring unhealthy pods back. Where it holds: leave one budget that matches the pods, and let it allow one of them to go (`maxUnavailable: 1`); or remove with `--removal=delete`, so that Quorate's own guards decide alone. The sidecars that run have the old flag: to let them delete at once, override the guard. May be overridden: then pods are deleted, and a drain may take another one before the budget has noticed."},
}

// Reference renders the reference page in Markdown.
func Reference() string {
	var b strings.Builder
	b.WriteString(`# Rules and guards

<!-- Made from internal/rollout/reference.go; change it there and run
     go test ./internal/rollout -run Reference -update -->

A decision tries the rules from the top; the first that applies decides. A removal must
pass all guards of its rule. The names below are the words in logs and in the output of
` + "`quorate plan`" + `, which shows every guard's verdict for every candidate with its numbers.

## Rules

`)
	section(&b, Rules)
	b.WriteString("## Guards\n\n")
	section(&b, Guards)
	fmt.Fprintf(&b, "## Overriding\n\nThe annotation `%s` on the Lease `quorate-<statefulset>` names guards, separated by\ncommas, that are not to hold: %s. The others make the facts themselves unusable, or have a control of their own.\n",
		ControlOverrideGuards, strings.Join(Overridable(), ", "))
	return b.String()
}

func section(b *strings.Builder, entries []Entry) {
	for _, e := range entries {
		fmt.Fprintf(b, "### %s\n\n%s\n\n", e.Name, e.Protects)
		if e.Looks != "" {
			fmt.Fprintf(b, "- **Looks like:** %s\n", e.Looks)
		}
		fmt.Fprintf(b, "- **What to do:** %s\n\n", e.Do)
	}
}
