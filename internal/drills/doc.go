// Package drills breaks real servers under load and proves what weir promises then.
//
// Each drill starts servers of its own, lets 8 workers in two halves ask them through
// limiters with a fallback, does one kind of harm, and checks every answer afterwards
// against the definition of the limits. The test command runs each for a second or two
// and asserts what must hold on any machine: the bounds. Their times are asserted by
//
//	cd internal/drills && go test -count=1 -run '^TestDrills$' -timeout 20m -args -full
//
// which is make drills: it takes some minutes, wants a quiet machine, and writes its table
// to docs/failures.md.
package drills
