package membership

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/quorate/quorate/internal/rollout"
)

// Dump is the output of etcdctl -w json. A nil part means that this witness is missing, which is not
// the same as an empty answer.
type Dump struct {
	// MemberList is the output of "etcdctl member list".
	MemberList []byte
	// EndpointStatus is the output of "etcdctl endpoint status".
	EndpointStatus []byte
	// EndpointHealth is the output of "etcdctl endpoint health". Health is a linearizable read at that
	// endpoint.
	EndpointHealth []byte
}

type dumpHeader struct {
	ClusterID uint64 `json:"cluster_id"`
	MemberID  uint64 `json:"member_id"`
	Revision  int64  `json:"revision"`
}

type dumpList struct {
	Header  dumpHeader `json:"header"`
	Members []struct {
		ID         uint64   `json:"ID"`
		Name       string   `json:"name"`
		PeerURLs   []string `json:"peerURLs"`
		ClientURLs []string `json:"clientURLs"`
		IsLearner  bool     `json:"isLearner"`
	} `json:"members"`
}

type dumpStatus struct {
	Endpoint string `json:"Endpoint"`
	Status   *struct {
		Header           dumpHeader    `json:"header"`
		Version          string        `json:"version"`
		Leader           uint64        `json:"leader"`
		RaftIndex        uint64        `json:"raftIndex"`
		RaftTerm         uint64        `json:"raftTerm"`
		RaftAppliedIndex uint64        `json:"raftAppliedIndex"`
		Errors           []string      `json:"errors"`
		IsLearner        bool          `json:"isLearner"`
		DowngradeInfo    dumpDowngrade `json:"downgradeInfo"`
		DbSize           int64         `json:"dbSize"`
		DbSizeInUse      int64         `json:"dbSizeInUse"`
		DbSizeQuota      int64         `json:"dbSizeQuota"`
	} `json:"Status"`
}

// dumpDowngrade is told by members of 3.6 and later.
type dumpDowngrade struct {
	Enabled       bool   `json:"enabled"`
	TargetVersion string `json:"targetVersion"`
}

type dumpHealth struct {
	Endpoint string `json:"endpoint"`
	Health   bool   `json:"health"`
	Error    string `json:"error"`
}

// Membership returns the facts of a dump. Its errors name the part that cannot be read.
func (d Dump) Membership() (rollout.Membership, error) {
	var (
		m      rollout.Membership
		list   dumpList
		status []dumpStatus
		health []dumpHealth
	)
	for _, part := range []struct {
		name string
		data []byte
		into any
	}{{"member list", d.MemberList, &list}, {"endpoint status", d.EndpointStatus, &status},
		{"endpoint health", d.EndpointHealth, &health}} {
		if part.data == nil {
			continue
		}
		if err := json.Unmarshal(part.data, part.into); err != nil {
			return m, fmt.Errorf("not the output of 'etcdctl %s -w json': %w", part.name, err)
		}
	}
	if d.MemberList == nil {
		return m, nil
	}
	if len(list.Members) == 0 {
		return m, fmt.Errorf("not the output of 'etcdctl member list -w json': it names no member")
	}
	m.Known, m.Linearizable, m.ClusterID = true, true, list.Header.ClusterID
	for _, x := range list.Members {
		member := rollout.Member{ID: x.ID, Name: x.Name, PeerURLs: x.PeerURLs, ClientURLs: x.ClientURLs,
			Learner: x.IsLearner}
		member.Probe = dumpProbe(member, list.Header.ClusterID, status, health)
		m.Members = append(m.Members, member)
	}
	return m, nil
}

// dumpProbe joins what the endpoints of one member said.
func dumpProbe(m rollout.Member, cluster uint64, status []dumpStatus, health []dumpHealth) rollout.Probe {
	var p rollout.Probe
	endpoints := slices.Clone(m.ClientURLs)
	for _, s := range status {
		if s.Status == nil {
			continue
		}
		header := &pb.ResponseHeader{ClusterId: s.Status.Header.ClusterID, MemberId: s.Status.Header.MemberID}
		if hasEndpoint(m.ClientURLs, s.Endpoint) {
			expected := cluster
			if expected == 0 { // The member list was printed without its header.
				expected = header.ClusterId
			}
			if read, detail := identify(header, expected, m.ID); read != rollout.Answered {
				return rollout.Probe{Read: read, Detail: detail}
			}
		} else if header.MemberId != m.ID {
			continue
		}
		// The endpoint may have another name than in the member list.
		endpoints = append(endpoints, s.Endpoint)
		p.Status = &rollout.Status{
			Leader: s.Status.Leader, Term: s.Status.RaftTerm, Index: s.Status.RaftIndex,
			Applied:   s.Status.RaftAppliedIndex,
			Revision:  s.Status.Header.Revision,
			Version:   s.Status.Version,
			Learner:   s.Status.IsLearner,
			Corrupt:   alarmed(s.Status.Errors, pb.AlarmType_CORRUPT),
			NoSpace:   alarmed(s.Status.Errors, pb.AlarmType_NOSPACE),
			NoSpaceOf: alarmedMembers(s.Status.Errors, pb.AlarmType_NOSPACE),
			Size:      s.Status.DbSize, InUse: s.Status.DbSizeInUse, Quota: s.Status.DbSizeQuota,
		}
		if down := s.Status.DowngradeInfo; down.Enabled {
			p.Status.DowngradeTo = down.TargetVersion
		}
	}
	if m.Name == "" && len(m.ClientURLs) == 0 {
		return rollout.Probe{Read: rollout.Failed, Detail: "the member has never started"}
	}
	for _, h := range health {
		if !hasEndpoint(endpoints, h.Endpoint) {
			continue
		}
		if h.Health {
			p.Read, p.Detail = rollout.Answered, ""
			return p
		}
		p.Read, p.Detail = rollout.Failed, "no linearizable read: "+h.Error
		p.Replied = strings.HasPrefix(h.Error, "etcdserver: ")
	}
	if m.Learner && p.Status != nil {
		// A learner answers no linearizable read; its status is all there is.
		p.Read, p.Detail = rollout.Answered, ""
	}
	if p.Read == rollout.NotAsked {
		p.Detail = "no health of its endpoints is given"
	}
	return p
}

// hasEndpoint compares without regard to a scheme that one side may leave out, as
// etcdctl does.
func hasEndpoint(urls []string, endpoint string) bool {
	bare := func(u string) string {
		if _, rest, ok := strings.Cut(u, "://"); ok {
			u = rest
		}
		return strings.TrimSuffix(u, "/")
	}
	return slices.ContainsFunc(urls, func(u string) bool { return bare(u) == bare(endpoint) })
}
