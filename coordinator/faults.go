package coordinator

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/quorate/quorate/internal/report"
)

// Pauses after faults in a row: quick at first, because most faults pass, and never
// so long that an operator wonders.
const (
	firstPause   = 500 * time.Millisecond
	longestPause = 10 * time.Second
	// repeatEvery is how often the same fault is logged again.
	repeatEvery = time.Minute
)

// unfitFor is how long a coordinator that lets another try then stays away, the first time; it doubles each time. A
// missing permission does not come back by itself.
const unfitFor, forbiddenFor, longestUnfit = 10 * time.Second, 5 * time.Minute, 30 * time.Minute

// unfit says why another sidecar is to try, and how long we then stay away at least. The zero value says nothing.
type unfit struct {
	why   string
	least time.Duration
}

// fault is something that has failed.
type fault struct {
	what string
	err  error
	// counts is true where another sidecar may succeed.
	counts bool
}

// faults logs each fault when it first occurs and then once a minute, and lets the
// pauses between retries grow.
type faults struct {
	row    int
	last   string
	logged time.Time
	pause  time.Duration

	// journal reports it as a failure at what the field at names. It may be nil.
	journal *report.Journal
	at      string
}

func (f *faults) note(log *logrus.Entry, what string, err error) time.Duration {
	f.row++
	f.journal.Fails(f.at, what, err, f.row)
	f.pause = min(max(2*f.pause, firstPause), longestPause)
	text := what + err.Error()
	if errors.Is(err, context.DeadlineExceeded) {
		text = what // Its wording varies; it is the same fault.
	}
	if now := time.Now(); text != f.last || now.Sub(f.logged) >= repeatEvery {
		f.last, f.logged = text, now
		log.WithError(err).Warnf("%s; retrying", what)
	}
	return f.pause
}

func (f *faults) clear() {
	*f = faults{journal: f.journal, at: f.at}
	f.journal.Works(f.at)
}

// sharedFaults are those that more than one goroutine notes. Nobody waits for what failed.
type sharedFaults struct {
	mu sync.Mutex
	faults
}

func (f *sharedFaults) note(log *logrus.Entry, what string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults.note(log, what, err)
}

// admission is how a webhook and a ValidatingAdmissionPolicy say that they refuse what the Role allows. The API server
// marks that in no other way.
var admission = regexp.MustCompile(`denied (the )?request`)

// explain adds to an error from Kubernetes what an operator can do about it.
func explain(err error) error { return explainFor(err, "deploy/base/role.yaml") }

// explainFor is explain for a permission that the named file grants.
func explainFor(err error, grantedBy string) error {
	switch {
	case apierrors.IsForbidden(err) && admission.MatchString(err.Error()):
		return fmt.Errorf("%w (the Role allows it, and the cluster's admission does not; if that is "+
			"deploy/components/least-privilege, apply it again in the version of this sidecar)", err)
	case apierrors.IsForbidden(err):
		return fmt.Errorf("%w (grant it to the sidecar's ServiceAccount, see %s)", err, grantedBy)
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("%w (the API server does not accept the ServiceAccount token)", err)
	case apierrors.IsNotFound(err):
		return fmt.Errorf("%w (check the namespace and the name of the StatefulSet)", err)
	}
	return err
}
