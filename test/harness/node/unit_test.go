package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/quorate/quorate/test/harness/network"
)

// fakeObjects are the secrets and config maps of a namespace.
type fakeObjects struct {
	secrets    map[string]map[string]string
	configMaps map[string]map[string]string
	err        error // of every read
}

func (f *fakeObjects) secret(name string) (*corev1.Secret, error) {
	if f.err != nil {
		return nil, f.err
	}
	data, ok := f.secrets[name]
	if !ok {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "secrets"}, name)
	}
	secret := &corev1.Secret{Data: map[string][]byte{}}
	for key, value := range data {
		secret.Data[key] = []byte(value)
	}
	return secret, nil
}

func (f *fakeObjects) configMap(name string) (*corev1.ConfigMap, error) {
	if f.err != nil {
		return nil, f.err
	}
	data, ok := f.configMaps[name]
	if !ok {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "configmaps"}, name)
	}
	return &corev1.ConfigMap{Data: data}, nil
}

var examplePod = &corev1.Pod{
	ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "etcd-0", UID: "uid-1",
		Labels: map[string]string{"app": "etcd"}, Annotations: map[string]string{"note": "hello"}},
	Spec: corev1.PodSpec{NodeName: "node-0", ServiceAccountName: "etcd"},
}

func field(name, path string) corev1.EnvVar {
	return corev1.EnvVar{Name: name,
		ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}}
}

func TestEnvironment(t *testing.T) {
	resolve := func(container corev1.Container) (map[string]string, error) {
		env, err := resolveEnv(examplePod, &container, "10.0.0.1", "10.0.0.10")
		if err != nil {
			return nil, err
		}
		require.Len(t, env.names, len(env.values))
		return env.values, nil
	}
	for _, x := range []struct {
		name string
		env  []corev1.EnvVar
		want map[string]string
	}{
		{"a plain value", []corev1.EnvVar{{Name: "A", Value: "1"}}, map[string]string{"A": "1"}},
		{"a value refers to variables before it",
			[]corev1.EnvVar{{Name: "A", Value: "1"}, {Name: "B", Value: "$(A)-$(A)"}},
			map[string]string{"A": "1", "B": "1-1"}},
		{"a reference to a later or unknown variable stays as it is",
			[]corev1.EnvVar{{Name: "B", Value: "$(A)"}, {Name: "A", Value: "1"}},
			map[string]string{"A": "1", "B": "$(A)"}},
		{"a doubled dollar is one dollar and no reference",
			[]corev1.EnvVar{{Name: "A", Value: "1"}, {Name: "B", Value: "$$(A)"}},
			map[string]string{"A": "1", "B": "$(A)"}},
		{"fields of the pod", []corev1.EnvVar{field("N", "metadata.name"), field("NS", "metadata.namespace"),
			field("U", "metadata.uid"), field("L", "metadata.labels['app']"),
			field("AN", "metadata.annotations['note']"), field("IP", "status.podIP"), field("H", "status.hostIP"),
			field("NODE", "spec.nodeName"), field("SA", "spec.serviceAccountName")},
			map[string]string{"N": "etcd-0", "NS": "ns", "U": "uid-1", "L": "etcd", "AN": "hello", "IP": "10.0.0.10",
				"H": "10.0.0.1", "NODE": "node-0", "SA": "etcd"}},
		{"the last of two variables of one name counts",
			[]corev1.EnvVar{{Name: "A", Value: "1"}, {Name: "A", Value: "2"}}, map[string]string{"A": "2"}},
	} {
		t.Run(x.name, func(t *testing.T) {
			got, err := resolve(corev1.Container{Env: x.env})
			require.NoError(t, err)
			require.Equal(t, x.want, got)
		})
	}
	for _, x := range []struct {
		name, message string
		env           corev1.EnvVar
	}{
		{"an unknown field is named", "spec.nonsense", field("P", "spec.nonsense")},
		{"an unsupported source says so", "not supported",
			corev1.EnvVar{Name: "P",
				ValueFrom: &corev1.EnvVarSource{ResourceFieldRef: &corev1.ResourceFieldSelector{}}}},
	} {
		t.Run(x.name, func(t *testing.T) {
			_, err := resolve(corev1.Container{Env: []corev1.EnvVar{x.env}})
			require.ErrorContains(t, err, x.message)
			require.ErrorContains(t, err, "env P")
		})
	}
}

