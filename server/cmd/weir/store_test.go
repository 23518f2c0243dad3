package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weir.dev/weir/memstore"
)

func TestStoreURLsThatWork(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ text, name, addrs, user, password string }{
		{"redis://h", "redis://h:6379", "h:6379", "", ""},
		{"redis://h:1/2", "redis://h:1/2", "h:1", "", ""},
		{"redis://:p@h", "redis://h:6379", "h:6379", "", "p"},
		{"redis://u:p%40%25/x?y@h:1", "redis://h:1", "h:1", "u", "p@%/x?y"},
		{"redis://u:a@b:c@h:1", "redis://h:1", "h:1", "u", "a@b:c"},
		{"rediss://[::1]:1", "rediss://[::1]:1", "[::1]:1", "", ""},
		{"redis://[::1]", "redis://[::1]:6379", "[::1]:6379", "", ""},
		{"redis+cluster://a,b:7,c", "redis+cluster://a:6379,b:7,c:6379", "a:6379 b:7 c:6379", "", ""},
		{"redis+sentinel://u:p@a,b:7/main?db=3", "redis+sentinel://a:26379,b:7/main", "a:26379 b:7", "u", "p"},
	} {
		u, err := parseStoreURL(tt.text)
		if err != nil {
			t.Errorf("%s: %v", tt.text, err)
			continue
		}
		opts, err := u.redis()
		if err != nil {
			t.Errorf("%s: %v", tt.text, err)
		}
		if got := strings.Join(opts.Addrs, " "); got != tt.addrs || opts.Username != tt.user || opts.Password != tt.password || u.String() != tt.name {
			t.Errorf("%s: addresses %s, user %q, password %q, name %s; want %+v", tt.text, got, opts.Username, opts.Password, u, tt)
		}
	}
}

func TestStoreURLSetsEveryOption(t *testing.T) {
	t.Parallel()
	u, err := parseStoreURL("redis+sentinel://h/main?db=3&sentinel_user=s&sentinel_password=t&tls=true&server_name=n&resp2=true&client_name=c&budget=20ms")
	if err != nil {
		t.Fatal(err)
	}
	opts, err := u.redis()
	if err != nil {
		t.Fatal(err)
	}
	if opts.Master != "main" || opts.DB != 3 || opts.SentinelUsername != "s" || opts.SentinelPassword != "t" || opts.Cluster ||
		opts.TLS == nil || opts.TLS.ServerName != "n" || !opts.RESP2 || opts.ClientName != "c" || opts.Budget != 20*time.Millisecond {
		t.Errorf("got %+v (TLS %+v), want what each parameter says", opts, opts.TLS)
	}
	if u, err = parseStoreURL("memory:?max_keys=1000"); err != nil {
		t.Fatal(err)
	}
	if opts, err := u.memory(); err != nil || opts != (memstore.Options{MaxKeys: 1000}) {
		t.Errorf("memory = %+v, %v, want 1000 keys", opts, err)
	}
}

func TestBadStoreURLsAreExplainedWithoutThePassword(t *testing.T) {
	t.Parallel()
	notPEM := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(notPEM, []byte("nothing"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ text, want string }{
		{"", "memory:"},
		{"memory", "memory:"},
		{"memory:x", "memory:"},
		{"memory:?max_keys=many", "max_keys"},
		{"memory:?max_keys=-1", "max_keys"},
		{"memory:?keys=1", `"keys"`},
		{"mysql://user:hunter2@h", "redis://"},
		{"hunter2@h", "redis://"},
		{"redis://", "host is missing"},
		{"redis://:hunter2", "if it is a password"},
		{"redis://user:hunter2", "if it is a password"},
		{"redis://user:hunter2@", "host is missing"},
		{"redis://user:hunter2@h:0", "1 to 65535"},
		{"redis://user:hunter2@h:65536", "1 to 65535"},
		{"redis://user:hunter2%@h", "%25"},
		{"redis://user:hunter2@h/x", `database "x"`},
		{"redis://user:hunter2@h/-1", "database"},
		{"redis://user:hunter2@a,b", "2 hosts"},
		{"redis://user:hunter2@h?ttl=5", `"ttl"`},
		{"redis://user:hunter2@h?budget=soon", "budget"},
		{"redis://user:hunter2@h?budget=-1s", "budget"},
		{"redis://user:hunter2@h?budget=2h", "1m"},
		{"redis://user:hunter2@h?tls=yes", "true or false"},
		{"redis://user:hunter2@h?ca=x", "tls=true"},
		{"rediss://user:hunter2@h?ca=" + notPEM, "no certificate"},
		{"rediss://user:hunter2@h?cert=" + notPEM, "cert and key"},
		{"redis+cluster://user:hunter2@a,b/1", "no database"},
		{"redis+sentinel://user:hunter2@a,b", "no master"},
		{"redis://user:hunter2@h?%zz", "name=value"},
		{"redis://user:hunter2@::1:5", "HOST:PORT"},
	} {
		store, err := newStore(tt.text, 0)
		switch {
		case err == nil:
			t.Errorf("%s: %v, want an error with %q", tt.text, store, tt.want)
		case strings.Contains(err.Error(), "hunter2"):
			t.Errorf("%s: the error shows the password: %v", tt.text, err)
		case !strings.Contains(err.Error(), tt.want):
			t.Errorf("%s: %v, want an error with %q", tt.text, err, tt.want)
		}
	}
}

func FuzzStoreURL(f *testing.F) {
	f.Add("redis://user:password@h:1/0?tls=true")
	f.Add("redis+sentinel://a,[::1]:2/main")
	f.Add("memory:?max_keys=5")
	f.Add("redis://[::1")
	f.Fuzz(func(t *testing.T, text string) {
		u, err := parseStoreURL(text)
		if err != nil || u.scheme == "memory" || u.query.Has("ca") || u.query.Has("cert") || u.query.Has("key") {
			return // no files in a fuzz test
		}
		if _, err := u.redis(); err != nil {
			return
		}
		if again, err := parseStoreURL(u.String()); err != nil || again.String() != u.String() {
			t.Errorf("%q is named %q, which is another store: %v, %v", text, u, again, err)
		}
	})
}
