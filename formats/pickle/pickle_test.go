package pickle

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"quern/tensor"
	"quern/tensor/quant"
)

func golden(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", "..", "testdata", "pickle", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func open(b []byte) (*File, error) {
	return Open(context.Background(), "x.pkl", tensor.BytesBlob("x.pkl", b), Options{Source: "base", Key: tensor.Derive("test", "x")})
}

// floats reads an array by way of its tensor.
func floats(t *testing.T, f *File, v any) (out []float32, shape tensor.Shape) {
	t.Helper()
	a, ok := v.(*Array)
	if !ok {
		t.Fatalf("%T is no array", v)
	}
	x, err := f.Tensor("x", a)
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, x.Bytes())
	if err := x.ReadRows(context.Background(), b, 0, x.Rows()); err != nil {
		t.Fatal(err)
	}
	n, _ := x.Shape.Values()
	out = make([]float32, n)
	switch x.Type {
	case tensor.I32:
		for i := range out {
			out[i] = float32(int32(binary.LittleEndian.Uint32(b[4*i:])))
		}
	case tensor.I64:
		for i := range out {
			out[i] = float32(int64(binary.LittleEndian.Uint64(b[8*i:])))
		}
	case tensor.U8, tensor.Bool:
		for i := range out {
			out[i] = float32(b[i])
		}
	default:
		d, err := quant.DecoderFor(x.Type)
		if err != nil {
			t.Fatal(err)
		}
		d.Decode(out, b)
	}
	return out, x.Shape
}

// ramp is what the goldens hold.
func ramp(n int) []float32 {
	out := make([]float32, n)
	for i := range out {
		out[i] = float32(i)/8 - 1
	}
	return out
}

func count(n int) []float32 {
	out := make([]float32, n)
	for i := range out {
		out[i] = float32(i)
	}
	return out
}

func TestProtocols(t *testing.T) {
	for _, name := range []string{"protocol2.pkl", "protocol3.pkl", "protocol4.pkl", "protocol5.pkl"} {
		t.Run(name, func(t *testing.T) {
			f, err := open(golden(t, name))
			if err != nil {
				t.Fatal(err)
			}
			d := f.Root.(*Dict)
			for _, c := range []struct {
				key   string
				typ   tensor.Type
				shape tensor.Shape
				want  []float32
			}{
				{"f4", tensor.F32, tensor.Shape{2, 3, 4}, ramp(24)}, {"f2", tensor.F16, tensor.Shape{2, 3, 4}, ramp(24)}, {"f8", tensor.F64, tensor.Shape{2, 3, 4}, ramp(24)},
				{"i4", tensor.I32, tensor.Shape{2, 3}, count(6)}, {"u1", tensor.U8, tensor.Shape{5}, count(5)}, {"b1", tensor.Bool, tensor.Shape{2}, []float32{1, 0}},
				{"scalar", tensor.F32, tensor.Shape{}, []float32{2.5}}, {"zero", tensor.F32, tensor.Shape{}, []float32{0}}, {"empty", tensor.F32, tensor.Shape{0, 3}, []float32{}},
				{"fortran", tensor.F32, tensor.Shape{3, 4}, ramp(12)}, {"large", tensor.F32, tensor.Shape{300}, count(300)},
			} {
				got, shape := floats(t, f, d.Get(c.key))
				if !slices.Equal(got, c.want) || !shape.Equal(c.shape) || d.Get(c.key).(*Array).Type != c.typ {
					t.Errorf("%s: %v %v, want %v %v", c.key, shape, got, c.shape, c.want)
				}
			}
			n := d.Get("nested").(*Dict)
			text, err := JSON(n)
			if err != nil {
				t.Fatal(err)
			}
			if want := `{"int":70000,"list":[1,2.5,null,true,false,"text é"],"long":-4611686018427387904,"neg":-5,"tuple":[1,[2,3],[]]}`; string(text) != want {
				t.Errorf("%s, want %s", text, want)
			}
			if got, _ := floats(t, f, d.Get("ordered").(*Dict).Get("x")); !slices.Equal(got, []float32{1, 1}) {
				t.Errorf("ordered: %v", got)
			}
			if !slices.Equal(d.Keys[:2], []string{"f4", "f2"}) {
				t.Errorf("keys %v", d.Keys)
			}
			// The data of an array that is not small stay in the file, but where
			// protocol 2 has to write bytes as text.
			if large := d.Get("large").(*Array).Data; (large.Data == nil) != (name != "protocol2.pkl") {
				t.Errorf("large: %d bytes at hand", len(large.Data))
			}
		})
	}
}

