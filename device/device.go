// Package device says what a device with a given amount of memory makes of a
// model file: what stays in memory, what is read from flash for each token, and
// how fast flash lets it be at best.
//
// The account, from the bottom of memory up:
//
//	work        activations and logits of one token
//	KV cache    keys and values of all tokens of the context, or a recurrent state
//	weights     what every token goes through
//	pool        as many routed experts a layer as fit into what is left
//
// The embedding is read a row a token and counts only where it is the head too.
package device

import (
	"errors"
	"fmt"
	"strings"

	"quern/formats/gguf"
	"quern/model"
	"quern/model/order"
	"quern/tensor"
)

// ErrSpec marks a device that cannot be.
var ErrSpec = errors.New("bad device")

// Spec describes a device and how a model is used on it.
type Spec struct {
	// RAM is what the program may use, in bytes.
	RAM int64
	// MapLimit is the most that can be mapped, 0 for no limit.
	MapLimit int64
	// Flash is the number of bytes that flash gives in a second, 0 for unknown.
	Flash int64
	// Context is the number of tokens that keys and values are kept of, 0 for the
	// model's own.
	Context int64
	// KV is the type of keys and values.
	KV tensor.Type
}

// Account is what a device makes of a file.
type Account struct {
	File    string `json:"file"`
	Size    int64  `json:"size"`
	Context int64  `json:"context"`
	Work    int64  `json:"work_bytes"`
	KV      int64  `json:"kv_bytes"`
	// Weights are those that every token goes through; Embedding, not counted in
	// it, is read a row a token.
	Weights   int64 `json:"weight_bytes"`
	Embedding int64 `json:"embedding_bytes"`
	// Experts is nil for a model without routed experts.
	Experts *Experts `json:"experts,omitempty"`
	// Resident is what stays in memory, of what Needed would take to have
	// everything there.
	Resident int64 `json:"resident_bytes"`
	Needed   int64 `json:"needed_bytes"`
	// Streamed is what a token reads from flash; with experts, on average if they
	// were all used alike.
	Streamed int64 `json:"streamed_bytes_per_token"`
	// Ceiling is how many tokens a second flash allows; 0 when nothing is read or
	// flash is unknown.
	Ceiling float64 `json:"tokens_per_second_at_most,omitempty"`
	// Map is what has to be mapped; without experts that are read on demand, the
	// whole file.
	Map     int64    `json:"map_bytes"`
	MapFits bool     `json:"map_fits"`
	Notes   []string `json:"notes,omitempty"`
}

// Experts are the routed experts of a file.
type Experts struct {
	// Layers have Count experts each, of which a token uses Used.
	Layers int   `json:"layers"`
	Count  int64 `json:"experts"`
	Used   int64 `json:"used"`
	// Bytes is what all take; Sizes what one expert of each layer takes, with the
	// layers' numbers in Blocks.
	Bytes  int64   `json:"bytes"`
	Blocks []int   `json:"blocks"`
	Sizes  []int64 `json:"expert_bytes"`
	// Pool is how many experts of each layer stay in memory.
	Pool int64 `json:"pool"`
	// First is where the first of their tensors begins; Last tells whether they stand
	// behind all other tensors.
	First int64 `json:"offset"`
	Last  bool  `json:"last"`
}

// Part is a tensor of a file in its place.
type Part struct {
	Name   string
	Shape  tensor.Shape
	Offset int64
	Bytes  int64
}

// File is a GGUF file, written or planned.
type File struct {
	Name  string
	Size  int64
	Meta  *gguf.Metadata
	Parts []Part
}

// check finds numbers that are no device's.
func (s Spec) check() error {
	switch {
	case s.RAM < 1:
		return fmt.Errorf("%w: memory of %d bytes", ErrSpec, s.RAM)
	case s.MapLimit < 0:
		return fmt.Errorf("%w: %d bytes that can be mapped", ErrSpec, s.MapLimit)
	case s.Flash < 0:
		return fmt.Errorf("%w: flash of %d bytes a second", ErrSpec, s.Flash)
	case s.Context < 0 || s.Context > 1<<30:
		return fmt.Errorf("%w: a context of %d tokens; up to %d can be, and 0 is what the model has", ErrSpec, s.Context, 1<<30)
	}
	switch s.KV {
	case tensor.F32, tensor.F16, tensor.BF16, tensor.Q8_0, tensor.Q4_0:
		return nil
	}
	return fmt.Errorf("%w: keys and values as %v; F32, F16, BF16, Q8_0 and Q4_0 can be", ErrSpec, s.KV)
}

