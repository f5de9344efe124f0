package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/apache/arrow/go/v17/arrow/array"
	arrowmemory "github.com/apache/arrow/go/v17/arrow/memory"
	"github.com/apache/arrow/go/v17/parquet/file"
	"github.com/apache/arrow/go/v17/parquet/pqarrow"

	"quern/internal/testmodel"
)

type report struct {
	File, Against string
	Tensors       []struct {
		Name, Type, From string
		SNR              *float64 `json:"snr_db"`
		MaxAbs           *float64 `json:"max_abs"`
		RMS              float64
		Equal            bool
		NaN, Inf         int64
	}
	Total struct {
		NaN, Inf, Values int64
		SNR              *float64 `json:"snr_db"`
	}
	Notes []string
	jsonFailure
}

func (r *report) tensor(t *testing.T, name string) int {
	t.Helper()
	for i := range r.Tensors {
		if r.Tensors[i].Name == name {
			return i
		}
	}
	t.Fatalf("no tensor %s in the report", name)
	return -1
}

// outputsOfAllFormats builds a GGUF file in Q8_0 with padded rows, the same
// model in F32, and a KMCU file.
func outputsOfAllFormats(t *testing.T) (b *bench, q8File, f32File, kmcuFile, recipe string) {
	b = newBench(t)
	b.model("stories260k", "model")
	recipe = b.write("pad.yaml", "version: 1\nname: padded\nsources:\n  base: {dir: model}\nsteps:\n  - pad: {ffn: 32}\n  - quantize: {type: Q8_0}\noutputs:\n  - {format: gguf, file: q8.gguf}\n")
	b.ok("build", recipe, "-o", b.path("out"))
	b.ok("build", b.recipe("outputs:\n  - {format: gguf, file: f32.gguf, outtype: f32}\n  - {format: kmcu, file: r.kmcu}\n"), "-o", b.path("out"))
	return b, b.path("out", "q8.gguf"), b.path("out", "f32.gguf"), b.path("out", "r.kmcu"), recipe
}

func TestVerifyAgainst(t *testing.T) {
	b, q8File, f32File, kmcuFile, recipe := outputsOfAllFormats(t)
	model := b.path("model")
	for _, c := range []struct {
		name     string
		args     []string
		code     int
		min, max float64 // of the total's ratio; 0, 0 for equal
		note     string
	}{
		{"known steps", []string{q8File, "--against", model}, exitDone, 35, 60, "steps of the build padded"},
		{"named recipe", []string{q8File, "--against", model, "--recipe", recipe, "--no-such", ""}, exitUsage, 0, 0, ""},
		{"named recipe", []string{q8File, "--against", model, "--recipe", recipe}, exitDone, 35, 60, "steps of " + recipe},
		{"F32", []string{f32File, "--against", model}, exitDone, 0, 0, "steps of the build r"},
		{"KMCU", []string{kmcuFile, "--against", model}, exitDone, 15, 30, "steps of the build r"},
		{"safetensors", []string{filepath.Join(model, "model.safetensors"), "--against", model}, exitDone, 0, 0, "no steps"},
		{"a GGUF file", []string{f32File, "--against", f32File}, exitDone, 0, 0, ""},
		{"a GGUF file of another type", []string{q8File, "--against", f32File}, exitDone, 35, 60, "steps of the build padded"},
		{"an artifact", []string{f32File, "--against", "artifact:r"}, exitDone, 0, 0, ""},
		{"an artifact that is not there", []string{f32File, "--against", "artifact:nothing"}, exitSource, 0, 0, "artifact nothing"},
		{"nothing", []string{f32File, "--against", b.path("nothing")}, exitUsage, 0, 0, "no such file"},
		{"no model", []string{f32File, "--against", filepath.Join(model, "tokenizer.model")}, exitUsage, 0, 0, "no source is a model"},
		{"other recipe", []string{q8File, "--against", model, "--recipe", b.path("r.yaml")}, exitVerify, 0, 0, "--recipe"},
		{"bad recipe", []string{q8File, "--against", model, "--recipe", b.write("bad.yaml", "version: 1\n")}, exitUsage, 0, 0, "bad.yaml"},
		{"limit that holds", []string{q8File, "--against", model, "--min-snr", "30"}, exitDone, 35, 60, ""},
		{"limit that does not", []string{q8File, "--against", model, "--min-snr", "90"}, exitVerify, 35, 60, "under the limit"},
	} {
		r := b.run(append(append([]string{"verify"}, c.args...), "--json")...)
		if r.code != c.code || !strings.Contains(r.out, c.note) {
			t.Errorf("%s: exit code %d, want %d, and %q in\n%.500s\n%s", c.name, r.code, c.code, c.note, r.out, r.err)
			continue
		}
		if c.code != exitDone && c.max == 0 {
			continue
		}
		var doc report
		r.json(t, &doc)
		switch snr := doc.Total.SNR; {
		case c.max == 0 && snr != nil:
			t.Errorf("%s: ratio %v, want equal values", c.name, *snr)
		case c.max > 0 && (snr == nil || *snr < c.min || *snr > c.max):
			t.Errorf("%s: ratio %v, want %v to %v", c.name, snr, c.min, c.max)
		}
		if doc.File != c.args[0] || len(doc.Tensors) < 47 {
			t.Errorf("%s: %s with %d tensors", c.name, doc.File, len(doc.Tensors))
		}
	}
	// Without a store the steps are not known, and the widths do not fit.
	r := b.fails(exitVerify, []string{"--recipe", "feed-forward"}[:1], "verify", q8File, "--against", model, "--no-store")
	if !strings.Contains(r.err, "ffn") {
		t.Errorf("%s", r.err)
	}
	// The table says the same for people.
	r = b.ok("verify", q8File, "--against", model)
	for _, w := range []string{"tensor", "token_embd.weight", "Q8_0", "worst:", "total"} {
		if !strings.Contains(r.out, w) {
			t.Errorf("no %q in\n%s", w, r.out)
		}
	}
}

