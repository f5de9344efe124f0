//go:build !noasm

package quant

import "os"

// useSIMD is decided once, at start. It changes the speed, not the bytes. Every
// arm64 processor that Go knows has the vector instructions.
var useSIMD = os.Getenv("QUERN_NOASM") != "1"
