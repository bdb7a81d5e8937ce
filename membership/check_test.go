package membership_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/quorate/quorate/internal/etcdtest"
	"github.com/quorate/quorate/membership"
)

func TestWhetherAuthenticationIsOn(t *testing.T) {
	for _, tc := range []struct {
		name string
		set  func(*etcdtest.Member)
		want membership.Authentication
		err  string
	}{
		{"off", func(*etcdtest.Member) {}, membership.AuthOff, ""},
		{"root may ask", func(m *etcdtest.Member) { m.AuthOn = true }, membership.AuthRoot, ""},
		{"nobody else may", func(m *etcdtest.Member) { m.AuthErr = rpctypes.ErrGRPCPermissionDenied },
			membership.AuthLimited, ""},
		{"nobody has signed in", func(m *etcdtest.Member) { m.AuthErr = rpctypes.ErrGRPCUserEmpty },
			membership.AuthNobody, ""},
		{"etcd 3.4 does not tell", func(m *etcdtest.Member) {
			m.AuthErr = status.Error(codes.Unimplemented,
				"unknown")
		},
			0, "3.4 does not tell"},
		{"an error is told", func(m *etcdtest.Member) { m.AuthErr = status.Error(codes.Internal, "broken") },
			0, "broken"},
		{"no voter serves", func(m *etcdtest.Member) { m.ReadErr = rpctypes.ErrGRPCNoLeader }, 0, "no voter serves"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := etcdtest.Start(t, 1)
			c.Set(func(_ *etcdtest.Cluster, members []*etcdtest.Member) { tc.set(members[0]) })
			o := membership.NewObserver(c.Dial, c.URLs(), 5*time.Second)
			defer o.Close()
			m, err := o.Observe(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			got, err := o.Authentication(t.Context(), m)
			if got != tc.want || (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(),
				tc.err) {
				t.Errorf("%d, %v, want %d, %q", got, err, tc.want, tc.err)
			}
		})
	}
}

func TestHashesAreOfOneRevisionAndOfTheMemberThatWasAsked(t *testing.T) {
	c := etcdtest.Start(t, 3)
	c.Set(func(_ *etcdtest.Cluster, members []*etcdtest.Member) {
		for i, m := range members {
			m.Hash, m.Index = 7, uint64(100+i) //nolint:gosec // A handful.
		}
		members[1].Hash = 8
		members[2].HashErr = rpctypes.ErrGRPCPermissionDenied
	})
	o := membership.NewObserver(c.Dial, c.URLs(), 5*time.Second)
	defer o.Close()
	m, err := o.Observe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	revision, hashes := o.Hashes(t.Context(), m)
	if revision != 100 {
		t.Errorf("revision %d, and one member has no more than 100", revision)
	}
	if hashes[0].Value != 7 || hashes[1].Value != 8 || hashes[0].Err != nil {
		t.Errorf("%+v", hashes)
	}
	if !errors.Is(rpctypes.Error(errors.Unwrap(hashes[2].Err)), rpctypes.ErrPermissionDenied) ||
		!strings.Contains(hashes[2].Err.Error(), "role root") {
		t.Errorf("it does not say what to grant: %v", hashes[2].Err)
	}
	// Another member may answer under the name of this one meanwhile.
	c.Set(func(_ *etcdtest.Cluster, members []*etcdtest.Member) { members[0].As = members[1].ID })
	if _, hashes = o.Hashes(t.Context(), m); hashes[0].Err == nil {
		t.Errorf("another member's hash counts: %+v", hashes[0])
	}
}
