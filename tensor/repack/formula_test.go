package repack

import (
	"errors"
	"fmt"
	"testing"

	"quern/tensor"
)

// place says where a number of a packed bundle stands: bits from shift on of a
// byte. The formulas below are written for single numbers, from the drawings,
// and share nothing with the tables and loops that pack.
type place struct{ at, shift, bits int }

// turn is byte b of row r in a field that takes i bytes of each of n rows in turn.
func turn(b, r, n, i int) int { return (b/i*n+r)*i + b%i }

// number is one number of a row: where the plain block has its bits (low bits
// first), where the bundle has them, and what the bundle's are flipped with.
type number struct {
	plain, packed []place
	flip          int
}

func (m number) get(b []byte, ps []place) int {
	v, at := 0, 0
	for _, p := range ps {
		v |= int(b[p.at]) >> p.shift & (1<<p.bits - 1) << at
		at += p.bits
	}
	return v
}

func whole(at int) []place { return []place{{at, 0, 8}} }

// simpleNumbers: 32-value blocks of a scale of d bytes and quants.
func simpleNumbers(d, quants, flip int) func(r, n, i int) []number {
	return func(r, n, i int) []number {
		var out []number
		for b := range d {
			out = append(out, number{whole(b), whole(d*r + b), 0})
		}
		for j := range 32 {
			if quants == 32 {
				out = append(out, number{whole(d + j), whole(d*n + turn(j, r, n, i)), 0})
				continue
			}
			p := place{d + j%16, 4 * (j / 16), 4}
			q := place{d*n + turn(j%16, r, n, i), 4 * (j / 16), 4}
			out = append(out, number{[]place{p}, []place{q}, flip})
		}
		return out
	}
}

// kScales are the 16 six-bit numbers of q4_K and q5_K.
func kScales(r int) []number {
	var out []number
	at := func(b, k int) int { return 32 + 12*b + k }
	for b := range 8 {
		plainS, plainM := []place{{4 + b, 0, 6}}, []place{{8 + b, 0, 6}}
		if b >= 4 {
			plainS = []place{{4 + 8 + b - 4, 0, 4}, {4 + b - 4, 6, 2}}
			plainM = []place{{4 + 8 + b - 4, 4, 4}, {4 + b, 6, 2}}
		}
		packedS, packedM := []place{{at(b, r), 0, 6}}, []place{{at(b, 4+r), 0, 6}}
		if r >= 4 {
			packedS = []place{{at(b, 8+r-4), 0, 4}, {at(b, r-4), 6, 2}}
			packedM = []place{{at(b, 8+r-4), 4, 4}, {at(b, r), 6, 2}}
		}
		out = append(out, number{plainS, packedS, 0}, number{plainM, packedM, 0})
	}
	return out
}

func superScales(d, dmin, r int) []number {
	return []number{{whole(d), whole(2 * r), 0}, {whole(d + 1), whole(2*r + 1), 0},
		{whole(dmin), whole(16 + 2*r), 0}, {whole(dmin + 1), whole(16 + 2*r + 1), 0}}
}

func q4KNumbers(r, n, i int) []number {
	out := append(superScales(0, 2, r), kScales(r)...)
	for j := range 256 {
		b, s := 32*(j/64)+j%32, 4*(j/32%2)
		out = append(out, number{[]place{{16 + b, s, 4}}, []place{{128 + turn(b, r, n, i), s, 4}}, 0})
	}
	return out
}

func q5KNumbers(r, n, i int) []number {
	out := append(superScales(0, 2, r), kScales(r)...)
	for j := range 256 {
		b, s := 32*(j/64)+j%32, 4*(j/32%2)
		out = append(out, number{
			[]place{{48 + b, s, 4}, {16 + j%32, j / 32, 1}},
			[]place{{128 + 256 + turn(b, r, n, i), s, 4}, {128 + turn(j%32, r, n, i), j / 32, 1}}, 0})
	}
	return out
}

func q6KNumbers(r, n, i int) []number {
	out := []number{{whole(208), whole(2 * r), 0}, {whole(209), whole(2*r + 1), 0}}
	for k := range 16 {
		out = append(out, number{whole(192 + k), whole(16 + 8*k + r), 0})
	}
	for j := range 256 {
		half, k := j/128, j%128
		lo, hi := 64*half+k%64, 32*half+k%32
		out = append(out, number{
			[]place{{lo, 4 * (k / 64), 4}, {128 + hi, 2 * (k / 32), 2}},
			[]place{{144 + turn(lo, r, n, i), 4 * (k / 64), 4}, {144 + 1024 + turn(hi, r, n, i), 2 * (k / 32), 2}}, 0})
	}
	return out
}

func q2KNumbers(r, n, i int) []number {
	out := superScales(80, 82, r)
	for k := range 16 {
		out = append(out, number{whole(k), whole(32 + 16*(k/2) + 2*r + k%2), 0})
	}
	for j := range 256 {
		b, s := 32*(j/128)+j%32, 2*(j%128/32)
		out = append(out, number{[]place{{16 + b, s, 2}}, []place{{160 + turn(b, r, n, i), s, 2}}, 0})
	}
	return out
}