func TestMountPaths(t *testing.T) {
	r := newRewriter([]mount{{path: "/var/etcd", local: "/local/a"}, {path: "/var/etcd/data", local: "/local/b"},
		{path: "/x", local: "/var/etcd/deep"}})
	for text, want := range map[string]string{
		"/var/etcd":                              "/local/a",
		"/var/etcd/":                             "/local/a/",
		"/var/etcd/ssl/ca.crt":                   "/local/a/ssl/ca.crt",
		"/var/etcd/data/new.etcd":                "/local/b/new.etcd",
		"--data-dir=/var/etcd/data":              "--data-dir=/local/b",
		"a=/var/etcd,b=/var/etcd/data:c":         "a=/local/a,b=/local/b:c",
		`{"dir": "/var/etcd/data"}`:              `{"dir": "/local/b"}`,
		"cat /var/etcd/f > /var/etcd/data/g; ls": "cat /local/a/f > /local/b/g; ls",
		"file:///var/etcd/data/x":                "file:///local/b/x",
		"/var/etcdata":                           "/var/etcdata",
		"/var/etcd-old":                          "/var/etcd-old",
		"/var/etcd.d":                            "/var/etcd.d",
		"/mnt/var/etcd":                          "/mnt/var/etcd",
		"./var/etcd":                             "./var/etcd",
		"http://host/var/etcd":                   "http://host/var/etcd",
		"//var/etcd":                             "//var/etcd",
		"/x":                                     "/var/etcd/deep", // not rewritten once more
		"":                                       "",
		"https://etcd-0.etcd-peer.ns.svc:2379/äö": "https://etcd-0.etcd-peer.ns.svc:2379/äö",
	} {
		t.Run(fmt.Sprintf("%q becomes %q", text, want), func(t *testing.T) {
			require.Equal(t, want, r.rewrite(text))
		})
	}
}

