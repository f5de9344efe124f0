package neon

import "math/bits"

// temp is a register before numbers are allocated, an index into
// function.classes.
type temp int

type class uint8

const (
	vector  class = iota // 128 bits
	general              // 64 bits
)

// inst is an instruction. Registers of dst are written after those of src are
// read.
type inst struct {
	*op
	dst, src []temp
	i        int64
	text     string
}

// function is a function on its way to A64 code.
type function struct {
	name    string
	classes []class
	code    []inst
	pairs   [][2]temp     // need consecutive numbers
	slots   int           // of 16 bytes, on the stack
	short   map[temp]bool // of vectors that were spilled
}

func (f *function) newTemp(c class) temp {
	f.classes = append(f.classes, c)
	return temp(len(f.classes) - 1)
}

func (f *function) emit(in inst) { f.code = append(f.code, in) }

// tempSet is a set of registers.
type tempSet []uint64

func (s tempSet) has(r temp) bool { return s[r/64]>>(r%64)&1 != 0 }
func (s tempSet) add(r temp)      { s[r/64] |= 1 << (r % 64) }
func (s tempSet) drop(r temp)     { s[r/64] &^= 1 << (r % 64) }

func (s tempSet) each(do func(temp)) {
	for i, w := range s {
		for ; w != 0; w &= w - 1 {
			do(temp(64*i + bits.TrailingZeros64(w)))
		}
	}
}

// liveOut gives for each instruction the registers that are read later.
func (f *function) liveOut() []tempSet {
	labels := map[string]int{}
	for i, in := range f.code {
		if in.isLabel {
			labels[in.text] = i
		}
	}
	words := (len(f.classes) + 63) / 64
	in, out := make([]tempSet, len(f.code)), make([]tempSet, len(f.code))
	for i := range in {
		in[i], out[i] = make(tempSet, words), make(tempSet, words)
	}
	for changed := true; changed; {
		changed = false
		for i := len(f.code) - 1; i >= 0; i-- {
			c := &f.code[i]
			if !c.ends && i+1 < len(f.code) {
				out[i].union(in[i+1])
			}
			if c.jump {
				at, ok := labels[c.text]
				if !ok {
					panic(f.name + ": no label " + c.text)
				}
				out[i].union(in[at])
			}
			now := append(tempSet(nil), out[i]...)
			for _, r := range c.dst {
				now.drop(r)
			}
			for _, r := range c.src {
				now.add(r)
			}
			changed = in[i].union(now) || changed
		}
	}
	return out
}

func (s tempSet) union(o tempSet) (changed bool) {
	for i, w := range o {
		if n := s[i] | w; n != s[i] {
			s[i], changed = n, true
		}
	}
	return changed
}

// tidy drops instructions whose results nothing reads.
func (f *function) tidy() {
	for {
		out := f.liveOut()
		kept := f.code[:0]
		for i, in := range f.code {
			needed := in.effect || in.jump || in.ends || in.isLabel
			for _, r := range in.dst {
				needed = needed || out[i].has(r)
			}
			if needed {
				kept = append(kept, in)
			}
		}
		if len(kept) == len(out) {
			return
		}
		f.code = kept
	}
}