// TestVerifyFindsAFlippedByte damages one weight of each format.
func TestVerifyFindsAFlippedByte(t *testing.T) {
	b, q8File, _, kmcuFile, _ := outputsOfAllFormats(t)
	model := b.path("model")
	st := b.path("model", "model.safetensors")
	for _, c := range []struct{ file, tensor string }{{q8File, "blk.2.ffn_up.weight"}, {kmcuFile, "L2.up"}, {st, "model.layers.2.mlp.up_proj.weight"}} {
		golden := b.write("golden"+filepath.Ext(c.file), string(mustRead(t, c.file)))
		var in struct {
			Tensors []struct {
				Name          string
				Offset, Bytes int64
			}
		}
		b.ok("inspect", c.file, "--json").json(t, &in)
		at := int64(-1)
		for _, x := range in.Tensors {
			if x.Name == c.tensor {
				at = x.Offset + x.Bytes/2
			}
		}
		if at < 0 {
			t.Fatalf("%s: no tensor %s: %+v", c.file, c.tensor, in.Tensors)
		}
		var clean report
		b.ok("verify", c.file, "--against", model, "--golden", golden, "--json").json(t, &clean)
		if !strings.Contains(strings.Join(clean.Notes, " "), "byte for byte") {
			t.Errorf("%s: notes %v", c.file, clean.Notes)
		}
		damaged := b.write("damaged"+filepath.Ext(c.file), string(mustRead(t, c.file)))
		b.patch("damaged"+filepath.Ext(c.file), func(d []byte) []byte { d[at] ^= 0x40; return d })
		r := b.fails(exitVerify, []string{c.tensor, "differs first in row", sum(t, damaged), sum(t, golden)}, "verify", damaged, "--golden", golden)
		if strings.Contains(r.err, "byte for byte") {
			t.Errorf("%s", r.err)
		}
		// Against the source its ratio stands out, and all others are as they
		// were. The store does not know the damaged file, so the steps are named.
		args := []string{"verify", damaged, "--against", model, "--json"}
		if c.file == q8File {
			args = append(args, "--recipe", b.path("pad.yaml"))
		}
		if c.file == st {
			args[3] = b.path("whole")
			b.model("stories260k", "whole")
		}
		var doc report
		b.run(args...).json(t, &doc)
		for i, x := range doc.Tensors {
			same := fmt.Sprint(deref(x.MaxAbs), deref(x.SNR)) == fmt.Sprint(deref(clean.Tensors[i].MaxAbs), deref(clean.Tensors[i].SNR))
			if same == (x.Name == c.tensor) {
				t.Errorf("%s: tensor %s: error %v, was %v", c.file, x.Name, deref(x.MaxAbs), deref(clean.Tensors[i].MaxAbs))
			}
		}
	}
}

func deref(p *float64) float64 {
	if p == nil {
		return -1
	}
	return *p
}

