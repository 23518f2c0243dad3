// Package testca signs certificates for tests.
package testca

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"testing"
	"time"
)

// Authority signs certificates.
type Authority struct {
	PEM  []byte         // its own certificate
	Pool *x509.CertPool // trusts it and no other

	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// New returns an authority that nobody trusts yet.
func New(t testing.TB) *Authority {
	t.Helper()
	a := &Authority{Pool: x509.NewCertPool(), key: newKey(t)}
	a.cert = &x509.Certificate{
		// Its own name: by it servers say whose certificates they take.
		Subject: pkix.Name{CommonName: "authority " + rand.Text()}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	a.PEM = a.sign(t, a.cert, a.key)
	a.Pool.AppendCertsFromPEM(a.PEM)
	return a
}

// Sign makes a certificate of the template, which lacks its number and its time: that is an
// hour before and after now. It returns the certificate and its key in PEM.
func (a *Authority) Sign(t testing.TB, template *x509.Certificate) (cert, key []byte) {
	t.Helper()
	private := newKey(t)
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return a.sign(t, template, private), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

func (a *Authority) sign(t testing.TB, template *x509.Certificate, key *ecdsa.PrivateKey) []byte {
	t.Helper()
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}
