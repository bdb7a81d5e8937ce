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

// defragment is the duty that defragments members, one at a time, and ends an alarm NOSPACE once that has helped.
// It has nothing to say while nobody asks for it, by a request or by the policy, and there is no such alarm.
func defragment(a *Assessment) Decision {
	why := a.defragmentsFor()
	switch {
	case why == unasked && (a.state.NoLock || !a.policy.DefragmentWhen.On()):
		return a.notAsked()
	case why == requested && !a.state.Etcd.Known:
		return saying(Wait{}, GuardVotersUnknown, "nobody knows whom to defragment: no member answers with a "+
			"member list")
	}
	candidates := a.fragmented(why)
	switch {
	case why == noSpace && len(candidates) == 0:
		return a.tellsGone(a.disarm())
	case why == requested && len(candidates) == 0 && a.unsized() != nil:
		r := a.unsized()
		return saying(Wait{}, GuardAllServing, "how large the database of "+r.Name+" is, is not known: "+r.Describe())
	case why == requested && len(candidates) == 0:
		return saying(Complete{}, "", "no database has enough in it that a defragmentation frees: "+a.sizes())
	case len(candidates) == 0:
		return a.notAsked()
	case why == unasked && !a.state.InWindow:
		return saying(Idle{}, "", "worth a defragmentation between "+a.policy.DefragmentWindow.String()+": "+
			describe(candidates))
	case why == noSpace && a.policy.KeepNoSpace && !a.asked():
		return a.tellsGone(saying(Hold{}, GuardNoSpace, "etcd takes no writes, and nothing is done about it unless "+
			"somebody asks for it; a defragmentation would help: "+describe(candidates)))
	}
	d := a.tellsGone(a.nextFragmented(candidates))
	if why == unasked && !d.Acts() && len(a.state.Tries) == 0 {
		d.Action = Idle{} // Nobody waits for it, so it is told, and no reason to stay awake.
	}
	return d
}

// notAsked answers a request that is not about this cluster, or that has to wait for the lock, and has nothing to say
// if there is none. Whoever asks does not know the cluster before that has been answered.
func (a *Assessment) notAsked() Decision {
	r := a.state.Request
	switch {
	case r == nil || r.Operation != RequestDefragment:
		return Decision{}
	case a.state.NoLock && a.bound(r):
		return saying(Wait{}, "", "no member is defragmented"+withoutLock)
	}
	return saying(Idle{}, "", "a defragmentation is asked for, but not of this cluster, which is "+
		strconv.FormatUint(a.state.Etcd.ClusterID, 16))
}

// defragmentsFor is the best reason that there is.
func (a *Assessment) defragmentsFor() cause {
	switch {
	case a.noSpace():
		return noSpace
	case a.asked():
		return requested
	}
	return unasked
}

// asked is true if an operator asks for a defragmentation. A request about another cluster may have come back from a
// backup. Without the lock nobody sees who else is there.
func (a *Assessment) asked() bool {
	r := a.state.Request
	return r != nil && r.Operation == RequestDefragment && (!a.state.NoLock || a.noSpace()) && a.bound(r)
}

// bound is true for a request that is about this cluster, as far as anybody knows which one it is.
func (a *Assessment) bound(r *Request) bool {
	return !a.state.Etcd.Known || r.Cluster == a.state.Etcd.ClusterID
}

// Quota is how large the database of a replica's member may become.
func (a *Assessment) Quota(r *Replica) Quota {
	q := Quota{Bytes: defaultQuota, From: "etcd's default, because nothing says otherwise"}
	switch {
	case r.Member != nil && r.Member.Probe.Status != nil && r.Member.Probe.Status.Quota != 0:
		q = Quota{r.Member.Probe.Status.Quota, "the member's status"}
	case r.Pod != nil && r.Pod.Quota.Bytes != 0:
		q = r.Pod.Quota
	case a.policy.QuotaBytes != 0:
		q = Quota{a.policy.QuotaBytes, "Quorate's option quota-bytes"}
	}
	return q
}

// Database says how large a member's database is.
type Database struct {
	// Size is how many bytes it takes, and Free how many of them a defragmentation would give back.
	Size, Free int64
	Quota      Quota
}

