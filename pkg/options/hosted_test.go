package options

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/quorate/quorate/coordinator"
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
	o, err := host("--enable-quorum-aware-pod-updates", "--pod-update-max-unavailable=40%", "--pod-update-lock-ttl=20s", "--pod-update-events=false", "--pod-update-promote-current-revision", "--lock-ttl=1s")
	if err != nil {
		t.Fatal(err)
	}
	cfg := coordinator.Config{Namespace: "kept"}
	o.ApplyTo(&cfg)
	want := coordinator.Config{
		Namespace: "kept", Policy: o.Policy, LockTTL: 20 * time.Second,
		FallbackAfter: o.FallbackAfter, RecordDuration: o.RecordDuration, ProbeTimeout: o.ProbeTimeout,
		RequestTimeout: o.RequestTimeout, Interval: o.Interval, MaxEvidenceAge: o.MaxEvidenceAge,
	}
	if cfg.Policy != want.Policy || cfg.LockTTL != want.LockTTL || cfg.FallbackAfter != want.FallbackAfter || cfg.RecordDuration != want.RecordDuration ||
		cfg.ProbeTimeout != want.ProbeTimeout || cfg.RequestTimeout != want.RequestTimeout || cfg.Interval != want.Interval || cfg.MaxEvidenceAge != want.MaxEvidenceAge || cfg.Namespace != "kept" {
		t.Errorf("\n got %+v\nwant %+v", cfg, want)
	}
	if !o.Enabled || o.Policy.MaxUnavailable.String() != "40%" || o.Events || !o.PromoteCurrentRevision {
		t.Errorf("got %+v", o)
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
		{"a value out of bounds", []string{"--enable-quorum-aware-pod-updates", "--pod-update-lock-ttl=1s"}, "--pod-update-lock-ttl: 1s: must be whole seconds, at least 2s"},
		{"a value of the wrong kind", []string{"--pod-update-max-unavailable=many"}, `invalid argument "many" for "--pod-update-max-unavailable" flag: "many" is neither a number`},
		{"one against another", []string{"--enable-quorum-aware-pod-updates", "--pod-update-max-evidence-age=1s"}, "--pod-update-max-evidence-age: 1s: must exceed twice --pod-update-probe-timeout (2s)"},
		{"zero is no default", []string{"--enable-quorum-aware-pod-updates", "--pod-update-interval=0s"}, "--pod-update-interval: 0s: must be positive"},
		{"a file that is not there", []string{"--enable-quorum-aware-pod-updates", "--pod-update-config=/nowhere"}, `--pod-update-config: "/nowhere": no such file or directory`},
		{"a value in the file", []string{"--enable-quorum-aware-pod-updates", "--pod-update-config=" + file}, `lock-ttl in "` + file + `": 1s: must be whole seconds, at least 2s`},
		{"a flag against the file", []string{"--enable-quorum-aware-pod-updates", "--pod-update-config=" + file, "--pod-update-lock-ttl=4s"}, `--pod-update-lock-ttl: 4s: two thirds of it must cover probe-timeout in "` + file + `" (3s)`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := host(tc.args...)
			if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.HasPrefix(err.Error(), tc.want)) {
				t.Errorf("got %v, want %s", err, tc.want)
			}
		})
	}
}
