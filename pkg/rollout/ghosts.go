package rollout

import (
	"cmp"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Ghost is a member that an ordinal of ours has left behind on etcd's list: the StatefulSet has no such
// ordinal any more, no pod runs it, and it does not answer. A ghost that votes raises the quorum for as
// long as it is listed.
type Ghost struct {
	*Member
	// Pod is the name that its pod had.
	Pod string
	// Silent is for how long it has been seen to be one without a break.
	Silent time.Duration
}

// Lasting is true for a ghost that has been one for as long as the policy asks for. Until then its pod may
// be about to come, or a network about to be mended.
func (a *Assessment) Lasting(g *Ghost) bool { return g.Silent >= a.policy.GhostAfter }

// AfterRemoval is what removing a ghost makes of the number of voters and of the quorum.
func (a *Assessment) AfterRemoval(g *Ghost) (voters, quorum int) {
	voters = a.Voters - btoi(!g.Learner)
	return voters, voters/2 + 1
}

// Fulfilled is true once the member whose removal is asked for is gone from the list of the same cluster.
func (a *Assessment) Fulfilled() bool {
	r, etcd := a.state.Request, &a.state.Etcd
	return r != nil && r.Operation == RequestRemoveMember && etcd.Known && etcd.Linearizable &&
		r.Cluster == etcd.ClusterID && a.state.member(r.Member) == nil
}

// ghostsGo names the ghosts that vote, and says how to be rid of them. It is empty where there is none. Without the
// lock nobody carries out a request.
func (a *Assessment) ghostsGo() string {
	var names []string
	for i := range a.Ghosts {
		if g := &a.Ghosts[i]; !g.Learner && a.Lasting(g) {
			names = append(names, cmp.Or(g.Name, g.Pod)+" (ID "+strconv.FormatUint(g.ID, 16)+")")
		}
	}
	switch {
	case len(names) == 0:
		return ""
	case a.state.NoLock:
		return "; ghosts: " + strings.Join(names, ", ") + "; make sure that every other member serves, and remove " +
			"each with `etcdctl member remove ID`, because Quorate removes none without the lock"
	}
	return "; ghosts: " + strings.Join(names, ", ") + "; if they are gone for good, remove them with " +
		"`quorate remove-member`"
}

// ghost returns the ghost of this ID, nil if there is none.
func (a *Assessment) ghost(id uint64) *Ghost {
	for i := range a.Ghosts {
		if a.Ghosts[i].ID == id {
			return &a.Ghosts[i]
		}
	}
	return nil
}

// whyNoGhost says why a member is no ghost, or returns the name that its pod had. Settled is false where that
// may be over in a moment.
func whyNoGhost(a *Assessment, m *Member) (pod, why string, settled bool) {
	set := &a.state.Set
	ordinal, known := a.state.memberOrdinal(m)
	switch {
	case slices.ContainsFunc(a.Replicas, func(r Replica) bool { return r.Member == m }), known && set.has(ordinal):
		return "", "it belongs to one of the StatefulSet's ordinals", true
	case !known && m.Name == "":
		return "", "it has never started, and not all of its peer URLs are those of one of the StatefulSet's pods", true
	case !known:
		return "", "its name is not that of one of the StatefulSet's pods", true
	case m.Name != "" && slices.Contains(a.policy.TrustedMembers, m.Name):
		return "", "the operator relies on it (trusted-members)", true
	}
	pod = set.podName(ordinal)
	for i := range a.state.Pods {
		if p := &a.state.Pods[i]; p.Name == pod || m.named(p.MemberName) || m.livesAt(p.Name) {
			return "", "the pod " + p.Name + " is still there", false
		}
	}
	switch {
	case !livesLikeOurs(a, m, pod):
		return "", "its peer URLs are not those that the pod " + pod + " would have", true
	case m.Probe.Read == Answered:
		return "", "it serves", true
	case m.Probe.Read != Failed:
		return "", "it is not known whether it serves (" + m.Probe.Detail + ")", false
	}
	return pod, "", false
}

// memberOrdinal returns the ordinal that a member's name gives it, or, of one that has never started, every
// one of its peer URLs.
func (s *State) memberOrdinal(m *Member) (ordinal int, known bool) {
	if m.Name != "" {
		before, after, ok := s.naming()
		name, found := strings.CutPrefix(m.Name, before)
		name, ends := strings.CutSuffix(name, after)
		if !ok || !found || !ends {
			return 0, false
		}
		return s.Set.ordinalOf(name)
	}
	for i, u := range m.PeerURLs {
		n, ok := s.Set.ordinalOf(firstLabel(u))
		if !ok || i > 0 && n != ordinal {
			return 0, false
		}
		ordinal = n
	}
	return ordinal, len(m.PeerURLs) > 0
}

// Names is true for a member that one of the StatefulSet's ordinals has or has had, as far as its name or its
// peer URLs say.
func Names(set Set, pods []Pod, m Member) bool {
	_, known := (&State{Set: set, Pods: pods}).memberOrdinal(&m)
	return known
}

// naming is what stands before and after a pod's name in its member's. Our pods show it, so that no
// member is ours by its name where there are none.
func (s *State) naming() (before, after string, ok bool) {
	for i := range s.Pods {
		p := &s.Pods[i]
		if !p.Owned {
			continue
		}
		at := strings.Index(p.MemberName, p.Name)
		if at < 0 || ok && (p.MemberName[:at] != before || p.MemberName[at+len(p.Name):] != after) {
			return "", "", false
		}
		before, after, ok = p.MemberName[:at], p.MemberName[at+len(p.Name):], true
	}
	return before, after, ok
}

// livesLikeOurs is true for a member whose peer URLs are those that the pod would have, by what those of
// our members have behind the pod's name. A StatefulSet of the same name may run in another namespace,
// with other ordinals of the same cluster. Where ours are not called by their pods' names, that says
// nothing about a member that has started, and one that has not cannot be told to be ours.
func livesLikeOurs(a *Assessment, m *Member, pod string) bool {
	var domains []string
	for i := range a.Replicas {
		r := &a.Replicas[i]
		if r.Member == nil {
			continue
		}
		for _, u := range r.Member.PeerURLs {
			if label, domain := splitHost(u); label == r.Name {
				domains = append(domains, domain)
			}
		}
	}
	if len(domains) == 0 {
		return m.Name != ""
	}
	for _, u := range m.PeerURLs {
		if label, domain := splitHost(u); label != pod || !slices.Contains(domains, domain) {
			return false
		}
	}
	return true
}

// splitHost splits a URL's host behind its first label. An address has no labels.
func splitHost(url string) (label, domain string) {
	if _, rest, ok := strings.Cut(url, "://"); ok {
		url = rest
	}
	if end := strings.IndexAny(url, ":/"); end >= 0 {
		url = url[:end]
	}
	if _, err := netip.ParseAddr(url); err == nil {
		return "", url
	}
	label, domain, _ = strings.Cut(url, ".")
	return label, domain
}

// ordinalOf returns the ordinal of a pod's name.
func (s *Set) ordinalOf(pod string) (ordinal int, ok bool) {
	digits, ok := strings.CutPrefix(pod, s.Name+"-")
	n, err := strconv.Atoi(digits)
	if !ok || err != nil || n < 0 || strconv.Itoa(n) != digits {
		return 0, false
	}
	return n, true
}

// findGhosts lists the ghosts, whatever their age.
func (a *Assessment) findGhosts(taken []*Member) {
	for i := range a.state.Etcd.Members {
		m := &a.state.Etcd.Members[i]
		if m.Probe.Read != Failed || slices.Contains(taken, m) {
			continue
		}
		if pod, why, _ := whyNoGhost(a, m); why == "" {
			a.Ghosts = append(a.Ghosts, Ghost{Member: m, Pod: pod})
		}
	}
}

// sighted is how the age of a member is asked for.
func (m *Member) sighted(c Condition) Sighting {
	return Sighting{UID: strconv.FormatUint(m.ID, 16), Condition: c}
}
