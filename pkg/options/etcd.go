package options

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quorate/quorate/coordinator"
)

// Etcd says how to reach etcd.
type Etcd struct {
	Endpoints          []string
	CACert, Cert, Key  string
	InsecureSkipVerify bool
	Username, Password string
	// Optional permits an empty list of endpoints, for a command that can do without etcd.
	Optional bool
}

func newEtcd() Etcd {
	// In one of etcd's own pods the nearest member is this one, at etcd's default address.
	return Etcd{Endpoints: []string{"http://127.0.0.1:2379"}}
}

const (
	insecureEtcd = "etcd-insecure-skip-tls-verify"
	// insecure is kubectl's name for the same about the API server. A sidecar has no such flag, so there it is the
	// earlier name for etcd's, and in a file it is so everywhere.
	insecure = "insecure-skip-tls-verify"
)

// addEarlier registers earlier names of a sidecar's flags.
func (o *Etcd) addEarlier(fs *pflag.FlagSet) {
	fs.BoolVar(&o.InsecureSkipVerify, insecure, o.InsecureSkipVerify, "do not verify etcd's server certificates")
	_ = fs.MarkDeprecated(insecure, "use --"+insecureEtcd) // It fails only for a flag that does not exist.
}

func (o *Etcd) addFlags(fs *pflag.FlagSet) {
	fs.StringSliceVarP(&o.Endpoints, "endpoints", "e", o.Endpoints,
		"comma-separated client URLs of any members of the etcd cluster; the others are found through the member list")
	fs.StringVar(&o.CACert, "cacert", o.CACert,
		"file with the CA certificates that sign etcd's server certificates (PEM)")
	fs.StringVar(&o.Cert, "cert", o.Cert,
		"file with the client certificate for etcd (PEM); it is read for every connection, so that it can be rotated")
	fs.StringVar(&o.Key, "key", o.Key, "file with the key of the client certificate (PEM)")
	fs.BoolVar(&o.InsecureSkipVerify, insecureEtcd, o.InsecureSkipVerify, "do not verify etcd's server certificates")
	fs.StringVar(&o.Username, "etcd-username", o.Username, "user for etcd's authentication")
	fs.StringVar(&o.Password, "etcd-password", o.Password,
		"password for etcd's authentication; put it into a file, because others can see a command line")
	fs.Lookup("etcd-password").Annotations = map[string][]string{secret: {"true"}}
}

func (o *Etcd) validate(name namer) error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }

	if len(o.Endpoints) == 0 && !o.Optional {
		bad("%s: is empty; name the client URL of at least one etcd member", name("endpoints"))
	}
	for _, e := range o.Endpoints {
		if err := validEndpoint(e); err != nil {
			bad("%s: %q: %w", name("endpoints"), withoutUser(e), err)
		}
	}
	if (o.Cert == "") != (o.Key == "") {
		bad("%s %q and %s %q: give both or neither", name("cert"), o.Cert, name("key"), o.Key)
	}
	for _, f := range []struct{ flag, path string }{{"cacert", o.CACert}, {"cert", o.Cert}, {"key", o.Key}} {
		if err := readable(f.path); err != nil {
			bad("%s: %q: %w", name(f.flag), f.path, err)
		}
	}
	if o.CACert != "" && len(errs) == 0 {
		// etcd's own reader accepts a file without any certificate as an empty list.
		if pem, err := os.ReadFile(o.CACert); err == nil && !x509.NewCertPool().AppendCertsFromPEM(pem) {
			bad("%s: %q: holds no certificate in PEM", name("cacert"), o.CACert)
		}
	}
	if o.Cert != "" && len(errs) == 0 {
		if _, err := tls.LoadX509KeyPair(o.Cert, o.Key); err != nil {
			bad("%s %q and %s %q: %w", name("cert"), o.Cert, name("key"), o.Key, err)
		}
	}
	if len(errs) == 0 {
		if _, err := o.tlsInfo().ClientConfig(); err != nil {
			bad("%s %q, %s %q, %s %q: %w", name("cacert"), o.CACert, name("cert"), o.Cert, name("key"), o.Key, err)
		}
	}
	if o.Password != "" && o.Username == "" {
		bad("%s: is set without %s", name("etcd-password"), name("etcd-username"))
	}
	if o.Username != "" && o.Password == "" {
		bad("%s: %q: is set without %s", name("etcd-username"), o.Username, name("etcd-password"))
	}
	return errors.Join(errs...)
}

// withoutUser is an endpoint that may be printed. Some people put a user and a password into it,
// although they do not belong there.
func withoutUser(e string) string {
	scheme, rest, _ := strings.Cut(e, "://")
	if i := strings.LastIndexByte(rest, '@'); i >= 0 {
		return scheme + "://…" + rest[i:]
	}
	return e
}

func validEndpoint(e string) error {
	u, err := url.Parse(e)
	switch {
	case strings.TrimSpace(e) != e:
		return errors.New("begins or ends with a space; separate URLs by a comma alone")
	case strings.Contains(e, "@"):
		return errors.New("must not contain a user; use --etcd-username and --etcd-password")
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
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return errors.New("must end after the port, without a query or fragment")
	}
	return nil
}

func validPort(port string) bool {
	n, err := strconv.ParseUint(port, 10, 16)
	return err == nil && n > 0
}

func readable(path string) error {
	if path == "" {
		return nil
	}
	f, err := os.Open(path)
	if err != nil {
		return errors.Unwrap(err) // The path is in the message already.
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.IsDir() {
		return errors.New("is a directory, not a file")
	}
	return nil
}

func (o *Etcd) tlsInfo() transport.TLSInfo {
	return transport.TLSInfo{
		TrustedCAFile: o.CACert, CertFile: o.Cert, KeyFile: o.Key,
		InsecureSkipVerify: o.InsecureSkipVerify,
	}
}

// Dial returns the function that opens etcd clients. It reads the certificate files for every client
// and every handshake, so that they can be rotated.
func (o *Etcd) Dial(timeout time.Duration) coordinator.Dial {
	return func(endpoints []string) (*clientv3.Client, error) {
		cfg := clientv3.Config{Endpoints: endpoints, Username: o.Username, Password: o.Password}
		coordinator.FitClientConfig(&cfg, timeout)
		if slices.ContainsFunc(endpoints, func(e string) bool { return strings.HasPrefix(e, "https://") }) {
			config, err := o.tlsInfo().ClientConfig()
			if err != nil {
				return nil, fmt.Errorf("TLS for etcd: %w", err)
			}
			cfg.TLS = config
		}
		return clientv3.New(cfg)
	}
}
