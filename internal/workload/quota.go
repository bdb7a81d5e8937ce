package workload

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"github.com/quorate/quorate/pkg/rollout"
)

// etcdsQuota is what etcd takes a quota of 0 for.
const etcdsQuota = 2 << 30

// quotaOf returns how large etcd's database may become, as far as a pod's spec says so: etcd's own container by its
// arguments and then by its environment, or else etcd-backup-restore by the quota of the etcd that it restores into.
// etcd-druid writes the same number there as into etcd's configuration file, which cannot be seen.
func quotaOf(spec *corev1.PodSpec, names Names) rollout.Quota {
	q := quotaIn(spec, names.EtcdContainer, "quota-backend-bytes", "ETCD_QUOTA_BACKEND_BYTES")
	if q.Bytes == 0 {
		q = quotaIn(spec, names.SidecarContainer, "embedded-etcd-quota-bytes", "")
	}
	return q
}

func quotaIn(spec *corev1.PodSpec, container, flag, variable string) rollout.Quota {
	c := containerOf(spec, container)
	if c == nil {
		return rollout.Quota{}
	}
	text := settingOf(c, flag, variable)
	if text == "" {
		return rollout.Quota{}
	}
	n, err := strconv.ParseInt(text, 10, 64)
	switch {
	case err != nil:
		return rollout.Quota{}
	case n == 0:
		n = etcdsQuota
	}
	return rollout.Quota{Bytes: n, From: flag + " of the container " + container}
}
