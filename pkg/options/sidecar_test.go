package options

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"maps"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/spf13/pflag"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/quorate/quorate/coordinator"
	"github.com/quorate/quorate/pkg/rollout"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func environment(env map[string]string) func(string) string {
	return func(key string) string { return env[key] }
}

// parse does with a command line what the command does.
func parse(t *testing.T, env map[string]string, args ...string) *Sidecar {
	t.Helper()
	o := NewSidecar()
	fs := pflag.NewFlagSet("sidecar", pflag.ContinueOnError)
	o.AddFlags(fs)
	if err := fs.Parse(args); err != nil {
		t.Fatal(err)
	}
	if err := o.Complete(environment(env)); err != nil {
		t.Fatal(err)
	}
	return o
}

var inAPod = map[string]string{"POD_NAME": "etcd-main-1", "POD_NAMESPACE": "garden"}

func TestEveryFlagHasHelpAndTheNameThatEtcdBackupRestoreGivesIt(t *testing.T) {
	fs := pflag.NewFlagSet("sidecar", pflag.ContinueOnError)
	NewSidecar().AddFlags(fs)
	fs.VisitAll(func(f *pflag.Flag) {
		if f.Usage == "" {
			t.Errorf("--%s has no help", f.Name)
		}
		if f.Name != strings.ToLower(f.Name) || strings.Contains(f.Name, "_") {
			t.Errorf("--%s is not in kebab case", f.Name)
		}
		if f.Changed {
			t.Errorf("--%s has changed before it was given", f.Name)
		}
	})
	for _, name := range []string{"endpoints", "cacert", "cert", "key", "etcd-insecure-skip-tls-verify",
		"etcd-username", "etcd-password", "kubeconfig", "namespace", "statefulset", "pod-name"} {
		if fs.Lookup(name) == nil {
			t.Errorf("there is no --%s", name)
		}
	}
	if f := fs.ShorthandLookup("e"); f == nil || f.Name != "endpoints" {
		t.Error("-e is not --endpoints")
	}
}

func TestDefaults(t *testing.T) {
	o := parse(t, inAPod)
	if err := o.Validate(); err != nil {
		t.Fatalf("the defaults in a pod are refused: %v", err)
	}
	if !slices.Equal(o.Etcd.Endpoints, []string{"http://127.0.0.1:2379"}) || o.Log.Level != "info" ||
		o.Log.Format != "text" || o.ListenAddress != "" {
		t.Errorf("got %+v", o)
	}
}

func TestFlagsReachTheirOptions(t *testing.T) {
	o := parse(t, inAPod, "-e", "https://a:2379,https://b:2379", "--endpoints", "https://c:2379",
		"--insecure-skip-tls-verify", "--etcd-username=u", "--etcd-password=p",
		"--etcd-container=member", "--sidecar-container=agent", "--etcd-data-dir=/data",
		"--listen-address=:8090", "--log-level=debug", "--log-format=json", "--cacert=ca", "--cert=c", "--key=k")
	want := NewSidecar()
	want.Etcd = Etcd{Endpoints: []string{"https://a:2379", "https://b:2379", "https://c:2379"}, CACert: "ca", Cert: "c",
		Key: "k", InsecureSkipVerify: true, Username: "u", Password: "p"}
	want.Kubernetes = Kubernetes{
		Namespace: "garden", PodName: "etcd-main-1", StatefulSet: "etcd-main",
		EtcdContainer: "member", SidecarContainer: "agent", EtcdDataDir: "/data",
	}
	want.Log = Log{Level: "debug", Format: "json"}
	if !slices.Equal(o.Etcd.Endpoints, want.Etcd.Endpoints) {
		t.Errorf("endpoints %v", o.Etcd.Endpoints)
	}
	if o.Kubernetes != want.Kubernetes || o.Log != want.Log || o.ListenAddress != ":8090" {
		t.Errorf("\n got %+v\nwant %+v", o, want)
	}
	if o.Etcd.CACert != "ca" || o.Etcd.Cert != "c" || o.Etcd.Key != "k" || !o.Etcd.InsecureSkipVerify ||
		o.Etcd.Username != "u" || o.Etcd.Password != "p" {
		t.Errorf("etcd %+v", o.Etcd)
	}
}

