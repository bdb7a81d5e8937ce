package membership

import (
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
)

// FuzzDowngradeTo reads what any server may send: no panic, and no version that is not there.
func FuzzDowngradeTo(f *testing.F) {
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
			downgradeTo(&status)
		}
	})
}