func TestCommandLine(t *testing.T) {
	container := corev1.Container{
		Command: []string{"/usr/local/bin/etcd", "--name=$(NAME)"},
		Args:    []string{"--data-dir=$(DATA)/new.etcd", "--x=$$(DATA)", "--y=$(NONE)"},
		Env: []corev1.EnvVar{{Name: "NAME", Value: "etcd-0"}, {Name: "DATA", Value: "/var/data"},
			{Name: "HOME", Value: "/var/data/home"}},
		ReadinessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{
			Command: []string{"sh", "-c", "test -f /var/data/ready-$(NAME)-$(IP)"},
		}}},
	}
	container.Env = append(container.Env, field("IP", "status.podIP"))
	env, err := resolveEnv(examplePod, &container, "10.0.0.1", "10.0.0.10")
	require.NoError(t, err)
	image := Image{Program: "/bin/real-etcd"}
	data := []mount{{path: "/var/data", local: "/local"}}
	around := func(config Config, spec *corev1.Container, mounts []mount, scratch string) surroundings {
		s, err := outside(config, examplePod, spec, image, mounts, scratch)
		require.NoError(t, err)
		return s
	}
	line := newCommandLine(&container, env, around(
		Config{Env: map[string]string{"GOTRACEBACK": "all", "NAME": "overridden"}}, &container, data, "/scratch"))

	t.Run("the image's program runs under whatever name", func(t *testing.T) {
		require.Equal(t, "/bin/real-etcd", line.argv[0])
	})
	t.Run("references are expanded and paths rewritten", func(t *testing.T) {
		require.Equal(t, []string{"--name=etcd-0", "--data-dir=/local/new.etcd", "--x=$(DATA)", "--y=$(NONE)"},
			line.argv[1:])
	})
	t.Run("the spec's environment goes before the agent's and the runtime's", func(t *testing.T) {
		got := map[string]string{}
		for _, variable := range line.env {
			name, value, _ := strings.Cut(variable, "=")
			require.NotContains(t, got, name, "set twice")
			got[name] = value
		}
		require.Equal(t, "etcd-0", got["NAME"])
		require.Equal(t, "/local", got["DATA"])
		require.Equal(t, "/local/home", got["HOME"])
		require.Equal(t, "all", got["GOTRACEBACK"])
		require.Equal(t, "etcd-0", got["HOSTNAME"])
		require.Equal(t, "/scratch", got["TMPDIR"])
		require.NotEmpty(t, got["PATH"])
	})
	t.Run("a kubeconfig is for containers with a token, where there is an API server to reach", func(t *testing.T) {
		token := []mount{{path: serviceAccountPath, local: "/local"}}
		for _, x := range []struct {
			api    string
			mounts []mount
			want   bool
		}{{"https://api:6443", token, true}, {"https://api:6443", data, false},
			{"", token, false}} {
			s := around(Config{APIServer: x.api}, &corev1.Container{}, x.mounts, t.TempDir())
			require.Equal(t, x.want, s.env["KUBECONFIG"] != "", "%+v", x)
		}
	})
	t.Run("a probe's command knows only plain variables, and the shell", func(t *testing.T) {
		require.Equal(t, []string{"/bin/sh", "-c", "test -f /local/ready-etcd-0-$(IP)"}, line.probe)
	})
	t.Run("without a command the image's program gets the arguments", func(t *testing.T) {
		line := newCommandLine(&corev1.Container{Args: []string{"a"}}, &resolvedEnv{},
			surroundings{program: "/bin/x"})
		require.Equal(t, []string{"/bin/x", "a"}, line.argv)
	})
	t.Run("the working directory is a volume's, or one of the container's own", func(t *testing.T) {
		for dir, want := range map[string]string{"/var/data/sub": "/local/sub", "/home/etcd": "/scratch/home/etcd",
			"": "/scratch", "../..": "/scratch"} {
			require.Equal(t, want, around(Config{}, &corev1.Container{WorkingDir: dir}, data, "/scratch").dir, dir)
		}
	})
}

func newTestVolumes(t *testing.T, objects objectSource) *volumes {
	dir := t.TempDir()
	return &volumes{
		podDir:   filepath.Join(dir, "pod"),
		claimDir: func(claim string) string { return filepath.Join(dir, "claims", claim) },
		objects:  objects,
	}
}

