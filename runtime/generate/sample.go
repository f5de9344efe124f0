// Package generate lets a model continue a text, and finds answers that have
// fallen into a loop.
package generate

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"quern/runtime/num"
)

// RepeatLast is how many of the latest tokens the repeat penalty looks at.
const RepeatLast = 256

// Sampling says how the next token is chosen. The zero value takes the most
// likely one, the lowest id of equals.
type Sampling struct {
	// Temperature divides the logits; 0 takes the most likely token.
	Temperature float64
	// TopK keeps that many of the most likely tokens, 0 for all.
	TopK int
	// TopP keeps the most likely tokens until their probabilities sum up to it; 0
	// or 1 for all.
	TopP float64
	// MinP keeps tokens at least this many times as likely as the most likely.
	MinP float64
	// RepeatPenalty makes tokens among the last RepeatLast less likely: positive
	// logits are divided by it, others multiplied. 0 or 1 for none.
	RepeatPenalty float64
	// Seed starts the random numbers. Equal seeds give equal texts everywhere.
	Seed uint64
	// Banned tells ids that must not be chosen; nil for none.
	Banned func(id int32) bool
}

// Check finds values that mean nothing.
func (s Sampling) Check() error {
	switch {
	case !(s.Temperature >= 0) || s.Temperature > math.MaxFloat32:
		return fmt.Errorf("temperature %v: a number of 0 or more", s.Temperature)
	case s.TopK < 0:
		return fmt.Errorf("top-k %d: a number of tokens, or 0 for all", s.TopK)
	case !(s.TopP >= 0 && s.TopP <= 1):
		return fmt.Errorf("top-p %v: a probability from 0 to 1", s.TopP)
	case !(s.MinP >= 0 && s.MinP <= 1):
		return fmt.Errorf("min-p %v: a ratio from 0 to 1", s.MinP)
	case !(s.RepeatPenalty >= 0) || s.RepeatPenalty > math.MaxFloat32:
		return fmt.Errorf("repeat penalty %v: a number above 0, 1 for none", s.RepeatPenalty)
	}
	return nil
}

// ErrNothing marks logits that leave no token to choose.
var ErrNothing = errors.New("no token is possible")

// Sampler chooses tokens one after another.
type Sampler struct {
	s     Sampling
	rng   *rand.Rand
	last  []int32
	cands []candidate
	probs []float32
}

type candidate struct {
	id    int32
	logit float32
}

// NewSampler starts a sampler; history are the tokens before the first that is
// chosen.
func NewSampler(s Sampling, history []int32) (*Sampler, error) {
	if err := s.Check(); err != nil {
		return nil, err
	}
	return &Sampler{s: s, rng: rand.New(rand.NewPCG(s.Seed, 0x9e3779b97f4a7c15)), last: slices.Clone(history)}, nil
}

// Next chooses a token, in the order penalty, top-k, top-p, min-p, temperature.
// logits are changed. NaNs count as impossible.
func (s *Sampler) Next(logits []float32) (int32, error) {
	s.penalize(logits)
	choose := s.draw
	if s.s.Temperature == 0 || s.s.TopK == 1 {
		choose = s.best
	}
	id := choose(logits)
	if id < 0 {
		return -1, ErrNothing
	}
	s.last = append(s.last, id)
	return id, nil
}

// possible reports whether a token with such a logit may be chosen.
func (s *Sampler) possible(id int32, logit float32) bool {
	return logit == logit && logit > float32(math.Inf(-1)) && (s.s.Banned == nil || !s.s.Banned(id))
}

// best gives the most likely token, the lowest id of equals, or -1 where none is
// possible.
func (s *Sampler) best(logits []float32) int32 {
	id := int32(-1)
	for i, v := range logits {
		if (id < 0 || v > logits[id]) && s.possible(int32(i), v) {
			id = int32(i)
		}
	}
	return id
}

func (s *Sampler) penalize(logits []float32) {
	p := float32(s.s.RepeatPenalty)
	if p == 0 || p == 1 {
		return
	}
	recent := slices.Clone(s.last[max(0, len(s.last)-RepeatLast):])
	slices.Sort(recent)
	for _, id := range slices.Compact(recent) {
		if id < 0 || int(id) >= len(logits) {
			continue
		}
		if v := logits[id]; v > 0 {
			logits[id] = v / p
		} else {
			logits[id] = float32(v * p)
		}
	}
}

// draw takes one of the possible tokens by chance, or gives -1 where there is none.
func (s *Sampler) draw(logits []float32) int32 {
	s.cands = slices.Grow(s.cands[:0], len(logits))
	for id, v := range logits {
		if s.possible(int32(id), v) {
			s.cands = append(s.cands, candidate{int32(id), v})
		}
	}
	c := s.cands
	if len(c) == 0 {
		return -1
	}
	slices.SortFunc(c, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(b.logit, a.logit), cmp.Compare(a.id, b.id))
	})
	if k := s.s.TopK; k > 0 && k < len(c) {
		c = c[:k]
	}
	if p := float32(s.s.TopP); p > 0 && p < 1 {
		sum, n := float32(0), 0
		for _, v := range s.softmax(c, 1) {
			sum += v
			n++
			if sum >= p {
				break
			}
		}
		c = c[:n]
	}
	if m := s.s.MinP; m > 0 {
		least := c[0].logit + float32(num.Log64(m))
		n := 1
		for n < len(c) && c[n].logit >= least {
			n++
		}
		c = c[:n]
	}
	at, sum := s.rng.Float32(), float32(0)
	for i, v := range s.softmax(c, float32(s.s.Temperature)) {
		if sum += v; at < sum {
			return c[i].id
		}
	}
	return c[len(c)-1].id
}

// softmax gives the probabilities of candidates at a temperature.
func (s *Sampler) softmax(c []candidate, temperature float32) []float32 {
	s.probs = s.probs[:0]
	for _, x := range c {
		s.probs = append(s.probs, (x.logit-c[0].logit)/temperature)
	}
	num.Softmax(s.probs)
	return s.probs
}
