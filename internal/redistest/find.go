package redistest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
)

// Version names the server to start.
type Version int

// The servers that tests run on. Only Redis7 serves TLS; Redis62 has no functions and no EVALSHA_RO.
const (
	Redis7  Version = iota // Debian's redis-server, 7.0
	Valkey9                // Valkey 9.1
	Redis8                 // Redis 8.2
	Redis62                // Redis 6.2, the oldest that the store supports
)

var versions = [...]struct{ name, env, file string }{
	Redis7:  {"Redis 7", "WEIR_REDIS7", "redis7"},
	Valkey9: {"Valkey 9", "WEIR_VALKEY9", "valkey9"},
	Redis8:  {"Redis 8", "WEIR_REDIS8", "redis8"},
	Redis62: {"Redis 6.2", "WEIR_REDIS62", "redis62"},
}

// Versions are all of them, for tests that run on each.
func Versions() []Version { return []Version{Redis7, Valkey9, Redis8, Redis62} }

// String returns the name that people use, such as "Redis 6.2".
func (v Version) String() string { return versions[v].name }

// find returns the path of the server's binary: the one that the version's variable names (WEIR_REDIS7 and so on), for
// Redis7 the redis-server in PATH, else the one that ./test.sh put into the repository's .tools/servers.
func find(v Version) (string, error) {
	if path := os.Getenv(versions[v].env); path != "" {
		if _, err := exec.LookPath(path); err != nil {
			return "", fmt.Errorf("%s=%s names no program: %w", versions[v].env, path, err)
		}
		return path, nil
	}
	if v == Redis7 {
		if path, err := exec.LookPath("redis-server"); err == nil && isRedis7(path) {
			return path, nil
		}
	}
	root, err := repository()
	if err != nil {
		return "", err
	}
	path := filepath.Join(root, ".tools", "servers", versions[v].file)
	if _, err := exec.LookPath(path); err != nil {
		return "", fmt.Errorf("%v is not installed: run ./test.sh, which installs it, or let %s name its server program",
			v, versions[v].env)
	}
	return path, nil
}

var redis7Line = regexp.MustCompile(`\bv=7\.`)

func isRedis7(path string) bool {
	out, err := exec.Command(path, "--version").Output()
	return err == nil && redis7Line.Match(out)
}

// repository returns the folder of go.work, above the package under test.
func repository() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.work")); err == nil {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("no go.work above the package under test, so no .tools folder to look into")
		}
		dir = parent
	}
}
