package all_test

import (
	"bytes"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"quern/formats/gguf"
	"quern/formats/repacked"
	"quern/internal/digest"
	"quern/model/order"
	"quern/model/prune"
	"quern/pipeline"
	"quern/tensor"
)

// TestAcceptanceTVMoE builds the TV-box shape: a head of 384 rows, experts small and
// last, a repack cache. What it computes of the kept tokens is what the same recipe
// without pruning computes.
func TestAcceptanceTVMoE(t *testing.T) {
	recipe := filepath.Join(testdata, "acceptance", "tv-moe.yaml")
	var file string
	sums := map[string][]string{}
	for _, jobs := range []int{2, 1, 7} {
		out, res := build(t, recipe, pipeline.BuildOptions{Jobs: jobs})
		file = filepath.Join(out, "tv-moe.gguf")
		for _, o := range res.Outputs {
			sums[o.File] = append(sums[o.File], o.SHA256.Hex())
		}
		if says := strings.Join(res.Warnings, "\n"); !strings.Contains(says, "384 of 512 rows") || strings.Contains(says, "no token that ends") {
			t.Errorf("warnings %s", says)
		}
	}
	if len(sums) != 2 {
		t.Errorf("outputs %v", sums)
	}
	for name, list := range sums {
		if slices.ContainsFunc(list, func(s string) bool { return s != list[0] }) {
			t.Errorf("%s: the bytes depend on the number of jobs", name)
		}
	}

	f, data := prunedFile(t, file)
	head, rows := tensorBytes(t, f, data, "output.weight")
	ids, err := prune.ReadIDs(t.Context(), mustTensor(t, f, prune.OutputIDs), 512)
	if err != nil {
		t.Fatal(err)
	}
	if len(ids) != 384 || fmt.Sprint(head.Shape()) != "[384, 64]" || head.TypeName() != "Q8_0" || !slices.IsSorted(ids) {
		t.Errorf("head %s %v, %d ids", head.TypeName(), head.Shape(), len(ids))
	}
	_, embd := tensorBytes(t, f, data, "token_embd.weight")
	if !bytes.Equal(rows, picked(embd, 68, ids)) {
		t.Error("rows of the head are not the embedding's, to which it was tied")
	}
	if at, err := f.Meta.Int64(order.KeyOffset); err != nil || at%(16<<10) != 0 {
		t.Errorf("experts at %d, %v", at, err)
	}
	cache, err := repacked.Open(t.Context(), "c", blobOf(readAll(t, file+".q4_0_4x4.repack")), repacked.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if len(cache.Entries) != 15 || cache.GGUF != digest.Of(data) {
		t.Errorf("the cache has %d tensors of %s", len(cache.Entries), cache.GGUF.Hex())
	}

	b := newPruneBench(t, "stories-moe")
	whole := b.build(b.dir, nil, "  - pad: {ffn: 32}\n  - quantize: {type: Q8_0, rules: [{match: 'ffn_(gate|up|down)_exps', type: Q4_0}]}\n  - reorder: {experts: last, align: 16KiB}\n", "")
	text := []int32{1, 403, 407, 261, 378, 432, 287}
	_, want := allLogits(t, whole, text)
	_, got := allLogits(t, file, text)
	for i := range want {
		for id, v := range got[i] {
			w := want[i][id]
			if _, kept := slices.BinarySearch(ids, int32(id)); !kept {
				w = float32(math.Inf(-1))
			}
			if math.Float32bits(v) != math.Float32bits(w) {
				t.Fatalf("position %d: logit %d is %v, want %v", i, id, v, w)
			}
		}
	}
}

func mustTensor(t *testing.T, f *gguf.File, name string) *tensor.Tensor {
	t.Helper()
	for i := range f.Tensors {
		if f.Tensors[i].Name == name {
			return f.Tensors[i].Tensor
		}
	}
	t.Fatalf("no tensor %s", name)
	return nil
}
