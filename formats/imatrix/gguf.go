package imatrix

import (
	"fmt"
	"math"
	"strings"

	"quern/formats/gguf"
	"quern/tensor"
)

// GeneralType is the value of general.type in files of the newer format.
const GeneralType = "imatrix"

const (
	sumsSuffix   = ".in_sum2"
	countsSuffix = ".counts"
)

// gguf reads the newer format.
func (r *reader) gguf() (*Matrix, error) {
	f, err := gguf.Open(r.ctx, r.name, r.blob, gguf.Options{})
	if err != nil {
		return nil, err
	}
	kind, err := f.Meta.Text("general.type")
	if err != nil {
		return nil, r.failf(0, "key general.type", "it should be %q: %v", GeneralType, err)
	}
	if kind != GeneralType {
		return nil, r.failf(0, "key general.type", "this GGUF file is of type %q, not %q", kind, GeneralType)
	}
	m := &Matrix{}
	if m.Datasets, err = f.Meta.Texts("imatrix.datasets"); err != nil {
		return nil, r.failf(0, "key imatrix.datasets", "%v", err)
	}
	for _, k := range []struct {
		key string
		to  *int64
	}{{"imatrix.chunk_count", &m.Chunks}, {"imatrix.chunk_size", &m.ChunkSize}} {
		n, err := f.Meta.Uint32(k.key)
		if err != nil {
			return nil, r.failf(0, "key "+k.key, "%v", err)
		}
		*k.to = int64(n)
	}
	counts := map[string]*gguf.Info{}
	for i := range f.Tensors {
		t := &f.Tensors[i]
		if name, ok := strings.CutSuffix(t.Name, countsSuffix); ok {
			counts[name] = t
		}
	}
	for i := range f.Tensors {
		t := &f.Tensors[i]
		name, ok := strings.CutSuffix(t.Name, sumsSuffix)
		if !ok {
			if !strings.HasSuffix(t.Name, countsSuffix) {
				m.Ignored = append(m.Ignored, t.Name)
			}
			continue
		}
		r.entry = name
		if name == "" {
			return nil, r.failf(t.Offset, "name", "it is empty")
		}
		if counts[name] == nil {
			return nil, r.failf(t.Offset, "sums", "there is no tensor %q", name+countsSuffix)
		}
		e, err := r.means(name, t, counts[name])
		if err != nil {
			return nil, err
		}
		m.Entries = append(m.Entries, e)
		delete(counts, name)
	}
	r.entry = ""
	for i := range f.Tensors {
		if name, ok := strings.CutSuffix(f.Tensors[i].Name, countsSuffix); ok && counts[name] != nil {
			r.entry = name
			return nil, r.failf(f.Tensors[i].Offset, "counts", "there is no tensor %q", name+sumsSuffix)
		}
	}
	if len(m.Entries) == 0 {
		return nil, r.failf(0, "tensors", "no entries")
	}
	return m, nil
}

// means turns sums and counts into weights.
func (r *reader) means(name string, sums, counts *gguf.Info) (Entry, error) {
	e := Entry{Name: name}
	for _, t := range []*gguf.Info{sums, counts} {
		if x := t.Tensor; x == nil || x.Type != tensor.F32 {
			return e, r.failf(t.Offset, t.Name, "it is %s, not F32", t.TypeName())
		}
	}
	n, k := sums.Bytes/4, counts.Bytes/4
	if k < 1 || n < 1 || n%k != 0 {
		return e, r.failf(counts.Offset, "counts", "%d counts for %d sums", k, n)
	}
	c, err := r.floats(counts.Offset, k, "counts")
	if err != nil {
		return e, err
	}
	if e.Weights, err = r.floats(sums.Offset, n, "sums"); err != nil {
		return e, err
	}
	row := n / k
	e.Counts = make([]int64, k)
	for j, v := range c {
		// Counts are whole numbers that were kept as floats; files that were
		// merged may have lost the last digits.
		x := math.Round(float64(v))
		if x > 1<<53 {
			return e, r.fail(counts.Offset+4*int64(j), "counts", fmt.Errorf("%w: value %d is %g", ErrValue, j, v))
		}
		e.Counts[j] = int64(x)
		w := e.Weights[int64(j)*row : (int64(j)+1)*row]
		by := float32(e.Counts[j])
		for i := range w {
			if by > 0 {
				w[i] /= by
			} else {
				w[i] = 1
			}
		}
	}
	return e, nil
}
