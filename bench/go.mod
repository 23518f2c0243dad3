module weir.dev/weir/bench

go 1.26.0

require weir.dev/weir v0.0.0

replace weir.dev/weir => ../
