package options

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/quorate/quorate/coordinator"
	"github.com/quorate/quorate/pkg/rollout"
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

// The host's own flags, whatever they are called, stay as they are.
func TestAHostsHelpShowsWhatItsRowGivesAReasonFor(t *testing.T) {
	fs := pflag.NewFlagSet("host", pflag.ContinueOnError)
	fs.String("pod-name", "", "the host's own")
	NewHosted().AddFlags(fs)
	for name, shown := range map[string]bool{"pod-name": true, "enable-quorum-aware-pod-updates": true,
		"pod-update-config": true, "pod-update-max-unavailable": true, "pod-update-lock-ttl": false} {
		if fs.Lookup(name).Hidden == shown {
			t.Errorf("--%s: shown %v", name, !shown)
		}
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
