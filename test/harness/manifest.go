package harness

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/quorate/quorate/test/harness/node"
	"github.com/quorate/quorate/test/harness/pki"
)

// Spec describes a cluster. The zero value of every field except Name is what etcd-druid would choose
// for three members, only faster.
type Spec struct {
	// Name of the StatefulSet and, with its suffixes, of everything else.
	Name string
	// Replicas is 3 by default.
	Replicas int
	// EtcdImage is by default what [EtcdUpgrade] begins with, SidecarImage Sidecar.
	EtcdImage, SidecarImage string
	// Strategy is OnDelete by default.
	Strategy appsv1.StatefulSetUpdateStrategyType
	// Ordered is podManagementPolicy OrderedReady, for Parallel.
	Ordered bool
	// RollingUnavailable is RollingUpdate's own maxUnavailable; none when 0. It needs the
	// feature gate MaxUnavailableStatefulSet.
	RollingUnavailable int
	// PlainText turns mTLS for clients and peers off.
	PlainText bool
	// PlainPeers turns mTLS for peers off, and leaves it on for clients. Only an Etcd has it ([Env.CreateEtcd]).
	PlainPeers bool
	// SidecarArgs are added to the sidecar's.
	SidecarArgs []string
	// EtcdArgs are added to etcd's.
	EtcdArgs []string
	// Components are those of deploy/components that are granted beside the base.
	Components []string
	// StartDelay is how long a pod takes before its containers start, as scheduling, attaching the
	// volume and pulling the image do in a real cluster. It is 0 by default, because tests do not wait
	// for what they do not test.
	StartDelay time.Duration
	// StopDelay is how long etcd goes on serving once its pod terminates, by a preStop hook. It is in
	// whole seconds, and 0 by default.
	StopDelay time.Duration
	// Bare leaves Quorate out, as in a cluster that has no Quorate yet. There is no Role and no
	// ServiceAccount, and the container backup-restore does not run it. What deploy/sidecar-patch.yaml builds
	// upon is there: the volumes etcd-ca and etcd-client-tls, and an etcd that also listens on the
	// pod's loopback address. It needs Namespaces and TLS.
	Bare bool
	// Manifest has what somebody else's chart renders: the StatefulSet with the cluster's name, the Service
	// NAME-headless that governs it, and all that belongs to them but Quorate's Role. It takes the place of what
	// etcd-druid would choose, and Quorate's container is called quorate. Of the rest of the spec, only Replicas,
	// PlainText and Components count. It needs Namespaces.
	Manifest string
	// selector are the labels by which its StatefulSet finds its pods.
	selector map[string]string
	// OwnNodes gives the cluster its own nodes, one for each ordinal, so that one can be lost without
	// another cluster's pods on it.
	OwnNodes bool
	// SpareNode gives it one more on real nodes, for the pods of one that is drained.
	SpareNode bool
	// Etcd changes the spec of an Etcd before it is created ([Env.CreateEtcd]). Optional.
	Etcd func(spec map[string]any)
}

func (s Spec) complete() Spec {
	if s.Replicas == 0 {
		s.Replicas = 3
	}
	if s.EtcdImage == "" {
		s.EtcdImage, _ = EtcdUpgrade()
	}
	if s.SidecarImage == "" {
		s.SidecarImage = Sidecar
	}
	if s.Strategy == "" {
		s.Strategy = appsv1.OnDeleteStatefulSetStrategyType
	}
	return s
}

// Namespace is where all clusters live.
const Namespace = "default"

func (s Spec) scheme() string {
	if s.PlainText {
		return "http"
	}
	return "https"
}

func (s Spec) podName(ordinal int) string { return fmt.Sprintf("%s-%d", s.Name, ordinal) }

func (s Spec) labels() map[string]string {
	if s.Manifest != "" {
		return s.selector
	}
	return map[string]string{
		"app.kubernetes.io/name":       s.Name,
		"app.kubernetes.io/component":  "etcd-statefulset",
		"app.kubernetes.io/managed-by": "etcd-druid",
		"app.kubernetes.io/part-of":    s.Name,
	}
}

// governing is the Service that gives the pods their names.
func (s Spec) governing() string {
	if s.Manifest != "" {
		return s.Name + "-headless"
	}
	return s.Name + "-peer"
}

// sidecar is the name of the container that runs Quorate.
func (s Spec) sidecar() string {
	if s.Manifest != "" {
		return "quorate"
	}
	return sidecarContainer
}

// host is how a pod is addressed: by its DNS name where names resolve.
func (e *Env) host(s Spec, pod string) string {
	if e.mode == Namespaces {
		return fmt.Sprintf("%s.%s.%s.svc", pod, s.governing(), Namespace)
	}
	return e.Network.AddressOf(Namespace, pod)
}

