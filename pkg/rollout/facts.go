package rollout

import "slices"

// What the facts say by themselves, before they are joined.

func (s *State) member(id uint64) *Member {
	for i := range s.Etcd.Members {
		if s.Etcd.Members[i].ID == id {
			return &s.Etcd.Members[i]
		}
	}
	return nil
}

// suspects is true for the member that an earlier removal of ours may still remove.
func (s *State) suspects(m *Member) bool { return s.Suspect.ID == m.ID && m.ID != 0 }

// stopped is true for the member that an operation on the record may still keep from answering. It counts as not
// serving, although it may answer now: the call may yet arrive.
func (s *State) stopped(m *Member) bool {
	on := s.UnderWay
	return on != nil && on.Member.ID == m.ID && on.Member.Cluster == s.Etcd.ClusterID
}

// podOutOfRange returns the member's pod where that is ours and out of range: it is being scaled
// away, whatever the operator says.
func (s *State) podOutOfRange(m *Member) *Pod {
	for i := range s.Pods {
		p := &s.Pods[i]
		if p.Owned && !s.Set.has(p.Ordinal) && (m.named(p.MemberName) || m.livesAt(p.Name)) {
			return p
		}
	}
	return nil
}

// beyond is a pod of ours that is to be scaled away, whether its member votes or not; nil if there is none.
func (s *State) beyond() *Pod {
	for i := range s.Pods {
		if p := &s.Pods[i]; p.Owned && !s.Set.has(p.Ordinal) {
			return p
		}
	}
	return nil
}

// versionOf is what the replica's member tells, else what its pod's image says.
func (s *State) versionOf(r *Replica) (Version, bool) {
	if r.Member != nil {
		if v, told := r.Member.version(); told {
			return v, true
		}
	}
	return versionIn(r.Pod.EtcdImage, s.Controls.EtcdVersions)
}

// silentVersion is what the image says of a member that does not tell its version. A pod that was never ready says
// nothing: its etcd may never have started in this cluster. Nor does a pod of the new revision, because what
// would become of that version is the question.
func (s *State) silentVersion(r *Replica) (Version, bool) {
	if r.Pod == nil || !r.Outdated || r.Pod.NeverReady {
		return Version{}, false
	}
	if r.Member != nil {
		if _, told := r.Member.version(); told {
			return Version{}, false
		}
	}
	return versionIn(r.Pod.EtcdImage, s.Controls.EtcdVersions)
}

// wayBack is true where the new revision has been there before the candidate's: its oldest pod is older than the
// oldest pod of that one. Under OnDelete every pod is made of the newest revision. So the candidate's revision was
// the newest one after that, and the template has gone back since.
//
// It may have gone to and fro more than once, and then the oldest pod of the new revision may be what an accident
// has left behind, beside pods that others have made anew meanwhile. The candidate's revision being
// status.currentRevision says so: that is the one at which a rollout has ended. Before Kubernetes 1.37, it stays at the
// first revision that the StatefulSet has ever had, under OnDelete. If that is the candidate's, it may say nothing. So
// it counts only while fewer than half of the pods have the new revision: where most have it, the candidate is what
// is left over.
func (s *State) wayBack(c *Replica) bool {
	set := &s.Set
	var to, from *Pod
	owned, updated := 0, 0
	older := func(p, than *Pod) *Pod {
		if than == nil || p.Created.Before(than.Created) {
			return p
		}
		return than
	}
	for i := range s.Pods {
		p := &s.Pods[i]
		switch {
		case !p.Owned:
			continue
		case !set.Outdated(p):
			to = older(p, to)
			updated++
		case p.Revision == c.Pod.Revision:
			from = older(p, from)
		}
		owned++
	}
	if to == nil || from == nil || !to.Created.Before(from.Created) {
		return false
	}
	return c.Pod.Revision != set.CurrentRevision || 2*updated > owned
}

// refOf names a member of this cluster.
func (s *State) refOf(id uint64, name string) MemberRef {
	return MemberRef{ID: id, Cluster: s.Etcd.ClusterID, Name: name}
}

// versionsTold are the versions of etcd that the members tell, the lowest first.
func (m *Membership) versionsTold() []string {
	var told []Version
	for i := range m.Members {
		if v, ok := m.Members[i].version(); ok {
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

// withoutStatus says why the first member that serves has told nothing about itself: with an
// etcd user who may not ask, that is how it stays.
func (m *Membership) withoutStatus() string {
	for i := range m.Members {
		if x := &m.Members[i]; x.Probe.Read == Answered && x.Probe.Status == nil && x.Probe.Detail != "" {
			return "; " + x.Name + ": " + x.Probe.Detail
		}
	}
	return ""
}

// noList says why members are Unknown if none of them could be asked, and nothing otherwise.
func (m *Membership) noList() string {
	if m.Known {
		return ""
	}
	text := "; no member answers with a member list"
	if m.Detail != "" {
		text += ": " + m.Detail
	}
	return text
}