// q1Numbers: with i = 8 a byte of each row in turn, with i = 4 rows 0 and 1 share
// a byte, and rows 2 and 3 the next.
func q1Numbers(r, n, i int) []number {
	out := []number{{whole(0), whole(2 * r), 0}, {whole(1), whole(2*r + 1), 0}}
	for j := range 128 {
		q := place{8 + turn(j/8, r, n, 1), j % 8, 1}
		if i == 4 {
			q = place{8 + 2*(j/4) + r/2, 4*(r%2) + j%4, 1}
		}
		out = append(out, number{[]place{{2 + j/8, j % 8, 1}}, []place{q}, 0})
	}
	return out
}

// TestFormula looks up every single number of packed matrices by formula, on the
// row lengths and row counts of small models. Lengths that a type has no blocks
// for are refused.
func TestFormula(t *testing.T) {
	for _, c := range []struct {
		typ         tensor.Type
		name        string
		n, i, block int
		numbers     func(r, n, i int) []number
	}{
		{tensor.Q4_0, "q4_0", 4, 4, 18, simpleNumbers(2, 16, 8)},
		{tensor.Q4_0, "q4_0", 4, 8, 18, simpleNumbers(2, 16, 8)},
		{tensor.Q4_0, "q4_0", 8, 8, 18, simpleNumbers(2, 16, 8)},
		{tensor.IQ4_NL, "iq4_nl", 4, 4, 18, simpleNumbers(2, 16, 0)},
		{tensor.IQ4_NL, "iq4_nl", 8, 8, 18, simpleNumbers(2, 16, 0)},
		{tensor.MXFP4, "mxfp4", 4, 4, 17, simpleNumbers(1, 16, 0)},
		{tensor.MXFP4, "mxfp4", 8, 8, 17, simpleNumbers(1, 16, 0)},
		{tensor.Q8_0, "q8_0", 4, 4, 34, simpleNumbers(2, 32, 0)},
		{tensor.Q8_0, "q8_0", 4, 8, 34, simpleNumbers(2, 32, 0)},
		{tensor.Q4_K, "q4_K", 8, 4, 144, q4KNumbers},
		{tensor.Q4_K, "q4_K", 8, 8, 144, q4KNumbers},
		{tensor.Q5_K, "q5_K", 8, 4, 176, q5KNumbers},
		{tensor.Q5_K, "q5_K", 8, 8, 176, q5KNumbers},
		{tensor.Q6_K, "q6_K", 8, 4, 210, q6KNumbers},
		{tensor.Q6_K, "q6_K", 8, 8, 210, q6KNumbers},
		{tensor.Q2_K, "q2_K", 8, 8, 84, q2KNumbers},
		{tensor.Q1_0, "q1_0", 4, 4, 18, q1Numbers},
		{tensor.Q1_0, "q1_0", 4, 8, 18, q1Numbers},
	} {
		l, err := Parse(fmt.Sprintf("%s_%dx%d", c.name, c.n, c.i))
		if err != nil {
			t.Fatal(err)
		}
		per := int(c.typ.BlockValues())
		tables := make([][]number, c.n)
		for r := range c.n {
			tables[r] = c.numbers(r, c.n, c.i)
			bits := 0
			for _, m := range tables[r] {
				for _, p := range m.packed {
					bits += p.bits
				}
			}
			if bits != 8*c.block {
				t.Fatalf("%s: the formulas cover %d bits of a row's %d", l, bits, 8*c.block)
			}
		}
		for _, rowLen := range []int{32, 96, 288, 576, 2880, 256, 768} {
			rows := 2 * c.n
			err := l.Check(c.typ, tensor.Shape{int64(rows), int64(rowLen)})
			if rowLen%per != 0 {
				if !errors.Is(err, tensor.ErrShape) {
					t.Errorf("%s: rows of %d: %v", l, rowLen, err)
				}
				continue
			}
			if err != nil {
				t.Fatalf("%s: rows of %d: %v", l, rowLen, err)
			}
			blocks := rowLen / per
			plain := noise(l.String(), int64(rows*blocks*c.block))
			packed := make([]byte, len(plain))
			if err := l.Pack(packed, plain, int64(rowLen)); err != nil {
				t.Fatal(err)
			}
			wrong := 0
			for r := range rows {
				for x := range blocks {
					block := plain[(r*blocks+x)*c.block:]
					bundle := packed[(r/c.n*blocks+x)*c.n*c.block:]
					for k, m := range tables[r%c.n] {
						want := m.get(block, m.plain)
						if got := m.get(bundle, m.packed) ^ m.flip; got != want && wrong < 3 {
							wrong++
							t.Errorf("%s: rows of %d: row %d, block %d, number %d is %d, not %d", l, rowLen, r, x, k, got, want)
						}
					}
				}
			}
		}
	}
}
