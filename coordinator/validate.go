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

// validate reads the record from a Lease. Others may write to the Lease as well. What makes no sense there
// is not believed, and returned in words. An intent that names none of our pods may have replaced one that did.
// So it counts as an intent about all of our pods, and the pod that it names is left alone.
func validate(lease *coordinationv1.Lease, set rollout.Set, pods []rollout.Pod, duration time.Duration) (
	r record.Record, odd []string) {
	r = record.Parse(lease)
	if r.Intent.Pod != "" && !inRange(set, r.Intent.Pod) {
		odd = append(odd, fmt.Sprintf("the intent to %s names none of our pods; "+
			"all of ours are changed instead, so that whatever stood there has no effect", r.Intent))
		r.Intent = record.Intent{Operation: record.FenceAll, Epoch: r.Intent.Epoch}
	}
	if m := r.Intent.Member; r.Intent.Operation == record.RemoveMember && !plausible(m, set, pods) {
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
	if longest := max(record.LongestDuration, duration); r.Duration < 0 || r.Duration > longest {
		odd = append(odd,
			fmt.Sprintf("spec.leaseDurationSeconds is %d; without the lock, a record that is not renewed "+
				"is waited for no longer than %v", r.Duration/time.Second, longest))
	}
	if _, err := record.RequestOf(lease, time.Now()); err != nil {
		odd = append(odd, err.Error()+"; it is not carried out")
	}
	return r, odd
}

// plausible is true for a member that an ordinal of ours has or has had.
func plausible(m *record.Member, set rollout.Set, pods []rollout.Pod) bool {
	return rollout.Names(set, pods, rollout.Member{ID: m.ID, Name: m.Name, PeerURLs: m.URLs})
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

// validator tells of what makes no sense on the Lease, once for as long as it stays the same.
type validator struct {
	c *Coordinator
	// odd is what was last reported.
	odd string
}

func (v *validator) tell(odd []string) {
	text := strings.Join(odd, "; ")
	if text == "" || text == v.odd {
		return
	}
	v.odd = text
	const what = "the Lease says what makes no sense"
	v.c.log.Warnf("%s: %s", what, text)
	v.c.journal.Fails(report.AtRecord, what, errors.New(text), len(odd))
	v.c.journal.Events.Warn(report.ReasonRecordIgnored, what+": "+text)
}

// settle forgets what made no sense on the Lease, because it no longer matters.
func (v *validator) settle() {
	v.odd = ""
	v.c.journal.Works(report.AtRecord)
}
