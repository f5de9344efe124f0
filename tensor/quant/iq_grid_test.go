package quant

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"testing"
)

func allGrids() map[string]*grid {
	return map[string]*grid{
		"iq2xxs": gridIQ2XXS(), "iq2xs": gridIQ2XS(), "iq2s": gridIQ2S(),
		"iq3xxs": gridIQ3XXS(), "iq3s": gridIQ3S(), "iq1s": gridIQ1S(),
	}
}

// TestGrids holds the codebooks to the digests in their file and every entry to
// its own key.
func TestGrids(t *testing.T) {
	want := map[string][2]int{"iq2xxs": {256, 8}, "iq2xs": {512, 8}, "iq2s": {1024, 8}, "iq3xxs": {256, 4}, "iq3s": {512, 4}, "iq1s": {2048, 8}}
	for name, g := range allGrids() {
		if n := len(g.codes) / g.dim; n != want[name][0] || g.dim != want[name][1] {
			t.Errorf("%s: %d entries of %d", name, n, g.dim)
		}
		_, line, _ := strings.Cut(gridText, "@"+name+" ")
		line, _, _ = strings.Cut(line, "\n")
		f := strings.Fields(line)
		raw := make([]byte, len(g.values))
		for i, v := range g.values {
			raw[i] = byte(int8(v))
		}
		h := sha256.Sum256(raw)
		if got := hex.EncodeToString(h[:]); got != f[len(f)-1] {
			t.Errorf("%s: SHA-256 %s, the file says %s", name, got, f[len(f)-1])
		}
		for e := range len(g.codes) / g.dim {
			if g.index[g.key(g.entry(e))] != int32(e) {
				t.Errorf("%s: entry %d is not at its key", name, e)
			}
		}
	}
}

// TestNeighbours compares lists with a plain sort of all entries.
func TestNeighbours(t *testing.T) {
	for name, g := range allGrids() {
		checked := 0
		for key := 7; key < len(g.index); key += 97 {
			if g.index[key] >= 0 {
				continue
			}
			checked++
			type pair struct{ d, e int }
			var all []pair
			for e := range len(g.codes) / g.dim {
				d := 0
				for i, c := range g.entry(e) {
					diff := int(c) - key>>(g.codeBits*i)&(1<<g.codeBits-1)
					d += diff * diff
				}
				all = append(all, pair{d, e})
			}
			slices.SortFunc(all, func(a, b pair) int {
				if a.d != b.d {
					return a.d - b.d
				}
				return a.e - b.e
			})
			var want []uint16
			classes := 1
			for i, p := range all {
				if i > 0 && p.d != all[i-1].d {
					if classes++; classes > g.classes {
						break
					}
				}
				want = append(want, uint16(p.e))
			}
			if got := g.neighbours(key); !slices.Equal(got, want) {
				t.Fatalf("%s key %#x: %v, want %v", name, key, got, want)
			}
			if !slices.Equal(g.neighbours(key), want) {
				t.Fatalf("%s key %#x: a second call differs", name, key)
			}
		}
		if checked == 0 {
			t.Errorf("%s: no key without an entry was tried", name)
		}
	}
}

func TestParity8(t *testing.T) {
	for s := range 128 {
		n := 0
		for b := range 7 {
			n += s >> b & 1
		}
		want := uint8(s)
		if n%2 == 1 {
			want |= 128
		}
		if got := parity8(uint8(s)); got != want {
			t.Errorf("parity8(%#x) = %#x, want %#x", s, got, want)
		}
	}
}
