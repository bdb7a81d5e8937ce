package node_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/quorate/quorate/test/harness/apiproxy"
	"github.com/quorate/quorate/test/harness/network"
	"github.com/quorate/quorate/test/harness/node"
)

const (
	tools   = "tools:1"   // the machine's shell and tools
	nonRoot = "nonroot:1" // /bin/sh, as nonroot
	// shared is a path of all nodes.
	shared = "/etc/gardener/local-backupbuckets"
)

// requireNamespaces skips a test where there are none, unless they have to be there.
func requireNamespaces(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a control plane; run without -short")
	}
	if err := network.NamespacesAvailable(); err != nil {
		if os.Getenv(network.RequireVariable) != "" {
			t.Fatalf("%s is set, but: %v", network.RequireVariable, err)
		}
		t.Skipf("needs network namespaces: %v", err)
	}
}

func setUpInNamespaces(t *testing.T, change ...func(*node.Config)) *fixture {
	t.Helper()
	requireNamespaces(t)
	namespaces, err := network.NewNamespaces(filepath.Join(t.TempDir(), "network"))
	require.NoError(t, err)
	return setUpOn(t, namespaces, change...)
}

// whoAmI is a pod's program: it tells who it is to the API server, by the configuration of a program
// in a cluster.
func whoAmI() {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	config, err := rest.InClusterConfig()
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	review, err := client.AuthenticationV1().SelfSubjectReviews().Create(ctx,
		&authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(review.Status.UserInfo.Username)
	os.Exit(0)
}

// refused is a function of scripts: the command that it is given must fail.
const refused = `refused() { if "$@"; then echo "not refused: $*"; exit 1; fi; }`

// once runs a script to its end, or to the first command that fails.
func once(name, script string, change ...func(*corev1.Pod)) *corev1.Pod {
	pod := shellPod(name, "set -e; "+refused+"; "+script)
	for _, c := range change {
		c(pod)
	}
	return pod
}

// output waits until the container main of a new pod has ended well once, and returns what it has printed.
func (f *fixture) output(pod *corev1.Pod) string {
	f.t.Helper()
	created := f.create(pod)
	var end *corev1.ContainerStateTerminated
	f.awaitPod(pod.Name, "ends", func(p *corev1.Pod) bool {
		for _, c := range p.Status.ContainerStatuses {
			end = cmp.Or(c.State.Terminated, c.LastTerminationState.Terminated)
		}
		return end != nil
	})
	f.remove(pod.Name, 0)
	log, err := os.ReadFile(filepath.Join(f.agent.LogDir(pod.Name), string(created.UID[:8])+"-main-0.log"))
	require.NoError(f.t, err)
	require.Zero(f.t, end.ExitCode, "%s", log)
	return strings.TrimSpace(string(log))
}

func (f *fixture) configMap(name string, data map[string]string) {
	f.t.Helper()
	_, err := f.client.CoreV1().ConfigMaps(f.namespace).Create(f.t.Context(),
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: data}, metav1.CreateOptions{})
	require.NoError(f.t, err)
}

func configVolume(name string) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
		LocalObjectReference: corev1.LocalObjectReference{Name: name}}}}
}

func emptyDir(name string) corev1.Volume {
	return corev1.Volume{Name: name,
		VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}
}

func hostPath(path string, kind corev1.HostPathType) corev1.Volume {
	return corev1.Volume{Name: "host",
		VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: path, Type: &kind}}}
}

func image(name string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Spec.Containers[0].Image = name }
}

// as sets the users of a pod as etcd-druid does.
func as(id int64) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		nonRoot, policy := id != 0, corev1.FSGroupChangeOnRootMismatch
		pod.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsUser: &id, RunAsGroup: &id, FSGroup: &id,
			RunAsNonRoot: &nonRoot, FSGroupChangePolicy: &policy}
	}
}

func mounts(t *testing.T) string {
	t.Helper()
	// Not those of /proc/self: that is the first thread, which may be left in other namespaces.
	content, err := os.ReadFile("/proc/thread-self/mountinfo")
	require.NoError(t, err)
	return string(content)
}

