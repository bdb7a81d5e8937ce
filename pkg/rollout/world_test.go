package rollout_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/pkg/rollout"
)

// The revisions of the tests: pods start at oldRev, the StatefulSet asks for newRev.
const (
	oldRev = "rev-1"
	newRev = "rev-2"

	clusterID = 0xc1
	term      = 7
	index     = 10_000
)

// world is a state and a policy that a test builds with changes, each of which
// reads as what happened. It holds one pod and one member per ordinal, until a
// change says otherwise.
type world struct {
	state  rollout.State
	policy rollout.Policy
}

// change is one thing that is different from a healthy cluster.
type change func(w *world)

// cluster returns n outdated pods in full health; etcd-0 leads. Pods are deleted; what is
// about evictions says so.
func cluster(n int, changes ...change) *world {
	w := &world{
		state: rollout.State{
			Set: rollout.Set{
				Name: "etcd", UID: "set", Replicas: n, OnDelete: true,
				Generation: 3, ObservedGeneration: 3, UpdateRevision: newRev,
			},
			Etcd:     rollout.Membership{Known: true, Linearizable: true, ClusterID: clusterID},
			Memory:   rollout.Memory{Ages: rollout.Ages{}, FailedTransfers: rollout.Failures{}},
			Sidecars: rollout.Sidecars{Known: true},
		},
		policy: rollout.DefaultPolicy(),
	}
	w.policy.Removal = rollout.RemoveByDelete
	for i := range n {
		w.state.Sidecars.Present = append(w.state.Sidecars.Present, uid(i, 1), uid(i, 2), uid(i, 3))
		w.state.Pods = append(w.state.Pods, healthyPod(i, oldRev, 1))
		w.state.Etcd.Members = append(w.state.Etcd.Members, rollout.Member{
			ID: id(i), Name: name(i),
			PeerURLs:   []string{"https://" + name(i) + ".etcd-peer.ns.svc:2380"},
			ClientURLs: []string{"https://" + name(i) + ".etcd-peer.ns.svc:2379"},
			Probe: rollout.Probe{Read: rollout.Answered, Status: &rollout.Status{
				Leader: id(0), Term: term, Index: index, Applied: index, Version: "3.5.35",
			}},
		})
	}
	return w.with(changes...)
}

func (w *world) with(changes ...change) *world {
	for _, c := range changes {
		c(w)
	}
	return w
}

func (w *world) decide() rollout.Decision { return rollout.Decide(w.state, w.policy) }

func name(ordinal int) string { return fmt.Sprint("etcd-", ordinal) }

func id(ordinal int) uint64 { return uint64(ordinal) + 1 }

func uid(ordinal, incarnation int) string { return fmt.Sprintf("uid-%d-%d", ordinal, incarnation) }

func healthyPod(ordinal int, revision string, incarnation int) rollout.Pod {
	running := rollout.Container{State: rollout.ContainerRunning, Ready: true}
	return rollout.Pod{
		Name: name(ordinal), UID: uid(ordinal, incarnation), ResourceVersion: fmt.Sprint(100*incarnation + ordinal),
		Ordinal: ordinal, MemberName: name(ordinal), Revision: revision, Owned: true,
		Ready: true, ContainersReady: true, Initialized: true, Etcd: running, Sidecar: running,
	}
}

// pod returns the ordinal's pod. It panics when a change took it away, which is a
// mistake of the test.
func (w *world) pod(ordinal int) *rollout.Pod {
	i := slices.IndexFunc(w.state.Pods, func(p rollout.Pod) bool { return p.Name == name(ordinal) })
	return &w.state.Pods[i]
}

func (w *world) member(ordinal int) *rollout.Member {
	i := slices.IndexFunc(w.state.Etcd.Members, func(m rollout.Member) bool { return m.ID == id(ordinal) })
	return &w.state.Etcd.Members[i]
}

// The changes. Those with ordinals apply to each of them.

func each(ordinals []int, f func(w *world, ordinal int)) change {
	return func(w *world) {
		for _, o := range ordinals {
			f(w, o)
		}
	}
}

func updated(ordinals ...int) change {
	return each(ordinals, func(w *world, o int) { w.pod(o).Revision = newRev })
}

