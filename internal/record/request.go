package record

import (
	"encoding/json"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/quorate/quorate/internal/rollout"
)

// RequestAnnotation holds what an operator asks the coordinator to do, as JSON (see [rollout.Request]). There
// is one request at a time, and a newer one replaces it.
const RequestAnnotation = "quorate.dev/request"

// RequestLasts is how long a request holds. It is long enough for a coordinator to come up and to wait for a
// member, and short enough that a Lease restored from a backup asks for nothing any more.
const RequestLasts = 10 * time.Minute

// clockSkew is how far another machine's clock may be ahead of ours.
const clockSkew = time.Minute

// Requested is the text of the request on a Lease, whether it can be read and still holds or not.
func Requested(lease *coordinationv1.Lease) string {
	if lease == nil {
		return ""
	}
	return lease.Annotations[RequestAnnotation]
}

// RequestOf returns the request on a Lease, or nil if there is none or it does not hold any more. An error says
// why it cannot be read. Nothing is done on a request that cannot be read.
func RequestOf(lease *coordinationv1.Lease, now time.Time) (*rollout.Request, error) {
	text := Requested(lease)
	if text == "" {
		return nil, nil //nolint:nilnil // Nobody has asked for anything.
	}
	var r rollout.Request
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return nil, fmt.Errorf("%s: %q is no request: %w", RequestAnnotation, text, err)
	}
	switch age := now.Sub(r.At); {
	case age > RequestLasts:
		return nil, nil //nolint:nilnil // It has run out.
	case age < -clockSkew:
		return nil, fmt.Errorf("%s: it was made at %s, which is in the future", RequestAnnotation,
			r.At.Format(time.RFC3339))
	}
	return &r, nil
}

// RequestText is how a request is written.
func RequestText(r rollout.Request) string {
	text, _ := json.Marshal(r) // Strings, numbers and a time always encode.
	return string(text)
}
