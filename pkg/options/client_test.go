package options

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// twoContexts is a person's kubeconfig.
const twoContexts = `{apiVersion: v1, kind: Config, current-context: here,
clusters: [{name: here, cluster: {server: "https://here:6443"}}, {name: there, cluster: {server: "https://there:6443"}}],
users: [{name: me, user: {token: mine}}],
contexts: [{name: here, context: {cluster: here, user: me, namespace: garden}}, {name: there, context: {cluster: there, user: me}}]}`

// person does with a command line what a command of a person does.
func person(t *testing.T, env map[string]string, args ...string) (*Client, error) {
	t.Helper()
	o := NewClient()
	fs := pflag.NewFlagSet("plan", pflag.ContinueOnError)
	o.AddFlags(fs)
	o.AddEtcdFlags(fs)
	o.AddRolloutFlags(fs)
	if err := fs.Parse(args); err != nil {
		t.Fatal(err)
	}
	if err := o.Complete(environment(env)); err != nil {
		return o, err
	}
	return o, o.Validate()
}

// atHome puts a person at a desk: no pod, and a home with this kubeconfig, if any.
func atHome(t *testing.T, kubeconfig string) (path string) {
	t.Helper()
	dir := t.TempDir()
	for key, value := range map[string]string{"HOME": dir, "KUBERNETES_SERVICE_HOST": "",
		"KUBERNETES_SERVICE_PORT": ""} {
		t.Setenv(key, value)
	}
	path = filepath.Join(dir, ".kube", "config")
	if kubeconfig == "" {
		return path
	}
	if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(kubeconfig), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestAPersonsKubeconfigSaysWhichClusterAndNamespace(t *testing.T) {
	atHome(t, twoContexts)
	other := filepath.Join(t.TempDir(), "other")
	if err := os.WriteFile(other, []byte(strings.ReplaceAll(twoContexts, "garden", "other")), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name                   string
		env                    map[string]string
		args                   []string
		server, namespace, set string
	}{
		{"the file at home", nil, nil, "https://here:6443", "garden", "etcd-main"},
		{"another context, with no namespace", nil, []string{"--context=there"}, "https://there:6443", "default",
			"etcd-main"},
		{"a namespace", nil, []string{"-n", "shoot"}, "https://here:6443", "shoot", "etcd-main"},
		{"a cluster", nil, []string{"--cluster=there"}, "https://there:6443", "garden", "etcd-main"},
		{"a server", nil, []string{"-s", "https://elsewhere:443"}, "https://elsewhere:443", "garden", "etcd-main"},
		{"KUBECONFIG", map[string]string{"KUBECONFIG": other}, nil, "https://here:6443", "other", "etcd-main"},
		{"KUBECONFIG with a file that is missing", map[string]string{"KUBECONFIG": "/nowhere:" + other}, nil,
			"https://here:6443", "other", "etcd-main"},
		{"--kubeconfig", map[string]string{"KUBECONFIG": "/nowhere"}, []string{"--kubeconfig", other},
			"https://here:6443", "other", "etcd-main"},
		{"in a pod, the pod", inAPod, nil, "https://here:6443", "garden", "etcd-main"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			args := tc.args
			if tc.env["POD_NAME"] == "" {
				args = append(args, "--statefulset=etcd-main")
			}
			o, err := person(t, tc.env, args...)
			if err != nil {
				t.Fatal(err)
			}
			cfg, err := o.Kubernetes.RESTConfig("quorate/test")
			if err != nil {
				t.Fatal(err)
			}
			if cfg.Host != tc.server || o.Kubernetes.Namespace != tc.namespace || o.Kubernetes.StatefulSet != tc.set {
				t.Errorf("got %s, namespace %s, StatefulSet %s", cfg.Host, o.Kubernetes.Namespace,
					o.Kubernetes.StatefulSet)
			}
			if cfg.BearerToken != "mine" || cfg.UserAgent != "quorate/test" {
				t.Errorf("token %q, user agent %q", cfg.BearerToken, cfg.UserAgent)
			}
			if joined, err := o.Config("quorate/test", nil); err != nil || joined.Namespace != tc.namespace ||
				joined.StatefulSet != tc.set {
				t.Errorf("got %+v (%v)", joined, err)
			}
		})
	}
}

func TestAPersonsBadInputIsNamed(t *testing.T) {
	path := atHome(t, twoContexts)
	for _, tc := range []struct {
		name string
		args []string
		want string // the whole of it
	}{
		{"no StatefulSet", nil, "--statefulset: is required"},
		{"a context that does not exist", []string{"--statefulset=s", "--context=mars"}, `--kubeconfig: "` + path +
			`": context "mars" does not exist; its contexts are here, there`},
		{"a kubeconfig that does not exist", []string{"--statefulset=s", "--kubeconfig=/nowhere"},
			`--kubeconfig: "/nowhere": no such file or directory`},
		{"no endpoint", []string{"--statefulset=s", "--endpoints="},
			"--endpoints: is empty; name the client URL of at least one etcd member"},
		{"no time to answer", []string{"--statefulset=s", "--probe-timeout=0s"},
			"--probe-timeout: 0s: must be positive"},
		{"no time to request", []string{"--statefulset=s", "--request-timeout=0s"},
			"--request-timeout: 0s: must be positive"},
		{"no patience", []string{"--statefulset=s", "--settle-timeout=0s"}, "--settle-timeout: 0s: must be positive"},
		{"patience that ends early", []string{"--statefulset=s", "--settle-timeout=10s"},
			"--dead-after: 10s: must be below --settle-timeout (10s), or patience ends before a container that " +
				"ended counts as dead"},
		{"a person far away may wait for long", []string{"--statefulset=s", "--probe-timeout=1m"}, ""},
		{"a sidecar with little patience has a policy of its own",
			[]string{"--statefulset=s", "--settle-timeout=3s", "--dead-after=1s"}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := ""
			if _, err := person(t, nil, tc.args...); err != nil {
				got = err.Error()
			}
			if got != tc.want {
				t.Errorf("\n got %s\nwant %s", got, tc.want)
			}
		})
	}
}

