package chaos

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorate/quorate/test/harness"
)

// story is made-up evidence. Times are since its beginning.
type story struct {
	*Evidence
	begin   time.Time
	version int64
}

const (
	lasts  = 60 * time.Second
	sample = 200 * time.Millisecond
	second = time.Second
)

// tell begins a story of so many members that all serve all the time.
func tell(members int) *story {
	s := &story{begin: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), Evidence: &Evidence{
		MaxEvidenceAge: 5 * second, SettleTimeout: 20 * second, Readings: map[string][]Reading{},
	}}
	s.Scalings = []Scaling{{At: s.at(0), Replicas: members}}
	for t := time.Duration(0); t < lasts; t += sample {
		s.Votings = append(s.Votings, Voting{At: s.at(t), Voters: members})
		for n := range members {
			pod := fmt.Sprintf("main-%d", n)
			s.Readings[pod] = append(s.Readings[pod], Reading{Asked: s.at(t), Answered: s.at(t + 5*time.Millisecond)})
		}
	}
	for n := range members {
		s.pod(0, PodChange{Pod: fmt.Sprintf("main-%d", n), UID: "old", Ready: true, Etcd: Running})
	}
	return s
}

func (s *story) at(t time.Duration) time.Time { return s.begin.Add(t) }

func (s *story) next() int64 {
	s.version++
	return s.version
}

func (s *story) pod(t time.Duration, c PodChange) *story {
	c.At, c.Version = s.at(t), s.next()
	s.Pods = append(s.Pods, c)
	return s
}

// silent: the member answers nothing that it is asked in that time.
func (s *story) silent(pod string, from, to time.Duration) *story {
	for i := range s.Readings[pod] {
		if r := &s.Readings[pod][i]; !r.Asked.Before(s.at(from)) && r.Asked.Before(s.at(to)) {
			r.Answered = time.Time{}
		}
	}
	return s
}

func (s *story) intent(t time.Duration, pod, uid string) *story {
	s.Lease = append(s.Lease, LeaseChange{At: s.at(t), Version: s.next(), Holder: "main-0", Intent: Intent{pod, uid}})
	s.Requests = append(s.Requests, Request{By: "main-0", At: s.at(t), Forwarded: s.at(t), Answered: s.at(t),
		Verdict: 200, Intent: Intent{pod, uid}})
	return s
}

// request: a sidecar asks, and the API server answers at once.
func (s *story) request(t time.Duration, pod, uid string, verdict int) *story {
	s.Requests = append(s.Requests, Request{
		Removal: true, By: "main-0", At: s.at(t), Forwarded: s.at(t), Answered: s.at(t + 5*time.Millisecond),
		Verdict: verdict, Intent: Intent{pod, uid},
	})
	return s
}

// terminates, without a word on who asked for it.
func (s *story) terminates(t time.Duration, pod, uid string) *story {
	return s.pod(t+10*time.Millisecond, PodChange{Pod: pod, UID: uid, Terminates: true})
}

// removed: as the product does it.
func (s *story) removed(t time.Duration, pod, uid string) *story {
	return s.intent(t-50*time.Millisecond, pod, uid).request(t, pod, uid, 200).terminates(t, pod, uid)
}

// replaced: its member is silent until the successor has come back after a while.
func (s *story) replaced(t, takes time.Duration, pod, uid, successor string) *story {
	return s.removed(t, pod, uid).silent(pod, t+100*time.Millisecond, t+takes).
		pod(t+takes/4, PodChange{Pod: pod, UID: uid, Terminates: true, Gone: true}).
		pod(t+takes/3, PodChange{Pod: pod, UID: successor}).
		pod(t+takes, PodChange{Pod: pod, UID: successor, Ready: true})
}

// drained: a drain evicts it.
func (s *story) drained(t time.Duration, pod, uid string) *story {
	s.Deletions = append(s.Deletions, Deletion{At: s.at(t), Pod: pod, UID: uid, Drain: true})
	return s.terminates(t, pod, uid)
}

// back: its successor is there, and Ready.
func (s *story) back(t time.Duration, pod, uid, successor string) *story {
	return s.pod(t-2*second, PodChange{Pod: pod, UID: uid, Terminates: true, Gone: true}).
		pod(t-second, PodChange{Pod: pod, UID: successor}).
		pod(t, PodChange{Pod: pod, UID: successor, Ready: true, Etcd: Running})
}

// etcd: the kubelet says so of its member, from then on.
func (s *story) etcd(t time.Duration, pod, uid string, state Container) *story {
	return s.pod(t, PodChange{Pod: pod, UID: uid, Etcd: state})
}

// scaled: from 5 to 3.
func (s *story) scaled(at, done time.Duration) *story {
	s.Scalings = append(s.Scalings, Scaling{At: s.at(at), Done: s.at(done), Replicas: 3})
	return s
}

// added is a voter that never starts.
func (s *story) added(at time.Duration) *story {
	s.Ghosts = append(s.Ghosts, "main-6")
	for i := range s.Votings {
		if !s.Votings[i].At.Before(s.at(at)) {
			s.Votings[i].Voters++
		}
	}
	return s
}

func (s *story) fault(from, to time.Duration, victim string) *story {
	s.Faults = append(s.Faults, Window{Fault: "SIGKILL to etcd " + victim, Silences: true,
		From: s.at(from), To: s.at(to)})
	return s
}

// cut: main-0 keeps the API server, and nobody hears the kubelets of these any more. Their processes begin at the
// first of these times, end at the second, and so on; 0 is for what runs from the beginning.
func (s *story) cut(from, to time.Duration, changes map[string][]time.Duration) *story {
	s.Faults = append(s.Faults, Window{Fault: string(CutZone) + ", and left alone: main-0", Silences: true,
		From: s.at(from), To: s.at(to)})
	s.silent("main-0", from, to)
	for pod, at := range changes {
		u := Unheard{Pod: pod, From: s.at(from), To: s.at(to), Seen: []Seen{{At: s.at(from)}}}
		for i, t := range at {
			u.Seen = append(u.Seen, Seen{At: s.at(max(from, t)), Runs: i%2 == 0})
		}
		s.Unheard = append(s.Unheard, u)
	}
	return s
}

