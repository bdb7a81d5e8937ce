package rollout

import (
	"cmp"
	"slices"
)

// Who leads next. Every duty under which a leader stops hands over first.

// transfer picks the best voter to lead instead of the replica's member: one whose node is not
// cordoned before one whose is, settled before outdated, healthy sidecar before sick, then the
// most caught up. It reports false when no voter can take over or transfers failed too often.
func (a *Assessment) transfer(from *Replica) (Transfer, bool) {
	if a.transfersFail(from.Member.ID) {
		return Transfer{}, false
	}
	if best := a.heir(from, func(*Replica) bool { return true }); best != nil {
		return handOver(from, best), true
	}
	if i := slices.IndexFunc(a.trusted, a.mayLead); i >= 0 {
		m := a.trusted[i]
		return Transfer{From: from.Member.ID, FromName: from.Name, To: m.ID, ToName: m.Name}, true
	}
	return Transfer{}, false
}

// handOver is the transfer from one replica to another.
func handOver(from, to *Replica) Transfer {
	return Transfer{From: from.Member.ID, FromName: from.Name, To: to.Member.ID, ToName: to.Name}
}

// transfersFail is true when transfers away from a member failed too often.
func (a *Assessment) transfersFail(member uint64) bool {
	return a.state.FailedTransfers[member] >= MaxTransferFailures
}

// heir returns the best voter that fits and whose data are those of a majority, or nil.
func (a *Assessment) heir(from *Replica, fits func(*Replica) bool) *Replica {
	var best *Replica
	for i := range a.Replicas {
		r := &a.Replicas[i]
		if r != from && r.survives() && a.mayLead(r.Member) && fits(r) && (best == nil || leadsBetter(r, best)) {
			best = r
		}
	}
	return best
}

func leadsBetter(x, y *Replica) bool {
	return cmp.Or(
		cmp.Compare(btoi(x.goesLast()), btoi(y.goesLast())),
		cmp.Compare(btoi(!x.Settled), btoi(!y.Settled)),
		cmp.Compare(btoi(x.SidecarSick), btoi(y.SidecarSick)),
		cmp.Compare(x.Lag, y.Lag),
	) < 0
}

// moveLeader is a decision that leadership moves. It says why, and why now.
func moveLeader(rule Rule, leader *Replica, t Transfer, all []Candidate, why, now string) Decision {
	d := Decision{Action: MoveLeader{Target: targetOf(leader), Transfer: t}, Rule: rule, Candidates: all}
	d.reason = func() string { return t.FromName + " leads" + why + "; " + t.ToName + " takes over " + now }
	return d
}
