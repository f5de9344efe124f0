package transformer_test

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	infer "quern/runtime"
	"quern/runtime/transformer"
	"quern/tensor"
	"quern/tensor/quant"
)

// TestEveryTypeIsWhatItDecodesTo: weights of any type give the bits that their
// float32 values give, and nearly these with activations of 8 bits.
func TestEveryTypeIsWhatItDecodesTo(t *testing.T) {
	base := converted(t, "stories-wide")
	for _, typ := range tensor.Types() {
		if _, err := quant.For(typ); err != nil || typ == tensor.KMCUQ4 {
			continue
		}
		packed := changed(base, func(x *tensor.Tensor) *tensor.Tensor {
			// Layer 0 and the head are enough.
			if len(x.Shape) < 2 || !strings.HasPrefix(x.Name, "blk.0.") && x.Name != "output.weight" {
				return x
			}
			return encoded(t, x, typ)
		})
		plain := changed(packed, func(x *tensor.Tensor) *tensor.Tensor {
			if x.Type != typ {
				return x
			}
			return encoded(t, made(x.Name, typ, x.Shape, bytesOf(t, x)), tensor.F32)
		})
		m := opened(t, packed)
		got := logits(t, m, infer.SessionOptions{}, text[:6])
		want := logits(t, opened(t, plain), infer.SessionOptions{}, text[:6])
		for i := range want {
			for j := range want[i] {
				if math.Float32bits(got[i][j]) != math.Float32bits(want[i][j]) {
					t.Fatalf("%v: logit %d after token %d is %v, decoded %v", typ, j, i, got[i][j], want[i][j])
				}
			}
		}
		if d := apart(want, logits(t, m, infer.SessionOptions{Act: infer.Q8}, text[:6])); !(d < 0.06) {
			t.Errorf("%v: with 8-bit activations logits differ by %.3g of the largest", typ, d)
		}
	}
}

func bytesOf(t *testing.T, x *tensor.Tensor) []byte {
	t.Helper()
	b := make([]byte, x.Bytes())
	if err := x.ReadRows(t.Context(), b, 0, x.Rows()); err != nil {
		t.Fatal(err)
	}
	return b
}

func TestQ8DoesNotDependOnJobs(t *testing.T) {
	m := opened(t, changed(converted(t, "stories-wide"), func(x *tensor.Tensor) *tensor.Tensor {
		if len(x.Shape) < 2 {
			return x
		}
		return encoded(t, x, tensor.Q4_K)
	}))
	want := logits(t, m, infer.SessionOptions{Act: infer.Q8, Jobs: 1}, text)
	for _, jobs := range []int{2, 7} {
		if d := apart(want, logits(t, m, infer.SessionOptions{Act: infer.Q8, Jobs: jobs}, text)); d != 0 {
			t.Errorf("%d jobs: logits differ by %g", jobs, d)
		}
	}
	s, err := m.NewSession(infer.SessionOptions{Act: infer.Q8})
	if err != nil {
		t.Fatal(err)
	}
	for i, id := range text {
		got, err := infer.Last(t.Context(), s, []int32{id}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if d := apart(want[i:i+1], [][]float32{got}); d != 0 {
			t.Fatalf("token %d alone: logits differ by %g", i, d)
		}
	}
	if _, err := m.NewSession(infer.SessionOptions{Act: 7}); !errors.Is(err, infer.ErrUnsupported) {
		t.Errorf("an unknown arithmetic: %v", err)
	}
}

func TestPrunedHead(t *testing.T) {
	full := converted(t, "stories260k")
	embed := values(t, full.Tensor("token_embd.weight"))
	keep := []int32{5, 0, 511, 403, 407, 261}
	var rows []float32
	var ids []byte
	for _, id := range keep {
		rows = append(rows, embed[id*64:][:64]...)
		ids = append(ids, byte(id), byte(id>>8), 0, 0)
	}
	head := func(ids []byte, typ tensor.Type) []*tensor.Tensor {
		out := made("output.weight", tensor.F32, tensor.Shape{6, 64}, nil)
		f32, err := quant.For(tensor.F32)
		if err != nil {
			t.Fatal(err)
		}
		b := make([]byte, out.Bytes())
		f32.EncodeRow(b, rows, nil)
		return append(full.Tensors[:len(full.Tensors):len(full.Tensors)], made("output.weight", tensor.F32, out.Shape, b),
			made("output_ids", typ, tensor.Shape{int64(len(ids) / 4)}, ids))
	}
	want := logits(t, opened(t, full), infer.SessionOptions{}, text)
	got := logits(t, opened(t, full.WithTensors(head(ids, tensor.I32))), infer.SessionOptions{}, text)
	for i := range want {
		kept := 0
		for j, v := range got[i] {
			switch {
			case math.IsInf(float64(v), -1):
			case math.Float32bits(v) != math.Float32bits(want[i][j]):
				t.Fatalf("logit %d is %v, the whole head gives %v", j, v, want[i][j])
			default:
				kept++
			}
		}
		if kept != len(keep) || len(got[i]) != 512 {
			t.Fatalf("%d of %d logits are left, want %d", kept, len(got[i]), len(keep))
		}
	}
	twice := append([]byte(nil), ids...)
	copy(twice[4:8], ids[:4])
	beyond := append([]byte(nil), ids...)
	beyond[1] = 2
	for name, ts := range map[string][]*tensor.Tensor{
		// A head without the list of its rows must not be taken for a whole one, nor
		// the embedding for it.
		"no list":     slices.DeleteFunc(head(ids, tensor.I32), func(x *tensor.Tensor) bool { return x.Name == "output_ids" }),
		"no head":     slices.DeleteFunc(head(ids, tensor.I32), func(x *tensor.Tensor) bool { return x.Name == "output.weight" }),
		"an id twice": head(twice, tensor.I32), "an id beyond": head(beyond, tensor.I32), "too few ids": head(ids[:20], tensor.I32), "floats": head(ids, tensor.F32),
	} {
		if _, err := transformer.FromGGUF(t.Context(), full.WithTensors(ts)); !errors.Is(err, infer.ErrModel) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