func TestMaxUnavailableIsANumberOrAPercentage(t *testing.T) {
	for _, tc := range []struct {
		value string
		want  rollout.Amount
		err   string
	}{
		{"2", rollout.Amount{Number: 2}, ""},
		{"40%", rollout.Amount{Number: 40, Percent: true}, ""},
		{"0", rollout.Amount{}, `"0" is below 1, so nothing could ever be replaced`},
		{"101%", rollout.Amount{}, `"101%" is above 100%`},
		{"many", rollout.Amount{}, `"many" is neither a number nor a percentage such as 40%`},
	} {
		t.Run(tc.value, func(t *testing.T) {
			o := NewSidecar()
			fs := pflag.NewFlagSet("test", pflag.ContinueOnError)
			o.AddFlags(fs)
			err := fs.Parse([]string{"--max-unavailable=" + tc.value})
			switch {
			case tc.err == "" && (err != nil || o.Policy.MaxUnavailable != tc.want):
				t.Errorf("got %v (%v), want %v", o.Policy.MaxUnavailable, err, tc.want)
			case tc.err != "" && (err == nil || !strings.Contains(err.Error(), tc.err)):
				t.Errorf("got %v, want an error that says %s", err, tc.err)
			}
		})
	}
}

func TestTheEnvironmentFillsInWhatNoFlagSays(t *testing.T) {
	for _, tc := range []struct {
		name string
		env  map[string]string
		args []string
		want Kubernetes
	}{
		{"a pod knows itself", inAPod, nil, Kubernetes{Namespace: "garden", PodName: "etcd-main-1",
			StatefulSet: "etcd-main"}},
		{"flags win", inAPod, []string{"--namespace=n", "--pod-name=etcd-events-0", "--kubeconfig=k"},
			Kubernetes{Namespace: "n", PodName: "etcd-events-0", StatefulSet: "etcd-events", Kubeconfig: "k"}},
		{"a StatefulSet that is named wins over the pod's name", inAPod, []string{"--statefulset=other"},
			Kubernetes{Namespace: "garden", PodName: "etcd-main-1", StatefulSet: "other"}},
		{"KUBECONFIG", map[string]string{"KUBECONFIG": "/k"}, []string{"--namespace=n", "--statefulset=s"},
			Kubernetes{Kubeconfig: "/k", Namespace: "n", StatefulSet: "s", fromEnvironment: true}},
		{"an ordinal of two digits", map[string]string{"POD_NAME": "etcd-10"}, nil,
			Kubernetes{PodName: "etcd-10", StatefulSet: "etcd"}},
		{"a pod of a Job belongs to no StatefulSet", map[string]string{"POD_NAME": "quorate-x7k2p"}, nil,
			Kubernetes{PodName: "quorate-x7k2p"}},
		{"a name without an ordinal", map[string]string{"POD_NAME": "etcd"}, nil, Kubernetes{PodName: "etcd"}},
		{"a name of an ordinal alone", map[string]string{"POD_NAME": "-1"}, nil, Kubernetes{PodName: "-1"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			want := tc.want
			want.EtcdContainer, want.SidecarContainer = "etcd", "backup-restore"
			if got := parse(t, tc.env, tc.args...).Kubernetes; got != want {
				t.Errorf("got %+v, want %+v", got, want)
			}
		})
	}
}

// files are certificates and the like, in one directory.
type files struct{ ca, cert, key, otherKey, garbage, empty, missing, directory string }

