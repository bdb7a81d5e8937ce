package rollout

import (
	"slices"
	"strconv"
	"strings"
)

// These guards are asked of every removal, whether the member serves or not.

func partitioned(a *Assessment, _ *Replica) bool { return a.policy.Partition > 0 }

func partition(a *Assessment, c *Replica) Verdict {
	return verdict(c.Ordinal >= a.policy.Partition, "ordinal %d, partition %d", c.Ordinal, a.policy.Partition)
}

// votersKnown: without a member list quorum counts as lost. Only a pod whose
// container is dead may go then: no process of it can be voting. A list that one member
// keeps may be an old one: it is good enough for what is dead. While there is a quorum, a member
// that serves, or that may vote, goes only when a quorum of the voters that it names have the
// same: of more voters than it names, those that are left might be none.
func votersKnown(a *Assessment, c *Replica) Verdict {
	etcd := &a.state.Etcd
	switch {
	case !etcd.Known:
		v := verdict(c.Liveness == Dead, "no member answers with a member list, so the voters are unknown")
		if etcd.Detail != "" {
			v.text = "; " + etcd.Detail
		}
		return v
	case !etcd.Linearizable && (c.Evidence != Down || a.Serving > 0 && c.Liveness != Dead):
		return verdict(etcd.Agreeing-btoi(a.state.Suspect.ID != 0) >= a.Quorum,
			"the member list comes from one member only, and %d of its %d voters return the same voters, quorum %d",
			etcd.Agreeing, a.Voters, a.Quorum)
	}
	return passed("voters in the member list: %d", a.Voters)
}

// dataSurvives: where the data dies with the pod, a removal must leave a quorum of
// voters that hold data. Containers that are dead keep an emptyDir too, but a pod that
// never became ready may have come up empty: a fix of a broken update makes it outdated,
// not full. What its own spec says counts as well: a template that has persistent volumes by
// now does not save what an older pod keeps elsewhere.
func dataSurvives(a *Assessment, c *Replica) Verdict {
	if claims := c.Pod.ClaimsGoing; len(claims) > 0 {
		return Verdict{text: "somebody has deleted its volume claim " + strings.Join(claims, ", ") + ", which goes " +
			"when the pod goes: its data would be lost"}
	}
	if !a.state.Set.VolatileData && !c.Pod.VolatileData {
		return passed("the data volume is persistent")
	}
	if a.policy.AllowVolatileData {
		return passed("the data volume is not persistent, which is allowed explicitly")
	}
	holding := 0
	for i := range a.Replicas {
		r := &a.Replicas[i]
		if r.Voter && r != c && r.stays() && (r.Evidence == Serving || r.Outdated && !r.Pod.NeverReady) {
			holding++
		}
	}
	holding += len(a.trusted)
	return verdict(a.Quorum > 0 && holding >= a.Quorum,
		"the data volume is not persistent: removing this one leaves %d of %d voters with data, quorum %d",
		holding, a.Voters, a.Quorum)
}

// orderedReady is true where the guard Recreation has anything to say: with Parallel it has not.
func orderedReady(a *Assessment, _ *Replica) bool { return a.state.Set.OrderedReady }

// recreation: with podManagementPolicy OrderedReady the StatefulSet controller creates a pod
// only when every lower ordinal is Running, Ready, available and not terminating. Removed
// before, a pod stays away for as long as a lower one is not. Where that is a live one, which
// may well be unready only because quorum is lost, nothing of ours can end it: a live pod never
// goes to open the way for another.
func recreation(a *Assessment, c *Replica) Verdict {
	var blocks *Replica
	for i := range a.Replicas {
		r := &a.Replicas[i]
		switch below := r.Ordinal < c.Ordinal; {
		case below && !letsHigherBeMade(a, r) && (blocks == nil || stuck(blocks)):
			blocks = r // The first that is not stuck: that one comes back, or goes, by itself.
		case !below && a.Serving == 0 && c.Liveness == Alive && r.Outdated && r.ContainerDead && !r.Going():
			return remedy("it runs, and would be removed only so that the dead pod of ordinal %d can be recreated",
				r.Ordinal)
		}
	}
	switch {
	case blocks == nil:
		return passed("every lower ordinal is Ready, so a removed pod is recreated at once")
	case stuck(blocks) && c.Liveness != NotDown:
		return remedy("it would not be recreated until the pod of ordinal %d is Ready, which runs and is left alone",
			blocks.Ordinal)
	}
	v := verdict(false, "it would not be recreated until the pod of ordinal %d is Ready", blocks.Ordinal)
	v.lasting = stuck(blocks)
	return v
}

