package rollout

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// Voters without a pod of ours: members elsewhere, ghosts, and those whose pods are being scaled away.

// withoutPod are the voters that no pod of ours runs and that nobody relies on. While some pod of ours matches no
// member, one of them may be the pod's, so there is none of which that is known.
func (a *Assessment) withoutPod() []*Member {
	if a.unmatched > 0 {
		return nil
	}
	var members []*Member
	for _, m := range a.External {
		if !slices.Contains(a.trusted, m) {
			members = append(members, m)
		}
	}
	slices.SortFunc(members, func(a, b *Member) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID))
	})
	return members
}

// elsewhere names the voters without a pod of ours. It is empty where there is none.
func (a *Assessment) elsewhere() string {
	var names []string
	for _, m := range a.withoutPod() {
		text, about := Label(m.Name, m.ID)+" (", []string(nil)
		if m.Name != "" {
			about = append(about, "ID "+strconv.FormatUint(m.ID, 16))
		}
		if urls := slices.Concat(m.PeerURLs, m.ClientURLs); len(urls) > 0 {
			about = append(about, urls[0])
		}
		names = append(names, text+strings.Join(append(about, a.stateOf(m)), ", ")+")")
	}
	if len(names) == 0 {
		return ""
	}
	return "; voters without a pod here: " + strings.Join(names, ", ")
}

// stateOf says in a few words what is known of a voter without a pod of ours.
func (a *Assessment) stateOf(m *Member) string {
	switch {
	case a.state.podOutOfRange(m) != nil:
		return "is being scaled away"
	case a.serves(m):
		return "serves"
	case m.Name == "":
		return "has never started"
	case m.Probe.Read == Failed:
		return "does not serve"
	}
	return "may serve"
}

// doElsewhere is the way out for each voter without a pod of ours. It is empty where there is none.
func (a *Assessment) doElsewhere() string {
	text := ""
	for _, m := range a.withoutPod() {
		name, state := Label(m.Name, m.ID), a.stateOf(m)
		remove := "`etcdctl member remove " + strconv.FormatUint(m.ID, 16) + "`"
		if a.ghost(m.ID) != nil && !a.state.NoLock {
			remove = "`quorate remove-member -n NAMESPACE NAME " + name + "`"
		}
		text += "The voter " + name + " " + state
		switch {
		case a.state.podOutOfRange(m) != nil:
			text += ": let the scale-in end. "
		case a.serves(m):
			text += ", and has no pod here. If it is to stay and you rely on it, name it with the option " +
				"`trusted-members`. If it is to go: " + remove + ". "
		default:
			text += ", and has no pod here. Start it, or if it is not to come back: " + remove + ". "
		}
	}
	return text
}