// Database returns the numbers of a replica's database, or nil if they are not known.
func (a *Assessment) Database(r *Replica) *Database {
	if r.Member == nil || r.Member.Probe.Status == nil || r.Member.Probe.Status.Size == 0 {
		return nil
	}
	st := r.Member.Probe.Status
	return &Database{Size: st.Size, Free: max(st.Size-st.InUse, 0), Quota: a.Quota(r)}
}

// reaches is true for a database of at least so many percent of its quota.
func (d *Database) reaches(percent int) bool {
	return d.Quota.Bytes > 0 && d.Size >= d.Quota.Bytes/100*int64(percent)
}

// gains is true if so many percent of the database are free, and that is worth a defragmentation.
func (d *Database) gains(percent int) bool {
	return d.Free >= leastFree && d.Free >= d.Size/100*int64(percent)
}

// String says it for people.
func (d *Database) String() string {
	if d == nil {
		return "unknown"
	}
	text := SizeText(d.Size)
	if d.Quota.Bytes > 0 {
		text += " of " + SizeText(d.Quota.Bytes)
	}
	return text + ", " + SizeText(d.Free) + " free in it"
}

// Fullest is the largest part of its quota that the database of a member of ours takes, 0 if none is known. With it
// comes whether there is an alarm NOSPACE.
func (a *Assessment) Fullest() (part float64, alarm bool) {
	for i := range a.Replicas {
		if d := a.Database(&a.Replicas[i]); d != nil && d.Quota.Bytes > 0 {
			part = max(part, float64(d.Size)/float64(d.Quota.Bytes))
		}
	}
	return part, a.noSpace()
}

