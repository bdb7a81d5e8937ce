package workload

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// guarded is true for an answer of the quorum guard (deploy/components/quorum-guard): it names the command that turns
// it off for this StatefulSet.
func (v *View) guarded(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) &&
		strings.Contains(status.Status().Message, "quorate guard "+v.cfg.StatefulSet+" ")
}

// The first pause before a removal is repeated that the guard has denied. Each is twice as long as the one before.
const guardLag = 5 * time.Millisecond

// pastGuard sends a removal, and repeats it while the quorum guard denies it, for as long as ctx lasts. The guard goes
// by what a watch has told the API server of the Lease, and the Lease was written a moment ago: up to then this very
// pod may have been one that quorum rests on. A denied request has changed nothing, and its preconditions are the same
// each time. If another coordinator holds the record by now, the guard goes by its word, and goes on denying.
func (v *View) pastGuard(ctx context.Context, send func() error) error {
	for pause := guardLag; ; pause *= 2 {
		err := send()
		if !v.guarded(err) {
			return err
		}
		again := time.NewTimer(pause)
		select {
		case <-again.C:
		case <-ctx.Done():
			again.Stop()
			return fmt.Errorf("%w (repeated until its evidence was too old)", err)
		}
	}
}
