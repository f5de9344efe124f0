package neon

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

var store = effect("store {s0}")

// run interprets straight code. Registers are told apart by name.
func run(code []inst, name func(temp) int) (stored []uint64) {
	values, slots := map[int]uint64{}, map[int64]uint64{}
	for _, in := range code {
		v := func(k int) uint64 { return values[name(in.src[k])] }
		switch in.op {
		case movi[0]:
			values[name(in.dst[0])] = uint64(in.i)
		case moveVec:
			values[name(in.dst[0])] = v(0)
		case add4s:
			values[name(in.dst[0])] = v(0)*3 + v(1)
		case bit:
			values[name(in.dst[0])] = v(0) ^ v(1)*5 ^ v(2)*7
		case tbl2:
			values[name(in.dst[0])] = v(0)*11 + v(1)*13 + v(2)*17
		case loadSlot:
			values[name(in.dst[0])] = slots[in.i]
		case storeSlot:
			slots[in.i] = v(0)
		case store:
			stored = append(stored, v(0))
		}
	}
	return stored
}

// TestAllocate: code computes the same with numbered registers as with temps,
// however many there are.
func TestAllocate(t *testing.T) {
	spilled := false
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 1))
		f := &function{name: "test", short: map[temp]bool{}}
		live := 4 + rng.IntN(50)
		var r []temp
		for i := range live {
			r = append(r, f.newTemp(vector))
			f.emit(inst{op: movi[0], dst: r[i:], i: int64(i + 1)})
			f.code[i].dst = []temp{r[i]}
		}
		table := [2]temp{r[0], r[1]}
		for range 200 {
			a, b, c := r[rng.IntN(live)], r[rng.IntN(live)], r[rng.IntN(live)]
			switch rng.IntN(5) {
			case 0:
				f.emit(inst{op: moveVec, dst: []temp{a}, src: []temp{b}})
			case 1:
				f.emit(inst{op: add4s, dst: []temp{a}, src: []temp{b, c}})
			case 2:
				d := f.newTemp(vector)
				f.emit(inst{op: moveVec, dst: []temp{d}, src: []temp{a}})
				f.emit(inst{op: bit, dst: []temp{d}, src: []temp{d, b, c}})
				f.emit(inst{op: moveVec, dst: []temp{a}, src: []temp{d}})
			case 3:
				f.pairs = append(f.pairs, table)
				f.emit(inst{op: tbl2, dst: []temp{a}, src: []temp{table[0], b, table[1]}})
			case 4:
				f.emit(inst{op: store, src: []temp{a}})
			}
		}
		for _, a := range r[:live/2] {
			f.emit(inst{op: store, src: []temp{a}})
		}
		want := run(f.code, func(r temp) int { return int(r) })
		f.tidy()
		numbers, err := f.allocate()
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if got := run(f.code, func(r temp) int { return numbers[r] }); !slices.Equal(got, want) {
			t.Fatalf("seed %d: stored %d, want %d", seed, got, want)
		}
		for _, in := range f.code {
			if in.op == tbl2 && numbers[in.src[2]] != numbers[in.src[0]]+1 {
				t.Fatalf("seed %d: the table is in %d and %d", seed, numbers[in.src[0]], numbers[in.src[2]])
			}
			for _, o := range append(in.src, in.dst...) {
				if n := numbers[o]; n < 0 || n > 31 {
					t.Fatal(fmt.Sprintf("seed %d: register %d", seed, n))
				}
			}
		}
		spilled = spilled || f.slots > 0
	}
	if !spilled {
		t.Error("nothing went to the stack")
	}
}
