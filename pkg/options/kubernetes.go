package options

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/homedir"

	"github.com/quorate/quorate/coordinator"
)

// Kubernetes says which workload is ours and how to reach the API. It comes in two
// kinds: a sidecar knows its pod and its ServiceAccount; a person has a kubeconfig with
// contexts, and kubectl's flags for it.
type Kubernetes struct {
	Kubeconfig, Namespace, StatefulSet, PodName string

	// EtcdContainer, SidecarContainer and EtcdDataDir are those of [coordinator.Names].
	EtcdContainer, SidecarContainer, EtcdDataDir string

	// fromEnvironment is true where $KUBECONFIG names the kubeconfig, and no flag.
	fromEnvironment bool
	// person has the values of kubectl's flags. Nil makes this a sidecar's.
	person *clientcmd.ConfigOverrides
}

func newKubernetes() Kubernetes {
	names := coordinator.DefaultNames()
	return Kubernetes{EtcdContainer: names.EtcdContainer, SidecarContainer: names.SidecarContainer, EtcdDataDir: names.EtcdDataDir}
}

func newPerson() Kubernetes {
	o := newKubernetes()
	o.person = &clientcmd.ConfigOverrides{}
	return o
}

// addFlags registers the flags of this kind.
func (o *Kubernetes) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.StatefulSet, "statefulset", o.StatefulSet, "name of the StatefulSet (default: the pod name less its ordinal, in a pod)")
	fs.StringVar(&o.EtcdContainer, "etcd-container", o.EtcdContainer, "name of the container that etcd runs in; a pod without it tells nothing about its member, and holds the rollout")
	fs.StringVar(&o.SidecarContainer, "sidecar-container", o.SidecarContainer, "name of the container whose pod goes first when it is not ready; pods without it have no sidecar that could be sick")
	fs.StringVar(&o.EtcdDataDir, "etcd-data-dir", o.EtcdDataDir, "etcd's data directory in its container, an absolute path; what is mounted there says whether the data outlives a pod (default: --data-dir or ETCD_DATA_DIR in the pod template, else /var/etcd/data; give it where a configuration file of etcd's own says where)")
	if o.person == nil {
		fs.StringVar(&o.Kubeconfig, "kubeconfig", o.Kubeconfig, "kubeconfig file (default: $KUBECONFIG, else the pod's own ServiceAccount)")
		fs.StringVarP(&o.Namespace, "namespace", "n", o.Namespace, "namespace of the StatefulSet (default: $POD_NAMESPACE)")
		fs.StringVar(&o.PodName, "pod-name", o.PodName, "name of the pod this sidecar runs in (default: $POD_NAME); none outside a member's pod")
		return
	}
	fs.StringVar(&o.Kubeconfig, "kubeconfig", o.Kubeconfig, "kubeconfig file (default: $KUBECONFIG, else ~/.kube/config, else the pod's own ServiceAccount)")
	fs.StringVarP(&o.Namespace, "namespace", "n", o.Namespace, "namespace of the StatefulSet (default: $POD_NAMESPACE in a pod, else that of the kubeconfig's context)")
	names := clientcmd.RecommendedConfigOverrideFlags("")
	names.ClusterOverrideFlags.APIServer.ShortName = "s" // As kubectl has it.
	// Namespace and timeout are ours already; the last one is etcd's by that name, and a
	// kubeconfig can say the same of its cluster. API servers know no passwords any more.
	for _, taken := range []*clientcmd.FlagInfo{
		&names.ContextOverrideFlags.Namespace, &names.Timeout, &names.ClusterOverrideFlags.InsecureSkipTLSVerify,
		&names.AuthOverrideFlags.Username, &names.AuthOverrideFlags.Password,
	} {
		taken.LongName = ""
	}
	clientcmd.BindOverrideFlags(o.person, fs, names)
}

// complete fills in what follows from the environment and from other values.
func (o *Kubernetes) complete(getenv func(string) string) {
	fill := func(field *string, value string) {
		if *field == "" {
			*field = value
		}
	}
	if file := getenv("KUBECONFIG"); o.Kubeconfig == "" && file != "" {
		o.Kubeconfig, o.fromEnvironment = file, true
	}
	fill(&o.Namespace, getenv("POD_NAMESPACE"))
	fill(&o.PodName, getenv("POD_NAME"))
	if i := strings.LastIndexByte(o.PodName, '-'); i > 0 {
		if _, err := strconv.ParseUint(o.PodName[i+1:], 10, 31); err == nil {
			fill(&o.StatefulSet, o.PodName[:i])
		}
	}
	if o.person != nil && o.Namespace == "" {
		// What is wrong with the kubeconfig comes to light in validate.
		o.Namespace, _, _ = o.loader().Namespace()
	}
}

