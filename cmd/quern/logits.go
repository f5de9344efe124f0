package main

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"math"
	"slices"
	"strconv"

	"github.com/urfave/cli/v2"

	"quern/formats/safetensors"
	"quern/internal/digest"
	infer "quern/runtime"
	"quern/tensor"
)

func logitsCommand() *cli.Command {
	flags := []cli.Flag{
		&cli.StringFlag{Name: "tokens", Usage: "the token `IDS` of the text, between commas"},
		&cli.StringFlag{Name: "prompt", Aliases: []string{"p"}, Usage: "the `TEXT` in words, instead"},
		&cli.BoolFlag{Name: "special", Usage: "take the texts of special tokens in the text for these"},
		&cli.StringFlag{Name: "out", Aliases: []string{"o"}, Usage: "write the logits to `FILE`, in safetensors form"},
		audioFlag(),
	}
	return &cli.Command{
		Name:      "logits",
		Usage:     "compute what a model expects after each token of a text",
		ArgsUsage: "FILE|FOLDER",
		Description: "The file holds one tensor, logits, of a row of float32 for each token; ids that the model cannot give have -Inf.\n" +
			"Their SHA-256 is the same on every machine and for any number of workers: it is a golden for the model.",
		Flags:  slices.Concat(flags, modelFlags(), []cli.Flag{orderFlag("quern")}),
		Action: runLogits,
	}
}

// logitsDoc is the document of quern logits --json.
type logitsDoc struct {
	Model  string  `json:"model"`
	Tokens []int32 `json:"tokens"`
	Vocab  int     `json:"vocab"`
	Act    string  `json:"act"`
	Order  string  `json:"order,omitempty"` // with 8-bit activations
	// SHA256 is that of all rows as they stand in the file.
	SHA256 string `json:"sha256"`
	File   string `json:"file,omitempty"`
	// Top are the most likely tokens after the last one.
	Top []topToken `json:"top"`
}

type topToken struct {
	ID    int32     `json:"id"`
	Text  string    `json:"text,omitempty"`
	Logit jsonFloat `json:"logit"`
}

// jsonFloat is null where JSON has no number.
type jsonFloat float32

func (f jsonFloat) MarshalJSON() ([]byte, error) {
	if v := float64(f); math.IsNaN(v) || math.IsInf(v, 0) {
		return []byte("null"), nil
	}
	return json.Marshal(float32(f))
}

func runLogits(c *cli.Context) (err error) {
	path, err := oneArg(c, "a model")
	if err != nil {
		return err
	}
	opt, err := sessionOptions(c)
	if err != nil {
		return err
	}
	if !c.IsSet("tokens") && !c.IsSet("prompt") || c.IsSet("tokens") && c.IsSet("prompt") {
		return usagef("logits: --tokens IDS or --prompt TEXT")
	}
	if c.IsSet("out") && c.String("out") == "" {
		return usagef("logits: --out is empty; name a file, or leave it out")
	}
	m, err := openMain(c, path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	tok, tokErr := m.Tokenizer()
	var ids []int32
	if c.IsSet("tokens") {
		ids, err = parseIDs("tokens", c.String("tokens"))
		if err == nil {
			err = checkIDs("tokens", ids, m.Info().Vocab)
		}
	} else {
		_, ids, err = promptOf(c, m.Info().Vocab, tok, tokErr)
	}
	if err != nil {
		return err
	}
	if opt.Context == 0 {
		// What depends on the context goes by the text, see docs/runtime.md.
		opt.Context = len(ids)
	}
	s, err := newSession(c, m, path, opt)
	if err != nil {
		return err
	}
	e := &logitsWriter{c: c, session: s, order: opt.Order, ids: ids, vocab: m.Info().Vocab, hash: digest.New()}
	out := c.String("out")
	if out == "" {
		err = e.eval(io.Discard)
	} else {
		err = writeOutput(c, out, e.file)
	}
	if err != nil {
		return err
	}
	order := ""
	if opt.Act == infer.Q8 {
		order = opt.Order.String()
	}
	doc := logitsDoc{Model: modelName(path), Tokens: ids, Vocab: e.vocab, Act: opt.Act.String(), Order: order, SHA256: hex.EncodeToString(e.hash.Sum(nil)), File: out, Top: e.top(tok)}
	if c.Bool("json") {
		return printJSON(c, doc)
	}
	w := c.App.Writer
	fmt.Fprintf(w, "%s: %d rows of %d logits, SHA-256 %s\n", doc.Model, len(ids), e.vocab, doc.SHA256)
	for _, t := range doc.Top {
		if _, err = fmt.Fprintf(w, "%8d  %10.5f  %q\n", t.ID, float32(t.Logit), t.Text); err != nil {
			return err
		}
	}
	return nil
}

// logitsWriter evaluates a text and passes its logits on.
type logitsWriter struct {
	c       *cli.Context
	session infer.Session
	order   infer.Order
	ids     []int32
	vocab   int
	hash    hash.Hash
	last    []float32
}

// file writes a safetensors file.
func (e *logitsWriter) file(w io.Writer) error {
	spec := safetensors.TensorSpec{Name: "logits", Type: tensor.F32, Shape: tensor.Shape{int64(len(e.ids)), int64(e.vocab)}}
	l, err := safetensors.NewLayout([]safetensors.KV{{Key: "tokens", Value: joinIDs(e.ids)}}, []safetensors.TensorSpec{spec})
	if err != nil {
		return err
	}
	pw, err := l.NewWriter(w)
	if err != nil {
		return err
	}
	if err := e.eval(pw); err != nil {
		return err
	}
	return pw.Close()
}

// eval writes all rows, little-endian.
func (e *logitsWriter) eval(w io.Writer) error {
	want := make([]int, len(e.ids))
	for i := range want {
		want[i] = i
	}
	buf := make([]byte, 0, 4*e.vocab)
	rows := 0
	each := func(_ int, logits []float32) error {
		buf = infer.AppendLogits(buf[:0], logits)
		e.hash.Write(buf)
		if rows++; rows == len(e.ids) {
			e.last = append(e.last[:0], logits...)
		}
		_, err := w.Write(buf)
		return err
	}
	// What starting took is given back once all is there that evaluation takes, but in
	// ggml's order, whose results go by how a text is cut.
	n := len(e.ids)
	if e.order == infer.OrderQuern {
		n = min(128, n)
	}
	if err := e.session.Eval(e.c.Context, e.ids[:n], want[:n], each); err != nil {
		return err
	}
	settle()
	if n == len(e.ids) {
		return nil
	}
	return e.session.Eval(e.c.Context, e.ids[n:], want[:len(e.ids)-n], each)
}

// top lists the most likely tokens after the last.
func (e *logitsWriter) top(tok infer.Tokenizer) []topToken {
	out := []topToken{}
	for range min(5, len(e.last)) {
		best := 0
		for i, v := range e.last {
			if v > e.last[best] || e.last[best] != e.last[best] {
				best = i
			}
		}
		t := topToken{ID: int32(best), Logit: jsonFloat(e.last[best])}
		if tok != nil {
			t.Text = tok.Piece(t.ID, true)
		}
		out = append(out, t)
		e.last[best] = float32(math.Inf(-1))
	}
	return out
}

// tokenList shows ids with their pieces, one a line.
func tokenList(w io.Writer, tok infer.Tokenizer, ids []int32) error {
	for _, id := range ids {
		if _, err := fmt.Fprintf(w, "%8s  %q\n", strconv.Itoa(int(id)), tok.Piece(id, true)); err != nil {
			return err
		}
	}
	return nil
}
