package main

// survivors are guards whose removal no test can see, and why that is so. What is caught after all, or is no guard any
// more, has to go from this list.
var survivors = map[string]string{
	"coordinator/election/client.go pause: d <= 0": "a timer of no time fires at once",
	"coordinator/election/lookout.go asksForOwner: resp.Kvs[0].Lease == 0": "etcd says of the lease 0 that there is " +
		"none",
	"coordinator/election/tenure.go handOver: resp.Succeeded": "the release that would follow finds that the key is " +
		"not ours any more",
	"pkg/rollout/needed.go neededWithout: a.Quorum == 0": "where no quorum is known, it needs none of the pods",
	"pkg/rollout/needed.go neededWithout: d.Duty != DutyRoll && d.Duty != DutyHeld": "the duty Roll waits first " +
		"while a pod is away or does not serve, and else nobody is on the list",
	"internal/workload/view.go mirrored: !known":            "a mirror that does not know shows no StatefulSet either",
	"internal/workload/view_budget.go BudgetAllows: !known": "a mirror that does not know shows no budget either",
	"internal/record/act.go begin: kind == Unknown": "an intent of an unknown kind is never complete, which is " +
		"asked next",
	"internal/record/act.go begin: kind == Blocking": "act notes when the call ends before it is sent; until then " +
		"this only makes others wait for longer",
	"internal/record/claim.go ours: … l.Schema <= Newest": "whoever asks has asked before whether the record " +
		"is understood",
	"internal/record/kinds.go complete: … i.Operation == FenceAll": "what is not complete is read as this very " +
		"operation",
	"internal/record/kinds.go repeats: … b != nil":     "no presumed operation without a member is read from a record",
	"internal/record/record.go text: l.Suspect == nil": "it is written the same way without it",
}
