module watm/gowater

go 1.26

require (
	github.com/refraction-networking/water v0.7.1-alpha
	watm/wgclient v0.0.0
)

require (
	github.com/blang/vfs v1.0.0 // indirect
	github.com/gaukas/wazerofs v0.1.0 // indirect
	github.com/tetratelabs/wazero v1.7.3 // indirect
	google.golang.org/protobuf v1.33.0 // indirect
)

replace (
	// The runtime needs functions that only this fork has.
	github.com/tetratelabs/wazero => github.com/refraction-networking/wazero v1.7.3-w
	watm/wgclient => ../../wgclient
)
