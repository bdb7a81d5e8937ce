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

	"github.com/quorate/quorate/pkg/rollout"
)

// withFile parses a command line that names a file of this content.
func withFile(t *testing.T, content string, args ...string) (o *Sidecar, path string, err error) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "quorate.yaml")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	o = NewSidecar()
	fs := pflag.NewFlagSet("sidecar", pflag.ContinueOnError)
	o.AddFlags(fs)
	if err := fs.Parse(append(args, "--config", path)); err != nil {
		t.Fatal(err)
	}
	return o, path, o.Complete(environment(inAPod))
}

func TestAFileSetsWhatNoFlagSets(t *testing.T) {
	const all = `
endpoints: [https://a:2379, https://b:2379]
etcd-username: root
etcd-password: "0123"
insecure-skip-tls-verify: true
namespace: from-file
max-unavailable: 2
removal: evict
settle-timeout: 1m30s
max-lag: 12345678901
events: false
log-level: debug
`
	for _, tc := range []struct {
		name, content string
		args          []string
		check         func(*Sidecar) bool
	}{
		{"a list", all, nil, func(o *Sidecar) bool {
			return slices.Equal(o.Etcd.Endpoints, []string{"https://a:2379", "https://b:2379"})
		}},
		{"a list in one text, as on a command line", "endpoints: https://a:1,https://b:2", nil,
			func(o *Sidecar) bool { return slices.Equal(o.Etcd.Endpoints, []string{"https://a:1", "https://b:2"}) }},
		{"a flag's list replaces the file's", all, []string{"-e", "https://c:2379"},
			func(o *Sidecar) bool { return slices.Equal(o.Etcd.Endpoints, []string{"https://c:2379"}) }},
		{"texts", all, nil, func(o *Sidecar) bool {
			return o.Etcd.Username == "root" && o.Etcd.Password == "0123" && o.Log.Level == "debug"
		}},
		{"switches", all, nil, func(o *Sidecar) bool { return o.Etcd.InsecureSkipVerify && !o.Events }},
		{"a flag wins", all, []string{"--events", "--log-level=warn"},
			func(o *Sidecar) bool { return o.Events && o.Log.Level == "warn" }},
		{"a flag wins even with the default", all, []string{"--settle-timeout=5m"},
			func(o *Sidecar) bool { return o.Policy.SettleTimeout == 5*time.Minute }},
		{"a flag wins even over what is wrong", "lock-ttl: soon", []string{"--lock-ttl=5s"},
			func(o *Sidecar) bool { return o.LockTTL == 5*time.Second }},
		{"the file wins over the environment", all, nil,
			func(o *Sidecar) bool { return o.Kubernetes.Namespace == "from-file" }},
		{"the environment fills the rest", all, nil,
			func(o *Sidecar) bool { return o.Kubernetes.StatefulSet == "etcd-main" }},
		{"a number", all, nil, func(o *Sidecar) bool { return o.Policy.MaxUnavailable == rollout.Amount{Number: 2} }},
		{"a percentage", "max-unavailable: 40%", nil,
			func(o *Sidecar) bool { return o.Policy.MaxUnavailable == rollout.Amount{Number: 40, Percent: true} }},
		{"a large number as it is written", all, nil, func(o *Sidecar) bool { return o.Policy.MaxLag == 12345678901 }},
		{"a choice", all, nil, func(o *Sidecar) bool { return o.Policy.Removal == rollout.RemoveByEviction }},
		{"a duration", all, nil, func(o *Sidecar) bool { return o.Policy.SettleTimeout == 90*time.Second }},
		{"what is not in it keeps its default", all, nil,
			func(o *Sidecar) bool { return o.LockTTL == NewRollout().LockTTL }},
		{"nothing but a comment", "# nothing yet\n", nil,
			func(o *Sidecar) bool { return reflect.DeepEqual(o.Rollout, NewRollout()) }},
		{"an empty file", "", nil, func(o *Sidecar) bool { return reflect.DeepEqual(o.Rollout, NewRollout()) }},
		{"JSON is YAML", `{"lock-ttl": "20s"}`, nil, func(o *Sidecar) bool { return o.LockTTL == 20*time.Second }},
		{"comments and marks around it", "# quorate\n---\nlock-ttl: 20s\n---\n# the end\n", nil,
			func(o *Sidecar) bool { return o.LockTTL == 20*time.Second }},
		{"a document may be marked", "---\nlock-ttl: 20s\n", nil,
			func(o *Sidecar) bool { return o.LockTTL == 20*time.Second }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o, _, err := withFile(t, tc.content, tc.args...)
			if err != nil {
				t.Fatal(err)
			}
			if !tc.check(o) {
				t.Errorf("got %+v", o)
			}
			if err := o.Validate(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestABadFileIsRefusedByNameKeyAndValue(t *testing.T) {
	for _, tc := range []struct {
		name, content string
		want          []string // the lines, less the file's name
	}{
		{"an unknown key", "lock-tll: 10s",
			[]string{"lock-tll: unknown key; use one of allow-volatile-data, cacert, cert, dead-after,"}},
		{"a key with dashes", "--lock-ttl: 10s", []string{"--lock-ttl: unknown key; use one of"}},
		{"a key of other case", "Lock-TTL: 10s", []string{"Lock-TTL: unknown key; use one of"}},
		{"a file in a file", "config: other.yaml", []string{"config: unknown key; use one of"}},
		{"a duration without a unit", "lock-ttl: 10", []string{"lock-ttl: 10: use a duration such as 10s or 1m30s"}},
		{"a duration of words", "lock-ttl: soon", []string{`lock-ttl: "soon": use a duration such as 10s or 1m30s`}},
		{"a switch of words", "events: sometimes", []string{`events: "sometimes": use true or false`}},
		{"a number below none", "max-lag: -1", []string{"max-lag: -1: use a whole number"}},
		{"a broken number", "max-lag: 1.5", []string{"max-lag: 1.5: use a whole number"}},
		{"an amount of words", "max-unavailable: many",
			[]string{`max-unavailable: "many": "many" is neither a number nor a percentage such as 40%`}},
		{"a choice that is none", "removal: drop", []string{`removal: "drop": use delete or evict`}},
		{"no value", "cacert:", []string{"cacert: null: must be a single value"}},
		{"a list for one", "lock-ttl: [10s]", []string{`lock-ttl: ["10s"]: must be a single value`}},
		{"a number where YAML may have changed the text", "namespace: 0123",
			[]string{"namespace: 83: must be a string; put it in quotes"}},
		{"a switch where YAML may have changed the text", "statefulset: no",
			[]string{"statefulset: false: must be a string; put it in quotes"}},
		{"a list of other things", "endpoints: [1]", []string{"endpoints: [1]: must be a string, or a list of strings"}},
		{"a list that is none", "endpoints: {a: b}",
			[]string{`endpoints: {"a":"b"}: must be a string, or a list of strings`}},
		{"a password is never shown", "etcd-password: 271828",
			[]string{"etcd-password: the value: must be a string; put it in quotes"}},
		{"all that is wrong, in order", "removal: drop\nevents: maybe\n",
			[]string{`events: "maybe": use`, `removal: "drop": use`}},
		{"a duplicate", "lock-ttl: 10s\nlock-ttl: 20s\n",
			[]string{`yaml: unmarshal errors: line 2: key "lock-ttl" already set in map`}},
		{"a duplicate below a comment and a mark", "# quorate\n---\nlock-ttl: 10s\nlock-ttl: 20s\n",
			[]string{`yaml: unmarshal errors: line 4: key "lock-ttl" already set in map`}},
		{"no YAML", "lock-ttl: [", []string{"yaml: "}},
		{"a string", "lock-ttl=10s", []string{"must be keys with values, such as lock-ttl: 10s"}},
		{"a list", "- lock-ttl: 10s", []string{"must be keys with values, such as lock-ttl: 10s"}},
		{"two documents", "lock-ttl: 10s\n---\nlock-ttl: 20s\n", []string{"has more than one YAML document"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, path, err := withFile(t, tc.content)
			if err == nil {
				t.Fatal("accepted")
			}
			lines := strings.Split(err.Error(), "\n")
			if len(lines) != len(tc.want) {
				t.Fatalf("got %q, want %d lines", lines, len(tc.want))
			}
			for i, line := range lines {
				if want := `--config: "` + path + `": ` + tc.want[i]; !strings.HasPrefix(line, want) {
					t.Errorf("\n got %s\nwant %s", line, want)
				}
			}
			if strings.Contains(err.Error(), "271828") {
				t.Error("the password is in the message")
			}
		})
	}
}

func TestAFileThatCannotBeReadIsNamed(t *testing.T) {
	dir := t.TempDir()
	for path, want := range map[string]string{
		filepath.Join(dir, "missing"): "no such file or directory",
		dir:                           "is a directory",
	} {
		o := NewSidecar()
		fs := pflag.NewFlagSet("sidecar", pflag.ContinueOnError)
		o.AddFlags(fs)
		if err := fs.Parse([]string{"--config", path}); err != nil {
			t.Fatal(err)
		}
		if err := o.Complete(environment(inAPod)); err == nil || err.Error() != `--config: "`+path+`": `+want {
			t.Errorf("got %v", err)
		}
	}
}

func TestWhatAFileHasOutOfBoundsIsNamedByItsKey(t *testing.T) {
	for _, tc := range []struct {
		content string
		args    []string
		want    string // KEY stands for what follows a key
	}{
		{"lock-ttl: 1s", nil, "lock-ttl KEY: 1s: must be whole seconds"},
		{"probe-timeout: 4s", []string{"--lock-ttl=20s", "--record-duration=20s"},
			"--max-evidence-age: 6s: must be at least 10s: twice probe-timeout KEY (4s)"},
		{"endpoints: [etcd]", nil, `endpoints KEY: "etcd": not a client URL`},
		{"cacert: /nowhere", nil, `cacert KEY: "/nowhere": no such file or directory`},
		{"key: /nowhere", []string{"--cert=/nowhere"}, `--cert: "/nowhere": no such file`},
		{"etcd-password: secret", nil, "etcd-password KEY: is set without --etcd-username"},
		{"kubeconfig: /nowhere", nil, `kubeconfig KEY: "/nowhere": no such file or directory`},
		{"listen-address: localhost", nil, `listen-address KEY: "localhost": needs a host and a port`},
		{"log-level: loud", nil, `log-level KEY: "loud": use panic`},
		{"log-level: loud", []string{"--log-level=shrill"}, `--log-level: "shrill": use panic`},
	} {
		o, path, err := withFile(t, tc.content, tc.args...)
		if err != nil {
			t.Fatal(err)
		}
		want := strings.ReplaceAll(tc.want, "KEY", `in "`+path+`"`)
		if err := o.Validate(); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", tc.content, err, want)
		}
	}
}