func TestTensors(t *testing.T) {
	f, err := open(golden(t, "bfloat16.pkl"))
	if err != nil {
		t.Fatal(err)
	}
	ts, err := f.Tensors(f.Root)
	if err != nil || len(ts) != 1 || ts[0].Name != "bf" || ts[0].Type != tensor.BF16 || ts[0].Key.IsZero() {
		t.Errorf("%v, %v", ts, err)
	}
	if got, _ := floats(t, f, f.Root.(*Dict).Get("bf")); !slices.Equal(got, count(6)) {
		t.Errorf("%v", got)
	}
	if f, err = open(golden(t, "protocol4.pkl")); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Tensors(f.Root); !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), "nested/list") {
		t.Errorf("a list among the arrays: %v", err)
	}
}

func TestTorch(t *testing.T) {
	f, err := open(golden(t, "torch.pt"))
	if err != nil {
		t.Fatal(err)
	}
	d := f.Root.(*Dict)
	for _, c := range []struct {
		key   string
		shape tensor.Shape
		want  []float32
	}{
		{"a", tensor.Shape{2, 3, 4}, ramp(24)}, {"half", tensor.Shape{2, 3, 4}, ramp(24)}, {"bf", tensor.Shape{2, 3, 4}, ramp(24)},
		{"part", tensor.Shape{3, 4}, ramp(24)[12:]}, {"param", tensor.Shape{3, 4}, ramp(12)}, {"long", tensor.Shape{3}, count(3)},
	} {
		if got, shape := floats(t, f, d.Get(c.key)); !slices.Equal(got, c.want) || !shape.Equal(c.shape) {
			t.Errorf("%s: %v %v", c.key, shape, got)
		}
	}
}

// p0 writes a pickle of protocol 4 of opcodes.
func p4(s string) []byte { return []byte("\x80\x04" + s) }

func TestRefused(t *testing.T) {
	for _, c := range []struct {
		name string
		b    []byte
		is   error
		text string
	}{
		{"a function", golden(t, "function.pkl"), ErrRefused, "system"},
		{"a call", golden(t, "call.pkl"), ErrRefused, `"system" of module "os"`},
		{"objects", golden(t, "objects.pkl"), ErrRefused, "O8"},
		{"big-endian", golden(t, "big-endian.pkl"), ErrRefused, "big-endian"},
		{"strided", golden(t, "torch-strided.pt"), ErrRefused, "contiguous"},
		{"eval", p4("cbuiltins\neval\n."), ErrRefused, "eval"},
		{"a stack global", p4("\x8c\x05posix\x8c\x06system\x93."), ErrRefused, "posix"},
		{"getattr by a part of an allowed name", p4("cnumpy\nndarray.__class__\n."), ErrRefused, "__class__"},
		{"a class alone", p4("cnumpy\nndarray\n."), ErrRefused, "no data"},
		{"an instance", p4("(ios\nsystem\n."), ErrRefused, "INST"},
		{"OBJ", p4("(cnumpy\nndarray\no."), ErrRefused, "OBJ"},
		{"NEWOBJ_EX", p4("cnumpy\nndarray\n)}\x92."), ErrRefused, "NEWOBJ_EX"},
		{"EXT1", p4("\x82\x01."), ErrRefused, "EXT1"},
		{"a persistent id", p4("K\x01Q."), ErrRefused, "BINPERSID"},
		{"PERSID", p4("P1\n."), ErrRefused, "PERSID"},
		{"a set", p4("\x8f."), ErrRefused, "sets"},
		{"an outside buffer", p4("\x97."), ErrRefused, "NEXT_BUFFER"},
		{"protocol 0", p4("S'x'\n."), ErrRefused, "protocol 0"},
		{"protocol 6", []byte("\x80\x06N."), ErrFormat, "protocol 2 to 5"},
		{"protocol 9 inside", p4("\x80\x09N."), ErrRefused, "protocol 9"},
		{"a call of a string", p4("\x8c\x01x)R."), ErrRefused, "no function"},
		{"a call with a list", p4("cnumpy\ndtype\n]R."), ErrFormat, "tuple"},
		{"BUILD of a string", p4("\x8c\x01x}b."), ErrFormat, "BUILD"},
		{"a dict in a key", p4("}}Ns."), ErrRefused, "key"},
		{"items of a number", p4("K\x01K\x02a."), ErrFormat, "neither"},
		{"half a pair", p4("}(K\x01u."), ErrFormat, "without a value"},
		{"an empty stack", p4("."), ErrFormat, "empty"},
		{"two values", p4("NN."), ErrFormat, "left"},
		{"a mark for a value", p4("(."), ErrFormat, "mark"},
		{"no mark", p4("Nt."), ErrFormat, "no mark"},
		{"memo never set", p4("h\x05."), ErrFormat, "memo 5"},
		{"memo of nothing", p4("\x94."), ErrFormat, "empty"},
		{"unknown opcode", p4("\xff."), ErrFormat, "0xff"},
		{"no end", p4("N"), ErrTruncated, ""},
		{"bytes after it", p4("N.N"), ErrFormat, "after the stop"},
		{"a frame past the end", p4("\x95\xff\x00\x00\x00\x00\x00\x00\x00N."), ErrTruncated, "frame"},
		{"a string past the end", p4("X\xff\xff\x00\x00x."), ErrTruncated, "string"},
		{"a string of 2^63", p4("\x8d\x00\x00\x00\x00\x00\x00\x00\x80."), ErrTruncated, ""},
		{"bytes of 2^64-1", p4("\x8e\xff\xff\xff\xff\xff\xff\xff\xff."), ErrTruncated, ""},
		{"bytes of 2^32-1", p4("B\xff\xff\xff\xff."), ErrTruncated, ""},
		{"a string that is not UTF-8", p4("\x8c\x01\xff."), ErrFormat, "UTF-8"},
		{"a long of 200 bytes", p4("\x8a\xc8" + strings.Repeat("\x01", 200) + "."), ErrLimit, "200 bytes"},
		{"a long of 2^31 bytes", p4("\x8b\xff\xff\xff\x7f."), ErrLimit, ""},
		{"INT of text", p4("Ix\n."), ErrFormat, `"x"`},
		{"an endless line", p4("I" + strings.Repeat("1", 5000)), ErrFormat, "line"},
		{"a dtype of a number", p4("cnumpy\ndtype\nK\x04\x85R."), ErrFormat, "dtype"},
		{"a dtype of text", p4("cnumpy\ndtype\n\x8c\x02U4\x85R."), ErrRefused, "U4"},
		{"a web page", []byte("<!DOCTYPE html>"), ErrFormat, "starts with"},
		{"empty", nil, ErrFormat, ""},
		{"a zip of nothing", []byte("PK\x03\x04"), ErrFormat, "zip"},
	} {
		f, err := open(c.b)
		var re *ReadError
		if !errors.Is(err, c.is) || !errors.As(err, &re) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v %v, want %v with %q", c.name, f, err, c.is, c.text)
		}
	}
}

