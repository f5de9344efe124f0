package importance

import (
	"bytes"
	"errors"
	"math"
	"slices"
	"testing"

	"quern/formats/imatrix"
	"quern/tensor"
)

func collected() *Matrix {
	c := &collector{entries: map[string]*Entry{}}
	c.Observe("blk.0.ffn_up.weight", 0, 1, []float32{1, 2, 3, 4}, 2)
	c.Observe("blk.0.ffn_up.weight", 0, 1, []float32{-1, 0}, 2)
	c.Observe("blk.0.ffn_up_exps.weight", 2, 3, []float32{5, 6}, 2)
	c.Observe("token_embd.weight", 0, 1, []float32{7, 7}, 2)
	c.Observe("output.weight", 0, 1, []float32{7, 7}, 2)
	m := &Matrix{Dataset: "text", Chunks: 4, ChunkSize: 8}
	for _, n := range []string{"blk.0.ffn_up.weight", "blk.0.ffn_up_exps.weight"} {
		m.Entries = append(m.Entries, c.entries[n])
	}
	if len(c.entries) != 2 {
		panic("weights outside of layers were collected")
	}
	return m
}

func TestCollect(t *testing.T) {
	m := collected()
	dense, exps := m.Entries[0], m.Entries[1]
	if !slices.Equal(dense.Sums, []float32{11, 20}) || !slices.Equal(dense.Counts, []int64{3}) {
		t.Errorf("dense: %+v", dense)
	}
	if !slices.Equal(exps.Sums, []float32{0, 0, 0, 0, 25, 36}) || !slices.Equal(exps.Counts, []int64{0, 0, 1}) {
		t.Errorf("experts: %+v", exps)
	}
	if u := m.Unseen(); len(u) != 1 || u[exps.Name] != 2 {
		t.Errorf("unseen %v", u)
	}
}

func TestWrite(t *testing.T) {
	var b bytes.Buffer
	if err := collected().Write(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	got, err := imatrix.Read(t.Context(), "x", tensor.BytesBlob("x", b.Bytes()), imatrix.Options{})
	if err != nil {
		t.Fatal(err)
	}
	e, ok := got.Find("blk.0.ffn_up_exps.weight")
	if !ok || got.Chunks != 4 || got.ChunkSize != 8 || !slices.Equal(got.Datasets, []string{"text"}) {
		t.Fatalf("%+v", got)
	}
	// Experts that saw nothing get the neutral weight.
	if !slices.Equal(e.Weights, []float32{1, 1, 1, 1, 25, 36}) || !slices.Equal(e.Unseen(3), []int64{0, 1}) {
		t.Errorf("%+v", e)
	}
}

func TestNotFinite(t *testing.T) {
	m := collected()
	m.Entries[1].Sums[5] = float32(math.Inf(1))
	if err := m.check(); !errors.Is(err, ErrNotFinite) {
		t.Errorf("%v", err)
	}
}
