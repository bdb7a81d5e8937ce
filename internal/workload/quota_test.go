package workload

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/quorate/quorate/pkg/rollout"
)

func TestTheQuotaIsReadFromThePod(t *testing.T) {
	const (
		etcds = "quota-backend-bytes of the container etcd"
		hosts = "embedded-etcd-quota-bytes of the container backup-restore"
	)
	env := []corev1.EnvVar{{Name: "ETCD_QUOTA_BACKEND_BYTES", Value: "4294967296"}}
	for _, tc := range []struct {
		name string
		etcd corev1.Container
		host []string
		want rollout.Quota
	}{
		{"from etcd's arguments", corev1.Container{Args: []string{"--quota-backend-bytes=8589934592"}, Env: env}, nil,
			rollout.Quota{Bytes: 8 << 30, From: etcds}},
		{"from a script", corev1.Container{Command: []string{"sh", "-c", "exec etcd --quota-backend-bytes " +
			"8589934592"}}, nil,
			rollout.Quota{Bytes: 8 << 30, From: etcds}},
		{"from etcd's environment", corev1.Container{Env: env}, nil, rollout.Quota{Bytes: 4 << 30, From: etcds}},
		{"from etcd-backup-restore's, as etcd-druid writes it", corev1.Container{},
			[]string{"server", "--embedded-etcd-quota-bytes=8589934592"}, rollout.Quota{Bytes: 8 << 30, From: hosts}},
		{"and etcd's own comes first", corev1.Container{Env: env}, []string{"--embedded-etcd-quota-bytes=8589934592"},
			rollout.Quota{Bytes: 4 << 30, From: etcds}},
		{"zero is etcd's default", corev1.Container{Args: []string{"--quota-backend-bytes=0"}}, nil,
			rollout.Quota{Bytes: 2 << 30, From: etcds}},
		{"a negative one is none", corev1.Container{Args: []string{"--quota-backend-bytes=-1"}}, nil,
			rollout.Quota{Bytes: -1, From: etcds}},
		{"what cannot be read is not known", corev1.Container{Args: []string{"--quota-backend-bytes=$(QUOTA)"}}, nil,
			rollout.Quota{}},
		{"nothing says it", corev1.Container{}, nil, rollout.Quota{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.etcd.Name = "etcd"
			spec := corev1.PodSpec{Containers: []corev1.Container{tc.etcd, {Name: "backup-restore", Args: tc.host}}}
			if got := quotaOf(&spec, DefaultNames()); got != tc.want {
				t.Errorf("got %+v", got)
			}
		})
	}
}