func TestVolumes(t *testing.T) {
	yes := true
	mode := int32(0o400)
	objects := &fakeObjects{
		secrets:    map[string]map[string]string{"tls": {"tls.crt": "cert", "tls.key": "key"}},
		configMaps: map[string]map[string]string{"conf": {"kubeconfig": "config"}},
	}
	read := func(t *testing.T, v *volumes, volume, path string) string {
		content, err := os.ReadFile(filepath.Join(v.podDir, "volumes", volume, path))
		require.NoError(t, err)
		return string(content)
	}
	podWith := func(volumes ...corev1.Volume) *corev1.Pod {
		pod := examplePod.DeepCopy()
		pod.Spec.Volumes = volumes
		return pod
	}
	secretVolume := corev1.Volume{Name: "tls",
		VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "tls", DefaultMode: &mode}}}

	t.Run("a secret's keys are files with the mode of the volume", func(t *testing.T) {
		v := newTestVolumes(t, objects)
		require.NoError(t, v.prepare(podWith(secretVolume)))
		require.Equal(t, "key", read(t, v, "tls", "tls.key"))
		info, err := os.Stat(filepath.Join(v.podDir, "volumes", "tls", "tls.key"))
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o400), info.Mode().Perm())
	})
	t.Run("chosen keys can be put into directories", func(t *testing.T) {
		v := newTestVolumes(t, objects)
		require.NoError(t,
			v.prepare(podWith(corev1.Volume{Name: "c",
				VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
					LocalObjectReference: corev1.LocalObjectReference{Name: "conf"},
					Items:                []corev1.KeyToPath{{Key: "kubeconfig", Path: "a/b"}},
				}}})))
		require.Equal(t, "config", read(t, v, "c", "a/b"))
	})
	t.Run("what is missing is named, unless it is optional", func(t *testing.T) {
		v := newTestVolumes(t, objects)
		missing := func(source corev1.VolumeSource) corev1.Volume {
			return corev1.Volume{Name: "m", VolumeSource: source}
		}
		require.ErrorContains(t,
			v.prepare(podWith(missing(corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "none"}}))),
			`"none"`)
		require.ErrorContains(t,
			v.prepare(podWith(
				missing(corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "tls",
					Items: []corev1.KeyToPath{{Key: "nokey", Path: "x"}}}}))), `"nokey"`)
		require.ErrorContains(t,
			v.prepare(podWith(missing(corev1.VolumeSource{NFS: &corev1.NFSVolumeSource{Path: "/"}}))),
			"supports")
		require.NoError(t,
			v.prepare(podWith(missing(
				corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "none", Optional: &yes}}))))
	})
	t.Run("a change replaces all files at once and removes those that are gone", func(t *testing.T) {
		objects := &fakeObjects{secrets: map[string]map[string]string{"tls": {"tls.crt": "1", "tls.key": "1"}}}
		v := newTestVolumes(t, objects)
		pod := podWith(secretVolume)
		require.NoError(t, v.prepare(pod))
		version := func() string {
			link, err := os.Readlink(filepath.Join(v.podDir, "volumes", "tls", "..data"))
			require.NoError(t, err)
			return link
		}
		first := version()
		require.NoError(t, v.refresh(pod))
		require.Equal(t, first, version(), "nothing changed, so nothing is written")
		objects.secrets["tls"] = map[string]string{"tls.crt": "2", "ca.crt": "2"}
		require.NoError(t, v.refresh(pod))
		require.NotEqual(t, first, version())
		require.Equal(t, "2", read(t, v, "tls", "tls.crt"))
		require.Equal(t, "2", read(t, v, "tls", "ca.crt"))
		entries, err := os.ReadDir(filepath.Join(v.podDir, "volumes", "tls"))
		require.NoError(t, err)
		require.Len(t, entries, 4, "two links, ..data and one version: %v", entries)
		objects.err = errors.New("away")
		require.Error(t, v.refresh(pod))
		require.Equal(t, "2", read(t, v, "tls", "tls.crt"), "what cannot be read now stays")
	})
	t.Run("a path that leads out of the volume is refused", func(t *testing.T) {
		v := newTestVolumes(t, objects)
		for _, path := range []string{"../x", "/x", "..data"} {
			require.ErrorContains(t,
				v.prepare(podWith(corev1.Volume{Name: "c",
					VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
						LocalObjectReference: corev1.LocalObjectReference{Name: "conf"},
						Items:                []corev1.KeyToPath{{Key: "kubeconfig", Path: path}},
					}}})), "leads out", path)
		}
	})
	t.Run("the downward API follows the pod's labels", func(t *testing.T) {
		v := newTestVolumes(t, objects)
		pod := podWith(corev1.Volume{Name: "d",
			VolumeSource: corev1.VolumeSource{
				DownwardAPI: &corev1.DownwardAPIVolumeSource{
					Items: []corev1.DownwardAPIVolumeFile{
						{Path: "labels", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.labels"}}}}}})
		require.NoError(t, v.prepare(pod))
		require.Equal(t, `app="etcd"`, strings.TrimSpace(read(t, v, "d", "labels")))
		pod.Labels = map[string]string{"app": "other"}
		require.NoError(t, v.refresh(pod))
		require.Equal(t, `app="other"`, strings.TrimSpace(read(t, v, "d", "labels")))
	})
	t.Run("mounts: a claim outside of the pod's directory", func(t *testing.T) {
		v := newTestVolumes(t, objects)
		pod := podWith(
			corev1.Volume{Name: "data",
				VolumeSource: corev1.VolumeSource{
					PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data-etcd-0"}}},
			corev1.Volume{Name: "tmp", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		)
		require.NoError(t, v.prepare(pod))
		mounts, err := v.mounts(pod, &corev1.Container{VolumeMounts: []corev1.VolumeMount{
			{Name: "data", MountPath: "/data/"}, {Name: "tmp", MountPath: "/tmp/x"}}})
		require.NoError(t, err)
		require.Equal(t, []mount{{path: "/data", local: v.claimDir("data-etcd-0")},
			{path: "/tmp/x", local: filepath.Join(v.podDir, "volumes/tmp")}}, mounts)
		for _, m := range mounts {
			require.DirExists(t, m.local)
		}
		_, err = v.mounts(pod, &corev1.Container{VolumeMounts: []corev1.VolumeMount{{Name: "none", MountPath: "/x"}}})
		require.ErrorContains(t, err, `"none"`)
	})
}

func TestTokens(t *testing.T) {
	audience, expiration := "quorate", int64(600)
	pod := examplePod.DeepCopy()
	volume := corev1.Volume{Name: "kube",
		VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
			{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token", Audience: audience,
				ExpirationSeconds: &expiration}},
			{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "conf"}}},
		}}}}
	v := newTestVolumes(t,
		&fakeObjects{configMaps: map[string]map[string]string{"conf": {"kubeconfig": "tokenFile: token"}}})
	begin := time.Now()
	now := begin
	var requests []*authenticationv1.TokenRequest
	var fail error
	v.requests = func(account string, request *authenticationv1.TokenRequest) (*authenticationv1.TokenRequest, error) {
		require.Equal(t, "etcd", account)
		if fail != nil {
			return nil, fail
		}
		requests = append(requests, request)
		answer := request.DeepCopy()
		answer.Status.Token = fmt.Sprintf("token-%d", len(requests))
		answer.Status.ExpirationTimestamp = metav1.NewTime(
			now.Add(time.Duration(*request.Spec.ExpirationSeconds) * time.Second))
		return answer, nil
	}
	tokenAt := func(t *testing.T, age time.Duration) string {
		now = begin.Add(age)
		files, err := v.payload(pod, &volume, now)
		require.NoError(t, err)
		require.Equal(t, "tokenFile: token", string(files["kubeconfig"].data))
		return string(files["token"].data)
	}
	t.Run("a pod without its first token cannot start", func(t *testing.T) {
		fail = errors.New("away")
		_, err := v.payload(pod, &volume, now)
		require.ErrorContains(t, err, `ServiceAccount "etcd"`)
		fail = nil
	})
	t.Run("the token is bound to the pod, its audience and its life", func(t *testing.T) {
		require.Equal(t, "token-1", tokenAt(t, 0))
		spec := requests[0].Spec
		require.Equal(t, []string{audience}, spec.Audiences)
		require.Equal(t, expiration, *spec.ExpirationSeconds)
		require.Equal(t, pod.UID, spec.BoundObjectRef.UID)
		require.Equal(t, "Pod", spec.BoundObjectRef.Kind)
	})
	t.Run("it is renewed after four fifths of its life, not before", func(t *testing.T) {
		require.Equal(t, "token-1", tokenAt(t, 479*time.Second))
		require.Equal(t, "token-2", tokenAt(t, 481*time.Second))
	})
	t.Run("an old token stays while no new one can be had", func(t *testing.T) {
		fail = errors.New("away")
		require.Equal(t, "token-2", tokenAt(t, time.Hour))
		fail = nil
		require.Equal(t, "token-3", tokenAt(t, time.Hour))
	})
}

func TestProbesByHTTPS(t *testing.T) {
	status := http.StatusOK
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/readyz" {
			w.WriteHeader(status)
		}
	}))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	defer server.Close()
	address, err := net.ResolveTCPAddr("tcp", server.Listener.Addr().String())
	require.NoError(t, err)
	probe := func(scheme corev1.URIScheme) bool {
		p := prober{podIP: address.IP.String(), dial: (&net.Dialer{}).DialContext, container: &corev1.Container{
			ReadinessProbe: &corev1.Probe{TimeoutSeconds: 10, ProbeHandler: corev1.ProbeHandler{
				HTTPGet: &corev1.HTTPGetAction{Path: "/readyz", Port: intstr.FromInt(address.Port), Scheme: scheme}}}}}
		ready, _, err := p.probe(t.Context())
		require.NoError(t, err)
		return ready
	}
	t.Run("any certificate will do", func(t *testing.T) { require.True(t, probe(corev1.URISchemeHTTPS)) })
	t.Run("the answer counts", func(t *testing.T) {
		status = http.StatusServiceUnavailable
		require.False(t, probe(corev1.URISchemeHTTPS))
		status = http.StatusOK
	})
	t.Run("plain HTTP is not answered", func(t *testing.T) { require.False(t, probe(corev1.URISchemeHTTP)) })
}

