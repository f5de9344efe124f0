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
)

func main() {
	jobs := flag.Int("jobs", 1, "workers")
	flag.Parse()
	for _, path := range flag.Args() {
		for _, act := range []infer.Act{infer.Exact, infer.Q8} {
			sum, err := digest(path, infer.SessionOptions{Jobs: *jobs, Act: act, Context: 64})
			if err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			fmt.Printf("%x  %s %s\n", sum, act, filepath.Base(path))
		}
	}
}

// digest is that of the logits after each of some tokens.
func digest(path string, opt infer.SessionOptions) (sum []byte, err error) {
	ctx := context.Background()
	m, err := load.Open(ctx, path)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	s, err := m.NewSession(opt)
	if err != nil {
		return nil, err
	}
	var tokens []int32
	var want []int
	for i := range 40 {
		tokens = append(tokens, int32((1+i*i*37)%min(m.Info().Vocab, 512)))
		want = append(want, i)
	}
	h := sha256.New()
	err = s.Eval(ctx, tokens, want, func(_ int, logits []float32) error {
		for _, v := range logits {
			if v != v {
				return fmt.Errorf("%s: a logit is not a number", path)
			}
		}
		return binary.Write(h, binary.LittleEndian, bits(logits))
	})
	return h.Sum(nil), err
}

func bits(x []float32) []uint32 {
	out := make([]uint32, len(x))
	for i, v := range x {
		out[i] = math.Float32bits(v)
	}
	return out
}
