// Comparing the member lists of several members, and their terms. A cluster may have split, and a member may have been
// paused, so one answer alone does not say whose list the others go by.

package membership

import (
	"cmp"
	"errors"
	"slices"
	"strconv"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/quorate/quorate/pkg/rollout"
)

// overtaken is true when a voter answered a read at a later term than that of the list. Whoever gave
// the list may have been paused since (etcd-io/etcd#20418).
func overtaken(m rollout.Membership, term uint64) bool {
	return slices.ContainsFunc(m.Members, func(x rollout.Member) bool {
		return !x.Learner && x.Probe.Read == rollout.Answered && x.Probe.ReadTerm > term
	})
}

// agreeing returns how many voters of a list have returned a list of the same voters.
func agreeing(list listAnswer, heard []listAnswer) int {
	voters := votersOf(list)
	agree := map[uint64]bool{}
	for _, a := range heard {
		if a.cluster == list.cluster && slices.Contains(voters, a.member) && slices.Equal(votersOf(a), voters) {
			agree[a.member] = true
		}
	}
	return len(agree)
}

// votersOf returns the IDs of the voters on a list, in order.
func votersOf(a listAnswer) []uint64 {
	var ids []uint64
	for _, m := range a.members {
		if !m.IsLearner {
			ids = append(ids, m.ID)
		}
	}
	slices.Sort(ids)
	return ids
}

var errNotAsked = errors.New("not asked for its own list")

// inWords is a member list as text: the members' IDs in order, with what kind of member they are.
func inWords(a listAnswer) string {
	members := slices.SortedFunc(slices.Values(a.members), func(x, y *pb.Member) int { return cmp.Compare(x.ID, y.ID) })
	words := make([]string, 0, len(members))
	for _, m := range members {
		word := strconv.FormatUint(m.ID, 16)
		if m.IsLearner {
			word += " (learner)"
		}
		words = append(words, word)
	}
	return strings.Join(words, ", ")
}
