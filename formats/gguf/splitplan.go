package gguf

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// SplitOptions say where a model is cut into shards, as the options of
// convert_hf_to_gguf.py do. Without a limit there is one file.
type SplitOptions struct {
	MaxTensors int
	// MaxBytes bounds the tensor data of a shard, headers and padding not
	// counted.
	MaxBytes int64
	// NoTensorFirst leaves the first shard without tensors.
	NoTensorFirst bool
}

// Shard is one file of a planned split.
type Shard struct {
	Name   string
	First  int // index of its first tensor among all
	Layout *Layout
}

// PlanSplit plans the shards of a model. Each shard takes tensors until the
// next would pass a limit, but at least one; the first has all metadata. If one
// file is enough its name is STEM.gguf. The warnings name tensors that are
// larger than MaxBytes by themselves.
func PlanSplit(stem string, meta *Metadata, tensors []TensorSpec, split SplitOptions, opt LayoutOptions) (shards []Shard, warnings []string, err error) {
	if split.MaxTensors < 0 || split.MaxBytes < 0 {
		return nil, nil, fmt.Errorf("%w: a split limit is negative", ErrWrite)
	}
	if meta == nil {
		meta = &Metadata{}
	}
	whole, err := NewLayout(meta, tensors, opt)
	if err != nil {
		return nil, nil, err
	}
	cuts, warnings := cut(whole.Tensors, split)
	if len(cuts) == 2 {
		return []Shard{{Name: stem + ".gguf", Layout: whole}}, warnings, nil
	}
	shards, err = PlanShards(stem, meta, tensors, cuts, opt)
	return shards, warnings, err
}

// PlanShards plans shards that are cut at given places: shard i has tensors
// cuts[i] up to cuts[i+1]. A single shard has no split keys, only the name of
// one.
func PlanShards(stem string, meta *Metadata, tensors []TensorSpec, cuts []int, opt LayoutOptions) ([]Shard, error) {
	n := len(cuts) - 1
	if n < 1 || cuts[0] != 0 || cuts[n] != len(tensors) || !slices.IsSorted(cuts) {
		return nil, fmt.Errorf("%w: cuts %v do not divide %d tensors", ErrWrite, cuts, len(tensors))
	}
	if n == 1 {
		l, err := NewLayout(meta, tensors, opt)
		return []Shard{{Name: SplitName(stem, 0, 1), Layout: l}}, err
	}
	if n > math.MaxUint16 || len(tensors) > math.MaxInt32 {
		return nil, fmt.Errorf("%w: %d shards of %d tensors, more than the split keys can count", ErrWrite, n, len(tensors))
	}
	var shards []Shard
	align, aligned := meta.Get(KeyAlignment)
	for i := range n {
		m := &Metadata{}
		switch {
		case i == 0:
			m = meta.Clone()
		case aligned:
			// Without it the shard would be read with the default.
			m.Set(KeyAlignment, align)
		}
		m.Set(KeySplitNo, Scalar(uint16(i)))
		m.Set(KeySplitCount, Scalar(uint16(n)))
		m.Set(KeySplitTensors, Scalar(int32(len(tensors))))
		l, err := NewLayout(m, tensors[cuts[i]:cuts[i+1]], opt)
		if err != nil {
			return nil, err
		}
		shards = append(shards, Shard{Name: SplitName(stem, i, n), First: cuts[i], Layout: l})
	}
	return shards, nil
}

// cut gives the index of each shard's first tensor, and the number of tensors
// last.
func cut(tensors []Placed, split SplitOptions) (cuts []int, warnings []string) {
	cuts = []int{0}
	if split.NoTensorFirst {
		cuts = append(cuts, 0)
	}
	first, sum := 0, int64(0)
	for i, t := range tensors {
		full := split.MaxTensors > 0 && i-first >= split.MaxTensors
		over := split.MaxBytes > 0 && t.Bytes > split.MaxBytes-sum
		if i > first && (full || over) {
			cuts = append(cuts, i)
			first, sum = i, 0
		}
		sum += t.Bytes
		if split.MaxBytes > 0 && t.Bytes > split.MaxBytes {
			warnings = append(warnings, fmt.Sprintf("tensor %s has %d bytes, more than the split limit of %d: its shard is over the limit", t.Name, t.Bytes, split.MaxBytes))
		}
	}
	return append(cuts, len(tensors)), warnings
}

// ParseSplitSize reads a size as --split-max-size takes it: digits, then
// perhaps K, M or G for powers of 1000.
func ParseSplitSize(s string) (int64, error) {
	unit := int64(1)
	digits := strings.TrimRight(s, "KMG")
	switch s[len(digits):] {
	case "":
	case "K":
		unit = 1e3
	case "M":
		unit = 1e6
	case "G":
		unit = 1e9
	default:
		digits = ""
	}
	n, err := strconv.ParseUint(digits, 10, 63)
	if err != nil || int64(n) > math.MaxInt64/unit {
		return 0, fmt.Errorf("split size %q: a number is wanted, perhaps with K, M or G for powers of 1000", s)
	}
	return int64(n) * unit, nil
}
