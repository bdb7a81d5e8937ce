package coordinator

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorate/quorate/internal/record"
)

// An admission policy takes away the annotation that rules out an earlier removal. Nothing is removed then, the fault
// has a name and a remedy, and it is tried again ever more slowly.
func TestAFenceThatChangesNothingIsAFaultWithAName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 3)
		p := s.pods[1]
		s.held(map[string]string{
			record.SchemaAnnotation: "1",
			record.IntentAnnotation: fmt.Sprintf(
				`{"operation":"delete","pod":"etcd-1","uid":%q,"resourceVersion":%q,"epoch":7}`, p.UID,
				p.ResourceVersion),
		})
		s.strips = true
		var log bytes.Buffer
		stop := run(t, s.config(logTo(&log)))
		s.update("rev-2")
		<-time.After(10 * time.Minute)
		s.expect(t)
		if n := len(seen(s.kube, &s.stripped)); n > 80 {
			t.Errorf("the pod was changed %d times in ten minutes", n)
		}
		s.change(func() { s.strips = false })
		within(t, time.Minute, "the rollout", func() bool { return s.settled("rev-2") })
		stop()
		before, _, _ := strings.Cut(log.String(), "has no effect from here on")
		for _, want := range []string{"an earlier removal of pod etcd-1 cannot be ruled out",
			"has changed nothing, so something takes that away again"} {
			if !strings.Contains(before, want) {
				t.Errorf("it does not say %q, or only after it has worked:\n%s", want, log.String())
			}
		}
		if n := strings.Count(before, "cannot be ruled out"); n < 8 {
			t.Errorf("it was said %d times before it worked", n)
		}
	})
}
