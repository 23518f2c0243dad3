package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
)

// tlsFiles are the files of a server that speaks TLS; without a certificate it does not.
type tlsFiles struct {
	cert, key string
	clientCA  string // whoever calls shows a certificate that these sign; empty: anybody may call
	clientSAN string // and it has this DNS name or address; empty: any
}

// check says what lacks among the flags; the original's settings have been checked.
func (f tlsFiles) check() error {
	switch {
	case (f.cert == "") != (f.key == ""):
		return errors.New("--grpc-tls-cert and --grpc-tls-key go together: write both or none")
	case f.cert == "" && f.clientCA != "":
		return errors.New("--grpc-client-ca needs TLS: write --grpc-tls-cert and --grpc-tls-key too")
	case f.clientCA == "" && f.clientSAN != "":
		return errors.New("--grpc-client-name is checked only in certificates that are: write --grpc-client-ca too")
	}
	return nil
}

// load reads the files.
func (f tlsFiles) load() (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(f.cert, f.key)
	if err != nil {
		return nil, fmt.Errorf("certificate %s and key %s: %w", f.cert, f.key, err)
	}
	config := &tls.Config{
		MinVersion:   tls.VersionTLS12,
		NextProtos:   []string{"h2"},
		Certificates: []tls.Certificate{pair},
	}
	if f.clientCA == "" {
		return config, nil
	}
	if config.ClientCAs, err = certPool(f.clientCA); err != nil {
		return nil, err
	}
	config.ClientAuth = tls.RequireAndVerifyClientCert
	if f.clientSAN != "" {
		config.VerifyConnection = func(state tls.ConnectionState) error {
			return state.PeerCertificates[0].VerifyHostname(f.clientSAN)
		}
	}
	return config, nil
}

// certPool reads the certificates of authorities.
func certPool(file string) (*x509.CertPool, error) {
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s has no certificate in PEM", file)
	}
	return pool, nil
}

// reloadingTLS is a server's TLS that follows its files. They are looked at when a client
// connects, and only they: a replaced file and a swapped symbolic link are seen alike.
type reloadingTLS struct {
	files tlsFiles
	log   *slog.Logger

	mu     sync.Mutex
	config *tls.Config
	seen   []os.FileInfo // when they were read last, well or not
}

// newReloadingTLS reads the files, and returns a configuration that reads them again when
// they have changed.
func newReloadingTLS(files tlsFiles, log *slog.Logger) (*tls.Config, error) {
	seen := files.stat()
	config, err := files.load()
	if err != nil {
		return nil, err
	}
	r := &reloadingTLS{files: files, log: log, config: config, seen: seen}
	return &tls.Config{
		MinVersion:         tls.VersionTLS12,
		NextProtos:         config.NextProtos,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return r.current(), nil },
	}, nil
}

// current returns what the files say, or what they said while they made sense. Files are
// replaced one after the other, so that a key may be for the next certificate.
func (r *reloadingTLS) current() *tls.Config {
	r.mu.Lock()
	defer r.mu.Unlock()
	seen := r.files.stat()
	if slices.EqualFunc(seen, r.seen, sameContents) {
		return r.config
	}
	r.seen = seen
	config, err := r.files.load()
	if err != nil {
		r.log.Error("the certificates have changed and make no sense; those before stay in use", "error", err)
		return r.config
	}
	r.log.Info("certificates read again", "cert", r.files.cert)
	r.config = config
	return config
}

// stat describes the files; what is not there is nil.
func (f tlsFiles) stat() []os.FileInfo {
	var infos []os.FileInfo
	for _, name := range []string{f.cert, f.key, f.clientCA} {
		info, err := os.Stat(name)
		if err != nil {
			info = nil
		}
		infos = append(infos, info)
	}
	return infos
}

func sameContents(a, b os.FileInfo) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	return os.SameFile(a, b) && a.ModTime().Equal(b.ModTime()) && a.Size() == b.Size()
}
