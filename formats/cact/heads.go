package cact

import (
	"fmt"

	"quern/tensor"
)

// Head is a probe head of a model: it pools hidden states into a few outputs.
type Head struct {
	Code uint32 // by the manifest
	// Key is the head's name in checkpoints and in tensor names.
	Key     string
	Probes  int64 // vectors that attend over positions; of generation 3, a row of the stack
	Queries int64 // of generation 3
	Out     int64
	// Plain heads have their matrices in FP16: those of generation 2, and those
	// that early exporters of generation 3 wrote.
	Plain bool
}

// headKey names the heads that a manifest can list.
func headKey(generation int, code uint32) (string, bool) {
	switch {
	case code == 1 && generation == 2:
		return "contrastive_head", true
	case code == 1:
		return "embedding_head", true
	case code == 2:
		return "confidence_head", true
	case code == 3 && generation == 3:
		return "router_head", true
	}
	return "", false
}

// HeadKeys lists the heads of a generation in the order of their codes, from 1.
func HeadKeys(generation int) []string {
	var out []string
	for c := uint32(1); ; c++ {
		k, ok := headKey(generation, c)
		if !ok {
			return out
		}
		out = append(out, k)
	}
}

// headTensors is how many tensors a head has.
func headTensors(generation int, code uint32) int {
	switch {
	case generation == 2:
		return 3
	case code == 3:
		return 7
	}
	return 6
}

// heads lists the manifest and the tensors of the heads; nothing for none.
func (b *specList) heads(heads []Head) {
	h := b.h
	b.prefix = ""
	if len(heads) == 0 {
		return
	}
	b.add(NameManifest, F16, int64(len(heads)))
	d, rows := int64(h.DModel), int64(h.Layers)+1
	for _, x := range heads {
		b.prefix = x.Key + "."
		kind := CQ
		if x.Plain {
			kind = F16
		}
		if h.Generation == 2 {
			b.add("probes", kind, x.Probes, d)
			b.add("proj", kind, x.Out, x.Probes*d)
			b.add("bias", F16, x.Out)
			continue
		}
		if x.Plain {
			b.add("probes", kind, rows, x.Probes, d)
		} else {
			b.add("probes", kind, rows*x.Probes, d)
		}
		b.add("gain", F16, rows, x.Probes)
		b.add("query", kind, x.Queries, d)
		b.add("row_bias", F16, x.Queries, rows, x.Probes)
		b.add("proj", kind, x.Out, x.Queries*d)
		b.add("bias", F16, x.Out)
		if x.Code == 3 {
			b.add("calibration", F16, 3)
		}
	}
}

// headOf reads the free sizes of a head from the shapes of its tensors.
func (h *Header) headOf(code uint32, recs []record) (Head, error) {
	key, ok := headKey(h.Generation, code)
	if !ok {
		return Head{}, fmt.Errorf("code %d is no head of generation %d", code, h.Generation)
	}
	x := Head{Code: code, Key: key, Plain: recs[0].kind == F16}
	dim := func(s tensor.Shape, i int) int64 {
		if i < len(s) {
			return s[i]
		}
		return 0
	}
	if h.Generation == 2 {
		x.Probes, x.Out = dim(recs[0].shape, 0), dim(recs[1].shape, 0)
	} else {
		x.Probes, x.Queries, x.Out = dim(recs[1].shape, 1), dim(recs[2].shape, 0), dim(recs[4].shape, 0)
	}
	for _, n := range []int64{x.Probes, x.Queries, x.Out} {
		if n >= bound {
			return x, fmt.Errorf("%s: %d is beyond every head", key, n)
		}
	}
	if x.Probes == 0 || x.Out == 0 || h.Generation == 3 && x.Queries == 0 {
		return x, fmt.Errorf("%s: no probes, queries or outputs", key)
	}
	return x, nil
}
