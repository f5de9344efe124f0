package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/urfave/cli/v2"

	"quern/pipeline"
	infer "quern/runtime"
	"quern/runtime/generate"
	"quern/tokenizer"
)

func runCommand() *cli.Command {
	flags := []cli.Flag{
		&cli.StringFlag{Name: "prompt", Aliases: []string{"p"}, Usage: "the `TEXT` to go on from; - reads standard input"},
		&cli.StringFlag{Name: "prompt-tokens", Usage: "the prompt as token `IDS` between commas, taken as they are; for files without a tokenizer"},
		&cli.BoolFlag{Name: "special", Usage: "take the texts of special tokens in the prompt for these"},
		&cli.IntFlag{Name: "n", Value: 128, Usage: "make at most this many `TOKENS`; 0 goes on to the end of the context"},
		&cli.BoolFlag{Name: "tokens", Usage: "print token ids instead of text"},
		&cli.BoolFlag{Name: "ignore-end", Usage: "go on behind tokens that end an answer"},
		audioFlag(),
		&cli.StringFlag{Name: "language", Usage: "the `CODE` of the language that is spoken, such as en; the model finds out otherwise"},
	}
	return &cli.Command{
		Name:      "run",
		Usage:     "let a model continue a text",
		ArgsUsage: "FILE|FOLDER",
		Description: "Runs a GGUF file, a KMCU file, a .cact archive or a model folder on the CPU, the same to the last bit on every machine.\n" +
			"Without a temperature the most likely token is taken each time. The text appears as it is made. A speech model (a .cact\n" +
			"archive of Whistle) writes down what it hears in --audio.",
		Flags:  slices.Concat(flags, chatFlags(), samplingFlags(), modelFlags(), []cli.Flag{orderFlag("quern")}),
		Action: runRun,
	}
}

func samplingFlags() []cli.Flag {
	return []cli.Flag{
		&cli.Float64Flag{Name: "temperature", Usage: "draw tokens by chance, the hotter the freer; 0 takes the most likely"},
		&cli.IntFlag{Name: "top-k", Value: 40, Usage: "draw from this many of the most likely tokens; 0 means all"},
		&cli.Float64Flag{Name: "top-p", Value: 0.95, Usage: "draw from the most likely tokens that sum up to this probability"},
		&cli.Float64Flag{Name: "min-p", Value: 0.05, Usage: "draw from tokens at least this many times as likely as the most likely"},
		&cli.Float64Flag{Name: "repeat-penalty", Value: 1, Usage: "make the latest 256 tokens less likely; 1 means not"},
		&cli.Uint64Flag{Name: "seed", Usage: "start of the random numbers: equal seeds give equal texts"},
	}
}

func sampling(c *cli.Context, tok infer.Tokenizer) (generate.Sampling, error) {
	s := generate.Sampling{Temperature: c.Float64("temperature"), TopK: c.Int("top-k"), TopP: c.Float64("top-p"), MinP: c.Float64("min-p"),
		RepeatPenalty: c.Float64("repeat-penalty"), Seed: c.Uint64("seed")}
	if u, ok := tok.(interface{ IsUnused(id int32) bool }); ok {
		s.Banned = u.IsUnused
	}
	if s.RepeatPenalty == 0 {
		return s, usagef("--repeat-penalty 0: a number above 0, 1 for none")
	}
	if err := s.Check(); err != nil {
		return s, usagef("%v", err)
	}
	return s, nil
}

// runDoc is the document of quern run --json.
type runDoc struct {
	Model string `json:"model"`
	// Rendered is what the chat template made of a conversation.
	Rendered string        `json:"prompt_text,omitempty"`
	Prompt   []int32       `json:"prompt_tokens"`
	Tokens   []int32       `json:"tokens"`
	Text     string        `json:"text,omitempty"`
	Stop     generate.Stop `json:"stop"`
	// Order is that of operations, with 8-bit activations.
	Order string `json:"order,omitempty"`
	// Language is what a speech model heard.
	Language string `json:"language,omitempty"`
	// Speeds are in tokens a second, 0 when nothing was made.
	PromptSpeed float64   `json:"prompt_tokens_per_second"`
	Speed       float64   `json:"tokens_per_second"`
	Memory      memoryUse `json:"memory"`
}

// memoryUse says what a run took, in bytes.
type memoryUse struct {
	// Weights is the size of all tensors; they are mapped, and pages that were
	// touched are in Peak. KeysAndValues is what the text takes.
	Weights       int64 `json:"weights"`
	KeysAndValues int64 `json:"keys_and_values,omitempty"`
	Peak          int64 `json:"peak,omitempty"`
}

// memoryOf prepares to say what a run of a session took until then.
func memoryOf(m infer.Model, s infer.Session) func() memoryUse {
	weights := m.Info().Bytes
	c, _ := s.(interface{ CacheBytes() int64 })
	return func() memoryUse {
		use := memoryUse{Weights: weights, Peak: peakMemory()}
		if c != nil {
			use.KeysAndValues = c.CacheBytes()
		}
		return use
	}
}

