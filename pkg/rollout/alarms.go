package rollout

import (
	"slices"
	"strconv"
	"strings"
)

// etcd keeps an alarm when its member leaves the list, and refuses writes until somebody disarms it
// (etcd-io/etcd#14379). So an alarm is told by the ID in it, whoever has that by now.

// told is true if this holds for the status of some member.
func (m *Membership) told(is func(*Status) bool) bool {
	return slices.ContainsFunc(m.Members, func(x Member) bool {
		return x.Probe.Status != nil && is(x.Probe.Status)
	})
}

// inAlarm are the IDs that members tell, each once.
func (m *Membership) inAlarm(tells func(*Status) []uint64) []uint64 {
	var ids []uint64
	for i := range m.Members {
		if st := m.Members[i].Probe.Status; st != nil {
			ids = append(ids, tells(st)...)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// gone are those of the IDs that no member on etcd's list has.
func (s *State) gone(ids []uint64) []uint64 {
	return slices.DeleteFunc(slices.Clone(ids), func(id uint64) bool { return s.member(id) != nil })
}

// whose names members by their pods, or else by their own names, and by the IDs that etcd prints.
func (a *Assessment) whose(ids []uint64) string {
	words := make([]string, 0, len(ids))
	for _, id := range ids {
		hex, m := strconv.FormatUint(id, 16), a.state.member(id)
		replica := slices.IndexFunc(a.Replicas, func(r Replica) bool { return r.Member != nil && r.Member.ID == id })
		switch {
		case replica >= 0:
			words = append(words, a.Replicas[replica].Name+" (ID "+hex+")")
		case m != nil && m.Name != "":
			words = append(words, m.Name+" (ID "+hex+")")
		case m != nil:
			words = append(words, hex+", which has no name")
		case a.state.Etcd.Linearizable:
			words = append(words, hex+", which is not on etcd's member list any more")
		default:
			words = append(words, hex+", which is not on the member list that could be read")
		}
	}
	return strings.Join(words, "; ")
}