func TestVerifyStructure(t *testing.T) {
	b, q8File, f32File, kmcuFile, _ := outputsOfAllFormats(t)
	for _, f := range []string{q8File, kmcuFile, b.path("model", "model.safetensors")} {
		b.ok("verify", f)
		short := b.write("short"+filepath.Ext(f), string(mustRead(t, f)[:len(mustRead(t, f))/2]))
		b.fails(exitVerify, []string{"short", "truncated"}, "verify", short)
		b.fails(exitVerify, []string{"empty"}, "verify", b.write("empty"+filepath.Ext(f), ""))
	}
	b.fails(exitVerify, []string{"unknown file format"}, "verify", b.path("r.yaml"))
	b.fails(exitSource, []string{"nothing"}, "verify", b.path("nothing"))
	b.fails(exitSource, []string{"regular"}, "verify", b.dir)
	b.fails(exitSource, []string{"nothing"}, "verify", f32File, "--golden", b.path("nothing"))
	b.fails(exitVerify, []string{"tensor 0 is", "golden file"}, "verify", q8File, "--golden", f32File)
	b.fails(exitVerify, []string{"KMCU"}, "verify", q8File, "--golden", b.write("x", "KMCU"))
	// Equal tensors in files that differ.
	meta := b.write("meta.gguf", string(bytes.Replace(mustRead(t, f32File), []byte("general.architecture"), []byte("general.architecturf"), 1)))
	b.fails(exitVerify, []string{"all tensors are equal", "metadata"}, "verify", meta, "--golden", f32File)

	// A value that is not a number, in each float format.
	for name, f := range map[string]string{"blk.0.attn_q.weight": f32File, "model.embed_tokens.weight": b.path("model", "model.safetensors")} {
		var in struct {
			Tensors []struct {
				Name   string
				Offset int64
			}
		}
		b.ok("inspect", f, "--json").json(t, &in)
		for _, x := range in.Tensors {
			if x.Name != name {
				continue
			}
			data := mustRead(t, f)
			binary.LittleEndian.PutUint32(data[x.Offset:], 0x7fc00000)
			binary.LittleEndian.PutUint32(data[x.Offset+8:], 0xff800000)
			bad := b.write("nan"+filepath.Ext(f), string(data))
			r := b.fails(exitVerify, []string{"1 NaN", "1 infinite"}, "verify", bad, "--json")
			var doc report
			r.json(t, &doc)
			if i := doc.tensor(t, name); doc.Tensors[i].NaN != 1 || doc.Tensors[i].Inf != 1 || doc.Total.NaN != 1 || doc.ExitCode != exitVerify {
				t.Errorf("%s: %+v", f, doc.Tensors[i])
			}
		}
	}
}

// TestVerifyReports reads the Parquet table back with Arrow, and looks for the
// names of a stranger's tensors in the page.
func TestVerifyReports(t *testing.T) {
	b, q8File, _, _, _ := outputsOfAllFormats(t)
	table, page := b.path("report.parquet"), b.path("report.html")
	var doc report
	b.ok("verify", q8File, "--against", b.path("model"), "--parquet", table, "--html", page, "--json").json(t, &doc)

	rd, err := file.OpenParquetFile(table, false)
	check(t, err)
	defer rd.Close()
	fr, err := pqarrow.NewFileReader(rd, pqarrow.ArrowReadProperties{}, arrowmemory.DefaultAllocator)
	check(t, err)
	tab, err := fr.ReadTable(t.Context())
	check(t, err)
	defer tab.Release()
	if int(tab.NumRows()) != len(doc.Tensors) {
		t.Fatalf("%d rows, want %d", tab.NumRows(), len(doc.Tensors))
	}
	column := func(name string) []string {
		var out []string
		for i, f := range tab.Schema().Fields() {
			if f.Name != name {
				continue
			}
			for _, c := range tab.Column(i).Data().Chunks() {
				for k := range c.Len() {
					switch x := c.(type) {
					case *array.String:
						out = append(out, x.Value(k))
					case *array.Float64:
						out = append(out, fmt.Sprintf("%.4f", x.Value(k)))
					default:
						out = append(out, c.ValueStr(k))
					}
				}
			}
		}
		return out
	}
	names, kinds, snr := column("tensor"), column("type"), column("snr_db")
	if len(names) != len(doc.Tensors) || len(kinds) != len(names) || len(snr) != len(names) {
		t.Fatalf("columns of %d, %d and %d rows; the schema is %v", len(names), len(kinds), len(snr), tab.Schema())
	}
	for i, x := range doc.Tensors {
		if names[i] != x.Name || kinds[i] != x.Type || x.SNR != nil && snr[i] != fmt.Sprintf("%.4f", *x.SNR) {
			t.Errorf("row %d: %s %s %s, want %s %s %v", i, names[i], kinds[i], snr[i], x.Name, x.Type, deref(x.SNR))
		}
	}
	if text := string(mustRead(t, page)); !strings.Contains(text, "token_embd.weight") || !strings.Contains(text, "Q8_0") || !strings.HasPrefix(text, "<!") {
		t.Errorf("the page is %.300s", text)
	}

	evil := `<script>alert("1")</script>&amp;`
	data, err := testmodel.Safetensors([]testmodel.Tensor{{Name: evil, DType: "F32", Shape: []int64{4}}})
	check(t, err)
	b.ok("verify", b.write("evil.safetensors", string(data)), "--html", page)
	if text := string(mustRead(t, page)); strings.Contains(text, "<script>alert") || !strings.Contains(text, "&lt;script&gt;alert(&#34;1&#34;)") || !strings.Contains(text, "&amp;amp;") {
		t.Errorf("a name is not escaped in\n%s", text)
	}
	// A report that cannot be written is a failure, and a folder's name is none
	// for it.
	b.fails(exitUsage, []string{"regular"}, "verify", q8File, "--html", b.dir)
	b.fails(exitFailed, []string{"no/such"}, "verify", q8File, "--parquet", filepath.Join(b.dir, "no", "such", "folder", "x.parquet"))
	noTemps(t, b.dir)
	if _, err := os.Stat(b.path("no")); err == nil {
		t.Error("a folder was made")
	}
}
