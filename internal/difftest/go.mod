module weir.dev/weir/internal/difftest

go 1.26.0

require (
	pgregory.net/rapid v1.3.0
	weir.dev/weir v0.0.0
)

require (
	github.com/redis/rueidis v1.0.79 // indirect
	golang.org/x/sys v0.47.0 // indirect
)

replace weir.dev/weir => ../..
