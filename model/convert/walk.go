package convert

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"quern/model"
	"quern/model/prune"
	"quern/tensor"
)

// item is a tensor of the output before its type is decided: a view in the
// source's type, with the rows where they belong.
type item struct {
	id     model.ID
	t      *tensor.Tensor
	from   tensor.Type
	note   string // what was done to the rows, for the plan
	source string // name of the source tensor, or of one of them
}

// walker goes over the source's tensors in file order and gathers the output's,
// in the order in which the converter writes them.
type walker struct {
	d       *model.Dims
	cfg     *model.Config
	scratch *buffers
	experts map[int]*expertSet
	mtp     MTP
	runtime bool // values are those that a model is run with, not a file's
	first   int  // of the layers for multi-token prediction
	// headRows is how many rows the head has: one a token, or one for each of a
	// pruned head's ids.
	headRows int64

	items    []item
	seen     map[model.ID]string
	leftover []string
	wrong    []error
	notes    []model.Note
}

// expertSet gathers the weights of one layer's experts until all are there.
type expertSet struct {
	parts map[model.ID]*tensor.Tensor
}

// mergeOrder is the order in which a family's stacked experts are written.
func mergeOrder(f model.Family) []model.Role {
	if f == model.Llama {
		return []model.Role{model.FFNGateExps, model.FFNDownExps, model.FFNUpExps}
	}
	return []model.Role{model.FFNDownExps, model.FFNGateExps, model.FFNUpExps}
}

// dropped says why a tensor is left out, or "".
func dropped(f model.Family, name string) string {
	for _, s := range []string{".attention.masked_bias", ".attention.bias", ".rotary_emb.inv_freq"} {
		if strings.HasSuffix(name, s) {
			return "a constant that is computed anew"
		}
	}
	for _, s := range []string{".input_scale", "activation_scale", ".k_scale", ".v_scale"} {
		if strings.HasSuffix(name, s) {
			return "a scale of activations"
		}
	}
	for _, p := range []string{"mlp", "vit.", "vpm.", "siglip2.", "conformer.", "merger.", "resampler.", "sound_encoder.", "sound_projection.", "speech_embeddings."} {
		if strings.HasPrefix(name, p) {
			return "not part of the text model"
		}
	}
	for _, p := range []string{"visual.", "vision.", "audio.", "talker.", "vision_", "audio_", "token2wav.", "code2wav.", "projector.",
		"pre_mm_projector_norm", "image_newline", "view_seperator", "patch_embed", "patch_merger.", "patch_merge_mlp.", "model.connector."} {
		if strings.Contains(name, p) {
			return "not part of the text model"
		}
	}
	return ""
}

func (w *walker) all(tensors []*tensor.Tensor) {
	gone := map[string]int{}
	example := map[string]string{}
	headOnly := w.headOnly(tensors)
	skipped := 0
	w.headRows = w.d.Vocab
	for _, t := range tensors {
		if isIDList(t) {
			w.headRows = t.Shape[0]
		}
	}
	for _, t := range tensors {
		if isIDList(t) {
			w.put(item{model.ID{Layer: -1, Expert: -1}, t, t.Type, "the tokens of the head's rows", t.Name})
			continue
		}
		if why := dropped(w.d.Family, t.Name); why != "" {
			if gone[why] == 0 {
				example[why] = t.Name
			}
			gone[why]++
			continue
		}
		id, ok := model.HFID(w.d.Family, t.Name)
		if ok && id.MTP {
			id.Layer += w.first
			id.MTP = false
		}
		switch {
		case !ok:
			w.leftover = append(w.leftover, t.Name)
			continue
		case !w.keeps(id):
			skipped++
			continue
		case id.Layer >= int(w.d.Layers):
			w.leftover = append(w.leftover, fmt.Sprintf("%s (the config has %d layers)", t.Name, w.d.Layers))
			continue
		case id.Expert >= 0 && int64(id.Expert) >= w.d.Experts:
			w.leftover = append(w.leftover, fmt.Sprintf("%s (the config has %d experts)", t.Name, w.d.Experts))
			continue
		}
		if id.Role == model.Output && headOnly {
			id.Role = model.TokenEmbd
			w.notes = append(w.notes, model.Note{Subject: t.Name, Text: "the only copy of the tied matrix: it is taken as the embedding"})
		}
		w.one(id, t)
	}
	if skipped > 0 {
		w.notes = append(w.notes, model.Note{Text: fmt.Sprintf("%d tensors are left out: only those of the layers asked for are converted", skipped)})
	}
	for _, why := range slices.Sorted(keysOf(gone)) {
		text := why + ", left out"
		if n := gone[why]; n > 1 {
			text = fmt.Sprintf("%s, left out with %d more", why, n-1)
		}
		w.notes = append(w.notes, model.Note{Subject: example[why], Text: text})
	}
}