func makeFiles(t *testing.T) files {
	t.Helper()
	dir := t.TempDir()
	write := func(name string, data []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	newKey := func() (*ecdsa.PrivateKey, []byte) {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		der, err := x509.MarshalECPrivateKey(key)
		if err != nil {
			t.Fatal(err)
		}
		return key, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})
	}
	key, keyPEM := newKey()
	_, otherPEM := newKey()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage:    x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	certPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return files{
		ca: write("ca.crt", certPEM), cert: write("tls.crt", certPEM), key: write("tls.key", keyPEM),
		otherKey: write("other.key", otherPEM),
		garbage:  write("garbage", []byte("not PEM")), empty: write("empty", nil),
		missing: filepath.Join(dir, "missing"), directory: dir,
	}
}

func TestBadInputNamesTheFlagAndItsValueInOneLine(t *testing.T) {
	f := makeFiles(t)
	for _, tc := range []struct {
		name string
		args []string
		want []string
	}{
		{"no endpoints", []string{"--endpoints="}, []string{"--endpoints: is empty"}},
		{"an endpoint without a scheme", []string{"-e", "127.0.0.1:2379"},
			[]string{`--endpoints: "127.0.0.1:2379": not a client URL such as https://`}},
		{"an endpoint that is a host name", []string{"-e", "etcd-main-local:2379"},
			[]string{`--endpoints: "etcd-main-local:2379": not a client URL such as https://`}},
		{"an endpoint of another scheme", []string{"-e", "tcp://etcd:2379"},
			[]string{`--endpoints: "tcp://etcd:2379": not a client URL`}},
		{"an endpoint without a port", []string{"-e", "https://etcd"},
			[]string{`--endpoints: "https://etcd": needs a host and a port`}},
		{"an endpoint without a host", []string{"-e", "https://:2379"},
			[]string{`--endpoints: "https://:2379": needs a host and a port`}},
		{"an endpoint with a port beyond all", []string{"-e", "https://etcd:70000"},
			[]string{`--endpoints: "https://etcd:70000": port 70000 is not between 1 and 65535`}},
		{"an endpoint with a port of letters", []string{"-e", "https://etcd:http"},
			[]string{`--endpoints: "https://etcd:http": invalid port ":http" after host`}},
		{"an endpoint with a path", []string{"-e", "https://etcd:2379/v3"},
			[]string{`--endpoints: "https://etcd:2379/v3": must not have a path ("/v3")`}},
		{"an endpoint with an open bracket", []string{"-e", "http://[::1:2379"},
			[]string{`--endpoints: "http://[::1:2379": missing ']' in host`}},
		{"an endpoint with a query", []string{"-e", "https://etcd:2379?x=1"},
			[]string{`--endpoints: "https://etcd:2379?x=1": must end after the port`}},
		{"an endpoint with a fragment", []string{"-e", "https://etcd:2379#x"},
			[]string{`--endpoints: "https://etcd:2379#x": must end after the port`}},
		{"an endpoint with a password", []string{"-e", "https://root:secret@etcd:2379"},
			[]string{`--endpoints: "https://…@etcd:2379": must not contain a user; use --etcd-username`}},
		{"an endpoint after a space", []string{"-e", "http://a:1, http://b:2"},
			[]string{`--endpoints: " http://b:2": begins or ends with a space`}},
		{"one bad endpoint among good ones", []string{"-e", "http://a:1,b,http://c:2"},
			[]string{`--endpoints: "b": not a client URL`}},
		{"a key without a certificate", []string{"--key", f.key},
			[]string{`--cert "" and --key "` + f.key + `": give both or neither`}},
		{"a certificate without a key", []string{"--cert", f.cert},
			[]string{`--cert "` + f.cert + `" and --key "": give both or neither`}},
		{"a CA that does not exist", []string{"--cacert", f.missing},
			[]string{`--cacert: "` + f.missing + `": no such file or directory`}},
		{"a certificate that does not exist", []string{"--cert", f.missing, "--key", f.key},
			[]string{`--cert: "` + f.missing + `": no such file or directory`}},
		{"a key that does not exist", []string{"--cert", f.cert, "--key", f.missing},
			[]string{`--key: "` + f.missing + `": no such file or directory`}},
		{"a CA without a certificate", []string{"--cacert", f.garbage},
			[]string{`--cacert: "` + f.garbage + `": holds no certificate in PEM`}},
		{"a CA that is empty", []string{"--cacert", f.empty},
			[]string{`--cacert: "` + f.empty + `": holds no certificate in PEM`}},
		{"a CA that is a directory", []string{"--cacert", f.directory},
			[]string{`--cacert: "` + f.directory + `": is a directory, not a file`}},
		{"a certificate that is none", []string{"--cacert", f.ca, "--cert", f.garbage, "--key", f.key},
			[]string{`--cert "` + f.garbage + `" and --key "` + f.key + `": `, "failed to find any PEM data"}},
		{"a key of another certificate", []string{"--cert", f.cert, "--key", f.otherKey},
			[]string{`--key "` + f.otherKey + `"`, "private key does not match public key"}},
		{"a password without a name", []string{"--etcd-password=secret"},
			[]string{"--etcd-password: is set without --etcd-username"}},
		{"a name without a password", []string{"--etcd-username=root"},
			[]string{`--etcd-username: "root": is set without --etcd-password`}},
		{"a kubeconfig that is a directory", []string{"--kubeconfig", f.directory},
			[]string{`--kubeconfig: "` + f.directory + `": is a directory`}},
		{"a namespace that no namespace can be called", []string{"--namespace=a_b"},
			[]string{`--namespace: "a_b": a lowercase RFC 1123 label must consist of`}},
		{"a StatefulSet that no StatefulSet can be called", []string{"--statefulset=a/b"},
			[]string{`--statefulset: "a/b": a lowercase RFC 1123 subdomain must consist of`}},
		{"a pod that no pod can be called", []string{"--pod-name=etcd_main-0", "--statefulset=s"},
			[]string{`--pod-name: "etcd_main-0": a lowercase RFC 1123 subdomain must consist of`}},
		{"a kubeconfig that does not exist", []string{"--kubeconfig", f.missing},
			[]string{`--kubeconfig: "` + f.missing + `": no such file or directory`}},
		{"a taint with its effect", []string{"--drain-taints=acme.io/drain:NoSchedule"},
			[]string{`--drain-taints: "acme.io/drain:NoSchedule": is not the key of a taint`}},
		{"a taint without a key", []string{"--drain-taints=a,,b"},
			[]string{`--drain-taints: "": is not the key of a taint`}},
		{"a member without a name", []string{"--trusted-members=b-0,,c-0"},
			[]string{`--trusted-members: "b-0,,c-0": has an empty name`}},
		{"a container that no container can be called", []string{"--etcd-container=a.b"},
			[]string{`--etcd-container: "a.b": must not contain dots`}},
		{"no container", []string{"--sidecar-container="},
			[]string{`--sidecar-container: "": a lowercase RFC 1123 label must consist of`}},
		{"one container for both", []string{"--sidecar-container=etcd"},
			[]string{`--sidecar-container: "etcd": is the same as --etcd-container`}},
		{"a data directory of nowhere", []string{"--etcd-data-dir=default.etcd"},
			[]string{`--etcd-data-dir: "default.etcd": must be an absolute path, such as /var/etcd/data`}},
		{"a log level", []string{"--log-level=loud"}, []string{`--log-level: "loud": use panic, fatal`}},
		{"a log format", []string{"--log-format=xml"}, []string{`--log-format: "xml": use text or json`}},
		{"a probe timeout of nothing", []string{"--probe-timeout=0s"},
			[]string{"--probe-timeout: 0s: must be positive"}},
		{"a request timeout of less", []string{"--request-timeout=-1s"},
			[]string{"--request-timeout: -1s: must be positive"}},
		{"a record that lapses during a cycle", []string{"--record-duration=7s"},
			[]string{"--record-duration: 7s: two thirds of it must cover 5s, a cycle with members that hang (twice " +
				"--probe-timeout and --interval)"}},
		{"a record of broken seconds", []string{"--record-duration=8500ms"},
			[]string{"--record-duration: 8.5s: must be whole seconds, at least 3s"}},
		{"no patience before the fallback", []string{"--fallback-after=0s"},
			[]string{"--fallback-after: 0s: must be at least 500ms"}},
		{"an interval of nothing", []string{"--interval=0s"}, []string{"--interval: 0s: must be positive"}},
		{"a settle timeout of nothing", []string{"--settle-timeout=0s"},
			[]string{"--settle-timeout: 0s: must be positive"}},
		{"a member that is a ghost at once", []string{"--ghost-after=0s"}, []string{"--ghost-after: 0s: must be positive"}},
		{"a time to be dead of less than nothing", []string{"--dead-after=-1s"},
			[]string{"--dead-after: -1s: must not be negative"}},
		{"a patience of less than nothing", []string{"--leaving-patience=-1s"},
			[]string{"--leaving-patience: -1s: must not be negative"}},
		{"no lag at all", []string{"--max-lag=0"}, []string{"--max-lag: 0: must be positive"}},
		{"a defragmentation at no time", []string{"--defragment-when=on"},
			[]string{"--defragment-when: 45%,200MB,80%: needs --defragment-window"}},
		{"a defragmentation that is given no time", []string{"--defragment-timeout=9s"},
			[]string{"--defragment-timeout: 9s: must be between 10s and 10m0s"}},
		{"a defragmentation for which nobody would wait", []string{"--defragment-timeout=11m"},
			[]string{"--defragment-timeout: 11m0s: must be between 10s and 10m0s"}},
		{"a lock that is too short", []string{"--lock-ttl=1s"},
			[]string{"--lock-ttl: 1s: must be whole seconds, at least 2s"}},
		{"a lock of broken seconds", []string{"--lock-ttl=3500ms"},
			[]string{"--lock-ttl: 3.5s: must be whole seconds, at least 2s"}},
		{"a lock that a slow member would lose", []string{"--lock-ttl=2s"},
			[]string{"--lock-ttl: 2s: two thirds of it must cover --probe-timeout (2s)"}},
		{"patience that ends at the second look", []string{"--settle-timeout=5s", "--dead-after=1s"},
			[]string{"--settle-timeout: 5s: must exceed 5s, a cycle with members that hang (twice --probe-timeout " +
				"and --interval)"}},
		{"patience that ends before a member is dead", []string{"--settle-timeout=10s"},
			[]string{"--dead-after: 10s: must be below --settle-timeout (10s)"}},
		{"an end, in a member's pod", []string{"--until-complete"},
			[]string{`--until-complete: true: is for a Job outside the members' pods, and etcd-main-1 is one of them ` +
				`(--pod-name, or $POD_NAME)`}},
		{"an address without a port", []string{"--listen-address=127.0.0.1"},
			[]string{`--listen-address: "127.0.0.1": needs a host and a port, such as 127.0.0.1:8090`}},
		{"an address with too many colons", []string{"--listen-address=::1:8090"},
			[]string{`--listen-address: "::1:8090": needs a host and a port`}},
		{"an address that is a URL", []string{"--listen-address=http://localhost"},
			[]string{`--listen-address: "http://localhost": port "//localhost" is not`}},
		{"an address with a port beyond all", []string{"--listen-address=:70000"},
			[]string{`--listen-address: ":70000": port "70000" is not between 1 and 65535`}},
		{"an address with port 0", []string{"--listen-address=:0"},
			[]string{`--listen-address: ":0": port "0" is not between 1 and 65535`}},
		{"an address of no host", []string{"--listen-address=my_host:8090"},
			[]string{`--listen-address: "my_host:8090": "my_host" is neither an IP address nor a host name`}},
		{"evidence that could never be young enough", []string{"--max-evidence-age=4s"},
			[]string{"--max-evidence-age: 4s: must be at least 6s: twice --probe-timeout (2s), since"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := parse(t, inAPod, tc.args...).Validate()
			if err == nil {
				t.Fatal("accepted")
			}
			for _, want := range tc.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("got %q, want it to say %q", err, want)
				}
			}
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("more than one line: %q", err)
			}
			if strings.Contains(err.Error(), "secret") {
				t.Errorf("the password is in the message: %q", err)
			}
		})
	}
}

