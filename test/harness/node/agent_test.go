package node_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/quorate/quorate/test/harness/build"
	"github.com/quorate/quorate/test/harness/controlplane"
	"github.com/quorate/quorate/test/harness/network"
	"github.com/quorate/quorate/test/harness/node"
	"github.com/quorate/quorate/test/harness/process"
)

const (
	// patience bounds every wait; nothing is expected to take that long.
	patience = 2 * time.Minute
	// serverVariable makes the test binary a pod's program.
	serverVariable = "QUORATE_TEST_SERVER"

	shell  = "shell:1"  // /bin/sh
	server = "server:1" // the test binary
	broken = "broken:1" // a program that does not exist
)

var plane *controlplane.ControlPlane

func TestMain(m *testing.M) {
	network.MaybeRunLauncher()
	switch os.Getenv(serverVariable) {
	case "":
	case "who":
		whoAmI()
	default:
		serve()
	}
	flag.Parse()
	os.Exit(run(m))
}

func run(m *testing.M) (code int) {
	var binaries build.Binaries
	var err error
	if !testing.Short() {
		// Before the namespaces: inside, modules could not be fetched.
		if binaries, err = build.Some(context.Background(), func(line string) { fmt.Println(line) }, build.Etcd36,
			build.Kube); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	if network.NamespacesAvailable() == nil {
		if err := network.ReexecInNamespace(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	defer func() {
		if err := goleak.Find(goleak.IgnoreTopFunction(process.SpawnerGoroutine)); err != nil && code == 0 {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}()
	if testing.Short() {
		return m.Run()
	}
	dir, err := os.MkdirTemp("", "node-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if plane, err = controlplane.Start(ctx,
		controlplane.Config{Dir: dir, Binaries: binaries, BindAddress: "127.0.0.1"}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() {
		if err := plane.Close(context.Background()); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}()
	return m.Run()
}

// serve is a pod's program: /ready answers 200 while the file in $READY exists.
func serve() {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM)
	http.HandleFunc("/ready", func(w http.ResponseWriter, _ *http.Request) {
		if _, err := os.Stat(os.Getenv("READY")); err != nil {
			http.Error(w, "not ready", http.StatusServiceUnavailable)
		}
	})
	http.HandleFunc("/resolve", func(w http.ResponseWriter, r *http.Request) {
		addresses, err := net.DefaultResolver.LookupHost(r.Context(), r.FormValue("name"))
		fmt.Fprint(w, strings.Join(addresses, ","), err)
	})
	go func() { _ = http.ListenAndServe(net.JoinHostPort(os.Getenv("POD_IP"), "8080"), nil) }()
	<-signals
	os.Exit(0)
}

// fixture is an agent with a namespace of its own.
type fixture struct {
	t         *testing.T
	client    kubernetes.Interface
	network   network.Network
	agent     *node.Agent
	config    node.Config
	namespace string
	nodes     []string

	mu     sync.Mutex
	events []node.Event
}

func setUp(t *testing.T, change ...func(*node.Config)) *fixture {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a control plane; run without -short")
	}
	loopback, err := network.NewLoopback()
	require.NoError(t, err)
	return setUpOn(t, loopback, change...)
}

func setUpOn(t *testing.T, on network.Network, change ...func(*node.Config)) *fixture {
	t.Helper()
	client, err := kubernetes.NewForConfig(plane.AdminConfig())
	require.NoError(t, err)
	f := &fixture{t: t, client: client, network: on}
	space, err := client.CoreV1().Namespaces().Create(t.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "node-test-"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	f.namespace = space.Name
	f.await("the default ServiceAccount", func(ctx context.Context) error {
		_, err := client.CoreV1().ServiceAccounts(f.namespace).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
	for i := range 3 {
		f.nodes = append(f.nodes, fmt.Sprintf("%s-%d", f.namespace, i))
	}
	program, err := os.Executable()
	require.NoError(t, err)
	f.config = node.Config{
		Client: client, Network: on, Dir: t.TempDir(), Nodes: f.nodes,
		Images: map[string]node.Image{
			shell: {Program: "/bin/sh"}, server: {Program: program}, broken: {Program: "/no/such/program"},
		},
		BackoffBase: 200 * time.Millisecond, BackoffCap: 2 * time.Second, VolumeSync: 100 * time.Millisecond,
		OnEvent: func(e node.Event) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.events = append(f.events, e)
		},
	}
	for _, c := range change {
		c(&f.config)
	}
	f.start()
	t.Cleanup(func() {
		if t.Failed() {
			f.dump()
		}
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		zero := int64(0)
		// No later agent may find pods of this one.
		_ = client.CoreV1().Pods(f.namespace).DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: &zero},
			metav1.ListOptions{})
		require.NoError(t, f.agent.Close(ctx))
		require.NoError(t, on.Close())
		require.NoError(t, client.CoreV1().Namespaces().Delete(ctx, f.namespace, metav1.DeleteOptions{}))
		for _, name := range f.nodes {
			require.NoError(t, client.CoreV1().Nodes().Delete(ctx, name, metav1.DeleteOptions{}))
		}
		left, err := os.ReadDir(filepath.Join(f.config.Dir, "pods"))
		if err == nil {
			require.Empty(t, left, "files of pods are left")
		}
	})
	return f
}

func (f *fixture) start() {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), patience)
	defer cancel()
	var err error
	f.agent, err = node.Start(ctx, f.config)
	require.NoError(f.t, err)
}

func (f *fixture) dump() {
	for _, e := range f.eventsOf("") {
		f.t.Logf("%s %s/%s %s %s", e.Time.Format("05.000"), e.Node, e.Pod, e.UID, e)
	}
}

// eventsOf returns the events of a pod, or all.
func (f *fixture) eventsOf(pod string) []node.Event {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(f.events), func(e node.Event) bool { return pod != "" && e.Pod != pod })
}

// await polls until there is no error.
func (f *fixture) await(what string, check func(ctx context.Context) error) {
	f.t.Helper()
	var last error
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	err := wait.PollUntilContextCancel(ctx, 10*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		last = check(ctx)
		return last == nil, nil
	})
	require.NoError(f.t, err, "waited for %s: %v", what, last)
}

func (f *fixture) create(pod *corev1.Pod) *corev1.Pod {
	f.t.Helper()
	created, err := f.client.CoreV1().Pods(f.namespace).Create(f.t.Context(), pod, metav1.CreateOptions{})
	require.NoError(f.t, err)
	return created
}

func (f *fixture) get(name string) *corev1.Pod {
	f.t.Helper()
	pod, err := f.client.CoreV1().Pods(f.namespace).Get(f.t.Context(), name, metav1.GetOptions{})
	require.NoError(f.t, err)
	return pod
}

// awaitPod polls until the pod is as wanted, and returns it.
func (f *fixture) awaitPod(name, what string, wanted func(*corev1.Pod) bool) *corev1.Pod {
	f.t.Helper()
	var pod *corev1.Pod
	f.await(name+" "+what, func(ctx context.Context) error {
		var err error
		if pod, err = f.client.CoreV1().Pods(f.namespace).Get(ctx, name, metav1.GetOptions{}); err != nil {
			return err
		}
		if !wanted(pod) {
			return fmt.Errorf("status is %+v", pod.Status)
		}
		return nil
	})
	return pod
}

