// What a member's status says, in the decision's own terms.

package membership

import (
	"encoding/binary"
	"slices"
	"strconv"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"

	"github.com/quorate/quorate/pkg/rollout"
)

func statusOf(st *pb.StatusResponse) *rollout.Status {
	wire := wireOf(st)
	return &rollout.Status{
		Leader: st.Leader, Term: st.RaftTerm,
		Index: st.RaftIndex, Applied: st.RaftAppliedIndex,
		Revision: st.Header.GetRevision(), Version: st.Version,
		Learner: st.IsLearner, DowngradeTo: downgradeTo(wire),
		Corrupt:   alarmed(st.Errors, pb.AlarmType_CORRUPT),
		CorruptOf: alarmedMembers(st.Errors, pb.AlarmType_CORRUPT),
		NoSpace:   alarmed(st.Errors, pb.AlarmType_NOSPACE),
		NoSpaceOf: alarmedMembers(st.Errors, pb.AlarmType_NOSPACE),
		Size:      st.DbSize, InUse: st.DbSizeInUse,
		Quota: int64(wire[fieldQuota].number), //nolint:gosec // It was written from one.
	}
}

// alarmed reads alarms from Status, which needs no consensus. AlarmList does.
func alarmed(said []string, alarm pb.AlarmType) bool {
	return slices.ContainsFunc(said, func(e string) bool { return strings.Contains(e, alarm.String()) })
}

// alarmedMembers are the IDs in what Status says of an alarm, such as "memberID:160 alarm:NOSPACE".
func alarmedMembers(said []string, alarm pb.AlarmType) []uint64 {
	var ids []uint64
	for _, text := range said {
		if !strings.Contains(text, alarm.String()) {
			continue
		}
		for word := range strings.FieldsSeq(text) {
			if digits, ok := strings.CutPrefix(word, "memberID:"); ok {
				if id, err := strconv.ParseUint(digits, 10, 64); err == nil {
					ids = append(ids, id)
				}
			}
		}
	}
	return ids
}

// The fields of etcd's StatusResponse that it has since 3.6, and those of its DowngradeInfo. The types of etcd's API
// of 3.5 have none of them and keep what they do not know, so they are read from what went over the wire.
const (
	fieldQuota         = 12
	fieldDowngradeInfo = 13
	fieldEnabled       = 1
	fieldTargetVersion = 2
)

// wireOf returns the fields of a status as they went over the wire, or none.
func wireOf(status *pb.StatusResponse) map[uint64]field {
	message, err := encoding.GetCodecV2(proto.Name).Marshal(status)
	if err != nil {
		return nil
	}
	defer message.Free()
	return fieldsOf(message.Materialize())
}

// downgradeTo returns the version that a downgrade was enabled to, or nothing.
func downgradeTo(status map[uint64]field) string {
	if info := fieldsOf(status[fieldDowngradeInfo].bytes); info[fieldEnabled].number != 0 {
		return string(info[fieldTargetVersion].bytes)
	}
	return ""
}

// field is the last value of one field of a message.
type field struct {
	number uint64
	bytes  []byte
}

// fieldsOf returns the fields of an encoded message by their numbers. What cannot be read is left out, with all
// that follows it.
func fieldsOf(message []byte) map[uint64]field {
	fields := map[uint64]field{}
	for len(message) > 0 {
		tag, n := binary.Uvarint(message)
		if n <= 0 {
			break
		}
		message = message[n:]
		var f field
		switch tag & 7 {
		case 0: // A number.
			if f.number, n = binary.Uvarint(message); n <= 0 {
				return fields
			}
		case 1, 5: // Eight bytes, or four.
			if n = 8; tag&7 == 5 {
				n = 4
			}
		case 2: // Bytes, after their length.
			length, at := binary.Uvarint(message)
			if at <= 0 || length > uint64(len(message)-at) {
				return fields
			}
			n = at + int(length) //nolint:gosec // No longer than the message.
			f.bytes = message[at:n]
		default:
			return fields
		}
		if n > len(message) {
			break
		}
		fields[tag>>3], message = f, message[n:]
	}
	return fields
}