func allUpdated() change {
	return func(w *world) {
		for i := range w.state.Pods {
			w.state.Pods[i].Revision = newRev
		}
	}
}

// unannounced: their sidecars have not said that they are there.
func unannounced(ordinals ...int) change {
	return each(ordinals, func(w *world, o int) {
		s := &w.state.Sidecars
		s.Present = slices.DeleteFunc(slices.Clone(s.Present), func(uid string) bool { return uid == w.pod(o).UID })
	})
}

func noAnswer(ordinals ...int) change {
	return each(ordinals, func(w *world, o int) {
		w.member(o).Probe = rollout.Probe{Read: rollout.Failed, Detail: "no linearizable read: timed out"}
	})
}

// answersForItself: it tells its status, and the read that needs a quorum fails.
func answersForItself(ordinals ...int) change {
	return each(ordinals, func(w *world, o int) {
		w.member(o).Probe.Status = &rollout.Status{Term: term, Index: index, Applied: index, Version: "3.5.35"}
	})
}

func notReady(ordinals ...int) change {
	return each(ordinals, func(w *world, o int) {
		p := w.pod(o)
		p.Ready, p.ContainersReady, p.Etcd.Ready = false, false, false
	})
}

// alive: the process runs, but neither etcd nor the kubelet hears from it.
func alive(ordinals ...int) change {
	return func(w *world) { w.with(noAnswer(ordinals...), notReady(ordinals...)) }
}

func waitingFor(reason string, ordinals ...int) change {
	return func(w *world) {
		w.with(alive(ordinals...), each(ordinals, func(w *world, o int) {
			w.pod(o).Etcd.State, w.pod(o).Etcd.Reason = rollout.ContainerWaiting, reason
		}))
	}
}

func dead(ordinals ...int) change { return waitingFor("CrashLoopBackOff", ordinals...) }

// onNodes: every pod has a node of its own, and its kubelet has said what it says.
func onNodes() change {
	return func(w *world) {
		for i := range w.state.Pods {
			p := &w.state.Pods[i]
			p.Node, p.Said = fmt.Sprint("node-", p.Ordinal), "first"
		}
	}
}

// refuses: a connection to the pod's own address was refused in this look.
func refuses(ordinals ...int) change {
	return each(ordinals, func(w *world, o int) {
		w.pod(o).Node, w.pod(o).Heard = fmt.Sprint("node-", o), true
	})
}

// silentFor: nothing has come from these pods for so long.
func silentFor(age time.Duration, ordinals ...int) change {
	return aged(rollout.SilentSeen, age, ordinals...)
}

// said: the kubelets of these pods have said something else, and that was so long ago.
func said(words string, age time.Duration, ordinals ...int) change {
	return each(ordinals, func(w *world, o int) {
		p := w.pod(o)
		p.Said = words
		w.state.Ages[rollout.Sighting{UID: p.UID + " said " + words, Condition: rollout.SaidSeen}] = age
	})
}

// beat: the nodes of these pods gave their last sign of life so long ago.
func beat(age time.Duration, ordinals ...int) change {
	return each(ordinals, func(w *world, o int) {
		p := w.pod(o)
		p.Heartbeat = "12:00"
		w.state.Ages[rollout.Sighting{UID: p.UID + " heartbeat 12:00", Condition: rollout.SaidSeen}] = age
	})
}

// replied: their members answered with an error of etcd's own.
func replied(ordinals ...int) change {
	return each(ordinals, func(w *world, o int) { w.member(o).Probe.Replied = true })
}

// exited: the container has ended, for longer than deadAfter.
func exited(ordinals ...int) change {
	return func(w *world) {
		w.with(
			alive(ordinals...),
			aged(rollout.TerminatedSeen, w.policy.DeadAfter, ordinals...),
			each(ordinals, func(w *world, o int) {
				w.pod(o).Etcd.State, w.pod(o).Etcd.Reason = rollout.ContainerTerminated, "Error"
			}),
		)
	}
}

func starting(ordinals ...int) change { return waitingFor("ContainerCreating", ordinals...) }

// unknown: etcd does not answer, but the kubelet says that all is well.
func unknown(ordinals ...int) change { return noAnswer(ordinals...) }