// crashed: the last word of its kubelet is that it backs off, and its member serves again later.
func (s *story) crashed(t, back time.Duration, pod string) *story {
	return s.fault(t, t+second, pod).silent(pod, t, back).etcd(t+second, pod, "old", BacksOff)
}

// harmless is a fault that cannot silence a member.
func (s *story) harmless(from, to time.Duration, victim string) *story {
	s.Faults = append(s.Faults, Window{Fault: "SIGKILL to the sidecar " + victim, From: s.at(from), To: s.at(to)})
	return s
}

func TestAnAuditorsJudgement(t *testing.T) {
	for _, c := range []struct {
		name  string
		story *story
		// by is who removed each pod, and wrong what each violation begins with or contains.
		by       []string
		wrong    []string
		residues int
	}{
		{"one after the other, each after the last has come back, is as it should be",
			tell(3).replaced(5*second, 4*second, "main-2", "old", "new").
				replaced(12*second, 4*second, "main-1", "old", "new"),
			[]string{"the sidecar of main-0", "the sidecar of main-0"}, nil, 0},
		{"the second goes while the first is terminating",
			tell(3).removed(5*second, "main-2", "old").silent("main-2", 5*second, lasts).
				removed(8*second, "main-1", "old").silent("main-1", 8*second, lasts).silent("main-0", 8*second, lasts),
			nil, []string{"main-1 served and was removed while main-2, which we had removed, was terminating",
				"1 of the 2 other voters served: quorum is 2"}, 0},
		{"the second goes at once, before the first has fallen silent",
			tell(3).removed(5*second, "main-2", "old").removed(5*second+100*time.Millisecond, "main-1", "old"),
			nil, []string{"was terminating", "1 of the 2 other voters served: quorum is 2 (silent: [main-2])"}, 0},
		{"the second goes while the first is missing",
			tell(3).removed(5*second, "main-2", "old").silent("main-2", 5*second, lasts).
				pod(6*second, PodChange{Pod: "main-2", UID: "old", Gone: true}).removed(8*second, "main-1", "old"),
			nil, []string{"was missing", "quorum is 2"}, 0},
		{"the second goes while the first is there again but has not answered yet",
			tell(3).removed(5*second, "main-2", "old").silent("main-2", 5*second, lasts).
				pod(6*second, PodChange{Pod: "main-2", UID: "old", Gone: true}).
				pod(7*second, PodChange{Pod: "main-2", UID: "new"}).removed(12*second, "main-1", "old"),
			nil, []string{"had not come back", "quorum is 2"}, 0},
		{"of five, the second goes while the first is terminating: a quorum is left, but only one may be away",
			tell(5).removed(5*second, "main-2", "old").silent("main-2", 5*second, lasts).
				removed(8*second, "main-1", "old"),
			nil, []string{"was terminating"}, 0},
		{"what is dead may go while another is away",
			tell(3).removed(5*second, "main-2", "old").silent("main-2", 5*second, lasts).silent("main-1", 6*second,
				lasts).etcd(6*second, "main-1", "old", Terminated).removed(8*second, "main-1", "old"),
			nil, nil, 0},
		{"what a fault has silenced since it last answered may go while another is away",
			tell(3).removed(5*second, "main-2", "old").silent("main-2", 5*second, lasts).
				fault(8*second-50*time.Millisecond, 9*second, "main-1").silent("main-1", 8*second, lasts).
				etcd(8*second-45*time.Millisecond, "main-1", "old", Terminated).removed(8*second, "main-1", "old"),
			nil, nil, 0},
		{"so may what has ended since it last answered, by its kubelet's word, however long ago the fault began",
			tell(3).removed(5*second, "main-2", "old").silent("main-2", 5*second, lasts).
				fault(7*second, 8*second, "main-1").silent("main-1", 7*second+500*time.Millisecond, lasts).
				etcd(7*second+600*time.Millisecond, "main-1", "old", BacksOff).removed(8*second, "main-1", "old"),
			nil, nil, 0},
		{"what has ended by its kubelet's word, and answers after that, may not",
			tell(3).removed(5*second, "main-2", "old").silent("main-2", 5*second, lasts).
				etcd(7*second, "main-1", "old", Terminated).removed(8*second, "main-1", "old"),
			nil, []string{"was terminating", "1 of the 2 other voters served: quorum is 2"}, 0},
		{"what a fault had silenced, and serves again, may not",
			tell(3).removed(5*second, "main-2", "old").silent("main-2", 5*second, lasts).
				fault(6*second, 6*second, "main-1").silent("main-1", 6*second, 7*second+500*time.Millisecond).
				removed(8*second, "main-1", "old"),
			nil, []string{"was terminating", "1 of the 2 other voters served: quorum is 2"}, 0},
		{"nor may one that serves while a fault hits another",
			tell(3).removed(5*second, "main-2", "old").silent("main-2", 5*second, lasts).
				fault(8*second-50*time.Millisecond, 9*second, "main-0").removed(8*second, "main-1", "old"),
			nil, []string{"was terminating", "1 of the 2 other voters served: quorum is 2"}, 0},
		{"one goes while another has been silent for long",
			tell(3).silent("main-2", second, lasts).fault(second, 2*second, "main-2").
				removed(20*second, "main-1", "old"),
			nil, []string{"1 of the 2 other voters served: quorum is 2 (silent: [main-2])"}, 0},
		{"one goes just after a fault has silenced another: excused and counted",
			tell(3).fault(18*second, 30*second, "main-2").silent("main-2", 18*second, lasts).
				removed(20*second, "main-1", "old"),
			nil, nil, 1},
		{"one goes just after another fell silent, and a fault has hit a sidecar: not excused",
			tell(3).harmless(18*second, 30*second, "main-2").silent("main-2", 18*second, lasts).
				removed(20*second, "main-1", "old"),
			nil, []string{"quorum is 2"}, 0},
		{"nor does a fault of its sidecar make a member one that does not serve",
			tell(3).removed(5*second, "main-2", "old").silent("main-2", 5*second, lasts).
				harmless(8*second-50*time.Millisecond, 9*second, "main-1").removed(8*second, "main-1", "old"),
			nil, []string{"was terminating", "1 of the 2 other voters served: quorum is 2"}, 0},
		{"one goes just after another fell silent by itself: not excused",
			tell(3).silent("main-2", 18*second, lasts).removed(20*second, "main-1", "old"),
			nil, []string{"quorum is 2"}, 0},
		{"one goes a little later than evidence may be old after a fault has silenced another",
			tell(3).fault(12*second, 30*second, "main-2").silent("main-2", 12*second, lasts).
				removed(20*second, "main-1", "old"),
			nil, []string{"quorum is 2"}, 0},
		{"a request that was under way for long is judged by when it was sent",
			func() *story {
				s := tell(3).fault(12*second, 30*second, "main-2").silent("main-2", 12*second, lasts).
					intent(9*second, "main-1", "old")
				s.Requests = append(s.Requests, Request{
					Removal: true, By: "main-0", At: s.at(10 * second), Forwarded: s.at(20 * second),
					Answered: s.at(21 * second), Verdict: 200, Intent: Intent{"main-1", "old"},
				})
				return s.terminates(20*second, "main-1", "old")
			}(), nil, nil, 1},
		{"a few late answers are no proof",
			tell(3).silent("main-2", 19*second, 20*second+500*time.Millisecond).removed(20*second, "main-1", "old"),
			nil, nil, 0},
		{"a learner is no survivor",
			func() *story {
				s := tell(3).removed(20*second, "main-1", "old").silent("main-2", second, lasts)
				for _, r := range s.Readings["main-0"] {
					r.Learner = true
					s.Readings["main-3"] = append(s.Readings["main-3"], r)
				}
				return s
			}(), nil, []string{"1 of the 2 other voters served"}, 0},
		{"one goes when nobody has seen how many voters there are",
			func() *story {
				s := tell(3).removed(5*second, "main-2", "old")
				s.Votings = nil
				return s
			}(), nil, []string{"nobody has seen how many voters there were"}, 0},
		{"without an intent", tell(3).request(5*second, "main-2", "old", 200).terminates(5*second, "main-2", "old"),
			nil, []string{"without an intent on record"}, 0},
		{"with the intent written after it",
			tell(3).request(5*second, "main-2", "old", 200).terminates(5*second, "main-2", "old").
				intent(6*second, "main-2", "old"),
			nil, []string{"without an intent on record"}, 0},
		{"with an intent that has been cleared",
			tell(3).intent(4*second, "main-2", "old").intent(5*second, "", "").request(6*second, "main-2", "old", 200).
				terminates(6*second, "main-2", "old"),
			nil, []string{"without an intent on record"}, 0},
		{"with an intent for another pod of that name",
			tell(3).intent(4*second, "main-2", "older").request(5*second, "main-2", "old", 200).
				terminates(5*second, "main-2", "old"),
			nil, []string{"names another pod of that name"}, 0},
		{"with an intent that only the proxy saw, in an outage of the API server",
			func() *story {
				s := tell(3).removed(5*second, "main-2", "old")
				s.Lease = nil
				return s
			}(), nil, nil, 0},
		{"by a request that was refused, that is: by nobody known",
			tell(3).intent(4*second, "main-2", "old").request(5*second, "main-2", "old", 409).
				terminates(5*second, "main-2", "old"),
			[]string{byNobody}, []string{"nobody is known"}, 0},
		{"by a request that was never answered",
			tell(3).intent(4*second, "main-2", "old").request(5*second, "main-2", "old", 0).
				terminates(5*second, "main-2", "old"),
			[]string{"the sidecar of main-0"}, nil, 0},
		{"by a request for another pod of that name, that is: by nobody known",
			tell(3).intent(4*second, "main-2", "old").request(5*second, "main-2", "older", 200).
				terminates(5*second, "main-2", "old"),
			[]string{byNobody}, []string{"nobody is known"}, 0},
		{"by the harness",
			func() *story {
				s := tell(3).terminates(5*second, "main-2", "old")
				s.Deletions = []Deletion{{At: s.at(5 * second), Pod: "main-2", UID: "old"}}
				return s
			}(), []string{byHarness}, nil, 0},
		{"by the StatefulSet controller, once it is scaled away",
			func() *story {
				s := tell(5).terminates(5*second, "main-4", "old")
				s.Scalings = append(s.Scalings, Scaling{At: s.at(4 * second), Replicas: 3})
				return s
			}(), []string{byController}, nil, 0},
		{"by a drain, as often as it likes",
			tell(3).drained(5*second, "main-2", "old").silent("main-2", 5*second, 9*second).
				back(9*second, "main-2", "old", "new").drained(10*second, "main-1", "old"),
			[]string{byDrain, byDrain}, nil, 0},
		{"by our eviction, which a drain's came too late for",
			func() *story {
				s := tell(3).intent(4*second, "main-2", "old").request(5*second, "main-2", "old", 201)
				s.Deletions = []Deletion{{At: s.at(4 * second), Pod: "main-2", UID: "old", Drain: true}}
				return s.terminates(5*second, "main-2", "old")
			}(), []string{"the sidecar of main-0"}, nil, 0},
		{"by a drain, and our request was never answered",
			tell(3).intent(4*second, "main-2", "old").request(5*second, "main-2", "old", 0).
				drained(5*second, "main-2", "old"),
			[]string{byDrain}, nil, 0},
		{"by us alone, when an operator's deletion was sent after it had gone",
			func() *story {
				s := tell(3).intent(4*second, "main-2", "old").request(5*second, "main-2", "old", 0).
					terminates(5*second, "main-2", "old")
				s.Deletions = []Deletion{{At: s.at(6 * second), Pod: "main-2", UID: "old"}}
				return s
			}(), []string{"the sidecar of main-0"}, nil, 0},

		{"a drain takes a Ready member while one that we took is away",
			tell(3).removed(5*second, "main-2", "old").drained(6*second, "main-1", "old"),
			[]string{"the sidecar of main-0", byDrain},
			[]string{"main-1 was Ready and removed by a drain while others that had been Ready were away (main-2 by " +
				"the sidecar of main-0): a budget allows 1"}, 0},
		{"we take a Ready member while one that a drain took a moment ago is away: evidence may be that old, a " +
			"budget is not", tell(3).drained(5*second, "main-2", "old").removed(6*second, "main-1", "old"),
			nil, []string{"(main-2 by a drain): a budget allows 1"}, 1},
		{"we take a Ready member once the drained one is Ready again",
			tell(3).drained(5*second, "main-2", "old").silent("main-2", 5*second, 8*second).
				back(9*second, "main-2", "old", "new").removed(10*second, "main-1", "old"),
			nil, nil, 0},
		{"a drain takes a Ready member while one that we took was not Ready",
			tell(3).pod(second, PodChange{Pod: "main-2", UID: "old", Etcd: Running}).removed(5*second, "main-2", "old").
				drained(6*second, "main-1", "old"),
			nil, nil, 0},
		{"a drain takes one that is not Ready while one that we took is away",
			tell(3).pod(second, PodChange{Pod: "main-1", UID: "old", Etcd: Running}).removed(5*second, "main-2", "old").
				drained(6*second, "main-1", "old"),
			nil, nil, 0},
		{"we take a Ready member while the drained one's successor is not Ready yet",
			tell(3).drained(5*second, "main-2", "old").pod(6*second, PodChange{Pod: "main-2", UID: "old", Gone: true}).
				pod(7*second, PodChange{Pod: "main-2", UID: "new", Etcd: Running}).removed(8*second, "main-1", "old"),
			nil, []string{"(main-2 by a drain): a budget allows 1"}, 0},
		{"drains take two Ready members by themselves, which is for the API server to allow",
			tell(3).drained(5*second, "main-2", "old").drained(6*second, "main-1", "old"),
			nil, nil, 0},
		{"of five, a budget allows a drain another one",
			tell(5).removed(5*second, "main-2", "old").drained(6*second, "main-1", "old"),
			nil, nil, 0},
		{"of five, we may not follow when the drain has been known for long",
			tell(5).drained(5*second, "main-2", "old").removed(15*second, "main-1", "old"),
			nil, []string{"main-1 served and was removed while main-2, removed by a drain for 9.99s, was away"}, 0},
		{"of five, one goes while another has been silent for long",
			tell(5).silent("main-2", second, lasts).fault(second, 2*second, "main-2").
				removed(20*second, "main-1", "old"),
			nil, []string{"the member of main-2 had been silent since before the evidence was gathered"}, 0},
		{"of five, one goes just after another has fallen silent",
			tell(5).silent("main-2", 16*second, lasts).fault(16*second, 17*second, "main-2").
				removed(20*second, "main-1", "old"),
			nil, nil, 0},

		{"who is being scaled away is no survivor, though all five serve",
			tell(5).scaled(5*second, 5*second).removed(20*second, "main-1", "old"),
			nil, []string{"2 of the 4 other voters served: quorum is 3 (silent: [main-3 main-4])"}, 0},
		{"who is being scaled away is no survivor while it terminates and serves",
			tell(5).scaled(5*second, 5*second).terminates(6*second, "main-3", "old").
				terminates(6*second, "main-4", "old").removed(20*second, "main-1", "old"),
			[]string{byController, byController, "the sidecar of main-0"},
			[]string{"quorum is 3 (silent: [main-3 main-4])"}, 0},
		{"who was scaled away after the evidence was gathered was a survivor: excused and counted",
			tell(5).scaled(17*second, 17*second).terminates(18*second, "main-3", "old").
				terminates(18*second, "main-4", "old").removed(20*second, "main-1", "old"),
			nil, nil, 1},
		{"who was scaled away after the evidence was gathered, and does not terminate yet: the same",
			tell(5).scaled(17*second, 17*second).removed(20*second, "main-1", "old"),
			nil, nil, 1},
		{"who was scaled away by the change that the removal is for: whoever removes has seen it",
			func() *story {
				s := tell(5).scaled(17*second, 17*second).terminates(18*second, "main-3", "old").
					terminates(18*second, "main-4", "old").removed(20*second, "main-1", "old")
				s.Scalings[1].Begins = true
				return s
			}(), nil, []string{"2 of the 4 other voters served: quorum is 3 (silent: [main-3 main-4])"}, 0},
		{"who is to be scaled away, nobody knows since when, is a survivor",
			func() *story {
				s := tell(5).removed(20*second, "main-1", "old")
				s.Scalings = append(s.Scalings, Scaling{At: s.at(5 * second), Replicas: 3})
				return s
			}(), nil, nil, 0},

		{"a process that runs goes, and the others that serve are a quorum",
			tell(3).silent("main-1", second, lasts).removed(20*second, "main-1", "old"),
			nil, nil, 0},
		{"a process that runs goes, and quorum may need it: of three one serves, and the third backs off",
			tell(3).silent("main-1", second, lasts).silent("main-2", second, lasts).
				etcd(2*second, "main-2", "old", BacksOff).removed(20*second, "main-1", "old"),
			nil,
			[]string{"main-1 ran and was removed when only [main-0] of the 2 other voters may have voted: quorum is 2"},
			0},
		{"a process that runs goes, and the third that is silent may vote as well",
			tell(3).silent("main-1", second, lasts).silent("main-2", second, lasts).removed(20*second, "main-1", "old"),
			nil, nil, 0},
		{"a process that runs goes just after a voter was added that never starts: excused and counted",
			tell(3).silent("main-1", second, lasts).added(19*second).removed(20*second, "main-1", "old"), nil, nil, 1},
		{"a process that runs goes, and quorum needs it since such a voter was added",
			tell(3).silent("main-1", second, lasts).added(10*second).removed(20*second, "main-1", "old"),
			nil, []string{"only [main-0 main-2] of the 3 other voters may have voted: quorum is 3"}, 0},
		{"a member that serves goes just after it: excused and counted",
			tell(3).added(19*second).removed(20*second, "main-1", "old"), nil, nil, 1},
		{"a member that serves goes, and quorum needs it since such a voter was added",
			tell(3).added(10*second).removed(20*second, "main-1", "old"),
			nil, []string{"2 of the 3 other voters served: quorum is 3"}, 0},
		{"a process that runs goes, and the third is what we have removed",
			tell(3).removed(10*second, "main-2", "old").silent("main-2", 10*second, lasts).
				silent("main-1", 12*second, lasts).removed(20*second, "main-1", "old"),
			nil, []string{"only [main-0] of the 2 other voters may have voted"}, 0},
		{"a process that runs goes just after the third has begun to back off: excused and counted",
			tell(3).silent("main-1", second, lasts).silent("main-2", second, lasts).
				etcd(17*second, "main-2", "old", BacksOff).removed(20*second, "main-1", "old"),
			nil, nil, 1},
		{"a container that backs off is no process",
			tell(3).silent("main-1", second, lasts).silent("main-2", second, lasts).
				etcd(2*second, "main-2", "old", BacksOff).
				etcd(2*second, "main-1", "old", BacksOff).removed(20*second, "main-1", "old"),
			nil, nil, 0},
		{"without quorum, a process that runs goes too soon",
			tell(3).silent("main-0", 10*second, lasts).silent("main-1", 10*second, lasts).
				silent("main-2", 10*second, lasts).removed(20*second, "main-1", "old"),
			nil, []string{"main-1 ran and was removed when no member had served for 10.1"}, 0},
		{"a member that its kubelet has just found ready serves, although it has not answered us yet",
			tell(3).silent("main-0", 10*second, lasts).silent("main-1", 10*second, lasts).
				drained(10*second, "main-2", "old").silent("main-2", 10*second, lasts).
				back(19900*time.Millisecond, "main-2", "old", "new").removed(20*second, "main-1", "old"),
			nil, nil, 0},
		{"a process that has ended and runs again has served until then, and one that we had removed is away",
			tell(5).removed(15*second, "main-4", "old").silent("main-4", 15*second, lasts).
				silent("main-1", 19300*time.Millisecond, lasts).
				etcd(19400*time.Millisecond, "main-1", "old", Terminated).
				etcd(19500*time.Millisecond, "main-1", "old", Running).removed(20*second, "main-1", "old"),
			nil, nil, 0},
		{"without quorum for settleTimeout, a process that runs may go",
			tell(3).silent("main-0", 10*second, lasts).silent("main-1", 10*second, lasts).
				silent("main-2", 10*second, lasts).removed(35*second, "main-1", "old"),
			nil, nil, 0},
		{"nobody has looked: that a process went too soon is not certain",
			func() *story {
				s := tell(3).removed(20*second, "main-1", "old")
				for pod, readings := range s.Readings {
					s.Readings[pod] = slices.DeleteFunc(readings, func(r Reading) bool {
						return r.Asked.After(s.at(10 * second))
					})
				}
				return s
			}(), nil, nil, 0},

		{"cut off with the API server, one takes a member that serves on the other side, whatever its kubelet " +
			"said last",
			tell(3).crashed(5*second, 9*second, "main-1").crashed(5*second, 9*second, "main-2").
				cut(7*second, 40*second, map[string][]time.Duration{"main-1": {8 * second}, "main-2": {8 * second}}).
				removed(20*second, "main-1", "old"),
			nil, []string{"1 of the 2 other voters served: quorum is 2 (silent: [main-0])"}, 0},
		{"the same, when its kubelet had said nothing bad",
			tell(3).cut(7*second, 40*second, map[string][]time.Duration{"main-1": {0}, "main-2": {0}}).
				removed(20*second, "main-1", "old"),
			nil, []string{"1 of the 2 other voters served: quorum is 2 (silent: [main-0])"}, 0},
		{"of five, a quorum is left on the other side, but those on this side have been silent for long",
			tell(5).silent("main-4", 7*second, 40*second).crashed(5*second, 9*second, "main-1").
				cut(7*second, 40*second,
					map[string][]time.Duration{"main-1": {8 * second}, "main-2": {0}, "main-3": {0}}).
				removed(20*second, "main-1", "old"),
			nil, []string{"2 of the 4 other voters served: quorum is 3"}, 0},
		{"what really is down on the other side may go",
			tell(3).crashed(5*second, lasts, "main-1").crashed(5*second, 9*second, "main-2").
				cut(7*second, 40*second, map[string][]time.Duration{"main-1": nil, "main-2": {8 * second}}).
				removed(20*second, "main-1", "old"),
			nil, nil, 0},
		{"what has gone down there unheard may go, though its kubelet's last word was that it runs",
			tell(3).silent("main-1", 9*second, lasts).silent("main-2", 9*second, lasts).
				cut(7*second, 40*second, map[string][]time.Duration{"main-1": {0, 9 * second}, "main-2": {0}}).
				removed(20*second, "main-1", "old"),
			nil, nil, 0},
		{"what hangs there may not: it may be needed",
			tell(3).silent("main-1", 9*second, lasts).silent("main-2", 9*second, lasts).
				cut(7*second, 40*second, map[string][]time.Duration{"main-1": {0}, "main-2": {0}}).
				removed(20*second, "main-1", "old"),
			nil, []string{"ran and was removed when no member had served for 11"}, 0},
		{"what runs there, unheard, and does not serve yet, may be needed",
			tell(3).crashed(5*second, lasts, "main-1").crashed(5*second, 9*second, "main-2").
				silent("main-2", 12*second, lasts).
				cut(7*second, 40*second, map[string][]time.Duration{"main-1": {8 * second}, "main-2": {8 * second}}).
				removed(20*second, "main-1", "old"),
			nil, []string{"ran and was removed when no member had served for 8"}, 0},
		{"what begins to run there after the evidence was gathered was down then",
			tell(3).crashed(5*second, lasts, "main-1").crashed(5*second, lasts, "main-2").
				cut(7*second, 40*second, map[string][]time.Duration{"main-1": {18 * second}, "main-2": nil}).
				removed(20*second, "main-1", "old"),
			nil, nil, 0},
		{"what comes back just after the cut, when its kubelet had said that it was down: excused and counted",
			tell(3).crashed(5*second, 9*second, "main-1").crashed(5*second, 9*second, "main-2").
				cut(7*second, 40*second, map[string][]time.Duration{"main-1": {8 * second}, "main-2": {8 * second}}).
				removed(10*second, "main-1", "old"),
			nil, nil, 1},
		{"the same after another that was down, too, and went before the cut",
			tell(3).crashed(5*second, lasts, "main-1").crashed(5*second, 9*second, "main-2").
				removed(6500*time.Millisecond, "main-1", "old").
				cut(7*second, 40*second, map[string][]time.Duration{"main-1": nil, "main-2": {8 * second}}).
				removed(10*second, "main-2", "old"),
			nil, nil, 1},
		{"what served before the cut and serves after it, by its kubelet's last word too, is not excused",
			tell(3).silent("main-2", second, lasts).
				cut(7*second, 40*second, map[string][]time.Duration{"main-1": {0}, "main-2": {0}}).
				removed(10*second, "main-1", "old"),
			nil, []string{"0 of the 2 other voters served: quorum is 2"}, 0},
		{"when the cut is over, a kubelet's word is news again",
			tell(3).cut(7*second, 15*second, map[string][]time.Duration{"main-1": {0}, "main-2": {0}}).
				silent("main-0", 20*second, lasts).silent("main-2", 20*second, lasts).
				crashed(20*second, lasts, "main-1").removed(30*second, "main-1", "old"),
			nil, nil, 0},
		{"those whose leader's pod somebody has deleted fall silent: excused and counted",
			tell(5).deleted(17500*time.Millisecond, Deletion{Pod: "main-4", Way: harness.ByDelete}).
				silent("main-2", 17600*time.Millisecond, lasts).silent("main-3", 17600*time.Millisecond, lasts).
				removed(20*second, "main-1", "old"),
			[]string{byHarness, "the sidecar of main-0"}, nil, 1},
		{"the same without anybody's hand is not excused",
			tell(5).silent("main-2", 17600*time.Millisecond, lasts).silent("main-3", 17600*time.Millisecond, lasts).
				silent("main-4", 17600*time.Millisecond, lasts).removed(20*second, "main-1", "old"),
			nil, []string{"1 of the 4 other voters served: quorum is 3"}, 0},
		{"hands that evict a pod meet the budget as a drain does",
			tell(3).removed(5*second, "main-2", "old").
				deleted(6*second, Deletion{Pod: "main-1", Way: harness.ByEviction, Hands: true}),
			[]string{"the sidecar of main-0", byHands},
			[]string{"main-1 was Ready and removed by hands while others that had been Ready were away"}, 0},
		{"hands that delete it do not, and take what they take",
			tell(3).removed(5*second, "main-2", "old").
				deleted(6*second, Deletion{Pod: "main-1", Way: harness.ByDelete, Hands: true}),
			[]string{"the sidecar of main-0", byHands}, nil, 0},
		{"an end that the watch has missed: that the process ran to the end is not certain",
			tell(3).silent("main-1", second, lasts).silent("main-2", second, lasts).
				etcd(2*second, "main-2", "old", BacksOff).
				intent(19*second, "main-1", "old").request(20*second, "main-1", "old", 200).
				pod(22*second, PodChange{Pod: "main-1", UID: "new", Relisted: true}),
			nil, nil, 0},
		{"an end that the watch has missed is found all the same",
			tell(3).intent(4*second, "main-2", "old").request(5*second, "main-2", "old", 200).
				pod(9*second, PodChange{Pod: "main-2", UID: "new", Relisted: true}),
			[]string{"the sidecar of main-0"}, nil, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			var by, wrong []string
			residues := 0
			for _, j := range c.story.Judge() {
				by = append(by, j.By)
				wrong = append(wrong, j.Violations...)
				residues += min(1, len(j.Residue))
			}
			if c.by != nil {
				require.Equal(t, c.by, by)
			}
			require.Len(t, wrong, len(c.wrong), "%q", wrong)
			for i, want := range c.wrong {
				require.Contains(t, wrong[i], want)
			}
			require.Equal(t, c.residues, residues, "excused")
		})
	}
}