func (f *fixture) awaitReady(name string) *corev1.Pod {
	f.t.Helper()
	return f.awaitPod(name, "is ready", ready)
}

func (f *fixture) awaitGone(name string, uid types.UID) {
	f.t.Helper()
	f.await(name+" is gone", func(ctx context.Context) error {
		pod, err := f.client.CoreV1().Pods(f.namespace).Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) || err == nil && pod.UID != uid {
			return nil
		}
		return fmt.Errorf("still there (%v)", err)
	})
}

func (f *fixture) remove(name string, grace int64) {
	f.t.Helper()
	require.NoError(f.t, f.client.CoreV1().Pods(f.namespace).Delete(f.t.Context(), name,
		metav1.DeleteOptions{GracePeriodSeconds: &grace}))
}

// watch returns a function that waits until the pod is gone, and returns all that was told of it.
func (f *fixture) watch(name string) (until func() []*corev1.Pod) {
	f.t.Helper()
	watch, err := f.client.CoreV1().Pods(f.namespace).
		Watch(f.t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=" + name})
	require.NoError(f.t, err)
	return func() (told []*corev1.Pod) {
		defer watch.Stop()
		for event := range watch.ResultChan() {
			if event.Type == "DELETED" {
				break
			}
			told = append(told, event.Object.(*corev1.Pod))
		}
		return told
	}
}

func (f *fixture) pid(pod, container string) int {
	f.t.Helper()
	pid, ok := f.agent.PID(f.namespace+"/"+pod, container)
	require.True(f.t, ok, "%s of %s does not run", container, pod)
	return pid
}

// trapping returns the process of a container whose script has set its trap for SIGTERM. A pod without a readiness
// probe is Ready as soon as its process exists, which first enters the namespaces and then becomes the shell. A
// SIGTERM that comes before the trap ends it at once.
func (f *fixture) trapping(pod, container string) int {
	f.t.Helper()
	pid := f.pid(pod, container)
	f.await(fmt.Sprintf("the trap of %s of %s", container, pod), func(context.Context) error {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil {
			return err
		}
		fields := map[string]string{}
		for line := range strings.Lines(string(status)) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), ":\t")
			fields[name] = value
		}
		if fields["Name"] != "sh" {
			return fmt.Errorf("it is still %s", fields["Name"])
		}
		for _, signals := range []string{"SigIgn", "SigCgt"} {
			mask, err := strconv.ParseUint(fields[signals], 16, 64)
			if err != nil {
				return fmt.Errorf("%s: %w", signals, err)
			}
			if mask&(1<<(syscall.SIGTERM-1)) != 0 {
				return nil
			}
		}
		return errors.New("SIGTERM would still end it")
	})
	return pid
}

func condition(pod *corev1.Pod, kind corev1.PodConditionType) corev1.PodCondition {
	for _, c := range pod.Status.Conditions {
		if c.Type == kind {
			return c
		}
	}
	return corev1.PodCondition{}
}

func ready(pod *corev1.Pod) bool {
	return condition(pod, corev1.PodReady).Status == corev1.ConditionTrue
}

func waitingFor(pod *corev1.Pod, reason string) bool {
	return len(pod.Status.ContainerStatuses) > 0 && pod.Status.ContainerStatuses[0].State.Waiting != nil &&
		pod.Status.ContainerStatuses[0].State.Waiting.Reason == reason
}

func alive(pid int) bool { return syscall.Kill(pid, 0) == nil }

// shellPod runs a script in a container named "main".
func shellPod(name, script string, change ...func(*corev1.Pod)) *corev1.Pod {
	no, grace := false, int64(5)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": "test"}},
		Spec: corev1.PodSpec{
			AutomountServiceAccountToken: &no, TerminationGracePeriodSeconds: &grace,
			Containers: []corev1.Container{{Name: "main", Image: shell, Args: []string{"-c", script}}},
		},
	}
	for _, c := range change {
		c(pod)
	}
	return pod
}

// forever is a script that ends at SIGTERM.
const forever = "trap 'exit 0' TERM; while :; do sleep 0.05; done"

// deaf is a script that takes no notice of SIGTERM.
const deaf = "trap '' TERM; while :; do sleep 0.05; done"

func with(volume corev1.Volume, mountPath string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Spec.Volumes = append(pod.Spec.Volumes, volume)
		for _, all := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
			for i := range all {
				all[i].VolumeMounts = append(all[i].VolumeMounts,
					corev1.VolumeMount{Name: volume.Name, MountPath: mountPath})
			}
		}
	}
}

func claim(name string) corev1.Volume {
	return corev1.Volume{Name: "data",
		VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}}}
}

func probe(handler corev1.ProbeHandler, failures int32) *corev1.Probe {
	return &corev1.Probe{ProbeHandler: handler, PeriodSeconds: 1, FailureThreshold: failures, TimeoutSeconds: 1}
}

func httpProbe() *corev1.Probe {
	return probe(corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/ready", Port: intstr.FromString("http")}},
		1)
}

// serverPod runs the test server; it is ready while the file "ready" is in its claim.
func serverPod(name string) *corev1.Pod {
	pod := shellPod(name, "")
	pod.Spec.Containers[0] = corev1.Container{
		Name: "main", Image: server,
		Env: []corev1.EnvVar{
			{Name: serverVariable, Value: "1"}, {Name: "READY", Value: "/data/ready"},
			{Name: "POD_IP",
				ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "status.podIP"}}},
		},
		Ports:          []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}},
		ReadinessProbe: httpProbe(),
	}
	with(claim("data-"+name), "/data")(pod)
	return pod
}

