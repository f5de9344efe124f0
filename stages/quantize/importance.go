package quantize

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"quern/formats/gguf"
	"quern/formats/imatrix"
	"quern/internal/digest"
	"quern/model"
	"quern/pipeline"
	"quern/recipes"
	"quern/tensor"
	"quern/tensor/quant"
)

// ErrImatrixFit marks an importance matrix that is not this model's.
var ErrImatrixFit = errors.New("the importance matrix does not fit the model")

// importance is an importance matrix laid against a model.
type importance struct {
	src *pipeline.Source
	m   *imatrix.Matrix
	// sets has the weights of the model's tensors by name.
	sets  map[string][]float32
	notes []model.Note
	// missing lists tensors that would use weights and have none, dead those
	// with groups whose weights are all zero.
	missing []string
	dead    []string
}

// readImportance reads the matrix that the step names.
func readImportance(ctx context.Context, p recipes.Quantize, sources []*pipeline.Source) (*importance, error) {
	src, err := pipeline.Find(sources, p.Imatrix)
	if err != nil {
		return nil, fmt.Errorf("imatrix: %w", err)
	}
	if src.Content == nil {
		return nil, fmt.Errorf("imatrix: source %s is a model, not an importance matrix; give the file that llama-imatrix wrote", p.Imatrix)
	}
	m, err := imatrix.Read(ctx, src.FileName(), src.Content, imatrix.Options{})
	if err != nil {
		return nil, pipeline.SourceFault(fmt.Errorf("imatrix: source %s: %w", p.Imatrix, err))
	}
	return &importance{src: src, m: m}, nil
}

// choose leaves the entries that include-weights and exclude-weights ask for,
// and reports whether any are left: a matrix without entries counts as none.
func (im *importance) choose(p recipes.Quantize) bool {
	has := func(parts []string, name string) bool {
		return slices.ContainsFunc(parts, func(s string) bool { return strings.Contains(name, s) })
	}
	m := *im.m
	m.Entries = nil
	for _, e := range im.m.Entries {
		if has(p.ExcludeWeights, e.Name) || p.IncludeWeights != nil && !has(p.IncludeWeights, e.Name) {
			continue
		}
		m.Entries = append(m.Entries, e)
	}
	im.m = &m
	return len(m.Entries) > 0
}

// rename gives weights the names that pruning has given their tensors.
func (im *importance) rename(old map[string]string) {
	if im == nil {
		return
	}
	sets := make(map[string][]float32, len(im.sets))
	for name, w := range im.sets {
		if _, _, ok := model.Block(name); !ok {
			sets[name] = w
		}
	}
	for name, was := range old {
		if w, ok := im.sets[was]; ok {
			sets[name] = w
		}
	}
	im.sets = sets
}

// lay finds each tensor's weights and holds the matrix against the model:
// names, widths, experts.
func (im *importance) lay(in *model.Model, p recipes.Quantize) error {
	im.sets = map[string][]float32{}
	known := map[string]bool{}
	var unseen unseenExperts
	for _, t := range in.Tensors {
		shape := dropOnes(t.Shape)
		row, stack := shape.RowLen(), int64(1)
		if len(shape) > 2 {
			stack = shape[len(shape)-3]
		}
		e, ok := im.m.Find(t.Name)
		if ok {
			known[t.Name] = true
		} else if e, ok = im.join(t.Name, row, stack, known); !ok {
			continue
		}
		if n := int64(len(e.Weights)); n != row*stack {
			if categoryOf(t.Name) == catEmbedding {
				// Collected where the embedding serves as a table; the real
				// tool passes over it too.
				im.note(t.Name, "the importance matrix has %d values for rows of %d; they are not used", n, row)
				continue
			}
			what := fmt.Sprintf("%d values", row)
			if stack > 1 {
				what = fmt.Sprintf("%d x %d = %d values (matrices x row)", stack, row, row*stack)
			}
			return fmt.Errorf("tensor %s: %w: it is %d wide in %s, the tensor needs %s; use the matrix of this very model", t.Name, ErrImatrixFit, n, im.src.FileName(), what)
		}
		if k := int64(len(e.Counts)); k > 1 && k != stack {
			return fmt.Errorf("tensor %s: %w: %s counts %d matrices, the tensor has %d", t.Name, ErrImatrixFit, im.src.FileName(), k, stack)
		}
		if list := e.Unseen(stack); list != nil {
			if p.MaxUnseen != nil && int64(len(list)) > *p.MaxUnseen && stack > 1 {
				return fmt.Errorf("tensor %s: %w: %d of %d experts have no calibration data (%s), %d are allowed; calibrate on more text, or raise max-unseen-experts",
					t.Name, ErrImatrixFit, len(list), stack, ranges(list), *p.MaxUnseen)
			}
			unseen.add(t.Name, list, stack)
		}
		im.sets[t.Name] = e.Weights
	}
	im.notes = append(im.notes, unseen.notes()...)
	return im.strangers(in, known)
}

