// What an error says about a request: whether it may still take effect, whether the member has heard it, and whose
// fault it is. etcd, gRPC and clientv3 each have errors of their own for the same thing.

package membership

import (
	"context"
	"errors"
	"slices"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/quorate/quorate/pkg/rollout"
)

// notSentError is about a request that was never sent.
type notSentError struct{ error }

func (e notSentError) Unwrap() error { return e.error }

// NotSent is true for an error about a request that was never sent.
func NotSent(err error) bool {
	var notSent notSentError
	return errors.As(err, &notSent)
}

// Over is true for an error after which nothing can come of the request any more: it was not sent, or the member itself
// has answered it. These requests are sent once, and not repeated by the client.
func Over(err error) bool {
	return NotSent(err) || Denied(err) || answered(err)
}

// answered is true for an error that etcd's own code has returned. etcd 3.5 returns some without a code of gRPC's.
func answered(err error) bool {
	if _, ok := status.FromError(err); !ok {
		return false
	}
	return slices.Contains([]codes.Code{
		codes.Unknown, codes.PermissionDenied, codes.Unauthenticated, codes.FailedPrecondition, codes.InvalidArgument,
		codes.Unimplemented,
	}, codeOf(err))
}

// unreachable is true if an error of Dial is the member's fault: it was asked for a token and did not
// answer.
func unreachable(err error) bool {
	code := codeOf(err)
	return errors.Is(err, context.DeadlineExceeded) || code == codes.Unavailable || code == codes.DeadlineExceeded
}

// replied is true for an error of etcd's own: whoever refuses a request has heard it. What gRPC says when nobody
// answers is no such error.
func replied(err error) bool {
	for ; err != nil; err = errors.Unwrap(err) {
		var known rpctypes.EtcdError
		if errors.As(rpctypes.Error(err), &known) {
			return true
		}
	}
	return false
}

// codeOf is the code of an error of gRPC's, or of etcd's, which have one of their own.
func codeOf(err error) codes.Code {
	var known rpctypes.EtcdError
	if errors.As(err, &known) {
		return known.Code()
	}
	return status.Code(err)
}

// barredBy is the sort of what keeps an answer back, by an error's text: a dump has nothing else, and TLS has no errors
// of its own for what the other side says.
func barredBy(text string) rollout.Barred {
	has := func(words ...string) bool {
		return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(text, w) })
	}
	switch {
	case has("x509: "), has("tls: ") && has("certificate"):
		return rollout.ByCertificate
	case has(rpctypes.ErrUserEmpty.Error(), rpctypes.ErrAuthFailed.Error(), rpctypes.ErrInvalidAuthToken.Error()):
		return rollout.ByLogin
	}
	return 0
}

// brief shortens gRPC's chain of errors to what an operator needs.
func brief(err error) string {
	if errors.Is(err, context.DeadlineExceeded) || status.Code(err) == codes.DeadlineExceeded {
		return "timed out"
	}
	text := err.Error()
	if i := strings.LastIndex(text, "desc = "); i >= 0 {
		text = strings.Trim(text[i+len("desc = "):], `"`)
	}
	return text
}
