package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"

	clientv3 "go.etcd.io/etcd/client/v3"
	etcdserver "go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"
)

// fixture is what a sidecar sees of its pod: an etcd member, and the Kubernetes API. The pod is the only one of its
// StatefulSet, and up to date.
type fixture struct {
	t      *testing.T
	dir    string
	client string // the member's URL
	etcd   *clientv3.Client

	mu      sync.Mutex
	objects map[string]json.RawMessage // by their paths
	agents  map[string]bool            // who has sent a request
	evicted bool
}

const (
	setPath   = "/apis/apps/v1/namespaces/garden/statefulsets/etcd-main"
	podPath   = "/api/v1/namespaces/garden/pods/etcd-main-0"
	leasePath = "/apis/coordination.k8s.io/v1/namespaces/garden/leases/"
)

// objects are those of a pod of etcd-druid, as far as anybody looks at them here.
var objects = map[string]string{
	setPath: `{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: etcd-main, namespace: garden, uid: set,
  resourceVersion: "1", generation: 1}, spec: {replicas: 1, podManagementPolicy: Parallel, updateStrategy: {type:
  OnDelete}, selector: {matchLabels: {app: etcd-main}}, volumeClaimTemplates: [{metadata: {name: data}}], template: {
  metadata: {labels: {app: etcd-main}}, spec: {containers: [{name: etcd, volumeMounts: [{name: data, mountPath:
  /var/etcd/data}]}, {name: backup-restore}]}}}, status: {replicas: 1, observedGeneration: 1, updateRevision: new,
  currentRevision: new}}`,
	podPath: `{apiVersion: v1, kind: Pod, metadata: {name: etcd-main-0, namespace: garden, uid: pod,
  resourceVersion: "2", labels: {app: etcd-main, controller-revision-hash: new}, ownerReferences: [{apiVersion:
  apps/v1, kind: StatefulSet,
  name: etcd-main, uid: set, controller: true}]}, spec: {volumes: [{name: data, persistentVolumeClaim: {claimName:
  data}}], containers: [{name: etcd, volumeMounts: [{name: data, mountPath: /var/etcd/data}]}, {name:
  backup-restore}]}, status: {phase: Running, conditions: [{type: Ready, status: "True", lastTransitionTime:
  "2026-01-01T00:00:00Z"}, {type: ContainersReady, status: "True"}], containerStatuses: [{name: etcd, ready: true,
  state: {running: {}}}, {name: backup-restore, ready: true, state: {running: {}}}]}}`,
	leasePath + "etcd-main-0":          lease0("etcd-main-0"),
	leasePath + "etcd-main-full-snap":  lease0("etcd-main-full-snap"),
	leasePath + "etcd-main-delta-snap": lease0("etcd-main-delta-snap"),
	"/api":                             `{kind: APIVersions, versions: [v1]}`,
	"/apis": `{kind: APIGroupList, apiVersion: v1, groups: [{name: coordination.k8s.io, versions: [{groupVersion:
  coordination.k8s.io/v1, version: v1}], preferredVersion: {groupVersion: coordination.k8s.io/v1, version: v1}}]}`,
	"/apis/coordination.k8s.io/v1": `{kind: APIResourceList, apiVersion: v1, groupVersion: coordination.k8s.io/v1,
  resources: [{name: leases, singularName: lease, namespaced: true, kind: Lease, verbs: [get, patch]}]}`,
}

func lease0(name string) string {
	return `{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: ` + name + `, namespace: garden,
  resourceVersion: "3", creationTimestamp: "2026-01-01T00:00:00Z"}, spec: {}}`
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{t: t, dir: t.TempDir(), objects: map[string]json.RawMessage{}, agents: map[string]bool{}}
	for path, object := range objects {
		data, err := yaml.YAMLToJSON([]byte(object))
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		f.objects[path] = data
	}
	f.client = f.startEtcd()
	kubernetes := httptest.NewServer(http.HandlerFunc(f.serve))
	t.Cleanup(func() { kubernetes.CloseClientConnections(); kubernetes.Close() })
	f.write("kubeconfig", `{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c,
user: u}}], users: [{name: u, user: {}}], clusters: [{name: c, cluster: {server: "`+kubernetes.URL+`"}}]}`)
	f.write("etcd.conf.yaml", fmt.Sprintf(`{name: etcd-config, data-dir: /nowhere, initial-cluster:
"etcd-main-0=http://127.0.0.1:1", initial-advertise-peer-urls: {etcd-main-0: ["http://127.0.0.1:1"]},
advertise-client-urls: {etcd-main-0: [%q]}}`, f.client))
	return f
}

