package rollout

import (
	"slices"
	"strconv"
	"strings"
)

// etcd keeps an alarm when its member leaves the list, and refuses writes until somebody disarms it
// (etcd-io/etcd#14379). So an alarm is told by the ID in it, whoever has that by now.

// noSpace is true while some member says that there is an alarm NOSPACE.
func (a *Assessment) noSpace() bool { return a.told(func(st *Status) bool { return st.NoSpace }) }

// told is true if this holds for the status of some member.
func (a *Assessment) told(is func(*Status) bool) bool {
	return slices.ContainsFunc(a.state.Etcd.Members, func(m Member) bool {
		return m.Probe.Status != nil && is(m.Probe.Status)
	})
}

// alarmed are the IDs of the members that have raised the alarm NOSPACE, as all members tell it: first those that have
// left etcd's list, because no database has to become smaller for them.
func (a *Assessment) alarmed() []uint64 {
	ids := a.inAlarm(func(st *Status) []uint64 { return st.NoSpaceOf })
	gone := a.gone(ids)
	return append(gone, slices.DeleteFunc(ids, func(id uint64) bool { return slices.Contains(gone, id) })...)
}

// inAlarm are the IDs that members tell, each once.
func (a *Assessment) inAlarm(tells func(*Status) []uint64) []uint64 {
	var ids []uint64
	for i := range a.state.Etcd.Members {
		if st := a.state.Etcd.Members[i].Probe.Status; st != nil {
			ids = append(ids, tells(st)...)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// gone are those of the IDs that no member on etcd's list has.
func (a *Assessment) gone(ids []uint64) []uint64 {
	return slices.DeleteFunc(slices.Clone(ids), func(id uint64) bool { return a.state.member(id) != nil })
}

// ofGone is true if nobody on etcd's list has raised the alarm NOSPACE.
func (a *Assessment) ofGone() bool {
	ids := a.alarmed()
	return len(ids) > 0 && len(a.gone(ids)) == len(ids)
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

// tellsGone adds to what keeps the alarm NOSPACE that members which are gone have a part in it.
func (a *Assessment) tellsGone(d Decision) Decision {
	if gone := a.gone(a.alarmed()); len(gone) > 0 && !d.Acts() {
		reason := d.reason
		d.reason = func() string { return reason() + "; the alarm has been raised by " + a.whose(gone) }
	}
	return d
}

// versionsTold are the versions of etcd that the members tell, the lowest first.
func (a *Assessment) versionsTold() []string {
	var told []Version
	for i := range a.state.Etcd.Members {
		if v, ok := ParseVersion(versionOf(&a.state.Etcd.Members[i])); ok {
			told = append(told, v)
		}
	}
	slices.SortFunc(told, Version.compare)
	var words []string
	for _, v := range slices.Compact(told) {
		words = append(words, v.String())
	}
	return words
}