func TestThreshold(t *testing.T) {
	for name, x := range map[string]struct {
		success, failure int32
		results          string // + and -
		states           string // after each result
	}{
		"ready at the first success, not ready at the third failure":  {1, 3, "-+--+---+", "-++++++-+"},
		"several successes in a row are needed":                       {2, 1, "+-+-++-++", "-----+--+"},
		"zero means the defaults of the API server":                   {0, 0, "+--+---", "++++++-"},
		"a container that was never ready stays so whatever the rest": {1, 5, "-------", "-------"},
	} {
		t.Run(name, func(t *testing.T) {
			state := newThreshold(&corev1.Probe{SuccessThreshold: x.success, FailureThreshold: x.failure})
			before, got := false, ""
			for _, result := range x.results {
				changed := state.add(result == '+')
				require.Equal(t, changed, before != state.ready, "a change is reported, and only a change")
				before = state.ready
				got += map[bool]string{true: "+", false: "-"}[state.ready]
			}
			require.Equal(t, x.states, got)
		})
	}
}

func TestAssign(t *testing.T) {
	nodes := []string{"a", "b", "c"}
	for pod, want := range map[string]string{"etcd-0": "a", "etcd-1": "b", "etcd-2": "c", "etcd-3": "a",
		"x-y-10": "b"} {
		require.Equal(t, want, assign(pod, nodes), pod)
	}
	require.Contains(t, nodes, assign("job", nodes))
	require.Equal(t, assign("job-abc", nodes), assign("job-abc", nodes), "always the same")
	require.Contains(t, nodes, assign("etcd-99999999999999999999", nodes))
}

