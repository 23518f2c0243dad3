.PHONY: test bench fmt servers

# All checks; installs the servers that the tests need.
test:
	./test.sh

# The benchmarks of every package.
bench:
	for dir in $$(go list -m -f '{{.Dir}}'); do (cd $$dir && go test -run '^$$' -bench . -benchmem ./...) || exit 1; done

fmt:
	gofmt -w $$(find . -name '.?*' -prune -o -name '*.go' -print)

# The Redis and Valkey servers that the tests start.
servers:
	./scripts/install-test-servers.sh