func (f *fixture) setReady(pod string, is bool) {
	f.t.Helper()
	path := filepath.Join(f.agent.ClaimDir(f.namespace, "data-"+pod), "ready")
	if !is {
		require.NoError(f.t, os.Remove(path))
		return
	}
	require.NoError(f.t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(f.t, os.WriteFile(path, nil, 0o644))
}

func TestLifeOfAPod(t *testing.T) {
	f := setUp(t)
	f.setReady("main-4", true)
	pod := serverPod("main-4")
	// The second container needs what the first init container leaves, and so on.
	pod.Spec.InitContainers = []corev1.Container{
		{Name: "first", Image: shell, Args: []string{"-c", "echo one >>/scratch/order"}},
		{Name: "second", Image: shell, Args: []string{"-c", "echo two >>/scratch/order"}},
	}
	pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{
		Name: "side", Image: shell, Command: []string{"/bin/sh", "-c"},
		Args: []string{`echo "$NAME $(NODE) $FILE" >>/data/out; cat $FILE /conf/key >>/data/out; ` + forever},
		Env: []corev1.EnvVar{
			{Name: "NAME",
				ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}},
			{Name: "NODE",
				ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "spec.nodeName"}}},
			{Name: "FILE", Value: "/scratch/order"},
		},
		VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: "/data"}},
	})
	with(corev1.Volume{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		"/scratch")(pod)
	with(corev1.Volume{Name: "conf",
		VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: "conf"}}}}, "/conf")(pod)
	f.create(pod)

	t.Run("waits with ContainerCreating's place taken by PodInitializing while a volume is missing",
		func(t *testing.T) {
			pod := f.awaitPod("main-4", "waits", func(p *corev1.Pod) bool { return waitingFor(p, "PodInitializing") })
			require.Equal(t, corev1.PodPending, pod.Status.Phase)
			f.await("an event that names the config map", func(context.Context) error {
				for _, e := range f.eventsOf("main-4") {
					if e.Kind == node.Waiting && strings.Contains(e.Detail, `"conf"`) {
						return nil
					}
				}
				return errors.New("not yet")
			})
		})
	_, err := f.client.CoreV1().ConfigMaps(f.namespace).Create(t.Context(),
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "conf"}, Data: map[string]string{"key": "value"}},
		metav1.CreateOptions{})
	require.NoError(t, err)
	running := f.awaitReady("main-4")

	t.Run("is bound by its ordinal", func(t *testing.T) {
		require.Equal(t, f.nodes[1], running.Spec.NodeName)
	})
	t.Run("its status is a kubelet's", func(t *testing.T) {
		s := running.Status
		require.Equal(t, corev1.PodRunning, s.Phase)
		require.Equal(t, f.network.AddressOf(f.namespace, "main-4"), s.PodIP)
		require.Equal(t, []corev1.PodIP{{IP: s.PodIP}}, s.PodIPs)
		require.Equal(t, f.network.HubAddress(), s.HostIP)
		require.NotNil(t, s.StartTime)
		for _, kind := range []corev1.PodConditionType{corev1.PodScheduled, corev1.PodInitialized,
			corev1.ContainersReady, corev1.PodReady, corev1.PodReadyToStartContainers} {
			c := condition(running, kind)
			require.Equal(t, corev1.ConditionTrue, c.Status, kind)
			require.False(t, c.LastTransitionTime.IsZero(), kind)
		}
		require.Len(t, s.InitContainerStatuses, 2)
		for _, c := range s.InitContainerStatuses {
			require.Equal(t, "Completed", c.State.Terminated.Reason)
			require.True(t, c.Ready)
		}
		require.False(t, s.InitContainerStatuses[0].State.Terminated.FinishedAt.After(
			s.InitContainerStatuses[1].State.Terminated.StartedAt.Time))
		require.Len(t, s.ContainerStatuses, 2)
		for _, c := range s.ContainerStatuses {
			require.NotNil(t, c.State.Running, c.Name)
			require.False(t, c.State.Running.StartedAt.IsZero())
			require.True(t, *c.Started)
			require.NotEmpty(t, c.ContainerID)
			require.NotEmpty(t, c.ImageID)
			require.Zero(t, c.RestartCount)
		}
	})
	t.Run("init containers ran in order, with the pod's volumes and environment", func(t *testing.T) {
		out := filepath.Join(f.agent.ClaimDir(f.namespace, "data-main-4"), "out")
		f.await("the script", func(context.Context) error {
			content, err := os.ReadFile(out)
			if err == nil && !strings.HasSuffix(string(content), "value") {
				return fmt.Errorf("%q", content)
			}
			return err
		})
		content, err := os.ReadFile(out)
		require.NoError(t, err)
		lines := strings.Split(string(content), "\n")
		require.Equal(t, []string{"one", "two", "value"}, lines[1:])
		require.True(t, strings.HasPrefix(lines[0], "main-4 "+f.nodes[1]+" "), lines[0])
	})
	t.Run("its containers have logs of their own", func(t *testing.T) {
		files, err := os.ReadDir(f.agent.LogDir("main-4"))
		require.NoError(t, err)
		var names []string
		for _, file := range files {
			names = append(names, strings.TrimPrefix(file.Name(), string(running.UID[:8])))
			path := filepath.Join(f.agent.LogDir("main-4"), file.Name())
			require.True(t, f.agent.LogOf(running, path))
			require.False(t, f.agent.LogOf(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "main-4", UID: "another"}},
				path))
		}
		require.ElementsMatch(t, []string{"-first-0.log", "-second-0.log", "-main-0.log", "-side-0.log"}, names)
	})
	t.Run("its readiness follows the probe", func(t *testing.T) {
		f.setReady("main-4", false)
		unready := f.awaitPod("main-4", "is not ready", func(p *corev1.Pod) bool { return !ready(p) })
		require.Equal(t, "ContainersNotReady", condition(unready, corev1.PodReady).Reason)
		require.Equal(t, "containers with unready status: [main]", condition(unready, corev1.PodReady).Message)
		require.Equal(t, corev1.PodRunning, unready.Status.Phase)
		require.Equal(t, condition(running, corev1.PodInitialized).LastTransitionTime,
			condition(unready, corev1.PodInitialized).LastTransitionTime)
		f.setReady("main-4", true)
		f.awaitReady("main-4")
	})
	t.Run("a halted container does not answer its probe, until it goes on", func(t *testing.T) {
		require.NoError(t, f.agent.KillContainer("main-4", "main", syscall.SIGSTOP))
		f.awaitPod("main-4", "is not ready", func(p *corev1.Pod) bool { return !ready(p) })
		require.Zero(t, f.get("main-4").Status.ContainerStatuses[0].RestartCount)
		require.NoError(t, f.agent.KillContainer("main-4", "main", syscall.SIGCONT))
		f.awaitReady("main-4")
	})
	t.Run("a killed container is restarted at once, and shows how it ended", func(t *testing.T) {
		before := f.pid("main-4", "main")
		require.NoError(t, f.agent.KillContainer("main-4", "main", syscall.SIGKILL))
		restarted := f.awaitPod("main-4", "is restarted", func(p *corev1.Pod) bool {
			return p.Status.ContainerStatuses[0].RestartCount == 1 && ready(p)
		})
		last := restarted.Status.ContainerStatuses[0].LastTerminationState.Terminated
		require.EqualValues(t, 137, last.ExitCode)
		require.Equal(t, "Error", last.Reason)
		require.NotEqual(t, last.ContainerID, restarted.Status.ContainerStatuses[0].ContainerID)
		require.Zero(t, restarted.Status.ContainerStatuses[1].RestartCount, "the other one goes on")
		require.NotEqual(t, before, f.pid("main-4", "main"))
		require.False(t, alive(before))
	})
	t.Run("unknown containers and pods are named", func(t *testing.T) {
		require.ErrorContains(t, f.agent.KillContainer("main-4", "none", syscall.SIGKILL), `"none"`)
		require.ErrorContains(t, f.agent.KillContainer("none-0", "main", syscall.SIGKILL), `"none-0"`)
		require.ErrorContains(t, f.agent.KillContainer("main-4", "first", syscall.SIGKILL),
			"has ended with exit code 0")
		_, ok := f.agent.PID("main-4", "first")
		require.False(t, ok)
	})
	t.Run("deleted, it ends, and only then its object goes", func(t *testing.T) {
		pids := []int{f.pid("main-4", "main"), f.pid("main-4", "side")}
		f.remove("main-4", 5)
		f.awaitGone("main-4", running.UID)
		for _, pid := range pids {
			require.False(t, alive(pid))
		}
		require.NoDirExists(t, filepath.Join(f.config.Dir, "pods", string(running.UID)))
		require.FileExists(t, filepath.Join(f.agent.ClaimDir(f.namespace, "data-main-4"), "out"),
			"a claim's data outlives the pod")
	})
	t.Run("the timeline tells it in order", func(t *testing.T) {
		var kinds []node.EventKind
		for _, e := range f.eventsOf("main-4") {
			if e.Container == "" && e.Kind != node.Waiting {
				kinds = append(kinds, e.Kind)
			}
		}
		require.Equal(t, []node.EventKind{node.Created, node.Ready, node.NotReady, node.Ready, node.NotReady,
			node.Ready, node.NotReady, node.Ready, node.Terminating, node.NotReady, node.Gone},
			slices.DeleteFunc(kinds, func(k node.EventKind) bool { return k == node.Bound }))
	})
}

