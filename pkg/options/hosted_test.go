package options

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

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
	if err := o.Complete(); err != nil {
		return o, err
	}
	return o, o.Validate()
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
		"--pod-update-max-evidence-age=24s",
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
		PromoteCurrentRevision: true,
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
