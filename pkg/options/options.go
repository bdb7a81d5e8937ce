// Package options turns flags and environment into the configuration of a
// coordinator, and says of every bad value which flag it belongs to. Flags are named
// as etcd-backup-restore names them.
package options

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/spf13/pflag"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	appsv1 "k8s.io/client-go/kubernetes/typed/apps/v1"
	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/quorate/quorate/coordinator"
	"github.com/quorate/quorate/membership"
	"github.com/quorate/quorate/pkg/rollout"
)

// Sidecar holds the flags of a sidecar. Use [NewSidecar], then AddFlags, Complete,
// Validate and Config, in this order.
type Sidecar struct {
	Etcd       Etcd
	Kubernetes Kubernetes
	Log        Log

	Policy         rollout.Policy
	LockTTL        time.Duration
	FallbackAfter  time.Duration
	RecordDuration time.Duration
	ProbeTimeout   time.Duration
	RequestTimeout time.Duration
	Interval       time.Duration
	MaxEvidenceAge time.Duration
}

// Etcd says how to reach etcd.
type Etcd struct {
	Endpoints          []string
	CACert, Cert, Key  string
	InsecureSkipVerify bool
	Username, Password string
}

// Kubernetes says which workload is ours and how to reach the API.
type Kubernetes struct {
	Kubeconfig, Namespace, StatefulSet, PodName string
}

// Log says what is logged, and how.
type Log struct {
	Level, Format string
}

// NewSidecar returns the defaults; the reasons stand with the constants of package
// coordinator and [rollout.DefaultPolicy].
func NewSidecar() *Sidecar {
	return &Sidecar{
		Etcd:           Etcd{Endpoints: []string{"http://127.0.0.1:2379"}},
		Log:            Log{Level: "info", Format: "text"},
		Policy:         rollout.DefaultPolicy(),
		LockTTL:        coordinator.DefaultLockTTL,
		FallbackAfter:  coordinator.DefaultFallbackAfter,
		RecordDuration: coordinator.DefaultRecordDuration,
		ProbeTimeout:   coordinator.DefaultProbeTimeout,
		RequestTimeout: coordinator.DefaultRequestTimeout,
		Interval:       coordinator.DefaultInterval,
		MaxEvidenceAge: coordinator.DefaultMaxEvidenceAge,
	}
}

// AddFlags registers the flags.
func (o *Sidecar) AddFlags(fs *pflag.FlagSet) {
	fs.StringSliceVarP(&o.Etcd.Endpoints, "endpoints", "e", o.Etcd.Endpoints, "comma-separated client URLs of any members of the etcd cluster; the others are found through the member list")
	fs.StringVar(&o.Etcd.CACert, "cacert", "", "file with the CA certificates that sign etcd's server certificates (PEM)")
	fs.StringVar(&o.Etcd.Cert, "cert", "", "file with the client certificate for etcd (PEM); read anew for every connection, so that it can be rotated")
	fs.StringVar(&o.Etcd.Key, "key", "", "file with the key of the client certificate (PEM)")
	fs.BoolVar(&o.Etcd.InsecureSkipVerify, "insecure-skip-tls-verify", false, "do not verify etcd's server certificates")
	fs.StringVar(&o.Etcd.Username, "etcd-username", "", "user for etcd's authentication")
	fs.StringVar(&o.Etcd.Password, "etcd-password", "", "password for etcd's authentication")

	fs.StringVar(&o.Kubernetes.Kubeconfig, "kubeconfig", "", "kubeconfig file (default: $KUBECONFIG, else the pod's own ServiceAccount)")
	fs.StringVar(&o.Kubernetes.Namespace, "namespace", "", "namespace of the StatefulSet (default: $POD_NAMESPACE)")
	fs.StringVar(&o.Kubernetes.StatefulSet, "statefulset", "", "name of the StatefulSet (default: the pod name less its ordinal)")
	fs.StringVar(&o.Kubernetes.PodName, "pod-name", "", "name of the pod this sidecar runs in (default: $POD_NAME); none outside a member's pod")

	fs.Var((*amount)(&o.Policy.MaxUnavailable), "max-unavailable", "how many members, or what percentage of the replicas (rounded down, at least 1), may be unavailable at once during a rollout; quorum is kept whatever this says")
	fs.Var((*removal)(&o.Policy.Removal), "removal", "how a fully healthy pod is removed: delete, as the StatefulSet controller does it, or evict, so that a PodDisruptionBudget can refuse; a sick one is always deleted")
	fs.BoolVar(&o.Policy.AllowVolatileData, "allow-volatile-data", false, "permit removals that leave fewer than a quorum of voters with data where the data volume is not persistent")
	fs.DurationVar(&o.Policy.SettleTimeout, "settle-timeout", o.Policy.SettleTimeout, "how long an updated pod may take to settle before it counts as failing and holds the rollout; also how long lost quorum is left to recover by itself")
	fs.DurationVar(&o.Policy.DeadAfter, "dead-after", o.Policy.DeadAfter, "how long an etcd container may stay terminated before its member counts as dead")
	fs.Uint64Var(&o.Policy.MaxLag, "max-lag", o.Policy.MaxLag, "how many log entries a surviving member may be behind when another is removed")
	fs.DurationVar(&o.FallbackAfter, "fallback-after", o.FallbackAfter, "how long an outdated pod waits for a coordinator with a lock in etcd before the sidecars go on without one (they agree on the Lease instead)")
	fs.DurationVar(&o.RecordDuration, "record-duration", o.RecordDuration, "how long the Lease may stand unrenewed before a coordinator without a lock may claim it (whole seconds, at least 3s)")
	fs.DurationVar(&o.LockTTL, "lock-ttl", o.LockTTL, "how long the lock of a coordinator that died outlives it (whole seconds, at least 2s)")
	fs.DurationVar(&o.ProbeTimeout, "probe-timeout", o.ProbeTimeout, "how long an etcd member may take to answer before it counts as not serving")
	fs.DurationVar(&o.RequestTimeout, "request-timeout", o.RequestTimeout, "how long a request to the Kubernetes API may take")
	fs.DurationVar(&o.Interval, "interval", o.Interval, "time between two looks at the cluster during a rollout when no watch reports a change")
	fs.DurationVar(&o.MaxEvidenceAge, "max-evidence-age", o.MaxEvidenceAge, "the oldest evidence a removal may rest on")

	fs.StringVar(&o.Log.Level, "log-level", o.Log.Level, "one of panic, fatal, error, warn, info, debug, trace")
	fs.StringVar(&o.Log.Format, "log-format", o.Log.Format, "text or json")
}

