package pager

import (
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"quern/formats/trace"
)

// play runs rows through a simulation.
func play(t *testing.T, h trace.Header, opt Options, rows []trace.Row) Result {
	t.Helper()
	s, err := New(h, opt)
	if err != nil {
		t.Fatal(err)
	}
	for i := range rows {
		s.Add(&rows[i])
	}
	return s.Result(int64(len(rows) / len(h.Layers)))
}

// one makes rows of a single layer.
func one(chosen ...[]int) []trace.Row {
	rows := make([]trace.Row, len(chosen))
	for i, c := range chosen {
		rows[i] = trace.Row{Token: int64(i), Chosen: c}
	}
	return rows
}

func header(experts, used, layers int) trace.Header {
	h := trace.Header{Experts: experts, Used: used}
	for i := range layers {
		h.Layers = append(h.Layers, i)
	}
	return h
}

// Flash gives an expert of 1000 bytes in a millisecond.
func options(layers, pool int) Options {
	return Options{Pool: pool, ExpertBytes: slices.Repeat([]int64{1000}, layers), Flash: 1e6, Compute: 10 * time.Millisecond}
}

func TestByHand(t *testing.T) {
	tests := []struct {
		name string
		rows []trace.Row
		opt  func(*Options)
		want Result
	}{
		{"everything stays", one([]int{0}, []int{1}, []int{0}, []int{1}), nil,
			Result{Tokens: 4, Uses: 4, Misses: 2, Bytes: 2000, Time: 42 * time.Millisecond, Waiting: 2 * time.Millisecond}},
		{"a loop larger than the pool defeats LRU", one([]int{0}, []int{1}, []int{2}, []int{0}, []int{1}, []int{2}), nil,
			Result{Tokens: 6, Uses: 6, Misses: 6, Bytes: 6000, Time: 66 * time.Millisecond, Waiting: 6 * time.Millisecond}},
		{"decay keeps what is used much", one([]int{0}, []int{0}, []int{0}, []int{1}, []int{2}, []int{0}), func(o *Options) { o.Policy, o.HalfLife = Decay, 100 },
			Result{Tokens: 6, Uses: 6, Misses: 3, Bytes: 3000, Time: 63 * time.Millisecond, Waiting: 3 * time.Millisecond}},
		{"where LRU does not", one([]int{0}, []int{0}, []int{0}, []int{1}, []int{2}, []int{0}), nil,
			Result{Tokens: 6, Uses: 6, Misses: 4, Bytes: 4000, Time: 64 * time.Millisecond, Waiting: 4 * time.Millisecond}},
		{"a warm start", one([]int{0}, []int{1}), func(o *Options) { o.Warm = [][]int{{1, 0}} },
			Result{Tokens: 2, Uses: 2, Time: 20 * time.Millisecond}},
		{"the first of the fill stays longest", one([]int{2}, []int{1}), func(o *Options) { o.Warm = [][]int{{1, 0}} },
			Result{Tokens: 2, Uses: 2, Misses: 1, Bytes: 1000, Time: 21 * time.Millisecond, Waiting: time.Millisecond}},
		{"skipped tokens fill the pool", one([]int{0}, []int{1}, []int{0}, []int{1}), func(o *Options) { o.Skip = 2 },
			Result{Tokens: 2, Uses: 2, Time: 20 * time.Millisecond}},
		{"latency counts for every read", one([]int{0}, []int{1}), func(o *Options) { o.Latency = 500 * time.Microsecond },
			Result{Tokens: 2, Uses: 2, Misses: 2, Bytes: 2000, Time: 23 * time.Millisecond, Waiting: 3 * time.Millisecond}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			opt := options(1, 2)
			if tt.opt != nil {
				tt.opt(&opt)
			}
			if got := play(t, header(3, 1, 1), opt, tt.rows); got != tt.want {
				t.Errorf("got  %+v\nwant %+v", got, tt.want)
			}
		})
	}
}

