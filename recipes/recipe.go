// Package recipes reads the YAML recipes that drive a build: strictly, with
// file:line:column in every error and the nearest right key.
//
// The schema (schema.go) is one table. The parser checks against it, and the
// reference in docs/ and the JSON Schema for editors are printed from it.
package recipes

import (
	"fmt"
	"path/filepath"
)

// Pos is a place in a recipe file. Line and Column count from 1, columns in
// characters. For a value that --set gave, File is the override's text and
// Line is 0.
type Pos struct {
	File   string
	Line   int
	Column int
}

// String writes file:line:column.
func (p Pos) String() string {
	if p.Line == 0 {
		return p.File
	}
	return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column)
}

// MarshalText gives String, so that JSON shows positions as messages do.
func (p Pos) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// Recipe is a parsed recipe. Order is that of the file.
type Recipe struct {
	Version int
	Name    string
	Sources []Source
	Steps   []Step
	Outputs []Output
	Gates   []Gate

	// File is the path the recipe was read from, Dir its folder: relative
	// source paths start there.
	File string
	Dir  string
}

// Source finds a source by name, or nil.
func (r *Recipe) Source(name string) *Source {
	for i := range r.Sources {
		if r.Sources[i].Name == name {
			return &r.Sources[i]
		}
	}
	return nil
}

// Path resolves the value of a dir, file or gguf source: relative ones start
// at the recipe's folder.
func (r *Recipe) Path(s *Source) string {
	if filepath.IsAbs(s.Value) {
		return s.Value
	}
	return filepath.Join(r.Dir, filepath.FromSlash(s.Value))
}

// SourceKind says how a source is reached.
type SourceKind string

// The kinds of sources.
const (
	SourceDir      SourceKind = "dir"
	SourceFile     SourceKind = "file"
	SourceGGUF     SourceKind = "gguf"
	SourceURL      SourceKind = "url"
	SourceHF       SourceKind = "hf"
	SourceArtifact SourceKind = "artifact"
)

// Source is one entry of sources: {hf: org/name@revision} and the like.
type Source struct {
	Name   string
	Kind   SourceKind
	Value  string
	Path   string // of one file in an hf: repository; empty for the model that it holds
	SHA256 string // optional pinned digest of file:, gguf: and url:, lower-case hex
	Pos    Pos
}

// Step is one entry of steps. Params is the step's own struct (TieHead, Pad,
// Quantize, Convert, Lora, Layers, Width, Reorder) by value, never nil, with its defaults filled in.
type Step struct {
	Kind   string
	ID     string
	Params any
	Pos    Pos
	IDPos  Pos

	index int // in the file
}

// Convert says how a Hugging Face model becomes GGUF: what
// convert_hf_to_gguf.py takes as flags. It is implied, with outtype f16,
// before the first step or output that needs GGUF form.
type Convert struct {
	OutType   string // f32, f16, bf16, q8_0 or auto
	ModelName string // --model-name
	MTP       string // without, only, or empty for all layers
}

// TieHead drops the output head so that the embedding serves for both.
type TieHead struct {
	Force bool // throw away a head that differs from the embedding
}

// Pad grows axes with zeros so that the function stays the same. A zero field
// pads nothing.
type Pad struct {
	FFN   int64 // feed-forward width to the next multiple
	Vocab int64 // vocabulary rows to the next multiple
}

// Codebook fits CQ codebooks to the weights of a Needle checkpoint.
type Codebook struct {
	Bits    []int64 // widths, empty for 4, 3 and 2
	Group   int64
	Samples int64 // coordinates that the fit is of, at most
	Rounds  int64
}

// Lora merges a LoRA adapter into a Needle checkpoint.
type Lora struct {
	Adapter string   // the source with the adapter
	Scale   *float64 // in place of the one that the adapter says
}

// Layers cuts a Needle model to a rung of its depth ladder.
type Layers struct {
	Count int64
}

// Width cuts a Needle model to half its width.
type Width struct {
	To int64 // the new d_model
}

// Reorder moves tensors within a GGUF file.
type Reorder struct {
	Experts string // last, or restore for the order before
	Align   int64  // bytes that the first expert's place in the file is a multiple of, 0 for GGUF's own alignment
	By      string // the source or step with counts by which experts are ordered, empty to keep their order
}

// Rule picks a type for the tensors that match; the first match wins. Match is
// a regular expression searched in the GGUF name, Role one of the roles of the
// reference; a rule has one of them or both (then both must hold).
type Rule struct {
	Match string
	Role  string
	Type  string
	Pos   Pos
}

// Quantize chooses tensor types. Exactly one of Type, Preset and Bits is set.
type Quantize struct {
	Type          string // one type for all tensors that llama-quantize would touch (--pure)
	Preset        string // llama-quantize's mix of that name
	Pure          bool   // with Preset: no mix, as --pure
	Fallback      string // type for rows that do not divide into blocks, with Type and rules
	OutputType    string // --output-tensor-type
	EmbeddingType string // --token-embedding-type
	Rules         []Rule
	// AllowRequantize lets a source tensor that is quantized already be
	// quantized again, with the errors of both.
	AllowRequantize bool
	// Budget bounds the file in bytes, BitsPerWeight its tensors; either picks
	// types per tensor by measured error, from Types if given.
	Budget        int64
	BitsPerWeight float64
	Types         []string
	LeaveOutput   bool // the output head stays as it is
	// IncludeWeights and ExcludeWeights name parts of tensor names whose
	// importance weights are used alone, or not at all.
	IncludeWeights []string
	ExcludeWeights []string
	// Imatrix names the source with the importance matrix, ImatrixName is what
	// the file's metadata calls it, Missing says what happens to tensors that
	// it lacks: note, error or a type. MaxUnseen bounds the experts of one
	// tensor that it has no data for.
	Imatrix     string
	ImatrixName string
	Missing     string
	MaxUnseen   *int64
	// Bits gives CQ widths by name, as name=bits with a default; Group is how
	// many weights share a norm, 0 for 128. Both are for Needle checkpoints.
	Bits       string
	Group      int64
	Codebook   string // id of a codebook step, or a source
	TypePos    Pos
	ImatrixPos Pos
}

// Imatrix makes an importance matrix of the model.
type Imatrix struct {
	Text         string // source
	Context      int64  // tokens in a chunk
	Chunks       int64  // 0 for all
	Output       bool   // the output head too
	ParseSpecial bool
}

// Output is one file to write.
type Output struct {
	Format  string   // gguf, kmcu or cact
	File    string   // relative, stays inside -o
	To      []string // targets, as artifacts/sink parses them; none means File in -o
	OutType string   // gguf from a Hugging Face model without a convert step
	// SplitSize and SplitTensors bound the tensor bytes and the tensors of a
	// gguf file; more are written as shards. 0 means no bound.
	SplitSize     int64
	SplitTensors  int64
	NoTensorFirst bool     // the first shard has metadata only
	Repack        []string // layouts of the repack caches written beside a gguf file
	Flash         int64    // kmcu: partition size in bytes, 0 for none
	Align         string   // kmcu: row (default) or none
	MaxSeq        int64    // kmcu: overrides max_position_embeddings in the header, 0 for none
	// Generation of a cact output: 2, 3, or 0 for the model's.
	Generation int64
	Pos        Pos
}
