package needle

import (
	"fmt"
	"strings"

	"quern/formats/cact"
	"quern/internal/pyjson"
	"quern/model"
	"quern/tensor"
	"quern/tensor/view"
)

// nameStem is a tensor that only checkpoints of speech models (Whistle) have.
const nameStem = "stem/w"

// keyPieces is where the config of a speech checkpoint keeps the pieces that a merged
// adapter has added to the vocabulary. Files do not have it.
const keyPieces = "added_pieces"

// Speech is what a speech model's config says beyond the decoder's geometry.
type Speech struct {
	cact.Audio
	// Languages have a tag each, behind the pieces of the text.
	Languages []string
	// Pieces were added by an adapter, between those of the text and the tags.
	Pieces []string
}

// parseSpeech reads the config of a speech checkpoint, with the defaults of its
// config class. The decoder is a model of generation 3 without global layers.
func parseSpeech(c *model.Config) (*Config, error) {
	k := &Config{Generation: 3, KVBits: 8, Speech: &Speech{}}
	var dim, rate, mels, fft, win, hop, stem, stages, kernel, encLayers, encLanes, text int64
	for _, f := range []struct {
		key string
		to  *int64
		def int64
	}{
		{"text", &text, 8192}, {"dim", &dim, 512}, {"kv_heads", &k.KVHeads, 2}, {"qk_dim", &k.QKHeadDim, 48}, {"v_dim", &k.VHeadDim, 64},
		{"enc_layers", &encLayers, 8}, {"dec_layers", &k.Layers, 8}, {"conv_kernel", &kernel, 9}, {"taps", &k.QKVTaps, 3}, {"lanes", &k.Lanes, 4},
		{"enc_lanes", &encLanes, 4}, {"slots", &k.Slots, 18432}, {"hashes", &k.EngramHeads, 2}, {"stem", &stem, 128}, {"stem_stages", &stages, 3},
		{"mels", &mels, 80}, {"rate", &rate, 16000}, {"fft", &fft, 512}, {"win", &win, 400}, {"hop", &hop, 160}, {"max_tokens", &k.MaxSeq, 320},
	} {
		n, ok, err := c.OptInt(f.key)
		switch {
		case err != nil:
			return nil, err
		case !ok:
			n = f.def
		case n < 1 && f.key != "taps" || n < 0 || n >= most:
			return nil, fmt.Errorf("%s: %w: %s is %d", c.File(), model.ErrConfig, f.key, n)
		}
		*f.to = n
	}
	var err error
	if k.Sites, err = ints(c, "sites", []int64{3, 7}); err != nil {
		return nil, err
	}
	if k.Orders, err = ints(c, "orders", []int64{2, 3}); err != nil {
		return nil, err
	}
	theta, ok, err := c.OptFloat("rope")
	if err != nil {
		return nil, err
	}
	if k.RopeTheta = theta; !ok {
		k.RopeTheta = 100000
	}
	if k.Speech.Languages, err = texts(c, "languages", []string{"en", "de", "fr", "es", "it", "nl", "pl"}); err != nil {
		return nil, err
	}
	if k.Speech.Pieces, err = texts(c, keyPieces, nil); err != nil {
		return nil, err
	}
	k.Speech.Audio = cact.Audio{Text: uint32(text), EncLayers: uint32(encLayers), EncLanes: uint32(encLanes), Kernel: uint32(kernel), Stem: uint32(stem),
		Stages: uint32(stages), Mels: uint32(mels), Rate: uint32(rate), FFT: uint32(fft), Win: uint32(win), Hop: uint32(hop)}
	k.DModel, k.Vocab = dim, text+int64(len(k.Speech.Languages))
	if k.Heads = dim / k.VHeadDim; k.Heads == 0 {
		return nil, fmt.Errorf("%s: %w: dim %d is less than v_dim %d", c.File(), model.ErrConfig, dim, k.VHeadDim)
	}
	if err := k.finish(c); err != nil {
		return nil, err
	}
	h := k.Header()
	if err := h.CheckAudio(); err != nil {
		return nil, fmt.Errorf("%s: %w: %w", c.File(), model.ErrConfig, err)
	}
	return k, nil
}

// texts reads a list of short texts.
func texts(c *model.Config, key string, def []string) ([]string, error) {
	v, _, _ := c.Find(key)
	if v == nil {
		return def, nil
	}
	list, ok := v.([]any)
	if !ok || len(list) > 1<<20 {
		return nil, fmt.Errorf("%s: %w: %s is %s, want a list of texts", c.File(), model.ErrConfig, key, pyjson.Kind(v))
	}
	out := make([]string, len(list))
	for i, x := range list {
		if out[i], ok = x.(string); !ok || out[i] == "" || len(out[i]) > 1<<10 {
			return nil, fmt.Errorf("%s: %w: %s holds %s, want texts", c.File(), model.ErrConfig, key, pyjson.Show(x))
		}
	}
	return out, nil
}

// Tag is the piece that stands for a language.
func Tag(language string) string { return "<|" + language + "|>" }