func TestContainersThatDoNotRun(t *testing.T) {
	f := setUp(t)
	t.Run("one that ends again and again is in CrashLoopBackOff", func(t *testing.T) {
		f.create(shellPod("crash-0", "exit 3"))
		pod := f.awaitPod("crash-0", "backs off", func(p *corev1.Pod) bool {
			return waitingFor(p, "CrashLoopBackOff") && p.Status.ContainerStatuses[0].RestartCount >= 2
		})
		status := pod.Status.ContainerStatuses[0]
		require.EqualValues(t, 3, status.LastTerminationState.Terminated.ExitCode)
		require.Contains(t, status.State.Waiting.Message, "restarting failed container=main pod=crash-0_"+f.namespace)
		require.Equal(t, corev1.PodRunning, pod.Status.Phase)
		require.False(t, ready(pod))
		require.ErrorContains(t, f.agent.KillContainer("crash-0", "main", syscall.SIGKILL), "does not run")
		f.awaitPod("crash-0", "goes on trying", func(p *corev1.Pod) bool {
			return p.Status.ContainerStatuses[0].RestartCount > status.RestartCount
		})
	})
	t.Run("its waits double from the base to the cap", func(t *testing.T) {
		var starts, ends []time.Time
		for _, e := range f.eventsOf("crash-0") {
			if e.Kind == node.Started {
				starts = append(starts, e.Time)
			}
			if e.Kind == node.Exited {
				ends = append(ends, e.Time)
			}
		}
		require.GreaterOrEqual(t, len(starts), 4)
		// The first restart comes at once; the times are lower bounds.
		for i, least := range []time.Duration{0, 190 * time.Millisecond, 390 * time.Millisecond} {
			require.GreaterOrEqual(t, starts[i+1].Sub(ends[i]), least, "restart %d", i+1)
		}
	})
	t.Run("an unknown image is pulled again and again", func(t *testing.T) {
		f.create(shellPod("image-1", "", func(p *corev1.Pod) { p.Spec.Containers[0].Image = "etcd:3.99" }))
		f.awaitPod("image-1", "cannot pull", func(p *corev1.Pod) bool { return waitingFor(p, "ErrImagePull") })
		pod := f.awaitPod("image-1", "backs off", func(p *corev1.Pod) bool { return waitingFor(p, "ImagePullBackOff") })
		require.Equal(t, corev1.PodPending, pod.Status.Phase)
		require.Contains(t, pod.Status.ContainerStatuses[0].State.Waiting.Message, "etcd:3.99")
		f.awaitPod("image-1", "tries again", func(p *corev1.Pod) bool { return waitingFor(p, "ErrImagePull") })
	})
	t.Run("a program that cannot be started", func(t *testing.T) {
		f.create(shellPod("broken-0", "", func(p *corev1.Pod) { p.Spec.Containers[0].Image = broken }))
		pod := f.awaitPod("broken-0", "fails", func(p *corev1.Pod) bool { return waitingFor(p, "RunContainerError") })
		require.Contains(t, pod.Status.ContainerStatuses[0].State.Waiting.Message, "/no/such/program")
		pod = f.awaitPod("broken-0", "backs off", func(p *corev1.Pod) bool { return waitingFor(p, "CrashLoopBackOff") })
		require.Equal(t, "StartError", pod.Status.ContainerStatuses[0].LastTerminationState.Terminated.Reason)
	})
	t.Run("what the agent does not support is said", func(t *testing.T) {
		f.create(shellPod("liveness-0", forever, func(p *corev1.Pod) {
			p.Spec.Containers[0].LivenessProbe = probe(
				corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(1)}}, 1)
		}))
		pod := f.awaitPod("liveness-0", "waits", func(p *corev1.Pod) bool {
			return waitingFor(p, "CreateContainerConfigError")
		})
		require.Contains(t, pod.Status.ContainerStatuses[0].State.Waiting.Message, "livenessProbe")
	})
	t.Run("a failing init container keeps the others from starting", func(t *testing.T) {
		f.create(shellPod("init-0", forever, func(p *corev1.Pod) {
			p.Spec.InitContainers = []corev1.Container{{Name: "init", Image: shell, Args: []string{"-c", "exit 1"}}}
		}))
		pod := f.awaitPod("init-0", "backs off", func(p *corev1.Pod) bool {
			return len(p.Status.InitContainerStatuses) == 1 && p.Status.InitContainerStatuses[0].RestartCount >= 2
		})
		require.True(t, waitingFor(pod, "PodInitializing"))
		require.Equal(t, corev1.PodPending, pod.Status.Phase)
		require.Equal(t, corev1.ConditionFalse, condition(pod, corev1.PodInitialized).Status)
	})
	t.Run("all of them can be deleted, gracefully", func(t *testing.T) {
		list, err := f.client.CoreV1().Pods(f.namespace).List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		for _, pod := range list.Items {
			f.remove(pod.Name, 5)
		}
		for _, pod := range list.Items {
			f.awaitGone(pod.Name, pod.UID)
		}
	})
}

func TestProbes(t *testing.T) {
	f := setUp(t)
	exec := shellPod("exec-0", forever, with(claim("exec"), "/data"), func(p *corev1.Pod) {
		p.Spec.Containers[0].ReadinessProbe = probe(
			corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"sh", "-c", "test -f /data/ready"}}}, 1)
	})
	slow := shellPod("slow-0", forever, func(p *corev1.Pod) {
		p.Spec.Containers[0].ReadinessProbe = probe(
			corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"sh", "-c", "sleep 3600"}}}, 1)
	})
	for _, pod := range []*corev1.Pod{exec, slow} {
		f.create(pod)
	}
	t.Run("exec, in the container's volumes", func(t *testing.T) {
		pod := f.awaitPod("exec-0", "runs", func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodRunning })
		require.False(t, ready(pod), "never ready before the probe has succeeded")
		require.NoError(t, os.WriteFile(filepath.Join(f.agent.ClaimDir(f.namespace, "exec"), "ready"), nil, 0o644))
		f.awaitReady("exec-0")
	})
	t.Run("a probe that does not end is a failure, and is killed", func(t *testing.T) {
		pod := f.awaitPod("slow-0", "runs", func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodRunning })
		require.False(t, ready(pod))
		f.remove("slow-0", 5)
		f.awaitGone("slow-0", pod.UID)
	})
}