func (f *fixture) write(name, content string) {
	f.t.Helper()
	if err := os.WriteFile(filepath.Join(f.dir, name), []byte(content), 0o600); err != nil {
		f.t.Fatal(err)
	}
}

// ports counts those that were handed out.
var ports atomic.Uint32

// freePort is one that nobody listens on just now. The system gives none of this range to connections, which could
// otherwise take it before whoever is to listen on it.
func freePort(t *testing.T) string {
	t.Helper()
	for {
		port := fmt.Sprint(10000 + (37*uint32(os.Getpid())+ports.Add(1))%20000)
		l, err := net.Listen("tcp", ":"+port)
		if err == nil {
			l.Close()
			return port
		}
	}
}

// startEtcd starts the member that the host links anyway, in the process of the test.
func (f *fixture) startEtcd() (clientURL string) {
	f.t.Helper()
	at := func(port string) url.URL { return url.URL{Scheme: "http", Host: "127.0.0.1:" + port} }
	cfg := etcdserver.NewConfig()
	cfg.Name, cfg.Dir, cfg.ZapLoggerBuilder = "etcd-main-0", filepath.Join(f.dir, "etcd"),
		etcdserver.NewZapLoggerBuilder(zap.NewNop())
	client, peer := at(freePort(f.t)), at("1")
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = []url.URL{at("0")}, []url.URL{peer}
	cfg.InitialCluster = "etcd-main-0=" + peer.String()
	member, err := etcdserver.StartEtcd(cfg)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(member.Close)
	<-member.Server.ReadyNotify()
	f.etcd, err = clientv3.New(clientv3.Config{Endpoints: []string{client.String()}, Logger: zap.NewNop()})
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { f.etcd.Close() })
	return client.String()
}

// serve is the Kubernetes API.
func (f *fixture) serve(rw http.ResponseWriter, r *http.Request) {
	if r.URL.Query().Get("watch") != "" {
		<-r.Context().Done()
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	agent, _, _ := strings.Cut(r.UserAgent(), "/")
	f.agents[agent] = true
	rw.Header().Set("Content-Type", "application/json")
	path := strings.TrimSuffix(r.URL.Path, "/")
	object, known := f.objects[path]
	switch {
	case r.Method == http.MethodPost && strings.HasSuffix(path, "/eviction"):
		f.evicted = true
		delete(f.objects, podPath)
		object = json.RawMessage(`{"kind":"Status","apiVersion":"v1","status":"Success"}`)
	case r.Method == http.MethodPost:
		created, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
		if err != nil {
			f.t.Error(err)
		}
		object, _ = json.Marshal(created)
		var named struct{ Metadata struct{ Name string } }
		_ = json.Unmarshal(object, &named)
		object, _ = jsonpatch.MergePatch(object, []byte(`{"metadata":{"resourceVersion":"4"}}`))
		f.objects[path+"/"+named.Metadata.Name] = object
	case path+"/etcd-main-0" == podPath:
		object = fmt.Appendf(nil, `{"kind":"PodList","apiVersion":"v1","metadata":{},"items":[%s]}`, f.objects[podPath])
	case !known:
		rw.WriteHeader(http.StatusNotFound)
		object = json.RawMessage(
			`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`)
	case r.Method == http.MethodPatch:
		version := fmt.Appendf(nil, `{"metadata":{"resourceVersion":"%d"}}`, time.Now().UnixNano())
		patch, _ := jsonpatch.MergePatch(body, version)
		if object, err = jsonpatch.MergePatch(object, patch); err != nil {
			f.t.Error(err)
		}
		f.objects[path] = object
	}
	_, _ = rw.Write(object)
}

func (f *fixture) change(path, mergePatch string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var err error
	if f.objects[path], err = jsonpatch.MergePatch(f.objects[path], []byte(mergePatch)); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fixture) renewed(lease string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return bytes.Contains(f.objects[leasePath+lease], []byte("renewTime"))
}

func (f *fixture) hasAsked(agent string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.agents[agent]
}

// keys are Quorate's keys in etcd.
func (f *fixture) keys() int64 {
	f.t.Helper()
	got, err := f.etcd.Get(f.t.Context(), "/quorate/", clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		f.t.Fatal(err)
	}
	return got.Count
}

// built is where the binaries are.
var built string

// build builds ours and the host's own, with the same settings and once. Both are copied. How many of a binary's pages
// are resident depends on how its file was written, by as much as 8 MiB, and the linker writes in its own way.
var build = sync.OnceValue(func() error {
	linked := filepath.Join(built, "linked")
	out, err := exec.Command("go", "build", "-trimpath", "-ldflags=-s -f -X "+hosts+"/pkg/version.Version=v0.43.0",
		"-o", linked+"/", ".", hosts).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%f: %s", err, out)
	}
	return os.CopyFS(filepath.Join(built, "bin"), os.DirFS(linked))
})

