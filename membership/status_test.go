package membership

import (
	"encoding/binary"
	"math"
	"slices"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
)

// Up to 3.6 etcd writes a blank at the end. From 3.7 on there may be one or two between the fields, as Protocol Buffers
// please. A field that is 0 is left out.
func TestWhoseAlarmAStatusTellsOfInEveryVersion(t *testing.T) {
	for _, tc := range []struct {
		name             string
		said             []string
		noSpace, corrupt []uint64
		raised           bool
	}{
		{"3.4 to 3.6", []string{"memberID:1234 alarm:NOSPACE "}, []uint64{1234}, nil, false},
		{"3.7", []string{"memberID:1234 alarm:NOSPACE"}, []uint64{1234}, nil, false},
		{"3.7, two blanks", []string{"memberID:1234  alarm:NOSPACE"}, []uint64{1234}, nil, false},
		{"an ID as large as they are", []string{"memberID:18446744073709551615 alarm:CORRUPT "}, nil,
			[]uint64{math.MaxUint64}, true},
		{"both, and no leader", []string{"etcdserver: no leader", "memberID:7 alarm:CORRUPT ", "memberID:8 alarm:NOSPACE ",
			"memberID:9 alarm:NOSPACE "}, []uint64{8, 9}, []uint64{7}, true},
		{"3.5.7 to 3.5, about nobody", []string{"alarm:CORRUPT "}, nil, nil, true},
		{"none", []string{"etcdserver: no leader"}, nil, nil, false},
	} {
		st := statusOf(&pb.StatusResponse{Header: &pb.ResponseHeader{}, Errors: tc.said})
		if !slices.Equal(st.NoSpaceOf, tc.noSpace) || !slices.Equal(st.CorruptOf, tc.corrupt) ||
			st.NoSpace != (tc.noSpace != nil) || st.Corrupt != tc.raised {
			t.Errorf("%s: %+v", tc.name, st)
		}
	}
	// As the types of this version write it.
	for _, alarm := range []pb.AlarmType{pb.AlarmType_NOSPACE, pb.AlarmType_CORRUPT} {
		text := (&pb.AlarmMember{MemberID: 1234, Alarm: alarm}).String()
		if ids := alarmedMembers([]string{text}, alarm); !slices.Equal(ids, []uint64{1234}) {
			t.Errorf("%q: %v", text, ids)
		}
	}
}

// The types of etcd's API have the field only from 3.6 on.
func TestTheQuotaOfAMemberOf36IsRead(t *testing.T) {
	type message interface {
		Marshal() ([]byte, error)
		Unmarshal(data []byte) error
	}
	told, ok := any(&pb.StatusResponse{DbSize: 7, Errors: []string{"an alarm"}, Leader: 1 << 60}).(message)
	if !ok {
		return // These types have the field, and keep their bytes to themselves.
	}
	data, err := told.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	read := func(data []byte) int64 {
		var kept pb.StatusResponse
		if err := any(&kept).(message).Unmarshal(data); err != nil {
			t.Fatal(err)
		}
		return statusOf(&kept).Quota
	}
	if n := read(data); n != 0 {
		t.Errorf("a member before 3.6 tells %d", n)
	}
	data = binary.AppendUvarint(data, fieldQuota<<3)
	data = binary.AppendUvarint(data, 8<<30)
	if n := read(data); n != 8<<30 {
		t.Errorf("got %d", n)
	}
	for i := range data {
		fieldsOf(data[:i]) // Never beyond its end.
	}
}

// FuzzStatus reads what any server may send: no panic, and nothing that is not there.
func FuzzStatus(f *testing.F) {
	f.Add([]byte{13<<3 | 2, 9, 1 << 3, 1, 2<<3 | 2, 5, '3', '.', '5', '.', '0'})
	f.Add([]byte{13<<3 | 2, 200, 1, 1})
	f.Add([]byte{13<<3 | 5, 1, 2})
	f.Fuzz(func(t *testing.T, raw []byte) {
		if to := fieldsOf(raw)[fieldTargetVersion].bytes; len(to) > len(raw) {
			t.Errorf("%q is longer than what it came from", to)
		}
		var status pb.StatusResponse
		codec := encoding.GetCodecV2(proto.Name)
		if codec.Unmarshal(mem.BufferSlice{mem.SliceBuffer(raw)}, &status) == nil {
			statusOf(&status)
		}
	})
}