func sick(ordinals ...int) change {
	return each(ordinals, func(w *world, o int) {
		p := w.pod(o)
		p.Ready, p.ContainersReady, p.Sidecar.Ready = false, false, false
	})
}

// terminating and missing: by our own hand, unless taken says otherwise.
func terminating(ordinals ...int) change {
	return each(ordinals, func(w *world, o int) {
		w.pod(o).Terminating = true
		w.state.Removed = append(w.state.Removed, name(o))
	})
}

// taken: what is away was taken by others.
func taken(c change) change {
	return func(w *world) {
		removed := w.state.Removed
		w.with(c)
		w.state.Removed = removed
	}
}

// evicted: others have evicted these pods, which are still there.
func evicted(ordinals ...int) change {
	return each(ordinals, func(w *world, o int) {
		w.pod(o).Leaving, w.pod(o).Evicted = "DisruptionTarget EvictionByEvictionAPI", true
	})
}

// ourEviction: an eviction of our own has failed after it had marked these pods.
func ourEviction(ordinals ...int) change {
	return each(ordinals, func(w *world, o int) { w.state.Evicted = append(w.state.Evicted, w.pod(o).UID) })
}

// away: these pods have been missing or terminating, or out of range, for so long.
func away(age time.Duration, ordinals ...int) change {
	return each(ordinals, func(w *world, o int) {
		w.state.Ages[rollout.Sighting{UID: name(o), Condition: rollout.AwaySeen}] = age
	})
}

// cordoned: the nodes of these pods have been for so long.
func cordoned(age time.Duration, ordinals ...int) change {
	return func(w *world) {
		w.with(aged(rollout.CordonedSeen, age, ordinals...), each(ordinals, func(w *world, o int) {
			w.pod(o).Node, w.pod(o).Cordoned = fmt.Sprint("node-", o), true
		}))
	}
}

// drained: a drainer has marked the nodes of these pods, which are cordoned.
func drained(ordinals ...int) change {
	return each(ordinals, func(w *world, o int) { w.pod(o).Drained = "drain:NoSchedule (it is drained)" })
}

// unreadNodes: the nodes of these pods cannot be read, and could not for so long.
func unreadNodes(age time.Duration, ordinals ...int) change {
	return func(w *world) {
		w.with(aged(rollout.CordonedSeen, age, ordinals...), each(ordinals, func(w *world, o int) {
			w.pod(o).Node, w.pod(o).NodeUnknown = fmt.Sprint("node-", o), true
		}))
	}
}

func missing(ordinals ...int) change {
	return func(w *world) {
		w.with(noAnswer(ordinals...), each(ordinals, func(w *world, o int) {
			w.state.Removed = append(w.state.Removed, name(o))
		}))
		w.state.Pods = slices.DeleteFunc(
			w.state.Pods,
			func(p rollout.Pod) bool { return slices.Contains(ordinals, p.Ordinal) },
		)
	}
}

func learner(ordinals ...int) change {
	return each(ordinals, func(w *world, o int) { w.member(o).Learner = true })
}

// answeredAt: these answered their reads at the raft term, the others at the newest.
func answeredAt(at uint64, ordinals ...int) change {
	return func(w *world) {
		for i := range w.state.Etcd.Members {
			w.state.Etcd.Members[i].Probe.ReadTerm = term
		}
		w.with(each(ordinals, func(w *world, o int) { w.member(o).Probe.ReadTerm = at }))
	}
}

// localList: the list is one member's own, and so many voters have the same.
func localList(agreeing int) change {
	return func(w *world) { w.state.Etcd.Linearizable, w.state.Etcd.Agreeing = false, agreeing }
}

func trusting(members ...string) change {
	return func(w *world) { w.policy.TrustedMembers = members }
}

// ordered: the StatefulSet has podManagementPolicy OrderedReady.
func ordered() change { return func(w *world) { w.state.Set.OrderedReady = true } }

func startAt(ordinal int) change { return func(w *world) { w.state.Set.Start = ordinal } }

func behind(entries uint64, ordinals ...int) change {
	return each(ordinals, func(w *world, o int) { w.member(o).Probe.Status.Applied = index - entries })
}

// follows: these members take that one, by its ID, for the leader.
func follows(leader uint64, ordinals ...int) change {
	return each(ordinals, func(w *world, o int) { w.member(o).Probe.Status.Leader = leader })
}

