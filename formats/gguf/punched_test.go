package gguf

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"quern/internal/digest"
	"quern/tensor"
)

// TestMark: a mark is read as it was written, is refused in place of rows, and weights
// that are no mark are not taken for one.
func TestMark(t *testing.T) {
	l, err := NewLayout(NewMetadata(), []TensorSpec{{Name: "a", Type: tensor.Q8_0, Shape: tensor.Shape{8, 32}}, {Name: "b", Type: tensor.F32, Shape: tensor.Shape{2}}}, LayoutOptions{})
	if err != nil {
		t.Fatal(err)
	}
	file := make([]byte, l.Size)
	copy(file, l.Header)
	want := Mark{Source: digest.Of([]byte("x")), Layout: "q8_0_4x8"}
	at := l.Tensors[0].Offset
	read := func(b []byte) (Mark, bool, error) {
		t.Helper()
		blob := tensor.BytesBlob("f", b)
		f, err := Open(t.Context(), "f", blob, Options{})
		if err != nil {
			t.Fatal(err)
		}
		marks, gone, err := f.Marks(t.Context(), blob)
		if err != nil || gone[1] {
			t.Fatal(err)
		}
		x := f.Tensors[0].Tensor
		err = x.ReadRows(t.Context(), make([]byte, 3*x.RowBytes()), 0, 3)
		if rest := x.ReadRows(t.Context(), make([]byte, x.RowBytes()), 1, 1); rest != nil {
			t.Errorf("a row behind the mark: %v", rest)
		}
		return marks[0], gone[0], err
	}
	if m, gone, err := read(file); gone || err != nil || m != (Mark{}) {
		t.Errorf("zeros: %+v, %v, %v", m, gone, err)
	}
	marked := bytes.Clone(file)
	copy(marked[at:], want.Bytes())
	m, gone, err := read(marked)
	if m != want || !gone || !errors.Is(err, ErrPunched) || !strings.Contains(err.Error(), "q8_0_4x8") || !strings.Contains(err.Error(), "tensor a") {
		t.Errorf("%+v, %v, %v", m, gone, err)
	}
	// One that was being written: its first bytes are there, the rest is weights.
	torn := bytes.Clone(marked)
	for i := range 56 {
		torn[at+16+int64(i)] = byte(i) | 0x80
	}
	if _, gone, err := read(torn); !gone || !errors.Is(err, ErrPunched) {
		t.Errorf("a torn mark: %v, %v", gone, err)
	}
	near := bytes.Clone(marked)
	near[at+15] ^= 1
	if _, gone, err := read(near); gone || err != nil {
		t.Errorf("nearly a mark: %v, %v", gone, err)
	}
}

func FuzzMark(f *testing.F) {
	f.Add(Mark{Source: digest.Of(nil), Layout: "q4_0_8x8"}.Bytes())
	f.Add([]byte(punchMagic))
	f.Add(append([]byte(punchMagic), bytes.Repeat([]byte{0xff}, 80)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, ok := ParseMark(b)
		if err := guard("f", "x")(b); (err != nil) != bytes.HasPrefix(b, []byte(punchMagic)) {
			t.Fatalf("the guard says %v", err)
		}
		if !ok {
			return
		}
		again, ok := ParseMark(m.Bytes())
		if !ok || again != m || len(m.Bytes()) != MarkBytes {
			t.Fatalf("%+v comes back as %+v", m, again)
		}
	})
}
