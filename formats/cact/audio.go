package cact

import (
	"context"
	"fmt"
	"math"
)

// Audio is the manifest of a speech model (Whistle), which exporters since 3.2.4
// write. Its archives are those of generation 3 whose header describes the decoder;
// after the heads come, in this order:
//
//	audio.manifest   FP32 [13]: 3246, 1, and the fields below in their order
//	layerNN.cross_*  of each layer of the decoder: attention over what was heard
//	pe_gate          FP16 [1]
//	encoderNN.*      of each layer of the encoder
//	encoder.*        its lanes and its last norm
//	stem.*           the convolutions in front of it
//	mel              FP32 [FFT/2+1, Mels]
type Audio struct {
	Text      uint32 // pieces of the vocabulary; the rest of it are tags of languages
	EncLayers uint32
	EncLanes  uint32
	Kernel    uint32 // width of the encoder's convolutions
	Stem      uint32 // channels of the stem
	Stages    uint32 // of the stem, each halves time and frequency
	Mels      uint32 // mel bands
	Rate      uint32 // samples a second
	FFT       uint32 // points of a transform
	Win       uint32 // samples of a window
	Hop       uint32 // samples from one window to the next
}

// NameAudio is the name of a speech model's manifest.
const NameAudio = "audio.manifest"

const (
	audioMagic   = 3246
	audioVersion = 1
	audioFields  = 13
	maxStages    = 12
)

// words gives the fields in file order, with their bounds.
func (a *Audio) words() []struct {
	name string
	at   *uint32
	most uint32
} {
	return []struct {
		name string
		at   *uint32
		most uint32
	}{
		{"text", &a.Text, bound - 1}, {"enc_layers", &a.EncLayers, maxLayers}, {"enc_lanes", &a.EncLanes, 64}, {"conv_kernel", &a.Kernel, 1024},
		{"stem", &a.Stem, 1 << 16}, {"stem_stages", &a.Stages, maxStages}, {"mels", &a.Mels, 1 << 12}, {"rate", &a.Rate, bound - 1},
		{"fft", &a.FFT, 1 << 16}, {"win", &a.Win, 1 << 16}, {"hop", &a.Hop, 1 << 16},
	}
}

// Fields lists names and values in file order, for display.
func (a *Audio) Fields() (names []string, values []uint32) {
	for _, w := range a.words() {
		names, values = append(names, "audio_"+w.name), append(values, *w.at)
	}
	return names, values
}

// Values is the manifest's tensor.
func (a *Audio) Values() []float32 {
	out := []float32{audioMagic, audioVersion}
	for _, w := range a.words() {
		out = append(out, float32(*w.at))
	}
	return out
}

// parse reads the manifest's tensor. Of an error it gives the place.
func (a *Audio) parse(x []float32) (at int, err error) {
	if x[0] != audioMagic {
		return 0, fmt.Errorf("%v where %d is wanted", x[0], audioMagic)
	}
	if x[1] != audioVersion {
		return 1, fmt.Errorf("version %v; %d is read", x[1], audioVersion)
	}
	for i, w := range a.words() {
		v := x[i+2]
		if !(v >= 1 && v <= float32(w.most)) || float32(uint32(v)) != v {
			return i + 2, fmt.Errorf("%s is %v, want a whole number from 1 to %d", w.name, v, w.most)
		}
		*w.at = uint32(v)
	}
	return 0, nil
}

// Bands is the number of values that the stem leaves of a frame's mel bands.
func (a *Audio) Bands() int64 {
	n := int64(a.Mels)
	for range a.Stages {
		n = (n + 1) / 2
	}
	return n
}

// CheckAudio holds the manifest of a speech model against the rest of the header.
func (h *Header) CheckAudio() error {
	a := h.Audio
	if h.Generation != 3 {
		return fmt.Errorf("%w: a speech model of generation %d; they are of 3", ErrModel, h.Generation)
	}
	for _, w := range a.words() {
		if *w.at == 0 || *w.at > w.most {
			return fmt.Errorf("%w: %s: %s is %d, 1 to %d are allowed", ErrModel, NameAudio, w.name, *w.at, w.most)
		}
	}
	switch {
	case a.Text > h.Vocab:
		return fmt.Errorf("%w: %s: %d pieces of text in a vocabulary of %d", ErrModel, NameAudio, a.Text, h.Vocab)
	case h.DModel%2 != 0 || h.DModel < 4:
		return fmt.Errorf("%w: %s: a width of %d; places are coded in pairs, at least two", ErrModel, NameAudio, h.DModel)
	case a.Win > a.FFT:
		return fmt.Errorf("%w: %s: windows of %d samples for transforms of %d", ErrModel, NameAudio, a.Win, a.FFT)
	}
	return nil
}

