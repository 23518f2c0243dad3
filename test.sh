#!/usr/bin/env bash
# Runs all checks of the repository: format, vet, staticcheck and tests, module by module, then the tests of the packages
# where goroutines meet once more under the race detector. Installs first what is missing: the servers and proxies
# that tests start (scripts/install-test-servers.sh) and staticcheck, both into .tools. Goes on after a failure; the last
# line names the steps that failed.
set -u -o pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

staticcheck_version=v0.8.2
racy=(. ./memstore ./redisstore ./lease ./internal/algorithm ./concurrency ./httpretry
  ./server/rls ./server/stats ./server/source ./server/xds ./server/admin ./server/httpcheck)

failed=()
modules=()
step() { # step NAME COMMAND...
  local name=$1 begin=$SECONDS
  shift
  echo "=== $name"
  if "$@"; then
    echo "--- $name: ok, $((SECONDS - begin)) s"
  else
    echo "--- $name: FAILED, $((SECONDS - begin)) s"
    failed+=("$name")
  fi
}

install_staticcheck() {
  # A build by an older Go cannot read the code of a newer one.
  staticcheck=$PWD/.tools/bin/staticcheck-$staticcheck_version-$(go env GOVERSION)
  if [ -x "$staticcheck" ]; then return; fi
  GOBIN=$PWD/.tools/bin go install "honnef.co/go/tools/cmd/staticcheck@$staticcheck_version" &&
    mv .tools/bin/staticcheck "$staticcheck"
}

format() {
  local files
  files=$(find . -name '.?*' -prune -o -name '*.go' -exec gofmt -l {} +) || return
  if [ -n "$files" ]; then
    printf 'not formatted, run make fmt:\n%s\n' "$files"
    return 1
  fi
}

# list_modules sets modules to the folders of the modules that hold packages. One that cannot be listed is kept: its
# checks then fail and say why.
list_modules() {
  local all dir packages
  all=$(go list -m -f '{{.Dir}}') || return
  for dir in $all; do
    if packages=$(cd "$dir" && go list ./... 2>/dev/null) && [ -z "$packages" ]; then continue; fi
    modules+=("$dir")
  done
}

in_module() { (cd "$1" && shift && "$@"); }

race() {
  local package present=()
  for package in "${racy[@]}"; do
    if compgen -G "$package/*_test.go" >/dev/null; then present+=("$package"); fi
  done
  CGO_ENABLED=1 go test -race "${present[@]}"
}

step "test servers" scripts/install-test-servers.sh
step "staticcheck $staticcheck_version" install_staticcheck
step "gofmt" format
step "modules" list_modules
for dir in "${modules[@]}"; do
  name=${dir#"$PWD"}
  name=${name#/}
  name=${name:-library}
  step "vet $name" in_module "$dir" go vet ./...
  step "staticcheck $name" in_module "$dir" "$staticcheck" ./...
  step "test $name" in_module "$dir" go test ./...
done
step "race" race

echo
if [ ${#failed[@]} -gt 0 ]; then
  printf 'FAILED after %d s:' "$SECONDS"
  printf ' [%s]' "${failed[@]}"
  echo
  exit 1
fi
echo "all steps passed, $SECONDS s"
