package rollout

import (
	"cmp"
	"slices"
	"strconv"
	"time"
)

const (
	// fullAt is from which percentage of its quota on a database counts as full. An alarm NOSPACE is disarmed only
	// when every database is below it: else the next writes would raise it again.
	fullAt = 90
	// leastGain is the least part of a database, in percent, that has to be free for a defragmentation that an
	// operator asks for, or that NOSPACE asks for. After one, a few pages are always free, so it is not less than
	// leastFree bytes either.
	leastGain = 5
	leastFree = 256 << 10
	// mostFailures is how many defragmentations of a member in a row may fail.
	mostFailures = 2
	// mostDisarmed is how often the alarm of one member is disarmed in one turn.
	mostDisarmed = 2
)

// cause is why members are defragmented.
type cause uint8

const (
	unasked   cause = iota // The policy may want it.
	requested              // An operator asks for it.
	noSpace                // etcd takes no writes.
)

// defragmenting is what the duty that defragments members asks.
type defragmenting struct {
	*Assessment
	// why is the best reason that there is to do it.
	why cause
	// alarmed are the IDs of the members that have raised the alarm NOSPACE, as all members tell it. First come those
	// that have left etcd's list, because no database has to become smaller for them. These alone are gone.
	alarmed, gone []uint64
}

func defragmentingOf(on *Assessment) defragmenting {
	a := defragmenting{Assessment: on}
	switch {
	case a.noSpace:
		a.why = noSpace
	case a.asked():
		a.why = requested
	}
	ids := a.state.Etcd.inAlarm(func(st *Status) []uint64 { return st.NoSpaceOf })
	a.gone = a.state.gone(ids)
	listed := slices.DeleteFunc(ids, func(id uint64) bool { return slices.Contains(a.gone, id) })
	a.alarmed = slices.Concat(a.gone, listed)
	return a
}

// defragment is the duty that defragments members, one at a time, and ends an alarm NOSPACE once that has helped.
// It has nothing to say while nobody asks for it, by a request or by the policy, and there is no such alarm.
func defragment(on *Assessment) Decision {
	a := defragmentingOf(on)
	why := a.why
	switch {
	case why == unasked && (a.state.NoLock || !a.policy.DefragmentWhen.On()):
		return a.notAsked()
	case why == requested && !a.state.Etcd.Known:
		return saying(Wait{}, GuardVotersUnknown, "no member answers with a member list, so it is not known which "+
			"members there are")
	}
	candidates := a.fragmented()
	switch {
	case why == noSpace && len(candidates) == 0:
		return a.tellsGone(a.disarm())
	case why == requested && len(candidates) == 0 && a.unsized() != nil:
		r := a.unsized()
		return saying(Wait{}, GuardAllServing, "the size of "+r.Name+"'s database is not known: "+r.Describe())
	case why == requested && len(candidates) == 0:
		return saying(Complete{}, "", "no database has enough free space in it to be worth a "+
			"defragmentation: "+a.sizes())
	case len(candidates) == 0:
		return a.notAsked()
	case why == unasked && !a.state.InWindow:
		return saying(Idle{}, "", "worth a defragmentation between "+a.policy.DefragmentWindow.String()+": "+
			describe(candidates))
	case why == noSpace && a.policy.KeepNoSpace && !a.asked():
		return a.tellsGone(saying(Hold{}, GuardNoSpace, "etcd takes no writes, and nothing is done about it unless "+
			"somebody asks for it; a defragmentation would help: "+describe(candidates)))
	}
	d := a.tellsGone(a.next(candidates))
	if why == unasked && !d.Acts() && len(a.state.Tries) == 0 {
		d.Action = Idle{} // Nobody waits for it, so it is told, and no reason to stay awake.
	}
	return d
}

// notAsked answers a request that is not about this cluster, or that has to wait for the lock, and has nothing to say
// if there is none. Whoever asks does not know the cluster before that has been answered.
func (a defragmenting) notAsked() Decision {
	r := a.state.Request
	switch {
	case r == nil || r.Operation != RequestDefragment:
		return Decision{}
	case a.state.NoLock && a.state.bound(r):
		return saying(Wait{}, "", "no member is defragmented"+withoutLock)
	}
	return saying(Idle{}, "", "a defragmentation was requested, but of another cluster than this one, "+
		strconv.FormatUint(a.state.Etcd.ClusterID, 16))
}

