package gguf

import (
	"errors"
	"math"
	"strings"
	"testing"
)

func keys(m *Metadata) string {
	var out []string
	for k := range m.All() {
		out = append(out, k)
	}
	return strings.Join(out, " ")
}

func TestMetadataOrder(t *testing.T) {
	m := NewMetadata(KV{"a", Scalar(uint32(1))}, KV{"b", Scalar(uint32(2))}, KV{"c", Scalar(uint32(3))})
	m.Set("a", Scalar("new")) // as a Python dict: the place stays
	m.Set("d", Scalar(true))
	if got := keys(m); got != "a b c d" {
		t.Errorf("after Set: %s", got)
	}
	if s, err := m.Text("a"); err != nil || s != "new" {
		t.Errorf("a is %q, %v", s, err)
	}
	c := m.Clone()
	m.Append("b", Scalar(int8(-1))) // as gguf_set_val: removed and added
	m.Append("e", Scalar(0.5))
	if got := keys(m); got != "a c d b e" {
		t.Errorf("after Append: %s", got)
	}
	if !m.Delete("a") || m.Delete("a") || m.Has("a") {
		t.Error("Delete does not tell what was there")
	}
	for i := range m.Len() {
		kv := m.At(i)
		if v, ok := m.Get(kv.Key); !ok || !v.Equal(kv.Value) {
			t.Errorf("the index has lost %s", kv.Key)
		}
	}
	if got := keys(m); got != "c d b e" {
		t.Errorf("after Delete: %s", got)
	}
	if got := keys(c); got != "a b c d" {
		t.Errorf("the clone has changed too: %s", got)
	}
}

func TestGetters(t *testing.T) {
	m := NewMetadata(KV{"u8", Scalar(uint8(200))}, KV{"i64", Scalar(int64(-3))}, KV{"u64", Scalar(uint64(math.MaxUint64))},
		KV{"f32", Scalar(float32(0.5))}, KV{"f64", Scalar(1e300)}, KV{"bool", Scalar(true)}, KV{"str", Scalar("x")},
		KV{"u32s", List([]uint32{0, 6})}, KV{"i64s", List([]int64{5, 1 << 40})}, KV{"f64s", List([]float64{0.1, -1})}, KV{"f64big", List([]float64{1e300})}, KV{"strs", List([]string{"a"})})
	if v, err := m.Uint32("u8"); err != nil || v != 200 {
		t.Errorf("u8 as u32: %d, %v", v, err)
	}
	if v, err := m.Int64("i64"); err != nil || v != -3 {
		t.Errorf("i64: %d, %v", v, err)
	}
	if v, err := m.Int32s("u32s"); err != nil || len(v) != 2 || v[1] != 6 {
		t.Errorf("u32s as i32: %v, %v", v, err)
	}
	if v, err := m.Float64("f32"); err != nil || v != 0.5 {
		t.Errorf("f32: %v, %v", v, err)
	}
	if v, err := m.Float64("i64"); err != nil || v != -3 {
		t.Errorf("i64 as number: %v, %v", v, err)
	}
	if v, err := m.Float64("u64"); err != nil || v != 1<<64 {
		t.Errorf("u64 as number: %v, %v", v, err)
	}
	if v, err := m.Float32s("f64s"); err != nil || v[0] != 0.1 || v[1] != -1 {
		t.Errorf("f64s: %v, %v", v, err)
	}
	if v, err := m.Bool("bool"); err != nil || !v {
		t.Errorf("bool: %v, %v", v, err)
	}
	if v, err := m.Texts("strs"); err != nil || v[0] != "a" {
		t.Errorf("strs: %v, %v", v, err)
	}
	bad := []struct {
		key string
		is  error
		get func(string) error
	}{
		{"u64", ErrValue, func(k string) error { _, err := m.Int64(k); return err }},
		{"i64", ErrValue, func(k string) error { _, err := m.Uint32(k); return err }},
		{"i64s", ErrValue, func(k string) error { _, err := m.Int32s(k); return err }},
		{"f32", ErrValue, func(k string) error { _, err := m.Int64(k); return err }},
		{"bool", ErrValue, func(k string) error { _, err := m.Uint32(k); return err }},
		{"u8", ErrValue, func(k string) error { _, err := m.Int32s(k); return err }},
		{"str", ErrValue, func(k string) error { _, err := m.Texts(k); return err }},
		{"strs", ErrValue, func(k string) error { _, err := m.Text(k); return err }},
		{"str", ErrValue, func(k string) error { _, err := m.Float64(k); return err }},
		{"f64big", ErrValue, func(k string) error { _, err := m.Float32s(k); return err }},
		{"u32s", ErrValue, func(k string) error { _, err := m.Float32s(k); return err }},
		{"u8", ErrValue, func(k string) error { _, err := m.Bool(k); return err }},
		{"gone", ErrNoKey, func(k string) error { _, err := m.Uint32s(k); return err }},
	}
	for _, tt := range bad {
		if err := tt.get(tt.key); !errors.Is(err, tt.is) || !strings.Contains(err.Error(), tt.key) {
			t.Errorf("%s: %v, want %v", tt.key, err, tt.is)
		}
	}
}