// count is the number of tensors that a speech model has beyond a text model's.
func (a *Audio) count(layers uint32) int64 {
	return 1 + 10*int64(layers) + 1 + (6+5+3+3+2*13)*int64(a.EncLayers) + 10 + 1 + 2*(int64(a.Stages)-1) + 2
}

// audio lists the tensors of a speech model that follow the heads.
func (b *specList) audio(rank int64) {
	h, a := b.h, b.h.Audio
	d, n := int64(h.DModel), int64(h.HadaN)
	qk, v := int64(h.QKHeadDim), int64(h.VHeadDim)
	q, o := int64(h.Heads)*qk, int64(h.Heads)*v
	b.prefix = ""
	b.add(NameAudio, F32, audioFields)
	for i := range h.Layers {
		b.prefix = fmt.Sprintf("layer%02d.", i)
		b.add("cross_norm", F16, d)
		b.add("cross.q_proj", CQ, q, d)
		b.add("cross.k_proj", CQ, q, d)
		b.add("cross.v_proj", CQ, o, d)
		b.add("cross.gate_proj", CQ, o, d)
		b.add("cross.out_proj", CQ, d, o)
		b.add("cross_q_norm", F16, qk)
		b.add("cross_k_norm", F16, qk)
		b.add("post_cross_norm", F16, d)
		b.add("cross_gate", F16, 1)
	}
	b.prefix = ""
	b.add("pe_gate", F16, 1)
	for i := range a.EncLayers {
		b.prefix = fmt.Sprintf("encoder%02d.", i)
		for _, name := range []string{"pre_hada_norm_0", "ZCRMSNorm_0", "post_attn_norm", "conv_norm", "conv_out_norm", "pre_hada_norm"} {
			b.add(name, F16, d)
		}
		b.add("q_proj", CQ, q, d)
		b.add("k_proj", CQ, int64(h.KVHeads)*qk, d)
		b.add("v_proj", CQ, int64(h.KVHeads)*v, d)
		b.add("gate_proj", CQ, o, d)
		b.add("out_proj", CQ, d, o)
		b.add("q_norm", F16, qk)
		b.add("k_norm", F16, qk)
		b.add("attn_gate", F16, 1)
		b.add("pw1", CQ, 2*d, d)
		b.add("pw2", CQ, d, d)
		b.add("dw", F16, int64(a.Kernel), d)
		for _, mlp := range []string{"hadamard_mlp_0.", "hadamard_mlp."} {
			b.hadamard(mlp, d, n, rank)
		}
	}
	b.prefix = "encoder."
	b.lanes(int64(a.EncLayers), int64(a.EncLanes), d)
	b.add("final_norm", F16, d)
	b.prefix = "stem."
	s := int64(a.Stem)
	b.add("w", F16, 9, s)
	for i := uint32(1); i < a.Stages; i++ {
		b.add(fmt.Sprintf("dw_%d", i), F16, 9, s)
		b.add(fmt.Sprintf("pw_%d", i), CQ, s, s)
	}
	b.add("out", CQ, d, s*a.Bands())
	b.prefix = ""
	b.add("mel", F32, int64(a.FFT)/2+1, int64(a.Mels))
}

// readAudio reads the manifest of a speech model, if the tensors that are left
// begin with one.
func (f *File) readAudio(ctx context.Context, at int, recs []record) error {
	if len(recs) == 0 || recs[0].kind != F32 || len(recs[0].shape) != 1 || recs[0].shape[0] != audioFields {
		return nil
	}
	m := &recs[0]
	b := make([]byte, m.bytes)
	if err := f.blob.ReadAt(ctx, b, int64(m.offset)); err != nil {
		return f.fail(int64(m.offset), NameAudio, err)
	}
	x := make([]float32, audioFields)
	for i := range x {
		x[i] = math.Float32frombits(le.Uint32(b[4*i:]))
	}
	a := &Audio{}
	if i, err := a.parse(x); err != nil {
		return f.failf(int64(m.offset)+int64(4*i), NameAudio, "%w", err)
	}
	f.Header.Audio = a
	if err := f.Header.CheckAudio(); err != nil {
		return f.fail(f.dirOffset()+int64(at)*recordBytes, NameAudio, err)
	}
	return nil
}
