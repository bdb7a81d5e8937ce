package membership

import (
	"errors"
	"fmt"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
)

// What etcd's authentication asks of the user depends on the version. docs/versions.md has the table,
// and how it was tried.
const (
	grantRoot = "grant its user the role root (etcdctl user grant-role USER root)"

	listDenied = "etcd refuses the member list (permission denied): " + grantRoot +
		", or use another patch release than 3.5.28 and 3.6.9, which ask for it"
	statusDenied = "etcd refuses Status (permission denied): " + grantRoot +
		", or use a patch release that does not ask for it, 3.5.32 or 3.6.12 or newer"
	moveDenied = "etcd refuses to move leadership (permission denied): " + grantRoot +
		", which 3.5.28 and newer and all of 3.6 ask for"
	removeDenied     = "etcd refuses to remove a member (permission denied): " + grantRoot
	defragmentDenied = "etcd refuses a defragmentation (permission denied): " + grantRoot +
		", which every version asks for"
	disarmDenied = "etcd refuses to disarm the alarm NOSPACE (permission denied): " + grantRoot
	readDenied   = "etcd refuses to read " + probeKey + " (permission denied): grant its user's role that" +
		" (etcdctl role grant-permission ROLE --prefix=true readwrite /quorate/)"
)

// denied is true if etcd knows the user but does not permit the request, also once the error has been explained: etcd
// goes by the whole text of an error.
func denied(err error) bool {
	for ; err != nil; err = errors.Unwrap(err) {
		if errors.Is(rpctypes.Error(err), rpctypes.ErrPermissionDenied) {
			return true
		}
	}
	return false
}

// Denied is true if etcd knows the user but does not permit the request. etcd 3.5 says so in words alone where a
// defragmentation is asked for.
func Denied(err error) bool {
	return denied(err) || err != nil && codeOf(err) == codes.Unknown && strings.Contains(err.Error(),
		"permission denied")
}

// named replaces a bare "permission denied" with what has to be granted.
func named(err error, grant string) error {
	if denied(err) {
		return fmt.Errorf("%s: %w", grant, err)
	}
	return err
}

func grantFor(err error, grant string) error {
	if Denied(err) {
		return fmt.Errorf("%s: %w", grant, err)
	}
	return err
}

// refusal is the same as text.
func refusal(err error, grant string) string {
	if denied(err) {
		return grant
	}
	return brief(err)
}