func leads(ordinal int) change {
	return func(w *world) {
		for i := range w.state.Etcd.Members {
			if st := w.state.Etcd.Members[i].Probe.Status; st != nil {
				st.Leader = id(ordinal)
			}
		}
	}
}

// noStatus: the members answer reads and tell nothing about themselves.
func noStatus(why string, ordinals ...int) change {
	return each(ordinals, func(w *world, o int) {
		p := &w.member(o).Probe
		p.Status, p.Detail = nil, why
	})
}

// noLeader: the members answer, and none knows who leads.
func noLeader() change {
	return func(w *world) {
		for i := range w.state.Etcd.Members {
			if st := w.state.Etcd.Members[i].Probe.Status; st != nil {
				st.Leader = 0
			}
		}
	}
}

// unmatched: nothing ties the members to their pods, as with a wrong mapping of names.
func unmatched(ordinals ...int) change {
	return each(ordinals, func(w *world, o int) {
		m := w.member(o)
		m.Name, m.PeerURLs, m.ClientURLs = fmt.Sprint("unheard-of-", o), nil, nil
	})
}

func neverReady(ordinals ...int) change {
	return each(ordinals, func(w *world, o int) { w.pod(o).NeverReady = true })
}

func restarted(ordinals ...int) change {
	return each(ordinals, func(w *world, o int) { w.pod(o).Etcd.Restarts = 3 })
}

func sidecarRestarted(ordinals ...int) change {
	return each(ordinals, func(w *world, o int) { w.pod(o).Sidecar.Restarts = 3 })
}

func overriding(guards ...rollout.Guard) change {
	return func(w *world) { w.state.Controls.Override = guards }
}

func self(ordinal int) change { return func(w *world) { w.state.Self = name(ordinal) } }

func aged(c rollout.Condition, age time.Duration, ordinals ...int) change {
	return each(ordinals, func(w *world, o int) {
		w.state.Ages[rollout.Sighting{UID: w.pod(o).UID, Condition: c}] = age
	})
}

func quorumLostFor(age time.Duration) change {
	return func(w *world) { w.state.Ages[rollout.Sighting{Condition: rollout.QuorumLostSeen}] = age }
}

func maxUnavailable(n int) change {
	return func(w *world) { w.policy.MaxUnavailable = rollout.Amount{Number: n} }
}

func partition(n int) change { return func(w *world) { w.policy.Partition = n } }

func replicas(n int) change { return func(w *world) { w.state.Set.Replicas = n } }

func volatileData() change { return func(w *world) { w.state.Set.VolatileData = true } }

// ownVolatileData: these pods are of a template that had no persistent volume yet.
func ownVolatileData(ordinals ...int) change {
	return each(ordinals, func(w *world, o int) { w.pod(o).VolatileData = true })
}

// ghosts adds voters that no pod belongs to and that do not answer; outsiders
// adds such that do.
func ghosts(n int) change {
	return func(w *world) {
		for i := range n {
			w.state.Etcd.Members = append(w.state.Etcd.Members, rollout.Member{
				ID: 0x900 + uint64(i), Name: fmt.Sprint("ghost-", i), ClientURLs: []string{"https://10.0.0.9:2379"},
				Probe: rollout.Probe{Read: rollout.Failed, Detail: "timed out"},
			})
		}
	}
}

func outsiders(n int) change {
	return func(w *world) {
		w.with(ghosts(n))
		for i := range w.state.Etcd.Members {
			if m := &w.state.Etcd.Members[i]; m.ID >= 0x900 {
				st := *w.state.Etcd.Members[0].Probe.Status
				m.Probe = rollout.Probe{Read: rollout.Answered, Status: &st}
			}
		}
	}
}

// noMemberList: nobody answered with a member list.
func noMemberList() change {
	return func(w *world) { w.state.Etcd = rollout.Membership{} }
}

func gate(name string, pass, sickToo bool) change {
	return func(w *world) {
		w.state.Gates = append(
			w.state.Gates,
			rollout.Gate{Name: name, Pass: pass, SickToo: sickToo, Detail: "the last backup failed 7 minutes ago"},
		)
	}
}

