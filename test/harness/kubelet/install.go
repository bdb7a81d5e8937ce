package kubelet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate/quorate/test/harness/dns"
)

// runtimeText is the configuration of containerd 1.6, which later releases read too. restrict_oom_score_adj is for
// machines whose root may not lower a score.
const runtimeText = `version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs",
 "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs",
 "io.containerd.tracing.processor.v1.otlp", "io.containerd.internal.v1.tracing"]
[grpc]
  address = %q
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = %q
  restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = %q
  conf_dir = %q
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
  BinaryName = %q
`

// pluginText lets pods join the bridge of their node.
const pluginText = `{"cniVersion": "1.0.0", "name": "pods", "plugins": [{"type": "bridge", "bridge": %q, "ipam": {
  "type": "host-local", "ranges": [[{"subnet": %q, "rangeStart": %q, "rangeEnd": %q, "gateway": %q}]],
  "routes": [{"dst": "0.0.0.0/0"}]}}]}
`

// kubeletText is the kubelet's configuration. Leases and statuses are quicker than by default, so that a node that is
// lost is noticed in seconds. Nothing is evicted or collected for want of room, because the machine is not the node's.
const kubeletText = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
failCgroupV1: false
cgroupDriver: cgroupfs
cgroupRoot: /%s
containerRuntimeEndpoint: unix://%s
failSwapOn: false
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
clusterDNS: [%s]
clusterDomain: %s
resolvConf: %s
evictionHard: {memory.available: 50Mi, nodefs.available: 1%%, nodefs.inodesFree: 1%%, imagefs.available: 1%%}
imageGCHighThresholdPercent: 100
imageGCLowThresholdPercent: 99
localStorageCapacityIsolation: false
makeIPTablesUtilChains: false
containerLogMaxSize: 1Gi
nodeLeaseDurationSeconds: 4
nodeStatusUpdateFrequency: 2s
nodeStatusReportFrequency: 4s
`

// NodeMonitorGracePeriod is how long after its last Lease a node is taken for lost.
const NodeMonitorGracePeriod = 10 * time.Second

// quickRestarts are for tests that do not wait for what they do not test.
const quickRestarts = "crashLoopBackOff: {maxContainerRestartPeriod: 4s}\n"

// install writes what is on a node's disk before it boots for the first time.
func (n *Nodes) install(o *one) error {
	net := n.config.Network
	plugins := filepath.Join(n.config.Runtime, "usr", "lib", "cni")
	kubelet := fmt.Sprintf(kubeletText, n.group(o), runtimeSocket, net.HubAddress(), dns.ClusterDomain,
		filepath.Join(o.dir, resolvConfig))
	if !n.config.Patient {
		kubelet += quickRestarts
	}
	pods := func(last int) string { return net.address(o.index+1, last).String() }
	files := map[string]string{
		containerdConfig: fmt.Sprintf(runtimeText, runtimeSocket, fullName(pauseImage), plugins,
			filepath.Join(o.dir, etcDir), filepath.Join(n.config.Runtime, "usr", "sbin", "runc")),
		etcDir + "/10-pods.conflist": fmt.Sprintf(pluginText, nodeBridge,
			fmt.Sprintf("%s/%d", net.address(0, 0), prefix), pods(10), pods(250), net.HubAddress()),
		kubeletConfig: kubelet,
		resolvConfig:  "nameserver " + net.HubAddress() + "\n",
	}
	var errs []error
	for _, dir := range []string{libDir, logDir, etcDir, "root"} {
		errs = append(errs, os.MkdirAll(filepath.Join(o.dir, dir), 0o755))
	}
	for _, path := range n.config.SharedPaths {
		errs = append(errs, os.MkdirAll(n.HostDir("", path), 0o777), os.Chmod(n.HostDir("", path), 0o777))
	}
	for name, text := range files {
		errs = append(errs, os.WriteFile(filepath.Join(o.dir, name), []byte(text), 0o644))
	}
	kubeconfig, err := n.config.Kubeconfig(o.name)
	if err == nil {
		err = os.Link(kubeconfig, filepath.Join(o.dir, etcDir, "kubeconfig"))
	}
	return errors.Join(append(errs, err)...)
}

// machine is a node as its first process has to know it.
func (n *Nodes) machine(o *one) machine {
	net := n.config.Network
	binds := map[string]string{}
	for _, dir := range []string{n.config.Dir, n.config.Runtime, filepath.Dir(n.config.Kube)} {
		binds[dir] = dir
	}
	for _, path := range n.config.SharedPaths {
		binds[path] = n.HostDir("", path)
	}
	address := net.nodeAddress(o.index).String()
	return machine{
		Name: o.name, Dir: o.dir, Binds: binds, MAC: net.mac(o.index + 1).String(), Gateway: net.HubAddress(),
		Address: fmt.Sprintf("%s/%d", address, prefix), Runtime: n.config.Runtime, Images: n.images,
		Memory: onOverlay(o.dir),
		Kubelet: []string{n.config.Kube, "kubelet", "--config=" + filepath.Join(o.dir, kubeletConfig),
			"--kubeconfig=" + filepath.Join(o.dir, etcDir, "kubeconfig"), "--hostname-override=" + o.name,
			"--node-ip=" + address, "--root-dir=/var/lib/kubelet", "--cert-dir=/var/lib/kubelet/pki",
			"--node-labels=" + corev1.LabelHostname + "=" + o.name,
			"--volume-plugin-dir=/var/lib/kubelet/volumeplugins", "--v=2"},
	}
}

// onOverlay reports whether a folder is on an overlay file system, as in a container. Images cannot be on one.
func onOverlay(dir string) bool {
	var s unix.Statfs_t
	return unix.Statfs(dir, &s) == nil && s.Type == unix.OVERLAYFS_SUPER_MAGIC
}

// provide makes the volume of a claim: a folder that all nodes have.
func (n *Nodes) provide(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	if claim.Spec.VolumeName != "" {
		return nil
	}
	dir := n.ClaimDir(claim.Namespace, claim.Name)
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		return err
	}
	everywhere := corev1.NodeSelectorRequirement{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpExists}
	_, err := n.client.CoreV1().PersistentVolumes().Create(ctx, &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pv-" + string(claim.UID)},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: claim.Spec.Resources.Requests, AccessModes: claim.Spec.AccessModes,
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			ClaimRef: &corev1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", UID: claim.UID,
				Namespace: claim.Namespace, Name: claim.Name},
			PersistentVolumeSource: corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: dir}},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{
				NodeSelectorTerms: []corev1.NodeSelectorTerm{{
					MatchExpressions: []corev1.NodeSelectorRequirement{everywhere}}}}},
		},
	}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}
