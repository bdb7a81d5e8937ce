// Package pki issues the certificates of a harness: for the control plane, for etcd's
// clients and peers, for the sidecars.
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
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"time"
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
	key         *ecdsa.PrivateKey
	certPEM     []byte
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

// NewCA makes a certificate authority with a new key. The error names an empty
// commonName, or says that no key could be made.
func NewCA(commonName string) (*CA, error) {
	if commonName == "" {
		return nil, errors.New("make CA: commonName is empty; give the authority a name")
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make CA %q: %w", commonName, err)
	}
	template, err := newTemplate(pkix.Name{CommonName: commonName})
	if err != nil {
		return nil, fmt.Errorf("make CA %q: %w", commonName, err)
	}
	template.IsCA = true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	// The CA must not expire before a certificate that it issues late in its life.
	template.NotAfter = template.NotAfter.Add(validity)
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("make CA %q: %w", commonName, err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("make CA %q: %w", commonName, err)
	}
	return &CA{certificate: certificate, key: key, certPEM: encode("CERTIFICATE", der)}, nil
}

// CertPEM returns the certificate of the authority, PEM-encoded.
func (ca *CA) CertPEM() []byte {
	return append([]byte(nil), ca.certPEM...)
}

// Issue makes a key and a certificate for it, both PEM-encoded, valid from an hour ago
// for the next 24 hours. The error names the field of the request that is wrong.
func (ca *CA) Issue(req Request) (cert, key []byte, err error) {
	if req.CommonName == "" {
		return nil, nil, errors.New("issue certificate: CommonName is empty; name the subject")
	}
	fail := func(err error) ([]byte, []byte, error) {
		return nil, nil, fmt.Errorf("issue certificate for %q: %w", req.CommonName, err)
	}
	if !req.Server && !req.Client {
		return fail(errors.New("neither Server nor Client is set; say what the certificate is for"))
	}
	if req.Server && len(req.DNSNames) == 0 && len(req.IPs) == 0 {
		return fail(errors.New("for a server DNSNames and IPs are empty; clients could not verify the server"))
	}
	subjectKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fail(err)
	}
	template, err := newTemplate(pkix.Name{CommonName: req.CommonName, Organization: req.Organizations})
	if err != nil {
		return fail(err)
	}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.DNSNames, template.IPAddresses = req.DNSNames, req.IPs
	if req.Server {
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
	}
	if req.Client {
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageClientAuth)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, ca.certificate, subjectKey.Public(), ca.key)
	if err != nil {
		return fail(err)
	}
	keyPEM, err := encodePrivateKey(subjectKey)
	if err != nil {
		return fail(err)
	}
	return encode("CERTIFICATE", der), keyPEM, nil
}

// NewSigningKey makes a key pair that signs and verifies ServiceAccount tokens, both
// halves PEM-encoded.
func NewSigningKey() (private, public []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("make signing key: %w", err)
	}
	if private, err = encodePrivateKey(key); err != nil {
		return nil, nil, fmt.Errorf("make signing key: %w", err)
	}
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return nil, nil, fmt.Errorf("make signing key: %w", err)
	}
	return private, encode("PUBLIC KEY", der), nil
}

func newTemplate(subject pkix.Name) (*x509.Certificate, error) {
	// Random, so that several authorities of one name never collide in a client's
	// cache.
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, err
	}
	now := time.Now()
	return &x509.Certificate{
		SerialNumber:          serial.Add(serial, big.NewInt(1)),
		Subject:               subject,
		NotBefore:             now.Add(-backdate),
		NotAfter:              now.Add(validity),
		BasicConstraintsValid: true,
	}, nil
}

func encodePrivateKey(key crypto.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return encode("PRIVATE KEY", der), nil
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