func TestConfig(t *testing.T) {
	client, err := kubernetes.NewForConfig(&rest.Config{})
	require.NoError(t, err)
	loopback, err := network.NewLoopback()
	require.NoError(t, err)
	defer loopback.Close()
	for field, breakIt := range map[string]func(*Config){
		"Client":      func(c *Config) { c.Client = nil },
		"Network":     func(c *Config) { c.Network = nil },
		"Dir":         func(c *Config) { c.Dir = "" },
		"Nodes":       func(c *Config) { c.Nodes = nil },
		"BackoffBase": func(c *Config) { c.BackoffBase = -1 },
		`Images["x"]`: func(c *Config) { c.Images = map[string]Image{"x": {Program: "relative"}} },
		"SharedPaths": func(c *Config) { c.SharedPaths = []string{"relative"} },
	} {
		t.Run("a bad "+field+" is named", func(t *testing.T) {
			config := Config{Client: client, Network: loopback, Dir: t.TempDir(), Nodes: []string{"node-0"}}
			breakIt(&config)
			_, err := Start(context.Background(), config)
			require.ErrorContains(t, err, field)
		})
	}
	t.Run("an API server that cannot be reached ends the start with the context", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
		defer cancel()
		away, err := kubernetes.NewForConfig(
			&rest.Config{Host: "http://" + net.JoinHostPort(loopback.HubAddress(), "1")})
		require.NoError(t, err)
		_, err = Start(ctx, Config{Client: away, Network: loopback, Dir: t.TempDir(), Nodes: []string{"node-0"}})
		require.ErrorContains(t, err, "register node node-0")
	})
}
