package options

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/quorate/quorate/coordinator"
	"github.com/quorate/quorate/internal/rollout"
)

// host does with a command line what a host does, and returns the first error.
func host(args ...string) (*Hosted, error) {
	o := NewHosted()
	fs := pflag.NewFlagSet("host", pflag.ContinueOnError)
	fs.StringSliceP("endpoints", "e", nil, "the host's own") // Taken already, as many other names may be.
	fs.Duration("lock-ttl", 0, "the host's own")
	o.AddFlags(fs)
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	return o, o.Validate()
}

// rawHosted is what a host's configuration struct looks like.
type rawHosted struct {
	PodUpdates *Hosted `json:"podUpdates,omitempty"`
}

// inFile reads a host's configuration file as etcd-backup-restore reads its own: defaults first.
func inFile(t *testing.T, content string) (*Hosted, error) {
	t.Helper()
	c := rawHosted{PodUpdates: NewHosted()}
	err := yaml.Unmarshal([]byte(content), &c)
	return c.PodUpdates, err
}

// plainNames are the flags that register adds, less a prefix.
func plainNames(prefix string, register func(*pflag.FlagSet)) []string {
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	register(fs)
	var names []string
	fs.VisitAll(func(f *pflag.Flag) { names = append(names, strings.TrimPrefix(f.Name, prefix)) })
	slices.Sort(names)
	return names
}

func TestAHostHasTheFlagsOfARolloutUnderAPrefixAndAToggle(t *testing.T) {
	all := func(fs *pflag.FlagSet) { o := NewRollout(); o.addAll(fs) }
	want := append(plainNames("", all), "config", "enable-quorum-aware-pod-updates")
	slices.Sort(want)
	if got := plainNames("pod-update-", NewHosted().AddFlags); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	sidecar := plainNames("", NewSidecar().AddFlags)
	for _, name := range plainNames("", all) {
		if !slices.Contains(sidecar, name) {
			t.Errorf("a sidecar has no --%s", name)
		}
	}
}

// A text that names another flag would name one that a host does not have.
func TestNoHelpOfARolloutNamesAFlag(t *testing.T) {
	fs := pflag.NewFlagSet("host", pflag.ContinueOnError)
	NewHosted().AddFlags(fs)
	fs.VisitAll(func(f *pflag.Flag) {
		if strings.Contains(f.Usage, "--") {
			t.Errorf("--%s: %s", f.Name, f.Usage)
		}
	})
}

func TestAHostsHelpShowsTheFewThatDependOnTheCluster(t *testing.T) {
	fs := pflag.NewFlagSet("host", pflag.ContinueOnError)
	fs.String("pod-name", "", "the host's own")
	NewHosted().AddFlags(fs)
	var shown []string
	fs.VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			shown = append(shown, f.Name)
		}
	})
	want := []string{
		"enable-quorum-aware-pod-updates", "pod-name", "pod-update-config",
		"pod-update-defragment-when", "pod-update-defragment-window", "pod-update-max-unavailable",
		"pod-update-promote-current-revision", "pod-update-removal", "pod-update-settle-timeout",
	}
	if !slices.Equal(shown, want) {
		t.Errorf("got %v, want %v", shown, want)
	}
}

func TestThePageListsEveryFlagOfAHost(t *testing.T) {
	page, err := os.ReadFile("../../docs/embedding.md")
	if err != nil {
		t.Fatal(err)
	}
	o := NewHosted()
	keys := map[string]string{"enable-quorum-aware-pod-updates": "`enabled`"}
	for key, flag := range o.inJSON() {
		keys["pod-update-"+flag.Name] = "`" + key + "`"
	}
	fs := pflag.NewFlagSet("host", pflag.ContinueOnError)
	o.AddFlags(fs)
	fs.VisitAll(func(f *pflag.Flag) {
		shown := "yes"
		if f.Hidden {
			shown = ""
		}
		row := strings.Join(strings.Fields(fmt.Sprintf("| `--%s` | %s | %s |", f.Name, keys[f.Name], shown)), " ")
		if !strings.Contains(string(page), "\n"+row) {
			t.Errorf("docs/embedding.md has no row %s", row)
		}
	})
}

