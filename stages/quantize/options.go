package quantize

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/dlclark/regexp2"

	"quern/formats/gguf"
	"quern/model"
	"quern/recipes"
	"quern/tensor"
)

// Options are llama-quantize's options that recipes do not have: they change
// metadata and layers along the way, in the place that it does.
type Options struct {
	// Copy leaves every tensor as it is, and the file type as well.
	Copy bool
	// TensorTypes are --tensor-type's, in order. They are ECMAScript regular
	// expressions, and a tensor that a preset of unquantized type meets, or
	// that none of them meets, is no error.
	TensorTypes []TensorType
	// Prune are the numbers of layers that are left out.
	Prune []int
	// KeepOrder leaves tensors in the order of the source's shards.
	KeepOrder bool
	// Overrides are metadata that is set, in order.
	Overrides []gguf.KV
	// DryRun makes a plan of what needs an importance matrix that is not
	// there; the model says so in a note.
	DryRun bool
}

// TensorType gives the tensors whose names have a match of Pattern a type.
type TensorType struct {
	Pattern string // in lower case
	Type    tensor.Type
}

// NewWith is New with the options of llama-quantize's command line.
func NewWith(p recipes.Quantize, o Options) (*Stage, error) {
	if o.Copy {
		p.Preset = "F32" // for the table alone: nothing is changed
	}
	s, err := New(p)
	if err != nil {
		return nil, err
	}
	s.o = o
	for _, t := range o.TensorTypes {
		re, err := regexp2.Compile(strings.ToLower(t.Pattern), regexp2.ECMAScript)
		if err != nil {
			return nil, fmt.Errorf("--tensor-type %s: %w", t.Pattern, err)
		}
		s.tensorTypes = append(s.tensorTypes, tensorType{re, t.Type, t.Pattern})
	}
	return s, nil
}

type tensorType struct {
	re      *regexp2.Regexp
	t       tensor.Type
	pattern string
}

// tensorTypeOf finds the first of --tensor-type that a name meets.
func (s *Stage) tensorTypeOf(name string) (tensorType, bool, error) {
	for _, t := range s.tensorTypes {
		ok, err := t.re.MatchString(name)
		if err != nil {
			return t, false, fmt.Errorf("--tensor-type %s on %s: %w", t.pattern, name, err)
		}
		if ok {
			return t, true, nil
		}
	}
	return tensorType{}, false, nil
}

// prune leaves layers out and gives the others new numbers. The result has
// llama-quantize's order; old gives the names that importance matrices know.
func (s *Stage) prune(in *model.Model) (out *model.Model, old map[string]string, layers int, err error) {
	drop := map[int]bool{}
	for _, n := range s.o.Prune {
		drop[n] = true
	}
	first := slices.Min(s.o.Prune)
	order := s.visitOrder(in)
	// In the order of names, not of shards: the numbers come from there.
	slices.SortStableFunc(order, byLayer(in))
	mapped := map[int]int{}
	old = map[string]string{}
	var ts []*tensor.Tensor
	var infos []model.PlanInfo
	gone := map[int]bool{}
	for _, i := range order {
		t := in.Tensors[i]
		blk, _, ok := model.Block(t.Name)
		if !ok {
			ts, infos = append(ts, t), append(infos, in.Info(i))
			continue
		}
		if drop[blk] {
			gone[blk] = true
			continue
		}
		to, seen := mapped[blk]
		if !seen {
			to = layers
			if blk < first {
				to = blk
			}
			layers = to + 1
			mapped[blk] = to
		}
		rest := strings.TrimPrefix(t.Name, "blk."+strconv.Itoa(blk)+".")
		name := fmt.Sprintf("blk.%d.%s", to, rest)
		old[name] = t.Name
		ts, infos = append(ts, t.With(func(n *tensor.Tensor) { n.Name = name })), append(infos, in.Info(i))
	}
	for _, n := range s.o.Prune {
		if !gone[n] {
			return nil, nil, 0, fmt.Errorf("--prune-layers %d: the model has no layer of that number", n)
		}
	}
	if layers == 0 {
		return nil, nil, 0, fmt.Errorf("--prune-layers: no layer would be left")
	}
	return in.WithPlan(ts, infos), old, layers, nil
}

// byLayer orders tensors as llama.cpp's loader does: those outside layers
// first, then by layer, byte-wise by name within each.
func byLayer(in *model.Model) func(a, b int) int {
	layer := make([]int, len(in.Tensors))
	for i, t := range in.Tensors {
		layer[i] = -1
		if n, _, ok := model.Block(t.Name); ok {
			layer[i] = n
		}
	}
	return func(a, b int) int {
		return cmp.Or(cmp.Compare(layer[a], layer[b]), strings.Compare(in.Tensors[a].Name, in.Tensors[b].Name))
	}
}

// visitOrder is llama-quantize's: that of byLayer, or of the source's shards
// where they are kept. The file is written in this order.
func (s *Stage) visitOrder(in *model.Model) []int {
	order := make([]int, len(in.Tensors))
	for i := range order {
		order[i] = i
	}
	if !s.o.KeepOrder {
		slices.SortStableFunc(order, byLayer(in))
	}
	return order
}

// guessed marks a file type that was not read but concluded from the tensors.
const guessed = 1024

// copiedType is the file type of a copy: the input's, or what llama.cpp's loader
// guesses from the type of most tensors.
func copiedType(in *model.Model) (uint32, error) {
	if v, ok := in.Meta.Get("general.file_type"); ok {
		return gguf.AsInt[uint32](v)
	}
	counts := map[tensor.Type]int{}
	most, top := 0, tensor.F32
	// The first type to reach a number of tensors stays ahead of those that
	// only equal it.
	for _, i := range (&Stage{}).visitOrder(in) {
		t := in.Tensors[i].Type
		counts[t]++
		if counts[t] > most {
			most, top = counts[t], t
		}
	}
	ft, ok := guessedTypes[top]
	if !ok {
		ft = 0
	}
	return ft | guessed, nil
}

// guessedTypes is the loader's table from the type of most tensors.
var guessedTypes = map[tensor.Type]uint32{
	tensor.F32: 0, tensor.F16: 1, tensor.BF16: 32, tensor.Q4_0: 2, tensor.Q4_1: 3, tensor.Q5_0: 8, tensor.Q5_1: 9, tensor.Q8_0: 7,
	tensor.Q2_K: 10, tensor.Q3_K: 12, tensor.Q4_K: 15, tensor.Q5_K: 17, tensor.Q6_K: 18, tensor.TQ1_0: 36, tensor.TQ2_0: 37,
	tensor.IQ2_XXS: 19, tensor.IQ2_XS: 20, tensor.IQ2_S: 28, tensor.IQ3_XXS: 23, tensor.IQ1_S: 24, tensor.IQ1_M: 31,
	tensor.IQ4_NL: 25, tensor.IQ4_XS: 30, tensor.IQ3_S: 26, tensor.NVFP4: 39, tensor.Q1_0: 40, tensor.Q2_0: 41,
}
