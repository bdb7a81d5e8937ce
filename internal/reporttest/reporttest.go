// Package reporttest has the reports that the tests of their renderers share: three members, of which some are updated
// and some are down.
package reporttest

import (
	"fmt"
	"time"

	"github.com/quorate/quorate/internal/record"
	"github.com/quorate/quorate/internal/report"
	"github.com/quorate/quorate/pkg/rollout"
)

const (
	before   = "etcd-main-5f6d8c9b7d"
	updated  = "etcd-main-7c9f4b6d58"
	memberID = 0x8e9e05c52164694d
)

// State is three members, of which the pods named run the new revision.
func State(outOfThree ...int) rollout.State {
	s := rollout.State{
		Set:    rollout.Set{Name: "etcd-main", UID: "u", Replicas: 3, OnDelete: true, UpdateRevision: updated},
		Etcd:   rollout.Membership{Known: true, Linearizable: true, ClusterID: 7},
		Memory: rollout.Memory{Ages: rollout.Ages{}},
	}
	for i := range 3 {
		name := fmt.Sprintf("etcd-main-%d", i)
		well := rollout.Container{State: rollout.ContainerRunning, Ready: true}
		s.Pods = append(s.Pods, rollout.Pod{
			Name: name, UID: "uid-" + name, ResourceVersion: "1", Ordinal: i, MemberName: name,
			Revision: before, Owned: true,
			Ready: true, ContainersReady: true, Initialized: true, Etcd: well, Sidecar: well,
		})
		s.Etcd.Members = append(s.Etcd.Members, rollout.Member{ID: memberID + uint64(i), Name: name,
			Probe: rollout.Probe{
				Read: rollout.Answered, Status: &rollout.Status{
					Version: "3.5.21", Leader: memberID, Term: 2, Index: 81234, Applied: 81234 - uint64(i)*3},
			}})
		s.Sidecars.Present = append(s.Sidecars.Present, "uid-"+name)
	}
	for _, i := range outOfThree {
		s.Pods[i].Revision = updated
	}
	return s
}

// Down is a state in which the etcd of a pod does not run, for this reason.
func Down(s rollout.State, i int, reason string, restarts int) rollout.State {
	p := &s.Pods[i]
	p.Ready, p.ContainersReady = false, false
	p.Etcd = rollout.Container{State: rollout.ContainerWaiting, Reason: reason, Restarts: restarts}
	s.Etcd.Members[i].Probe = rollout.Probe{Read: rollout.Failed, Detail: "connection refused"}
	return s
}

// Reported is what a coordinator of this name reports of a state at a time. What is under way began eleven minutes
// before, and what keeps it three minutes before.
func Reported(s rollout.State, at time.Time, by string) report.Report {
	policy := rollout.DefaultPolicy()
	r := report.New(report.Sight{
		Namespace: "garden", StatefulSet: "etcd-main", At: at, State: s, Decision: rollout.Decide(s, policy),
		Policy: &policy, Coordinator: by, Epoch: 4,
	}, report.Report{})
	r.Since, r.Started = at.Add(-3*time.Minute), at.Add(-11*time.Minute)
	if r.Action == rollout.ActionComplete {
		r.Started, r.Ended = time.Time{}, r.Since
	}
	for i := range r.Members {
		r.Members[i].Since = at.Add(-time.Duration(i+1) * 4 * time.Minute)
	}
	return r
}

// Recorded is the status by a report that stands beside a record which its coordinator holds.
func Recorded(r report.Report, h report.History, now time.Time) report.Status {
	lease := record.Record{Holder: r.Coordinator, Epoch: r.Epoch, Rolling: r.Rolling()}
	if !r.Rolling() {
		lease.Holder = ""
	}
	return report.Recorded(r, h, lease, now)
}

// Past is what was done in the eleven minutes before, and in a rollout of the day before.
func Past(now time.Time) report.History {
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	const day = 24 * time.Hour
	return report.History{
		{At: ago(day + 4*time.Minute), What: report.Removed, Pod: "etcd-main-1", Rule: "Serving", Revision: before,
			By: "etcd-main-2", Epoch: 2, Reason: "its member serves"},
		{At: ago(day), What: report.Completed, Rule: "Complete", Revision: before, By: "etcd-main-0", Epoch: 3,
			Reason: "3 of 3 settled"},
		{At: ago(11 * time.Minute), What: report.Removed, Pod: "etcd-main-2", Rule: "Serving", Revision: updated,
			By: "etcd-main-0", Epoch: 3, Overridden: []string{string(rollout.GuardCanary)},
			Reason: "its member serves; 3 of 3 voters serve, quorum 2, removing this one leaves 2"},
		{At: ago(9 * time.Minute), What: report.HandedOver, Pod: "etcd-main-0", To: "etcd-main-2", By: "etcd-main-0",
			Epoch: 3, Reason: "its revision is up to date"},
		{At: ago(8 * time.Minute), What: report.LeaderMoved, Pod: "etcd-main-0", To: "etcd-main-2", By: "etcd-main-2",
			Epoch:  4,
			Reason: "etcd-main-0 leads and is next; etcd-main-2 takes over first, so that no election is needed"},
	}
}
