package cact

import (
	"fmt"
	"math"

	"quern/tensor"
	"quern/tensor/cq"
)

// LayoutTensor is a tensor to be written. Width and Group are those of a CQ
// tensor; Bytes is the size of a RAW one.
type LayoutTensor struct {
	Spec
	Width cq.Width
	Group int
	Bytes int64
}

// Placed is a tensor with its place in the file.
type Placed struct {
	LayoutTensor
	Offset int64 // from the start of the file
	// NormsOffset is where the norms of a CQ tensor start.
	NormsOffset int64
}

// Layout is a file planned to the last byte, without its data.
type Layout struct {
	// Header is everything before the data: header, codebooks, directory. It
	// must not be changed.
	Header  []byte
	Tensors []Placed
	// Size is the size of the file. Bytes that neither Header nor a tensor
	// covers are zero.
	Size int64
}

// NewLayout plans a file. The tensors must be those of the header's model, with
// its heads, and end in the tokenizer if there is one. It fails with ErrWrite for
// what the format cannot hold and ErrModel for other tensors.
func NewLayout(h Header, codebooks [CodebookLen]float32, heads []Head, list []LayoutTensor) (*Layout, error) {
	if h.Generation != 2 && h.Generation != 3 {
		return nil, fmt.Errorf("%w: generation %d; there are 2 and 3", ErrWrite, h.Generation)
	}
	if name, err := h.check(); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrWrite, name, err)
	}
	if h.Audio != nil {
		if err := h.CheckAudio(); err != nil {
			return nil, err
		}
	}
	if err := h.checkList(heads, list); err != nil {
		return nil, err
	}
	l := &Layout{Header: h.encode(len(list))}
	for _, v := range codebooks {
		l.Header = le.AppendUint32(l.Header, math.Float32bits(v))
	}
	l.Size = int64(len(l.Header)) + int64(len(list))*recordBytes
	for _, t := range list {
		r := record{kind: t.Kind, shape: t.Shape, bytes: uint64(t.Bytes)}
		if t.Kind == CQ {
			if err := cq.CheckGroup(t.Group); err != nil {
				return nil, fmt.Errorf("tensor %s: %w", t.Name, err)
			}
			if !t.Width.Valid() {
				return nil, fmt.Errorf("tensor %s: %w: %s", t.Name, cq.ErrWidth, t.Width)
			}
			r.group, r.bits = uint32(t.Group), uint32(t.Width)
		}
		size, err := r.size()
		if err != nil {
			return nil, fmt.Errorf("%w: tensor %s: %w", ErrWrite, t.Name, err)
		}
		p := Placed{LayoutTensor: t, Offset: padTo(l.Size, Alignment)}
		if size > math.MaxInt64/2-p.Offset {
			return nil, fmt.Errorf("%w: tensor %s: %w: the file is too large", ErrWrite, t.Name, tensor.ErrShape)
		}
		p.Bytes = size
		if t.Kind == CQ {
			index, _ := cqRow(t.Shape[1], t.Width, int64(t.Group))
			p.NormsOffset = p.Offset + t.Shape[0]*index
		}
		r.offset, r.bytes = uint64(p.Offset), uint64(size)
		l.Header = r.encode(l.Header)
		l.Tensors = append(l.Tensors, p)
		l.Size = p.Offset + size
	}
	return l, nil
}

// checkList holds the tensors against the header.
func (h *Header) checkList(heads []Head, list []LayoutTensor) error {
	rank := int64(ConditionRank)
	for _, t := range list {
		if t.Name == "layer00.cond_v" && len(t.Shape) == 2 {
			rank = t.Shape[1]
		}
	}
	specs := h.Tensors(rank, heads)
	if n := len(list); n > 0 && list[n-1].Kind == Raw {
		specs = append(specs, Spec{Name: NameTokenizer, Kind: Raw})
	}
	group := 0
	for i, s := range specs {
		if i >= len(list) {
			return fmt.Errorf("%w: tensor %s is missing", ErrModel, s.Name)
		}
		t := list[i]
		switch {
		case t.Name != s.Name:
			return fmt.Errorf("%w: tensor %d is %q, %s is expected here", ErrModel, i, t.Name, s.Name)
		case t.Kind != s.Kind:
			return fmt.Errorf("%w: tensor %s is %s, want %s", ErrModel, t.Name, t.Kind, s.Kind)
		case !t.Shape.Equal(s.Shape):
			return fmt.Errorf("%w: tensor %s is %v, the header asks for %v", ErrModel, t.Name, t.Shape, s.Shape)
		case t.Kind == CQ && group != 0 && t.Group != group:
			return fmt.Errorf("%w: tensor %s has a group of %d, those before it %d", ErrWrite, t.Name, t.Group, group)
		case t.Kind == CQ:
			group = t.Group
		}
	}
	if len(list) > len(specs) {
		return fmt.Errorf("%w: tensor %s does not belong to the model", ErrModel, list[len(specs)].Name)
	}
	return nil
}