func runRun(c *cli.Context) (err error) {
	path, err := oneArg(c, "a model")
	if err != nil {
		return err
	}
	opt, err := sessionOptions(c)
	if err != nil {
		return err
	}
	if c.Int("n") < 0 {
		return usagef("-n %d: a number of tokens, or 0", c.Int("n"))
	}
	m, err := openMain(c, path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	tok, tokErr := m.Tokenizer()
	if isSpeech(m) {
		g := generate.Options{Max: c.Int("n")}
		if g.Sampling, err = sampling(c, tok); err != nil {
			return err
		}
		if tokErr == nil && !c.Bool("ignore-end") {
			g.End = tok.IsEnd
		}
		return transcribe(c, m, path, opt, g)
	}
	if c.IsSet("language") {
		return usagef("--language: %s is no speech model", modelName(path))
	}
	rendered, prompt, err := promptOf(c, m.Info().Vocab, tok, tokErr)
	if err != nil {
		return err
	}
	text := tokErr == nil && !c.Bool("tokens")
	if !text && tokErr != nil && !c.Bool("tokens") && !c.Bool("json") {
		return usagef("%v; --tokens prints ids", tokErr)
	}
	g := generate.Options{Max: c.Int("n")}
	if g.Sampling, err = sampling(c, tok); err != nil {
		return err
	}
	if tokErr == nil && !c.Bool("ignore-end") {
		g.End = tok.IsEnd
	}
	if n := c.Int("n"); opt.Context == 0 && n > 0 && m.Info().Context > 0 {
		// What depends on the context goes by how long the text can get.
		opt.Context = min(m.Info().Context, len(prompt)+n)
	}
	s, err := newSession(c, m, path, opt)
	if err != nil {
		return err
	}
	var finish func() error
	if !c.Bool("json") {
		g.Each, finish = printer(c.App.Writer, tok, text)
	}
	memory := memoryOf(m, s)
	if opt.Order == infer.OrderQuern { // whose results do not go by how the prompt is cut
		leanly(&g)
	}
	a, err := generate.Run(c.Context, s, prompt, g)
	if finish != nil && (err == nil || len(a.Tokens) > 0) {
		if ferr := finish(); err == nil {
			err = ferr
		}
	}
	if err != nil {
		return err
	}

	use := memory()
	// What printing takes should not come on top of the model.
	if err := m.Close(); err != nil {
		return err
	}
	doc := runDoc{Model: modelName(path), Rendered: rendered, Prompt: prompt, Tokens: a.Tokens, Stop: a.Stop,
		PromptSpeed: speed(len(prompt), a.Prompt), Speed: speed(len(a.Tokens)-1, a.Making), Memory: use}
	if opt.Act == infer.Q8 {
		doc.Order = opt.Order.String()
	}
	if tokErr == nil {
		doc.Text = tok.Decode(a.Tokens, tokenizer.DecodeOptions{})
	}
	if c.Bool("json") {
		return printJSON(c, doc)
	}
	_, err = fmt.Fprintf(c.App.ErrWriter, "prompt: %d tokens, %.1f a second; made: %d tokens, %.1f a second; ended by: %s\n",
		len(prompt), doc.PromptSpeed, len(a.Tokens), doc.Speed, a.Stop)
	return err
}

func speed(n int, d time.Duration) float64 {
	if n <= 0 || d <= 0 {
		return 0
	}
	return float64(n) / d.Seconds()
}

// promptOf gives the ids of the prompt: as given, those of the text with what the
// vocabulary puts before it, or those of a conversation, with the text that the
// chat template made of it.
func promptOf(c *cli.Context, vocab int, tok infer.Tokenizer, tokErr error) (rendered string, ids []int32, err error) {
	if err := checkChat(c); err != nil {
		return "", nil, err
	}
	if c.IsSet("prompt-tokens") {
		if c.IsSet("prompt") || wantsChat(c) {
			return "", nil, usagef("--prompt-tokens is all of the prompt: no --prompt, --chat or --messages beside it")
		}
		if ids, err = parseIDs("prompt-tokens", c.String("prompt-tokens")); err == nil {
			err = checkIDs("prompt-tokens", ids, vocab)
		}
		return "", ids, err
	}
	if tokErr != nil {
		return "", nil, fmt.Errorf("%w; give the prompt by --prompt-tokens, or a --tokenizer", tokErr)
	}
	text := c.String("prompt")
	if text == "-" {
		b, err := io.ReadAll(c.App.Reader)
		if err != nil {
			return "", nil, pipeline.SourceFault(err)
		}
		text = string(b)
	}
	switch {
	case c.IsSet("messages") && c.IsSet("prompt"):
		return "", nil, usagef("--prompt or --messages, not both")
	case wantsChat(c):
		rendered, ids, err = chatPrompt(c, tok, text)
	default:
		ids, err = tok.Encode(text, tokenizer.EncodeOptions{Special: true, Parse: c.Bool("special")})
	}
	if err == nil && len(ids) == 0 {
		return "", nil, usagef("run: the prompt has no tokens, and the vocabulary puts none before it; --prompt TEXT")
	}
	return rendered, ids, err
}

// printer shows tokens as they come: ids between commas, or text as far as its
// characters are whole.
func printer(w io.Writer, tok infer.Tokenizer, text bool) (each func(id int32) error, finish func() error) {
	if !text {
		n := 0
		return func(id int32) error {
				sep := ","
				if n == 0 {
					sep = ""
				}
				n++
				_, err := fmt.Fprintf(w, "%s%d", sep, id)
				return err
			}, func() error {
				_, err := fmt.Fprintln(w)
				return err
			}
	}
	stream := tokenizer.StreamOf(func(id int32) string { return tok.Piece(id, false) })
	return func(id int32) error {
			_, err := w.Write([]byte(stream.Next(id)))
			return err
		}, func() error {
			_, err := io.WriteString(w, stream.Flush()+"\n")
			return err
		}
}
