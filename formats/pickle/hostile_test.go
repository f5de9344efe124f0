package pickle

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

// survive opens what may be anything: an error says where, or what is read is inside
// the file.
func survive(t *testing.T, what string, at int, b []byte) {
	t.Helper()
	x, err := open(b)
	if err != nil {
		var re *ReadError
		if !errors.As(err, &re) && !errors.Is(err, ErrNotPickle) && !errors.Is(err, ErrFormat) {
			t.Errorf("%s, byte %d: %v", what, at, err)
		}
		return
	}
	_, _ = JSON(x.Root)
	ts, err := x.Tensors(x.Root)
	if err != nil {
		return
	}
	for _, k := range ts {
		if k.Bytes() > int64(len(b)) {
			t.Errorf("%s, byte %d: %s has %d bytes, the file %d", what, at, k.Name, k.Bytes(), len(b))
			continue
		}
		if err := k.ReadRows(context.Background(), make([]byte, k.Bytes()), 0, k.Rows()); err != nil {
			t.Errorf("%s, byte %d: %s: %v", what, at, k.Name, err)
		}
	}
}

// TestEveryByte puts hostile values into every byte of small pickles of all
// protocols and of files of torch.save, so into every opcode, length, count, offset and
// memo number there is: each gives an error, or data that lie in the file, and none
// makes the reader allocate beyond the file's size.
func TestEveryByte(t *testing.T) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	tried, size := 0, 0
	for _, name := range []string{"bfloat16.pkl", "big-endian.pkl", "protocol2.pkl", "protocol5.pkl", "torch.pt", "torch-strided.pt"} {
		good := golden(t, name)
		b := append([]byte(nil), good...)
		for at := range b {
			old := b[at]
			values := []byte{0, old + 1, old ^ 0x80}
			if len(b) < 300 {
				values = append(values, 1, old-1, 0x7f, 0xff, '.', '(', 'R', 'X', 'h', 'a', 's', 0x85, 0x94)
			}
			for _, v := range values {
				if v == old {
					continue
				}
				b[at] = v
				survive(t, name, at, b)
				tried, size = tried+1, size+len(b)
			}
			b[at] = old
		}
	}
	runtime.ReadMemStats(&after)
	if n := (after.TotalAlloc - before.TotalAlloc) / uint64(tried); n > uint64(64<<10+20*size/tried) {
		t.Errorf("%d bytes are allocated for a file of %d", n, size/tried)
	}
}

// TestEveryOpcode: every opcode, known or not, on an empty stack, on a full one, and
// with absurd operands.
func TestEveryOpcode(t *testing.T) {
	for op := range 256 {
		for _, before := range []string{"", "(", "}\x94", "}(", "](", "K\x01K\x02K\x03", "\x8c\x01aK\x01", "(K\x01t", "c_codecs\nencode\n\x8c\x01a\x8c\x06latin1\x86"} {
			for _, behind := range []string{".", "\x00.", "\xff\xff\xff\xff\xff\xff\xff\xff.", "\x01\x00\x00\x00\x00\x00\x00\x00a.", "x\ny\n.", "-1\n.", "\x00\x00\x00\x80."} {
				survive(t, "opcode", op, p4(before+string([]byte{byte(op)})+behind))
			}
		}
	}
}

// TestEveryCheckpointByte does so with the head of a real checkpoint's pickle.
func TestEveryCheckpointByte(t *testing.T) {
	good, err := os.ReadFile(filepath.Join("..", "..", "testdata", "cact", "needle3-b-lora.pkl"))
	if err != nil {
		t.Fatal(err)
	}
	b := append([]byte(nil), good...)
	for at := range 400 {
		old := b[at]
		for _, v := range []byte{0, old + 1, old ^ 0x80, 0xff} {
			b[at] = v
			survive(t, "needle3-b-lora.pkl", at, b)
		}
		b[at] = old
	}
}
