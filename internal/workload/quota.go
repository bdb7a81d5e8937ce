package workload

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"github.com/quorate/quorate/internal/rollout"
)

// etcdsQuota is what etcd takes a quota of 0 for.
const etcdsQuota = 2 << 30

// quotaOf returns how large etcd's database may become, as far as a pod's spec says so: etcd's own container by its
// arguments and then by its environment, or else etcd-backup-restore by the quota of the etcd that it restores into.
// etcd-druid writes the same number there as into etcd's configuration file, which cannot be seen.
func quotaOf(spec *corev1.PodSpec, names Names) rollout.Quota {
	for _, at := range []struct{ container, flag, variable string }{
		{names.EtcdContainer, "quota-backend-bytes", "ETCD_QUOTA_BACKEND_BYTES"},
		{names.SidecarContainer, "embedded-etcd-quota-bytes", ""},
	} {
		c := containerOf(spec, at.container)
		if c == nil {
			continue
		}
		n, err := strconv.ParseInt(settingOf(c, at.flag, at.variable), 10, 64)
		switch {
		case err != nil:
		case n == 0:
			return rollout.Quota{Bytes: etcdsQuota, From: at.flag + " of the container " + at.container}
		default:
			return rollout.Quota{Bytes: n, From: at.flag + " of the container " + at.container}
		}
	}
	return rollout.Quota{}
}