func TestDeletion(t *testing.T) {
	f := setUp(t)
	kinds := func(pod string) []node.EventKind {
		var kinds []node.EventKind
		for _, e := range f.eventsOf(pod) {
			if slices.Contains([]node.EventKind{node.Terminating, node.PreStop, node.Killed, node.Exited, node.Gone},
				e.Kind) {
				kinds = append(kinds, e.Kind)
			}
		}
		return kinds
	}
	t.Run("a process that takes no notice is killed after the grace period, and its object stays as long",
		func(t *testing.T) {
			f.create(shellPod("deaf-0", deaf))
			f.awaitReady("deaf-0")
			pid := f.trapping("deaf-0", "main")
			told := f.watch("deaf-0")
			begin := time.Now()
			f.remove("deaf-0", 3)
			all := told()
			last := all[len(all)-1]
			require.GreaterOrEqual(t, time.Since(begin), 3*time.Second)
			require.False(t, alive(pid))
			require.Equal(t, corev1.PodFailed, last.Status.Phase, "the last status is final")
			require.EqualValues(t, 137, last.Status.ContainerStatuses[0].State.Terminated.ExitCode)
			require.False(t, ready(last))
		})
	t.Run("a container that ends early seems to run, and to be ready, until all have ended", func(t *testing.T) {
		f.create(shellPod("mixed-0", deaf, func(p *corev1.Pod) {
			p.Spec.Containers = append(p.Spec.Containers,
				corev1.Container{Name: "quick", Image: shell, Args: []string{"-c", forever}})
		}))
		f.awaitReady("mixed-0")
		f.trapping("mixed-0", "main")
		pid := f.trapping("mixed-0", "quick")
		told := f.watch("mixed-0")
		f.remove("mixed-0", int64(10*patience.Seconds()))
		f.await("the end of the quick container", func(context.Context) error {
			if !slices.Contains(kinds("mixed-0"), node.Exited) {
				return errors.New("not yet")
			}
			return nil
		})
		require.False(t, alive(pid))
		f.remove("mixed-0", 2) // A shorter grace period takes effect.
		all := told()
		for _, pod := range all {
			if pod.Status.ContainerStatuses[0].State.Running != nil {
				require.True(t, ready(pod))
				require.NotNil(t, pod.Status.ContainerStatuses[1].State.Running)
			}
		}
		last := all[len(all)-1].Status.ContainerStatuses
		require.Zero(t, last[1].State.Terminated.ExitCode)
		require.Zero(t, last[1].RestartCount, "nothing is restarted any more")
		require.EqualValues(t, 137, last[0].State.Terminated.ExitCode)
		require.False(t, last[0].Ready || last[1].Ready)
	})
	t.Run("one whose probe fails after its end is not ready, and still seems to run", func(t *testing.T) {
		f.setReady("probed-0", true)
		pod := serverPod("probed-0")
		pod.Spec.Containers = append(pod.Spec.Containers,
			corev1.Container{Name: "slow", Image: shell, Args: []string{"-c", deaf}})
		f.create(pod)
		f.awaitReady("probed-0")
		f.trapping("probed-0", "slow")
		f.remove("probed-0", int64(10*patience.Seconds()))
		unready := f.awaitPod("probed-0", "is not ready", func(p *corev1.Pod) bool { return !ready(p) })
		require.NotNil(t, unready.Status.ContainerStatuses[0].State.Running)
		require.False(t, unready.Status.ContainerStatuses[0].Ready)
		f.remove("probed-0", 2)
		f.awaitGone("probed-0", unready.UID)
	})
	t.Run("deleted by force, it is stopped all the same, and its successor waits for its address", func(t *testing.T) {
		f.forced(t, []string{"first Started", "first Exited", "second Started"})
	})
	hook := func(h corev1.LifecycleHandler) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: &h} }
	}
	t.Run("a preStop hook that takes the whole grace period is ended, and SIGTERM follows", func(t *testing.T) {
		f.create(shellPod("sleep-0", forever, hook(corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 3}}),
			func(p *corev1.Pod) { *p.Spec.TerminationGracePeriodSeconds = 3600 }))
		pod := f.awaitReady("sleep-0")
		begin := time.Now()
		f.remove("sleep-0", 3600)
		f.awaitGone("sleep-0", pod.UID)
		require.GreaterOrEqual(t, time.Since(begin), 3*time.Second, "it has slept")
		f.create(shellPod("long-0", forever, hook(corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 3600}}),
			func(p *corev1.Pod) { *p.Spec.TerminationGracePeriodSeconds = 3600 }))
		pod = f.awaitReady("long-0")
		f.remove("long-0", 2)
		f.awaitGone("long-0", pod.UID)
		require.Equal(t, []node.EventKind{node.Terminating, node.PreStop, node.Exited, node.Gone}, kinds("long-0"),
			"SIGTERM was enough")
	})
	t.Run("a halted process does not react to SIGTERM", func(t *testing.T) {
		f.create(shellPod("halted-0", forever))
		pod := f.awaitReady("halted-0")
		require.NoError(t, f.agent.KillContainer("halted-0", "main", syscall.SIGSTOP))
		begin := time.Now()
		f.remove("halted-0", 3)
		f.awaitGone("halted-0", pod.UID)
		require.GreaterOrEqual(t, time.Since(begin), 3*time.Second)
	})
	t.Run("a pod with a finalizer stays, and is not started again", func(t *testing.T) {
		f.create(shellPod("final-0", forever, func(p *corev1.Pod) { p.Finalizers = []string{"quorate.dev/test"} }))
		f.awaitReady("final-0")
		f.remove("final-0", 5)
		pod := f.awaitPod("final-0", "has ended", func(p *corev1.Pod) bool {
			return p.Status.Phase == corev1.PodSucceeded
		})
		_, err := f.client.CoreV1().Pods(f.namespace).Patch(t.Context(), "final-0", types.MergePatchType,
			[]byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
		require.NoError(t, err)
		f.awaitGone("final-0", pod.UID)
		created := 0
		for _, e := range f.eventsOf("final-0") {
			if e.Kind == node.Created {
				created++
			}
		}
		require.Equal(t, 1, created)
	})
	t.Run("before it has got anywhere", func(t *testing.T) {
		for range 10 {
			pod := f.create(shellPod("soon-0", forever))
			f.remove("soon-0", 5)
			f.awaitGone("soon-0", pod.UID)
		}
	})
}

// forced deletes a pod by force whose process takes no notice, makes a successor, and compares what happened.
func (f *fixture) forced(t *testing.T, want []string) {
	t.Helper()
	f.create(shellPod("force-0", deaf, with(claim("force"), "/data"),
		func(p *corev1.Pod) { *p.Spec.TerminationGracePeriodSeconds = 3 }))
	first := f.awaitReady("force-0")
	pid := f.trapping("force-0", "main")
	f.remove("force-0", 0)
	f.awaitGone("force-0", first.UID)
	require.True(t, alive(pid), "the object is gone, the process is not")
	second := f.create(shellPod("force-0", forever, with(claim("force"), "/data")))
	f.awaitReady("force-0")
	var order []string
	f.await("the end of the first", func(context.Context) error {
		order = nil
		gone := false
		for _, e := range f.eventsOf("force-0") {
			gone = gone || e.Kind == node.Gone && e.UID == first.UID
			if e.Kind == node.Started || e.Kind == node.Exited {
				order = append(order,
					fmt.Sprintf("%s %s", map[types.UID]string{first.UID: "first", second.UID: "second"}[e.UID], e.Kind))
			}
		}
		if !gone {
			return errors.New("not yet")
		}
		return nil
	})
	require.False(t, alive(pid))
	require.Equal(t, want, order)
	require.NotZero(t, f.pid("force-0", "main"), "the newest is meant")
}