// removal reads --removal.
type removal rollout.Removal

func (r *removal) String() string { return rollout.Removal(*r).String() }

func (r *removal) Type() string { return "delete|evict" }

func (r *removal) Set(s string) error {
	for _, method := range []rollout.Removal{rollout.RemoveByDelete, rollout.RemoveByEviction} {
		if s == method.String() {
			*r = removal(method)
			return nil
		}
	}
	return errors.New("use delete or evict")
}

// amount reads --max-unavailable.
type amount rollout.Amount

func (a *amount) String() string { return rollout.Amount(*a).String() }

func (a *amount) Type() string { return "number|percentage" }

func (a *amount) Set(s string) error {
	parsed, err := rollout.ParseAmount(s)
	if err == nil {
		*a = amount(parsed)
	}
	return err
}

// Complete fills in what follows from the environment and from other values.
func (o *Sidecar) Complete(getenv func(string) string) {
	k := &o.Kubernetes
	fill := func(field *string, value string) {
		if *field == "" {
			*field = value
		}
	}
	fill(&k.Kubeconfig, getenv("KUBECONFIG"))
	fill(&k.Namespace, getenv("POD_NAMESPACE"))
	fill(&k.PodName, getenv("POD_NAME"))
	if i := strings.LastIndexByte(k.PodName, '-'); i > 0 {
		if _, err := strconv.ParseUint(k.PodName[i+1:], 10, 31); err == nil {
			fill(&k.StatefulSet, k.PodName[:i])
		}
	}
}

// Validate returns every bad value, each with its flag and what to do about it.
func (o *Sidecar) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }

	if len(o.Etcd.Endpoints) == 0 {
		bad("--endpoints: is empty; name the client URL of at least one etcd member")
	}
	for _, e := range o.Etcd.Endpoints {
		if err := validEndpoint(e); err != nil {
			bad("--endpoints: %q: %w", e, err)
		}
	}
	if (o.Etcd.Cert == "") != (o.Etcd.Key == "") {
		bad("--cert %q and --key %q: give both or neither", o.Etcd.Cert, o.Etcd.Key)
	}
	for _, f := range []struct{ flag, path string }{
		{"--cacert", o.Etcd.CACert}, {"--cert", o.Etcd.Cert}, {"--key", o.Etcd.Key}, {"--kubeconfig", firstOf(o.Kubernetes.Kubeconfig)},
	} {
		if err := readable(f.path); err != nil {
			bad("%s: %q: %w", f.flag, f.path, err)
		}
	}
	if o.Etcd.CACert != "" && len(errs) == 0 {
		// etcd's own reader takes a file without any certificate for an empty list.
		if pem, err := os.ReadFile(o.Etcd.CACert); err == nil && !x509.NewCertPool().AppendCertsFromPEM(pem) {
			bad("--cacert: %q: holds no certificate in PEM", o.Etcd.CACert)
		}
	}
	if len(errs) == 0 {
		if _, err := o.Etcd.tlsInfo().ClientConfig(); err != nil {
			bad("--cacert %q, --cert %q, --key %q: %w", o.Etcd.CACert, o.Etcd.Cert, o.Etcd.Key, err)
		}
	}
	if o.Etcd.Password != "" && o.Etcd.Username == "" {
		bad("--etcd-password: is set without --etcd-username")
	}
	if o.Etcd.Username != "" && o.Etcd.Password == "" {
		bad("--etcd-username: %q: is set without --etcd-password", o.Etcd.Username)
	}
	if o.Kubernetes.Namespace == "" {
		bad("--namespace: is required (or set POD_NAMESPACE)")
	}
	if o.Kubernetes.StatefulSet == "" {
		bad("--statefulset: is required (or set --pod-name or POD_NAME to a name that ends in an ordinal, such as etcd-main-0; it is %q)", o.Kubernetes.PodName)
	}
	o.validateNumbers(bad)
	if _, err := logrus.ParseLevel(o.Log.Level); err != nil {
		bad("--log-level: %q: use panic, fatal, error, warn, info, debug or trace", o.Log.Level)
	}
	if o.Log.Format != "text" && o.Log.Format != "json" {
		bad("--log-format: %q: use text or json", o.Log.Format)
	}
	return errors.Join(errs...)
}