func TestAPersonWithoutAClusterIsToldHowToNameOne(t *testing.T) {
	path := atHome(t, "")
	_, err := person(t, nil, "--statefulset=s")
	if want := "--kubeconfig: is not set, nor is KUBECONFIG, there is no " + path +
		", and this is not a pod: name the cluster with one of them"; err == nil || err.Error() != want {
		t.Errorf("\n got %v\nwant %s", err, want)
	}
}

func TestACommandThatCanDoWithoutEtcdNeedsNoEndpoint(t *testing.T) {
	atHome(t, twoContexts)
	o := NewClient()
	o.Etcd = Etcd{Optional: true}
	o.Kubernetes.StatefulSet = "etcd-main" // As from an argument.
	o.AddFlags(pflag.NewFlagSet("pause", pflag.ContinueOnError))
	if err := o.Complete(environment(nil)); err != nil {
		t.Fatal(err)
	}
	if err := o.Validate(); err != nil {
		t.Error(err)
	}
}

// A sidecar's file says what its policy is; what it says besides is of no use to a plan.
func TestAPersonMayUseASidecarsFile(t *testing.T) {
	atHome(t, twoContexts)
	path := filepath.Join(t.TempDir(), "quorate.yaml")
	for _, tc := range []struct{ content, want string }{
		{"max-lag: 7\nlock-ttl: 20s\nlisten-address: :8090\nstatefulset: etcd-main\n", ""},
		{"max-lag: 7\nlock-tll: 20s\n", `--config: "` + path + `": lock-tll: unknown key; use one of `},
		{"config: other.yaml\n", `--config: "` + path + `": config: unknown key; use one of `},
	} {
		if err := os.WriteFile(path, []byte(tc.content), 0o600); err != nil {
			t.Fatal(err)
		}
		o, err := person(t, nil, "--config", path)
		switch {
		case tc.want == "" && (err != nil || o.Policy.MaxLag != 7):
			t.Errorf("got %v, max-lag %d", err, o.Policy.MaxLag)
		case tc.want != "" && (err == nil || !strings.HasPrefix(err.Error(), tc.want)):
			t.Errorf("got %v, want %s", err, tc.want)
		}
	}
}

// kubectl's flag of that name is about the API server, and a file may be a sidecar's.
func TestInsecureIsAboutTheAPIServerAsInKubectl(t *testing.T) {
	atHome(t, twoContexts)
	path := filepath.Join(t.TempDir(), "quorate.yaml")
	if err := os.WriteFile(path, []byte("insecure-skip-tls-verify: true\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		arg       string
		api, etcd bool
	}{
		{"--insecure-skip-tls-verify", true, false},
		{"--etcd-insecure-skip-tls-verify", false, true},
		{"--config=" + path, false, true},
	} {
		o, err := person(t, nil, "--statefulset=s", tc.arg)
		if err != nil {
			t.Fatal(err)
		}
		cfg, err := o.Kubernetes.RESTConfig("")
		if err != nil || cfg.Insecure != tc.api || o.Etcd.InsecureSkipVerify != tc.etcd {
			t.Errorf("%s: the API server %v, etcd %v (%v)", tc.arg, cfg.Insecure, o.Etcd.InsecureSkipVerify, err)
		}
	}
}

func TestHelpShowsFirstWhatMostPeopleNeed(t *testing.T) {
	fs := pflag.NewFlagSet("plan", pflag.ContinueOnError)
	fs.SortFlags = false
	o := NewClient()
	o.AddFlags(fs)
	o.AddEtcdFlags(fs)
	o.AddRolloutFlags(fs)
	fs.Bool("watch", false, "the command's own")
	fs.Bool("all", false, "another")
	var names []string
	for _, g := range Groups(fs) {
		g.Needed().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	}
	want := "watch all config namespace statefulset context kubeconfig endpoints cacert cert key"
	if got := strings.Join(names, " "); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestHelpShowsEveryFlagOnceUnderAHeading(t *testing.T) {
	fs := pflag.NewFlagSet("plan", pflag.ContinueOnError)
	o := NewClient()
	o.AddFlags(fs)
	o.AddEtcdFlags(fs)
	o.AddRolloutFlags(fs)
	NewHosted().AddFlags(fs)
	fs.Bool("all", false, "the command's own")
	seen := map[string]string{}
	var titles []string
	for _, g := range Groups(fs) {
		titles = append(titles, g.Title)
		g.Flags.VisitAll(func(f *pflag.Flag) {
			if in, twice := seen[f.Name]; twice {
				t.Errorf("--%s is under %s and %s", f.Name, in, g.Title)
			}
			seen[f.Name] = g.Title
		})
	}
	fs.VisitAll(func(f *pflag.Flag) {
		if _, shown := seen[f.Name]; !shown {
			t.Errorf("--%s is not shown", f.Name)
		}
	})
	if got := strings.Join(titles, ", "); got != "Flags, Kubernetes flags, etcd flags, Policy flags" {
		t.Errorf("headings %s", got)
	}
	for flag, want := range map[string]string{"all": "Flags", "context": "Kubernetes flags",
		"request-timeout": "Kubernetes flags", "cacert": "etcd flags", "max-lag": "Policy flags"} {
		if seen[flag] != want {
			t.Errorf("--%s is under %q, want %q", flag, seen[flag], want)
		}
	}
}