func TestAHostsConfigurationFileSetsEverything(t *testing.T) {
	var c rawHosted // The host has set no defaults.
	err := yaml.Unmarshal([]byte(`podUpdates:
  enabled: true
  maxUnavailable: 40%
  removal: delete
  trustedMembers: [etcd-x, etcd-y]
  allowVolatileData: true
  settleTimeout: 7m
  deadAfter: 25s
  leavingPatience: 26m
  readNodes: true
  drainTaints: [acme.io/drain, maintenance]
  ghostAfter: 27m
  maxLag: 77
  lockTTL: 20s
  fallbackAfter: 21s
  recordDuration: 22s
  probeTimeout: 3s
  requestTimeout: 23s
  interval: 4s
  maxEvidenceAge: 24s
  events: false
  promoteCurrentRevision: true
  holdBeforeLast: true
  defragmentWhen: on
  defragmentWindow: 02:00-04:00 UTC
  keepNoSpace: true
  defragmentTimeout: 3m
  quotaBytes: 8589934592
`), &c)
	if err != nil {
		t.Fatal(err)
	}
	want := Rollout{
		Policy: rollout.Policy{
			MaxUnavailable: rollout.Amount{Number: 40, Percent: true}, Removal: rollout.RemoveByDelete,
			TrustedMembers: []string{"etcd-x", "etcd-y"}, AllowVolatileData: true, HoldBeforeLast: true,
			SettleTimeout: 7 * time.Minute, DeadAfter: 25 * time.Second,
			LeavingPatience: 26 * time.Minute, MaxLag: 77,
			GhostAfter:       27 * time.Minute,
			DefragmentWhen:   rollout.DefaultFragmentation(),
			DefragmentWindow: rollout.Window{From: 2 * time.Hour, To: 4 * time.Hour}, KeepNoSpace: true,
			DefragmentTimeout: 3 * time.Minute, QuotaBytes: 8 << 30,
		},
		LockTTL: 20 * time.Second, FallbackAfter: 21 * time.Second, RecordDuration: 22 * time.Second,
		ProbeTimeout: 3 * time.Second, RequestTimeout: 23 * time.Second, Interval: 4 * time.Second,
		MaxEvidenceAge: 24 * time.Second, PromoteCurrentRevision: true, ReadNodes: true,
		DrainTaints: []string{"acme.io/drain", "maintenance"},
	}
	got := c.PodUpdates
	if err := got.Validate(); err != nil || !got.Enabled || !reflect.DeepEqual(got.Rollout, want) {
		t.Errorf("%v\n got %+v\nwant %+v", err, got.Rollout, want)
	}

	// A host prints its options in this form. What it prints can be its file.
	written, err := yaml.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	again, err := inFile(t, string(written))
	if err != nil || !reflect.DeepEqual(again.Rollout, want) || !again.Enabled {
		t.Errorf("%v\n%s\n got %+v\nwant %+v", err, written, again.Rollout, want)
	}
	for _, line := range []string{"settleTimeout: 7m0s", "lockTTL: 20s", "maxUnavailable: 40%", "maxLag: 77"} {
		if !strings.Contains(string(written), line) {
			t.Errorf("%q is not in\n%s", line, written)
		}
	}
	all := plainNames("", func(fs *pflag.FlagSet) { o := NewRollout(); o.addAll(fs) })
	if keys := len(regexp.MustCompile(`(?m)^ *\w+:`).FindAllString(string(written), -1)); keys != len(all)+2 {
		t.Errorf("%d keys, want the section, the toggle and %v:\n%s", keys, all, written)
	}
}

func TestAHostsConfigurationFileLeavesWhatItDoesNotMention(t *testing.T) {
	for _, content := range []string{
		"podUpdates: {enabled: true, lockTTL: 20s}", "podUpdates: {enabled: true, lockTTL: 20s, interval: null}",
		"podUpdates: {enabled: true, lockTTL: 20s, ofANewerVersion: {a: b}}", // As the host skips it.
	} {
		o, err := inFile(t, content)
		want := NewRollout()
		want.LockTTL = 20 * time.Second
		if err != nil || !o.Enabled || !reflect.DeepEqual(o.Rollout, want) {
			t.Errorf("%s: %v\n got %+v\nwant %+v", content, err, o.Rollout, want)
		}
	}
	written, err := yaml.Marshal(rawHosted{PodUpdates: NewHosted()})
	if err != nil {
		t.Fatal(err)
	}
	if o, err := inFile(t, string(written)); err != nil || o.Validate() != nil || o.LockTTL != coordinator.DefaultLockTTL {
		t.Errorf("the defaults do not come back from\n%s: %v, %+v", written, err, o)
	}
}