func (o *Kubernetes) validate(name namer) error {
	var errs []error
	bad := func(flag, value string, err error) {
		errs = append(errs, fmt.Errorf("%s: %q: %w", name(flag), value, err))
	}
	unreadable := readable(firstOf(o.Kubeconfig))
	switch {
	case unreadable != nil && o.fromEnvironment:
		errs = append(errs, o.badKubeconfig(unreadable))
	case unreadable != nil:
		bad("kubeconfig", o.Kubeconfig, unreadable)
	}
	if o.person != nil && unreadable == nil {
		if _, err := o.RESTConfig(""); err != nil {
			errs = append(errs, err)
		}
	}
	if o.Namespace == "" && o.person == nil {
		errs = append(errs, fmt.Errorf("%s: is required (or set POD_NAMESPACE)", name("namespace")))
	}
	for _, n := range []struct {
		flag, value string
		wrong       func(string) []string
	}{
		{"namespace", o.Namespace, validation.IsDNS1123Label},
		{"pod-name", o.PodName, validation.IsDNS1123Subdomain},
		{"statefulset", o.StatefulSet, validation.IsDNS1123Subdomain},
	} {
		// What no object can be called would be looked for in vain, for ever.
		if wrong := n.wrong(n.value); n.value != "" && len(wrong) > 0 {
			rule, _, _ := strings.Cut(wrong[0], " (e.g. ")
			bad(n.flag, n.value, errors.New(rule))
		}
	}
	switch {
	case o.StatefulSet != "":
	case o.person != nil:
		errs = append(errs, fmt.Errorf("%s: is required", name("statefulset")))
	default:
		errs = append(errs, fmt.Errorf("%s: is required (or set %s or POD_NAME to a name that ends in an ordinal, such as etcd-main-0; it is %q)", name("statefulset"), name("pod-name"), o.PodName))
	}
	return errors.Join(errs...)
}

// validateNames judges what ties pods to what runs in them.
func (o *Kubernetes) validateNames(name namer) error {
	var errs []error
	for _, n := range []struct{ flag, value string }{{"etcd-container", o.EtcdContainer}, {"sidecar-container", o.SidecarContainer}} {
		if wrong := validation.IsDNS1123Label(n.value); len(wrong) > 0 {
			rule, _, _ := strings.Cut(wrong[0], " (e.g. ")
			errs = append(errs, fmt.Errorf("%s: %q: %s", name(n.flag), n.value, rule))
		}
	}
	if o.EtcdContainer == o.SidecarContainer {
		errs = append(errs, fmt.Errorf("%s: %q: is that of %s too", name("sidecar-container"), o.SidecarContainer, name("etcd-container")))
	}
	if o.EtcdDataDir != "" && !path.IsAbs(o.EtcdDataDir) {
		errs = append(errs, fmt.Errorf("%s: %q: is no absolute path, such as /var/etcd/data", name("etcd-data-dir"), o.EtcdDataDir))
	}
	return errors.Join(errs...)
}

// Names returns what ties pods to what runs in them.
func (o *Kubernetes) Names() coordinator.Names {
	return coordinator.Names{EtcdContainer: o.EtcdContainer, SidecarContainer: o.SidecarContainer, EtcdDataDir: o.EtcdDataDir}
}

// firstOf returns the only entry of a kubeconfig path list; a longer list is left to
// client-go, which skips what is missing.
func firstOf(list string) string {
	if strings.ContainsRune(list, os.PathListSeparator) {
		return ""
	}
	return list
}

// home is where a person's kubeconfig is when nothing else says so.
func home() string {
	return filepath.Join(homedir.HomeDir(), clientcmd.RecommendedHomeDir, clientcmd.RecommendedFileName)
}

// loader reads the kubeconfig, and where that says nothing the pod's own ServiceAccount.
func (o *Kubernetes) loader() clientcmd.ClientConfig {
	rules := &clientcmd.ClientConfigLoadingRules{Precedence: filepath.SplitList(o.Kubeconfig)}
	if o.person != nil && o.Kubeconfig == "" {
		rules.Precedence = []string{home()}
	}
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, o.person)
}

// badKubeconfig names where the way to the API was read from.
func (o *Kubernetes) badKubeconfig(err error) error {
	switch {
	case o.Kubeconfig != "" && o.fromEnvironment:
		return fmt.Errorf("KUBECONFIG: %q: %w", o.Kubeconfig, err)
	case o.Kubeconfig == "" && o.person != nil:
		return fmt.Errorf("--kubeconfig: %q: %w", home(), err)
	case o.Kubeconfig == "":
		return fmt.Errorf("the pod's ServiceAccount: %w", err)
	}
	return fmt.Errorf("--kubeconfig: %q: %w", o.Kubeconfig, err)
}

// RESTConfig returns how to reach the API. Call it after Complete; it reads files and
// asks nobody.
func (o *Kubernetes) RESTConfig(userAgent string) (*rest.Config, error) {
	var cfg *rest.Config
	var err error
	if o.person == nil && o.Kubeconfig == "" {
		if cfg, err = rest.InClusterConfig(); err != nil {
			return nil, fmt.Errorf("--kubeconfig: is not set, nor is KUBECONFIG, and this is not a pod: %w", err)
		}
	} else if cfg, err = o.loader().ClientConfig(); err != nil {
		switch {
		case clientcmd.IsEmptyConfig(err) && o.Kubeconfig == "":
			return nil, fmt.Errorf("--kubeconfig: is not set, nor is KUBECONFIG, there is no %s, and this is not a pod: name the cluster with one of them", home())
		case clientcmd.IsEmptyConfig(err):
			err = errors.New("names no cluster: it is empty, or not there")
		case strings.Contains(err.Error(), "couldn't get version/kind"):
			err = errors.New("is no kubeconfig") // What client-go adds is about its own types.
		}
		return nil, o.badKubeconfig(err)
	}
	if _, _, err := rest.DefaultServerUrlFor(cfg); err != nil {
		return nil, o.badKubeconfig(fmt.Errorf("server %q: %w", cfg.Host, err))
	}
	cfg.UserAgent = userAgent
	cfg.ContentType = "application/vnd.kubernetes.protobuf"
	// Cycles are few and each must not queue behind the last: never throttle here, the
	// API server's own priority and fairness does.
	cfg.QPS = -1
	return cfg, nil
}
