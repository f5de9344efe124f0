package mapped_test

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"
	"unsafe"

	"quern/runtime/mapped"
)

// TestSlabIsNotOfTheHeap: what it gives is none of the heap's, and the collector
// gives it back to the system.
func TestSlabIsNotOfTheHeap(t *testing.T) {
	const size = 64 << 20
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	s := mapped.NewSlab()
	b := s.Bytes(size)
	b[0], b[size-1] = 1, 1
	runtime.ReadMemStats(&after)
	if got := int64(after.HeapAlloc) - int64(before.HeapAlloc); got > size/2 {
		t.Errorf("%d bytes of the heap are in use after %d were asked for", got, size)
	}
	where := uint64(uintptr(unsafe.Pointer(&b[0])))
	runtime.KeepAlive(s)
	if s, b = nil, nil; !listed(t, where) {
		t.Fatalf("no mapping at %#x", where)
	}
	// Cleanups run some time after the collection that found them due.
	for end := time.Now().Add(10 * time.Second); listed(t, where) && time.Now().Before(end); {
		runtime.GC()
		time.Sleep(time.Millisecond)
	}
	if listed(t, where) {
		t.Errorf("%#x is still mapped", where)
	}
}

// listed reports whether an address is mapped.
func listed(t *testing.T, address uint64) bool {
	t.Helper()
	text, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var from, to uint64
		if _, err := fmt.Sscanf(line, "%x-%x", &from, &to); err != nil {
			t.Fatal(err)
		}
		if from <= address && address < to {
			return true
		}
	}
	return false
}
