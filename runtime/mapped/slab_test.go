package mapped_test

import (
	"runtime"
	"testing"
	"unsafe"

	"quern/runtime/mapped"
)

func TestSlab(t *testing.T) {
	s := mapped.NewSlab()
	var parts [][]byte
	for i := range 400 {
		n := i * i % 5000
		if i%50 == 49 {
			n = 300_000 // gets a block of its own
		}
		b := s.Bytes(n)
		if len(b) != n || cap(b) != n {
			t.Fatalf("part %d has %d bytes of %d, want %d", i, len(b), cap(b), n)
		}
		if n > 0 && uintptr(unsafe.Pointer(&b[0]))%64 != 0 {
			t.Errorf("part %d is at %p", i, &b[0])
		}
		for j := range b {
			if b[j] != 0 {
				t.Fatalf("byte %d of part %d is %d at first", j, i, b[j])
			}
			b[j] = byte(i)
		}
		parts = append(parts, b)
		if i%100 == 0 {
			runtime.GC()
		}
	}
	for i, b := range parts {
		for j := range b {
			if b[j] != byte(i) {
				t.Fatalf("byte %d of part %d is %d", j, i, b[j])
			}
		}
	}
	runtime.KeepAlive(s)
	if b := s.Bytes(0); b != nil {
		t.Errorf("no bytes are %v", b)
	}
}