// named: from then on, the record says that quorum rests on these pods.
func (s *story) named(t time.Duration, pods ...string) *story {
	c := LeaseChange{At: s.at(t), Version: s.next(), Needed: map[string]string{}}
	for _, pod := range pods {
		c.Needed[pod] = "old"
	}
	s.Lease = append(s.Lease, c)
	return s
}

// lease changes what the record said last.
func (s *story) lease(change func(c *LeaseChange)) *story {
	change(&s.Lease[len(s.Lease)-1])
	return s
}

// deleted: the harness takes it, at once.
func (s *story) deleted(t time.Duration, d Deletion) *story {
	d.At, d.UID = s.at(t), "old"
	s.Deletions = append(s.Deletions, d)
	return s.terminates(t, d.Pod, d.UID)
}

func TestNobodyTakesAPodThatTheRecordHasNamedForLong(t *testing.T) {
	hands := func(pod string) Deletion { return Deletion{Pod: pod, Way: harness.ByDelete, Hands: true} }
	off := func(c *LeaseChange) { c.GuardOff = true }
	away := func(kind FaultKind, s *story, from, to time.Duration) *story {
		w := Window{Fault: string(kind), From: s.at(from)}
		if to > 0 {
			w.To = s.at(to)
		}
		s.Faults = append(s.Faults, w)
		return s
	}
	const tooLate = "main-1 was taken by hands although the record had said for 2s that quorum rests on it"
	for _, c := range []struct {
		name  string
		story *story
		// named is true if the record named it when it went.
		named bool
		wrong string
	}{
		{"what it does not name may go",
			tell(5).named(5*second, "main-0").deleted(7*second, hands("main-1")), false, ""},
		{"so may the successor of a pod that it named",
			tell(3).named(5*second, "main-1").lease(func(c *LeaseChange) { c.Needed["main-1"] = "older" }).
				deleted(7*second, hands("main-1")), false, ""},
		{"what it names may go while the API server need not know it",
			tell(3).named(5*second, "main-1").deleted(5900*time.Millisecond, hands("main-1")), true, ""},
		{"and not when it must", tell(3).named(5*second, "main-1").deleted(7*second, hands("main-1")), true, tooLate},
		{"whoever it is that takes it: the controller that scales in",
			tell(5).named(5*second, "main-3").scaled(6*second, 6*second).terminates(9*second, "main-3", "old"),
			true, "main-3 was taken by the StatefulSet controller although the record had said for 3.01s"},
		{"and a sidecar that has been replaced as coordinator",
			tell(3).named(5*second, "main-1").removed(7*second, "main-1", "old").
				lease(func(c *LeaseChange) { c.Needed = map[string]string{"main-1": "old"} }),
			true, "main-1 was taken by the sidecar of main-0 although the record had said for 2s"},
		{"it does not count from when it was said again",
			tell(3).named(5*second, "main-1").named(6900*time.Millisecond, "main-1").deleted(7*second, hands("main-1")),
			true, tooLate},
		{"what it names no more may go",
			tell(3).named(5*second, "main-1").named(6*second).deleted(7*second, hands("main-1")), false, ""},
		{"what it names anew counts anew",
			tell(3).named(second, "main-1").named(6*second).named(6500*time.Millisecond, "main-1").
				deleted(7*second, hands("main-1")), true, ""},
		{"what it says after the pod has gone does not count",
			tell(3).deleted(7*second, hands("main-1")).named(5*second, "main-1"), false, ""},
		{"what it names may go while the guard is off",
			tell(3).named(5*second, "main-1").lease(off).deleted(7*second, hands("main-1")), false, ""},
		{"and not when it has been on again for long",
			tell(3).named(second, "main-1").lease(off).named(5*second, "main-1").deleted(7*second, hands("main-1")),
			true, tooLate},
		{"an API server that was killed meanwhile reads it again first",
			away(StopAPI, tell(3).named(5*second, "main-1").deleted(20*second, hands("main-1")), 6*second, 15*second),
			true, ""},
		{"so does one that was halted",
			away(PauseAPI, tell(3).named(5*second, "main-1").deleted(20*second, hands("main-1")), 6*second, 15*second),
			true, ""},
		{"one that is not back yet, by the script, may not know it",
			away(StopAPI, tell(3).named(5*second, "main-1").deleted(20*second, hands("main-1")), 6*second, 0),
			true, ""},
		{"one that was killed long ago knows it",
			away(StopAPI, tell(3).named(5*second, "main-1").deleted(13*second, hands("main-1")), 2*second, 6*second),
			true, "for 2s"},
		{"one that is killed afterwards has known it",
			away(StopAPI, tell(3).named(5*second, "main-1").deleted(7*second, hands("main-1")), 8*second, 9*second),
			true, tooLate},
		{"no other fault keeps it from that",
			away(NoAPI, tell(3).named(5*second, "main-1").deleted(7*second, hands("main-1")), 4*second, 0),
			true, tooLate},
		{"what the record said while nobody could read it is not known",
			tell(3).named(second, "main-1").named(6500*time.Millisecond, "main-1").
				lease(func(c *LeaseChange) { c.Relisted = true }).deleted(7*second, hands("main-1")), true, ""},
		{"nor what it said when a pod went that was found gone",
			tell(3).named(5*second, "main-1").
				pod(9*second, PodChange{Pod: "main-1", UID: "new", Relisted: true}), false, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			judgements := c.story.Judge()
			require.Len(t, judgements, 1)
			wrong := slices.DeleteFunc(judgements[0].Violations, func(v string) bool {
				return !strings.Contains(v, "quorum rests on it")
			})
			require.Equal(t, c.named, judgements[0].Named)
			if c.wrong == "" {
				require.Empty(t, wrong)
				return
			}
			require.Len(t, wrong, 1)
			require.Contains(t, wrong[0], c.wrong)
		})
	}
}

