package prune

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"quern/formats/gguf"
	"quern/model"
	"quern/model/order"
	"quern/tensor"
	"quern/tokenizer"
)

// rowsOf is a matrix whose row i has the values 10 i, 10 i + 1, ...
func rowsOf(name string, rows, cols int64) *tensor.Tensor {
	var b []byte
	for r := range rows {
		for c := range cols {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(10*r+c)))
		}
	}
	shape := tensor.Shape{rows, cols}
	if cols == 1 {
		shape = tensor.Shape{rows}
	}
	return &tensor.Tensor{Name: name, Type: tensor.F32, Shape: shape, Key: tensor.Derive("test", name),
		Src: &tensor.Section{Blob: tensor.BytesBlob(name, b), RowBytes: 4 * shape.RowLen()}}
}

func readValues(t *testing.T, x *tensor.Tensor) []float32 {
	t.Helper()
	b := make([]byte, x.Bytes())
	if err := x.ReadRows(t.Context(), b, 0, x.Rows()); err != nil {
		t.Fatal(err)
	}
	out := make([]float32, len(b)/4)
	for i := range out {
		out[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return out
}

// sixteen is the model of pitfall 33: 16 tokens, a head of its own with a bias, and
// experts.
func sixteen(tied bool) *model.Model {
	meta := gguf.NewMetadata(gguf.KV{Key: "general.architecture", Value: gguf.Scalar("llama")}, gguf.KV{Key: "llama.vocab_size", Value: gguf.Scalar(uint32(16))})
	ts := []*tensor.Tensor{rowsOf("token_embd.weight", 16, 2), rowsOf("blk.0.ffn_up_exps.weight", 3, 2), rowsOf("output_norm.weight", 2, 1)}
	if !tied {
		ts = append(ts, rowsOf("output.weight", 16, 2), rowsOf("output.bias", 16, 1))
	}
	return model.FromGGUF("m", meta, ts)
}

func namesOf(m *model.Model) string {
	var out []string
	for _, t := range m.Tensors {
		out = append(out, t.Name)
	}
	return strings.Join(out, " ")
}

// TestHead: of 16 ids keep 0, 3, 7, 15; row 2 is id 7's, and the list says so,
// in whatever order it was asked for and how often.
func TestHead(t *testing.T) {
	for _, tied := range []bool{false, true} {
		m, err := Head(t.Context(), sixteen(tied), []int32{15, 3, 0, 7, 3})
		if err != nil {
			t.Fatal(err)
		}
		want := "token_embd.weight blk.0.ffn_up_exps.weight output_norm.weight output.weight output_ids output.bias"
		if tied {
			want = "token_embd.weight output.weight output_ids blk.0.ffn_up_exps.weight output_norm.weight"
		}
		if got := namesOf(m); got != want {
			t.Errorf("tensors %s", got)
		}
		if got := readValues(t, m.Tensor("output.weight")); fmt.Sprint(got) != "[0 1 30 31 70 71 150 151]" {
			t.Errorf("rows %v", got)
		}
		ids, err := ReadIDs(t.Context(), m.Tensor(OutputIDs), 16)
		if err != nil || fmt.Sprint(ids) != "[0 3 7 15]" {
			t.Errorf("ids %v, %v", ids, err)
		}
		if b := m.Tensor("output.bias"); !tied && fmt.Sprint(readValues(t, b)) != "[0 30 70 150]" {
			t.Errorf("bias %v", readValues(t, b))
		}
		if says, err := m.Meta.Bool(KeyTied); (err == nil && says) != tied {
			t.Errorf("%s: %v, %v", KeyTied, says, err)
		}
	}
	for _, ids := range [][]int32{nil, {-1}, {16}} {
		if _, err := Head(t.Context(), sixteen(true), ids); !errors.Is(err, ErrPrune) {
			t.Errorf("%v: %v", ids, err)
		}
	}
	if _, err := Head(t.Context(), &model.Model{Form: model.KMCU}, []int32{0}); !errors.Is(err, model.ErrForm) {
		t.Errorf("a KMCU model: %v", err)
	}
	bare := sixteen(true)
	if _, err := Head(t.Context(), bare.WithTensors(bare.Tensors[1:]), []int32{0}); !errors.Is(err, model.ErrTensors) {
		t.Errorf("without an embedding: %v", err)
	}
}

// TestHeadsThatDisagree: a list without a head, of another length, with ids twice or
// outside, and heads of other shapes are refused.
func TestHeadsThatDisagree(t *testing.T) {
	cut := func(change func(ts []*tensor.Tensor) []*tensor.Tensor) *model.Model {
		m, err := Head(t.Context(), sixteen(true), []int32{0, 3, 7, 15})
		if err != nil {
			t.Fatal(err)
		}
		return m.WithTensors(change(slices.Clone(m.Tensors)))
	}
	list := func(typ tensor.Type, ids ...int32) func([]*tensor.Tensor) []*tensor.Tensor {
		return func(ts []*tensor.Tensor) []*tensor.Tensor {
			ts[2] = idTensor(ids).With(func(t *tensor.Tensor) { t.Type = typ })
			return ts
		}
	}
	drop := func(i int) func([]*tensor.Tensor) []*tensor.Tensor {
		return func(ts []*tensor.Tensor) []*tensor.Tensor { return slices.Delete(ts, i, i+1) }
	}
	for name, change := range map[string]func([]*tensor.Tensor) []*tensor.Tensor{
		"no head": drop(1), "no list": drop(2), "short": list(tensor.I32, 0, 3), "twice": list(tensor.I32, 0, 3, 3, 7), "outside": list(tensor.I32, 0, 3, 7, 16),
		"negative": list(tensor.I32, -1, 3, 7, 15), "floats": list(tensor.F32, 0, 3, 7, 15),
	} {
		m := cut(change)
		if _, err := Head(t.Context(), m, []int32{0}); !errors.Is(err, model.ErrTensors) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestHeadAfterReorder: what a file says of the places before a move stays true.
func TestHeadAfterReorder(t *testing.T) {
	for _, tied := range []bool{false, true} {
		in := sixteen(tied)
		want, err := Head(t.Context(), in, []int32{0, 3})
		if err != nil {
			t.Fatal(err)
		}
		moved, err := order.ExpertsLast(in, 0)
		if err != nil {
			t.Fatal(err)
		}
		cut, err := Head(t.Context(), moved, []int32{0, 3})
		if err != nil {
			t.Fatal(err)
		}
		back, err := order.Restore(cut)
		if err != nil {
			t.Fatal(err)
		}
		if namesOf(back) != namesOf(want) || namesOf(cut) == namesOf(want) {
			t.Errorf("tied %v: %s, want %s", tied, namesOf(back), namesOf(want))
		}
	}
}

// TestRebuilt: rows come back out of the embedding while it is the head's matrix.
func TestRebuilt(t *testing.T) {
	m, err := Head(t.Context(), sixteen(true), []int32{0, 3, 7})
	if err != nil {
		t.Fatal(err)
	}
	again, err := Head(t.Context(), m, []int32{3, 8})
	if err != nil {
		t.Fatal(err)
	}
	if got := readValues(t, again.Tensor("output.weight")); fmt.Sprint(got) != "[30 31 80 81]" {
		t.Errorf("rows %v", got)
	}
	other := rowsOf("output.weight", 3, 2) // rows 0, 1, 2 of the embedding
	ts := slices.Clone(m.Tensors)
	ts[1] = other
	again, err = Head(t.Context(), m.WithTensors(ts), []int32{3, 8})
	if err != nil {
		t.Fatal(err)
	}
	h := again.Tensor("output.weight")
	if err := h.ReadRows(context.Background(), make([]byte, h.Bytes()), 0, h.Rows()); !errors.Is(err, ErrGone) {
		t.Errorf("a head that is not the embedding's: %v", err)
	}
	untied, err := Head(t.Context(), sixteen(false), []int32{0, 3, 7})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Head(t.Context(), untied, []int32{3, 8, 9}); !errors.Is(err, ErrGone) || !strings.Contains(err.Error(), "[8 9]") {
		t.Errorf("%v", err)
	}
}

// letters is a vocabulary of 14 tokens for the 16 rows.
func letters(t *testing.T, m *model.Model) *tokenizer.Vocabulary {
	t.Helper()
	m.Meta.Set("tokenizer.ggml.model", gguf.Scalar("gpt2"))
	m.Meta.Set("tokenizer.ggml.pre", gguf.Scalar("gpt-2"))
	m.Meta.Set("tokenizer.ggml.tokens", gguf.List([]string{"a", "b", "c", "d", "ab", "bc", "cd", "abc", "abcd", "da", "db", "e", "<x>", "<y>"}))
	m.Meta.Set("tokenizer.ggml.token_type", gguf.List([]int32{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 3, 3}))
	m.Meta.Set("tokenizer.ggml.merges", gguf.List([]string{"b c", "a b", "c d", "a bc", "ab c", "abc d", "ab cd", "d a", "d b"}))
	m.Meta.Set("tokenizer.ggml.eos_token_id", gguf.Scalar(uint32(13)))
	m.Meta.Set("tokenizer.ggml.bos_token_id", gguf.Scalar(uint32(12)))
	m.Meta.Set("tokenizer.chat_template", gguf.Scalar("{{ x }}"))
	m.Meta.Set("llama.decoder_start_token_id", gguf.Scalar(uint32(10)))
	m.Meta.Set("quern.other", gguf.Scalar(uint32(10)))
	v, err := tokenizer.FromGGUF(m.Meta)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// TestVocab: rows follow their tokens, rows without a token go, ids in the metadata
// are translated wherever they stand.
func TestVocab(t *testing.T) {
	m := sixteen(false)
	m.Tensors = append(m.Tensors, rowsOf("blk.1.nextn.embed_tokens.weight", 16, 2), rowsOf("blk.1.nextn.hnorm.weight", 2, 1))
	v := letters(t, m)
	out, err := Vocab(t.Context(), m, v, []int32{7}, VocabOptions{})
	if err != nil {
		t.Fatal(err)
	}
	// 10 stays for llama.decoder_start_token_id.
	const want = "[0 1 2 3 5 7 10 11 12 13]"
	ids, err := out.Meta.Int32s(tokenizer.KeySourceIDs)
	if err != nil || fmt.Sprint(ids) != want {
		t.Fatalf("ids %v, %v", ids, err)
	}
	for _, name := range []string{"token_embd.weight", "output.weight", "output.bias", "blk.1.nextn.embed_tokens.weight"} {
		x := out.Tensor(name)
		got := readValues(t, x)
		step := len(got) / len(ids)
		for i, id := range ids {
			if got[i*step] != float32(10*id) || int64(len(ids)) != x.Shape[0] {
				t.Errorf("%s %v: row %d is %v, want id %d", name, x.Shape, i, got[i*step], id)
			}
		}
	}
	for key, want := range map[string]int64{"llama.vocab_size": 10, "tokenizer.ggml.eos_token_id": 9, "tokenizer.ggml.bos_token_id": 8, "llama.decoder_start_token_id": 6,
		"quern.other": 10, tokenizer.KeySourceSize: 14} {
		if n, err := out.Meta.Int64(key); err != nil || n != want {
			t.Errorf("%s is %d, %v; want %d", key, n, err, want)
		}
	}
	if s, err := out.Meta.Text("tokenizer.chat_template"); err != nil || s != "{{ x }}" {
		t.Errorf("template %q, %v", s, err)
	}
	if !slices.ContainsFunc(out.Notes, func(n model.Note) bool {
		return strings.Contains(n.Text, "rows 14 to 15 of the embedding have no token")
	}) {
		t.Errorf("notes %v", out.Notes)
	}
	// More tokens than rows, and a list of more than the tokens.
	short := m.WithTensors(append([]*tensor.Tensor{rowsOf("token_embd.weight", 12, 2)}, m.Tensors[1:3]...))
	if _, err := Vocab(t.Context(), short, v, []int32{7}, VocabOptions{}); !errors.Is(err, tokenizer.ErrVocabSize) || !strings.Contains(err.Error(), "12 to 13") {
		t.Errorf("%v", err)
	}
	if _, err := Vocab(t.Context(), m, v, []int32{14}, VocabOptions{}); !errors.Is(err, ErrPrune) {
		t.Errorf("%v", err)
	}
}

// TestVocabOfPrunedHead: a head that has lost rows can follow if it was the embedding,
// or still has what is kept.
func TestVocabOfPrunedHead(t *testing.T) {
	for _, c := range []struct {
		tied bool
		have []int32
		ok   bool
	}{{true, []int32{0, 1}, true}, {false, []int32{0, 1}, false}, {false, []int32{0, 1, 2, 3, 4, 5, 7, 10, 11, 12, 13}, true}} {
		in := sixteen(c.tied)
		m, err := Head(t.Context(), in, c.have)
		if err != nil {
			t.Fatal(err)
		}
		if !c.tied {
			// The bias is in the way of nothing here.
			m = m.WithTensors(slices.DeleteFunc(slices.Clone(m.Tensors), func(t *tensor.Tensor) bool { return t.Name == "output.bias" }))
		}
		v := letters(t, m)
		out, err := Vocab(t.Context(), m, v, []int32{7}, VocabOptions{})
		if !c.ok {
			if !errors.Is(err, ErrGone) {
				t.Errorf("%+v: %v", c, err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if out.Tensor(OutputIDs) != nil || out.Meta.Has(KeyTied) {
			t.Errorf("%+v: it is a pruned head still", c)
		}
		if got := readValues(t, out.Tensor("output.weight")); fmt.Sprint(got[:12]) != "[0 1 10 11 20 21 30 31 50 51 70 71]" {
			t.Errorf("%+v: rows %v", c, got)
		}
	}
}

// TestCounterparts: a whole model is cut as the file is, and what is cut alike already
// stays.
func TestCounterparts(t *testing.T) {
	same := func(what string, file, got []*tensor.Tensor) {
		t.Helper()
		for _, f := range file {
			i := slices.IndexFunc(got, func(x *tensor.Tensor) bool { return x.Name == f.Name })
			if i < 0 || !got[i].Shape.Equal(f.Shape) {
				t.Errorf("%s: no counterpart of %s %v", what, f.Name, f.Shape)
				continue
			}
			a, b := make([]byte, f.Bytes()), make([]byte, f.Bytes())
			if err := errors.Join(f.ReadRows(t.Context(), a, 0, f.Rows()), got[i].ReadRows(t.Context(), b, 0, f.Rows())); err != nil || !bytes.Equal(a, b) {
				t.Errorf("%s: tensor %s differs, %v", what, f.Name, err)
			}
		}
		if len(got) != len(file) {
			t.Errorf("%s: %d tensors, %d in the file", what, len(got), len(file))
		}
	}
	for _, tied := range []bool{false, true} {
		// A vocabulary that was pruned behind a head.
		headless, err := Head(t.Context(), sixteen(tied), []int32{0, 1, 2, 3, 4, 5, 7, 10, 11, 12, 13})
		if err != nil {
			t.Fatal(err)
		}
		behind, err := Vocab(t.Context(), headless, letters(t, headless), []int32{7}, VocabOptions{})
		if err != nil {
			t.Fatal(err)
		}
		ids, err := behind.Meta.Int32s(tokenizer.KeySourceIDs)
		if err != nil {
			t.Fatal(err)
		}
		got, _, err := Counterparts(t.Context(), behind.Tensors, headless.Tensors, ids)
		if err != nil {
			t.Fatal(err)
		}
		same(fmt.Sprint("vocabulary behind a head, tied ", tied), behind.Tensors, got)
		whole := sixteen(tied)
		large, err := Head(t.Context(), whole, []int32{0, 3, 7, 15})
		if err != nil {
			t.Fatal(err)
		}
		small, err := Head(t.Context(), large, []int32{3, 15})
		if err != nil {
			t.Fatal(err)
		}
		for what, c := range map[string][2]*model.Model{"whole": {whole, whole}, "pruned": {large, whole}, "alike": {large, large}, "again": {small, large}} {
			got, _, err := Counterparts(t.Context(), c[0].Tensors, c[1].Tensors, nil)
			if err != nil {
				t.Fatal(err)
			}
			same(fmt.Sprint(what, " tied ", tied), c[0].Tensors, got)
		}
		if _, _, err := Counterparts(t.Context(), large.Tensors, small.Tensors, nil); !errors.Is(err, model.ErrTensors) {
			t.Errorf("a source with fewer rows: %v", err)
		}
		v := letters(t, whole)
		cut, err := Vocab(t.Context(), whole, v, []int32{7}, VocabOptions{})
		if err != nil {
			t.Fatal(err)
		}
		ids, err = cut.Meta.Int32s(tokenizer.KeySourceIDs)
		if err != nil {
			t.Fatal(err)
		}
		for _, source := range []*model.Model{whole, cut} {
			got, _, err := Counterparts(t.Context(), cut.Tensors, source.Tensors, ids)
			if err != nil {
				t.Fatal(err)
			}
			same(fmt.Sprint("vocabulary, tied ", tied), cut.Tensors, got)
		}
	}
}
