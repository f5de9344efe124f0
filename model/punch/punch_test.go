package punch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"quern/formats/gguf"
	"quern/formats/repacked"
	"quern/internal/digest"
	"quern/internal/holes"
	"quern/tensor"
	"quern/tensor/repack"
)

// disk is a file in memory. The step-th change fails after half of it was made, or
// none of it where that is less than a sector.
type disk struct {
	data []byte
	step int // 0: none fails
	sync int
	// noHoles makes Punch fail as a file system does that has none.
	noHoles bool
	punched int64
}

var errBroken = errors.New("the plug was pulled")

func (d *disk) change(off, n int64, do func([]byte)) error {
	if d.step--; d.step == 0 {
		if n > 16 || off%16 != 0 {
			do(d.data[off : off+n/2])
		}
		return errBroken
	}
	do(d.data[off : off+n])
	return nil
}

func (d *disk) WriteAt(p []byte, off int64) (int, error) {
	if err := d.change(off, int64(len(p)), func(b []byte) { copy(b, p) }); err != nil {
		return 0, err
	}
	return len(p), nil
}

func (d *disk) Punch(off, n int64) error {
	if d.noHoles {
		return holes.ErrUnsupported
	}
	d.punched += n
	return d.change(off, n, func(b []byte) { clear(b) })
}

func (d *disk) Sync() error { d.sync++; return nil }

func layout(t testing.TB, name string) *repack.Layout {
	t.Helper()
	l, err := repack.Parse(name)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// noise is any bytes, without code 3 of Q2_0.
func noise(n int64, seed byte) []byte {
	b := make([]byte, n)
	x := uint32(seed) + 1
	for i := range b {
		x = x*1664525 + 1013904223
		b[i] = byte(x>>24) &^ 0xaa
	}
	return b
}

// sample is a GGUF file with two matrices and experts of Q4_0, one of Q2_0, a small
// matrix and a vector, and its bytes.
func sample(t testing.TB) []byte {
	t.Helper()
	specs := []gguf.TensorSpec{
		{Name: "token_embd.weight", Type: tensor.F32, Shape: tensor.Shape{40}},
		{Name: "blk.0.attn_q.weight", Type: tensor.Q4_0, Shape: tensor.Shape{64, 256}},
		{Name: "blk.0.small.weight", Type: tensor.Q4_0, Shape: tensor.Shape{8, 32}},
		{Name: "blk.0.ternary.weight", Type: tensor.Q2_0, Shape: tensor.Shape{64, 512}},
		{Name: "blk.0.ffn_up_exps.weight", Type: tensor.Q4_0, Shape: tensor.Shape{3, 32, 288}},
	}
	l, err := gguf.NewLayout(gguf.NewMetadata(gguf.KV{Key: "general.architecture", Value: gguf.Scalar("x")}), specs, gguf.LayoutOptions{})
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, l.Size)
	copy(b, l.Header)
	for i, p := range l.Tensors {
		copy(b[p.Offset:], noise(p.Bytes, byte(i)))
	}
	return b
}

