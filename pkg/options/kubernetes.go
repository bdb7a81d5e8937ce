package options

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/homedir"

	"github.com/quorate/quorate/coordinator"
)

// Kubernetes says which workload is ours and how to reach the API. There are two kinds. A sidecar knows
// its pod and its ServiceAccount. A person has a kubeconfig with contexts, and kubectl's flags for it.
type Kubernetes struct {
	Kubeconfig, Namespace, StatefulSet, PodName string

	// EtcdContainer, SidecarContainer and EtcdDataDir are those of [coordinator.Names].
	EtcdContainer, SidecarContainer, EtcdDataDir string

	// Many permits that no StatefulSet is named, for a command about many of them.
	Many bool

	// fromEnvironment is true if $KUBECONFIG names the kubeconfig, and not a flag.
	fromEnvironment bool
	// person has the values of kubectl's flags. If it is nil, this is a sidecar's.
	person *clientcmd.ConfigOverrides
}

func newKubernetes() Kubernetes {
	names := coordinator.DefaultNames()
	return Kubernetes{
		EtcdContainer: names.EtcdContainer, SidecarContainer: names.SidecarContainer, EtcdDataDir: names.EtcdDataDir,
	}
}

func newPerson() Kubernetes {
	o := newKubernetes()
	o.person = &clientcmd.ConfigOverrides{}
	return o
}

// addFlags registers the flags of this kind.
func (o *Kubernetes) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.StatefulSet, "statefulset", o.StatefulSet,
		"name of the StatefulSet (default in a pod: the pod's name without its ordinal)")
	fs.StringVar(&o.EtcdContainer, "etcd-container", o.EtcdContainer,
		"name of the container that etcd runs in; a pod without it says nothing about its member, and holds the "+
			"rollout")
	fs.StringVar(&o.SidecarContainer, "sidecar-container", o.SidecarContainer,
		"name of the sidecar's container; if it is not ready, its pod goes first; a pod without it has no sidecar "+
			"that could be sick")
	fs.StringVar(&o.EtcdDataDir, "etcd-data-dir", o.EtcdDataDir,
		"etcd's data directory in its container, an absolute path; the volume mounted there decides whether the "+
			"data outlives a pod "+
			"(default: --data-dir or ETCD_DATA_DIR in the pod template, else /var/etcd/data; set it if etcd has a "+
			"configuration file of its own)")
	if o.person == nil {
		fs.StringVar(&o.Kubeconfig, "kubeconfig", o.Kubeconfig,
			"kubeconfig file (default: $KUBECONFIG, else the pod's own ServiceAccount)")
		fs.StringVarP(&o.Namespace, "namespace", "n", o.Namespace,
			"namespace of the StatefulSet (default: $POD_NAMESPACE)")
		fs.StringVar(&o.PodName, "pod-name", o.PodName,
			"name of the pod that this sidecar runs in (default: $POD_NAME); none outside a member's pod")
		return
	}
	fs.StringVar(&o.Kubeconfig, "kubeconfig", o.Kubeconfig,
		"kubeconfig file (default: $KUBECONFIG, else ~/.kube/config, else the pod's own ServiceAccount)")
	fs.StringVarP(&o.Namespace, "namespace", "n", o.Namespace,
		"namespace of the StatefulSet (default: $POD_NAMESPACE in a pod, else that of the kubeconfig's context)")
	names := clientcmd.RecommendedConfigOverrideFlags("")
	names.ClusterOverrideFlags.APIServer.ShortName = "s" // As in kubectl.
	// We have flags for namespace and timeout already. API servers no longer accept passwords.
	for _, taken := range []*clientcmd.FlagInfo{
		&names.ContextOverrideFlags.Namespace, &names.Timeout, &names.AuthOverrideFlags.Username,
		&names.AuthOverrideFlags.Password,
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
	namespace, pod := PodFromEnv(getenv)
	fill(&o.Namespace, namespace)
	fill(&o.PodName, pod)
	fill(&o.StatefulSet, StatefulSetOf(o.PodName))
	if o.person != nil && o.Namespace == "" {
		// validate finds out what is wrong with the kubeconfig.
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
		// An object with an impossible name would be looked for in vain, forever.
		if wrong := n.wrong(n.value); n.value != "" && len(wrong) > 0 {
			rule, _, _ := strings.Cut(wrong[0], " (e.g. ")
			bad(n.flag, n.value, errors.New(rule))
		}
	}
	switch {
	case o.StatefulSet != "" || o.Many:
	case o.person != nil:
		errs = append(errs, fmt.Errorf("%s: is required", name("statefulset")))
	default:
		errs = append(errs,
			fmt.Errorf("%s: is required (or set %s or POD_NAME to a name that ends in an ordinal, such as "+
				"etcd-main-0; it is %q)",
				name("statefulset"), name("pod-name"), o.PodName))
	}
	return errors.Join(errs...)
}

