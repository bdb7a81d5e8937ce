// Questions of a person who checks a cluster before Quorate rolls it. A coordinator asks none of them.

package membership

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"

	"github.com/quorate/quorate/pkg/rollout"
)

// OwnURLs are the client URLs of a member that no other member advertises, and sharedURLs those that others answer as
// well.
func OwnURLs(m rollout.Membership, member *rollout.Member) (ownURLs, sharedURLs []string) {
	for _, url := range member.ClientURLs {
		if shared(m.Members, member.ID, url) {
			sharedURLs = append(sharedURLs, url)
		} else {
			ownURLs = append(ownURLs, url)
		}
	}
	return ownURLs, sharedURLs
}

// Authentication is whether etcd asks who somebody is, and what it lets this user do.
type Authentication uint8

// The zero value is not known: etcd 3.4 does not tell.
const (
	// AuthOff: everybody may do everything.
	AuthOff Authentication = iota + 1
	// AuthRoot: it is on, and the user has the role root.
	AuthRoot
	// AuthLimited: it is on, and the user does not have that role.
	AuthLimited
	// AuthNobody: it is on, and nobody has signed in.
	AuthNobody
)

// Authentication asks the first voter that serves. Only a user with the role root may ask, so a refusal is an answer.
func (o *Observer) Authentication(ctx context.Context, m rollout.Membership) (Authentication, error) {
	for i := range m.Members {
		x := &m.Members[i]
		if x.Learner || x.Probe.Read != rollout.Answered {
			continue
		}
		asking, cancel := context.WithTimeout(ctx, o.timeout)
		defer cancel()
		client, err := o.clientOf(asking, m, x.ID)
		if err != nil {
			return 0, fmt.Errorf("ask whether etcd's authentication is on: %w", err)
		}
		answer, err := pb.NewAuthClient(client.ActiveConnection()).AuthStatus(asking, &pb.AuthStatusRequest{})
		known := rpctypes.Error(err)
		switch {
		case err == nil && answer.Enabled:
			return AuthRoot, nil
		case err == nil:
			return AuthOff, nil
		case Denied(err):
			return AuthLimited, nil
		case errors.Is(known, rpctypes.ErrUserEmpty):
			return AuthNobody, nil
		case codeOf(err) == codes.Unimplemented:
			return 0, errors.New("etcd 3.4 does not tell whether its authentication is on")
		}
		return 0, fmt.Errorf("ask whether etcd's authentication is on: %w", err)
	}
	return 0, errors.New("no voter serves that could be asked whether etcd's authentication is on")
}

// Hash is that of a member's data at one revision.
type Hash struct {
	Member string
	Value  uint32
	// Compacted is the revision up to which the member has forgotten older ones. Only hashes with the same one can be
	// compared.
	Compacted int64
	// Err is why there is none.
	Err error
}

// Hashes asks every member for the hash of its data at the highest revision that all of them have, one request each.
// Each member reads its whole database for that, so it is given all the time of the context. There are none where no
// member has told its revision.
func (o *Observer) Hashes(ctx context.Context, m rollout.Membership) (revision int64, hashes []Hash) {
	hashes = make([]Hash, len(m.Members))
	for i := range m.Members {
		if st := m.Members[i].Probe.Status; st != nil && st.Revision > 0 && (revision == 0 || st.Revision < revision) {
			revision = st.Revision
		}
	}
	if revision == 0 { // Each would hash what it has, and they are never at the same.
		return 0, nil
	}
	var asking sync.WaitGroup
	for i := range m.Members {
		x, h := &m.Members[i], &hashes[i]
		h.Member = rollout.Label(x.Name, x.ID)
		client, err := o.clientOf(ctx, m, x.ID)
		if err != nil {
			h.Err = err
			continue
		}
		asking.Go(func() {
			answer, err := pb.NewMaintenanceClient(client.ActiveConnection()).HashKV(ctx,
				&pb.HashKVRequest{Revision: revision})
			if err != nil {
				h.Err = named(err, "etcd refuses the hash of its data (permission denied): "+grantRoot)
				return
			}
			h.Value, h.Compacted = answer.Hash, answer.CompactRevision
			if got := answer.Header.GetMemberId(); got != x.ID {
				h.Err = fmt.Errorf("the member %x answered at %s", got, strings.Join(client.Endpoints(), ", "))
			}
		})
	}
	asking.Wait()
	return revision, hashes
}
