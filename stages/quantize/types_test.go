package quantize

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"quern/formats/gguf"
	"quern/internal/testmodel"
	"quern/model"
	"quern/recipes"
	"quern/tensor"
)

// typesModel is an entry of testdata/convert/types.json: what the real
// llama-quantize decided for a model of a given shape.
type typesModel struct {
	Model   string
	Arch    string
	Layers  int
	HParams map[string]any
	Experts int64
	Globals map[string]int64
	Roles   map[string]struct {
		Width  int64
		Layers []int
	}
	Results []struct {
		FType   string
		Options []string
		Types   map[string]string // or error
	}
}

// model makes the model that the entry describes. No tensor is ever read.
func (m typesModel) model() *model.Model {
	meta := gguf.NewMetadata(gguf.KV{Key: "general.architecture", Value: gguf.Scalar(m.Arch)})
	for k, v := range m.HParams {
		if f, ok := v.(float64); ok {
			meta.Set(m.Arch+"."+k, gguf.Scalar(uint32(f)))
		}
	}
	if m.Experts > 0 {
		meta.Set(m.Arch+".expert_count", gguf.Scalar(uint32(m.Experts)))
	}
	var ts []*tensor.Tensor
	add := func(name string, shape ...int64) {
		ts = append(ts, &tensor.Tensor{Name: name, Type: tensor.F16, Shape: shape,
			Src: tensor.SourceFunc(func(context.Context, []byte, int64, int64) error { return fmt.Errorf("read") })})
	}
	for name, w := range m.Globals {
		add(name+".weight", 2, w)
	}
	for role, r := range m.Roles {
		layers := r.Layers
		if layers == nil {
			for i := range m.Layers {
				layers = append(layers, i)
			}
		}
		for _, l := range layers {
			name := fmt.Sprintf("blk.%d.%s.weight", l, role)
			if strings.HasSuffix(role, "_exps") {
				add(name, m.Experts, 2, r.Width)
			} else {
				add(name, 2, r.Width)
			}
		}
	}
	return model.FromGGUF(m.Model, meta, ts)
}

// stageFor turns llama-quantize's options into a stage.
func stageFor(t *testing.T, ftype string, options []string) (s *Stage, imatrix bool) {
	t.Helper()
	p := recipes.Quantize{Preset: ftype}
	var o Options
	for i := 0; i < len(options); i++ {
		switch opt := options[i]; opt {
		case "im":
			imatrix = true
		case "--pure":
			p.Pure = true
		case "--output-tensor-type":
			i++
			p.OutputType = options[i]
		case "--token-embedding-type":
			i++
			p.EmbeddingType = options[i]
		case "--tensor-type":
			i++
			re, typ, _ := strings.Cut(options[i], "=")
			tt, err := tensor.ParseType(typ)
			if err != nil {
				t.Fatal(err)
			}
			o.TensorTypes = append(o.TensorTypes, TensorType{Pattern: re, Type: tt})
		case "--leave-output-tensor":
			p.LeaveOutput = true
		default:
			t.Fatalf("option %q", opt)
		}
	}
	s, err := NewWith(p, o)
	if err != nil {
		t.Fatal(err)
	}
	return s, imatrix
}

// decided writes decisions as types.json does: a run-length list by role.
func decided(in *model.Model, order []int, picks []pick) map[string]string {
	type entry struct {
		layer int
		typ   string
	}
	by := map[string][]entry{}
	for k, i := range order {
		t := in.Tensors[i]
		typ := t.Type
		if picks[k].to != tensor.Invalid {
			typ = picks[k].to
		}
		role, layer := strings.TrimSuffix(t.Name, ".weight"), 0
		if n, _, ok := model.Block(t.Name); ok {
			layer = n
			_, rest, _ := strings.Cut(strings.TrimPrefix(role, "blk."), ".")
			role = rest
		}
		by[role] = append(by[role], entry{layer, typ.String()})
	}
	out := map[string]string{}
	for role, list := range by {
		slices.SortFunc(list, func(a, b entry) int { return a.layer - b.layer })
		var runs []string
		for i := 0; i < len(list); {
			j := i
			for j < len(list) && list[j].typ == list[i].typ {
				j++
			}
			runs = append(runs, strconv.Itoa(j-i)+"*"+list[i].typ)
			i = j
		}
		out[role] = strings.Join(runs, " ")
	}
	return out
}

func TestDecisionsOfLlamaQuantize(t *testing.T) {
	b, err := os.ReadFile(filepath.Join(testmodel.Root(), "convert/types.json"))
	if err != nil {
		t.Fatal(err)
	}
	var models []typesModel
	if err := json.Unmarshal(b, &models); err != nil {
		t.Fatal(err)
	}
	compared := 0
	for _, m := range models {
		in := m.model()
		order := (&Stage{}).visitOrder(in)
		for _, r := range m.Results {
			s, imatrix := stageFor(t, r.FType, r.Options)
			name := fmt.Sprintf("%s: %s %v", m.Model, r.FType, r.Options)
			picks, err := s.assign(in, order, imatrix)
			if fails := r.Types["error"]; fails != "" {
				if err == nil {
					t.Errorf("%s: the real tool fails (%s), this does not", name, fails)
				}
				continue
			}
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			compared++
			got := decided(in, order, picks)
			for role, want := range r.Types {
				if !strings.EqualFold(got[role], want) {
					t.Errorf("%s: %s is %s, the real tool has %s", name, role, got[role], want)
				}
			}
		}
	}
	if compared < 800 {
		t.Errorf("only %d decisions compared", compared)
	}
}
