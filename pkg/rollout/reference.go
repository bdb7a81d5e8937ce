package rollout

import (
	"fmt"
	"strings"
)

// RuleText is what the reference page says of a rule.
type RuleText struct {
	Name Rule
	// Protects says what the rule is for, with its source.
	Protects string
	// Looks says what a rollout looks like while the rule keeps it; empty for a rule that acts.
	Looks string
	// Do says what an operator does about it.
	Do string
}

// Rules are the rules, in the order in which they are tried.
var Rules = []RuleText{
	{
		Name: RuleNotOurs,
		Protects: "Quorate rolls only a StatefulSet that has `updateStrategy: OnDelete`, has replicas, and is not " +
			"being deleted. With any other strategy the StatefulSet controller does it.",
		Looks: "`Idle`. Nothing happens, whatever is outdated.",
		Do: "To have Quorate roll it, set `updateStrategy: {type: OnDelete}`. For an Etcd of etcd-druid, the policy " +
			"in `deploy/druid` does that.",
	},
	{
		Name: RuleHeld,
		Protects: "No decision rests on stale or contradictory facts. The operator's pause comes before everything " +
			"else.",
		Looks: "`Hold` or `Wait` with one of the guards Paused, BadControl, StaleRevision, Inconsistent, " +
			"Corrupt, CutOff.",
		Do: "See the guard.",
	},
	{
		Name: RuleMakeWay,
		Protects: "While others are about to take the leader's pod (see OthersLeaving), or while its node is " +
			"cordoned, leadership moves to a voter that stays. So the drain costs no election. This happens between " +
			"rollouts too, but not without the lock. Once Quorate no longer waits for a cordon, leadership does not " +
			"move to a voter that is outdated or next to be defragmented. If no such voter serves, or if two " +
			"transfers have failed, leadership stays: etcd tries once more when it shuts down.",
		Looks: "`MoveLeader`, for a moment.",
		Do:    "Nothing.",
	},
	{
		Name:     RuleComplete,
		Protects: "Nothing at or above the partition is outdated, missing or unsettled.",
		Looks:    "`Complete`.",
		Do:       "Nothing.",
	},
	{
		Name: RuleNotServingFirst,
		Protects: "Outdated pods whose members do not serve go first: dead ones, then starting ones, then live ones. " +
			"The update may cure them, and they cost no quorum (DEP-06; DEP-07 step 2). They are always deleted, " +
			"because a PodDisruptionBudget would refuse an eviction exactly here.",
		Do: "Nothing. If it does not act, see the guards MayVote, QuorumPatience, RevisionSuspect, DataSurvives and " +
			"Recreation.",
	},
	{
		Name: RuleUpdatedSettle,
		Protects: "Updated pods settle before a serving member goes (DEP-07 step 3). If an updated pod fails, the " +
			"rollout stops after that one pod. Its fix makes the pod outdated again, and it is replaced first " +
			"(kubernetes#67250).",
		Looks: "`Hold` UpdatedFailing, or `Wait` UpdatedPending or Terminating.",
		Do:    "See the guard.",
	},
	{
		Name: RuleServing,
		Protects: "Serving members go one at a time: those with sick sidecars first, followers before the leader, " +
			"and unknown ones last. Among equals the coordinator's own pod goes last, and higher ordinals go first " +
			"(DEP-06's preference order, DEP-07 step 4).",
		Do: "Nothing; see the guards when it does not act.",
	},
	{
		Name: RuleHandOverLeadership,
		Protects: "A leader hands over to the best voter before it goes, so that a healthy rollout costs one change " +
			"of leader and no election. If several pods may go at once, it does so before the first of them goes, " +
			"while every voter serves. After two failed transfers its pod goes all the same: etcd tries once more " +
			"when it shuts down.",
		Looks: "`MoveLeader`, for a moment.",
		Do:    "Nothing.",
	},
	{
		Name: RuleRemoveGhost,
		Protects: "A ghost is a member that one of the StatefulSet's former ordinals has left on etcd's list, for " +
			"example after a scale-in that nobody finished. Quorate reports it. Quorate removes it when an operator " +
			"asks (`quorate remove-member`), one at a time (DEP-01, \"Removing an existing member\"). This is a duty " +
			"of its own: it is tried after the rules above, even if one of them waits or holds.",
		Looks: "`RemoveMember`, for a moment; `Wait` or `Hold` with one of the guards RequestBinding, NoGhost, " +
			"PodsServe, MembershipMoves, GhostQuorum, OldSidecars, SuspectMember while the request stands; `Wait` " +
			"without a guard while the lock in etcd cannot be had.",
		Do: "See the guard. A request is valid for ten minutes.",
	},
	{
		Name: RuleDefragment,
		Protects: "Members are defragmented one at a time: followers first, and the leader last, after it has handed " +
			"over. That happens when an operator asks for it (`quorate defragment`), when the option " +
			"`defragment-when` says so, and with an alarm NOSPACE, which is then disarmed. This is a duty of its own " +
			"too, and the last one.",
		Looks: "`Defragment`, `MoveLeader` or `Disarm`, for as long as they take.",
		Do:    "Nothing; see the guards when it does not act.",
	},
}