func TestFilesOfAContainer(t *testing.T) {
	f := setUpInNamespaces(t, func(c *node.Config) {
		c.Images[tools], c.Images[nonRoot] = node.Image{}, node.Image{Program: "/bin/sh", User: 65532}
		c.SharedPaths = []string{shared}
	})
	before := mounts(t)
	f.configMap("conf", map[string]string{"path": "/var/etcd/data/new.etcd", "other": "x"})

	t.Run("volumes are at their paths, one below another, and nothing is rewritten", func(t *testing.T) {
		pod := once("paths-0", `cat /var/etcd/data/conf/path; echo " $DIR"; echo found >$(cat /var/etcd/data/conf/path)
			cat /var/etcd/data/new.etcd`, with(configVolume("conf"), "/var/etcd/data/conf"),
			with(claim("paths"), "/var/etcd/data"))
		pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "DIR", Value: "/var/etcd/data"}}
		require.Equal(t, "/var/etcd/data/new.etcd /var/etcd/data\nfound", f.output(pod))
		require.FileExists(t, filepath.Join(f.agent.ClaimDir(f.namespace, "paths"), "new.etcd"))
	})
	t.Run("a read-only mount cannot be written, and another one of the same volume can", func(t *testing.T) {
		pod := once("read-0", "touch /rw/file; refused touch /ro/other; ls /ro", with(emptyDir("v"), "/rw"),
			func(p *corev1.Pod) {
				p.Spec.Containers[0].VolumeMounts = append(p.Spec.Containers[0].VolumeMounts,
					corev1.VolumeMount{Name: "v", MountPath: "/ro", ReadOnly: true})
			})
		require.Contains(t, f.output(pod), "file")
	})
	t.Run("nor can what is made from objects be written", func(*testing.T) {
		f.output(once("read-1", "refused touch /conf/x; refused touch /conf/path", with(configVolume("conf"), "/conf")))
	})
	t.Run("nothing of the machine is seen, and nothing but its tools can be written to", func(t *testing.T) {
		secret := filepath.Join(t.TempDir(), "secret")
		require.NoError(t, os.WriteFile(secret, []byte("x"), 0o644))
		out := f.output(once("machine-0", fmt.Sprintf(`refused cat %s; mkdir -p /etc/gardener; touch /etc/gardener/x
			touch /x /tmp/x /home/x; refused touch /usr/x; refused touch /bin/x; refused touch /proc/sys/kernel/hostname
			ls -A /`, secret)))
		for _, gone := range []string{".machine", "work", "root/.cache"} {
			require.NotContains(t, strings.Fields(out), gone)
		}
		for _, path := range []string{"/etc/gardener/x", "/x", "/usr/x"} {
			require.NoFileExists(t, path)
		}
	})
	t.Run("a read-only root can only be written in its volumes", func(t *testing.T) {
		yes := true
		f.output(once("root-0", "refused touch /tmp/x; touch /data/x", with(emptyDir("v"), "/data"),
			func(p *corev1.Pod) {
				p.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{ReadOnlyRootFilesystem: &yes}
			}))
	})
	t.Run("the working directory is the root, or the one of the spec", func(*testing.T) {
		require.Equal(f.t, "/", f.output(once("dir-0", "pwd")))
		require.Equal(f.t, "/some/where", f.output(once("dir-1", "pwd", func(p *corev1.Pod) {
			p.Spec.Containers[0].WorkingDir = "/some/where"
		})))
	})
	t.Run("the host name is the pod's", func(*testing.T) {
		require.Equal(f.t, "name-0 name-0", f.output(once("name-0", "echo $(uname -n) $HOSTNAME")))
	})
	t.Run("an image without a program has the machine's tools", func(t *testing.T) {
		pod := once("tools-0", "", image(tools))
		pod.Spec.Containers[0].Command, pod.Spec.Containers[0].Args = []string{"basename", "/a/b"}, nil
		require.Equal(t, "b", f.output(pod))
		pod = shellPod("tools-1", "x", image(tools))
		f.create(pod)
		waiting := f.awaitPod("tools-1", "waits",
			func(p *corev1.Pod) bool { return waitingFor(p, "CreateContainerConfigError") })
		require.Contains(t, waiting.Status.ContainerStatuses[0].State.Waiting.Message, "no command specified")
	})
	t.Run("a program that is not there is a container that cannot be started", func(*testing.T) {
		f.create(shellPod("broken-0", "x", image(broken)))
		f.awaitPod("broken-0", "fails", func(p *corev1.Pod) bool { return waitingFor(p, "RunContainerError") })
	})
	t.Run("exec and probes share the files of the running container", func(t *testing.T) {
		pod := shellPod("exec-0", "touch /tmp/started; "+forever)
		pod.Spec.Containers[0].ReadinessProbe = probe(corev1.ProbeHandler{
			Exec: &corev1.ExecAction{Command: []string{"sh", "-c", "test -f /tmp/started"}}}, 1)
		pod.Spec.Containers[0].Command = []string{"sh"}
		f.create(pod)
		f.awaitReady("exec-0")
		for _, step := range []string{"echo one >/tmp/file", "cat /tmp/file"} {
			code, out, err := f.agent.Exec(t.Context(), "exec-0", "main", "-c", step)
			require.NoError(t, err)
			require.Zero(t, code, out)
			if strings.HasPrefix(step, "cat") {
				require.Equal(t, "one", out)
			}
		}
		require.NoError(t, f.agent.KillContainer("exec-0", "main", 9))
		f.awaitPod("exec-0", "is restarted", func(p *corev1.Pod) bool {
			return ready(p) && p.Status.ContainerStatuses[0].RestartCount == 1
		})
		code, out, err := f.agent.Exec(t.Context(), "exec-0", "main", "-c", "cat /tmp/file")
		require.NoError(t, err)
		require.NotZero(t, code, "a container that is started anew has nothing of its predecessor: %s", out)
	})
	t.Run("a hostPath is in a folder of its node, or of all nodes where they share it", func(t *testing.T) {
		for _, x := range []struct{ name, path string }{{"host-0", "/var/lib/x"}, {"host-1", shared + "/bucket"}} {
			for ordinal := range 2 {
				pod := fmt.Sprintf("%s-%d", x.name, ordinal)
				f.output(once(pod, "touch /data/$HOSTNAME",
					with(hostPath(x.path, corev1.HostPathDirectoryOrCreate), "/data")))
			}
			first, second := f.agent.HostDir(f.nodes[0], x.path), f.agent.HostDir(f.nodes[1], x.path)
			require.True(t, strings.HasPrefix(first, f.config.Dir+"/"), first)
			require.FileExists(t, filepath.Join(first, x.name+"-0"))
			require.FileExists(t, filepath.Join(second, x.name+"-1"))
			require.Equal(t, x.name == "host-1", first == second)
			require.NoDirExists(t, x.path, "the machine's own")
		}
	})
	t.Run("a hostPath that is not what the pod expects keeps it waiting", func(t *testing.T) {
		f.create(shellPod("host-2", forever, with(hostPath("/none", corev1.HostPathDirectory), "/data")))
		f.await("an event that names it", func(context.Context) error {
			for _, e := range f.eventsOf("host-2") {
				if e.Kind == node.Waiting && strings.Contains(e.Detail, "/none is not there on the node") {
					return nil
				}
			}
			return errors.New("not yet")
		})
	})
	t.Run("a container runs as its user, the pod's, or the image's", func(t *testing.T) {
		const who = "echo $(id -u) $(id -g) $(id -G) $HOME; touch $HOME/x"
		user, group := int64(65534), int64(7)
		require.Equal(t, "0 0 0 /root", f.output(once("user-0", who)))
		require.Equal(t, "65532 65532 65532 /home/nonroot", f.output(once("user-1", who, image(nonRoot))))
		require.Equal(t, "65532 65532 65532 /home/nonroot", f.output(once("user-2", who, as(65532))))
		require.Equal(t, "0 0 0 /root", f.output(once("user-3", who, image(nonRoot), as(0))))
		require.Equal(t, "65534 7 7 65532 /nonexistent", f.output(once("user-4", strings.Split(who, ";")[0], as(65532),
			func(p *corev1.Pod) {
				p.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{RunAsUser: &user, RunAsGroup: &group}
			})))
	})
	t.Run("one that must not be root is not started as root", func(*testing.T) {
		yes := true
		f.create(shellPod("user-5", forever, func(p *corev1.Pod) {
			p.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsNonRoot: &yes}
		}))
		f.awaitPod("user-5", "waits", func(p *corev1.Pod) bool {
			return waitingFor(p, "CreateContainerConfigError") && strings.Contains(
				p.Status.ContainerStatuses[0].State.Waiting.Message, "runAsNonRoot")
		})
	})
	t.Run("fsGroup lets it write its claim and read its secrets", func(t *testing.T) {
		mode := int32(0o600)
		conf := configVolume("conf")
		conf.ConfigMap.DefaultMode = &mode
		script := "cat /conf/path; refused touch /conf/x; touch /data/x; stat -c '%g %a' /conf/..data/path /data/x"
		out := f.output(once("group-0", script, as(65532), with(claim("group"), "/data"), with(conf, "/conf")))
		require.Contains(t, out, "65532 640\n65532 644")
		require.Contains(t, f.output(once("group-1", "refused cat /conf/path; refused touch /data/x", image(nonRoot),
			with(claim("nogroup"), "/data"), with(conf, "/conf"))), "Permission denied")
	})
	t.Run("an init container gives a hostPath to the user, as etcd-druid's does", func(t *testing.T) {
		const home = "/home/nonroot/bucket"
		bucket := hostPath(shared+"/bucket-of-druid", corev1.HostPathDirectoryOrCreate)
		root, no := int64(0), false
		pod := once("bucket-0", "touch "+home+"/x; stat -c %u "+home, as(65532), func(p *corev1.Pod) {
			p.Spec.InitContainers = []corev1.Container{{
				Name: "change-backup-bucket-permissions", Image: tools,
				Command: []string{"chown", "-R", "65532:65532", home},
				SecurityContext: &corev1.SecurityContext{RunAsUser: &root, RunAsGroup: &root, RunAsNonRoot: &no,
					AllowPrivilegeEscalation: &no},
			}}
		}, with(bucket, home))
		require.Equal(t, "65532", f.output(pod))
	})
	t.Run("nothing is mounted outside of the containers, while they run and after them", func(t *testing.T) {
		require.Equal(t, before, mounts(t))
		uid := f.get("exec-0").UID
		require.DirExists(t, filepath.Join(f.config.Dir, "pods", string(uid)))
		f.remove("exec-0", 5)
		f.awaitGone("exec-0", uid)
		require.NoDirExists(t, filepath.Join(f.config.Dir, "pods", string(uid)))
		require.Equal(t, before, mounts(t))
	})
}

