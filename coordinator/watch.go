package coordinator

import (
	"github.com/sirupsen/logrus"

	"github.com/quorate/quorate/internal/report"
	"github.com/quorate/quorate/internal/workload"
	"github.com/quorate/quorate/pkg/rollout"
)

// nodesRole grants what is needed to read nodes.
const nodesRole = "deploy/components/nodes"

// newView returns what Kubernetes says, for a coordinator that is being made.
func (c *Coordinator) newView() *workload.View {
	cfg := workload.Config{
		StatefulSet: c.cfg.StatefulSet, Names: c.cfg.Names, StatefulSets: c.cfg.StatefulSets, Pods: c.cfg.Pods,
		Leases: c.cfg.Leases, Nodes: c.cfg.Nodes, DrainTaints: c.cfg.DrainTaints, ForbiddenFor: forbiddenFor,
		Changed: c.trigger, Asked: func() { c.requested.Store(true) }, Faults: c.viewFaults,
	}
	if c.cfg.Policy.Removal == rollout.RemoveByEviction { // Nobody else asks the budget.
		cfg.Budgets = c.cfg.Budgets
	}
	return workload.New(cfg)
}

// viewFaults tell what Kubernetes does not let us read or watch.
type viewFaults struct {
	faults
	log    *logrus.Entry
	source workload.Source
	what   string
}

func (c *Coordinator) viewFaults(source workload.Source) workload.Faults {
	row := [...]struct{ at, what string }{
		workload.WatchOnStatefulSet: {report.AtWatchSet, "the StatefulSet cannot be watched"},
		workload.WatchOnPods:        {report.AtWatchPods, "the pods cannot be watched"},
		workload.WatchOnNodes:       {report.AtWatchNodes, "the nodes cannot be watched"},
		workload.WatchOnBudget:      {report.AtWatchBudget, "the PodDisruptionBudget cannot be watched"},
		workload.WatchOnLease:       {report.AtWatchLease, "the Lease cannot be watched"},
		workload.ReadingOfNodes: {report.AtNodes, "nodes cannot be read, so for a while only members that " +
			"do not serve are removed"},
	}[source]
	return &viewFaults{faults: c.faultsAt(row.at), log: c.log, source: source, what: row.what}
}

// Fails is part of [workload.Faults].
func (f *viewFaults) Fails(err error) {
	if f.source == workload.ReadingOfNodes && workload.Denied(err) {
		f.note(f.log, "nodes cannot be read, so a drain shows only when it evicts", explainFor(err, nodesRole))
		return
	}
	f.note(f.log, f.what, explain(err))
}

// Works is part of [workload.Faults].
func (f *viewFaults) Works() {
	if f.row > 0 {
		f.clear()
	}
}
