package convert

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"strings"

	"quern/model"
	"quern/tensor"
)

// RopeFactors gives the factors of llama3 scaling, which slow down low frequencies:
// one for each pair of the dims values of a head that are turned. It gives nil for
// models without such scaling; errors wrap model.ErrConfig.
//
// With wavelen the number of positions after which a pair comes round:
//
//	wavelen < context/high   1
//	wavelen > context/low    factor
//	between them             1 / ((1-s)/factor + s), s = (context/wavelen - low) / (high - low)
//
// Every step is one float32 operation, in the order in which PyTorch does it: a
// number divided by a tensor is the tensor's reciprocal times the number.
func RopeFactors(c *model.Config, dims int) ([]float32, error) {
	r, err := c.Rope()
	if err != nil {
		return nil, err
	}
	if !strings.EqualFold(r.Type, "llama3") {
		return nil, nil
	}
	get := func(key string, def float64) float64 {
		v, ok, e := r.Float(key)
		if err == nil {
			err = e
		}
		if !ok {
			return def
		}
		return v
	}
	base := get("rope_theta", 10000)
	factor := get("factor", 8)
	low := get("low_freq_factor", 1)
	high := get("high_freq_factor", 4)
	ctx := get("original_max_position_embeddings", 8192)
	if err != nil {
		return nil, err
	}
	if !(base > 0 && factor > 0 && low > 0 && high > 0 && ctx > 0) || base > math.MaxFloat32 {
		return nil, fmt.Errorf("%s: %w: llama3 rope scaling needs positive numbers: rope_theta %g, factor %g, low_freq_factor %g, high_freq_factor %g, original_max_position_embeddings %g",
			c.File(), model.ErrConfig, base, factor, low, high, ctx)
	}
	exps := make([]float32, (dims+1)/2)
	for i := range exps {
		exps[i] = float32(2*i) / float32(dims)
	}
	out := powers(float32(base), exps)
	for i, p := range out {
		out[i] = llama3Factor(1/p, factor, low, high, ctx)
	}
	return out, nil
}

// ropeFreqs makes a tensor of these factors, nil for models without.
func ropeFreqs(c *model.Config, d *model.Dims) (*item, error) {
	factors, err := RopeFactors(c, int(d.HeadDim))
	if factors == nil || err != nil {
		return nil, err
	}
	out := make([]byte, 0, 4*len(factors))
	for _, f := range factors {
		out = binary.LittleEndian.AppendUint32(out, math.Float32bits(f))
	}
	t := &tensor.Tensor{
		Name: "rope_scaling", Type: tensor.F32, Shape: tensor.Shape{int64(len(factors))},
		Src: tensor.SourceFunc(func(_ context.Context, dst []byte, _, _ int64) error { copy(dst, out); return nil }),
		Key: tensor.Derive("convert/rope-freqs.v2", fmt.Sprintf("%x", out)),
	}
	return &item{model.ID{Role: model.RopeFreqs, Layer: -1, Expert: -1, Suffix: ".weight"}, t, tensor.F32, "made from the config's rope scaling", ""}, nil
}

// llama3Factor gives the factor of one frequency.
func llama3Factor(freq float32, factor, low, high, ctx float64) float32 {
	reciprocal := 1 / freq
	wavelen := float32(reciprocal * float32(2*math.Pi))
	if wavelen < float32(ctx/high) {
		return 1
	}
	if wavelen > float32(ctx/low) {
		return float32(factor)
	}
	inverse := 1 / wavelen
	s := float32(inverse * float32(ctx))
	s = float32(s-float32(low)) / float32(high-low)
	v := float32(1-s) / float32(factor)
	return 1 / float32(v+s)
}