// cacheOf makes a cache of all matrices of the layout's type.
func cacheOf(t testing.TB, file []byte, layouts string) *repacked.File {
	t.Helper()
	l := layout(t, layouts)
	g, err := gguf.Open(t.Context(), "m.gguf", tensor.BytesBlob("m.gguf", file), gguf.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var specs []repacked.Spec
	var from []*tensor.Tensor
	for i := range g.Tensors {
		if x := g.Tensors[i].Tensor; x.Type == l.Type() {
			specs, from = append(specs, repacked.Spec{Name: x.Name, Shape: x.Shape}), append(from, x)
		}
	}
	plan, err := repacked.NewLayout(l, specs, int64(len(file)))
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, plan.Size)
	copy(b, plan.Header)
	sum := digest.Of(file)
	copy(b[repacked.DigestAt:], sum[:])
	for i, p := range plan.Tensors {
		x, err := repack.Interleave(from[i], l)
		if err != nil {
			t.Fatal(err)
		}
		if err := x.ReadRows(t.Context(), b[p.Offset:p.Offset+p.Bytes], 0, x.Rows()); err != nil {
			t.Fatal(err)
		}
	}
	c, err := repacked.Open(t.Context(), "m.gguf."+layouts+".repack", tensor.BytesBlob("c", b), repacked.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// open opens the bytes with caches, and verifies them.
func open(t testing.TB, b []byte, caches ...*repacked.File) (*File, error) {
	t.Helper()
	f, err := Open(t.Context(), "m.gguf", tensor.BytesBlob("m.gguf", b))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range caches {
		if err := f.Add(c); err != nil {
			return f, err
		}
	}
	return f, f.Verify(t.Context())
}

// TestPunchAndRestore takes matrices away, of two caches, and brings them back.
func TestPunchAndRestore(t *testing.T) {
	file := sample(t)
	q4, q2 := cacheOf(t, file, "q4_0_8x8"), cacheOf(t, file, "q2_0_8x4_base3")
	d := &disk{data: bytes.Clone(file)}
	f, err := open(t, d.data, q4, q2)
	if err != nil {
		t.Fatal(err)
	}
	plan := f.Plan()
	if len(plan) != 3 {
		t.Fatalf("%+v", plan) // the small one covers no block
	}
	if err := f.Check(t.Context(), plan); err != nil {
		t.Fatal(err)
	}
	if err := f.Apply(t.Context(), d, plan, false); err != nil {
		t.Fatal(err)
	}
	var want int64
	for _, p := range plan {
		want += p.Bytes - gguf.MarkBytes
		if bytes.Count(d.data[p.Offset+gguf.MarkBytes:p.Offset+p.Bytes], []byte{0}) != int(p.Bytes-gguf.MarkBytes) {
			t.Errorf("%s is still there", p.Tensor)
		}
		if m, ok := gguf.ParseMark(d.data[p.Offset:]); !ok || m.Layout != p.Layout || m.Source != digest.Of(file) {
			t.Errorf("%s: mark %+v", p.Tensor, m)
		}
	}
	if d.punched != want {
		t.Errorf("%d bytes given back, want %d", d.punched, want)
	}
	// Readers say so in place of reading zeros.
	g, err := gguf.Open(t.Context(), "m.gguf", tensor.BytesBlob("m.gguf", d.data), gguf.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range g.Tensors {
		x := g.Tensors[i].Tensor
		err := x.ReadRows(t.Context(), make([]byte, x.Bytes()), 0, x.Rows())
		if gone := x.Bytes() > 4096; gone != errors.Is(err, gguf.ErrPunched) || gone && !strings.Contains(err.Error(), x.Name) {
			t.Errorf("%s: %v", x.Name, err)
		}
	}
	if _, err := open(t, d.data, q4); !errors.Is(err, gguf.ErrPunched) || !strings.Contains(err.Error(), "q2_0_8x4_base3") {
		t.Errorf("without one of the caches: %v", err)
	}
	f, err = open(t, d.data, q4, q2)
	if err != nil {
		t.Fatal(err)
	}
	if n, size := f.Gone(); n != 3 || size != want+3*gguf.MarkBytes || len(f.Missing()) != 3 {
		t.Errorf("%d tensors of %d bytes are gone", n, size)
	}
	if len(f.Plan()) != 3 || !f.Plan()[0].Gone {
		t.Errorf("%+v", f.Plan())
	}
	ts, err := f.Model()
	if err != nil {
		t.Fatal(err)
	}
	for i, x := range ts {
		b := make([]byte, x.Bytes())
		if err := x.ReadRows(t.Context(), b, 0, x.Rows()); err != nil || !bytes.Equal(b, file[g.Tensors[i].Offset:][:len(b)]) {
			t.Errorf("%s: other rows, %v", x.Name, err)
		}
	}
	if err := f.Restore(t.Context(), d); err != nil || !bytes.Equal(d.data, file) {
		t.Errorf("the file is another one: %v", err)
	}
}

// TestPulledPlug breaks off at every change, and in the middle of it. Whatever is
// left, file and caches together are still the whole file; it can be punched
// further and restored.
func TestPulledPlug(t *testing.T) {
	file := sample(t)
	q4, q2 := cacheOf(t, file, "q4_0_4x8"), cacheOf(t, file, "q2_0_8x4")
	for _, restore := range []bool{false, true} {
		steps := 0
		for step := 1; ; step++ {
			d := &disk{data: bytes.Clone(file)}
			f, err := open(t, d.data, q4, q2)
			if err != nil {
				t.Fatal(err)
			}
			if restore {
				if err := f.Apply(t.Context(), d, f.Plan(), false); err != nil {
					t.Fatal(err)
				}
			}
			d.step = step
			if restore {
				err = f.Restore(t.Context(), d)
			} else {
				err = f.Apply(t.Context(), d, f.Plan(), step%2 == 0)
			}
			if err == nil {
				break
			}
			if !errors.Is(err, errBroken) {
				t.Fatal(err)
			}
			steps++
			what := fmt.Sprintf("restore %v, step %d", restore, step)
			f, err = open(t, d.data, q4, q2)
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			if err := f.Check(t.Context(), f.Plan()); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			if err := f.Apply(t.Context(), d, f.Plan(), false); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			if n, _ := f.Gone(); n != 3 {
				t.Errorf("%s: then %d tensors are gone", what, n)
			}
			if err := f.Restore(t.Context(), d); err != nil || !bytes.Equal(d.data, file) {
				t.Fatalf("%s: the file is another one: %v", what, err)
			}
		}
		if steps < 8 {
			t.Errorf("only %d steps", steps)
		}
	}
}

// TestNoHoles: where nothing can be given back nothing changes, unless zeros are asked
// for.
func TestNoHoles(t *testing.T) {
	file := sample(t)
	d := &disk{data: bytes.Clone(file), noHoles: true}
	f, err := open(t, d.data, cacheOf(t, file, "q4_0_8x8"))
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Apply(t.Context(), d, f.Plan(), false); !errors.Is(err, holes.ErrUnsupported) || !bytes.Equal(d.data, file) {
		t.Errorf("without holes the file changed, or %v", err)
	}
	if err := f.Apply(t.Context(), d, f.Plan(), true); err != nil {
		t.Error(err)
	}
	if n, _ := f.Gone(); n != 2 || bytes.Equal(d.data, file) {
		t.Errorf("with zeros %d tensors are gone", n)
	}
}

func TestRefuses(t *testing.T) {
	file := sample(t)
	other := bytes.Clone(file)
	other[len(other)-40] ^= 1
	if _, err := open(t, other, cacheOf(t, file, "q4_0_8x8")); !errors.Is(err, repacked.ErrOther) {
		t.Errorf("another file: %v", err)
	}
	if _, err := open(t, file); !errors.Is(err, ErrCache) {
		t.Errorf("no cache: %v", err)
	}
	if _, err := open(t, file, cacheOf(t, file, "q4_0_8x8"), cacheOf(t, other, "q2_0_8x4")); !errors.Is(err, ErrCache) {
		t.Errorf("caches of two files: %v", err)
	}
	if _, err := open(t, file[:len(file)-0], cacheOf(t, append(bytes.Clone(file), make([]byte, 32)...), "q4_0_8x8")); !errors.Is(err, ErrCache) {
		t.Errorf("another size: %v", err)
	}
	// A layout that rounds does not give the bytes back.
	f, err := open(t, file, cacheOf(t, file, "q2_0_8x4_merged128"))
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Check(t.Context(), f.Plan()); !errors.Is(err, ErrLossy) || !strings.Contains(err.Error(), "blk.0.ternary.weight") {
		t.Errorf("a lossy layout: %v", err)
	}
	// A cache that was damaged after it was made.
	c := cacheOf(t, file, "q4_0_8x8")
	f, err = open(t, file, c)
	if err != nil {
		t.Fatal(err)
	}
	for i := range f.plain {
		if f.plain[i] != nil {
			src := f.plain[i].Src
			f.plain[i] = f.plain[i].With(func(x *tensor.Tensor) {
				x.Src = tensor.SourceFunc(func(ctx context.Context, dst []byte, first, n int64) error {
					err := src.ReadRows(ctx, dst, first, n)
					dst[len(dst)-1] ^= 1
					return err
				})
			})
		}
	}
	if err := f.Check(t.Context(), f.Plan()); !errors.Is(err, ErrLossy) {
		t.Errorf("a damaged cache: %v", err)
	}
}