// ValidateNumbers returns every bad number and duration: all that matters where nothing
// is reached, as for a plan from files.
func (o *Sidecar) ValidateNumbers() error {
	var errs []error
	o.validateNumbers(func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) })
	return errors.Join(errs...)
}

// validateNumbers repeats the rules of [coordinator.Config], so that an operator reads
// the names of the flags and not those of a host's fields.
func (o *Sidecar) validateNumbers(bad func(format string, args ...any)) {
	for _, d := range []struct {
		flag  string
		value time.Duration
	}{
		{"--probe-timeout", o.ProbeTimeout}, {"--request-timeout", o.RequestTimeout},
		{"--interval", o.Interval}, {"--settle-timeout", o.Policy.SettleTimeout},
	} {
		if d.value <= 0 {
			bad("%s: %v: must be positive", d.flag, d.value)
		}
	}
	if o.LockTTL < 2*time.Second || o.LockTTL%time.Second != 0 {
		bad("--lock-ttl: %v: must be whole seconds, at least 2s", o.LockTTL)
	}
	if o.RecordDuration < 3*time.Second || o.RecordDuration%time.Second != 0 {
		bad("--record-duration: %v: must be whole seconds, at least 3s", o.RecordDuration)
	}
	if cycle := 2*o.ProbeTimeout + o.Interval; 2*o.RecordDuration < 3*cycle {
		bad("--record-duration: %v: two thirds of it must cover a cycle with members that hang, %v (twice --probe-timeout and --interval)", o.RecordDuration, cycle)
	}
	if o.FallbackAfter <= 0 {
		bad("--fallback-after: %v: must be positive", o.FallbackAfter)
	}
	if o.MaxEvidenceAge <= 2*o.ProbeTimeout {
		bad("--max-evidence-age: %v: must exceed twice --probe-timeout (%v), or no evidence is ever young enough", o.MaxEvidenceAge, o.ProbeTimeout)
	}
	if o.Policy.DeadAfter < 0 {
		bad("--dead-after: %v: must not be negative", o.Policy.DeadAfter)
	}
	if o.Policy.MaxLag == 0 {
		bad("--max-lag: 0: must be positive, or no member ever counts as caught up")
	}
}

func validEndpoint(e string) error {
	u, err := url.Parse(e)
	switch {
	case err != nil && strings.Contains(e, "://"):
		return errors.Unwrap(err) // The URL is in the message already.
	case err != nil, !strings.Contains(e, "://"):
		return errors.New("not a client URL such as https://etcd-main-0.etcd-main-peer.ns.svc:2379")
	case u.Scheme != "http" && u.Scheme != "https":
		return errors.New("not a client URL such as https://etcd-main-0.etcd-main-peer.ns.svc:2379")
	case u.Hostname() == "" || u.Port() == "":
		return errors.New("needs a host and a port, such as https://127.0.0.1:2379")
	case !validPort(u.Port()):
		return fmt.Errorf("port %s is not between 1 and 65535", u.Port())
	case u.Path != "" && u.Path != "/":
		return fmt.Errorf("must not have a path (%q)", u.Path)
	}
	return nil
}

func validPort(port string) bool {
	n, err := strconv.ParseUint(port, 10, 16)
	return err == nil && n > 0
}

// firstOf returns the only entry of a kubeconfig path list; a longer list is left to
// client-go, which skips what is missing.
func firstOf(list string) string {
	if strings.ContainsRune(list, os.PathListSeparator) {
		return ""
	}
	return list
}

