package options

import (
	"strconv"
	"strings"
)

// PodFromEnv returns which pod this process runs in: $POD_NAMESPACE and $POD_NAME. etcd-druid sets both
// in each of its containers, from the fields metadata.namespace and metadata.name. getenv is os.Getenv.
// What is not set is empty.
func PodFromEnv(getenv func(string) string) (namespace, name string) {
	return getenv("POD_NAMESPACE"), getenv("POD_NAME")
}

// StatefulSetOf returns the name of the StatefulSet that a pod belongs to: the pod's name without its
// ordinal, so etcd-main for etcd-main-0. It is empty if the name does not end in an ordinal.
func StatefulSetOf(pod string) string {
	i := strings.LastIndexByte(pod, '-')
	if i < 0 {
		return ""
	}
	if _, err := strconv.ParseUint(pod[i+1:], 10, 31); err != nil {
		return ""
	}
	return pod[:i]
}