func TestConfigurationInTheCluster(t *testing.T) {
	requireNamespaces(t)
	namespaces, err := network.NewNamespaces(filepath.Join(t.TempDir(), "network"))
	require.NoError(t, err)
	// Pods do not reach the control plane where it listens here.
	api, err := apiproxy.Start(apiproxy.Config{BindAddress: namespaces.HubAddress(), Upstream: plane.URL(),
		UpstreamCA: plane.CAPEM(), CA: plane.CA()})
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		require.NoError(t, api.Close(ctx))
	})
	f := setUpOn(t, namespaces, func(c *node.Config) { c.APIServer = api.URL() })
	inCluster := func(name string, change ...func(*corev1.Pod)) *corev1.Pod {
		pod := once(name, "", image(server))
		pod.Spec.Containers[0].Args = nil
		pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: serverVariable, Value: "who"}}
		pod.Spec.AutomountServiceAccountToken = nil
		for _, c := range change {
			c(pod)
		}
		return pod
	}
	who := "system:serviceaccount:" + f.namespace + ":default"
	t.Run("a program is its pod's ServiceAccount to the API server, without being told how to reach it",
		func(t *testing.T) { require.Equal(t, who, f.output(inCluster("cluster-0"))) })
	t.Run("also as a user without rights on the machine", func(t *testing.T) {
		require.Equal(t, who, f.output(inCluster("cluster-1", as(65532))))
	})
	t.Run("the token, the certificates and the namespace are where Kubernetes has them", func(t *testing.T) {
		pod := once("cluster-2", `cd /var/run/secrets/kubernetes.io/serviceaccount; ls; cat namespace
			echo " $KUBERNETES_SERVICE_HOST:$KUBERNETES_SERVICE_PORT $KUBECONFIG"`)
		pod.Spec.AutomountServiceAccountToken = nil
		require.Equal(t, "ca.crt\nnamespace\ntoken\n"+f.namespace+" "+strings.TrimPrefix(api.URL(), "https://"),
			f.output(pod))
	})
}
