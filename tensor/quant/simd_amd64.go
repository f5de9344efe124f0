//go:build !noasm

package quant

import (
	"os"

	"golang.org/x/sys/cpu"
)

// useSIMD is decided once, at start. It changes the speed, not the bytes.
var useSIMD = cpu.X86.HasAVX2 && cpu.X86.HasF16C && os.Getenv("QUERN_NOASM") != "1"
