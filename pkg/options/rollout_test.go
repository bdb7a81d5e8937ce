package options

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/quorate/quorate/coordinator"
	"github.com/quorate/quorate/internal/settings"
)

// another is a value that is not the default, as people write it.
func another(t *testing.T, s *settings.Setting) string {
	t.Helper()
	switch value := s.Value().(type) {
	case bool:
		return fmt.Sprint(!value)
	case time.Duration:
		return (value + 7*time.Minute).String()
	case uint64:
		return fmt.Sprint(value + 7)
	case []string:
		return "acme.io/drain,maintenance"
	}
	text, ok := map[string]string{"number|percentage": "40%", "delete|evict": "delete", "on|off|numbers": "50%,100MB,90%",
		"time-time": "23:00-01:30 UTC", "bytes": "8GiB"}[s.Unit]
	if !ok {
		t.Fatalf("%s: no value of its type (%s) is known here", s.Name, s.Unit)
	}
	return text
}

// changed are the settings that do not have their defaults.
func changed(o *Rollout) (names []string) {
	defaults := NewRollout()
	before := defaults.table()
	for i, s := range o.table() {
		if fmt.Sprint(s.Value()) != fmt.Sprint(before[i].Value()) {
			names = append(names, s.Name)
		}
	}
	return names
}

func TestEverySettingCanBeGivenByFlagFileAndHost(t *testing.T) {
	defaults := NewRollout()
	for _, s := range defaults.table() {
		value := another(t, &s)
		file := filepath.Join(t.TempDir(), "quorate.yaml")
		if err := os.WriteFile(file, fmt.Appendf(nil, "%s: %s", s.Name, value), 0o600); err != nil {
			t.Fatal(err)
		}
		hosts := func(args ...string) *Rollout {
			o, err := host(args...)
			if err != nil {
				t.Fatal(err)
			}
			return &o.Rollout
		}
		section, err := inFile(t, fmt.Sprintf("podUpdates: {%s: %q}", s.Camel(), value))
		if err != nil {
			t.Fatal(err)
		}
		// A host prints its options in this form. What it prints can be its file.
		written, err := yaml.Marshal(rawHosted{PodUpdates: section})
		if err != nil {
			t.Fatal(err)
		}
		again, err := inFile(t, string(written))
		if err != nil {
			t.Fatal(err)
		}
		for how, o := range map[string]*Rollout{
			"a flag":                       &parse(t, inAPod, "--"+s.Name+"="+value).Rollout,
			"a file":                       &parse(t, inAPod, "--config="+file).Rollout,
			"a host's flag":                hosts("--pod-update-" + s.Name + "=" + value),
			"a host's file":                &section.Rollout,
			"what a host has written":      &again.Rollout,
			"a host's flag beside its own": hosts("--pod-update-"+s.Name+"="+value, "--lock-ttl=1s"),
		} {
			if got := changed(o); len(got) != 1 || got[0] != s.Name {
				t.Errorf("%s of --%s=%s changes %v", how, s.Name, value, got)
			}
		}
	}
}

// Who decides from outside needs the policy, and what says how to look. The rest is a sidecar's alone.
func TestEverySettingOfThePolicyIsAFlagOfAPersonToo(t *testing.T) {
	fs := pflag.NewFlagSet("plan", pflag.ContinueOnError)
	o := NewClient()
	o.AddFlags(fs)
	o.AddEtcdFlags(fs)
	o.AddRolloutFlags(fs)
	defaults := NewRollout()
	for _, s := range defaults.table() {
		want := strings.HasPrefix(s.GoName(), "Policy.") || s.Name == "drain-taints" ||
			s.Name == "probe-timeout" || s.Name == "request-timeout"
		if got := fs.Lookup(s.Name) != nil; got != want {
			t.Errorf("--%s: got %v", s.Name, got)
		}
	}
}

func TestWhatWasChosenReachesTheCoordinator(t *testing.T) {
	events, nodes := corev1.NewForConfigOrDie(&rest.Config{}).Events("garden"),
		corev1.NewForConfigOrDie(&rest.Config{}).Nodes()
	given := coordinator.Config{Namespace: "garden", Events: events, Nodes: nodes}
	o := NewRollout()
	for _, s := range o.Settings() {
		fs := pflag.NewFlagSet("", pflag.ContinueOnError)
		register(fs, &s)
		if err := fs.Set(s.Name, another(t, &s)); err != nil {
			t.Fatal(err)
		}
	}
	got, want := given, o.Config
	o.ApplyTo(&got)
	want.Namespace, want.Events = "garden", events // No nodes are read by default.
	if !reflect.DeepEqual(got, want) {
		t.Errorf("\n got %+v\nwant %+v", got, want)
	}
	got, o.Events, o.ReadNodes = given, false, true
	if o.ApplyTo(&got); got.Events != nil || got.Nodes == nil {
		t.Errorf("got events %v and nodes %v", got.Events, got.Nodes)
	}
}
