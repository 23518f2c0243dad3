package archtest

import (
	"encoding/json"
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Packages are named from the root of the repository; root is the library's own package.
const root = "."

// everything, as an entry of the map, allows all packages of the repository.
const everything = "everything"

// mayImport is the import map: for each package, what its own code may import of this repository. An entry that ends in
// "/..." stands for all packages below. Tests may import more: see faults.
var mayImport = map[string][]string{
	root:                    {},
	"internal/algorithm":    {root},
	"internal/cases":        {root},
	"internal/countercases": {root},
	"internal/archtest":     {},
	"internal/testserver":   {},
	"internal/redistest":    {"internal/testserver"},
	"internal/faultproxy":   {},
	"internal/drills":       {},
	"internal/difftest":     {},

	// Stores. They do not know each other; what joins them is a Limiter.
	"memstore":   {root, "internal/algorithm"},
	"redisstore": {root, "internal/algorithm"},
	"lease":      {root},
	"storetest":  {root, "internal/cases"},

	// What stands in front of a Limiter, or beside it.
	"clientip":                    {},
	"concurrency":                 {},
	"concurrency/grpcconcurrency": {"concurrency"},
	"httpretry":                   {},

	// The service.
	"server/rules":     {root, "clientip"},
	"server/source":    {"server/rules"},
	"server/xds":       {"server/rules"},
	"server/stats":     {},
	"server/settings":  {},
	"server/tracing":   {},
	"server/rls":       {root, "server/rules", "server/stats", "lease"},
	"server/preview":   {root, "server/rules"},
	"server/httpcheck": {"server/rules", "server/rls", "clientip"},
	"server/admin":     {root, "server/rules", "server/rls", "redisstore"},
	"server/cmd/...":   {everything},

	"server/internal/envoytest":   {},
	"server/internal/gatewaytest": {},
	"server/internal/reference":   {},
	"server/internal/testca":      {},

	"bench/...": {everything},
}

// mustNotImport names packages, of the standard library or of others, that would break what a package promises: the
// arithmetic no clock, no lock, no I/O; the rules to be pure.
var mustNotImport = map[string][]string{
	"internal/algorithm": {"io", "net", "net/http", "os", "sync", "sync/atomic"},
	"server/rules": {"net", "net/http", "net/rpc", "crypto/tls", "os/exec", "database/sql",
		"google.golang.org/grpc", "github.com/redis/rueidis"},
}

// The library requires one module, and one package imports it.
const (
	client        = "github.com/redis/rueidis"
	clientPackage = "redisstore"
)

const repositoryPath = "weir.dev/weir"

// file is one Go file, with all that the rules ask about it.
type file struct {
	path    string // from the root of the repository
	module  string // root, server, bench ...
	imports []string
}

func (f file) pkg() string  { return path.Dir(f.path) }
func (f file) isTest() bool { return strings.HasSuffix(f.path, "_test.go") }

// faults returns a sentence for each import of f that the rules forbid.
func faults(f file) []string {
	allowed, known := lookUp(f.pkg())
	if !known {
		return []string{fmt.Sprintf("%s: package %s is not in the import map: add it to the map in internal/archtest",
			f.path, f.pkg())}
	}
	var faults []string
	forbid := func(imported, why string, args ...any) {
		faults = append(faults, fmt.Sprintf("%s imports %s: %s", f.path, imported, fmt.Sprintf(why, args...)))
	}
	for _, imported := range f.imports {
		for _, no := range mustNotImport[f.pkg()] {
			if !f.isTest() && (imported == no || !isStandard(no) && strings.HasPrefix(imported, no+"/")) {
				forbid(imported, "package %s must import no %s", f.pkg(), strings.Join(mustNotImport[f.pkg()], ", "))
			}
		}
		ours, isOurs := within(imported)
		switch {
		case isStandard(imported):
		case !isOurs && f.module == root && (f.pkg() != clientPackage || !isBelow(imported, client)):
			forbid(imported, "in the library only %s imports another module, and only %s", clientPackage, client)
		case !isOurs:
		case isBelow(ours, "server") && !isBelow(f.pkg(), "server"):
			forbid(imported, "nothing outside the server imports the server")
		case f.isTest():
		case isBelow(ours, "internal/redistest"):
			forbid(imported, "only tests import internal/redistest")
		case !slices.Contains(allowed, everything) && !slices.Contains(allowed, ours):
			forbid(imported, "of this repository package %s may import %s", f.pkg(), list(allowed))
		}
	}
	return faults
}

func TestEachPackageImportsOnlyWhatTheMapAllows(t *testing.T) {
	t.Parallel()
	files := readFiles(t)
	if len(files) == 0 {
		t.Fatal("found no Go file")
	}
	for _, f := range files {
		for _, fault := range faults(f) {
			t.Error(fault)
		}
	}
}

func TestMapSaysNoMoreThanThereIs(t *testing.T) {
	t.Parallel()
	imports := map[string][]string{} // of the own code of each package
	for _, f := range readFiles(t) {
		all := imports[f.pkg()]
		for _, imported := range f.imports {
			if ours, isOurs := within(imported); isOurs && !f.isTest() {
				all = append(all, ours)
			}
		}
		imports[f.pkg()] = all
	}
	for entry, allowed := range mayImport {
		if slices.Contains(allowed, everything) {
			continue
		}
		all, isThere := imports[entry]
		if !isThere {
			t.Errorf("the map has %s, which is no package of the repository", entry)
		}
		for _, name := range allowed {
			if !slices.Contains(all, name) {
				t.Errorf("package %s may import %s and does not: take it out of the map", entry, name)
			}
		}
	}
}

func TestLibraryRequiresOnlyItsRedisClient(t *testing.T) {
	t.Parallel()
	out, err := exec.Command("go", "mod", "edit", "-json", filepath.Join(repository, "go.mod")).Output()
	if err != nil {
		t.Fatalf("go mod edit -json: %v", err)
	}
	var module struct {
		Require []struct {
			Path     string
			Indirect bool
		}
	}
	if err := json.Unmarshal(out, &module); err != nil {
		t.Fatal(err)
	}
	for _, required := range module.Require {
		if !required.Indirect && required.Path != client {
			t.Errorf("go.mod requires %s: the library may require %s and no other module", required.Path, client)
		}
	}
}

func TestEachForbiddenImportIsFound(t *testing.T) {
	t.Parallel()
	ours := func(name string) string { return repositoryPath + "/" + name }
	for _, c := range []struct {
		file, module, imported string
		want                   string // part of the sentence; "" if the import is allowed
	}{
		{"limiter.go", root, ours("memstore"), "may import none of it"},
		{"limiter.go", root, client, "only redisstore imports another module"},
		{"limiter_test.go", root, ours("memstore"), ""},
		{"limiter_test.go", root, "pgregory.net/rapid", "only redisstore imports another module"},
		{"memstore/store.go", root, repositoryPath, ""},
		{"memstore/store.go", root, ours("lease"), "may import weir.dev/weir, weir.dev/weir/internal/algorithm"},
		{"memstore/store.go", root, ours("server/rules"), "nothing outside the server"},
		{"memstore/store_test.go", root, ours("server/rules"), "nothing outside the server"},
		{"redisstore/store.go", root, client, ""},
		{"redisstore/store.go", root, client + "/rueidislock", ""},
		{"redisstore/store.go", root, client + "x", "only redisstore imports another module"},
		{"redisstore/store.go", root, ours("internal/redistest"), "only tests import"},
		{"redisstore/store_test.go", root, ours("internal/redistest"), ""},
		{"concurrency/limit.go", root, repositoryPath, "may import none of it"},
		{"internal/algorithm/gcra.go", root, "sync", "must import no io, net"},
		{"internal/algorithm/gcra_test.go", root, "os", ""},
		{"concurrency/grpcconcurrency/server.go", "concurrency/grpcconcurrency", "google.golang.org/grpc", ""},
		{"server/rules/load.go", "server", "net/netip", ""},
		{"server/rules/load.go", "server", "net/http", "must import no net"},
		{"server/rules/load.go", "server", "google.golang.org/grpc/codes", "must import no net"},
		{"server/rules/load.go", "server", ours("redisstore"), "may import weir.dev/weir"},
		{"server/cmd/weir/main.go", "server", ours("redisstore"), ""},
		{"server/cmd/weir/main.go", "server", ours("internal/redistest"), "only tests import"},
		{"bench/load/main.go", "bench", ours("memstore"), ""},
		{"bench/load/main.go", "bench", ours("server/rules"), "nothing outside the server"},
		{"brandnew/new.go", root, "fmt", "add it to the map"},
	} {
		got := strings.Join(faults(file{c.file, c.module, []string{c.imported}}), "\n")
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s imports %s: got %q, want %q", c.file, c.imported, got, c.want)
		}
	}
}