func TestLostNode(t *testing.T) {
	f := setUp(t)
	for i := range 3 {
		name := fmt.Sprintf("main-%d", i)
		f.setReady(name, true)
		f.create(serverPod(name))
	}
	for i := range 3 {
		f.awaitReady(fmt.Sprintf("main-%d", i))
	}
	nodeReady := func(name string) corev1.NodeCondition {
		object, err := f.client.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
		require.NoError(t, err)
		for _, c := range object.Status.Conditions {
			if c.Type == corev1.NodeReady {
				return c
			}
		}
		return corev1.NodeCondition{}
	}
	t.Run("power loss: processes gone, statuses as they were, Ready false, deletion not finished", func(t *testing.T) {
		before := f.get("main-1")
		pid := f.pid("main-1", "main")
		require.NoError(t, f.agent.LoseNode(t.Context(), f.nodes[1], node.PowerLoss))
		require.False(t, alive(pid))
		after := f.get("main-1")
		require.Equal(t, before.Status.ContainerStatuses, after.Status.ContainerStatuses)
		require.Equal(t, before.Status.Phase, after.Status.Phase)
		require.Equal(t, condition(before, corev1.ContainersReady), condition(after, corev1.ContainersReady))
		require.Equal(t, corev1.ConditionTrue, condition(after, corev1.ContainersReady).Status)
		require.Equal(t, corev1.ConditionFalse, condition(after, corev1.PodReady).Status)
		require.Equal(t, corev1.ConditionUnknown, nodeReady(f.nodes[1]).Status)
		require.True(t, ready(f.get("main-0")), "other nodes are as they were")
		require.ErrorContains(t, f.agent.LoseNode(t.Context(), f.nodes[1], node.Partition), "lost already")
		require.ErrorContains(t, f.agent.LoseNode(t.Context(), "none", node.PowerLoss), "no such node")
		f.remove("main-1", 2)
		require.ErrorContains(t, f.agent.KillContainer("main-1", "main", syscall.SIGKILL), "does not run")
	})
	t.Run("power loss: a new pod that belongs to the node stays pending", func(t *testing.T) {
		f.create(shellPod("other-1", forever))
		f.create(shellPod("other-2", forever))
		f.awaitReady("other-2") // seen after the other one
		require.Empty(t, f.get("other-1").Spec.NodeName)
	})
	t.Run("restored: what was to be deleted is gone, what waited runs", func(t *testing.T) {
		deleted := f.get("main-1")
		require.NotNil(t, deleted.DeletionTimestamp)
		require.NoError(t, f.agent.RestoreNode(t.Context(), f.nodes[1]))
		f.awaitGone("main-1", deleted.UID)
		f.awaitReady("other-1")
		require.Equal(t, corev1.ConditionTrue, nodeReady(f.nodes[1]).Status)
		require.ErrorContains(t, f.agent.RestoreNode(t.Context(), f.nodes[1]), "not lost")
	})
	t.Run("restored after a power loss, containers are started anew", func(t *testing.T) {
		require.NoError(t, f.agent.LoseNode(t.Context(), f.nodes[0], node.PowerLoss))
		require.NoError(t, f.agent.RestoreNode(t.Context(), f.nodes[0]))
		pod := f.awaitPod("main-0", "is back", func(p *corev1.Pod) bool {
			return ready(p) && p.Status.ContainerStatuses[0].RestartCount == 1
		})
		last := pod.Status.ContainerStatuses[0].LastTerminationState.Terminated
		require.EqualValues(t, 255, last.ExitCode)
		require.Equal(t, "Unknown", last.Reason)
	})
	t.Run("power cut: nobody hears of it; then containers are terminated, and start by themselves after a while",
		func(t *testing.T) {
			before := f.get("main-0")
			pid := f.pid("main-0", "main")
			require.NoError(t, f.agent.LoseNode(t.Context(), f.nodes[0], node.PowerCut))
			require.False(t, alive(pid))
			require.Equal(t, before.Status, f.get("main-0").Status)
			require.Equal(t, corev1.ConditionTrue, nodeReady(f.nodes[0]).Status)
			require.NoError(t, f.agent.Reboot(t.Context(), f.nodes[0], 2*time.Second))
			ended := f.awaitPod("main-0", "has been seen to have ended", func(p *corev1.Pod) bool {
				return p.Status.ContainerStatuses[0].State.Terminated != nil
			})
			require.EqualValues(t, 255, ended.Status.ContainerStatuses[0].State.Terminated.ExitCode)
			require.Equal(t, before.Status.ContainerStatuses[0].RestartCount,
				ended.Status.ContainerStatuses[0].RestartCount)
			again := f.awaitPod("main-0", "is back", func(p *corev1.Pod) bool {
				return ready(p) &&
					p.Status.ContainerStatuses[0].RestartCount == before.Status.ContainerStatuses[0].RestartCount+1
			})
			require.Equal(t, before.UID, again.UID)
		})
	t.Run("partition: processes go on, nothing is heard of them, deletions are not seen", func(t *testing.T) {
		pid := f.pid("main-2", "main")
		before := f.get("main-2")
		require.NoError(t, f.agent.LoseNode(t.Context(), f.nodes[2], node.Partition))
		require.True(t, alive(pid))
		require.False(t, ready(f.get("main-2")))
		require.NoError(t, f.agent.KillContainer("main-2", "main", syscall.SIGKILL))
		f.await("a restart that nobody hears of", func(context.Context) error {
			now, ok := f.agent.PID("main-2", "main")
			if !ok || now == pid {
				return errors.New("not yet")
			}
			return nil
		})
		f.remove("main-2", 2)
		restarted := f.pid("main-2", "main")
		f.create(shellPod("later-0", forever))
		f.awaitReady("later-0") // seen after the deletion
		require.True(t, alive(restarted))
		after := f.get("main-2")
		require.NotNil(t, after.DeletionTimestamp)
		require.Equal(t, before.Status.ContainerStatuses, after.Status.ContainerStatuses)
		require.NoError(t, f.agent.RestoreNode(t.Context(), f.nodes[2]))
		f.awaitGone("main-2", before.UID)
		require.False(t, alive(restarted))
	})
	t.Run("silence: a restart is not heard of, and nobody says that anything is wrong", func(t *testing.T) {
		pid, before := f.pid("main-0", "main"), f.get("main-0")
		require.NoError(t, f.agent.LoseNode(t.Context(), f.nodes[0], node.Silence))
		require.NoError(t, f.agent.KillContainer("main-0", "main", syscall.SIGKILL))
		f.await("a restart that nobody hears of", func(context.Context) error {
			now, ok := f.agent.PID("main-0", "main")
			if !ok || now == pid {
				return errors.New("not yet")
			}
			return nil
		})
		require.Equal(t, before.Status, f.get("main-0").Status)
		require.Equal(t, corev1.ConditionTrue, nodeReady(f.nodes[0]).Status)
		require.NoError(t, f.agent.RestoreNode(t.Context(), f.nodes[0]))
		f.awaitPod("main-0", "has been heard of", func(p *corev1.Pod) bool {
			return ready(p) &&
				p.Status.ContainerStatuses[0].RestartCount == before.Status.ContainerStatuses[0].RestartCount+1
		})
	})
	t.Run("partition: a pod that was deleted by force meanwhile is stopped, and its successor starts",
		func(t *testing.T) {
			f.create(shellPod("again-2", forever))
			first := f.awaitReady("again-2")
			pid := f.pid("again-2", "main")
			require.NoError(t, f.agent.LoseNode(t.Context(), f.nodes[2], node.Partition))
			f.remove("again-2", 0)
			second := f.create(shellPod("again-2", forever))
			require.NotEqual(t, first.UID, second.UID)
			require.True(t, alive(pid))
			require.NoError(t, f.agent.RestoreNode(t.Context(), f.nodes[2]))
			f.awaitReady("again-2")
			require.False(t, alive(pid))
		})
	t.Run("partition: statuses are reported again", func(t *testing.T) {
		require.NoError(t, f.agent.LoseNode(t.Context(), f.nodes[0], node.Partition))
		require.False(t, ready(f.get("main-0")))
		pid := f.pid("main-0", "main")
		require.NoError(t, f.agent.RestoreNode(t.Context(), f.nodes[0]))
		f.awaitReady("main-0")
		require.Equal(t, pid, f.pid("main-0", "main"))
	})
}

