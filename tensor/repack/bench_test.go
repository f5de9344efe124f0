package repack

import (
	"testing"

	"quern/tensor"
)

// BenchmarkUnbundle puts groups of rows of 2048 values in order, a group at a time, as
// products on x86 do.
func BenchmarkUnbundle(b *testing.B) {
	for _, l := range Layouts() {
		b.Run(l.String(), func(b *testing.B) {
			group, err := l.GroupBytes(2048)
			if err != nil {
				b.Fatal(err)
			}
			row, err := tensor.RowBytes(l.Type(), 2048)
			if err != nil {
				b.Fatal(err)
			}
			in, out := noise(l.String(), group), make([]byte, row*l.GroupRows())
			b.SetBytes(group)
			for b.Loop() {
				l.Unbundle(out, int(row), in)
			}
		})
	}
}