func TestWhatIsMissingIsNamed(t *testing.T) {
	err := parse(t, map[string]string{"POD_NAME": "job-abc"}).Validate()
	if err == nil {
		t.Fatal("accepted")
	}
	want := []string{
		"--namespace: is required (or set POD_NAMESPACE)",
		`--statefulset: is required (or set --pod-name or POD_NAME to a name that ends in an ordinal, such as etcd-main-0; it is "job-abc")`,
	}
	if got := strings.Split(err.Error(), "\n"); !slices.Equal(got, want) {
		t.Errorf("got %q, want one line each: %q", got, want)
	}
}

func TestGoodInputIsAccepted(t *testing.T) {
	f := makeFiles(t)
	for _, args := range [][]string{
		{"-e", "http://127.0.0.1:2379"},
		{"-e", "https://[::1]:2379/"},
		{"-e", "https://etcd-main-local:2379", "--cacert", f.ca, "--cert", f.cert, "--key", f.key},
		{"-e", "https://etcd-main-local:2379", "--insecure-skip-tls-verify"},
		{"--etcd-username=root", "--etcd-password=secret"},
		{"--kubeconfig", f.missing + string(os.PathListSeparator) + f.empty}, // A list is client-go's to judge.
		{"--listen-address=:8090"}, {"--listen-address=[::1]:8090"}, {"--listen-address=localhost:1"},
		{"--listen-address=0.0.0.0:65535"},
		{"--until-complete", "--pod-name=etcd-main-quorate-bootstrap-x7k2p", "--statefulset=etcd-main"},
		{"--lock-ttl=3s", "--record-duration=8s", "--dead-after=0s", "--max-evidence-age=6s"},
	} {
		if err := parse(t, inAPod, args...).Validate(); err != nil {
			t.Errorf("%v: %v", args, err)
		}
	}
}