func (im *importance) note(subject, format string, args ...any) {
	im.notes = append(im.notes, model.Note{Subject: subject, Text: fmt.Sprintf(format, args...)})
}

// join puts the weights of a stack of experts together out of a matrix of the
// time when each expert was a tensor of its own: blk.0.ffn_up.3.weight for
// matrix 3 of blk.0.ffn_up_exps.weight. Experts without an entry had no data.
func (im *importance) join(name string, row, stack int64, known map[string]bool) (*imatrix.Entry, bool) {
	stem, ok := strings.CutSuffix(name, "_exps.weight")
	if !ok {
		return nil, false
	}
	e := &imatrix.Entry{Name: name}
	var found []string
	for x := range stack {
		one, ok := im.m.Find(fmt.Sprintf("%s.%d.weight", stem, x))
		if !ok {
			e.Counts = append(e.Counts, 0)
			for range row {
				e.Weights = append(e.Weights, 1)
			}
			continue
		}
		found = append(found, one.Name)
		seen := int64(1)
		if len(one.Unseen(1)) > 0 {
			seen = 0
		}
		e.Counts = append(e.Counts, seen)
		e.Weights = append(e.Weights, one.Weights...)
	}
	if found == nil {
		return nil, false
	}
	for _, n := range found {
		known[n] = true
	}
	im.note(name, "its importance is taken from %d entries of single experts, the old naming: %s.0.weight and so on", len(found), stem)
	return e, true
}

// strangers deals with entries that no tensor of the model has.
func (im *importance) strangers(in *model.Model, known map[string]bool) error {
	var list []string
	stacked := slices.ContainsFunc(in.Tensors, func(t *tensor.Tensor) bool { return strings.HasSuffix(t.Name, "_exps.weight") })
	for _, e := range im.m.Entries {
		if known[e.Name] {
			continue
		}
		if stacked && oldExpert(e.Name) {
			return fmt.Errorf("%w: %s is the old name of a single expert, and this model stacks its experts in tensors that have no place for it; make the matrix again from this model",
				ErrImatrixFit, e.Name)
		}
		list = append(list, e.Name)
	}
	if len(list) == len(im.m.Entries) {
		return fmt.Errorf("%w: none of its %d entries, such as %s, is a tensor of the model, such as %s", ErrImatrixFit, len(list), list[0], in.Tensors[0].Name)
	}
	if list != nil {
		im.note("imatrix "+im.src.Name, "%d entries are no tensors of this model and are not used: %s", len(list), strings.Join(list, ", "))
	}
	if im.m.Ignored != nil {
		im.note("imatrix "+im.src.Name, "tensors that are no part of an importance matrix are not used: %s", strings.Join(im.m.Ignored, ", "))
	}
	return nil
}