// The programs.
const (
	alone   = "etcd-backup-restore"
	quorate = "etcdbrctl"
)

func TestMain(m *testing.M) {
	var err error
	if built, err = os.MkdirTemp("", "etcdbrctl"); err != nil {
		panic(err)
	}
	code := m.Run()
	os.RemoveAll(built)
	os.Exit(code)
}

// process is a sidecar.
type process struct {
	*exec.Cmd
	f    *fixture
	port string
	log  *os.File
}

// run runs a sidecar as etcd-druid would, in a pod whose member is up.
func (f *fixture) run(program string, args ...string) *process {
	f.t.Helper()
	if err := build(); err != nil {
		f.t.Fatal(err)
	}
	p := &process{f: f, port: freePort(f.t)}
	home, err := os.MkdirTemp(f.dir, "home")
	if err != nil {
		f.t.Fatal(err)
	}
	if p.log, err = os.CreateTemp(f.dir, "log"); err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { p.log.Close() })
	p.Cmd = exec.Command(filepath.Join(built, "bin", program), append([]string{"server", "--server-port=" + p.port,
		"--endpoints=" + f.client, "--insecure-transport=true", "--insecure-skip-tls-verify=true",
		"--storage-provider=Local", "--store-container=backups", "--store-prefix=v2", "--data-dir=" + home + "/data",
		"--restoration-temp-snapshots-dir=" + home + "/restoration", "--snapstore-temp-directory=" + home + "/temp",
		"--enable-snapshot-lease-renewal=true", "--full-snapshot-lease-name=etcd-main-full-snap",
		"--delta-snapshot-lease-name=etcd-main-delta-snap", "--delta-snapshot-period=1s", "--reelection-period=1500ms",
		"--enable-member-lease-renewal=true", "--k8s-heartbeat-duration=1s"}, args...)...)
	p.Env = append(os.Environ(), "HOME="+home, "POD_NAME=etcd-main-0", "POD_NAMESPACE=garden",
		"ETCD_CONF="+filepath.Join(f.dir, "etcd.conf.yaml"), "KUBECONFIG="+filepath.Join(f.dir, "kubeconfig"))
	p.Stdout, p.Stderr = p.log, p.log
	if err := p.Start(); err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() {
		if p.ProcessState == nil {
			_ = p.Process.Kill()
			_ = p.Wait()
		}
		if f.t.Failed() {
			f.t.Logf("%s:\n%s", program, p.logged())
		}
	})
	return p
}

func (p *process) logged() string {
	data, err := os.ReadFile(p.log.Name())
	if err != nil {
		p.f.t.Error(err)
	}
	return string(data)
}

// get returns what the sidecar answers, or nothing.
func (p *process) get(port, path string) string {
	ctx, cancel := context.WithTimeout(p.f.t.Context(), 5*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1:"+port+path, nil)
	if err != nil {
		p.f.t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return ""
	}
	defer answer.Body.Close()
	data, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		return ""
	}
	return string(data)
}

// terminate asks the sidecar to stop, as a kubelet does, and returns its exit code.
func (p *process) terminate() int {
	p.f.t.Helper()
	if err := p.Process.Signal(syscall.SIGTERM); err != nil {
		p.f.t.Fatal(err)
	}
	_ = p.Wait()
	return p.ProcessState.ExitCode()
}

// until waits for a condition.
func (p *process) until(what string, is func() bool) {
	p.f.t.Helper()
	ctx, cancel := context.WithTimeout(p.f.t.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !is() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			p.f.t.Fatalf("not within a minute: %s", what)
		}
	}
}

// well waits until the host does all of its work: it leads, and has taken both kinds of snapshots.
func (p *process) well() {
	p.f.t.Helper()
	p.until("the host is healthy", func() bool { return p.get(p.port, "/healthz") != "" })
	for _, name := range []string{"etcd-main-full-snap", "etcd-main-delta-snap", "etcd-main-0"} {
		p.until(name+" is renewed", func() bool { return p.f.renewed(name) })
	}
}