const kubeconfig = `{apiVersion: v1, kind: Config, current-context: c,
clusters: [{name: c, cluster: {server: "https://127.0.0.1:6443"}}],
users: [{name: u, user: {token: t}}],
contexts: [{name: c, context: {cluster: c, user: u}}]}`

func TestAConfigForTheCoordinatorFollowsTheOptions(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(path, []byte(kubeconfig), 0o600); err != nil {
		t.Fatal(err)
	}
	o := parse(t, inAPod, "--kubeconfig", path, "--interval=6s")
	cfg, err := o.Config("quorate/test", logrus.NewEntry(o.Log.Logger()))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := coordinator.New(cfg); err != nil {
		t.Errorf("the coordinator refuses it: %v", err)
	}
	if cfg.Namespace != "garden" || cfg.StatefulSet != "etcd-main" || cfg.PodName != "etcd-main-1" ||
		cfg.Interval != 6*time.Second || !reflect.DeepEqual(cfg.Policy, o.Policy) {
		t.Errorf("got %+v", cfg)
	}
	if cfg.Events == nil {
		t.Error("events are on by default, but cannot be written")
	}
	o.Events = false
	if quiet, err := o.Config("quorate/test", nil); err != nil || quiet.Events != nil {
		t.Errorf("events are off: got %v (%v)", quiet.Events, err)
	}
	rc, err := o.Kubernetes.RESTConfig("quorate/test")
	if err != nil {
		t.Fatal(err)
	}
	if rc.QPS != -1 || rc.UserAgent != "quorate/test" || rc.Host != "https://127.0.0.1:6443" {
		t.Errorf("got QPS %v, user agent %q, host %q", rc.QPS, rc.UserAgent, rc.Host)
	}
}