// ownHost is the same, as the pod's own containers write it.
func (e *Env) ownHost(s Spec) string {
	if e.mode == Namespaces {
		return fmt.Sprintf("$(POD_NAME).%s-peer.%s.svc", s.Name, Namespace)
	}
	return "$(POD_IP)"
}

// listenHost is where a pod's containers listen. A pod has more than one address where it has a network of its own.
func (e *Env) listenHost() string {
	if e.mode == Namespaces {
		return "0.0.0.0"
	}
	return "$(POD_IP)"
}

// maxReplicas is how many ordinals certificates are made for, so that a cluster can
// be scaled out.
const maxReplicas = 7

// certificates are for all members: one that serves clients, one for peers, and one for
// the client side.
func (e *Env) certificates(s Spec) (map[string][]byte, *pki.CA, error) {
	ca, err := pki.NewCA(s.Name)
	if err != nil {
		return nil, nil, err
	}
	client := s.Name + "-client"
	names := []string{"localhost", s.Name + "-local", client, client + "." + Namespace,
		client + "." + Namespace + ".svc"}
	ips := []net.IP{net.IPv4(127, 0, 0, 1)}
	for n := range maxReplicas {
		pod := s.podName(n)
		names = append(names, fmt.Sprintf("%s.%s-peer.%s.svc", pod, s.Name, Namespace))
		if e.real() {
			continue // Nobody knows the addresses of pods beforehand.
		}
		ip := net.ParseIP(e.Network.AddressOf(Namespace, pod))
		if ip == nil {
			return nil, nil, fmt.Errorf("no address is left for pod %s; start another harness for more clusters", pod)
		}
		ips = append(ips, ip)
	}
	data := map[string][]byte{"ca.crt": ca.CertPEM()}
	for _, c := range []struct {
		name string
		req  pki.Request
	}{
		{"server", pki.Request{CommonName: s.Name + "-server", DNSNames: names, IPs: ips, Server: true, Client: true}},
		{"peer", pki.Request{CommonName: s.Name + "-peer", DNSNames: names, IPs: ips, Server: true, Client: true}},
		{"client", pki.Request{CommonName: s.Name + "-client", Client: true}},
	} {
		cert, key, err := ca.Issue(c.req)
		if err != nil {
			return nil, nil, err
		}
		data[c.name+".crt"], data[c.name+".key"] = cert, key
	}
	return data, ca, nil
}

// clientSecrets are what etcd-druid is given for the clients of a cluster, in its layout.
func (s Spec) clientSecrets(data map[string][]byte) []*corev1.Secret {
	return []*corev1.Secret{
		{ObjectMeta: metav1.ObjectMeta{Name: s.Name + "-ca"}, Data: map[string][]byte{"bundle.crt": data["ca.crt"]}},
		{
			ObjectMeta: metav1.ObjectMeta{Name: s.Name + "-client-tls"}, Type: corev1.SecretTypeTLS,
			Data: map[string][]byte{corev1.TLSCertKey: data["client.crt"], corev1.TLSPrivateKeyKey: data["client.key"]},
		},
	}
}

// clientVolumes are where the pods have them.
func (s Spec) clientVolumes() []corev1.Volume {
	secret := func(volume, name string) corev1.Volume {
		return corev1.Volume{Name: volume,
			VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: name}}}
	}
	return []corev1.Volume{secret("etcd-ca", s.Name+"-ca"), secret("etcd-client-tls", s.Name+"-client-tls")}
}

// Paths in the containers.
const (
	dataPath = "/var/etcd/data"
	tlsPath  = "/var/etcd/ssl"
	kubePath = "/var/run/quorate"
)