// Two layers, guesses one ahead: what was guessed is read while the first layer
// computes.
func TestGuesses(t *testing.T) {
	h := header(4, 1, 2)
	h.Ahead = 1
	rows := func(guess ...int) []trace.Row {
		return []trace.Row{
			{Token: 0, Layer: 0, Chosen: []int{0}, Ahead: guess},
			{Token: 0, Layer: 1, Chosen: []int{3}},
		}
	}
	opt := options(2, 2)
	opt.Prefetch = 2
	ms := time.Millisecond
	tests := []struct {
		name  string
		guess []int
		mod   func(*Options)
		want  Result
	}{
		// 1 ms for expert 0, 5 ms of layer 0, then all is there, 5 ms of layer 1.
		{"right", []int{3}, nil, Result{Tokens: 1, Uses: 2, Misses: 1, Prefetched: 1, Useful: 1, Bytes: 2000, Time: 11 * ms, Waiting: 1 * ms}},
		{"wrong", []int{2}, nil, Result{Tokens: 1, Uses: 2, Misses: 2, Prefetched: 1, Bytes: 3000, Time: 12 * ms, Waiting: 2 * ms}},
		{"none", nil, nil, Result{Tokens: 1, Uses: 2, Misses: 2, Bytes: 2000, Time: 12 * ms, Waiting: 2 * ms}},
		// 1 ms of compute a layer: 1 (miss) + 0.5, the guess arrives at 2, then 0.5.
		{"on its way", []int{3}, func(o *Options) { o.Compute = ms },
			Result{Tokens: 1, Uses: 2, Misses: 1, Late: 1, Prefetched: 1, Useful: 1, Bytes: 2000, Time: 2500 * time.Microsecond, Waiting: 1500 * time.Microsecond}},
		// Two guesses of 1 ms from 1 ms on; at 1.5 the second has not begun and is read
		// as missing, behind the first: there at 3.
		{"overtaken", []int{2, 3}, func(o *Options) { o.Compute = ms },
			Result{Tokens: 1, Uses: 2, Misses: 2, Prefetched: 1, Bytes: 3000, Time: 3500 * time.Microsecond, Waiting: 2500 * time.Microsecond}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			opt := opt
			if tt.mod != nil {
				tt.mod(&opt)
			}
			if got := play(t, h, opt, rows(tt.guess...)); got != tt.want {
				t.Errorf("got  %+v\nwant %+v", got, tt.want)
			}
		})
	}
}

func TestBias(t *testing.T) {
	h := header(3, 1, 1)
	h.Scores = true
	rows := []trace.Row{
		{Token: 0, Chosen: []int{0}, Scores: []float32{0.6, 0.3, 0.1}},
		{Token: 1, Chosen: []int{1}, Scores: []float32{0.4, 0.5, 0.1}},
		{Token: 2, Chosen: []int{1}, Scores: []float32{0.2, 0.7, 0.1}},
	}
	opt := options(1, 1)
	opt.Bias = 0.25
	// Token 1 stays with expert 0: 0.4+0.25 over 0.5. Token 2 does not.
	got := play(t, h, opt, rows)
	lost := 1 - (float64(float32(0.6))+float64(float32(0.4))+float64(float32(0.7)))/(float64(float32(0.6))+float64(float32(0.5))+float64(float32(0.7)))
	if got.Misses != 2 || got.Replaced != 1 || got.Lost != lost {
		t.Errorf("%+v, want 2 misses, 1 replaced, %v lost", got, lost)
	}
}

