package tensor

import (
	"errors"
	"testing"
)

// TestTypeTable: names, ids and safetensors names lead back to the type, and no
// two types share one.
func TestTypeTable(t *testing.T) {
	names, ids, dtypes := map[string]Type{}, map[int32]Type{}, map[string]Type{}
	for _, typ := range Types() {
		if typ.BlockValues() <= 0 || typ.BlockBytes() <= 0 || !typ.Valid() {
			t.Errorf("%s: block of %d values, %d bytes", typ, typ.BlockValues(), typ.BlockBytes())
		}
		if o, ok := names[typ.String()]; ok {
			t.Errorf("%v and %v share a name", o, typ)
		}
		names[typ.String()] = typ
		if got, err := ParseType(typ.String()); err != nil || got != typ {
			t.Errorf("ParseType(%s) = %v, %v", typ, got, err)
		}
		if id, ok := typ.GGML(); ok {
			if o, ok := ids[id]; ok {
				t.Errorf("%v and %v share id %d", o, typ, id)
			}
			ids[id] = typ
			if got, ok := FromGGML(id); !ok || got != typ {
				t.Errorf("FromGGML(%d) = %v", id, got)
			}
		}
		if s, ok := typ.Safetensors(); ok {
			if o, ok := dtypes[s]; ok {
				t.Errorf("%v and %v share dtype %s", o, typ, s)
			}
			dtypes[s] = typ
			if got, ok := FromSafetensors(s); !ok || got != typ {
				t.Errorf("FromSafetensors(%s) = %v", s, got)
			}
		}
	}
	// ggml's ids 4, 5, 31-33 and 36-38 are removed types, 9 and 15 are for
	// activations only; 43 is the count.
	for _, id := range []int32{-1, 4, 5, 9, 15, 31, 32, 33, 36, 37, 38, 43, 1 << 30} {
		if got, ok := FromGGML(id); ok {
			t.Errorf("FromGGML(%d) = %s", id, got)
		}
	}
	if len(ids) != 33 {
		t.Errorf("%d types have a ggml id, want 33", len(ids))
	}
	if got, err := ParseType("q4_k"); err != nil || got != Q4_K {
		t.Errorf("ParseType(q4_k) = %v, %v", got, err)
	}
	for _, s := range []string{"", "invalid", "Q4", "q9_0"} {
		if _, err := ParseType(s); !errors.Is(err, ErrUnknownType) {
			t.Errorf("ParseType(%q): %v", s, err)
		}
	}
}

func TestRowBytes(t *testing.T) {
	for _, tc := range []struct {
		typ  Type
		n    int64
		want int64
	}{
		{F32, 172, 688}, {F16, 5, 10}, {Q8_0, 64, 68}, {Q4_0, 32, 18}, {Q6_K, 512, 420}, {Q8_0, 0, 0}, {NVFP4, 128, 72}, {F8E4M3, 3, 3},
	} {
		if got, err := RowBytes(tc.typ, tc.n); err != nil || got != tc.want {
			t.Errorf("RowBytes(%s, %d) = %d, %v; want %d", tc.typ, tc.n, got, err, tc.want)
		}
	}
	for _, tc := range []struct {
		typ Type
		n   int64
		err error
	}{
		{Q8_0, 172, ErrShape}, {Q6_K, 128, ErrShape}, {F32, -1, ErrShape}, {F64, 1 << 61, ErrShape}, {Invalid, 1, ErrUnknownType}, {9999, 1, ErrUnknownType},
	} {
		if got, err := RowBytes(tc.typ, tc.n); !errors.Is(err, tc.err) {
			t.Errorf("RowBytes(%s, %d) = %d, %v; want %v", tc.typ, tc.n, got, err, tc.err)
		}
	}
}
