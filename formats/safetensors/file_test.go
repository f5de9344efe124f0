package safetensors

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"

	"quern/tensor"
)

// raw builds a file from header text and data as they stand.
func raw(header string, data []byte) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	b = append(b, header...)
	return append(b, data...)
}

func openBytes(b []byte) (*File, error) {
	return Open(context.Background(), "t.safetensors", tensor.BytesBlob("t.safetensors", b), Options{})
}

func mustOpen(t *testing.T, b []byte) *File {
	t.Helper()
	f, err := openBytes(b)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// wantErr demands a sentinel and every given part of the message.
func wantErr(t *testing.T, err, sentinel error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want %v", sentinel)
	}
	if !errors.Is(err, sentinel) {
		t.Errorf("error %q is not %q", err, sentinel)
	}
	for _, p := range parts {
		if !strings.Contains(err.Error(), p) {
			t.Errorf("error %q does not say %q", err, p)
		}
	}
}

func rows(t *testing.T, x *tensor.Tensor) []byte {
	t.Helper()
	b := make([]byte, x.Bytes())
	if err := x.ReadRows(context.Background(), b, 0, x.Rows()); err != nil {
		t.Fatal(err)
	}
	return b
}

func TestOpen(t *testing.T) {
	h := `{"__metadata__":{"z":"1","a":"2"},"b":{"dtype":"U8","shape":[2,2],"data_offsets":[0,4]},"a":{"shape":[3],"data_offsets":[4,10],"dtype":"F16"}}`
	data := []byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}
	key := tensor.Derive("file", "x")
	f, err := Open(context.Background(), "m.safetensors", tensor.BytesBlob("m", raw(h, data)), Options{Source: "base", Key: key})
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(f.Metadata); got != "[{z 1} {a 2}]" {
		t.Errorf("metadata %s", got)
	}
	start := int64(8 + len(h))
	if f.DataStart != start || f.Size != start+10 {
		t.Errorf("data start %d size %d", f.DataStart, f.Size)
	}
	if len(f.Tensors) != 2 || f.Tensors[0].Name != "a" || f.Tensors[1].Name != "b" {
		t.Fatalf("tensors %v", f.Tensors)
	}
	a, b := f.Tensors[0], f.Tensor("b")
	if a.Type != tensor.F16 || !a.Shape.Equal(tensor.Shape{3}) || b.Type != tensor.U8 || !b.Shape.Equal(tensor.Shape{2, 2}) {
		t.Errorf("a %v %v, b %v %v", a.Type, a.Shape, b.Type, b.Shape)
	}
	if got := rows(t, a); string(got) != string(data[4:]) {
		t.Errorf("a = %v", got)
	}
	one := make([]byte, 2)
	if err := b.ReadRows(context.Background(), one, 1, 1); err != nil || one[0] != 3 || one[1] != 4 {
		t.Errorf("row 1 of b = %v, %v", one, err)
	}
	want := tensor.Extent{Source: "base", File: "m.safetensors", Offset: start + 4, Bytes: 6}
	if len(a.Origin) != 1 || a.Origin[0] != want {
		t.Errorf("origin %v, want %v", a.Origin, want)
	}
	if a.Key.IsZero() || a.Key == b.Key {
		t.Errorf("keys %v %v", a.Key, b.Key)
	}
	if f.Tensor("c") != nil {
		t.Error("found a tensor that is not there")
	}
}
