package workload

import (
	"cmp"
	"path"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// defaultDataDir is where etcd keeps its data in etcd-druid's pods.
const defaultDataDir = "/var/etcd/data"

// volatileData is true unless the volume that holds etcd's data directory is known to outlive the pod.
// The spec is the pod's or the template's. A template has claims instead of volumes, which become
// volumes of the same names in the pod. etcd is etcd's container.
func volatileData(
	etcd *corev1.Container, spec *corev1.PodSpec, claims []corev1.PersistentVolumeClaim, names Names,
) bool {
	if etcd == nil {
		return true // Nobody knows where its data is.
	}
	persists := func(m *corev1.VolumeMount) bool {
		return m != nil && !m.ReadOnly && outlivesPod(spec, claims, m.Name)
	}
	// Without its log the rest of the data is useless, and the log may be elsewhere.
	if wal := settingOf(etcd, "wal-dir", "ETCD_WAL_DIR"); wal != "" && !persists(covering(etcd.VolumeMounts, wal)) {
		return true
	}
	// What the operator says, and then what etcd's own container says, leaves no doubt which directory
	// it is.
	if dir := cmp.Or(names.EtcdDataDir, dataDirOf(etcd)); dir != "" {
		return !persists(covering(etcd.VolumeMounts, dir))
	}
	// Other containers may mean something else by their data directory. But a directory that etcd's
	// container mounts too is one that they share.
	shared := false
	others := func(containers []corev1.Container) bool {
		for i := range containers {
			if m := covering(etcd.VolumeMounts, dataDirOf(&containers[i])); m != nil {
				if !persists(m) {
					return false
				}
				shared = true
			}
		}
		return true
	}
	if !others(spec.Containers) || !others(spec.InitContainers) {
		return true
	}
	return !shared && !persists(covering(etcd.VolumeMounts, defaultDataDir))
}

// dataDirOf is the data directory that a container is given.
func dataDirOf(c *corev1.Container) string { return settingOf(c, "data-dir", "ETCD_DATA_DIR") }

// settingOf is what a container is given by a flag, which may be inside a script, or else by
// its environment. It is empty if there is none, or if it comes from elsewhere (a file of etcd's own, a
// ConfigMap).
func settingOf(c *corev1.Container, flag, variable string) string {
	dir, next := "", false // The last one wins, as with every flag.
	for _, args := range [2][]string{c.Command, c.Args} {
		for _, arg := range args {
			for word := range strings.FieldsSeq(arg) {
				if next {
					dir, next = strings.Trim(word, `"';`), false
					continue
				}
				name, value, joined := strings.Cut(strings.Trim(word, `"'`), "=")
				if dashless, ok := strings.CutPrefix(name, "-"); !ok || strings.TrimPrefix(dashless, "-") != flag {
					continue
				}
				next = !joined
				if joined {
					dir = strings.Trim(value, `"';`)
				}
			}
		}
	}
	if dir != "" {
		return dir
	}
	for i := range c.Env {
		if c.Env[i].Name == variable {
			dir = c.Env[i].Value
		}
	}
	return dir
}

// covering returns the mount that a directory lies in, which is the one with the longest path, or nil.
func covering(mounts []corev1.VolumeMount, dir string) *corev1.VolumeMount {
	if !path.IsAbs(dir) {
		return nil // It is relative to a directory that is not known here.
	}
	dir = clean(dir)
	var best *corev1.VolumeMount
	longest := -1
	for i := range mounts {
		at := mounts[i].MountPath
		if !path.IsAbs(at) {
			at = "/" + at
		}
		if at = clean(at); len(at) > longest && within(dir, at) {
			best, longest = &mounts[i], len(at)
		}
	}
	return best
}

// clean is [path.Clean] for an absolute path, without the work if the path is clean already.
func clean(dir string) string {
	for i := 1; i < len(dir); i++ {
		if dir[i-1] == '/' && (dir[i] == '/' || dir[i] == '.') || dir[i] == '/' && i == len(dir)-1 {
			return path.Clean(dir)
		}
	}
	return dir
}

// within is true if a directory lies in the other one. Both are absolute and clean.
func within(dir, other string) bool {
	rest, begins := strings.CutPrefix(dir, other)
	return begins && (rest == "" || rest[0] == '/' || other == "/")
}

// outlivesPod is true if the named volume is not made for one pod only.
func outlivesPod(spec *corev1.PodSpec, claims []corev1.PersistentVolumeClaim, volume string) bool {
	for i := range claims {
		if claims[i].Name == volume {
			return true
		}
	}
	for i := range spec.Volumes {
		if v := &spec.Volumes[i]; v.Name == volume && outlives(&v.VolumeSource) {
			return true
		}
	}
	return false
}

// outlives is true for volumes that are not made for one pod only. An inline CSI volume is made for one
// pod. A persistent one comes through a claim.
func outlives(v *corev1.VolumeSource) bool {
	return v.EmptyDir == nil && v.Ephemeral == nil && v.ConfigMap == nil && v.Secret == nil &&
		v.Projected == nil && v.DownwardAPI == nil && v.CSI == nil && v.GitRepo == nil && v.Image == nil
}