func TestABadRevisionCostsOneMemberThatServedOrWouldHaveComeBack(t *testing.T) {
	// The first one served, and its successor comes up in vain.
	begin := func() *story { return tell(3).removed(5*second, "main-2", "old").silent("main-2", 5*second, lasts) }
	dead := func(state Container) *story {
		return begin().silent("main-1", 8*second, lasts).silent("main-0", 8*second, lasts).
			etcd(8*second, "main-1", "old", state)
	}
	for _, c := range []struct {
		name  string
		story *story
		want  []string
	}{
		{"one", begin(), nil},
		{"another that served", begin().back(9*second, "main-2", "old", "new").removed(15*second, "main-1", "old"),
			[]string{"[main-2 main-1]"}},
		{"another whose node had rebooted", dead(Terminated).removed(20*second, "main-1", "old"),
			[]string{"[main-2 main-1]"}},
		{"another that was being started", dead(Starting).removed(20*second, "main-1", "old"),
			[]string{"[main-2 main-1]"}},
		{"another that ran without serving", dead(Running).removed(34*second, "main-1", "old"),
			[]string{"[main-2 main-1]"}},
		{"another that had been down for settleTimeout", dead(Terminated).removed(34*second, "main-1", "old"), nil},
		{"another that backed off", dead(BacksOff).removed(20*second, "main-1", "old"), nil},
		{"another by a drain", begin().drained(20*second, "main-1", "old"), nil},
		{"another after the fix", begin().back(9*second, "main-2", "old", "new").removed(50*second, "main-1", "old"),
			nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			wrong := costs(c.story.Judge(), Window{From: c.story.at(4 * second), To: c.story.at(40 * second)})
			require.Len(t, wrong, len(c.want), "%q", wrong)
			for i, want := range c.want {
				require.Contains(t, wrong[i], want)
			}
		})
	}
}