func TestErrorsNameTheKeysOfAHostsConfigurationFile(t *testing.T) {
	for _, tc := range []struct{ name, content, want string }{
		{"a number of nanoseconds", "podUpdates: {lockTTL: 20000000000}",
			"lockTTL: 20000000000: use a duration such as 10s or 1m30s"},
		{"one line for each", "podUpdates: {maxUnavailable: none, interval: [1s]}",
			"interval: [\"1s\"]: must be a single value\nmaxUnavailable: \"none\": "},
		{"a value out of bounds", "podUpdates: {enabled: true, lockTTL: 1s}",
			"lockTTL: 1s: must be whole seconds, at least 2s"},
		{"against a default", "podUpdates: {enabled: true, probeTimeout: 4s}",
			"--pod-update-max-evidence-age: 6s: must be at least 10s: twice probeTimeout (4s)"},
		{"off, nothing is judged", "podUpdates: {lockTTL: 1s}", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o, err := inFile(t, tc.content)
			if err == nil {
				err = o.Validate()
			}
			if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("got %v, want %s", err, tc.want)
			}
		})
	}
}

func TestAFlagThatWasGivenIsNamedAlthoughTheHostsFileHasItToo(t *testing.T) {
	o, err := inFile(t, "podUpdates: {enabled: true, lockTTL: 20s}")
	if err != nil {
		t.Fatal(err)
	}
	fs := pflag.NewFlagSet("host", pflag.ContinueOnError)
	o.AddFlags(fs)
	if err := fs.Parse([]string{"--pod-update-lock-ttl=1s"}); err != nil {
		t.Fatal(err)
	}
	if err := o.Validate(); err == nil || !strings.HasPrefix(err.Error(), "--pod-update-lock-ttl: 1s: ") {
		t.Errorf("got %v", err)
	}
}