// asked is true if an operator asks for a defragmentation. A request about another cluster may have come back from a
// backup. Without the lock nobody sees who else is there.
func (a defragmenting) asked() bool {
	r := a.state.Request
	return r != nil && r.Operation == RequestDefragment && (!a.state.NoLock || a.noSpace) && a.state.bound(r)
}

// fragmented are the replicas whose members are to be defragmented, in the order in which they go: followers before the
// leader, within that our own member last, because our lock may live there, and then the higher ordinal first.
func (a defragmenting) fragmented() []*Replica {
	var replicas []*Replica
	for i := range a.Replicas {
		r := &a.Replicas[i]
		d := a.Database(r)
		if d == nil {
			continue
		}
		t := a.state.Tries[r.Member.ID]
		if t.Done && (a.why == requested || d.Free < t.Left+max(leastFree, d.Size/20)) {
			continue // Once is enough for a request, and else until there is something new to free.
		}
		// With NOSPACE each coordinator has a full database rewritten once in any case: etcd tells what is free only
		// after the next write.
		wanted := a.why == noSpace &&
			(d.reaches(fullAt) || slices.Contains(a.alarmed, r.Member.ID) && d.gains(leastGain))
		if request := a.state.Request; a.asked() {
			wanted = wanted || (request.Member == 0 || request.Member == r.Member.ID) && d.gains(leastGain)
		}
		if w := a.policy.DefragmentWhen; a.why == unasked {
			wanted = d.Free >= w.Bytes && (d.gains(w.Percent) || d.reaches(w.OfQuota))
		}
		if wanted {
			replicas = append(replicas, r)
		}
	}
	slices.SortFunc(replicas, func(x, y *Replica) int {
		return cmp.Or(cmp.Compare(btoi(x.Leader), btoi(y.Leader)), cmp.Compare(btoi(x.Self), btoi(y.Self)),
			cmp.Compare(y.Ordinal, x.Ordinal))
	})
	return replicas
}

// next defragments the first of these whose guards pass, or says what keeps the first one.
func (a defragmenting) next(replicas []*Replica) Decision {
	all := a.consider(RuleDefragment, replicas, defragmentGuards)
	c := firstPassing(all)
	if c == nil {
		c = &all[0]
		return keptBack(c, all, func() string { return "defragment " + c.Pod + ": " + c.failed().Detail() })
	}
	replica := a.replicaOf(c.Pod)
	if replica.Pod == nil { // AllServing is overridden. But there is no process that anything could be asked of.
		return saying(Wait{}, GuardAllServing, "defragment "+c.Pod+": "+replica.Describe())
	}
	if replica.Leader && !a.onlyMember {
		if t, ok := a.transfer(replica); ok {
			return moveLeader(RuleDefragment, replica, t, all, " and is next to be defragmented",
				"first, so that writes go on")
		}
	}
	d := Decision{
		Action: Defragment{Target: targetOf(replica), Member: a.state.refOf(replica.Member.ID, replica.Name),
			Process: processOf(replica), Within: a.callOf(replica.Member.Probe.Status.Size)},
		Rule: RuleDefragment, Candidates: all,
	}
	d.reason = func() string { return c.Pod + " is defragmented: " + a.Database(replica).String() }
	return d
}

// callOf is how long the call may take: half a minute, and a second for every 16 MiB, which a slow disk writes. It is
// no longer than it has to be, because a call of which nobody knows the end is waited out.
func (a defragmenting) callOf(size int64) time.Duration {
	return min(a.policy.DefragmentTimeout, 30*time.Second+time.Duration(size>>24)*time.Second)
}

// disarmWithin bounds the call that ends an alarm. It goes through consensus, and takes no longer than a write.
const disarmWithin = 5 * time.Second

