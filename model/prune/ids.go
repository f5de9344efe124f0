package prune

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"

	"quern/internal/digest"
	"quern/model"
	"quern/tensor"
)

// idTensor holds a list of ids.
func idTensor(ids []int32) *tensor.Tensor {
	b := make([]byte, 0, 4*len(ids))
	for _, id := range ids {
		b = binary.LittleEndian.AppendUint32(b, uint32(id))
	}
	return &tensor.Tensor{Name: OutputIDs, Type: tensor.I32, Shape: tensor.Shape{int64(len(ids))},
		Src: &tensor.Section{Blob: tensor.BytesBlob(OutputIDs, b), RowBytes: int64(len(b))},
		Key: tensor.Derive("output_ids.v1", digest.Of(b).Hex())}
}

// ReadIDs reads the list of a pruned head, whose tokens are under vocab. Ids that
// are outside, or there twice, are an error.
func ReadIDs(ctx context.Context, t *tensor.Tensor, vocab int64) ([]int32, error) {
	n := t.Shape.RowLen()
	if t.Type != tensor.I32 || t.Rows() != 1 || len(t.Shape) == 0 || n < 1 || n > vocab {
		return nil, fmt.Errorf("%w: tensor %s is %s %v, want a list of 1 to %d I32", model.ErrTensors, t.Name, t.Type, t.Shape, vocab)
	}
	b := make([]byte, t.Bytes())
	if err := t.ReadRows(ctx, b, 0, 1); err != nil {
		return nil, fmt.Errorf("tensor %s: %w", t.Name, err)
	}
	ids, seen := make([]int32, n), make([]bool, vocab)
	for i := range ids {
		id := int32(binary.LittleEndian.Uint32(b[4*i:]))
		if id < 0 || int64(id) >= vocab || seen[id] {
			return nil, fmt.Errorf("%w: tensor %s: id %d at place %d is outside the vocabulary of %d or there twice", model.ErrTensors, t.Name, id, i, vocab)
		}
		ids[i], seen[id] = id, true
	}
	return ids, nil
}

// ascending gives a list sorted, each id once.
func ascending(ids []int32) []int32 {
	ids = slices.Clone(ids)
	slices.Sort(ids)
	return slices.Compact(ids)
}

// places finds each id of a list in another one: where it is, or -1, and those that
// are missing.
func places(ids, in []int32) (at, missing []int32) {
	where := make(map[int32]int32, len(in))
	for i, id := range in {
		where[id] = int32(i)
	}
	for _, id := range ids {
		i, ok := where[id]
		if !ok {
			i, missing = -1, append(missing, id)
		}
		at = append(at, i)
	}
	return at, missing
}

// some lists a few ids.
func some(ids []int32) string {
	const most = 8
	if len(ids) <= most {
		return fmt.Sprint(ids)
	}
	return fmt.Sprintf("%v and %d more", ids[:most], len(ids)-most)
}