// Reference renders the reference page in Markdown.
func Reference() string {
	var b strings.Builder
	b.WriteString(`# Rules and guards

<!-- Made from pkg/rollout/table.go and reference.go; change it there and run
     go test ./pkg/rollout -run Reference -update -->

A decision tries the rules from the top, and the first one that applies decides. A removal
must pass all guards of its rule. The names below are those in logs and in the output of
` + "`quorate plan`" + `, which shows every guard's verdict for every candidate with its numbers.

Options have the names that they have in the configuration file. As flags they are
` + "`--settle-timeout` in `quorate sidecar`, and `--pod-update-settle-timeout` in a host such as\n" +
		"etcdbrctl" + `. [The settings](settings.md) explain them.

## Rules

`)
	for _, e := range Rules {
		section(&b, string(e.Name), e.Protects, e.Looks, e.Do)
	}
	b.WriteString("## Guards\n\n")
	for i := range Guards {
		e := &Guards[i]
		section(&b, string(e.Name), e.Protects, e.Looks, e.Do, e.Commands...)
	}
	b.WriteString(`## What keeps a new pod from settling

Terminating, UpdatedPending and UpdatedFailing are each about one pod. If Quorate knows what keeps that pod, ` +
		"`quorate\nstatus` and `quorate plan`" + ` give the advice that fits, with the real names. The first one that
applies counts.

`)
	for i := range obstacles {
		fmt.Fprintf(&b, "- **%s%s.** %s\n", strings.ToUpper(obstacles[i].looks[:1]), obstacles[i].looks[1:],
			obstacles[i].do)
	}
	b.WriteString("\n")
	fmt.Fprintf(&b, "## Overriding\n\n"+
		"The annotation `%s` on the Lease `quorate-<statefulset>` names guards, separated by\n"+
		"commas, that should not hold: %s. "+
		"The others find the facts themselves unusable, or have a control of their own.\n\n"+
		"`%s` ends the override at a time (RFC 3339), and `%s` as soon as\n"+
		"the StatefulSet has another update revision. Without them, it lasts until the annotation is removed.\n"+
		"`%s` and `%s` say who has set it, and why. `quorate override` writes all of them.\n",
		ControlOverrideGuards, strings.Join(Overridable(), ", "), ControlOverrideUntil, ControlOverrideRevision,
		ControlOverrideBy, ControlOverrideReason)
	return b.String()
}

func section(b *strings.Builder, name, protects, looks, do string, commands ...string) {
	fmt.Fprintf(b, "### %s\n\n%s\n\n", name, protects)
	if looks != "" {
		fmt.Fprintf(b, "- **Looks like:** %s\n", looks)
	}
	fmt.Fprintf(b, "- **What to do:** %s\n", do)
	for _, c := range commands {
		fmt.Fprintf(b, "  - `%s`\n", c)
	}
	b.WriteString("\n")
}
