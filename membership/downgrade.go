package membership

import (
	"encoding/binary"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
)

// The fields of etcd's StatusResponse that tell of a downgrade, since 3.6: DowngradeInfo, with enabled and
// targetVersion in it.
const (
	fieldDowngradeInfo = 13
	fieldEnabled       = 1
	fieldTargetVersion = 2
)

// downgradeTo returns the version that a downgrade was enabled to, or nothing. The type of etcd's client of 3.5
// has no such field and keeps it as it came, so it is read from what went over the wire.
func downgradeTo(status *pb.StatusResponse) string {
	message, err := encoding.GetCodecV2(proto.Name).Marshal(status)
	if err != nil {
		return ""
	}
	defer message.Free()
	info := fieldsOf(message.Materialize())[fieldDowngradeInfo]
	if inside := fieldsOf(info.bytes); inside[fieldEnabled].number != 0 {
		return string(inside[fieldTargetVersion].bytes)
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
