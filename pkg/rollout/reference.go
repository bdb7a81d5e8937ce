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
		Protects: "Only a StatefulSet with `updateStrategy: OnDelete`, with replicas and not being deleted, is " +
			"rolled by Quorate. With any other strategy the StatefulSet controller does it.",
		Looks: "`Idle`. Nothing happens, whatever is outdated.",
		Do: "Set `updateStrategy: {type: OnDelete}` if Quorate is to roll it. For an Etcd of etcd-druid, the " +
			"policy in `deploy/druid` does that.",
	},
	{
		Name: RuleHeld,
		Protects: "No decision rests on stale or contradictory facts, and the operator's pause comes before " +
			"everything else.",
		Looks: "`Hold` or `Wait` with one of the guards Paused, BadControl, StaleRevision, Inconsistent, " +
			"Corrupt, CutOff.",
		Do: "See the guard.",
	},
	{
		Name: RuleMakeWay,
		Protects: "While others are about to take the leader's pod (see OthersLeaving), or its node is cordoned, " +
			"leadership moves to a voter that stays, so that the drain costs no election. This is done between " +
			"rollouts too, and not without the lock. Once a cordon is not waited for any more, no voter leads " +
			"instead that is outdated, or next to be defragmented. If no such voter serves, or two transfers have " +
			"failed, leadership stays: etcd's own shutdown tries once more.",
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
		Protects: "Outdated pods whose members do not serve go first, dead before starting before alive: the " +
			"update may cure them, and they cost no quorum (DEP-06; DEP-07 step 2). Always by DELETE: a " +
			"PodDisruptionBudget would block exactly here.",
		Do: "Nothing; see the guards MayVote, QuorumPatience, RevisionSuspect, DataSurvives, Recreation " +
			"when it does not act.",
	},
	{
		Name: RuleUpdatedSettle,
		Protects: "Updated pods settle before a serving member goes (DEP-07 step 3). An updated pod that fails " +
			"stops the rollout after that one pod; its fix makes it outdated again, and it is replaced " +
			"first (kubernetes#67250).",
		Looks: "`Hold` UpdatedFailing, or `Wait` UpdatedPending or Terminating.",
		Do:    "See the guard.",
	},
	{
		Name: RuleServing,
		Protects: "Serving members go one a cycle: sick sidecars first, followers before the leader, unknown " +
			"ones last, the coordinator's own pod last among equals, higher ordinals first (DEP-06's " +
			"preference order, DEP-07 step 4).",
		Do: "Nothing; see the guards when it does not act.",
	},
	{
		Name: RuleHandOverLeadership,
		Protects: "A leader hands leadership to the best voter before it goes, so that a healthy rollout costs " +
			"one change of leader and no election. Where several pods may go at once, it does so before the " +
			"first of them goes beside another, while every voter serves. After two failed transfers its pod goes " +
			"all the same: etcd's own shutdown tries once more.",
		Looks: "`MoveLeader`, for a moment.",
		Do:    "Nothing.",
	},
	{
		Name: RuleRemoveGhost,
		Protects: "A ghost is a member that an ordinal of ours has left behind on etcd's list, for example after a " +
			"scale-in that nobody finished. It is told, and it is removed when an operator asks (`quorate " +
			"remove-member`), one at a time (DEP-01, \"Removing an existing member\"). This is a duty of its own: it " +
			"is tried after the rules above, and also when one of them waits or holds.",
		Looks: "`RemoveMember`, for a moment; `Wait` or `Hold` with one of the guards RequestBinding, NoGhost, " +
			"PodsServe, MembershipMoves, GhostQuorum, OldSidecars, SuspectMember while the request stands; `Wait` " +
			"without a guard while the lock in etcd cannot be had.",
		Do: "See the guard. A request stands for ten minutes.",
	},
	{
		Name: RuleDefragment,
		Protects: "Members are defragmented one at a time: followers first, and the leader last, after it has handed " +
			"over. That happens when an operator asks for it (`quorate defragment`), when the option " +
			"`defragment-when` says so, and with an alarm NOSPACE, which is then disarmed. This too is a duty of " +
			"its own, and the last one.",
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

A decision tries the rules from the top; the first that applies decides. A removal must
pass all guards of its rule. The names below are the words in logs and in the output of
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

Terminating, UpdatedPending and UpdatedFailing are each about one pod. Where it is known what keeps that pod, ` +
		"`quorate\nstatus` and `quorate plan`" + ` give the advice that fits, with the real names. The first that
applies counts.

`)
	for i := range obstacles {
		fmt.Fprintf(&b, "- **%s%s.** %s\n", strings.ToUpper(obstacles[i].looks[:1]), obstacles[i].looks[1:],
			obstacles[i].do)
	}
	b.WriteString("\n")
	fmt.Fprintf(&b, "## Overriding\n\n"+
		"The annotation `%s` on the Lease `quorate-<statefulset>` names guards, separated by\n"+
		"commas, that are not to hold: %s. "+
		"The others make the facts themselves unusable, or have a control of their own.\n\n"+
		"`%s` ends that at a time (RFC 3339), and `%s` as soon as\n"+
		"the StatefulSet has another update revision. Without them it lasts until the annotation is removed.\n"+
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
