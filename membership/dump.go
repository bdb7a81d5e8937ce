package membership

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/quorate/quorate/pkg/rollout"
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
			if inHex(err) {
				return m, fmt.Errorf("the IDs in the output of 'etcdctl %s -w json' are in hexadecimal; leave out "+
					"--hex, with which etcdctl does not tell who is a learner", part.name)
			}
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
		m.Members = append(m.Members, member)
	}
	for i := range m.Members {
		p := dumpProbe(m, i, status, health)
		if p.Read != rollout.Answered {
			p.Barred = barredBy(p.Detail)
		}
		m.Members[i].Probe = p
	}
	return m, nil
}

// inHex is true if there is a text where an ID should be a number, as etcdctl prints it with --hex.
func inHex(err error) bool {
	var wrong *json.UnmarshalTypeError
	if !errors.As(err, &wrong) || wrong.Value != "string" {
		return false
	}
	field := wrong.Field[strings.LastIndexByte(wrong.Field, '.')+1:]
	return field == "ID" || field == "cluster_id" || field == "member_id" || field == "leader"
}

// dumpProbe joins what the endpoints of one member said. Each row says under which URL it was asked, but only a status
// says who has answered. So the health of a URL is a member's if nobody else advertises that URL, or if the status of
// nobody else came from it.
func dumpProbe(m rollout.Membership, i int, status []dumpStatus, health []dumpHealth) rollout.Probe {
	member := &m.Members[i]
	if member.Name == "" && len(member.ClientURLs) == 0 {
		return rollout.Probe{Read: rollout.Failed, Detail: "the member has never started"}
	}
	var p rollout.Probe
	var own, others []string // URLs of the member's, and those that others answer too.
	for _, url := range member.ClientURLs {
		if shared(m.Members, member.ID, url) {
			others = append(others, url)
		} else {
			own = append(own, url)
		}
	}
	p.OnlyShared = len(own) == 0 && len(others) > 0
	var not *rollout.Probe // What else has answered under its URLs.
	for _, s := range status {
		if s.Status == nil {
			continue
		}
		header := &pb.ResponseHeader{ClusterId: s.Status.Header.ClusterID, MemberId: s.Status.Header.MemberID}
		expected := m.ClusterID
		if expected == 0 { // The member list was printed without its header.
			expected = header.ClusterId
		}
		switch read, detail := identify(header, expected, member.ID); {
		case read == rollout.Answered:
			// The endpoint may have another name than in the member list.
			own = append(own, s.Endpoint)
			p.Status = s.inFull()
			continue
		case hasURL(own, s.Endpoint), p.OnlyShared && hasURL(others, s.Endpoint):
			if not == nil || not.Read == rollout.WrongMember {
				not = &rollout.Probe{Read: read, Detail: detail}
			}
		}
		others = append(others, s.Endpoint)
	}
	own = slices.DeleteFunc(own, func(url string) bool { return hasURL(others, url) })
	for _, h := range health {
		switch {
		case !hasURL(own, h.Endpoint):
		case h.Health:
			p.Read, p.Detail, p.Replied = rollout.Answered, "", false
			return p
		default:
			p.Read, p.Detail = rollout.Failed, "no linearizable read: "+h.Error
			p.Replied = strings.HasPrefix(h.Error, "etcdserver: ")
		}
	}
	switch {
	case member.Learner && p.Status != nil:
		// A learner answers no linearizable read; its status is all there is.
		p.Read, p.Detail = rollout.Answered, ""
		return p
	case p.Status == nil && not != nil && (p.Read == rollout.NotAsked || not.Read == rollout.WrongCluster):
		p.Read, p.Detail = not.Read, not.Detail
	case p.Read == rollout.NotAsked:
		p.Detail = "no health of its endpoints is given"
	}
	if p.OnlyShared {
		p.Detail += "; " + onlyShared(member.ClientURLs)
	}
	return p
}

// inFull is the status in the words of the decision.
func (s *dumpStatus) inFull() *rollout.Status {
	st := s.Status
	full := &rollout.Status{
		Leader: st.Leader, Term: st.RaftTerm, Index: st.RaftIndex,
		Applied:   st.RaftAppliedIndex,
		Revision:  st.Header.Revision,
		Version:   st.Version,
		Learner:   st.IsLearner,
		Corrupt:   alarmed(st.Errors, pb.AlarmType_CORRUPT),
		CorruptOf: alarmedMembers(st.Errors, pb.AlarmType_CORRUPT),
		NoSpace:   alarmed(st.Errors, pb.AlarmType_NOSPACE),
		NoSpaceOf: alarmedMembers(st.Errors, pb.AlarmType_NOSPACE),
		Size:      st.DbSize, InUse: st.DbSizeInUse, Quota: st.DbSizeQuota,
	}
	if down := st.DowngradeInfo; down.Enabled {
		full.DowngradeTo = down.TargetVersion
	}
	return full
}