func readable(path string) error {
	if path == "" {
		return nil
	}
	f, err := os.Open(path)
	if err != nil {
		return errors.Unwrap(err) // The path is in the message already.
	}
	return f.Close()
}

func (o *Etcd) tlsInfo() transport.TLSInfo {
	return transport.TLSInfo{
		TrustedCAFile: o.CACert, CertFile: o.Cert, KeyFile: o.Key,
		InsecureSkipVerify: o.InsecureSkipVerify,
	}
}

// Dial returns the function that opens etcd clients. The certificate files are
// read anew for every client and every handshake, so that they can be rotated.
func (o *Etcd) Dial(timeout time.Duration) membership.Dial {
	return func(endpoints []string) (*clientv3.Client, error) {
		cfg := clientv3.Config{
			Endpoints: endpoints, Username: o.Username, Password: o.Password,
			DialTimeout: timeout, DialKeepAliveTime: timeout, DialKeepAliveTimeout: timeout,
			Logger: zap.NewNop(), // Whatever matters comes back as an error.
		}
		if slices.ContainsFunc(endpoints, func(e string) bool { return strings.HasPrefix(e, "https://") }) {
			tls, err := o.tlsInfo().ClientConfig()
			if err != nil {
				return nil, fmt.Errorf("TLS for etcd: %w", err)
			}
			cfg.TLS = tls
		}
		return clientv3.New(cfg)
	}
}

// restConfig follows --kubeconfig, and without one the pod's own ServiceAccount.
func (o *Kubernetes) restConfig(userAgent string) (*rest.Config, error) {
	var cfg *rest.Config
	var err error
	if o.Kubeconfig != "" {
		rules := &clientcmd.ClientConfigLoadingRules{Precedence: strings.Split(o.Kubeconfig, string(os.PathListSeparator))}
		cfg, err = clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
		if err != nil {
			return nil, fmt.Errorf("--kubeconfig: %q: %w", o.Kubeconfig, err)
		}
	} else if cfg, err = rest.InClusterConfig(); err != nil {
		return nil, fmt.Errorf("--kubeconfig: is not set, nor is KUBECONFIG, and this is not a pod: %w", err)
	}
	cfg.UserAgent = userAgent
	cfg.ContentType = "application/vnd.kubernetes.protobuf"
	// Cycles are few and each must not queue behind the last: never throttle here, the
	// API server's own priority and fairness does.
	cfg.QPS = -1
	return cfg, nil
}

// Config returns what a coordinator needs. Call it after Complete and Validate.
func (o *Sidecar) Config(userAgent string, log *logrus.Entry) (coordinator.Config, error) {
	rc, err := o.Kubernetes.restConfig(userAgent)
	if err != nil {
		return coordinator.Config{}, err
	}
	client, err := rest.HTTPClientFor(rc)
	if err != nil {
		return coordinator.Config{}, fmt.Errorf("--kubeconfig: %q: %w", o.Kubernetes.Kubeconfig, err)
	}
	apps, err := appsv1.NewForConfigAndClient(rc, client)
	if err != nil {
		return coordinator.Config{}, err
	}
	core, err := corev1.NewForConfigAndClient(rc, client)
	if err != nil {
		return coordinator.Config{}, err
	}
	coordination, err := coordinationv1.NewForConfigAndClient(rc, client)
	if err != nil {
		return coordinator.Config{}, err
	}
	return coordinator.Config{
		Namespace: o.Kubernetes.Namespace, StatefulSet: o.Kubernetes.StatefulSet, PodName: o.Kubernetes.PodName,
		Dial: o.Etcd.Dial(o.ProbeTimeout), Endpoints: o.Etcd.Endpoints,
		StatefulSets: apps.StatefulSets(o.Kubernetes.Namespace), Pods: core.Pods(o.Kubernetes.Namespace),
		Leases: coordination.Leases(o.Kubernetes.Namespace),
		Policy: o.Policy, LockTTL: o.LockTTL, FallbackAfter: o.FallbackAfter, RecordDuration: o.RecordDuration, ProbeTimeout: o.ProbeTimeout,
		RequestTimeout: o.RequestTimeout, Interval: o.Interval, MaxEvidenceAge: o.MaxEvidenceAge,
		Log: log,
	}, nil
}

// Logger returns the logger that the flags ask for.
func (l *Log) Logger() *logrus.Logger {
	log := logrus.New()
	if level, err := logrus.ParseLevel(l.Level); err == nil {
		log.SetLevel(level)
	}
	if l.Format == "json" {
		log.SetFormatter(&logrus.JSONFormatter{TimestampFormat: time.RFC3339Nano})
	} else {
		log.SetFormatter(&logrus.TextFormatter{FullTimestamp: true})
	}
	return log
}
