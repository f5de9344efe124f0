// Package testmodel makes the model folders that tests convert, in memory. The
// big files are not in the repository: they are made from descriptions by the
// recipe of interop/README.md, which this package and interop/weights.py both
// follow.
package testmodel

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// start is the folder that the process started in; tests change it.
var start, errStart = os.Getwd()

// Root finds the project's testdata folder from any package's tests, which start in
// the package's folder. Source paths would not do: -trimpath takes them away.
func Root() string {
	if errStart != nil {
		panic(errStart)
	}
	for dir := start; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return filepath.Join(dir, "testdata")
		}
		if dir == filepath.Dir(dir) {
			panic("tests run outside of the module: no go.mod above " + start)
		}
	}
}

// Tensor describes a tensor whose values are made from its name.
type Tensor struct {
	Name  string
	DType string // F32, F16, BF16 or F8_E4M3
	Shape []int64
	// Data replaces the made values when it is not nil.
	Data []byte
}

// UnmarshalJSON reads [name, dtype, shape].
func (t *Tensor) UnmarshalJSON(b []byte) error {
	return json.Unmarshal(b, &[]any{&t.Name, &t.DType, &t.Shape})
}

type description struct {
	Copy   map[string]string
	Index  bool
	Shards []struct {
		File    string
		Tensors []Tensor
	}
}

// Build gives the files of a model: a folder of testdata/models as it is, or one
// made from testdata/convert/models/NAME.
func Build(name string) (map[string][]byte, error) {
	if files, err := Folder(filepath.Join(Root(), "models", name)); err == nil {
		return files, nil
	}
	goldens := filepath.Join(Root(), "convert")
	files, err := Folder(filepath.Join(goldens, "models", name))
	if err != nil {
		return nil, err
	}
	var d description
	if err := json.Unmarshal(files["model.json"], &d); err != nil {
		return nil, fmt.Errorf("%s: model.json: %w", name, err)
	}
	delete(files, "model.json")
	for target, source := range d.Copy {
		b, err := os.ReadFile(filepath.Join(goldens, filepath.FromSlash(source)))
		if err != nil {
			return nil, err
		}
		if path.Ext(source) == ".gz" {
			z, err := gzip.NewReader(bytes.NewReader(b))
			if err != nil {
				return nil, fmt.Errorf("%s: %w", source, err)
			}
			if b, err = io.ReadAll(z); err != nil {
				return nil, fmt.Errorf("%s: %w", source, err)
			}
		}
		files[target] = b
	}
	weights := map[string]string{}
	total := 0
	for _, s := range d.Shards {
		b, err := Safetensors(s.Tensors)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.File, err)
		}
		files[s.File] = b
		total += len(b) - 8 - int(binary.LittleEndian.Uint64(b))
		for _, t := range s.Tensors {
			weights[t.Name] = s.File
		}
	}
	if d.Index {
		files["model.safetensors.index.json"] = Index(weights, total)
	}
	return files, nil
}

// Folder reads all files below a folder.
func Folder(dir string) (map[string][]byte, error) {
	files := map[string][]byte{}
	err := filepath.WalkDir(dir, func(p string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		rel, err := filepath.Rel(dir, p)
		if err != nil {
			return err
		}
		files[filepath.ToSlash(rel)], err = os.ReadFile(p)
		return err
	})
	return files, err
}

// Index writes model.safetensors.index.json.
func Index(weights map[string]string, total int) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "{\n  \"metadata\": {\n    \"total_size\": %d\n  },\n  \"weight_map\": {\n", total)
	sorted := slices.Sorted(maps.Keys(weights))
	for i, name := range sorted {
		comma := ","
		if i == len(sorted)-1 {
			comma = ""
		}
		fmt.Fprintf(&b, "    %q: %q%s\n", name, weights[name], comma)
	}
	b.WriteString("  }\n}\n")
	return []byte(b.String())
}

// Safetensors writes a file of made tensors, sorted by name.
func Safetensors(tensors []Tensor) ([]byte, error) {
	ts := slices.SortedFunc(slices.Values(tensors), func(a, b Tensor) int { return strings.Compare(a.Name, b.Name) })
	var head strings.Builder
	head.WriteString(`{"__metadata__":{"format":"pt"}`)
	var data []byte
	for _, t := range ts {
		n := int64(1)
		dims := make([]string, len(t.Shape))
		for i, d := range t.Shape {
			n *= d
			dims[i] = fmt.Sprint(d)
		}
		start := len(data)
		if t.Data != nil {
			data = append(data, t.Data...)
		} else {
			var err error
			if data, err = appendValues(data, t.DType, Values(t.Name, int(n))); err != nil {
				return nil, fmt.Errorf("tensor %s: %w", t.Name, err)
			}
		}
		fmt.Fprintf(&head, `,%q:{"dtype":%q,"shape":[%s],"data_offsets":[%d,%d]}`, t.Name, t.DType, strings.Join(dims, ","), start, len(data))
	}
	head.WriteByte('}')
	for head.Len()%8 != 0 {
		head.WriteByte(' ')
	}
	out := binary.LittleEndian.AppendUint64(nil, uint64(head.Len()))
	out = append(out, head.String()...)
	return append(out, data...), nil
}

// Values makes n numbers in [-1/8, 1/8) from a name: splitmix64 seeded with the
// name's FNV-1a, 24 bits each.
func Values(name string, n int) []float32 {
	z := uint64(0xcbf29ce484222325)
	for _, c := range []byte(name) {
		z = (z ^ uint64(c)) * 0x100000001b3
	}
	out := make([]float32, n)
	for i := range out {
		z += 0x9e3779b97f4a7c15
		m := (z ^ z>>30) * 0xbf58476d1ce4e5b9
		m = (m ^ m>>27) * 0x94d049bb133111eb
		m ^= m >> 31
		out[i] = float32(int64(m>>40)-1<<23) * (1.0 / (1 << 26))
	}
	return out
}

// appendValues rounds to the nearest value of the type, ties to even. The values
// are below 1 and have 24 bits, so no case of overflow arises.
func appendValues(b []byte, dtype string, x []float32) ([]byte, error) {
	switch dtype {
	case "F32":
		for _, v := range x {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
		}
	case "BF16":
		for _, v := range x {
			bits := math.Float32bits(v)
			b = binary.LittleEndian.AppendUint16(b, uint16((bits+0x7fff+bits>>16&1)>>16))
		}
	case "F16":
		for _, v := range x {
			b = binary.LittleEndian.AppendUint16(b, halfOf(v))
		}
	case "F8_E4M3":
		for _, v := range x {
			low := byte(int32(v * (1 << 26)))
			if low&0x7f == 0x7f {
				low--
			}
			b = append(b, low)
		}
	default:
		return nil, fmt.Errorf("no values of type %s are made", dtype)
	}
	return b, nil
}

// halfOf works on the number line: an F16 of exponent e is a multiple of
// 2^(e-10), and of 2^-24 at least.
func halfOf(v float32) uint16 {
	sign := uint16(math.Float32bits(v) >> 16 & 0x8000)
	a := math.Abs(float64(v))
	if a == 0 {
		return sign
	}
	_, e := math.Frexp(a)
	step := max(e-11, -24)
	n := uint16(math.RoundToEven(math.Ldexp(a, -step)))
	return sign | (uint16(step+24)<<10 + n)
}