// disarm ends an alarm NOSPACE, one member's at a time, when no database is full any more. Where nobody on etcd's list
// has raised it, a member that does not answer is not waited for: it has not found its database full either. Should it
// be, its next write raises the alarm again, in its own name.
func (a defragmenting) disarm() Decision {
	ids := a.alarmed
	ofGone := len(ids) > 0 && len(a.gone) == len(ids) // Nobody on etcd's list has raised it.
	for i := range a.Replicas {
		r := &a.Replicas[i]
		switch d := a.Database(r); {
		case r.Member == nil && r.Pod == nil, d == nil && ofGone:
		case d == nil:
			return saying(Wait{}, GuardAllServing, "etcd takes no writes, and the size of "+r.Name+"'s database "+
				"is not known: "+r.Describe())
		case d.reaches(fullAt):
			return saying(Hold{}, GuardNoSpace, "etcd takes no writes, and a defragmentation does not "+
				"help: "+r.Name+" has "+d.String()+" (the quota is "+d.Quota.From+")")
		}
	}
	for _, m := range a.External {
		if st := m.Probe.Status; !ofGone && (st == nil || slices.Contains(ids, m.ID)) {
			return saying(Hold{}, GuardNoSpace, "etcd takes no writes, and "+m.label()+
				", which has no pod of this StatefulSet, may be the cause: the size of its database is "+
				"not known"+a.ghostsGo())
		}
	}
	switch {
	case a.policy.KeepNoSpace && !a.asked():
		return saying(Hold{}, GuardNoSpace, "etcd takes no writes, and nothing is done about it unless somebody "+
			"asks for it; no database is full: "+a.sizes())
	case len(ids) == 0:
		return saying(Hold{}, GuardNoSpace, "etcd takes no writes, and does not say whose alarm that is")
	case a.state.Disarmed[ids[0]] >= mostDisarmed:
		return saying(Hold{}, GuardNoSpace, "etcd takes no writes: the alarm was disarmed, and was raised again "+
			"although no database looks full: "+a.sizes())
	case a.state.NotDisarmed[ids[0]].Lasting:
		return saying(Hold{}, GuardNoSpace, "no database is full any more, but the alarm NOSPACE cannot be "+
			"disarmed: "+a.state.NotDisarmed[ids[0]].Words)
	case a.state.NotDisarmed[ids[0]].Resting:
		return saying(Wait{}, GuardNoSpace, "no database is full any more, and Quorate will try again to disarm the "+
			"alarm NOSPACE; the last attempt: "+a.state.NotDisarmed[ids[0]].Words)
	case !a.state.Etcd.Linearizable || a.Serving < a.Quorum:
		return saying(Wait{}, GuardAllServing, "etcd takes no writes, and no quorum answers")
	}
	ref := a.state.refOf(ids[0], Label("", ids[0]))
	if m := a.state.member(ref.ID); m != nil {
		ref.Name = m.label()
	}
	action := Disarm{Member: ref, Within: disarmWithin}
	for i := range a.Replicas {
		if r := &a.Replicas[i]; r.Member != nil && r.Member.ID == ref.ID {
			action.Process = processOf(r)
		}
	}
	d := Decision{Action: action, Rule: RuleDefragment}
	d.reason = func() string {
		if a.state.member(ref.ID) == nil {
			return ref.Name + " is no longer on etcd's member list, so the alarm NOSPACE that it left behind is " +
				"disarmed; no database is known to be full: " + a.sizes()
		}
		return "no database is full any more, so the alarm NOSPACE of " + a.whose(ids[:1]) + " is disarmed: " +
			a.sizes()
	}
	return d
}

// tellsGone adds to what keeps the alarm NOSPACE that members which are gone have a part in it.
func (a defragmenting) tellsGone(d Decision) Decision {
	if len(a.gone) > 0 && !d.Acts() {
		reason := d.reason
		d.reason = func() string { return reason() + "; the alarm was raised by " + a.whose(a.gone) }
	}
	return d
}

// unsized is a replica that has a member, and does not say how large its database is; nil if there is none.
func (a defragmenting) unsized() *Replica {
	for i := range a.Replicas {
		if r := &a.Replicas[i]; r.Member != nil && a.Database(r) == nil {
			return r
		}
	}
	return nil
}

// sizes are those of all databases.
func (a defragmenting) sizes() string {
	text := ""
	for i := range a.Replicas {
		r := &a.Replicas[i]
		if text != "" {
			text += "; "
		}
		text += r.Name + " " + a.Database(r).String()
	}
	return text
}

// describe names some replicas.
func describe(replicas []*Replica) string {
	text := replicas[0].Name
	for _, r := range replicas[1:] {
		text += ", " + r.Name
	}
	return text
}

// saying is a decision of this duty with a text.
func saying(action Action, guard Guard, text string) Decision {
	return Decision{Action: action, Rule: RuleDefragment, Guard: guard, reason: func() string { return text }}
}
