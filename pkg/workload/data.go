package workload

import (
	"path"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// defaultDataDir is where etcd keeps its data in a pod of etcd-druid's.
const defaultDataDir = "/var/etcd/data"

// volatileData is true unless the volume that holds etcd's data directory is known to outlive
// the pod: else the data goes with it.
func volatileData(s *appsv1.StatefulSet, names Names) bool {
	spec := &s.Spec.Template.Spec
	containers := slices.Concat(spec.Containers, spec.InitContainers)
	i := slices.IndexFunc(containers, func(c corev1.Container) bool { return c.Name == names.EtcdContainer })
	if i < 0 {
		return true // Nobody knows where its data is.
	}
	mounts := containers[i].VolumeMounts
	persists := func(m *corev1.VolumeMount) bool { return m != nil && !m.ReadOnly && outlivesPod(s, m.Name) }
	// The operator's word, and then etcd's own, leave no doubt which directory it is.
	for _, dir := range []string{names.EtcdDataDir, dataDirOf(&containers[i])} {
		if dir != "" {
			return !persists(covering(mounts, dir))
		}
	}
	// What the other containers call the data directory may be their own; a directory that
	// etcd's container mounts is one that they share.
	shared := 0
	for k := range containers {
		if m := covering(mounts, dataDirOf(&containers[k])); m != nil {
			if !persists(m) {
				return true
			}
			shared++
		}
	}
	return shared == 0 && !persists(covering(mounts, defaultDataDir))
}

// dataDirOf is the data directory that a container is given: by the flag --data-dir, also
// within a script, else by ETCD_DATA_DIR. Empty if there is none, or if it comes from
// elsewhere (a file of etcd's own, a ConfigMap).
func dataDirOf(c *corev1.Container) string {
	var words []string
	for _, arg := range slices.Concat(c.Command, c.Args) {
		words = append(words, strings.Fields(arg)...)
	}
	dir := ""
	for i, word := range words {
		name, value, joined := strings.Cut(strings.Trim(word, `"'`), "=")
		if name != "--data-dir" && name != "-data-dir" {
			continue
		}
		if !joined && i+1 < len(words) {
			value = words[i+1]
		}
		dir = strings.Trim(value, `"';`) // The last one counts, as for every flag.
	}
	if dir != "" {
		return dir
	}
	for _, e := range c.Env {
		if e.Name == "ETCD_DATA_DIR" {
			dir = e.Value
		}
	}
	return dir
}

// covering is the mount that a directory lies in: the one with the longest path, nil for none.
func covering(mounts []corev1.VolumeMount, dir string) *corev1.VolumeMount {
	if !path.IsAbs(dir) {
		return nil // Relative to a directory that nobody knows here.
	}
	var best *corev1.VolumeMount
	longest := -1
	for i := range mounts {
		at := path.Clean("/" + mounts[i].MountPath)
		within := strings.HasPrefix(path.Clean(dir)+"/", strings.TrimSuffix(at, "/")+"/")
		if within && len(at) > longest {
			best, longest = &mounts[i], len(at)
		}
	}
	return best
}

// outlivesPod is true for a volume of the template, by its name, that is not made for one pod.
func outlivesPod(s *appsv1.StatefulSet, volume string) bool {
	if slices.ContainsFunc(s.Spec.VolumeClaimTemplates, func(c corev1.PersistentVolumeClaim) bool { return c.Name == volume }) {
		return true
	}
	return slices.ContainsFunc(s.Spec.Template.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == volume && outlives(v.VolumeSource) })
}

// outlives is true for volumes that are not made for one pod. An inline CSI volume is
// (a persistent one comes through a claim).
func outlives(v corev1.VolumeSource) bool {
	return v.EmptyDir == nil && v.Ephemeral == nil && v.ConfigMap == nil && v.Secret == nil &&
		v.Projected == nil && v.DownwardAPI == nil && v.CSI == nil && v.GitRepo == nil && v.Image == nil
}
