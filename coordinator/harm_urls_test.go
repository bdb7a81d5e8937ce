package coordinator

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorate/quorate/internal/etcdtest"
)

// Charts let each member advertise a Service beside its own URL (bitnami/charts#31922). Behind it, any member may
// answer for any other: sick members would pass for well, and transfers of leadership would reach members that do not
// lead.
func TestARolloutGoesOnWhereMembersAlsoAdvertiseASharedURL(t *testing.T) {
	for _, first := range []bool{true, false} {
		for _, hangs := range []bool{true, false} {
			t.Run(fmt.Sprintf("shared URL first %v, the sick one hangs %v", first, hangs), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := newStage(t, 3)
					next := 0
					s.etcd.Share(first, func() int { // The Service leads to members that are Ready.
						if next = (next + 1) % 3; next == 1 { // Not the sick one.
							next = 2
						}
						return next
					})
					s.back = func(ordinal int) { s.unreachable(ordinal, false) }
					byService := func(c *Config) { c.Endpoints = []string{etcdtest.SharedURL} }
					defer run(t, s.config(as("etcd-2"), byService))()
					<-time.After(time.Minute)
					if hangs {
						s.unreachable(1, true)
						s.refuse(1)
					} else {
						s.etcd.Set(func(_ *etcdtest.Cluster, ms []*etcdtest.Member) { ms[1].ReadErr = errRefused })
						s.back = func(int) {
							s.etcd.Set(func(_ *etcdtest.Cluster, ms []*etcdtest.Member) { ms[1].ReadErr = nil })
						}
					}
					s.crashes(1)
					s.update("rev-2")
					within(t, 5*time.Minute, "the rollout", func() bool { return s.settled("rev-2") })
					told := slices.DeleteFunc(strings.Split(s.story(), ", "), func(e string) bool {
						return !strings.HasPrefix(e, "deleted")
					})
					if len(told) != 3 || told[0] != "deleted etcd-1" || told[2] != "deleted etcd-0" {
						t.Errorf("%v, want the sick one first and the leader last", told)
					}
					s.etcd.Set(func(_ *etcdtest.Cluster, ms []*etcdtest.Member) {
						if ms[0].Moves != 1 || ms[1].Moves+ms[2].Moves != 0 {
							t.Errorf("%d, %d and %d requests to hand over leadership, want one of the leader",
								ms[0].Moves, ms[1].Moves, ms[2].Moves)
						}
					})
				})
			})
		}
	}
}
