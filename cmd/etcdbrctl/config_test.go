package main

import (
	"context"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/gardener/etcd-backup-restore/cmd"
	"github.com/sirupsen/logrus"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// serverCommand is what the flags belong to.
func serverCommand(t *testing.T) *cobra.Command {
	t.Helper()
	c, _, err := command(context.Background()).Find([]string{"server"})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// readArgs reads the configuration for a command line.
func readArgs(t *testing.T, args ...string) (*config, error) {
	t.Helper()
	flags := serverCommand(t).Flags()
	if err := flags.Parse(args); err != nil {
		t.Fatal(err)
	}
	return read(flags)
}

func file(t *testing.T, content string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// druids is what etcd-druid renders for a cluster with TLS.
var druids = []string{"--cacert=/var/etcd/ssl/ca/ca.crt", "--cert=/var/etcd/ssl/client/tls.crt",
	"--key=/var/etcd/ssl/client/tls.key", "--insecure-transport=false", "--insecure-skip-tls-verify=false",
	"--endpoints=https://etcd-main-local:2379", "--service-endpoints=https://etcd-main-client:2379"}

func TestTheConnectionIsTheHosts(t *testing.T) {
	for _, tc := range []struct {
		name string
		args []string
		file string
		want []string // endpoints
		etcd string   // CA, certificate, key, user, password
		skip bool     // verification
	}{
		{"nothing is said", nil, "", []string{"http://127.0.0.1:2379"}, "||||", false},
		{"as druid renders it", druids, "", []string{"https://etcd-main-local:2379", "https://etcd-main-client:2379"},
			"/var/etcd/ssl/ca/ca.crt|/var/etcd/ssl/client/tls.crt|/var/etcd/ssl/client/tls.key||", false},
		{"several endpoints, a user, and no verification",
			[]string{"--endpoints=http://a:1,http://b:1", "-e=http://c:1", "--etcd-username=u", "--etcd-password=p",
				"--insecure-transport=false", "--insecure-skip-tls-verify"},
			"", []string{"http://a:1", "http://b:1", "http://c:1"}, "|||u|p", true},
		{"the host's file, which makes its flags of no effect", druids,
			"etcdConnectionConfig: {endpoints: ['https://file:2379'], caFile: /file/ca, username: f, password: q}",
			[]string{"https://file:2379"}, "/file/ca|||f|q", false},
		{"a file that says nothing of etcd", druids, "serverConfig: {port: 8081}", []string{"http://127.0.0.1:2379"},
			"||||", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.file != "" {
				tc.args = append(tc.args, "--config-file="+file(t, tc.file))
			}
			c, err := readArgs(t, tc.args...)
			if err != nil {
				t.Fatal(err)
			}
			o := etcd(c.EtcdConnectionConfig)
			said := strings.Join([]string{o.CACert, o.Cert, o.Key, o.Username, o.Password}, "|")
			if got := c.endpoints(nil); !reflect.DeepEqual(got, tc.want) || said != tc.etcd ||
				o.InsecureSkipVerify != tc.skip {
				t.Errorf("got %v, %s, skip %v", got, said, o.InsecureSkipVerify)
			}
		})
	}
}

func TestPodUpdatesAreSetByFlagsOrByTheHostsFile(t *testing.T) {
	const on = "--enable-quorum-aware-pod-updates"
	for _, tc := range []struct {
		name string
		args []string
		file string
		want string
	}{
		{"off, unless somebody asks", nil, "", "off, 1 of them"},
		{"flags", []string{on, "--pod-update-max-unavailable=2", "--pod-update-trusted-members=a,b"}, "",
			"on, 2 of them, trusts a b"},
		{"a section of the file", nil, "podUpdateConfig: {enabled: true, maxUnavailable: 3, trustedMembers: [a]}",
			"on, 3 of them, trusts a"},
		{"a section that is off", nil, "podUpdateConfig: {maxUnavailable: 3}", "off, 3 of them"},
		{"a file of the host's alone, and flags", []string{on}, "serverConfig: {port: 8081}", "on, 1 of them"},
		{"a flag wins over the file", []string{"--pod-update-max-unavailable=2", "--pod-update-trusted-members=c"},
			"podUpdateConfig: {enabled: true, maxUnavailable: 3, trustedMembers: [a]}", "on, 2 of them, trusts c"},
		{"also the one that switches it off", []string{on + "=false"}, "podUpdateConfig: {enabled: true}",
			"off, 1 of them"},
		{"a bad value in the file", nil, "podUpdateConfig: {enabled: true, maxUnavailable: many}",
			`error: maxUnavailable: "many": `},
		{"a bad value", []string{on, "--pod-update-lock-ttl=1s"}, "",
			"error: --pod-update-lock-ttl: 1s: must be whole seconds, at least 2s"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.file != "" {
				tc.args = append(tc.args, "--config-file="+file(t, tc.file))
			}
			c, err := readArgs(t, tc.args...)
			if err == nil {
				err = c.PodUpdates.Validate()
			}
			if !strings.HasPrefix(told(c, err), tc.want) || err == nil && told(c, err) != tc.want {
				t.Errorf("got %s, want %s", told(c, err), tc.want)
			}
		})
	}
}

func told(c *config, err error) string {
	if err != nil {
		_, bad, _ := strings.Cut("while decoding JSON: "+err.Error(), "while decoding JSON: ")
		return "error: " + strings.TrimPrefix(bad, "error unmarshaling JSON: while decoding JSON: ")
	}
	said := map[bool]string{true: "on, ", false: "off, "}[c.PodUpdates.Enabled] +
		c.PodUpdates.Policy.MaxUnavailable.String() + " of them"
	if trusted := c.PodUpdates.Policy.TrustedMembers; len(trusted) > 0 {
		said += ", trusts " + strings.Join(trusted, " ")
	}
	return said
}

// Otherwise one that a later version of the host adds would be missing here without a word.
func TestEveryFlagOfTheHostsServerIsReadHereToo(t *testing.T) {
	ours := pflag.NewFlagSet("", pflag.ContinueOnError)
	newConfig().AddFlags(ours)
	cmd.NewServerCommand(t.Context()).Flags().VisitAll(func(f *pflag.Flag) {
		if ours.Lookup(f.Name) == nil && f.Name != "config-file" && f.Name != "log-level" {
			t.Errorf("--%s is not", f.Name)
		}
	})
}

func TestWhatCannotWorkIsNamed(t *testing.T) {
	kubeconfig := file(t, `{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c,
user: u}}], users: [{name: u, user: {}}], clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]}`)
	conf := file(t, "name: etcd-config\n")
	for _, tc := range []struct {
		name string
		env  map[string]string
		want string
	}{
		{"no namespace", map[string]string{"POD_NAMESPACE": ""}, "POD_NAMESPACE: is not set; "},
		{"no pod", map[string]string{"POD_NAME": ""}, "POD_NAME: "},
		{"a pod of something else", map[string]string{"POD_NAME": "etcd-main-abcde"}, `POD_NAME: "etcd-main-abcde": `},
		{"no configuration of etcd", map[string]string{"ETCD_CONF": "/nowhere"},
			`failed to read etcd config file "/nowhere": `},
		{"a kubeconfig that is not there", map[string]string{"KUBECONFIG": "/nowhere"}, "the Kubernetes API: "},
		{"nothing is wrong", nil, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			env := map[string]string{"POD_NAMESPACE": "garden", "POD_NAME": "etcd-main-0", "ETCD_CONF": conf,
				"KUBECONFIG": kubeconfig, "HOME": t.TempDir()}
			for key, value := range tc.env {
				env[key] = value
			}
			for key, value := range env {
				t.Setenv(key, value)
			}
			c, err := readArgs(t, "--enable-quorum-aware-pod-updates")
			if err != nil {
				t.Fatal(err)
			}
			_, err = c.coordinator(logrus.NewEntry(logrus.New()))
			got := ""
			if err != nil {
				got = err.Error()
			}
			if !strings.HasPrefix(got, tc.want) || tc.want == "" && got != "" {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}