// inEncoder says what the tensors of an encoder's layer are made from, but for its
// Hadamard layers.
var inEncoder = map[string]string{
	"pre_hada_norm_0": "pre_hada_norm_0/scale", "ZCRMSNorm_0": "ZCRMSNorm_0/scale", "post_attn_norm": "post_attn_norm/scale", "conv_norm": "conv_norm/scale",
	"conv_out_norm": "conv_out_norm/scale", "pre_hada_norm": "pre_hada_norm/scale", "q_norm": "self_attn/q_norm/scale", "k_norm": "self_attn/k_norm/scale",
	"attn_gate": "attn_gate", "dw": "dw", "pw1": "pw1/kernel", "pw2": "pw2/kernel", "q_proj": "self_attn/q_proj/kernel",
	"k_proj": "self_attn/k_proj/kernel", "v_proj": "self_attn/v_proj/kernel", "gate_proj": "self_attn/gate_proj/kernel", "out_proj": "self_attn/out_proj/kernel",
}

// inCross says so of the cross-attention of a decoder's layer.
var inCross = map[string]string{
	"cross_norm": "cross_norm/scale", "cross_q_norm": "cross_attn/q_norm/scale", "cross_k_norm": "cross_attn/k_norm/scale",
	"post_cross_norm": "post_cross_norm/scale", "cross_gate": "cross_gate", "cross.q_proj": "cross_attn/q_proj/kernel", "cross.k_proj": "cross_attn/k_proj/kernel",
	"cross.v_proj": "cross_attn/v_proj/kernel", "cross.gate_proj": "cross_attn/gate_proj/kernel", "cross.out_proj": "cross_attn/out_proj/kernel",
}

const encoderPrefix = "encoder/layers/block/"

// speech gives the weights of a tensor that only speech models have; ok is false for
// others.
func (b *archiver) speech(s cact.Spec) (t *tensor.Tensor, ok bool, err error) {
	if b.k.Speech == nil {
		return nil, false, nil
	}
	head, rest, dotted := strings.Cut(s.Name, ".")
	switch {
	case s.Name == cact.NameAudio:
		a := b.k.Speech.Audio
		t = constant(s.Name, tensor.F32, s.Shape, a.Values())
	case s.Name == "mel":
		t = constant(s.Name, tensor.F32, s.Shape, MelBank(&b.k.Speech.Audio))
	case s.Name == "pe_gate":
		t, err = b.shaped("pe_gate", s.Shape)
	case dotted && strings.HasPrefix(head, "layer") && inCross[rest] != "":
		t, err = b.stacked(blockPrefix+inCross[rest], head, "layer", b.k.Layers, s)
	case head == "encoder" && strings.HasPrefix(rest, "mhc_phi_"):
		if t, err = b.tensor("encoder/" + rest); err == nil {
			if t, err = view.Transpose(t); err == nil {
				t, err = b.reshape(t, s.Shape)
			}
		}
	case head == "encoder" && rest == "final_norm":
		t, err = b.tensor("encoder/final_norm/scale")
	case head == "encoder":
		t, err = b.tensor("encoder/" + rest)
	case dotted && strings.HasPrefix(head, "encoder"):
		path := inEncoder[rest]
		if path == "" {
			path = strings.ReplaceAll(rest, ".", "/")
		}
		t, err = b.stacked(encoderPrefix+path, head, "encoder", int64(b.k.Speech.EncLayers), s)
	case head == "stem" && (rest == "out" || strings.HasPrefix(rest, "pw_")):
		if t, err = b.tensor("stem/" + rest + "/kernel"); err == nil {
			t, err = view.Transpose(t)
		}
	case head == "stem":
		t, err = b.shaped("stem/"+rest, s.Shape)
	default:
		return nil, false, nil
	}
	return t, true, err
}

// shaped is a tensor of the checkpoint in another shape of as many values.
func (b *archiver) shaped(name string, shape tensor.Shape) (*tensor.Tensor, error) {
	t, err := b.tensor(name)
	if err != nil {
		return nil, err
	}
	return b.reshape(t, shape)
}

// stacked takes a layer's part of a tensor that is stacked over layers; kernels are
// turned around.
func (b *archiver) stacked(path, head, prefix string, layers int64, s cact.Spec) (*tensor.Tensor, error) {
	var layer int64
	if _, err := fmt.Sscanf(head, prefix+"%d", &layer); err != nil {
		return nil, fmt.Errorf("%w: %s", model.ErrTensors, s.Name)
	}
	t, err := b.tensor(path)
	if err != nil {
		return nil, err
	}
	if len(t.Shape) == 0 || t.Shape[0] != layers {
		return nil, fmt.Errorf("%w: %s is %v, its first axis is the layers, of which the config has %d", model.ErrTensors, t.Name, t.Shape, layers)
	}
	n, err := t.Shape[1:].Values()
	if err != nil {
		return nil, fmt.Errorf("tensor %s: %w", t.Name, err)
	}
	if want, err := s.Shape.Values(); err != nil || want != n {
		return nil, fmt.Errorf("%w: %s is %v, the config asks for layers of %v", model.ErrTensors, t.Name, t.Shape, s.Shape)
	}
	if !strings.HasSuffix(path, "/kernel") {
		return view.Span(t, layer*n, s.Shape)
	}
	if t, err = view.Span(t, layer*n, t.Shape[1:]); err != nil {
		return nil, err
	}
	return view.Transpose(t)
}
