package rollout_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/pkg/rollout"
)

// why gives what the kubelet says beside the reason of etcd's container.
func why(words string, ordinals ...int) change {
	return each(ordinals, func(w *world, o int) { w.pod(o).Etcd.Why = words })
}

// barredBy: nobody gets an answer of these members, for a reason that is not theirs.
func barredBy(by rollout.Barred, words string, ordinals ...int) change {
	return each(ordinals, func(w *world, o int) {
		w.member(o).Probe.Barred, w.member(o).Probe.Detail = by, "no linearizable read: "+words
	})
}

// receives: the members receive a snapshot of the leader's. They know it, and answer no linearizable read.
func receives(ordinals ...int) change {
	return func(w *world) {
		w.with(alive(ordinals...), each(ordinals, func(w *world, o int) {
			w.member(o).Probe.Status = &rollout.Status{Leader: id(0), Term: term}
		}))
	}
}

// unscheduled: the scheduler finds no node for them.
func unscheduled(ordinals ...int) change {
	return func(w *world) {
		w.with(alive(ordinals...), each(ordinals, func(w *world, o int) {
			w.pod(o).Etcd = rollout.Container{Reason: "Unschedulable", Why: "0/3 nodes are available"}
			w.pod(o).Node, w.pod(o).Initialized = "", false
		}))
	}
}

// ends: the pods terminate, within their grace period, and have for so long.
func ends(grace, since time.Duration, ordinals ...int) change {
	return each(ordinals, func(w *world, o int) {
		p := w.pod(o)
		p.Terminating, p.Grace, p.Node = true, grace, "node-1"
		p.GraceEnds = time.Date(2026, 11, 28, 11, 20, 0, 0, time.UTC)
		w.state.Ages[rollout.Sighting{UID: p.Name, Condition: rollout.AwaySeen}] = since
	})
}

const (
	expiredWords = "x509: certificate has expired or is not yet valid"
	noUser       = "etcdserver: user name is empty"
)

