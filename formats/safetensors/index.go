package safetensors

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"quern/formats/internal/alien"
	"quern/tensor"
)

const (
	// IndexName is the file that maps tensors to shards.
	IndexName = "model.safetensors.index.json"
	// SingleName is the weight file of a model without shards.
	SingleName = "model.safetensors"

	// maxIndex bounds the index text. The largest published ones are tens of
	// megabytes.
	maxIndex   = 512 << 20
	indexChunk = 1 << 20
)

// Index is a parsed model.safetensors.index.json.
type Index struct {
	Name string
	// TotalSize is metadata.total_size; HasTotal is false when it is absent
	// or no integer.
	TotalSize int64
	HasTotal  bool
	// Shards lists the shard names, sorted.
	Shards []string
	// Weights maps each tensor to its shard, sorted by tensor name.
	Weights []Weight
}

// Weight is one entry of weight_map.
type Weight struct{ Tensor, Shard string }

// ReadIndex reads an index as a stream. Only safe shard names pass: relative,
// with slashes, inside the index's folder.
func ReadIndex(ctx context.Context, name string, blob tensor.Blob) (*Index, error) {
	if size := blob.Size(); size > maxIndex {
		return nil, fmt.Errorf("%s: %w: %d bytes, at most %d are accepted", name, ErrIndex, size, int64(maxIndex))
	}
	head := make([]byte, min(blob.Size(), indexChunk))
	if err := blob.ReadAt(ctx, head, 0); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if err := alien.Sniff(head, blob.Size(), ErrFormat); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	rest := io.NewSectionReader(tensor.ContextReaderAt(ctx, blob), int64(len(head)), blob.Size()-int64(len(head)))
	idx, err := parseIndex(&scanner{buf: head, r: rest})
	if err != nil {
		var se *syntaxError
		if errors.As(err, &se) && se.fault == nil {
			err = fmt.Errorf("%w: %w", ErrIndex, err)
		}
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	idx.Name = name
	return idx, nil
}

func parseIndex(s *scanner) (*Index, error) {
	idx := &Index{}
	seen := map[string]bool{}
	shards := map[string]string{} // one copy of each name
	err := s.object("the index object", "", func(key string, off int64) error {
		// Other keys are skipped, so a repeated one does no harm.
		switch key {
		case "metadata", "weight_map":
			if seen[key] {
				return errorAt(off, "duplicate key %q", key)
			}
			seen[key] = true
		default:
			return s.skip(0)
		}
		if key == "metadata" {
			return idx.parseMetadata(s)
		}
		return s.object("weight_map", "", func(name string, off int64) error {
			if name == "" {
				return errorAt(off, "tensor without a name")
			}
			shard, err := s.str("the shard", name)
			if err != nil {
				return err
			}
			own, ok := shards[shard]
			if !ok {
				if why := unsafePath(shard); why != "" {
					return errorAt(off, "tensor %s is in shard %s: %s", clip(name), clip(shard), why)
				}
				own = shard
				shards[shard] = shard
			}
			idx.Weights = append(idx.Weights, Weight{name, own})
			return nil
		})
	})
	if err != nil {
		return nil, err
	}
	if err := s.end(); err != nil {
		return nil, err
	}
	if !seen["weight_map"] {
		return nil, s.errorf("no weight_map")
	}
	if len(idx.Weights) == 0 {
		return nil, s.errorf("weight_map is empty")
	}
	slices.SortStableFunc(idx.Weights, func(a, b Weight) int { return strings.Compare(a.Tensor, b.Tensor) })
	for i := 1; i < len(idx.Weights); i++ {
		if a, b := idx.Weights[i-1], idx.Weights[i]; a.Tensor == b.Tensor {
			return nil, s.errorf("weight_map names tensor %s twice, in %s and %s", clip(a.Tensor), clip(a.Shard), clip(b.Shard))
		}
	}
	for _, name := range shards {
		idx.Shards = append(idx.Shards, name)
	}
	slices.Sort(idx.Shards)
	return idx, nil
}

// parseMetadata takes total_size. Writers disagree about it: it is missing,
// wrong or a float in published files, so only an integer counts and nothing
// here is an error but broken JSON.
func (idx *Index) parseMetadata(s *scanner) error {
	c, err := s.peek()
	if err != nil {
		return err
	}
	if c != '{' {
		return s.skip(0)
	}
	return s.object("metadata", "", func(key string, off int64) error {
		c, err := s.peek()
		if err != nil {
			return err
		}
		if key != "total_size" || c != '-' && (c < '0' || c > '9') {
			return s.skip(1)
		}
		text, _, err := s.number("total_size", "")
		if err != nil {
			return err
		}
		idx.TotalSize, err = strconv.ParseInt(text, 10, 64)
		idx.HasTotal = err == nil
		return nil
	})
}

// unsafePath says why a shard name may not be opened, or "".
func unsafePath(p string) string {
	switch {
	case p == "":
		return "the name is empty"
	case strings.Contains(p, "://"):
		return "it is a URL; shards are files beside the index"
	case strings.ContainsRune(p, '\\'):
		return "backslashes are not allowed"
	case strings.HasPrefix(p, "/"):
		return "it is an absolute path"
	case len(p) >= 2 && p[1] == ':':
		return "it starts with a drive letter"
	case strings.ContainsFunc(p, func(r rune) bool { return r < 0x20 || r == 0x7f }):
		return "it holds a control character"
	}
	for seg := range strings.SplitSeq(p, "/") {
		switch seg {
		case "..":
			return `".." leaves the folder`
		case "", ".":
			return "it has an empty or . part"
		}
	}
	return ""
}
