package coordinator

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/quorate/quorate/internal/record"
	"github.com/quorate/quorate/internal/report"
	"github.com/quorate/quorate/pkg/rollout"
)

// doubts keeps track of what makes no sense on the Lease.
type doubts struct {
	c     *Coordinator
	sight *sight
	// odd is what was last reported.
	odd string
}

// trust reads the record from a Lease. Others may write to the Lease as well. What makes no sense there
// is reported and not believed. An intent that names none of our pods may have replaced one that did.
// So it counts as an intent about all of our pods, and the pod that it names is left alone.
func (d *doubts) trust(lease *coordinationv1.Lease) record.Record {
	r := record.Parse(lease)
	var odd []string
	if r.Intent.Pod != "" && !inRange(d.sight.seen.Set, r.Intent.Pod) {
		odd = append(odd, fmt.Sprintf("the intent to %s names none of our pods; "+
			"all of ours are changed instead, so that whatever stood there has no effect", r.Intent))
		r.Intent = record.Intent{Operation: record.FenceAll, Epoch: r.Intent.Epoch}
	}
	if m := r.Intent.Member; r.Intent.Operation == record.RemoveMember && !d.plausible(m) {
		odd = append(odd, fmt.Sprintf("the intent to %s names no member of ours; nothing is removed, and a member "+
			"of that ID is not relied on", r.Intent))
		r.Intent = record.Intent{Operation: record.FenceAll, Epoch: r.Intent.Epoch}
		if r.Suspect == nil {
			r.Suspect = m
		}
	}
	if r.Epoch < 0 || r.Epoch >= math.MaxInt32 {
		odd = append(odd, fmt.Sprintf("spec.leaseTransitions is %d; counting begins again at 1", r.Epoch))
	}
	if longest := max(record.LongestDuration, d.c.cfg.RecordDuration); r.Duration < 0 || r.Duration > longest {
		odd = append(odd,
			fmt.Sprintf("spec.leaseDurationSeconds is %d; without the lock, a record that is not renewed "+
				"is waited for no longer than %v", r.Duration/time.Second, longest))
	}
	if _, err := record.RequestOf(lease, time.Now()); err != nil {
		odd = append(odd, err.Error()+"; it is not carried out")
	}
	if text := strings.Join(odd, "; "); text != "" && text != d.odd {
		d.odd = text
		const what = "the Lease says what makes no sense"
		d.c.log.Warnf("%s: %s", what, text)
		d.c.journal.Fails(report.AtRecord, what, errors.New(text), len(odd))
		d.c.journal.Events.Warn(report.OddRecord, what+": "+text)
	}
	return r
}

// plausible is true for a member that an ordinal of ours has or has had.
func (d *doubts) plausible(m *record.Member) bool {
	seen := d.sight.seen
	return rollout.Names(seen.Set, seen.Pods, rollout.Member{ID: m.ID, Name: m.Name, PeerURLs: m.URLs})
}

// inRange is true for the names of the pods that the StatefulSet is to have.
func inRange(set rollout.Set, pod string) bool {
	for i := range set.Replicas {
		if pod == fmt.Sprintf("%s-%d", set.Name, set.Start+i) {
			return true
		}
	}
	return false
}

// settle forgets what made no sense on the Lease, because it no longer matters.
func (d *doubts) settle() {
	d.odd = ""
	d.c.journal.Works(report.AtRecord)
}