func TestTheAdviceFitsWhatKeepsThePod(t *testing.T) {
	late := aged(rollout.UnsettledSeen, patience, 2)
	for _, tc := range []struct {
		name       string
		w          *world
		want, says string
		do         string
		// template: the advice may be to fix the template.
		template bool
	}{
		{"an image that does not exist", cluster(3, updated(2), waitingFor("ImagePullBackOff", 2)),
			"hold UpdatedFailing", "(dead, ImagePullBackOff); fix the template: this pod is then replaced first",
			"kubectl describe pod etcd-2", true},
		{"a Secret that does not exist", cluster(3, updated(2), waitingFor("CreateContainerConfigError", 2),
			why(`secret "tls" not found`, 2)),
			"hold UpdatedFailing", `CreateContainerConfigError, secret "tls" not found`, "Create what is missing",
			true},
		{"a crash loop", cluster(3, updated(2), dead(2), why("its last process ended with Error, exit code 2", 2)),
			"hold UpdatedFailing", "CrashLoopBackOff, its last process ended with Error, exit code 2",
			"kubectl logs etcd-2 -c etcd --previous", true},
		{"a crash loop for want of memory", cluster(3, updated(2), dead(2),
			why("its last process ended with OOMKilled, exit code 137", 2)),
			"hold UpdatedFailing", "OOMKilled", "memory limit", true},
		{"a crash loop while quorum is lost", cluster(3, updated(2), dead(2), alive(0, 1)),
			"hold UpdatedFailing", "without quorum nothing settles", "override", true},
		{"nothing is known of what keeps it", cluster(3, updated(2), alive(2), late),
			"hold UpdatedFailing", "if the template is to blame, fix it", "If the template is to blame", true},

		{"no node takes it", cluster(3, updated(2), unscheduled(2), late),
			"hold UpdatedFailing", "0/3 nodes are available", "Make room", false},
		{"its node sets it up", cluster(3, updated(2), waitingFor("ContainerCreating", 2), late),
			"hold UpdatedFailing", "(starting, ContainerCreating)", "Multi-Attach", false},
		{"its certificate has expired",
			cluster(3, updated(2), alive(2), barredBy(rollout.ByCertificate, expiredWords, 2), late),
			"hold UpdatedFailing", "(alive, no linearizable read: " + expiredWords + ")", "Renew the certificate",
			false},
		{"nobody has signed in", cluster(3, updated(2), alive(2), barredBy(rollout.ByLogin, noUser, 2), late),
			"hold UpdatedFailing", noUser, "--etcd-username", false},
		{"it receives a snapshot, for however long", cluster(3, updated(2), receives(2), late),
			"wait UpdatedPending", "its member catches up, and answers no reads before it has: applied 0 of 10000 " +
				"log entries, 10000 behind", "Do not restart it", false},
		{"it serves and is behind, for however long", cluster(3, updated(2), behind(7000, 2), late),
			"wait UpdatedPending", "catches up: applied 3000 of 10000", "Do not restart it", false},
		{"it has restarted while it caught up: that may be its end again and again",
			cluster(3, updated(2), receives(2), restarted(2),
				why("its last process ended with OOMKilled, exit code 137", 2), late),
			"hold UpdatedFailing", "10000 behind, restarts: 3, its last process ended with OOMKilled",
			"a higher limit", false},
		{"its sidecar fails while it catches up", cluster(3, updated(2), behind(7000, 2), sick(2), late),
			"hold UpdatedFailing", "applied 3000 of 10000", "", true},
		{"a learner that the host has not promoted", cluster(3, updated(2), learner(2), late),
			"hold UpdatedFailing", "etcdctl member promote", "promote", false},

		{"it may take a week to end", cluster(3, ends(7*24*time.Hour, 40*time.Minute, 2)),
			"wait Terminating", "may take until 2026-11-28 11:20:00 UTC (grace period 7d, at most 6d23h20m left)",
			"kubectl delete pod etcd-2 --grace-period=30", false},
		{"its time to end is over", cluster(3, ends(30*time.Second, time.Hour, 2)),
			"wait Terminating", "although its grace period of 30s is over", "kubectl get node node-1", false},
		{"a finalizer keeps it", cluster(3, ends(30*time.Second, time.Hour, 2), each([]int{2}, func(w *world, o int) {
			w.pod(o).Finalizers = []string{"example.com/keep"}
		})), "wait Terminating", "finalizers: example.com/keep", "Whatever has set the finalizers", false},
		{"it cannot be created", cluster(3, missing(2), func(w *world) {
			w.state.Set.NotCreated = "create Pod etcd-2 in StatefulSet etcd failed error: exceeded quota"
		}), "wait Terminating", "exceeded quota", "Make room in the quota", false},
		{"it is missing, and nobody knows why", cluster(3, missing(2)),
			"wait Terminating", "its pod is missing", "kubectl describe statefulset", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := tc.w.decide()
			if got := say(d); got != tc.want || !strings.Contains(d.Reason(), tc.says) {
				t.Errorf("%s: %s", got, d.Reason())
			}
			if !strings.Contains(d.Do(), tc.do) {
				t.Errorf("it does not advise %q: %s", tc.do, d.Do())
			}
			all := d.Reason() + " " + d.Do()
			if changes := strings.Contains(strings.ToLower(all), "fix the template"); changes && !tc.template {
				t.Errorf("the template is not to blame: %s", all)
			}
			if regexp.MustCompile("POD|CONTAINER|NODE|NAME").MatchString(d.Do()) {
				t.Errorf("names are missing: %s", d.Do())
			}
		})
	}
}

// Where every namespace has a StatefulSet of that name, a command without -n would change another cluster.
func TestEveryCommandThatIsAdvisedNamesItsNamespace(t *testing.T) {
	quoted := regexp.MustCompile("`((?:kubectl|quorate) [^`]*)`")
	ofNoNamespace := regexp.MustCompile("kubectl (get|taint) node")
	for _, tc := range []struct {
		name string
		w    *world
		want string
	}{
		{"a crash", cluster(3, updated(2), dead(2)), "kubectl rollout undo -n garden statefulset/etcd"},
		{"a grace period", cluster(3, updated(2), alive(2), ends(time.Hour, time.Minute, 2)),
			"kubectl delete pod -n garden etcd-2 --grace-period=30"},
		{"no node", cluster(3, updated(2), unscheduled(2)), "kubectl describe pod -n garden etcd-2"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.w.state.Set.Namespace = "garden"
			d := tc.w.decide()
			if do := d.Do(); !strings.Contains(do, tc.want) {
				t.Errorf("it does not advise %q: %s", tc.want, do)
			}
			for _, command := range quoted.FindAllStringSubmatch(d.Do(), -1) {
				if !ofNoNamespace.MatchString(command[1]) && !strings.Contains(command[1], " -n garden ") {
					t.Errorf("no namespace: %s", command[1])
				}
			}
		})
	}
}