func keysOf(m map[string]int) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// headOnly reports that a tied model keeps its matrix under the head's name.
func (w *walker) headOnly(tensors []*tensor.Tensor) bool {
	head := false
	for _, t := range tensors {
		if id, ok := model.HFID(w.d.Family, t.Name); ok && dropped(w.d.Family, t.Name) == "" {
			if id.Role == model.TokenEmbd {
				return false
			}
			head = head || id.Role == model.Output
		}
	}
	return head && w.d.Tied
}

// one takes a tensor whose meaning is known.
func (w *walker) one(id model.ID, t *tensor.Tensor) {
	if other, dup := w.seen[id]; dup {
		w.wrong = append(w.wrong, fmt.Errorf("%w: %s and %s are the same tensor", model.ErrTensors, other, t.Name))
		return
	}
	w.seen[id] = t.Name
	if !t.Type.IsFloat() {
		w.wrong = append(w.wrong, typeError(t))
		return
	}
	if id.Role == model.Output && w.headRows != w.d.Vocab {
		if err := w.checkPruned(id, t); err != nil {
			w.wrong = append(w.wrong, err)
			return
		}
	} else if err := checkShape(w.d, id, t); err != nil {
		w.wrong = append(w.wrong, err)
		return
	}
	switch {
	case id.Expert >= 0:
		w.expert(id, t)
	case id.Role == model.FFNGateUpExps:
		base := id
		base.Suffix = ".weight"
		base.Role = model.FFNGateExps
		w.put(item{base, half(t, 0), t.Type, "gate half of fused experts", t.Name})
		base.Role = model.FFNUpExps
		w.put(item{base, half(t, 1), t.Type, "up half of fused experts", t.Name})
	case id.Role.IsExpert():
		id.Suffix = ".weight"
		w.put(item{id, t, t.Type, "", t.Name})
	case w.d.Family == model.Llama && (id.Role == model.AttnQ || id.Role == model.AttnK):
		n := w.d.Heads
		if id.Role == model.AttnK {
			n = w.d.KVHeads
		}
		p, err := permute(t, n, w.scratch)
		if err != nil {
			w.wrong = append(w.wrong, fmt.Errorf("%w: %w", model.ErrTensors, err))
			return
		}
		w.put(item{id, p, t.Type, fmt.Sprintf("%d heads permuted", n), t.Name})
	case w.d.Family == model.Gemma3 && id.Role.IsNorm() && id.Suffix == ".weight":
		w.put(item{id, w.addOne(t), t.Type, "plus 1", t.Name})
	case w.d.Linear != nil:
		w.put(w.linear(id, t))
	default:
		w.put(item{id, t, t.Type, "", t.Name})
	}
}

// keeps reports whether a tensor is among those asked for, with all layers or
// some (Options.MTP).
func (w *walker) keeps(id model.ID) bool {
	next := id.Layer >= w.first
	switch w.mtp {
	case MTPWithout:
		return !next
	case MTPOnly:
		return next || id.Role == model.TokenEmbd || id.Role == model.OutputNorm || id.Role == model.Output
	}
	return true
}

// isIDList reports whether a tensor is the list of ids of a pruned head, which a
// step has put there.
func isIDList(t *tensor.Tensor) bool {
	return t.Name == prune.OutputIDs && t.Type == tensor.I32 && len(t.Shape) == 1
}