// array writes a pickle of an array with its parts as given.
func array(shape, code, order, fortran, data string) []byte {
	return p4("cnumpy._core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85C\x01b\x87R(K\x01" + shape + "cnumpy\ndtype\n\x8c" + string(rune(len(code))) + code + "\x85R(K\x03\x8c\x01" + order + "NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb" + fortran + data + "tb.")
}

func TestArrays(t *testing.T) {
	four := "C\x04\x00\x00\x80\x3f"
	f, err := open(array("K\x01\x85", "f4", "<", "\x89", four))
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := floats(t, f, f.Root); !slices.Equal(got, []float32{1}) {
		t.Errorf("%v", got)
	}
	for _, c := range []struct {
		name string
		b    []byte
		is   error
	}{
		{"too few bytes", array("K\x02\x85", "f4", "<", "\x89", four), ErrFormat},
		{"too many bytes", array("K\x01\x85", "f2", "<", "\x89", four), ErrFormat},
		{"a negative dimension", array("J\xff\xff\xff\xff\x85", "f4", "<", "\x89", four), ErrFormat},
		{"dimensions that overflow", array("\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f\x86", "f4", "<", "\x89", four), ErrFormat},
		{"a dimension of text", array("\x8c\x01x\x85", "f4", "<", "\x89", four), ErrFormat},
		{"a shape of no tuple", array("]", "f4", "<", "\x89", four), ErrFormat},
		{"65 dimensions", array("("+strings.Repeat("K\x01", 65)+"t", "f4", "<", "\x89", four), ErrFormat},
		{"order by a number of no flag", array("K\x01\x85", "f4", "<", "N", four), ErrFormat},
		{"unknown byte order", array("K\x01\x85", "f4", "x", "\x89", four), ErrFormat},
		{"a list for data", array("K\x01\x85", "f4", "<", "\x89", "]"), ErrRefused},
		{"an array that was begun only", p4("cnumpy._core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85C\x01b\x87R."), nil},
	} {
		f, err := open(c.b)
		if !errors.Is(err, c.is) {
			t.Errorf("%s: %v, want %v", c.name, err, c.is)
		}
		if err == nil {
			if _, err := f.Tensors(&Dict{Keys: []string{"x"}, Values: map[string]any{"x": f.Root}}); !errors.Is(err, ErrFormat) {
				t.Errorf("%s: %v", c.name, err)
			}
		}
	}
}

