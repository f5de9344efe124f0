package model

import (
	"fmt"
	"slices"

	"quern/formats/safetensors"
	"quern/internal/pyjson"
	"quern/tensor"
)

// rescale multiplies the 8-bit floats of a checkpoint with their scales, so that
// its values are those that the model computes with. Other checkpoints stay as
// they are.
//
// The size of a block is in quantization_config: weight_block_size where
// quant_method is fp8, block_structure of the weights of a config group where
// it is compressed-tensors.
func (m *Model) rescale() error {
	isFP8 := func(t *tensor.Tensor) bool { return t.Type == tensor.F8E4M3 || t.Type == tensor.F8E5M2 }
	if !slices.ContainsFunc(m.Tensors, isFP8) {
		return nil
	}
	qc, err := m.Config.Object("quantization_config")
	if err != nil {
		return err
	}
	var opt safetensors.ScaleOptions
	if opt.BlockRows, opt.BlockCols, err = scaleBlock(qc); err != nil {
		return fmt.Errorf("%s: %w", m.Config.File(), err)
	}
	s, err := safetensors.Rescale(m.Tensors, opt)
	if err != nil {
		return err
	}
	m.Stored, m.Tensors = m.Tensors, s.Tensors
	if n := len(s.Ignored); n > 0 {
		text := "a scale of activations, left out"
		if n > 1 {
			text = fmt.Sprintf("a scale of activations, left out with %d more", n-1)
		}
		m.Notes = append(m.Notes, Note{s.Ignored[0], text})
	}
	return nil
}

// scaleBlock finds rows and columns of the block that shares a scale, zeros
// where the config has none.
func scaleBlock(qc *pyjson.Object) (rows, cols int64, err error) {
	if qc == nil {
		return 0, 0, nil
	}
	const direct = "quantization_config.weight_block_size"
	v, _ := qc.Get("weight_block_size")
	if rows, cols, err = blockSize(direct, v); rows > 0 || err != nil {
		return rows, cols, err
	}
	g, _ := qc.Get("config_groups")
	groups, _ := g.(*pyjson.Object)
	if groups == nil {
		return 0, 0, nil
	}
	for i, name := range groups.Keys() {
		g, _ := groups.Get(name)
		var v any
		if group, ok := g.(*pyjson.Object); ok {
			w, _ := group.Get("weights")
			if weights, ok := w.(*pyjson.Object); ok {
				v, _ = weights.Get("block_structure")
			}
		}
		r, c, err := blockSize("quantization_config.config_groups."+name+".weights.block_structure", v)
		if err != nil {
			return 0, 0, err
		}
		if i > 0 && (r != rows || c != cols) {
			return 0, 0, fmt.Errorf("%w: the groups of quantization_config.config_groups have blocks of different sizes", ErrConfig)
		}
		rows, cols = r, c
	}
	return rows, cols, nil
}

// blockSize reads [rows, columns]; null is no block.
func blockSize(key string, v any) (rows, cols int64, err error) {
	if v == nil {
		return 0, 0, nil
	}
	list, _ := v.([]any)
	if len(list) == 2 {
		r, okR := list[0].(pyjson.Number)
		c, okC := list[1].(pyjson.Number)
		if okR && okC {
			rows, okR = r.Int64()
			cols, okC = c.Int64()
			if okR && okC && rows > 0 && cols > 0 {
				return rows, cols, nil
			}
		}
	}
	return 0, 0, fmt.Errorf("%w: %s is %s, want two sizes above 0", ErrConfig, key, pyjson.Show(v))
}