func TestAPoolHasNodesOfItsOwn(t *testing.T) {
	f := setUp(t)
	own := []string{f.namespace + "-pool-0", f.namespace + "-pool-1"}
	f.nodes = append(f.nodes, own...) // to be deleted in the end
	for _, name := range []string{"own-0", "own-1", "own-2"} {
		pod := shellPod(name, forever)
		pod.Spec.NodeSelector = map[string]string{node.PoolLabel: f.namespace}
		f.create(pod)
	}
	f.create(shellPod("other-1", forever))
	require.Equal(t, f.config.Nodes[1], f.awaitReady("other-1").Spec.NodeName)
	require.Empty(t, f.get("own-1").Spec.NodeName, "it waits for its pool")

	require.NoError(t, f.agent.AddPool(t.Context(), f.namespace, own...))
	for i, name := range []string{"own-0", "own-1", "own-2"} {
		require.Equal(t, own[i%2], f.awaitReady(name).Spec.NodeName)
	}
	require.NoError(t, f.agent.LoseNode(t.Context(), own[1], node.PowerLoss))
	require.False(t, ready(f.get("own-1")))
	require.True(t, ready(f.get("other-1")), "others have not lost their node")
	require.NoError(t, f.agent.RestoreNode(t.Context(), own[1]))
	f.awaitReady("own-1")
	require.ErrorContains(t, f.agent.AddPool(t.Context(), f.namespace, own[0]), "already")
	require.ErrorContains(t, f.agent.AddPool(t.Context(), ""), "name the pool")
}

func TestACordonedNodeTakesNoNewPods(t *testing.T) {
	f := setUp(t)
	own := []string{f.namespace + "-pool-0", f.namespace + "-pool-1"}
	f.nodes = append(f.nodes, own...) // to be deleted in the end
	require.NoError(t, f.agent.AddPool(t.Context(), f.namespace, own...))
	create := func(name string) {
		pod := shellPod(name, forever)
		pod.Spec.NodeSelector = map[string]string{node.PoolLabel: f.namespace}
		f.create(pod)
	}
	create("own-0")
	require.Equal(t, own[0], f.awaitReady("own-0").Spec.NodeName)
	require.NoError(t, f.agent.Cordon(t.Context(), own[0], true))
	object, err := f.client.CoreV1().Nodes().Get(t.Context(), own[0], metav1.GetOptions{})
	require.NoError(t, err)
	require.True(t, object.Spec.Unschedulable)
	require.True(t, ready(f.get("own-0")), "who is there stays")
	create("own-2")
	require.Equal(t, own[1], f.awaitReady("own-2").Spec.NodeName, "another node of the pool")
	require.NoError(t, f.agent.Cordon(t.Context(), own[1], true))
	create("own-4")
	f.create(shellPod("other-0", forever))
	f.awaitReady("other-0")
	require.Empty(t, f.get("own-4").Spec.NodeName, "it waits")
	require.NoError(t, f.agent.Cordon(t.Context(), own[0], false))
	require.Equal(t, own[0], f.awaitReady("own-4").Spec.NodeName)
}

