package envoytest

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"

	"weir.dev/weir/server/internal/testca"
)

// authority keeps what it has signed in a folder.
type authority struct {
	*testca.Authority
	dir  string
	file string // its own certificate
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{Authority: testca.New(t), dir: t.TempDir()}
	a.file = a.write(t, "authority.pem", a.PEM)
	return a
}

func (a *authority) write(t *testing.T, name string, text []byte) string {
	t.Helper()
	file := filepath.Join(a.dir, name)
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// issue writes a certificate and its key, and returns their files.
func (a *authority) issue(t *testing.T, name string, template *x509.Certificate) (certFile, keyFile string) {
	t.Helper()
	cert, key := a.Sign(t, template)
	return a.write(t, name+".pem", cert), a.write(t, name+"-key.pem", key)
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