// say renders a decision in the words of the tables below.
func say(d rollout.Decision) string {
	switch a := d.Action.(type) {
	case rollout.Remove:
		return a.Method.String() + " " + a.Target.Pod
	case rollout.MoveLeader:
		return "move leadership from " + a.Transfer.FromName + " to " + a.Transfer.ToName
	}
	return strings.TrimSpace(strings.ToLower(string(d.Action.Name())) + " " + string(d.Guard))
}

// failedGuards returns the candidate's failed guards, and whether it was considered.
func failedGuards(d rollout.Decision, pod string) (failed []rollout.Guard, considered bool) {
	for i := range d.Candidates {
		if c := &d.Candidates[i]; c.Pod == pod {
			considered = true
			for _, v := range c.Verdicts {
				if !v.Pass {
					failed = append(failed, v.Guard)
				}
			}
		}
	}
	return failed, considered
}

func detailOf(d rollout.Decision, pod string, g rollout.Guard) string {
	for _, c := range d.Candidates {
		if c.Pod != pod {
			continue
		}
		for _, v := range c.Verdicts {
			if v.Guard == g {
				return v.Detail()
			}
		}
	}
	return ""
}

// apply plays Kubernetes and etcd after a decision: leadership moves, and a removed
// pod goes through every stage until its successor of the new revision has
// settled. What is decided meanwhile goes to between.
func (w *world) apply(t *testing.T, d rollout.Decision, between func(stage string, d rollout.Decision)) {
	t.Helper()
	switch a := d.Action.(type) {
	case rollout.MoveLeader:
		w.with(leads(int(a.Transfer.To) - 1))
	case rollout.Remove:
		o, p := a.Target.Ordinal, w.pod(a.Target.Ordinal)
		if p.UID != a.Target.UID || p.ResourceVersion != a.Target.ResourceVersion {
			t.Fatalf("the target is UID %s at %s, the pod is UID %s at %s", a.Target.UID, a.Target.ResourceVersion,
				p.UID, p.ResourceVersion)
		}
		answer := w.member(o).Probe
		w.with(terminating(o))
		between("terminating", w.decide())
		w.with(noAnswer(o))
		between("terminating, member gone", w.decide())
		fresh := healthyPod(o, newRev, 2)
		w.with(missing(o))
		between("missing", w.decide())
		w.state.Pods = append(w.state.Pods, fresh)
		w.with(starting(o))
		between("container creating", w.decide())
		*w.pod(o) = fresh
		w.with(notReady(o))
		between("running, not ready", w.decide())
		// The new member serves like any other that does, and follows the same leader.
		for _, m := range w.state.Etcd.Members {
			if m.Probe.Status != nil {
				st := *m.Probe.Status
				answer = rollout.Probe{Read: rollout.Answered, Status: &st}
			}
		}
		w.member(o).Probe = answer
		between("serving, not ready", w.decide())
		*w.pod(o) = fresh
	case rollout.Defragment:
		st := w.member(a.Target.Ordinal).Probe.Status
		st.Size = st.InUse
		w.with(tried(rollout.Try{Done: true}, a.Target.Ordinal))
	case rollout.Disarm:
		for i := range w.state.Etcd.Members {
			st := w.state.Etcd.Members[i].Probe.Status
			st.NoSpace, st.NoSpaceOf = false, nil
		}
	default:
		t.Fatalf("nothing to apply: %s: %s", say(d), d.Reason())
	}
}

// evict: healthy pods go through the eviction API.
func evict(w *world) { w.policy.Removal = rollout.RemoveByEviction }

// refusedEviction: the eviction API has just refused one.
func refusedEviction(w *world) {
	w.state.RefusedEviction = rollout.Refusal{Words: "the budget etcd needs 2 healthy pods and has 2"}
}

// mootBudget: it has refused one of a single pod, where the budget needs two.
func mootBudget(w *world) {
	w.state.RefusedEviction = rollout.Refusal{Words: "the budget etcd needs 2 healthy pods and has 1", Lasting: true,
		Moot: true}
}

// neverEvicted: it has refused one, and no waiting helps.
func neverEvicted(w *world) {
	w.state.RefusedEviction = rollout.Refusal{Words: "the budget etcd needs 3 healthy pods and has 3", Lasting: true}
}