// TestLRU compares with a pool kept as a list in the order of use.
func TestLRU(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		experts := 2 + r.IntN(30)
		used := 1 + r.IntN(min(experts, 5))
		size := used + r.IntN(experts-used+1)
		var rows []trace.Row
		var list []int
		var misses int64
		for token := range 200 {
			// Now and then all are alike; products make low numbers frequent.
			var chosen []int
			for len(chosen) < used {
				e := r.IntN(experts)
				if r.IntN(4) > 0 {
					e = e * r.IntN(experts) / experts
				}
				if !slices.Contains(chosen, e) {
					chosen = append(chosen, e)
				}
			}
			rows = append(rows, trace.Row{Token: int64(token), Chosen: chosen})
			var fresh []int
			for _, e := range chosen {
				if i := slices.Index(list, e); i >= 0 {
					list = slices.Delete(list, i, i+1)
				} else {
					misses++
				}
				fresh = append(fresh, e)
			}
			// Of one token the lowest number goes first.
			slices.Sort(fresh)
			list = append(list, fresh...)
			list = list[max(0, len(list)-size):]
		}
		if got := play(t, header(experts, used, 1), options(1, size), rows); got.Misses != misses {
			t.Errorf("%d experts, %d used, pool %d: %d misses, a list says %d", experts, used, size, got.Misses, misses)
		}
	}
}

func TestOptions(t *testing.T) {
	h := header(8, 2, 2)
	for name, mod := range map[string]func(*Options){
		"smaller than the 2":   func(o *Options) { o.Pool = 1 },
		"a layer has 8":        func(o *Options) { o.Pool = 9 },
		"needs scores":         func(o *Options) { o.Bias = 0.1 },
		"needs guesses":        func(o *Options) { o.Prefetch = 1 },
		"half-life":            func(o *Options) { o.Policy = Decay },
		"sizes of experts":     func(o *Options) { o.ExpertBytes = o.ExpertBytes[:1] },
		"an expert of 0 bytes": func(o *Options) { o.ExpertBytes = []int64{1, 0} },
		"flash of 0":           func(o *Options) { o.Flash = 0 },
		"first fill for 1":     func(o *Options) { o.Warm = [][]int{{}} },
		"expert 8 in":          func(o *Options) { o.Warm = [][]int{{}, {8}} },
	} {
		opt := options(2, 4)
		mod(&opt)
		if _, err := New(h, opt); !errors.Is(err, ErrOptions) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The slowest flash and the largest experts do not turn time around.
func TestEndOfTime(t *testing.T) {
	opt := options(1, 1)
	opt.ExpertBytes, opt.Flash, opt.Compute = []int64{1 << 40}, 1, 1<<63-1
	rows := one([]int{0}, []int{1}, []int{0})
	if got := play(t, header(2, 1, 1), opt, rows); got.Time != endOfTime || got.Misses != 3 {
		t.Errorf("%+v", got)
	}
}

func TestRunAll(t *testing.T) {
	var b strings.Builder
	h := header(4, 2, 2)
	w, err := trace.NewWriter(&b, h)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 10 {
		for l := range 2 {
			if err := w.Write(trace.Row{Chosen: []int{(i + l) % 4, (i + l + 1) % 4}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	got, brokenOff, err := Run("t", strings.NewReader(b.String()), []Options{options(2, 2), options(2, 4)})
	if err != nil {
		t.Fatal(err)
	}
	if brokenOff {
		t.Error("a whole trace is said to break off")
	}
	// A pool of two turns over by one expert a token; one of four misses each once.
	if got[0].Misses != 2*(2+9) || got[1].Misses != 8 || got[0].Tokens != 10 {
		t.Errorf("%+v", got)
	}
	cut := io.LimitReader(strings.NewReader(b.String()), int64(b.Len()-3))
	if got, broken, err := Run("t", cut, []Options{options(2, 2)}); err != nil || !broken || got[0].Tokens != 9 {
		t.Errorf("cut in the last row: %+v, %v", got, err)
	}
	broken := strings.Replace(b.String(), "5\t1\t", "5\t1\tx", 1)
	if _, _, err := Run("t", strings.NewReader(broken), []Options{options(2, 2)}); !errors.Is(err, trace.ErrFormat) || !strings.Contains(err.Error(), "t:17:") {
		t.Errorf("a broken row: %v", err)
	}
}