// checkPruned holds a pruned head against its list.
func (w *walker) checkPruned(id model.ID, t *tensor.Tensor) error {
	want := tensor.Shape{w.headRows, w.d.Hidden}
	if id.Suffix == ".bias" {
		want = want[:1]
	}
	if !t.Shape.Equal(want) {
		return fmt.Errorf("%w: %s has shape %v, %s asks for %v", model.ErrTensors, t.Name, t.Shape, prune.OutputIDs, want)
	}
	return nil
}

func (w *walker) put(it item) { w.items = append(w.items, it) }

func typeError(t *tensor.Tensor) error {
	return fmt.Errorf("%w: %s has type %s, want a float type", ErrQuantized, t.Name, t.Type)
}

// expert keeps one expert's matrix. The stacks are written where the last one
// stands, as the converter does.
func (w *walker) expert(id model.ID, t *tensor.Tensor) {
	set := w.experts[id.Layer]
	if set == nil {
		set = &expertSet{parts: map[model.ID]*tensor.Tensor{}}
		w.experts[id.Layer] = set
	}
	set.parts[id] = t
	if int64(len(set.parts)) < 3*w.d.Experts {
		return
	}
	delete(w.experts, id.Layer)
	for _, r := range mergeOrder(w.d.Family) {
		parts := make([]*tensor.Tensor, w.d.Experts)
		for e := range parts {
			parts[e] = set.parts[model.ID{Role: r, Layer: id.Layer, Expert: e, Suffix: ".weight"}]
			if parts[e] == nil {
				return // a bias took its place: finish names what is missing
			}
		}
		if err := w.sameType(parts); err != nil {
			w.wrong = append(w.wrong, err)
			return
		}
		w.put(item{model.ID{Role: r, Layer: id.Layer, Expert: -1, Suffix: ".weight"}, stack(parts), parts[0].Type,
			fmt.Sprintf("%d experts stacked", len(parts)), parts[0].Name})
	}
}

// sameType widens the matrices to float32 when they are not all of one type.
func (w *walker) sameType(parts []*tensor.Tensor) error {
	if !slices.ContainsFunc(parts, func(t *tensor.Tensor) bool { return t.Type != parts[0].Type }) {
		return nil
	}
	for i, t := range parts {
		c, err := newCast(t, t.Name, tensor.F32, true)
		if err != nil {
			return err
		}
		parts[i] = c
	}
	return nil
}

// maxMissing bounds the list of one layer's missing experts.
const maxMissing = 1 << 16

// finish reports everything that does not fit, at once.
func (w *walker) finish() error {
	have := map[model.ID]bool{}
	for _, it := range w.items {
		have[it.id] = true
	}
	var missing []string
	for _, id := range required(w.d) {
		if have[id] || !w.keeps(id) {
			continue
		}
		set := w.experts[id.Layer]
		if !id.Role.IsExpert() || set == nil {
			missing = append(missing, w.sourceName(id))
			continue
		}
		for e := range int(w.d.Experts) {
			one := id
			one.Expert = e
			if set.parts[one] == nil {
				missing = append(missing, w.sourceName(one))
			}
			if len(missing) > maxMissing {
				break // a config that is plainly another model's
			}
		}
	}
	err := w.wrong
	if len(w.leftover) > 0 {
		err = append(err, fmt.Errorf("%w: %d tensors have no place in %s: %s", model.ErrTensors, len(w.leftover), w.cfg.Architecture(), names(w.leftover)))
	}
	// What was refused above would be reported missing as well.
	if len(missing) > 0 && len(w.wrong) == 0 {
		hint := ""
		if slices.Contains(missing, "mtp.fc.weight") {
			hint = "; a checkpoint without its layers for multi-token prediction is converted with mtp: without"
		}
		if slices.Contains(missing, "lm_head.weight") {
			hint = "; tie_word_embeddings is false, so the head must be there"
		}
		err = append(err, fmt.Errorf("%w: %d tensors are missing: %s%s", model.ErrTensors, len(missing), names(missing), hint))
	}
	return errors.Join(err...)
}

// sourceName is the name that a tensor would have in the source.
func (w *walker) sourceName(id model.ID) string {
	if w.d.Family == model.Qwen35 && id.Layer >= w.first {
		id.Layer -= w.first
		id.MTP = true
	}
	return model.HFName(w.cfg.Architecture(), id)
}
