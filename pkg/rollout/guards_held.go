package rollout

import "strings"

// The guards of the rule Held forbid any decision. They judge the cluster as a whole.

func badControl(a *Assessment, _ *Replica) Verdict {
	bad := a.state.Controls.Bad
	if len(bad) == 0 {
		return Verdict{Pass: true}
	}
	return Verdict{text: "a control cannot be read: " + strings.Join(bad, "; ")}
}

func paused(a *Assessment, _ *Replica) Verdict {
	if !a.state.Controls.Paused {
		return Verdict{Pass: true}
	}
	return Verdict{text: "the rollout is paused by " + ControlPaused + " on the Lease quorate-" + a.state.Set.Name}
}

func staleRevision(a *Assessment, _ *Replica) Verdict {
	switch set := &a.state.Set; {
	case set.ObservedGeneration < set.Generation:
		return verdict(false, "the StatefulSet controller has not observed generation %d yet (only %d), so "+
			"updateRevision may be stale",
			int(set.Generation), int(set.ObservedGeneration))
	case set.UpdateRevision == "":
		return verdict(false, "the StatefulSet has no updateRevision yet")
	}
	return Verdict{Pass: true}
}

func inconsistent(a *Assessment, _ *Replica) Verdict {
	return Verdict{Pass: a.Inconsistent == "", text: a.Inconsistent}
}

// corrupt says about whom the alarm is. etcd names the members whose hashes are not those of a quorum. Where no hash is
// that, and in 3.5 from 3.5.7 on, it names nobody. The alarm outlives its member, and may be a false one.
func corrupt(a *Assessment, _ *Replica) Verdict {
	if !a.state.Etcd.told(func(st *Status) bool { return st.Corrupt }) {
		return Verdict{Pass: true}
	}
	ids := a.state.Etcd.inAlarm(func(st *Status) []uint64 { return st.CorruptOf })
	text := "a CORRUPT alarm is raised, and etcd does not say about which member"
	if len(ids) > 0 {
		text = "a CORRUPT alarm is raised about " + a.whose(ids)
	}
	text += ": etcd's own check found that the members' data differ. No update cures that, and reads prove nothing. " +
		"But the alarm may be false"
	if versions := a.state.Etcd.versionsTold(); len(versions) > 1 {
		text += ", as it may be during an upgrade (the members run " + strings.Join(versions, " and ") +
			"; etcd-io/etcd#15919)"
	}
	text += ": first compare the members' hashes with `etcdctl endpoint hashkv --cluster --rev REVISION`"
	if len(ids) > 0 && len(a.state.gone(ids)) == len(ids) {
		text += ". If those that are left are equal, end the alarm with `etcdctl alarm disarm`"
	}
	return Verdict{text: text}
}

// cutOff does not pass when other members may have a process, and nothing comes from them: no answer, and no sign of
// their pods or nodes either. Where that is so of all of them, or of so many that they can be a quorum while no member
// serves us, it may well be this coordinator that is cut off, with those that it still hears.
//
// Where a kubelet that can be heard says that another does not run, the silence is explained: quorum really may be
// lost, [GuardQuorumPatience] is the guard for that, and holding for good would block the cure. What is gone, has no
// node, or is on our own node says nothing about a cut, one way or the other.
//
// Nodes without power look the same, and stay held. No update cures those.
func cutOff(a *Assessment, _ *Replica) Verdict {
	silent, heard := 0, 0
	for i := range a.Replicas {
		r := &a.Replicas[i]
		if r.Self || !r.Voter {
			continue
		}
		says := witnessOf(r.Pod)
		switch {
		case r.Member.speaks():
			heard++
		case r.Going() || r.Member.Probe.Read != Failed:
		case says == kubeletSaysDown && (r.Pod.Node == "" || r.Pod.Node == a.ownNode):
		case says == kubeletSaysDown && r.heard:
			heard++
		default:
			silent++
		}
	}
	for _, m := range a.External {
		heard += btoi(m.speaks())
	}
	if silent == 0 || heard > 0 && (a.Serving > 0 || silent < a.Quorum) {
		return Verdict{Pass: true}
	}
	v := verdict(false, "nothing is heard from %d other members, their pods or their nodes, and %d are heard: this "+
		"coordinator may be cut off from a quorum, or their nodes have no power, which no update cures", silent, heard)
	v.text = a.unanswered()
	return v
}
