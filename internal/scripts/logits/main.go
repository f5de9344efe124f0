// Command logits prints digests of what models compute, for digests.sh.
package main

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"

	infer "quern/runtime"
	"quern/runtime/load"
	"quern/runtime/needle"
)

func main() {
	jobs := flag.Int("jobs", 1, "workers")
	flag.Parse()
	for _, path := range flag.Args() {
		for _, opt := range []infer.SessionOptions{{}, {Act: infer.Q8}, {Act: infer.Q8, Order: infer.OrderGGML}} {
			opt.Jobs, opt.Context = *jobs, 128
			sum, err := digest(path, opt)
			if err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			if sum != nil {
				fmt.Printf("%x  %s %s %s\n", sum, opt.Act, opt.Order, filepath.Base(path))
			}
		}
	}
	if err := tiny(context.Background(), *jobs); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// digest is that of the logits after each of some tokens, and of what the heads of
// a model that has some say of them.
func digest(path string, opt infer.SessionOptions) (sum []byte, err error) {
	ctx := context.Background()
	m, err := load.Open(ctx, path)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	return digestOf(ctx, path, m, opt)
}

func digestOf(ctx context.Context, path string, m infer.Model, opt infer.SessionOptions) ([]byte, error) {
	prompt, all := 24, 40
	if opt.Order == infer.OrderGGML {
		if infer.ScoreOrder(opt.Act, m) != opt.Order {
			return nil, nil // it has no such order
		}
		prompt, all = 70, 74 // a tile of queries is 64
	}
	s, err := session(ctx, m, opt)
	if err != nil {
		return nil, err
	}
	var tokens []int32
	for i := range all {
		tokens = append(tokens, int32((1+i*i*37)%min(m.Info().Vocab, 512)))
	}
	h := sha256.New()
	// A prompt, then tokens one by one: other kernels work on these.
	for first, n := 0, prompt; first < len(tokens); first, n = first+n, 1 {
		var want []int
		for i := range n {
			want = append(want, i)
		}
		err = s.Eval(ctx, tokens[first:first+n], want, func(_ int, logits []float32) error {
			for _, v := range logits {
				if v != v {
					return fmt.Errorf("%s: a logit is not a number", path)
				}
			}
			return binary.Write(h, binary.LittleEndian, bits(logits))
		})
		if err != nil {
			return nil, err
		}
	}
	if r, ok := m.(*needle.Model); ok && len(r.Heads()) > 0 {
		got, err := r.Read(ctx, tokens, opt, needle.Options{})
		if err != nil {
			return nil, err
		}
		for _, x := range [][]float32{got.Embedding, got.Confidence, got.Router} {
			if err := binary.Write(h, binary.LittleEndian, bits(x)); err != nil {
				return nil, err
			}
		}
	}
	return h.Sum(nil), nil
}

// session starts a text; a speech model gets a sound to listen to.
func session(ctx context.Context, m infer.Model, opt infer.SessionOptions) (infer.Session, error) {
	r, ok := m.(*needle.Model)
	if !ok || !r.IsSpeech() {
		return m.NewSession(opt)
	}
	sound := make([]float32, 1500)
	for i := range sound {
		sound[i] = float32(i*i*7919%2003-1001) / 1001
	}
	h, err := r.Hear(ctx, sound, opt, needle.Options{Round8: opt.Act == infer.Q8})
	if err != nil {
		return nil, err
	}
	return r.NewSessionWith(opt, needle.Options{Heard: h})
}

func bits(x []float32) []uint32 {
	out := make([]uint32, len(x))
	for i, v := range x {
		out[i] = math.Float32bits(v)
	}
	return out
}