// remedy names the way out where podManagementPolicy OrderedReady leaves none.
func remedy(format string, ordinal int) Verdict {
	v := verdict(false, format+": recreate the StatefulSet with podManagementPolicy Parallel "+
		"(kubectl delete statefulset --cascade=orphan, which leaves its pods, then apply it again)", ordinal)
	v.lasting = true
	return v
}

// letsHigherBeMade is true for a pod that the StatefulSet controller does not wait for before it creates a higher one.
func letsHigherBeMade(a *Assessment, r *Replica) bool {
	return !r.Going() && r.Pod.Ready && a.Age(r.Pod.UID, ReadySeen) >= a.state.Set.MinReady
}

// stuck is true for a pod whose etcd runs, and that is not Ready: nobody knows how long it
// stays so.
func stuck(r *Replica) bool {
	return !r.Going() && r.Pod.Etcd.State == ContainerRunning && !r.Pod.Ready
}

// maxLabel is how long the value of a label may be. The name of its revision is one of every pod.
const maxLabel = 63

// mayNotReturn is true where the guard Returns has anything to say.
func mayNotReturn(a *Assessment, _ *Replica) bool {
	return len(a.state.Set.UpdateRevision) > maxLabel ||
		slices.ContainsFunc(a.Replicas, func(r Replica) bool { return r.blocksHigher() })
}

// blocksHigher is true for a pod at which the StatefulSet controller fails, and goes no further: the StatefulSet has a
// claim template that the pod has no volume for, and the volumes of a pod cannot be changed (kubernetes#141876). One
// that has finished is deleted before that is looked at.
func (r *Replica) blocksHigher() bool {
	return !r.Going() && !r.Pod.Finished && len(r.Pod.Unclaimed) > 0
}

// returns: what is removed has to come back. The candidate itself gets every claim when it is created anew, so only the
// pods below it count, and from the lowest ordinal upwards all can go.
func returns(a *Assessment, c *Replica) Verdict {
	if why := staysAway(a, c.Ordinal); why != "" {
		return Verdict{text: "it would not come back: " + why}
	}
	return passed("every lower pod has the volumes of the StatefulSet's claim templates")
}

// staysAway says why a pod of this ordinal cannot be created, empty if nothing is known against it.
func staysAway(a *Assessment, ordinal int) string {
	if revision := a.state.Set.UpdateRevision; len(revision) > maxLabel {
		return "the name of the new revision, " + revision + ", has " + strconv.Itoa(len(revision)) +
			" characters; it is a label of every new pod, and a label has at most " + strconv.Itoa(maxLabel)
	}
	for i := range a.Replicas {
		if r := &a.Replicas[i]; r.Ordinal < ordinal && r.blocksHigher() {
			return "the StatefulSet controller fails at " + r.Name + ", which has no volume for the claim template " +
				strings.Join(r.Pod.Unclaimed, ", ") + ", before it creates any pod above it"
		}
	}
	return ""
}

// notCreated says why a pod that is missing is not created, as far as that is known, and nothing otherwise.
func (a *Assessment) notCreated() string {
	text := ""
	for i := range a.Replicas {
		if r := &a.Replicas[i]; r.Pod == nil && text == "" {
			if why := staysAway(a, r.Ordinal); why != "" {
				text = "; " + r.Name + " is not created: " + why
			}
		}
	}
	if said := a.state.Set.NotCreated; said != "" {
		text += "; the StatefulSet controller says: " + said
	}
	return text
}