func (e *Env) statefulSet(s Spec) *appsv1.StatefulSet {
	replicas := int32(s.Replicas)
	grace := int64(30)
	set := &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: s.Name, Namespace: Namespace, Labels: s.labels()},
		Spec: appsv1.StatefulSetSpec{
			Replicas:            &replicas,
			ServiceName:         s.Name + "-peer",
			PodManagementPolicy: appsv1.ParallelPodManagement,
			UpdateStrategy:      appsv1.StatefulSetUpdateStrategy{Type: s.Strategy},
			Selector:            &metav1.LabelSelector{MatchLabels: s.labels()},
			VolumeClaimTemplates: []corev1.PersistentVolumeClaim{{
				ObjectMeta: metav1.ObjectMeta{Name: s.Name},
				Spec: corev1.PersistentVolumeClaimSpec{
					AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
					Resources: corev1.VolumeResourceRequirements{
						Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
				},
			}},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: s.labels()},
				Spec: corev1.PodSpec{
					NodeSelector:                  e.nodeSelector(s),
					Affinity:                      s.apart(),
					ServiceAccountName:            s.Name,
					TerminationGracePeriodSeconds: &grace,
					HostAliases: []corev1.HostAlias{{IP: "127.0.0.1",
						Hostnames: []string{s.Name + "-local"}}},
					InitContainers: s.initContainers(),
					Containers: []corev1.Container{e.etcdContainer(s),
						e.sidecarContainer(s, e.clientURL(s, e.ownHost(s)))},
					Volumes: []corev1.Volume{
						{Name: "tls",
							VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: s.Name +
								"-tls"}}},
						{Name: "kube",
							VolumeSource: corev1.VolumeSource{
								Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
									{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"}},
									{ConfigMap: &corev1.ConfigMapProjection{
										LocalObjectReference: corev1.LocalObjectReference{Name: s.Name + "-kube"}}},
								}}}},
					},
				},
			},
		},
	}
	if s.Ordered {
		set.Spec.PodManagementPolicy = appsv1.OrderedReadyPodManagement
	}
	if s.RollingUnavailable > 0 {
		most := intstr.FromInt(s.RollingUnavailable)
		set.Spec.UpdateStrategy.RollingUpdate = &appsv1.RollingUpdateStatefulSetStrategy{MaxUnavailable: &most}
	}
	if s.Bare {
		set.Spec.Template.Spec.ServiceAccountName = ""
		set.Spec.Template.Spec.Volumes = append(set.Spec.Template.Spec.Volumes, s.clientVolumes()...)
	}
	return set
}

func (e *Env) nodeSelector(s Spec) map[string]string {
	switch {
	case s.OwnNodes:
		return map[string]string{node.PoolLabel: s.Name}
	case e.real():
		return map[string]string{node.PoolLabel: ""} // The nodes of no cluster in particular.
	}
	return nil
}

// apart keeps members on nodes of their own. The node agent does so anyway.
func (s Spec) apart() *corev1.Affinity {
	members := &metav1.LabelSelector{MatchLabels: s.labels(), MatchExpressions: []metav1.LabelSelectorRequirement{
		{Key: appsv1.StatefulSetPodNameLabel, Operator: metav1.LabelSelectorOpExists}}}
	return &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{
			{TopologyKey: corev1.LabelHostname, LabelSelector: members}}}}
}

// initContainers is one that waits, where there is something to wait for.
func (s Spec) initContainers() []corev1.Container {
	if s.StartDelay == 0 {
		return nil
	}
	return []corev1.Container{{
		Name: "start-delay", Image: s.SidecarImage,
		Command: []string{"sh", "-c", fmt.Sprintf("exec sleep %g", s.StartDelay.Seconds())},
	}}
}

func fieldEnv(name, path string) corev1.EnvVar {
	return corev1.EnvVar{Name: name,
		ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}}
}

var podEnv = []corev1.EnvVar{
	fieldEnv("POD_NAME", "metadata.name"),
	fieldEnv("POD_NAMESPACE", "metadata.namespace"),
	fieldEnv("POD_IP", "status.podIP"),
}

// Flags of etcd that change when a cluster is scaled.
const (
	initialCluster = "--initial-cluster="
	initialState   = "--initial-cluster-state="
)

func (e *Env) initialCluster(s Spec, replicas int) string {
	members := make([]string, replicas)
	for n := range members {
		pod := s.podName(n)
		members[n] = pod + "=" + e.peerURL(s, pod)
	}
	return strings.Join(members, ",")
}

func (e *Env) peerURL(s Spec, pod string) string {
	return fmt.Sprintf("%s://%s:%d", s.scheme(), e.host(s, pod), e.ports.peer)
}

func (e *Env) clientURL(s Spec, host string) string {
	return fmt.Sprintf("%s://%s:%d", s.scheme(), host, e.ports.client)
}

