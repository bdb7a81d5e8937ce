package rollout

// These guards are asked before a member goes that does not serve.

// mayVote: while some member serves, a quorum exists, and it may include members
// that do not serve us: a broken client listener makes a voting member look dead
// to both witnesses. Unless the serving voters alone are a quorum, a process goes
// only if those that are left can still be one (stricter than DEP-07 step 2). What is
// starting may have started since and is spared like a process; but it is not counted
// among those that are left, and neither is a ghost, for then a quorum that votes now
// would go for one that may come. Nor is an Unknown member: its process may have ended or
// hung, and its kubelet not have noticed yet. Nor is one that others are about to take: while its
// pod is not Ready, no budget keeps it.
func mayVote(a *Assessment, c *Replica) Verdict {
	switch {
	case a.Serving == 0:
		return passed("no voter serves, so no quorum can be broken")
	case c.Member != nil && !c.Voter, c.Member == nil && len(a.External) == 0:
		return passed("the member does not vote")
	case c.Liveness == Dead:
		return noneVotesInSecret(a)
	}
	if left := a.survivorsWithout(c); left >= a.Quorum {
		return passed("%d of %d voters serve, quorum %d is reached without this one", left, a.Voters, a.Quorum)
	}
	left := votingElsewhere(a, c)
	for i := range a.Replicas {
		if r := &a.Replicas[i]; r != c && (r.survives() || r.Voter && r.stays() && r.Evidence == Down && runs(r.Pod)) {
			left++
		}
	}
	v := verdict(left >= a.Quorum,
		"%d of %d voters serve, quorum %d: without this process %d could still vote",
		a.Serving, a.Voters, a.Quorum, left)
	if !v.Pass {
		v.text = a.unanswered()
	}
	for i := range a.Replicas {
		if r := &a.Replicas[i]; !v.Pass && r != c && r.yields && !r.Going() {
			v.text += "; not counted on: " + a.leaver(r)
		}
	}
	return v
}

// noneVotesInSecret: a member that serves proves that a quorum votes. Where fewer voters than that stay and are not
// dead, one of those that are called dead may vote all the same, and nobody knows which.
func noneVotesInSecret(a *Assessment) Verdict {
	mayRun := a.Voters
	for i := range a.Replicas {
		r := &a.Replicas[i]
		mayRun -= btoi(r.Voter && (r.Going() || r.ContainerDead && r.Evidence != Serving && r.believed))
	}
	if mayRun < a.Quorum {
		return verdict(false, "%d of %d voters serve, quorum %d, but only %d stay and are not dead: one that "+
			"looks dead may vote",
			a.Serving, a.Voters, a.Quorum, mayRun)
	}
	return passed("the container is dead, no process votes")
}

// votingElsewhere counts the voters without a replica that serve, and so vote, when c goes:
// whether they may be relied on for longer is another question, unless their pods
// terminate. c and every pod that terminates may run one of them where no member could be
// matched to it. (A pod that is missing runs nothing.)
func votingElsewhere(a *Assessment, c *Replica) int {
	voting := len(a.trusted) + a.untrusted - a.terminating
	for i := range a.Replicas {
		if r := &a.Replicas[i]; r.Member == nil && r.Pod != nil && (r == c || r.Pod.Terminating) {
			voting--
		}
	}
	return max(0, voting)
}

// quorumPatience: with quorum lost, a live process rejoins the moment a peer
// returns; restarting all at once turns a blip into an outage (DEP-07 does that).
// One goes only when quorum has stayed lost and nothing else is under way.
func quorumPatience(a *Assessment, c *Replica) Verdict {
	if a.servingForSure > 0 {
		return passed("%d of %d voters serve", a.Serving, a.Voters)
	}
	if c.Liveness != Alive {
		return passed("the process does not run, waiting cannot help it")
	}
	patience := int(a.policy.SettleTimeout.Seconds())
	if lost := a.Age("", QuorumLostSeen); lost < a.policy.SettleTimeout {
		v := verdict(false, "quorum has been lost for %d s; a live process is left alone for %d s, it rejoins when "+
			"a peer returns", int(lost.Seconds()), patience)
		v.text = a.unanswered()
		return v
	}
	for i := range a.Replicas {
		r := &a.Replicas[i]
		switch {
		case r.Going():
			return verdict(false, "quorum is lost and the pod of ordinal %d is still missing or terminating", r.Ordinal)
		case r.Outdated:
		case r.ContainerDead:
			return verdict(false, "quorum is lost and the updated pod of ordinal %d is dead: the update does not "+
				"cure it", r.Ordinal)
		case a.Age(r.Pod.UID, PodSeen) < a.policy.SettleTimeout:
			return verdict(false, "quorum is lost and the updated pod of ordinal %d gets %d s to come up",
				r.Ordinal, patience)
		}
	}
	return passed("quorum has been lost for more than %d s and nothing is coming up", patience)
}

// revisionSuspect: until one pod of the new revision has settled, nothing is known in its
// favour, and while one of them is failing it is suspect. A member whose node just rebooted
// comes back by itself on the old revision. So as long as a pod is under way to the new one,
// none follows that may come back: no process that runs, and nothing that has been down for
// less than settleTimeout. A broken revision then costs at most one member that served or
// would have come back. What a kubelet has tried to start and backs off from does not come
// back by itself; it waits only while the revision fails. Nor does a pod that has finished as a whole.
func revisionSuspect(a *Assessment, c *Replica) Verdict {
	t, backsOff := a.trial, c.Liveness == Dead && (c.Pod.Etcd.State == ContainerWaiting || c.Pod.Finished)
	switch {
	case t.underWay == 0 || t.settled > 0:
		return passed("pods of the new revision under way: %d, settled: %d", t.underWay, t.settled)
	case t.failing == 0 && backsOff:
		return passed("no pod of the new revision has settled yet (under way: %d), but this one does not come back "+
			"by itself", t.underWay)
	case t.failing == 0 && c.Liveness == Alive:
		return verdict(false, "no pod of the new revision has settled yet (under way: %d), and this process runs",
			t.underWay)
	case c.Liveness == Alive:
		return verdict(false, "the new revision is suspect (updated pods failing: %d, settled: 0), and this process "+
			"runs", t.failing)
	}
	down, patience := c.deadFor, int(a.policy.SettleTimeout.Seconds())
	if t.failing == 0 {
		return verdict(down >= a.policy.SettleTimeout,
			"no pod of the new revision has settled yet (under way: %d); this one may come back by itself, and has "+
				"been down for %d s of %d s",
			t.underWay, int(down.Seconds()), patience)
	}
	return verdict(down >= a.policy.SettleTimeout,
		"the new revision is suspect (updated pods failing: %d, settled: 0); this one has been down for %d s of %d s",
		t.failing, int(down.Seconds()), patience)
}
