package recipes

import (
	"encoding/json"
	"math/big"
	"reflect"
	"strconv"
	"strings"
)

// Gate is a condition that the written artifact must meet. Params is the
// gate's own struct (TensorsGate) by value.
type Gate struct {
	Kind   string // tensors
	Params any
	Pos    Pos

	index int // in the file
}

// Output is the file of the only output that the gate is for, or nothing.
func (g Gate) Output() string {
	if f := reflect.ValueOf(g.Params).FieldByName("Output"); f.IsValid() {
		return f.String()
	}
	return ""
}

// TensorsGate bounds the per-tensor errors of the artifact against its source.
type TensorsGate struct {
	MinSNRdB *float64
	MaxAbs   *float64
	MaxRMS   *float64
	Output   string
}

// ScoreGate bounds how well the artifact foretells a text. At least one of Max
// and MaxIncrease is set.
type ScoreGate struct {
	Text    string // source
	Context int64  // tokens in a chunk
	Chunks  int64  // 0 for all
	Act     string // exact, q8, or nothing for what the format's engine computes
	Max     *float64
	// Baseline is what MaxIncrease compares with: BaselineSource, or the name of
	// a source.
	Baseline    string
	MaxIncrease *Share
	Output      string
}

// PerplexityGate bounds the perplexity.
type PerplexityGate ScoreGate

// BitsPerByteGate bounds the bits for a byte of text.
type BitsPerByteGate ScoreGate

// BaselineSource is the baseline that is made of the recipe's own source.
const BaselineSource = baselineSource

// DivergenceGate bounds how far the artifact's probabilities are from a
// baseline's. At least one of Max and MinTop1 is set.
type DivergenceGate struct {
	Text     string
	Context  int64
	Chunks   int64
	Act      string
	Baseline string
	Max      *float64 // mean, in nats
	MinTop1  *Share   // of positions
	Output   string
}

// TokensGate demands golden tokens. Exactly one of Prompt, IDs and File is set.
type TokensGate struct {
	Prompt string
	IDs    []int32
	File   string // source
	Expect []int32
	Act    string
	Output string
}

// LogitsGate demands golden logits. Exactly one of SHA256 and File is set; IDs
// may be empty with File.
type LogitsGate struct {
	IDs    []int32
	SHA256 string
	File   string // source
	MaxAbs *float64
	Act    string
	Output string
}

// LoopsGate bounds the share of long answers that fall into loops. Nil numbers
// stand for the defaults of quern loops.
type LoopsGate struct {
	Text string // source
	// At least one of Max and MaxIncrease is set. MaxIncrease is by how much the
	// share may be above the Baseline's, 0.05 for five answers of a hundred.
	Max           *Share
	Baseline      string // BaselineSource, or the name of a source
	MaxIncrease   *Share
	Answers       int64
	Tokens        int64 // of an answer
	Prompt        int64 // tokens
	Temperature   *float64
	TopK          *int64 // never nil
	TopP          *float64
	MinP          *float64
	RepeatPenalty *float64
	Seed          int64
	Act           string
	Output        string
}

// TokenizerGate demands the ids of the source's tokenizer, or of a file.
type TokenizerGate struct {
	File         string // source
	ParseSpecial bool
	Max          int64 // strings that may differ
	Output       string
}

// Share is a part of a whole, 0.05 for 5 %.
type Share float64

// String writes a percentage, exactly.
func (s Share) String() string {
	r, ok := new(big.Rat).SetString(strconv.FormatFloat(float64(s), 'g', -1, 64))
	if !ok {
		return "NaN %"
	}
	text := r.Mul(r, big.NewRat(100, 1)).FloatString(20)
	return strings.TrimSuffix(strings.TrimRight(text, "0"), ".") + " %"
}

// MarshalJSON writes a number, or a percentage where a number would be
// ambiguous.
func (s Share) MarshalJSON() ([]byte, error) {
	if s < 1 {
		return json.Marshal(float64(s))
	}
	return json.Marshal(s.String())
}