// oldExpert reports whether a name is like blk.0.ffn_gate.3.weight.
func oldExpert(name string) bool {
	parts := strings.Split(name, ".")
	if len(parts) != 5 || parts[0] != "blk" || !strings.HasPrefix(parts[2], "ffn_") || parts[4] != "weight" {
		return false
	}
	_, err := strconv.ParseUint(parts[3], 10, 31)
	return err == nil
}

// weightsFor gives the weights to cast a tensor to a type with, and their key.
// The key is that of the values, so that what the matrix says of other tensors
// changes nothing here.
func (im *importance) weightsFor(t *tensor.Tensor, to tensor.Type) ([]float32, tensor.Key) {
	if im == nil || !usesWeights(to) {
		return nil, tensor.Key{}
	}
	w := im.sets[t.Name]
	if w == nil {
		return nil, tensor.Key{}
	}
	if n := deadGroups(to, w, int(t.Shape.RowLen())); n > 0 {
		im.dead = append(im.dead, fmt.Sprintf("%s (%d)", t.Name, n))
	}
	return w, tensor.Derive("imatrix.v1", digest.Of(floatBytes(w)).Hex())
}

// weightsOf gives a tensor's weights, nil where there are none.
func (im *importance) weightsOf(name string) []float32 {
	if im == nil {
		return nil
	}
	return im.sets[name]
}

// key identifies all the weights together.
func (im *importance) key() tensor.Key {
	names := slices.Sorted(maps.Keys(im.sets))
	h := digest.New()
	for _, n := range names {
		fmt.Fprintf(h, "%q %d\n", n, len(im.sets[n]))
		h.Write(floatBytes(im.sets[n]))
	}
	return tensor.Derive("imatrix.v1", digest.Sum(h).Hex())
}

func floatBytes(w []float32) []byte {
	b := make([]byte, 4*len(w))
	for i, v := range w {
		binary.LittleEndian.PutUint32(b[4*i:], math.Float32bits(v))
	}
	return b
}

func deadGroups(to tensor.Type, w []float32, row int) int64 {
	n := int64(0)
	for at := 0; row > 0 && at+row <= len(w); at += row {
		n += quant.DeadWeights(to, w[at:at+row]).N
	}
	return n
}

// usesWeights reports whether a type's encoder looks at importance weights.
func usesWeights(t tensor.Type) bool {
	switch t {
	case tensor.Q4_0, tensor.Q4_1, tensor.Q5_0, tensor.Q5_1,
		tensor.Q2_K, tensor.Q3_K, tensor.Q4_K, tensor.Q5_K, tensor.Q6_K,
		tensor.IQ1_S, tensor.IQ1_M, tensor.IQ2_XXS, tensor.IQ2_XS, tensor.IQ2_S,
		tensor.IQ3_XXS, tensor.IQ3_S, tensor.IQ4_NL, tensor.IQ4_XS:
		return true
	}
	return false
}

// lacks reports whether a tensor would use weights of its type and has none.
// llama-imatrix never collects the embedding, and the head on request only.
func (im *importance) lacks(name string, to tensor.Type) bool {
	c := categoryOf(name)
	return im != nil && usesWeights(to) && c != catEmbedding && c != catOutput && im.sets[name] == nil
}

// weighed settles what becomes of a tensor for which there are no importance
// weights.
func (s *Stage) weighed(im *importance, t *tensor.Tensor, p pick) (pick, error) {
	if im == nil {
		if s.needsImatrix(t.Name, p.to) {
			if s.o.DryRun {
				s.blind = append(s.blind, t.Name)
				return p, nil
			}
			return p, fmt.Errorf("tensor %s: %w: %s is unusable without one; name a source that has it with imatrix: in this step, or a file with --imatrix (llama-imatrix makes them)", t.Name, ErrImatrix, p.to)
		}
		return p, nil
	}
	if !im.lacks(t.Name, p.to) {
		return p, nil
	}
	switch {
	case s.p.Missing == "error":
		return p, fmt.Errorf("tensor %s: %w: source %s has no entry for it, and the recipe says missing: error", t.Name, ErrImatrix, im.src.Name)
	case s.missing != tensor.Invalid && !p.fixed:
		to, why, err := s.fit(t, s.missing, "missing from the importance matrix")
		return pick{to: to, why: why}, err
	case s.needsImatrix(t.Name, p.to):
		return p, fmt.Errorf("tensor %s: %w: source %s has no entry for it, and %s is unusable without one; give it a type with missing: or a rule", t.Name, ErrImatrix, im.src.Name, p.to)
	}
	im.missing = append(im.missing, t.Name)
	p.why += "; not in the importance matrix"
	return p, nil
}

