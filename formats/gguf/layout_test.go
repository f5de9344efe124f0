package gguf

import (
	"errors"
	"io"
	"math"
	"strings"
	"testing"

	"quern/tensor"
)

func TestLayoutRefuses(t *testing.T) {
	spec := func(name string, typ tensor.Type, shape ...int64) []TensorSpec {
		return []TensorSpec{{"first", tensor.F32, tensor.Shape{1}}, {name, typ, shape}}
	}
	tests := []struct {
		name string
		meta []KV
		list []TensorSpec
		opt  LayoutOptions
		text string
	}{
		{"name of 64 bytes", nil, spec(strings.Repeat("n", 64), tensor.F32, 4), LayoutOptions{}, "64 bytes"},
		{"NUL in a name", nil, spec("a\x00b", tensor.F32, 4), LayoutOptions{}, "NUL"},
		{"duplicate name", nil, spec("first", tensor.F32, 4), LayoutOptions{}, "duplicate"},
		{"five dimensions", nil, spec("a", tensor.F32, 1, 1, 2, 1, 1), LayoutOptions{}, "5 dimensions"},
		{"no values", nil, spec("a", tensor.F32, 0, 4), LayoutOptions{}, "[0, 4]"},
		{"no values in blocks", nil, spec("a", tensor.Q8_0, 4, 0), LayoutOptions{}, "no values"},
		{"half a block", nil, spec("a", tensor.Q8_0, 4, 172), LayoutOptions{}, "172"},
		{"negative", nil, spec("a", tensor.F32, -4), LayoutOptions{}, "negative"},
		{"overflow", nil, spec("a", tensor.F32, 1<<32, 1<<32), LayoutOptions{}, "2^63-1"},
		{"file too large", nil, spec("a", tensor.I8, math.MaxInt64-64), LayoutOptions{}, "larger than 2^63-1"},
		{"type of another format", nil, spec("a", tensor.F8E4M3, 4), LayoutOptions{}, "F8_E4M3"},
		{"KMCU blocks", nil, spec("a", tensor.KMCUQ4, 32), LayoutOptions{}, "KMCU_Q4"},
		{"no type", nil, spec("a", tensor.Invalid, 4), LayoutOptions{}, "Type(0)"},
		{"empty key", []KV{{"", Scalar("x")}}, nil, LayoutOptions{}, "empty"},
		{"NUL in a key", []KV{{"a\x00b", Scalar("x")}}, nil, LayoutOptions{}, "NUL"},
		{"no value", []KV{{"a", Value{}}}, nil, LayoutOptions{}, "no value"},
		{"alignment 3", []KV{{KeyAlignment, Scalar(uint32(3))}}, nil, LayoutOptions{}, "power of two"},
		{"alignment as i32", []KV{{KeyAlignment, Scalar(int32(32))}}, nil, LayoutOptions{}, "i32"},
		{"alignment not in the metadata", nil, nil, LayoutOptions{Alignment: 64}, "64"},
		{"alignment against the metadata", []KV{{KeyAlignment, Scalar(uint32(64))}}, nil, LayoutOptions{Alignment: 32}, "says 64"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := NewLayout(NewMetadata(tt.meta...), tt.list, tt.opt)
			if !errors.Is(err, ErrWrite) || !strings.Contains(err.Error(), tt.text) {
				t.Errorf("error %v, want %q", err, tt.text)
			}
		})
	}
	// Five dimensions are fine when the outer one is dropped.
	if _, err := NewLayout(nil, spec("a", tensor.F32, 1, 1, 2, 1, 1), LayoutOptions{Dims: DropOnes}); err != nil {
		t.Error(err)
	}
	if _, err := NewLayout(nil, spec(strings.Repeat("n", 63), tensor.F32, 4), LayoutOptions{}); err != nil {
		t.Error(err)
	}
}

func TestWriteToRefuses(t *testing.T) {
	l, err := NewLayout(nil, []TensorSpec{{"a", tensor.F32, tensor.Shape{4}}}, LayoutOptions{})
	if err != nil {
		t.Fatal(err)
	}
	x := &tensor.Tensor{Name: "a", Type: tensor.F32, Shape: tensor.Shape{4}, Src: &tensor.Section{Blob: tensor.BytesBlob("a", make([]byte, 16)), RowBytes: 16}}
	if err := l.WriteTo(ctx, io.Discard, []*tensor.Tensor{x}); err != nil {
		t.Fatal(err)
	}
	for name, list := range map[string][]*tensor.Tensor{
		"none":        nil,
		"other name":  {x.With(func(t *tensor.Tensor) { t.Name = "b" })},
		"other type":  {x.With(func(t *tensor.Tensor) { t.Type = tensor.I32 })},
		"other shape": {x.With(func(t *tensor.Tensor) { t.Shape = tensor.Shape{2, 2} })},
	} {
		if err := l.WriteTo(ctx, io.Discard, list); !errors.Is(err, ErrWrite) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
