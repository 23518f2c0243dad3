module weir.dev/weir/server

go 1.26.0

require weir.dev/weir v0.0.0

replace weir.dev/weir => ../
