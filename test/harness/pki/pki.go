// Package pki issues the certificates of a harness: for the control plane, for etcd's
// clients and peers, for the sidecars. The certificates are made by kubeadm's own code.
//
// Everything is ECDSA P-256 and lives for a day; nothing of it is meant to leave
// the directory of one harness. A [CA] keeps its key in memory only.
//
//	ca, err := pki.NewCA("etcd-ca")
//	cert, key, err := ca.Issue(pki.Request{
//		CommonName: "etcd-server",
//		DNSNames:   []string{"*.main-peer.shoot.svc"},
//		Server:     true,
//	})
package pki

import (
	"crypto"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"time"

	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
	"k8s.io/kubernetes/cmd/kubeadm/app/apis/kubeadm"
	"k8s.io/kubernetes/cmd/kubeadm/app/util/pkiutil"
)

const (
	// validity is longer than any test and short enough that a leaked key is
	// worth nothing.
	validity = 24 * time.Hour
	// backdate allows for clocks that differ a little, e.g. after a suspended
	// virtual machine woke up.
	backdate = time.Hour
)

// CA is a certificate authority. Its methods may be called from several goroutines.
type CA struct {
	certificate *x509.Certificate
	key         crypto.Signer
}

// Request says what a certificate is for.
type Request struct {
	// CommonName is the subject's name. For a client of the API server it is the
	// user name. Required.
	CommonName string
	// Organizations are the groups of the user.
	Organizations []string
	// DNSNames and IPs are what a server may be called; wildcards are allowed in the
	// leftmost label.
	DNSNames []string
	IPs      []net.IP
	// Server and Client are the purposes; at least one is required. etcd peers need
	// both.
	Server, Client bool
}

// NewCA makes a certificate authority with a new key. The error says that no key could be made.
func NewCA(commonName string) (*CA, error) {
	// The CA must not expire before a certificate that it issues late in its life.
	config := lasting(2 * validity)
	config.CommonName = commonName
	certificate, key, err := pkiutil.NewCertificateAuthority(config)
	if err != nil {
		return nil, fmt.Errorf("make CA %q: %w", commonName, err)
	}
	return &CA{certificate: certificate, key: key}, nil
}

// CertPEM returns the certificate of the authority, PEM-encoded.
func (ca *CA) CertPEM() []byte { return pkiutil.EncodeCertPEM(ca.certificate) }

// Issue makes a key and a certificate for it, both PEM-encoded, valid from an hour ago
// for the next 24 hours. The error says what the request lacks.
func (ca *CA) Issue(req Request) (certPEM, keyPEM []byte, err error) {
	fail := func(err error) ([]byte, []byte, error) {
		return nil, nil, fmt.Errorf("issue certificate for %q: %w", req.CommonName, err)
	}
	if req.Server && len(req.DNSNames) == 0 && len(req.IPs) == 0 {
		return fail(errors.New("for a server DNSNames and IPs are empty; clients could not verify the server"))
	}
	config := lasting(validity)
	config.CommonName, config.Organization = req.CommonName, req.Organizations
	config.AltNames = cert.AltNames{DNSNames: req.DNSNames, IPs: req.IPs}
	if req.Server {
		config.Usages = append(config.Usages, x509.ExtKeyUsageServerAuth)
	}
	if req.Client {
		config.Usages = append(config.Usages, x509.ExtKeyUsageClientAuth)
	}
	certificate, key, err := pkiutil.NewCertAndKey(ca.certificate, ca.key, config)
	if err != nil {
		return fail(err)
	}
	if keyPEM, err = keyutil.MarshalPrivateKeyToPEM(key); err != nil {
		return fail(err)
	}
	return pkiutil.EncodeCertPEM(certificate), keyPEM, nil
}

// NewSigningKey makes a key pair that signs and verifies ServiceAccount tokens, both
// halves PEM-encoded.
func NewSigningKey() (private, public []byte, err error) {
	key, err := pkiutil.NewPrivateKey(kubeadm.EncryptionAlgorithmECDSAP256)
	if err != nil {
		return nil, nil, fmt.Errorf("make signing key: %w", err)
	}
	if private, err = keyutil.MarshalPrivateKeyToPEM(key); err != nil {
		return nil, nil, fmt.Errorf("make signing key: %w", err)
	}
	public, err = pkiutil.EncodePublicKeyPEM(key.Public())
	return private, public, err
}

// lasting is a certificate that is valid from a little while ago.
func lasting(validity time.Duration) *pkiutil.CertConfig {
	now := time.Now()
	return &pkiutil.CertConfig{
		Config:              cert.Config{NotBefore: now.Add(-backdate)},
		NotAfter:            now.Add(validity),
		EncryptionAlgorithm: kubeadm.EncryptionAlgorithmECDSAP256,
	}
}