// validateNames checks what ties pods to the containers that run in them.
func (o *Kubernetes) validateNames(name namer) error {
	var errs []error
	for _, n := range []struct{ flag, value string }{
		{"etcd-container", o.EtcdContainer}, {"sidecar-container", o.SidecarContainer},
	} {
		if wrong := validation.IsDNS1123Label(n.value); len(wrong) > 0 {
			rule, _, _ := strings.Cut(wrong[0], " (e.g. ")
			errs = append(errs, fmt.Errorf("%s: %q: %s", name(n.flag), n.value, rule))
		}
	}
	if o.EtcdContainer == o.SidecarContainer {
		errs = append(errs, fmt.Errorf("%s: %q: is the same as %s",
			name("sidecar-container"), o.SidecarContainer, name("etcd-container")))
	}
	if o.EtcdDataDir != "" && !path.IsAbs(o.EtcdDataDir) {
		errs = append(errs, fmt.Errorf("%s: %q: must be an absolute path, such as /var/etcd/data",
			name("etcd-data-dir"), o.EtcdDataDir))
	}
	return errors.Join(errs...)
}

// Names returns what ties pods to the containers that run in them.
func (o *Kubernetes) Names() coordinator.Names {
	return coordinator.Names{
		EtcdContainer: o.EtcdContainer, SidecarContainer: o.SidecarContainer, EtcdDataDir: o.EtcdDataDir,
	}
}

// firstOf returns the only entry of a kubeconfig path list. A longer list is left to client-go, which
// skips missing files.
func firstOf(list string) string {
	if strings.ContainsRune(list, os.PathListSeparator) {
		return ""
	}
	return list
}

// home is where a person's kubeconfig is if nothing else says so.
func home() string {
	return filepath.Join(homedir.HomeDir(), clientcmd.RecommendedHomeDir, clientcmd.RecommendedFileName)
}

// loader reads the kubeconfig, or the pod's own ServiceAccount if that says nothing.
func (o *Kubernetes) loader() clientcmd.ClientConfig {
	rules := &clientcmd.ClientConfigLoadingRules{Precedence: filepath.SplitList(o.Kubeconfig)}
	if o.person != nil && o.Kubeconfig == "" {
		rules.Precedence = []string{home()}
	}
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, o.person)
}

// badKubeconfig adds where the way to the API was read from.
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

// contexts says which ones the kubeconfig has. It is empty if it has none.
func (o *Kubernetes) contexts() string {
	raw, err := o.loader().RawConfig()
	if err != nil || len(raw.Contexts) == 0 {
		return ""
	}
	return "; its contexts are " + strings.Join(slices.Sorted(maps.Keys(raw.Contexts)), ", ")
}

// RESTConfig returns how to reach the API. Call it after Complete. It reads files and sends no request.
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
			return nil,
				fmt.Errorf("--kubeconfig: is not set, nor is KUBECONFIG, there is no %s, and this is not a pod: "+
					"name the cluster with one of them", home())
		case clientcmd.IsEmptyConfig(err):
			err = errors.New("names no cluster: it is empty or missing")
		case strings.Contains(err.Error(), "couldn't get version/kind"):
			err = errors.New("is not a kubeconfig") // client-go's own words are about its types.
		case o.person != nil && strings.HasSuffix(err.Error(), "does not exist"):
			err = fmt.Errorf("%w%s", err, o.contexts())
		}
		return nil, o.badKubeconfig(err)
	}
	if _, _, err := rest.DefaultServerUrlFor(cfg); err != nil {
		return nil, o.badKubeconfig(fmt.Errorf("server %q: %w", cfg.Host, err))
	}
	cfg.UserAgent = userAgent
	fitForCycles(cfg)
	return cfg, nil
}