func TestAPodSaysWhichStatefulSetAHostIsIn(t *testing.T) {
	const nameless = `POD_NAME: %q: does not end in an ordinal, as etcd-main-0 does; let the container have it ` +
		`from the field metadata.name`
	const noNamespace = "POD_NAMESPACE: is not set; let the container have it from the field metadata.namespace"
	for _, tc := range []struct{ name, namespace, pod, set, want string }{
		{"a pod of a StatefulSet", "garden", "etcd-main-12", "etcd-main", ""},
		{"no environment", "", "", "", noNamespace + "\n" + fmt.Sprintf(nameless, "")},
		{"a pod of a Deployment", "garden", "etcd-main-7bcd9", "", fmt.Sprintf(nameless, "etcd-main-7bcd9")},
		{"an ordinal alone", "garden", "0", "", fmt.Sprintf(nameless, "0")},
		{"no name before the ordinal", "garden", "-0", "", fmt.Sprintf(nameless, "-0")},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := NewHosted()
			o.Enabled = true
			rc := &rest.Config{Host: "https://here:6443", QPS: 5}
			cfg, err := o.Config(environment(map[string]string{"POD_NAMESPACE": tc.namespace, "POD_NAME": tc.pod}), rc)
			if tc.want != "" {
				if err == nil || err.Error() != tc.want {
					t.Errorf("\n got %v\nwant %s", err, tc.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if cfg.Namespace != tc.namespace || cfg.PodName != tc.pod || cfg.StatefulSet != tc.set ||
				cfg.LockTTL != o.LockTTL || rc.QPS != 5 {
				t.Errorf("got %+v", cfg)
			}
			cfg.Dial, cfg.Endpoints = (&Etcd{}).Dial(time.Second), []string{"http://here:2379"}
			if _, err := coordinator.New(cfg); err != nil {
				t.Errorf("something is left to the host: %v", err)
			}
		})
	}
}

func TestAHostThatDidNotValidateIsToldByConfig(t *testing.T) {
	o := NewHosted()
	o.Enabled, o.LockTTL = true, time.Second
	_, err := o.Config(environment(map[string]string{"POD_NAMESPACE": "garden", "POD_NAME": "etcd-main-0"}),
		&rest.Config{})
	if err == nil || !strings.HasPrefix(err.Error(), "--pod-update-lock-ttl: 1s: ") {
		t.Errorf("got %v", err)
	}
}

// What a guard advises is shown wherever Quorate runs. In a host the flags have other names.
func TestNoAdviceOfAGuardNamesAFlagOfTheSidecar(t *testing.T) {
	sidecar := plainNames("", NewSidecar().AddFlags)
	for i := range rollout.Guards {
		g := &rollout.Guards[i]
		for _, name := range sidecar {
			if strings.Contains(g.Protects+g.Looks+g.Do, "`--"+name) {
				t.Errorf("%s: --%s", g.Name, name)
			}
		}
	}
}

func TestEveryNumberThatIsCheckedHasAFlag(t *testing.T) {
	o := NewRollout()
	names := plainNames("", o.addAll)
	for field, flag := range flagOf {
		if !slices.Contains(names, flag) {
			t.Errorf("%s: there is no --%s", field, flag)
		}
	}
	// With everything wrong, only what has no flag may go by its field's name.
	err := (&Rollout{}).validate(func(flag string) string { return "--" + flag })
	for _, line := range strings.Split(err.Error(), "\n") {
		if !strings.HasPrefix(line, "--") {
			t.Error(line)
		}
	}
}

func TestWhatAHostSetsReachesTheCoordinator(t *testing.T) {
	const on = "--enable-quorum-aware-pod-updates"
	// Each field has a value of its own, so that none can stand in for another.
	o, err := host(on, "--pod-update-max-unavailable=40%", "--pod-update-lock-ttl=20s",
		"--pod-update-fallback-after=21s", "--pod-update-record-duration=22s",
		"--pod-update-probe-timeout=3s", "--pod-update-request-timeout=23s", "--pod-update-interval=4s",
		"--pod-update-max-evidence-age=24s", "--pod-update-drain-taints=acme.io/drain",
		"--pod-update-promote-current-revision", "--lock-ttl=1s")
	if err != nil {
		t.Fatal(err)
	}
	events := corev1.NewForConfigOrDie(&rest.Config{}).Events("garden")
	got := coordinator.Config{Namespace: "garden", Events: events}
	o.ApplyTo(&got)
	want := coordinator.Config{
		Namespace: "garden", Events: events, Policy: rollout.DefaultPolicy(), LockTTL: 20 * time.Second,
		FallbackAfter: 21 * time.Second, RecordDuration: 22 * time.Second,
		ProbeTimeout: 3 * time.Second, RequestTimeout: 23 * time.Second, Interval: 4 * time.Second,
		MaxEvidenceAge:         24 * time.Second,
		PromoteCurrentRevision: true, DrainTaints: []string{"acme.io/drain"},
	}
	want.Policy.MaxUnavailable = rollout.Amount{Number: 40, Percent: true}
	if !o.Enabled || !reflect.DeepEqual(got, want) {
		t.Errorf("\n got %+v\nwant %+v", got, want)
	}

	if o, err = host(on, "--pod-update-events=false"); err != nil {
		t.Fatal(err)
	}
	o.ApplyTo(&got)
	if got.Events != nil || got.PromoteCurrentRevision {
		t.Errorf("got %+v", got)
	}
}

func TestAHostsErrorsNameTheFlagsAsItsUserWroteThem(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pods.yaml")
	if err := os.WriteFile(file, []byte("lock-ttl: 1s\nprobe-timeout: 3s\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name string
		args []string
		want string
	}{
		{"off, nothing is judged", []string{"--pod-update-lock-ttl=1s", "--pod-update-config=/nowhere"}, ""},
		{"the defaults are good", []string{"--enable-quorum-aware-pod-updates"}, ""},
		{"a value out of bounds", []string{"--enable-quorum-aware-pod-updates", "--pod-update-lock-ttl=1s"},
			"--pod-update-lock-ttl: 1s: must be whole seconds, at least 2s"},
		{"a value of the wrong kind", []string{"--pod-update-max-unavailable=many"},
			`invalid argument "many" for "--pod-update-max-unavailable" flag: "many" is neither a number`},
		{"one against another", []string{"--enable-quorum-aware-pod-updates", "--pod-update-max-evidence-age=1s"},
			"--pod-update-max-evidence-age: 1s: must be at least 6s: twice --pod-update-probe-timeout (2s)"},
		{"zero is no default", []string{"--enable-quorum-aware-pod-updates", "--pod-update-interval=0s"},
			"--pod-update-interval: 0s: must be positive"},
		{"a file that is not there", []string{"--enable-quorum-aware-pod-updates", "--pod-update-config=/nowhere"},
			`--pod-update-config: "/nowhere": no such file or directory`},
		{"a value in the file", []string{"--enable-quorum-aware-pod-updates", "--pod-update-config=" + file},
			`lock-ttl in "` + file + `": 1s: must be whole seconds, at least 2s`},
		{"a flag against the file", []string{"--enable-quorum-aware-pod-updates", "--pod-update-config=" + file,
			"--pod-update-lock-ttl=4s"}, `--pod-update-lock-ttl: 4s: two thirds of it must cover probe-timeout in "` +
			file + `" (3s)`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := host(tc.args...)
			if tc.want == "" && err != nil || tc.want != "" &&
				(err == nil || !strings.HasPrefix(err.Error(), tc.want)) {
				t.Errorf("got %v, want %s", err, tc.want)
			}
		})
	}
}
