package cq

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sort"
)

// ErrFit marks samples that no codebook can be fitted to.
var ErrFit = errors.New("no codebook can be fitted")

// Progress is told after each round of a fit: how many of rounds are done and
// the root of the mean squared distance of a sample from its centroid.
type Progress func(done, rounds int, rms float64)

// FitOptions change a fit. The zero value is right for most.
type FitOptions struct {
	Rounds   int // 0 means 200
	Progress Progress
}

// Fit finds the levels that lie nearest to the samples in the mean square, by
// Lloyd's algorithm as NumPy code would run it: the first centroids are the
// samples of rank floor((k+0.5)/levels*n); a round cuts at the middles between
// neighbours, a sample on a cut going down, and moves each centroid to the mean
// of its cell, summed pairwise. An empty cell keeps its centroid. The samples
// are sorted in place; the result ascends. It stops early where a round changes
// nothing.
func Fit(ctx context.Context, samples []float64, levels int, opt FitOptions) ([]float64, error) {
	if levels < 1 || levels > 256 || len(samples) < levels {
		return nil, fmt.Errorf("%w: %d levels of %d samples; at most 256, and no more than samples", ErrFit, levels, len(samples))
	}
	for i, v := range samples {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return nil, fmt.Errorf("%w: sample %d is %v", ErrFit, i, v)
		}
	}
	if !slices.IsSorted(samples) {
		slices.Sort(samples)
	}
	n := len(samples)
	c := make([]float64, levels)
	for k := range c {
		c[k] = samples[int(float64((float64(k)+0.5)/float64(levels))*float64(n))]
	}
	rounds := opt.Rounds
	if rounds == 0 {
		rounds = 200
	}
	for r := range rounds {
		if err := context.Cause(ctx); err != nil {
			return nil, err
		}
		moved := fitRound(samples, c)
		if opt.Progress != nil {
			opt.Progress(r+1, rounds, Distance(samples, c))
		}
		if !moved {
			break
		}
	}
	slices.Sort(c)
	return c, nil
}

// fitRound moves each centroid to the mean of its cell and reports whether any
// moved.
func fitRound(samples, c []float64) bool {
	// Cells are cut by the centroids from before the round.
	ends := make([]int, len(c))
	for k := range c {
		ends[k] = len(samples)
		if k+1 < len(c) {
			cut := (c[k] + c[k+1]) / 2
			ends[k] = sort.Search(len(samples), func(i int) bool { return samples[i] > cut })
		}
	}
	moved := false
	from := 0
	for k, to := range ends {
		if to > from {
			m := pairwise(samples[from:to]) / float64(to-from)
			moved = moved || m != c[k]
			c[k] = m
			from = to
		}
	}
	return moved
}

// Distance is the root of the mean squared distance of sorted samples from the
// nearest of ascending centroids.
func Distance(samples, centroids []float64) float64 {
	if len(samples) == 0 {
		return 0
	}
	var sum float64
	k := 0
	for _, v := range samples {
		for k+1 < len(centroids) && v > (centroids[k]+centroids[k+1])/2 {
			k++
		}
		d := v - centroids[k]
		sum += float64(d * d)
	}
	return math.Sqrt(sum / float64(len(samples)))
}

// gaussianSamples is how many normal draws the standard codebooks are fitted to.
const gaussianSamples = 400_000

// Gaussian fits levels to the draws of RandomState(0).randn, as the standard
// codebooks are made. It takes a few hundred milliseconds.
func Gaussian(ctx context.Context, levels int, opt FitOptions) ([]float64, error) {
	r := newRandomState(0)
	x := make([]float64, gaussianSamples)
	for i := range x {
		x[i] = r.normal()
	}
	return Fit(ctx, x, levels, opt)
}