func (e *Env) etcdContainer(s Spec) corev1.Container {
	url := func(host string, port int) string { return fmt.Sprintf("%s://%s:%d", s.scheme(), host, port) }
	own, client, peer := e.ownHost(s), e.ports.client, e.ports.peer
	listen := url(e.listenHost(), client)
	if s.Bare && e.mode != Namespaces {
		listen += "," + url("127.0.0.1", client)
	}
	args := []string{
		"--name=$(POD_NAME)",
		"--data-dir=" + dataPath + "/new.etcd",
		"--listen-client-urls=" + listen,
		"--advertise-client-urls=" + url(own, client),
		"--listen-peer-urls=" + url(e.listenHost(), peer),
		"--initial-advertise-peer-urls=" + url(own, peer),
		fmt.Sprintf("--listen-metrics-urls=http://%s:%d", e.listenHost(), e.ports.metrics),
		initialCluster + e.initialCluster(s, s.Replicas),
		initialState + "new",
		"--initial-cluster-token=" + s.Name,
		"--log-level=info",
	}
	if !s.PlainText {
		args = append(args,
			"--client-cert-auth", "--trusted-ca-file="+tlsPath+"/ca.crt", "--cert-file="+tlsPath+"/server.crt",
			"--key-file="+tlsPath+"/server.key",
			"--peer-client-cert-auth", "--peer-trusted-ca-file="+tlsPath+"/ca.crt",
			"--peer-cert-file="+tlsPath+"/peer.crt", "--peer-key-file="+tlsPath+"/peer.key")
	}
	return corev1.Container{
		Name: "etcd", Image: s.EtcdImage, Args: append(args, s.EtcdArgs...), Env: podEnv, Lifecycle: s.lifecycle(),
		Ports: []corev1.ContainerPort{{Name: "client", ContainerPort: int32(client)},
			{Name: "server", ContainerPort: int32(peer)}},
		VolumeMounts: []corev1.VolumeMount{
			{Name: s.Name, MountPath: dataPath},
			{Name: "tls", MountPath: tlsPath, ReadOnly: true},
		},
		// The same endpoint and semantics as etcd-druid's; a period of 1 s for its 5.
		ReadinessProbe: &corev1.Probe{
			ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/readyz",
				Port: intstr.FromInt(e.ports.metrics), Scheme: corev1.URISchemeHTTP}},
			PeriodSeconds: 1, FailureThreshold: 5, TimeoutSeconds: 5,
		},
	}
}

// lifecycle is etcd's, where it is to stop slowly.
func (s Spec) lifecycle() *corev1.Lifecycle {
	if s.StopDelay == 0 {
		return nil
	}
	return &corev1.Lifecycle{
		PreStop: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: int64(s.StopDelay / time.Second)}}}
}

// sidecarContainer is the sidecar's, which reaches its etcd at these endpoints.
func (e *Env) sidecarContainer(s Spec, endpoints ...string) corev1.Container {
	if s.Bare {
		return corev1.Container{Name: "backup-restore", Image: s.SidecarImage,
			Command: []string{"sh", "-c", "exec sleep infinity"}}
	}
	args := []string{
		"sidecar",
		"--endpoints=" + strings.Join(endpoints, ","),
		"--kubeconfig=" + kubePath + "/kubeconfig",
		"--log-format=json",
	}
	if !s.PlainText {
		args = append(args, "--cacert="+tlsPath+"/ca.crt", "--cert="+tlsPath+"/client.crt",
			"--key="+tlsPath+"/client.key")
	}
	return corev1.Container{
		Name: "backup-restore", Image: s.SidecarImage, Args: append(args, s.SidecarArgs...), Env: podEnv,
		Ports: []corev1.ContainerPort{{Name: "server", ContainerPort: 8080}},
		VolumeMounts: []corev1.VolumeMount{
			{Name: "tls", MountPath: tlsPath, ReadOnly: true},
			{Name: "kube", MountPath: kubePath, ReadOnly: true},
		},
	}
}

// kubeconfig points a pod at the API server, through the proxy, with its projected token.
func (e *Env) kubeconfig() string {
	return fmt.Sprintf(`apiVersion: v1
kind: Config
clusters:
- name: cluster
  cluster: {server: %q, certificate-authority: ca.crt}
users:
- name: sidecar
  user: {tokenFile: token}
contexts:
- name: sidecar
  context: {cluster: cluster, user: sidecar}
current-context: sidecar
`, e.API.URL())
}

func (e *Env) services(s Spec) []*corev1.Service {
	meta := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Name: name, Namespace: Namespace, Labels: s.labels()}
	}
	client := corev1.ServicePort{Name: "client", Port: int32(e.ports.client)}
	peer := corev1.ServicePort{Name: "peer", Port: int32(e.ports.peer)}
	return []*corev1.Service{
		{ObjectMeta: meta(s.Name + "-client"), Spec: corev1.ServiceSpec{Selector: s.labels(),
			Ports: []corev1.ServicePort{client}}},
		{ObjectMeta: meta(s.Name + "-peer"), Spec: corev1.ServiceSpec{
			ClusterIP: corev1.ClusterIPNone, PublishNotReadyAddresses: true,
			Selector: s.labels(), Ports: slices.Concat([]corev1.ServicePort{client}, []corev1.ServicePort{peer}),
		}},
	}
}

// MinAvailable is what etcd-druid's PodDisruptionBudget asks for: a quorum, and nothing of a single member.
func MinAvailable(members int) intstr.IntOrString {
	if members <= 1 {
		return intstr.FromInt32(0)
	}
	return intstr.FromInt32(int32(members/2 + 1))
}

func (s Spec) disruptionBudget() *policyv1.PodDisruptionBudget {
	least := MinAvailable(s.Replicas)
	return &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: s.Name, Namespace: Namespace, Labels: s.labels()},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: &least,
			Selector:     &metav1.LabelSelector{MatchLabels: s.labels()},
		},
	}
}