func TestAConfigWithoutKubernetesSaysHowToGetOne(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	path := filepath.Join(t.TempDir(), "kubeconfig")
	_, err := parse(t, inAPod).Config("quorate/test", nil)
	if want := "--kubeconfig: is not set, nor is KUBECONFIG, and this is not a pod"; err == nil ||
		!strings.HasPrefix(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
	for content, want := range map[string]string{
		"{":       "error loading config file",
		"":        "names no cluster: it is empty or missing",
		"garbage": "is not a kubeconfig",
		strings.Replace(kubeconfig, "https://127.0.0.1:6443", "http://::bad",
			1): `server "http://::bad": host must be a URL`,
	} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		fromEnvironment := maps.Clone(inAPod)
		fromEnvironment["KUBECONFIG"] = path
		for from, o := range map[string]*Sidecar{
			"--kubeconfig": parse(t, inAPod, "--kubeconfig", path),
			"KUBECONFIG":   parse(t, fromEnvironment),
		} {
			whole := fmt.Sprintf("%s: %q: %s", from, path, want)
			if _, err := o.Config("quorate/test", nil); err == nil || !strings.HasPrefix(err.Error(), whole) {
				t.Errorf("got %v, want %s", err, whole)
			}
		}
	}
}

// A client dials whatever its endpoints say, with the certificates as they are now.
func TestDial(t *testing.T) {
	f := makeFiles(t)
	pair, err := tls.LoadX509KeyPair(f.cert, f.key)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.Creds(credentials.NewTLS(&tls.Config{Certificates: []tls.Certificate{pair},
		ClientAuth: tls.RequireAnyClientCert})))
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(listener) // It ends with Stop.
	}()
	defer func() {
		server.Stop()
		<-served
	}()
	o := Etcd{CACert: f.ca, Cert: f.cert, Key: f.key}
	answer := func(endpoints ...string) string {
		client, err := o.Dial(10 * time.Second)(endpoints)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = client.Close() }()
		_, err = client.MemberList(t.Context())
		return err.Error() // The server knows no such service, which is answer enough.
	}
	if got := answer("https://" + listener.Addr().String()); !strings.Contains(got, "unknown service") {
		t.Errorf("over TLS: %s", got)
	}
	o.CACert = f.missing
	if _, err := o.Dial(time.Second)([]string{"http://127.0.0.1:1", "https://127.0.0.1:2"}); err == nil ||
		!strings.HasPrefix(err.Error(), "TLS for etcd: ") {
		t.Errorf("one https endpoint among others: %v", err)
	}
	client, err := o.Dial(time.Second)([]string{"http://127.0.0.1:1"})
	if err != nil {
		t.Fatalf("plain http needs no certificates: %v", err)
	}
	_ = client.Close()
}

func TestTheLoggerFollowsTheFlags(t *testing.T) {
	var out bytes.Buffer
	l := (&Log{Level: "warn", Format: "json"}).Logger()
	l.SetOutput(&out)
	l.Info("not this")
	l.Warn("this")
	if got := out.String(); !strings.HasPrefix(got, "{") || !strings.Contains(got, `"msg":"this"`) ||
		strings.Contains(got, "not this") {
		t.Errorf("got %s", got)
	}
	out.Reset()
	l = (&Log{Level: "debug", Format: "text"}).Logger()
	l.SetOutput(&out)
	l.Debug("that")
	if got := out.String(); !strings.Contains(got, "msg=that") || !strings.Contains(got, "level=debug") {
		t.Errorf("got %s", got)
	}
}