func TestADataRaceInASidecarIsAViolation(t *testing.T) {
	dir := t.TempDir()
	log := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	const line = `{"level":"info","msg":"this sidecar coordinates now"}` + "\n"
	const report = "==================\nWARNING: DATA RACE\nWrite at 0x00c000014108 by goroutine 7:\n  " +
		"main.main.func1()\n==================\n"
	clean := log("aaaaaaaa-backup-restore-0.log", line+"panic: what else a sidecar says is judged by others\n")
	raced := log("bbbbbbbb-backup-restore-1.log", line+report+line+report)

	violations, err := judgeLogs([]string{clean, raced})
	require.NoError(t, err)
	require.Equal(t, []string{"data races that a sidecar reports in " + raced + ": 2"}, violations)
	violations, err = judgeLogs([]string{clean})
	require.NoError(t, err)
	require.Empty(t, violations)
	_, err = judgeLogs([]string{filepath.Join(dir, "cccccccc-backup-restore-0.log")})
	require.ErrorIs(t, err, os.ErrNotExist, "what cannot be read is not clean")
}

// An auditor that hears late must come to the same verdict. The order in the watch counts, not
// when an event arrived.
func TestAJudgementDoesNotDependOnWhenTheWatchWasHeard(t *testing.T) {
	s := tell(3).replaced(5*second, 4*second, "main-2", "old", "new").
		replaced(12*second, 4*second, "main-1", "old", "new")
	for i := range s.Pods {
		s.Pods[i].At = s.Pods[i].At.Add(700 * time.Millisecond)
	}
	for _, j := range s.Judge() {
		require.Empty(t, j.Violations)
	}
	bad := tell(3).removed(5*second, "main-2", "old").silent("main-2", 5*second, lasts).
		removed(8*second, "main-1", "old")
	for i := range bad.Pods {
		bad.Pods[i].At = bad.Pods[i].At.Add(700 * time.Millisecond)
	}
	require.True(t, slices.ContainsFunc(bad.Judge(), func(j Judgement) bool { return len(j.Violations) > 0 }))
}

