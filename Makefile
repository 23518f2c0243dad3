.PHONY: test bench fmt servers

# All checks; installs the servers that the tests need.
test:
	./test.sh

# weir beside other limiters: prints the table that bench/RESULTS.md keeps; some five minutes on an idle machine.
bench:
	cd bench && go run ./compare > RESULTS.new && mv RESULTS.new RESULTS.md && cat RESULTS.md

fmt:
	gofmt -w $$(find . -name '.?*' -prune -o -name '*.go' -print)

# The servers and proxies that the tests start.
servers:
	./scripts/install-test-servers.sh

# The tables and plots of docs/backoff.md, the same byte for byte each time; ten to twenty minutes on two cores.
.PHONY: backoffsim
backoffsim:
	cd bench && GOGC=400 go test ./backoffsim -count=1 -run '^TestWriteTablesAndPlots$$' -timeout 90m -args -write

# The tables and plots of docs/concurrency.md, the same byte for byte each time; some ten minutes on two cores.
.PHONY: simbench
simbench:
	cd bench && go test ./simbench -count=1 -run '^Test(Tables|Models)$$' -timeout 90m -args -full

# A real server beyond its capacity, with and without the limiter of package concurrency; some ten minutes.
.PHONY: overload
overload:
	cd bench && go run ./overload

# Harm to real servers under load: every promise of docs/failures.md, and its table anew; some minutes on a quiet machine.
.PHONY: drills
drills:
	cd internal/drills && go test -count=1 -run '^TestDrills$$' -timeout 20m -args -full

# Seeds the usual mistakes, one at a time, and shows that the tests notice each; half an hour.
.PHONY: seeded-defects
seeded-defects:
	./scripts/seeded-defects.sh
