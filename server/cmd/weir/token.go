package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode"

	"weir.dev/weir/server/admin"
)

const (
	tokenFileVariable = "WEIR_ADMIN_TOKEN_FILE"
	tokenFileUsage    = "`FILE` with the token that questions about keys and resets must bring; needed where the debug listener is not on a loopback address"
	maxToken          = 4096
)

// debugAccess says who may ask the debug listener, once that is open.
func (s *server) debugAccess() (admin.Access, error) {
	token, err := readToken(s.opts.adminTokenFile)
	if err != nil {
		return admin.Access{}, fmt.Errorf("--admin-token-file, %s: %w", tokenFileVariable, err)
	}
	return admin.Access{Token: token, Local: func() bool { return admin.IsLocal(s.debug.Addr()) }}, nil
}

// readToken returns the token in a file, which may end in a line break; "" for no file.
func readToken(path string) (string, error) {
	if path == "" {
		return "", nil
	}
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, 2*maxToken))
	if err != nil {
		return "", err
	}
	token := string(bytes.TrimSpace(data))
	switch {
	case token == "":
		return "", fmt.Errorf("%s is empty: write a token into it", path)
	case len(token) > maxToken:
		return "", fmt.Errorf("%s is too long: a token has at most %d bytes", path, maxToken)
	case strings.ContainsFunc(token, func(c rune) bool { return c <= ' ' || c > unicode.MaxASCII || c == 0x7f }):
		return "", fmt.Errorf("%s has more than a token: write one word of ASCII, without spaces", path)
	}
	return token, nil
}
