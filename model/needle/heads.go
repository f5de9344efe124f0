package needle

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"quern/formats/cact"
	"quern/model"
	"quern/tensor"
	"quern/tensor/quant"
	"quern/tensor/view"
)

var le = binary.LittleEndian

func toF16(v float32) uint16 { return quant.ToF16(v) }

// calibration is what a router head has that was never calibrated.
var calibration = []float32{0.90, 0.00, 0.60}

// isHead reports whether a tensor of an archive belongs to a head.
func isHead(name string) bool {
	key, _, ok := strings.Cut(name, ".")
	return ok && strings.HasSuffix(key, "_head")
}

// HeadsOf lists the heads that a checkpoint has.
func HeadsOf(m *model.Model) ([]cact.Head, error) {
	k, err := ConfigOf(m)
	if err != nil {
		return nil, err
	}
	return (&archiver{m: m, k: k, used: map[string]bool{}}).heads()
}

// heads finds the heads that the checkpoint has.
func (b *archiver) heads() ([]cact.Head, error) {
	var out []cact.Head
	for i, key := range cact.HeadKeys(b.k.Generation) {
		probes, kernel := b.m.Tensor(key+"/probes"), b.m.Tensor(key+"/proj/kernel")
		if probes == nil && kernel == nil {
			continue
		}
		if probes == nil || kernel == nil {
			return nil, fmt.Errorf("%w: %s has one of probes and proj/kernel and lacks the other", model.ErrTensors, key)
		}
		h := cact.Head{Code: uint32(i + 1), Key: key, Plain: b.k.Generation == 2}
		bad := func(t *tensor.Tensor) error {
			return fmt.Errorf("%w: %s is %v, which fits no head of %d values", model.ErrTensors, t.Name, t.Shape, b.k.DModel)
		}
		if len(kernel.Shape) != 2 {
			return nil, bad(kernel)
		}
		h.Out = kernel.Shape[1]
		if b.k.Generation == 2 {
			if len(probes.Shape) != 2 {
				return nil, bad(probes)
			}
			h.Probes = probes.Shape[0]
		} else {
			query := b.m.Tensor(key + "/query")
			if query == nil {
				return nil, fmt.Errorf("%w: %s/query is missing", model.ErrTensors, key)
			}
			if len(probes.Shape) != 3 {
				return nil, bad(probes)
			}
			if len(query.Shape) != 2 {
				return nil, bad(query)
			}
			h.Probes, h.Queries = probes.Shape[1], query.Shape[0]
		}
		if h.Probes == 0 || h.Out == 0 || b.k.Generation == 3 && h.Queries == 0 {
			return nil, bad(probes)
		}
		out = append(out, h)
	}
	return out, nil
}

func (b *archiver) manifest(s cact.Spec) *tensor.Tensor {
	var x []float32
	for i, key := range cact.HeadKeys(b.k.Generation) {
		if b.m.Tensor(key+"/probes") != nil {
			x = append(x, float32(i+1))
		}
	}
	return constant(s.Name, tensor.F16, s.Shape, x)
}

// ofHead gives the weights of a head's tensor.
func (b *archiver) ofHead(s cact.Spec, key, part string) (*tensor.Tensor, error) {
	switch part {
	case "proj":
		t, err := b.tensor(key + "/proj/kernel")
		if err != nil {
			return nil, err
		}
		return view.Transpose(t)
	case "bias":
		if b.m.Tensor(key+"/proj/bias") == nil {
			return constant(s.Name, tensor.F16, s.Shape, make([]float32, s.Shape[0])), nil
		}
		return b.tensor(key + "/proj/bias")
	case "calibration":
		if b.m.Tensor(key+"/calibration") == nil {
			return constant(s.Name, tensor.F16, s.Shape, calibration), nil
		}
	case "probes":
		t, err := b.tensor(key + "/probes")
		if err != nil {
			return nil, err
		}
		return b.reshape(t, s.Shape)
	}
	return b.tensor(key + "/" + part)
}

// left says what the archive has no place for: parts of heads that only their
// training uses are noted, anything else is an error.
func (b *archiver) left() ([]model.Note, error) {
	var notes []model.Note
	var strange []string
	keys := append(cact.HeadKeys(2), cact.HeadKeys(3)...)
	for _, t := range b.m.Tensors {
		if b.used[t.Name] {
			continue
		}
		key, part, ok := strings.Cut(t.Name, "/")
		if ok && slices.Contains(keys, key) && (part == "log_temp" || part == "bias") {
			notes = append(notes, model.Note{Subject: t.Name, Text: "left out: only training uses it"})
			continue
		}
		strange = append(strange, t.Name)
	}
	if len(strange) > 0 {
		list := strings.Join(strange[:min(len(strange), 8)], ", ")
		if n := len(strange) - 8; n > 0 {
			list += fmt.Sprintf(" and %d more", n)
		}
		return nil, fmt.Errorf("%w: the archive has no place for %s", model.ErrTensors, list)
	}
	return notes, nil
}
