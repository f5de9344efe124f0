package main

import (
	"encoding/binary"
	"math"
	"os"
	"strings"
	"testing"

	"quern/formats/safetensors"
	"quern/internal/testmodel"
	"quern/tensor"
	"quern/verify"
)

// gemma writes tiny-gemma3 into a folder, with something added to every norm.
func gemma(t *testing.T, dir string, more float32) {
	t.Helper()
	files, err := testmodel.Build("tiny-gemma3")
	check(t, err)
	var list []testmodel.Tensor
	f, err := safetensors.Open(t.Context(), "model.safetensors", tensor.BytesBlob("model.safetensors", files["model.safetensors"]), safetensors.Options{})
	check(t, err)
	for _, x := range f.Tensors {
		n, err := x.Shape.Values()
		check(t, err)
		var data []byte
		for _, v := range testmodel.Values(x.Name, int(n)) {
			if strings.HasSuffix(x.Name, "norm.weight") {
				v += more
			}
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits(v))
		}
		list = append(list, testmodel.Tensor{Name: x.Name, DType: "F32", Shape: x.Shape, Data: data})
	}
	files["model.safetensors"], err = testmodel.Safetensors(list)
	check(t, err)
	check(t, os.MkdirAll(dir, 0o755))
	for name, b := range files {
		check(t, os.WriteFile(dir+"/"+name, b, 0o644))
	}
}

// TestNormsShiftedTwice is case 57 of docs/pitfalls.md: the 1 that the conversion adds
// to norms is no difference, and one that was added before is seen.
func TestNormsShiftedTwice(t *testing.T) {
	b := newBench(t)
	gemma(t, b.path("right"), 0)
	gemma(t, b.path("twice"), 1)
	const warning = "1 looks added twice"
	for _, c := range []struct {
		name  string
		warns bool
	}{{"right", false}, {"twice", true}} {
		check(t, os.WriteFile(b.path("r.yaml"), []byte("version: 1\nname: r\nsources:\n  base: {dir: "+c.name+"}\noutputs:\n  - {format: gguf, file: "+c.name+".gguf, outtype: f32}\n"), 0o644))
		if r := b.ok("build", b.path("r.yaml"), "-o", b.dir, "--no-store"); strings.Contains(r.err, warning) != c.warns {
			t.Errorf("%s: building says %s", c.name, r.err)
		}
		for _, args := range [][]string{nil, {"--against", b.path(c.name)}} {
			var doc verify.Report
			b.ok(append([]string{"verify", b.path(c.name + ".gguf"), "--no-store", "--json"}, args...)...).json(t, &doc)
			if strings.Contains(strings.Join(doc.Notes, "\n"), warning) != c.warns {
				t.Errorf("%s %v: notes %q", c.name, args, doc.Notes)
			}
			for _, row := range doc.Rows {
				if !row.Equal {
					t.Errorf("%s %v: %s is not equal to its source", c.name, args, row.Name)
				}
			}
		}
	}
	var doc verify.Report
	b.ok("verify", b.path("twice.gguf"), "--no-store", "--json", "--against", b.path("right")).json(t, &doc)
	for _, row := range doc.Rows {
		if norm := strings.HasSuffix(row.Name, "norm.weight"); row.Equal == norm || norm && math.Abs(row.MaxAbs-1) > 1e-6 {
			t.Errorf("%s: apart by %g", row.Name, row.MaxAbs)
		}
	}
}