// summary lists what was missing and what weighs nothing.
func (im *importance) summary() []model.Note {
	if im == nil {
		return nil
	}
	subject := "imatrix " + im.src.Name
	if im.missing != nil {
		im.note(subject, "it has no entry for %d tensors, which are quantized without weights: %s", len(im.missing), strings.Join(im.missing, ", "))
	}
	if im.dead != nil {
		im.note(subject, "no input reached any value of some groups, and llama-quantize's arithmetic, kept here, makes most of them zeros: %s", strings.Join(im.dead, ", "))
	}
	return im.notes
}

// metadata appends llama-quantize's keys. It cuts strings at 127 bytes and at a
// NUL byte.
func (im *importance) metadata(out *gguf.Metadata, name string) {
	cut := func(s string) gguf.Value {
		s, _, _ = strings.Cut(s, "\x00")
		if len(s) > 127 {
			s = s[:127]
		}
		return gguf.Scalar(s)
	}
	set := func(key string, v gguf.Value) {
		out.Delete(key)
		out.Append(key, v)
	}
	if name == "" {
		name = im.src.FileName()
	}
	set("quantize.imatrix.file", cut(name))
	if len(im.m.Datasets) > 0 {
		set("quantize.imatrix.dataset", cut(im.m.Datasets[0]))
	}
	set("quantize.imatrix.entries_count", gguf.Scalar(uint32(len(im.m.Entries))))
	if im.m.Chunks > 0 && im.m.Chunks <= math.MaxInt32 {
		set("quantize.imatrix.chunks_count", gguf.Scalar(uint32(im.m.Chunks)))
	}
}

// unseenExperts collects tensors with experts that no token was routed to. The
// tensors of a layer mostly agree, and share a line then.
type unseenExperts struct{ lines []unseenLine }

type unseenLine struct {
	layer, list string
	of          int64
	names       []string
}

func (u *unseenExperts) add(name string, list []int64, of int64) {
	n, _, _ := model.Block(name)
	line := unseenLine{strconv.Itoa(n), ranges(list), of, []string{name}}
	for i := range u.lines {
		if l := &u.lines[i]; l.layer == line.layer && l.list == line.list && l.of == of {
			l.names = append(l.names, name)
			return
		}
	}
	u.lines = append(u.lines, line)
}

func (u *unseenExperts) notes() []model.Note {
	var out []model.Note
	for _, l := range u.lines {
		text := fmt.Sprintf("no calibration data reached experts %s of %d; their weights are neutral", l.list, l.of)
		if l.of == 1 {
			text = "no calibration data reached it; its weights are neutral"
		}
		out = append(out, model.Note{Subject: strings.Join(l.names, ", "), Text: text})
	}
	return out
}

// ranges writes rising numbers as "0, 3-5".
func ranges(list []int64) string {
	var parts []string
	for i := 0; i < len(list); {
		j := i
		for j+1 < len(list) && list[j+1] == list[j]+1 {
			j++
		}
		if s := strconv.FormatInt(list[i], 10); j == i {
			parts = append(parts, s)
		} else {
			parts = append(parts, s+"-"+strconv.FormatInt(list[j], 10))
		}
		i = j + 1
	}
	return strings.Join(parts, ", ")
}
