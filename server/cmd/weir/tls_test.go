package main

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"weir.dev/weir/server/internal/testca"
)

// issue writes a certificate for the loopback and a name, its key and the authority's own
// certificate into dir, as tls.crt, tls.key and ca.crt.
func issue(t *testing.T, a *testca.Authority, dir, name string) tls.Certificate {
	t.Helper()
	cert, key := a.Sign(t, &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, DNSNames: []string{name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	})
	for file, text := range map[string][]byte{"tls.crt": cert, "tls.key": key, "ca.crt": a.PEM} {
		if err := os.WriteFile(filepath.Join(dir, file), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

// filesIn names what issue has written into dir.
func filesIn(dir string) tlsFiles {
	return tlsFiles{cert: filepath.Join(dir, "tls.crt"), key: filepath.Join(dir, "tls.key")}
}

// startTLS runs a service whose gRPC speaks TLS.
func startTLS(t *testing.T, files tlsFiles) (*running, *lines) {
	t.Helper()
	opts := localOptions(writeRules(t, shopRules))
	opts.grpcTLS = files
	log := &lines{}
	s, err := newServer(opts, slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	return runServer(t, s), log
}

// checkOver asks for the health over a new connection, with these credentials.
func checkOver(t *testing.T, l net.Listener, config *tls.Config) error {
	t.Helper()
	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(credentials.NewTLS(config)))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, err = healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{})
	return err
}

// served returns the name in the certificate that a new connection is shown.
func served(t *testing.T, l net.Listener, trust *testca.Authority) string {
	t.Helper()
	conn, err := tls.Dial("tcp", l.Addr().String(), &tls.Config{RootCAs: trust.Pool, NextProtos: []string{"h2"}})
	if err != nil {
		return err.Error()
	}
	defer conn.Close()
	return conn.ConnectionState().PeerCertificates[0].Subject.CommonName
}

func TestGRPCSpeaksTLSAndNothingElse(t *testing.T) {
	t.Parallel()
	ca, dir := testca.New(t), t.TempDir()
	issue(t, ca, dir, "weir")
	s, _ := startTLS(t, filesIn(dir))
	if err := checkOver(t, s.grpc, &tls.Config{RootCAs: ca.Pool}); err != nil {
		t.Errorf("a client that trusts the authority: %v", err)
	}
	if err := checkOver(t, s.grpc, &tls.Config{RootCAs: testca.New(t).Pool}); err == nil {
		t.Error("a client that trusts another authority is answered")
	}
	if err := checkOver(t, s.grpc, &tls.Config{RootCAs: ca.Pool, MaxVersion: tls.VersionTLS11, MinVersion: tls.VersionTLS10}); err == nil {
		t.Error("a client that speaks TLS 1.1 is answered")
	}
	if _, err := healthpb.NewHealthClient(dial(t, s.grpc)).Check(t.Context(), &healthpb.HealthCheckRequest{}); err == nil {
		t.Error("a client that speaks plain text is answered")
	}
}

func TestClientsNeedACertificateOfTheAuthorityAndTheName(t *testing.T) {
	t.Parallel()
	ca, dir := testca.New(t), t.TempDir()
	issue(t, ca, dir, "weir")
	files := filesIn(dir)
	files.clientCA, files.clientSAN = filepath.Join(dir, "ca.crt"), "envoy"
	s, _ := startTLS(t, files)
	for _, tt := range []struct {
		who  string
		cert []tls.Certificate
		ok   bool
	}{
		{"with the name", []tls.Certificate{issue(t, ca, t.TempDir(), "envoy")}, true},
		{"with another name", []tls.Certificate{issue(t, ca, t.TempDir(), "other")}, false},
		{"with the name, of another authority", []tls.Certificate{issue(t, testca.New(t), t.TempDir(), "envoy")}, false},
		{"without a certificate", nil, false},
	} {
		if err := checkOver(t, s.grpc, &tls.Config{RootCAs: ca.Pool, Certificates: tt.cert}); (err == nil) != tt.ok {
			t.Errorf("a client %s: %v, want answered %t", tt.who, err, tt.ok)
		}
	}
}

func TestReplacedCertificatesAreServedToNewConnections(t *testing.T) {
	t.Parallel()
	ca, dir := testca.New(t), t.TempDir()
	issue(t, ca, dir, "first")
	s, log := startTLS(t, filesIn(dir))
	if got := served(t, s.grpc, ca); got != "first" {
		t.Errorf("served %q, want first", got)
	}
	// A key that is for the next certificate, which is not there yet.
	next := t.TempDir()
	issue(t, ca, next, "second")
	move := func(file string) {
		t.Helper()
		if err := os.Rename(filepath.Join(next, file), filepath.Join(dir, file)); err != nil {
			t.Fatal(err)
		}
	}
	move("tls.key")
	if got := served(t, s.grpc, ca); got != "first" || !strings.Contains(log.String(), "those before stay in use") {
		t.Errorf("between two files served %q, want first, and the log to say so:\n%s", got, log)
	}
	move("tls.crt")
	if got := served(t, s.grpc, ca); got != "second" {
		t.Errorf("served %q, want second", got)
	}
	if err := os.Remove(filepath.Join(dir, "tls.crt")); err != nil {
		t.Fatal(err)
	}
	if got := served(t, s.grpc, ca); got != "second" {
		t.Errorf("without a file served %q, want second", got)
	}
}

// A mounted Secret: its files link to ..data, which links to a folder with a new name for
// each version.
func TestASwappedLinkIsANewCertificate(t *testing.T) {
	t.Parallel()
	ca, mount := testca.New(t), t.TempDir()
	link := func(target, name string) {
		t.Helper()
		if err := os.Symlink(target, name+".new"); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(name+".new", name); err != nil {
			t.Fatal(err)
		}
	}
	version := func(n int, name string) {
		t.Helper()
		dir := filepath.Join(mount, fmt.Sprintf("..%d", n))
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		issue(t, ca, dir, name)
		link(filepath.Base(dir), filepath.Join(mount, "..data"))
	}
	version(1, "first")
	for _, file := range []string{"tls.crt", "tls.key", "ca.crt"} {
		link("..data/"+file, filepath.Join(mount, file))
	}
	s, _ := startTLS(t, filesIn(mount))
	first := served(t, s.grpc, ca)
	version(2, "second")
	if second := served(t, s.grpc, ca); first != "first" || second != "second" {
		t.Errorf("served %q and after the swap %q, want first and second", first, second)
	}
}

func TestTLSThatCannotWorkIsRefused(t *testing.T) {
	t.Parallel()
	ca, dir := testca.New(t), t.TempDir()
	issue(t, ca, dir, "weir")
	good := filesIn(dir)
	for _, tt := range []struct {
		files tlsFiles
		want  string
	}{
		{tlsFiles{cert: good.cert}, "--grpc-tls-key"},
		{tlsFiles{clientCA: good.cert}, "--grpc-client-ca needs TLS"},
		{tlsFiles{cert: good.cert, key: good.key, clientSAN: "envoy"}, "--grpc-client-name"},
		{tlsFiles{cert: good.cert, key: good.cert}, good.cert},
		{tlsFiles{cert: good.cert + "x", key: good.key}, good.cert + "x"},
		{tlsFiles{cert: good.cert, key: good.key, clientCA: good.key}, "no certificate in PEM"},
		{tlsFiles{cert: good.cert, key: good.key, clientCA: dir}, dir},
	} {
		opts := localOptions(writeRules(t, shopRules))
		opts.grpcTLS = tt.files
		if _, err := newServer(opts, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: %v, want an error with %q", tt.files, err, tt.want)
		}
	}
}