func TestAnAuditorThatSeesTooLittleIsFoundOut(t *testing.T) {
	before := map[string]string{"old-0": "main-0", "old-1": "main-1"}
	after := map[string]string{"old-0": "main-0", "new-1": "main-1"}
	rolled := func() *story {
		s := tell(2)
		s.Pods = nil
		return s.pod(0, PodChange{Pod: "main-0", UID: "old-0", Ready: true}).
			pod(0, PodChange{Pod: "main-1", UID: "old-1", Ready: true}).
			replaced(5*second, 4*second, "main-1", "old-1", "new-1")
	}
	for _, c := range []struct {
		name  string
		blind func(s *story)
		want  []string
	}{
		{"what sees everything passes", func(*story) {}, nil},
		{"no pod", func(s *story) { s.Pods = nil }, []string{
			"pod main-0 (old-0) is there, and the watch does not show it",
			"pod main-1 (new-1) is there, and the watch does not show it",
			"pod main-1 (old-1) has gone, and its removal was not judged",
		}},
		{"no end of a pod", func(s *story) { s.Pods = s.Pods[:2] }, []string{
			"pod main-1 (new-1) is there, and the watch does not show it",
			"pod main-1 (old-1) has gone, and its removal was not judged",
		}},
		{"not that the successor has come", func(s *story) { s.Pods = s.Pods[:4] },
			[]string{"pod main-1 (new-1) is there, and the watch does not show it"}},
		{"no answer of a member", func(s *story) { s.silent("main-0", 0, lasts) },
			[]string{"the member of pod main-0 serves, and was not seen to answer"}},
		{"answers of somebody else", func(s *story) {
			s.Readings = map[string][]Reading{"http://main-0:2379": s.Readings["main-0"]}
		}, []string{
			"the member of pod main-0 serves, and was not seen to answer",
			"the member of pod main-1 serves, and was not seen to answer",
		}},
		{"an answer of an earlier round", func(s *story) { s.silent("main-0", 2*second, lasts) },
			[]string{"the member of pod main-0 serves, and was not seen to answer"}},
		{"no write of the record", func(s *story) { s.Lease = nil },
			[]string{"the rollout is over, and nobody was seen to write the record"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := rolled()
			c.blind(s)
			require.Equal(t, c.want, s.Overlooked(before, after, s.at(3*second), s.at(lasts)))
		})
	}
}