// fragmented are the replicas whose members are to be defragmented, in the order in which they go: followers before the
// leader, within that our own member last, because our lock may live there, and then the higher ordinal first.
func (a *Assessment) fragmented(why cause) []*Replica {
	var replicas []*Replica
	alarmed := a.alarmed()
	for i := range a.Replicas {
		r := &a.Replicas[i]
		d := a.Database(r)
		if d == nil {
			continue
		}
		if t := a.state.Tries[r.Member.ID]; t.Done && (why == requested || d.Free < t.Left+max(leastFree, d.Size/20)) {
			continue // Once is enough for a request, and else until there is something new to free.
		}
		// With NOSPACE each coordinator has a full database rewritten once in any case: etcd tells what is free only
		// after the next write.
		wanted := why == noSpace && (d.reaches(fullAt) || slices.Contains(alarmed, r.Member.ID) && d.gains(leastGain))
		if request := a.state.Request; a.asked() {
			wanted = wanted || (request.Member == 0 || request.Member == r.Member.ID) && d.gains(leastGain)
		}
		if w := a.policy.DefragmentWhen; why == unasked {
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

// nextFragmented defragments the first of these whose guards pass, or says what keeps the first one.
func (a *Assessment) nextFragmented(replicas []*Replica) Decision {
	all := make([]Candidate, 0, len(replicas))
	for _, r := range replicas {
		c := Candidate{Pod: r.Name, Rule: RuleDefragment}
		for _, row := range defragmentGuards {
			if row.asked != nil && !row.asked(a, r) {
				continue
			}
			var v Verdict
			a.ask(row, r, &v)
			c.Verdicts = append(c.Verdicts, v)
		}
		all = append(all, c)
	}
	c := firstPassing(all)
	if c == nil {
		c = &all[0]
		v := c.failed()
		d := Decision{Action: RowOf(v.Guard).keeps(v), Rule: RuleDefragment, Guard: v.Guard, Candidates: all}
		d.reason = func() string { return "defragment " + c.Pod + ": " + v.Detail() }
		return d
	}
	replica := a.replicaOf(c.Pod)
	if replica.Leader && !a.singleMember() {
		if t, ok := a.transfer(replica); ok {
			d := Decision{Action: MoveLeader{Target: targetOf(replica), Transfer: t}, Rule: RuleDefragment,
				Candidates: all}
			d.reason = func() string {
				return t.FromName + " leads and is next to be defragmented; " + t.ToName + " takes over first, " +
					"so that writes go on"
			}
			return d
		}
	}
	d := Decision{
		Action: Defragment{Target: targetOf(replica), Member: a.refOf(replica.Member.ID, replica.Name),
			Process: processOf(replica), Within: a.callOf(replica.Member.Probe.Status.Size)},
		Rule: RuleDefragment, Candidates: all,
	}
	d.reason = func() string { return c.Pod + " is defragmented: " + a.Database(replica).String() }
	return d
}

func (a *Assessment) refOf(id uint64, name string) MemberRef {
	return MemberRef{ID: id, Cluster: a.state.Etcd.ClusterID, Name: name}
}

// callOf is how long the call may take: half a minute, and a second for every 16 MiB, which a slow disk writes. It is
// no longer than it has to be, because a call of which nobody knows the end is waited out.
func (a *Assessment) callOf(size int64) time.Duration {
	return min(a.policy.DefragmentTimeout, 30*time.Second+time.Duration(size>>24)*time.Second)
}

// disarmWithin bounds the call that ends an alarm. It goes through consensus, and takes no longer than a write.
const disarmWithin = 5 * time.Second

// disarm ends an alarm NOSPACE, one member's at a time, when no database is full any more. Where nobody on etcd's list
// has raised it, a member that does not answer is not waited for: it has not found its database full either. Should it
// be, its next write raises the alarm again, in its own name.
func (a *Assessment) disarm() Decision {
	ids, ofGone := a.alarmed(), a.ofGone()
	for i := range a.Replicas {
		r := &a.Replicas[i]
		switch d := a.Database(r); {
		case r.Member == nil && r.Pod == nil, d == nil && ofGone:
		case d == nil:
			return saying(Wait{}, GuardAllServing, "etcd takes no writes, and how large the database of "+r.Name+
				" is, is not known: "+r.Describe())
		case d.reaches(fullAt):
			return saying(Hold{}, GuardNoSpace, "etcd takes no writes, and a defragmentation does not "+
				"help: "+r.Name+" has "+d.String()+" (the quota is "+d.Quota.From+")")
		}
	}
	for _, m := range a.External {
		if st := m.Probe.Status; !ofGone && (st == nil || slices.Contains(ids, m.ID)) {
			return saying(Hold{}, GuardNoSpace, "etcd takes no writes, and "+m.label()+
				", which has no pod of ours, may be why: it is not known how large its database is"+a.ghostsGo())
		}
	}
	switch {
	case a.policy.KeepNoSpace && !a.asked():
		return saying(Hold{}, GuardNoSpace, "etcd takes no writes, and nothing is done about it unless somebody "+
			"asks for it; no database is full: "+a.sizes())
	case len(ids) == 0:
		return saying(Hold{}, GuardNoSpace, "etcd takes no writes, and does not say whose alarm that is")
	case a.state.Disarmed[ids[0]] >= mostDisarmed:
		return saying(Hold{}, GuardNoSpace, "etcd takes no writes: the alarm was disarmed, and is there again, "+
			"although no database looks full: "+a.sizes())
	case a.state.NotDisarmed[ids[0]].Lasting:
		return saying(Hold{}, GuardNoSpace, "no database is full any more, but the alarm NOSPACE cannot be "+
			"disarmed: "+a.state.NotDisarmed[ids[0]].Words)
	case a.state.NotDisarmed[ids[0]].Resting:
		return saying(Wait{}, GuardNoSpace, "no database is full any more, and it is tried again to disarm the alarm "+
			"NOSPACE; the last time: "+a.state.NotDisarmed[ids[0]].Words)
	case !a.state.Etcd.Linearizable || a.Serving < a.Quorum:
		return saying(Wait{}, GuardAllServing, "etcd takes no writes, and no quorum answers")
	}
	ref := a.refOf(ids[0], Label("", ids[0]))
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
			return ref.Name + " is not on etcd's member list any more, so the alarm NOSPACE that it has left behind " +
				"ends; no database is known to be full: " + a.sizes()
		}
		return "no database is full any more, so the alarm NOSPACE of " + a.whose(ids[:1]) + " ends: " + a.sizes()
	}
	return d
}

// unsized is a replica that has a member, and does not say how large its database is; nil if there is none.
func (a *Assessment) unsized() *Replica {
	for i := range a.Replicas {
		if r := &a.Replicas[i]; r.Member != nil && a.Database(r) == nil {
			return r
		}
	}
	return nil
}

// sizes are those of all databases.
func (a *Assessment) sizes() string {
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