// TestBombs: a small pickle that stands for something endless is an error, soon.
func TestBombs(t *testing.T) {
	inside := open2(t, p4("}\x94\x8c\x01xh\x00s."))
	if _, err := inside.Tensors(inside.Root); !errors.Is(err, ErrLimit) {
		t.Errorf("a dict that holds itself: %v", err)
	}
	if _, err := JSON(inside.Root); !errors.Is(err, ErrLimit) {
		t.Errorf("a dict that holds itself, as JSON: %v", err)
	}
	// Each list holds the one before ten times: 10^30 numbers.
	laughs := "]\x94"
	for i := range 30 {
		laughs += "0](" + strings.Repeat("h"+string(rune(i)), 10) + "e\x94"
	}
	f := open2(t, p4(laughs+"."))
	if _, err := JSON(f.Root); !errors.Is(err, ErrLimit) {
		t.Errorf("lists of lists: %v", err)
	}
	// One text decoded over and over.
	long := "X\x00\x00\x10\x00" + strings.Repeat("x", 1<<20) + "\x94"
	again := strings.Repeat("c_codecs\nencode\nh\x00\x8c\x06latin1\x86R0", 400)
	if _, err := open(p4(long + again + ".")); !errors.Is(err, ErrLimit) {
		t.Errorf("a text decoded 400 times: %v", err)
	}
}

func open2(t *testing.T, b []byte) *File {
	t.Helper()
	f, err := open(b)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// TestNoAllocation: a length in a small file does not make the reader allocate.
func TestNoAllocation(t *testing.T) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for _, op := range []string{"X\xff\xff\xff\x7f", "B\xff\xff\xff\x7f", "\x8d\xff\xff\xff\xff\xff\xff\x00\x00", "\x8e\xff\xff\xff\xff\xff\xff\x00\x00", "\x96\xff\xff\xff\xff\xff\xff\x00\x00", "\x8b\xff\xff\xff\x7f", "T\xff\xff\xff\x7f"} {
		if _, err := open(p4(op)); err == nil {
			t.Errorf("%q is accepted", op)
		}
	}
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 4<<20 {
		t.Errorf("%d bytes were allocated", n)
	}
}

// TestEveryCut: no prefix of a pickle is taken for one.
func TestEveryCut(t *testing.T) {
	for _, name := range []string{"protocol2.pkl", "protocol5.pkl", "torch.pt"} {
		b := golden(t, name)
		for n := 0; n < len(b); n += 3 {
			if _, err := open(b[:n]); err == nil {
				t.Errorf("%s cut at %d is accepted", name, n)
			}
		}
	}
}

func FuzzOpen(f *testing.F) {
	files, err := filepath.Glob(filepath.Join("..", "..", "testdata", "pickle", "*.p*"))
	if err != nil || len(files) < 10 {
		f.Fatal(files, err)
	}
	for _, name := range files {
		f.Add(golden(f, filepath.Base(name)))
	}
	f.Add(array("K\x01\x85", "f4", "<", "\x89", "C\x04\x00\x00\x80\x3f"))
	f.Fuzz(func(t *testing.T, b []byte) {
		x, err := open(b)
		if err != nil {
			return
		}
		_, _ = JSON(x.Root)
		ts, err := x.Tensors(x.Root)
		if err != nil {
			return
		}
		for _, k := range ts {
			if k.Bytes() > int64(len(b)) {
				t.Errorf("%s has %d bytes, the file %d", k.Name, k.Bytes(), len(b))
				continue
			}
			if err := k.ReadRows(context.Background(), make([]byte, k.Bytes()), 0, k.Rows()); err != nil {
				t.Errorf("%s: %v", k.Name, err)
			}
		}
	})
}

func TestNumbers(t *testing.T) {
	f := open2(t, p4("(K\xffM\xff\xffJ\xff\xff\xff\xff\x8a\x00\x8a\x02\x00\xff\x8b\x01\x00\x00\x00\x80I01\nI00\nI-7\nL12L\nF1.5\nG\x3f\xf8\x00\x00\x00\x00\x00\x00Vab\nU\x01\xe9t."))
	want := Tuple{int64(255), int64(65535), int64(-1), int64(0), int64(-256), int64(-128), true, false, int64(-7), int64(12), 1.5, 1.5, "ab", "é"}
	if got := f.Root.(Tuple); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if _, err := JSON(math.Inf(1)); !errors.Is(err, ErrFormat) {
		t.Errorf("infinity in JSON: %v", err)
	}
	if b, err := JSON(float64(3)); err != nil || !bytes.Equal(b, []byte("3.0")) {
		t.Errorf("3.0 in JSON: %s, %v", b, err)
	}
}
