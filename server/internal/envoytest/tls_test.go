package envoytest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// authority signs certificates.
type authority struct {
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	file string // its own certificate
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{dir: t.TempDir()}
	a.cert = &x509.Certificate{
		Subject: pkix.Name{CommonName: "authority"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	a.file, _ = a.issue(t, "authority", a.cert)
	return a
}

// issue writes a certificate and its key, and returns their files. The first is the
// authority's own.
func (a *authority) issue(t *testing.T, name string, template *x509.Certificate) (certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if a.key == nil {
		a.key = key
	}
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	cert, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	write := func(suffix, kind string, bytes []byte) string {
		file := filepath.Join(a.dir, name+suffix)
		if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: bytes}), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	return write(".pem", "CERTIFICATE", cert), write("-key.pem", "PRIVATE KEY", secret)
}

// overTLS is a cluster that checks the service's certificate and shows one, if it has one.
func (a *authority) overTLS(certFile, keyFile string) []string {
	mine := ""
	if certFile != "" {
		mine = fmt.Sprintf("tls_certificates: [{certificate_chain: {filename: %s}, private_key: {filename: %s}}], ", certFile, keyFile)
	}
	return []string{"transport_socket: {name: tls, typed_config: {" +
		`"@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext, ` +
		"common_tls_context: {" + mine + "validation_context: {trusted_ca: {filename: " + a.file + "}, " +
		`match_typed_subject_alt_names: [{san_type: IP_ADDRESS, matcher: {exact: 127.0.0.1}}]}}}}`}
}

func TestServiceOverTLSAnswersWhoShowsACertificate(t *testing.T) {
	t.Parallel()
	ours, theirs := newAuthority(t), newAuthority(t)
	server := &x509.Certificate{IPAddresses: []net.IP{{127, 0, 0, 1}}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	cert, key := ours.issue(t, "server", server)
	client := func() *x509.Certificate {
		return &x509.Certificate{Subject: pkix.Name{CommonName: "envoy"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	}
	clientCert, clientKey := ours.issue(t, "client", client())
	foreignCert, foreignKey := theirs.issue(t, "client", client())
	s := startService(t, serve("testdata/rules.yaml", "memory:", "--grpc-tls-cert", cert, "--grpc-tls-key", key, "--grpc-client-ca", ours.file))
	e := startEnvoy(t,
		listener{Name: "known", Service: s.grpc, Filter: patient, Cluster: ours.overTLS(clientCert, clientKey)},
		listener{Name: "foreign", Service: s.grpc, Filter: patient, Cluster: ours.overTLS(foreignCert, foreignKey)},
		listener{Name: "nameless", Service: s.grpc, Filter: patient, Cluster: ours.overTLS("", "")},
		listener{Name: "plain", Service: s.grpc, Filter: patient})
	bob := []string{"x-rule", "two", "x-user", "bob"}
	for _, name := range []string{"foreign", "nameless", "plain"} {
		e.at(name).expect(t, []int{500, 500}, "/", bob...)
	}
	e.at("known").expect(t, twice, "/", bob...)
	if err := e.wantStat(t, "cluster.known.upstream_cx_total", 1); err != nil {
		t.Error(err)
	}
}