// Fit makes the account of a file.
func Fit(f *File, s Spec) (*Account, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	a := &Account{File: f.Name, Size: f.Size, Context: s.Context, Map: f.Size}
	st, err := settingsOf(f)
	if err != nil {
		return nil, err
	}
	if a.Experts, err = ExpertsOf(f); err != nil {
		return nil, err
	}
	if a.Context == 0 {
		if a.Context = st.int("context_length", 2048); a.Context < 1 || a.Context > 1<<30 {
			return nil, fmt.Errorf("%s: %w: a context of %d tokens; give one", f.Name, ErrSpec, a.Context)
		}
	}
	a.weigh(f, st)
	switch e := a.Experts; {
	case e == nil:
	case e.Last:
		a.Map = e.First
	default:
		a.Notes = append(a.Notes, "experts stand between other tensors, so the whole file has to be mapped; reorder: {experts: last} puts them behind")
	}
	if err := a.remember(f, st, s.KV); err != nil {
		return nil, fmt.Errorf("%s: %w", f.Name, err)
	}
	a.share(s)
	return a, nil
}

// settings reads numbers of an architecture.
type settings struct {
	meta *gguf.Metadata
	arch string
}

func settingsOf(f *File) (settings, error) {
	arch, err := f.Meta.Text("general.architecture")
	if err != nil {
		return settings{}, fmt.Errorf("%s: %w: %w", f.Name, model.ErrForm, err)
	}
	return settings{f.Meta, arch}, nil
}

func (s settings) int(key string, def int64) int64 {
	if n, err := s.meta.Int64(s.arch + "." + key); err == nil {
		return n
	}
	return def
}

// weigh sorts the tensors of a file that are not experts.
func (a *Account) weigh(f *File, st settings) {
	own := false
	for _, p := range f.Parts {
		own = own || p.Name == "output.weight"
	}
	var logits, widest int64
	for _, p := range f.Parts {
		switch {
		case order.IsExpert(p.Name):
		case p.Name == "token_embd.weight" && own:
			a.Embedding = p.Bytes
		default:
			a.Weights += p.Bytes
		}
		if len(p.Shape) == 2 && (p.Name == "output.weight" || p.Name == "token_embd.weight" && !own) {
			logits = max(logits, p.Shape[0])
		}
		if len(p.Shape) > 0 && strings.HasPrefix(p.Name, "blk.") && p.Shape.RowLen() < 1<<40 {
			widest = max(widest, p.Shape.RowLen())
		}
	}
	hidden := max(st.int("embedding_length", 0), 0)
	a.Work = 4 * (min(logits, 1<<32) + widest + 16*min(hidden, 1<<32))
}

// ExpertsOf finds the routed experts of a file, nil where it has none.
func ExpertsOf(f *File) (*Experts, error) {
	st, err := settingsOf(f)
	if err != nil {
		return nil, err
	}
	e := &Experts{First: f.Size}
	behind := int64(-1) // where the last of the other tensors stands
	for _, p := range f.Parts {
		if !order.IsExpert(p.Name) {
			behind = max(behind, p.Offset)
			continue
		}
		if err := e.add(p); err != nil {
			return nil, fmt.Errorf("%s: %w", f.Name, err)
		}
		e.First = min(e.First, p.Offset)
	}
	if len(e.Blocks) == 0 {
		return nil, nil
	}
	e.Last = behind < e.First
	e.Layers, e.Used = len(e.Blocks), st.int("expert_used_count", 0)
	if e.Used < 1 || e.Used > e.Count {
		return nil, fmt.Errorf("%s: %w: %d of %d experts used; key %s.expert_used_count", f.Name, model.ErrForm, e.Used, e.Count, st.arch)
	}
	return e, nil
}

// maxExperts bounds the experts of a layer: no model has as many.
const maxExperts = 1 << 14

// add counts a tensor of experts.
func (e *Experts) add(p Part) error {
	block, err := blockOf(p.Name)
	if err != nil {
		return err
	}
	if len(p.Shape) < 1 || p.Shape[0] < 1 || p.Shape[0] > maxExperts || e.Count != 0 && p.Shape[0] != e.Count {
		return fmt.Errorf("tensor %s: %w: shape %v among layers of %d experts", p.Name, model.ErrForm, p.Shape, e.Count)
	}
	e.Count = p.Shape[0]
	e.Bytes += p.Bytes
	for i, b := range e.Blocks {
		if b == block {
			e.Sizes[i] += p.Bytes / e.Count
			return nil
		}
	}
	at := len(e.Blocks)
	for at > 0 && e.Blocks[at-1] > block {
		at--
	}
	e.Blocks = append(e.Blocks[:at], append([]int{block}, e.Blocks[at:]...)...)
	e.Sizes = append(e.Sizes[:at], append([]int64{p.Bytes / e.Count}, e.Sizes[at:]...)...)
	return nil
}

// blockOf reads the number in blk.N.
func blockOf(name string) (int, error) {
	n, _, ok := model.Block(name)
	if !ok {
		return 0, fmt.Errorf("tensor %s: %w: no number of a layer", name, model.ErrForm)
	}
	return n, nil
}
