package redistest

import (
	"os"
	"os/exec"
	"regexp"

	"weir.dev/weir/internal/testserver"
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

var versions = [...]struct{ name, file string }{
	Redis7:  {"Redis 7", "redis7"},
	Valkey9: {"Valkey 9", "valkey9"},
	Redis8:  {"Redis 8", "redis8"},
	Redis62: {"Redis 6.2", "redis62"},
}

// Versions are all of them, for tests that run on each.
func Versions() []Version { return []Version{Redis7, Valkey9, Redis8, Redis62} }

// String returns the name that people use, such as "Redis 6.2".
func (v Version) String() string { return versions[v].name }

// find returns the path of the server's binary: the one that the version's variable names (WEIR_REDIS7 and so on), for
// Redis7 the redis-server in PATH, else the one that ./test.sh put into the repository's .tools/servers.
func find(v Version) (string, error) {
	if v == Redis7 && os.Getenv("WEIR_REDIS7") == "" {
		if path, err := exec.LookPath("redis-server"); err == nil && isRedis7(path) {
			return path, nil
		}
	}
	return testserver.Find(versions[v].file)
}

var redis7Line = regexp.MustCompile(`\bv=7\.`)

func isRedis7(path string) bool {
	out, err := exec.Command(path, "--version").Output()
	return err == nil && redis7Line.Match(out)
}