func TestVolumesAndTokens(t *testing.T) {
	f := setUp(t, func(c *node.Config) { c.APIServer, c.APIServerCA = plane.URL(), plane.CAPEM() })
	ctx := t.Context()
	_, err := f.client.CoreV1().ServiceAccounts(f.namespace).Create(ctx,
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "sidecar"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = f.client.RbacV1().Roles(f.namespace).Create(ctx,
		&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "sidecar"},
			Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get"}}}},
		metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = f.client.RbacV1().RoleBindings(f.namespace).Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "sidecar"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "sidecar"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: "sidecar", Namespace: f.namespace}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)

	pod := shellPod("main-0", "echo $$ >/tmp/x/pid; cp /kube/token /data/token; cp $KUBECONFIG /data/kubeconfig; "+
		forever, with(claim("tokens"), "/data"),
		with(corev1.Volume{Name: "tmp", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
			"/tmp/x"),
		with(corev1.Volume{Name: "kube",
			VolumeSource: corev1.VolumeSource{
				Projected: &corev1.ProjectedVolumeSource{
					Sources: []corev1.VolumeProjection{
						{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"}}}}}}, "/kube"),
		func(p *corev1.Pod) {
			p.Spec.ServiceAccountName, p.Spec.AutomountServiceAccountToken = "sidecar", nil
		})
	pod = f.create(pod)
	f.awaitReady("main-0")
	volume := func(name, file string) string {
		return filepath.Join(f.config.Dir, "pods", string(pod.UID), "volumes", name, file)
	}
	read := func(path string) func(context.Context) error {
		return func(context.Context) error {
			content, err := os.ReadFile(path)
			if err == nil && len(content) == 0 {
				return errors.New("empty")
			}
			return err
		}
	}
	t.Run("the token is the ServiceAccount's, with its rights and no more", func(t *testing.T) {
		path := filepath.Join(f.agent.ClaimDir(f.namespace, "tokens"), "token")
		f.await("the token", read(path))
		token, err := os.ReadFile(path)
		require.NoError(t, err)
		client, err := kubernetes.NewForConfig(plane.TokenConfig(string(token)))
		require.NoError(t, err)
		_, err = client.CoreV1().Pods(f.namespace).Get(ctx, "main-0", metav1.GetOptions{})
		require.NoError(t, err)
		_, err = client.CoreV1().Pods(f.namespace).List(ctx, metav1.ListOptions{})
		require.True(t, apierrors.IsForbidden(err), "%v", err)
	})
	t.Run("the kubeconfig has the token that admission mounts in every container", func(t *testing.T) {
		path := filepath.Join(f.agent.ClaimDir(f.namespace, "tokens"), "kubeconfig")
		f.await("the kubeconfig", read(path))
		config, err := clientcmd.BuildConfigFromFlags("", path)
		require.NoError(t, err)
		client, err := kubernetes.NewForConfig(config)
		require.NoError(t, err)
		who, err := client.AuthenticationV1().SelfSubjectReviews().
			Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
		require.NoError(t, err)
		require.Equal(t, "system:serviceaccount:"+f.namespace+":sidecar", who.Status.UserInfo.Username)
		require.Equal(t, authenticationv1.ExtraValue{"main-0"},
			who.Status.UserInfo.Extra["authentication.kubernetes.io/pod-name"])
	})
	t.Run("an emptyDir outlives a container, but not the pod", func(t *testing.T) {
		f.await("the file", read(volume("tmp", "pid")))
		require.NoError(t, os.WriteFile(volume("tmp", "mark"), nil, 0o644))
		require.NoError(t, f.agent.KillContainer("main-0", "main", syscall.SIGKILL))
		f.awaitPod("main-0", "is restarted", func(p *corev1.Pod) bool {
			return ready(p) && p.Status.ContainerStatuses[0].RestartCount == 1
		})
		require.FileExists(t, volume("tmp", "mark"))
		f.remove("main-0", 5)
		f.awaitGone("main-0", pod.UID)
		require.NoFileExists(t, volume("tmp", "mark"))
	})
}

func TestAPIServerOutage(t *testing.T) {
	f := setUp(t)
	f.setReady("main-0", true)
	f.create(serverPod("main-0"))
	f.create(shellPod("other-1", forever))
	f.awaitReady("main-0")
	other := f.awaitReady("other-1")
	pid := f.pid("other-1", "main")
	f.remove("other-1", 5)
	f.awaitGone("other-1", other.UID)
	require.False(t, alive(pid))

	require.NoError(t, plane.StopAPIServer(t.Context()))
	stopped := true
	restart := func() {
		if stopped {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			require.NoError(t, plane.StartAPIServer(ctx))
			stopped = false
		}
	}
	defer restart()
	t.Run("containers go on, and are restarted, without it", func(t *testing.T) {
		before := f.pid("main-0", "main")
		require.NoError(t, f.agent.KillContainer("main-0", "main", syscall.SIGKILL))
		f.await("the restart", func(context.Context) error {
			if now, ok := f.agent.PID("main-0", "main"); !ok || now == before {
				return errors.New("not yet")
			}
			return nil
		})
	})
	t.Run("what happened is reported when it is back, and nothing is lost", func(t *testing.T) {
		now := f.pid("main-0", "main")
		restart()
		f.awaitPod("main-0", "is reported", func(p *corev1.Pod) bool {
			return ready(p) && p.Status.ContainerStatuses[0].RestartCount == 1
		})
		require.Equal(t, now, f.pid("main-0", "main"))
		f.create(shellPod("late-2", forever))
		f.awaitReady("late-2")
	})
}

func TestCloseLeavesNoProcessAndTellsTheAPIServerNothing(t *testing.T) {
	f := setUp(t)
	f.create(shellPod("main-0", deaf))
	pod := f.awaitReady("main-0")
	pid := f.trapping("main-0", "main")
	f.remove("main-0", 60)
	require.NoError(t, f.agent.Close(t.Context()))
	require.False(t, alive(pid))
	require.NoDirExists(t, filepath.Join(f.config.Dir, "pods", string(pod.UID)))
	f.get("main-0")
	_, running := f.agent.PID("main-0", "main")
	require.False(t, running)
	require.ErrorContains(t, f.agent.KillContainer("main-0", "main", syscall.SIGKILL), "closed")
}

func TestPodsInNamespaces(t *testing.T) {
	requireNamespaces(t)
	namespaces, err := network.NewNamespaces(filepath.Join(t.TempDir(), "network"))
	require.NoError(t, err)
	f := setUpOn(t, namespaces)
	for i := range 2 {
		name := fmt.Sprintf("etcd-%d", i)
		f.setReady(name, true)
		pod := serverPod(name)
		pod.Spec.Hostname, pod.Spec.Subdomain = name, "etcd-peer"
		pod.Spec.HostAliases = []corev1.HostAlias{{IP: "127.0.0.1", Hostnames: []string{"etcd-local"}}}
		f.create(pod)
	}
	first := f.awaitReady("etcd-0")
	second := f.awaitReady("etcd-1")
	resolve := func(pod *corev1.Pod, name string) (string, error) {
		client := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
		response, err := client.Get("http://" + net.JoinHostPort(pod.Status.PodIP, "8080") + "/resolve?name=" + name)
		if err != nil {
			return "", err
		}
		defer response.Body.Close()
		body := make([]byte, 100)
		n, _ := response.Body.Read(body)
		return string(body[:n]), nil
	}
	for name, want := range map[string]string{
		"etcd-1.etcd-peer." + f.namespace + ".svc": second.Status.PodIP + "<nil>",
		"etcd-local": "127.0.0.1<nil>",
	} {
		f.await(name, func(context.Context) error {
			got, err := resolve(first, name)
			if err == nil && got != want {
				return fmt.Errorf("it is %s", got)
			}
			return err
		})
	}
	t.Run("a pod that is cut off from everybody is still probed by its kubelet", func(t *testing.T) {
		require.NoError(t, namespaces.Isolate(f.namespace+"/etcd-0"))
		_, err := (&net.Dialer{Timeout: 300 * time.Millisecond}).Dial("tcp",
			net.JoinHostPort(first.Status.PodIP, "8080"))
		require.Error(t, err)
		f.setReady("etcd-0", false)
		f.awaitPod("etcd-0", "is not ready", func(p *corev1.Pod) bool { return !ready(p) })
		f.setReady("etcd-0", true)
		f.awaitReady("etcd-0")
		require.NoError(t, namespaces.Rejoin(f.namespace+"/etcd-0"))
	})
	t.Run("an exec probe runs in the pod's network", func(t *testing.T) {
		pod := shellPod("exec-2", forever, func(p *corev1.Pod) {
			p.Spec.Containers[0].ReadinessProbe = probe(
				corev1.ProbeHandler{
					Exec: &corev1.ExecAction{Command: []string{"sh", "-c", "grep exec-2 /etc/hosts"}}}, 1)
			p.Spec.Hostname, p.Spec.Subdomain = "exec-2", "etcd-peer"
		})
		f.create(pod)
		f.awaitReady("exec-2")
	})
	t.Run("a rebooted pod and a successor have new addresses, to which their names lead", func(t *testing.T) {
		name := "etcd-1.etcd-peer." + f.namespace + ".svc"
		leads := func(to *corev1.Pod, others ...*corev1.Pod) {
			for _, other := range others {
				require.NotEqual(t, other.Status.PodIP, to.Status.PodIP)
			}
			got, err := resolve(first, name)
			require.NoError(t, err)
			require.Equal(t, to.Status.PodIP+"<nil>", got)
		}
		leads(second)
		require.NoError(t, f.agent.LoseNode(t.Context(), second.Spec.NodeName, node.PowerCut))
		require.NoError(t, f.agent.RestoreNode(t.Context(), second.Spec.NodeName))
		rebooted := f.awaitPod("etcd-1", "is back", func(p *corev1.Pod) bool {
			return ready(p) && p.Status.ContainerStatuses[0].RestartCount == 1
		})
		leads(rebooted, second)
		f.remove("etcd-1", 5)
		f.awaitGone("etcd-1", second.UID)
		pod := serverPod("etcd-1")
		pod.Spec.Hostname, pod.Spec.Subdomain = "etcd-1", "etcd-peer"
		f.create(pod)
		leads(f.awaitReady("etcd-1"), second, rebooted)
	})
	t.Run("the successor of a pod that is deleted by force does not wait", func(t *testing.T) {
		f.forced(t, []string{"first Started", "second Started", "first Exited"})
	})
	t.Run("deleted pods leave the network", func(t *testing.T) {
		for _, name := range []string{"etcd-0", "etcd-1", "exec-2", "force-0"} {
			pod := f.get(name)
			f.remove(name, 5)
			f.awaitGone(name, pod.UID)
		}
	})
}