func TestWhatKeepsAnswersBackIsTheFirstThingToMend(t *testing.T) {
	for _, tc := range []struct {
		name           string
		w              *world
		want, says, do string
	}{
		{"every certificate has expired, and nothing else is heard",
			cluster(3, onNodes(), noAnswer(0, 1, 2), barredBy(rollout.ByCertificate, expiredWords, 0, 1, 2)),
			"hold CutOff", "etcd-0: no linearizable read: " + expiredWords, "Renew the certificate"},
		{"nobody has signed in, and that is an answer",
			cluster(3, onNodes(), unknown(0, 1, 2), barredBy(rollout.ByLogin, noUser, 0, 1, 2), replied(0, 1, 2)),
			"hold QuorumFloor", "etcd-0: no linearizable read: " + noUser, "--etcd-username"},
		{"so there is no list either", cluster(3, noMemberList(), func(w *world) {
			w.state.Etcd.Detail, w.state.Etcd.Barred = noUser, rollout.ByLogin
		}), "hold VotersUnknown", noUser, "--etcd-username"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := tc.w.decide()
			if got := say(d); got != tc.want || !strings.Contains(d.Reason(), tc.says) {
				t.Errorf("%s: %s", got, d.Reason())
			}
			if row := rollout.RowOf(d.Guard); !strings.HasPrefix(d.Do(), tc.do) && !strings.Contains(d.Do(), tc.do) ||
				!strings.HasSuffix(d.Do(), d.Assessment.Named(row.Do)) {
				t.Errorf("it advises: %s", d.Do())
			}
		})
	}
}

func TestAPaceSaysWhenAMemberHasCaughtUp(t *testing.T) {
	for _, tc := range []struct {
		applied uint64
		pace    float64
		want    string
	}{
		{1_200_000, 15_833, "applied 1.2 of 5.0 million log entries, 3.8 million behind, about 4 min to go"},
		{1_200_000, 300, "about 4 h to go"},
		{4_990_000, 1000, "about a minute to go"},
		{1_200_000, 0, "3.8 million behind"},
	} {
		w := cluster(3, updated(2), func(w *world) {
			for o := range 3 {
				w.member(o).Probe.Status.Index, w.member(o).Probe.Status.Applied = 5_000_000, 5_000_000
			}
			w.member(2).Probe.Status.Applied = tc.applied
			w.state.Paces = map[uint64]float64{id(2): tc.pace}
		})
		d := w.decide()
		if text := d.Reason(); !strings.Contains(text, tc.want) || tc.pace == 0 && strings.Contains(text, "to go") {
			t.Errorf("at %v entries a second: %s", tc.pace, text)
		}
	}
}

func TestAPodWhoseClaimIsDeletedStaysWithItsData(t *testing.T) {
	going := func(ordinals ...int) change {
		return each(ordinals, func(w *world, o int) { w.pod(o).ClaimsGoing = []string{"data-" + w.pod(o).Name} })
	}
	for _, tc := range []struct {
		name, want string
		w          *world
	}{
		{"another one goes first", "evict etcd-1", cluster(3, going(2))},
		{"also where it does not serve: it may have the last copy", "hold DataSurvives", cluster(3, dead(2), going(2))},
		{"with all of them it is over", "hold DataSurvives", cluster(3, going(0, 1, 2))},
		{"the operator knows better", "evict etcd-2", cluster(3, going(2), func(w *world) {
			w.state.Controls.Override = []rollout.Guard{rollout.GuardDataSurvives}
		})},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := tc.w.decide()
			got := strings.Replace(say(d), "delete", "evict", 1)
			if got != tc.want {
				t.Errorf("%s: %s", got, d.Reason())
			}
			told := slices.ContainsFunc(d.Candidates, func(c rollout.Candidate) bool {
				return slices.ContainsFunc(c.Verdicts, func(v rollout.Verdict) bool {
					return strings.Contains(v.Detail(), "volume claim data-etcd-2")
				})
			})
			if !told {
				t.Error("no verdict names the claim")
			}
		})
	}
}