// TestFit: each end of each width.
func TestFit(t *testing.T) {
	if v, err := AsInt[uint8](Scalar(int64(255))); err != nil || v != 255 {
		t.Errorf("255 as u8: %d, %v", v, err)
	}
	if v, err := AsInt[int64](Scalar(uint64(math.MaxInt64))); err != nil || v != math.MaxInt64 {
		t.Errorf("2^63-1 as i64: %d, %v", v, err)
	}
	if v, err := AsInt[int8](Scalar(int32(-128))); err != nil || v != -128 {
		t.Errorf("-128 as i8: %d, %v", v, err)
	}
	bad := map[string]error{}
	_, bad["256 as u8"] = AsInt[uint8](Scalar(int64(256)))
	_, bad["-1 as u8"] = AsInt[uint8](Scalar(int64(-1)))
	_, bad["-1 as u64"] = AsInt[uint64](Scalar(int8(-1)))
	_, bad["2^63 as i64"] = AsInt[int64](Scalar(uint64(1 << 63)))
	_, bad["2^64-1 as i32"] = AsInt[int32](Scalar(uint64(math.MaxUint64)))
	_, bad["2^31 as i32"] = AsInt[int32](Scalar(uint32(1 << 31)))
	_, bad["-129 as i8"] = AsInt[int8](Scalar(int16(-129)))
	for name, err := range bad {
		if !errors.Is(err, ErrValue) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestValueEqual(t *testing.T) {
	nan := math.Float32frombits(0x7fc00001)
	values := []Value{
		{}, Scalar(uint8(0)), Scalar(int8(0)), Scalar(uint16(0)), Scalar(int16(0)), Scalar(uint32(0)), Scalar(int32(0)), Scalar(uint64(0)), Scalar(int64(0)),
		Scalar(float32(0)), Scalar(float32(math.Copysign(0, -1))), Scalar(0.0), Scalar(math.Copysign(0, -1)), Scalar(nan), Scalar(false), Scalar(true), Scalar(""), Scalar("a"),
		List([]uint8{}), List([]int8{}), List([]uint16{}), List([]int16{}), List([]uint32{}), List([]int32{}), List([]uint64{}), List([]int64{}),
		List([]float32{}), List([]float64{}), List([]bool{}), List([]string{}), List([]float32{nan}), List([]float32{0}), List([]string{"a"}), List([]string{"b"}), List([]uint8{0, 1}),
	}
	for _, v := range values[1:] {
		if got, err := ValueOf(v.Any()); err != nil || !got.Equal(v) {
			t.Errorf("%s: made of its Go value it is %s, %v", v.Kind(), got.Kind(), err)
		}
	}
	for _, v := range []any{nil, 1, []int{1}, struct{}{}} {
		if _, err := ValueOf(v); !errors.Is(err, ErrValue) {
			t.Errorf("%T: %v", v, err)
		}
	}
	for i, a := range values {
		for j, b := range values {
			if a.Equal(b) != (i == j) {
				t.Errorf("%s %v and %s %v: equal %v", a.Kind(), a, b.Kind(), b, a.Equal(b))
			}
		}
	}
}

func TestVocab(t *testing.T) {
	good := func() *Metadata {
		return NewMetadata(KV{"tokenizer.ggml.model", Scalar("gpt2")}, KV{"tokenizer.ggml.pre", Scalar("qwen2")},
			KV{"tokenizer.ggml.tokens", List([]string{"a", "b", "ab"})}, KV{"tokenizer.ggml.scores", List([]float64{0, -1, -2})},
			KV{"tokenizer.ggml.token_type", List([]int64{1, 1, 3})}, KV{"tokenizer.ggml.merges", List([]string{"a b", "  b"})},
			KV{"tokenizer.ggml.eos_token_id", Scalar(uint64(2))})
	}
	for _, types := range []Value{List([]int64{1, 1, 3}), List([]uint32{1, 1, 3}), List([]int32{1, 1, 3}), List([]uint8{1, 1, 3})} {
		m := good()
		m.Set("tokenizer.ggml.token_type", types)
		v, err := ReadVocab(m)
		if err != nil || v.Types[2] != 3 || v.Scores[2] != -2 || v.Pre != "qwen2" || len(v.Merges) != 2 {
			t.Errorf("token types %s: %+v, %v", types.Kind(), v, err)
		}
	}
	bad := []struct {
		key string
		v   Value
	}{
		{"tokenizer.ggml.scores", List([]float32{0})},
		{"tokenizer.ggml.scores", List([]int32{0, 1, 2})},
		{"tokenizer.ggml.token_type", List([]int32{1, 1})},
		{"tokenizer.ggml.token_type", List([]int64{1, 1, 1 << 40})},
		{"tokenizer.ggml.merges", List([]string{"ab"})},
		{"tokenizer.ggml.merges", List([]string{"a b", " ab"})},
		{"tokenizer.ggml.merges", List([]string{"ab "})},
		{"tokenizer.ggml.eos_token_id", Scalar(uint32(math.MaxUint32))},
		{"tokenizer.ggml.bos_token_id", Scalar(uint32(3))},
		{"tokenizer.ggml.bos_token_id", Scalar(int32(-1))},
		{"tokenizer.ggml.tokens", List([]uint8{1, 2, 3})},
		{"tokenizer.ggml.model", Scalar(uint8(1))},
	}
	for _, tt := range bad {
		m := good()
		m.Set(tt.key, tt.v)
		if _, err := ReadVocab(m); !errors.Is(err, ErrValue) || !strings.Contains(err.Error(), tt.key) {
			t.Errorf("%s as %s: %v", tt.key, tt.v.Kind(), err)
		}
	}
	m := good()
	m.Delete("tokenizer.ggml.tokens")
	if _, err := ReadVocab(m); !errors.Is(err, ErrNoKey) {
		t.Errorf("no tokens: %v", err)
	}
}