// lookUp returns the entry of the map for a package.
func lookUp(pkg string) (allowed []string, known bool) {
	if allowed, known = mayImport[pkg]; known {
		return allowed, true
	}
	for entry, allowed := range mayImport {
		if below, ok := strings.CutSuffix(entry, "/..."); ok && isBelow(pkg, below) {
			return allowed, true
		}
	}
	return nil, false
}

// within returns the name that the map has for an imported package, if it is of this repository.
func within(imported string) (name string, ok bool) {
	if imported == repositoryPath {
		return root, true
	}
	return strings.CutPrefix(imported, repositoryPath+"/")
}

func isBelow(name, folder string) bool {
	return name == folder || strings.HasPrefix(name, folder+"/")
}

// isStandard follows the go command: the first part of any other import path has a dot.
func isStandard(imported string) bool {
	first, _, _ := strings.Cut(imported, "/")
	return !strings.Contains(first, ".")
}

func list(allowed []string) string {
	if len(allowed) == 0 {
		return "none of it"
	}
	var paths []string
	for _, name := range allowed {
		paths = append(paths, path.Join(repositoryPath, name))
	}
	return strings.Join(paths, ", ")
}

// repository is where the tests find the root of the repository.
var repository = filepath.Join("..", "..")

// readFiles returns all Go files of the repository.
func readFiles(t *testing.T) []file {
	t.Helper()
	var files []file
	modules := map[string]string{} // by folder
	err := filepath.WalkDir(repository, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(repository, name)
		if err != nil {
			return err
		}
		relative = filepath.ToSlash(relative)
		switch {
		case entry.IsDir() && relative != root && isIgnored(entry.Name()):
			return fs.SkipDir
		case entry.IsDir():
			modules[relative] = modules[path.Dir(relative)]
			if _, err := os.Stat(filepath.Join(name, "go.mod")); err == nil {
				modules[relative] = relative
			}
			return nil
		case !strings.HasSuffix(name, ".go"):
			return nil
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		f := file{path: relative, module: modules[path.Dir(relative)]}
		for _, spec := range parsed.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			f.imports = append(f.imports, imported)
		}
		files = append(files, f)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// isIgnored says whether the go command ignores a folder of this name.
func isIgnored(folder string) bool {
	return strings.HasPrefix(folder, ".") || strings.HasPrefix(folder, "_") || folder == "testdata"
}
