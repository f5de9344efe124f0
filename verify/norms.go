package verify

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"

	"quern/tensor"
)

// plusOne are the architectures whose checkpoints hold norms without the 1 that
// their files have added.
var plusOne = []string{"gemma3", "qwen35"}

// What norms look like to which 1 was added twice: hardly a value is below 1, though
// a true weight is below 1 as often as not, and the mean is far above it.
const (
	twiceMean  = 1.5
	twiceShare = 0.02
)

// maxNorm is more values than any norm has; rows are read whole.
const maxNorm = 1 << 20

// NormNotes warns when the norms of a GGUF file look as if 1 had been added to them
// twice: once by whoever made the checkpoint and once by the conversion, which adds
// it for gemma3 and qwen35. It says nothing of other architectures.
func NormNotes(ctx context.Context, arch string, tensors []*tensor.Tensor) ([]string, error) {
	if !slices.Contains(plusOne, arch) {
		return nil, nil
	}
	var sum float64
	var n, below int
	for _, t := range tensors {
		name, ok := strings.CutSuffix(t.Name, "_norm.weight")
		if !ok || strings.HasSuffix(name, "ssm") || t.Type != tensor.F32 || t.Shape.Rows() != 1 || t.Shape.RowLen() > maxNorm {
			continue
		}
		b := make([]byte, t.RowBytes())
		if err := t.ReadRows(ctx, b, 0, 1); err != nil {
			return nil, fmt.Errorf("tensor %s: %w", t.Name, err)
		}
		for ; len(b) >= 4; b = b[4:] {
			v := math.Float32frombits(binary.LittleEndian.Uint32(b))
			sum += float64(v)
			if n++; v < 1 {
				below++
			}
		}
	}
	mean := sum / float64(n)
	if n == 0 || !(mean >= twiceMean) || float64(below) >= float64(twiceShare*float64(n)) {
		return nil, nil
	}
	return []string{fmt.Sprintf("norms: their mean is %.3g, and %d of %d values are below 1: 1 looks added twice, by the maker of the checkpoint and by the conversion of %s", mean, below, n, arch)}, nil
}
