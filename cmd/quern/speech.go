package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/urfave/cli/v2"

	"quern/formats/wav"
	"quern/pipeline"
	infer "quern/runtime"
	"quern/runtime/generate"
	"quern/runtime/needle"
	"quern/tokenizer"
)

func audioFlag() cli.Flag {
	return &cli.StringFlag{Name: "audio", Usage: "the WAV `FILE` that a speech model is to listen to, of up to 30 seconds"}
}

// listener is a model that may be one of speech.
type listener interface {
	infer.Model
	IsSpeech() bool
	SampleRate() int
	Tags() (first, end int32)
	Hear(ctx context.Context, samples []float32, opt infer.SessionOptions, more needle.Options) (*needle.Heard, error)
	NewSessionWith(opt infer.SessionOptions, more needle.Options) (infer.Session, error)
}

// unwrapped is a model without the tokenizer that it has borrowed.
func unwrapped(m infer.Model) infer.Model {
	if w, ok := m.(interface{ Unwrap() infer.Model }); ok {
		return w.Unwrap()
	}
	return m
}

// isSpeech reports whether a model wants --audio.
func isSpeech(m infer.Model) bool {
	l, ok := unwrapped(m).(listener)
	return ok && l.IsSpeech()
}

// maxAudio bounds a sound file; 30 seconds of anything are far less.
const maxAudio = 256 << 20

// newSession starts a session of a model: of a speech model one that has heard what
// --audio names.
func newSession(c *cli.Context, m infer.Model, path string, opt infer.SessionOptions) (infer.Session, error) {
	file := c.String("audio")
	switch speech := isSpeech(m); {
	case !speech && file != "":
		return nil, usagef("--audio: %s is no speech model", modelName(path))
	case !speech:
		return m.NewSession(opt)
	case file == "":
		return nil, usagef("%s: %s is a speech model; --audio FILE gives it a sound", c.Command.Name, modelName(path))
	}
	st, err := os.Stat(file)
	if err == nil && st.Size() > maxAudio {
		err = fmt.Errorf("%s: %d bytes, more than the %d that are read", file, st.Size(), maxAudio)
	}
	if err != nil {
		return nil, pipeline.SourceFault(err)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, pipeline.SourceFault(err)
	}
	sound, err := wav.Parse(file, b)
	if err != nil {
		return nil, pipeline.SourceFault(err)
	}
	l := unwrapped(m).(listener)
	if sound.Rate != l.SampleRate() {
		return nil, usagef("--audio: %s has %d samples a second, the model listens to %d; resample it first", file, sound.Rate, l.SampleRate())
	}
	h, err := l.Hear(c.Context, sound.Samples, opt, needle.Options{Round8: opt.Act == infer.Q8})
	if err != nil {
		return nil, err
	}
	return l.NewSessionWith(opt, needle.Options{Heard: h})
}

// transcribe writes down what a speech model hears: the tag of a language first, the
// one asked for or the likeliest, then the likeliest pieces that are no tag.
func transcribe(c *cli.Context, m infer.Model, path string, opt infer.SessionOptions, g generate.Options) error {
	tok, err := m.Tokenizer()
	if err != nil {
		return fmt.Errorf("%w; give a --tokenizer", err)
	}
	starts, ok := tok.(interface{ BOS() int32 })
	if !ok {
		return usagef("--tokenizer: that of a .cact archive is needed")
	}
	if c.IsSet("prompt") || c.IsSet("prompt-tokens") {
		return usagef("run: a speech model writes down what it hears and takes no prompt")
	}
	s, err := newSession(c, m, path, opt)
	if err != nil {
		return err
	}
	first, end := unwrapped(m).(listener).Tags()
	logits, err := infer.Last(c.Context, s, []int32{starts.BOS()}, nil)
	if err != nil {
		return err
	}
	tag, err := pickTag(tok, logits, first, end, c.String("language"))
	if err != nil {
		return err
	}
	banned := g.Banned
	g.Banned = func(id int32) bool { return id >= first || banned != nil && banned(id) }
	var finish func() error
	if !c.Bool("json") {
		g.Each, finish = printer(c.App.Writer, tok, !c.Bool("tokens"))
	}
	a, err := generate.Run(c.Context, s, []int32{tag}, g)
	if finish != nil {
		err = errors.Join(err, finish())
	}
	if err != nil {
		return err
	}
	doc := runDoc{Model: modelName(path), Prompt: []int32{starts.BOS(), tag}, Tokens: a.Tokens, Stop: a.Stop, Language: languageOf(tok, tag),
		Text: tok.Decode(a.Tokens, tokenizer.DecodeOptions{}), Speed: speed(len(a.Tokens)-1, a.Making), Memory: memoryOf(m, s)()}
	if c.Bool("json") {
		return printJSON(c, doc)
	}
	_, err = fmt.Fprintf(c.App.ErrWriter, "language: %s; made: %d tokens, %.1f a second; ended by: %s\n", doc.Language, len(a.Tokens), doc.Speed, a.Stop)
	return err
}

func languageOf(tok infer.Tokenizer, tag int32) string {
	return strings.TrimSuffix(strings.TrimPrefix(tok.Piece(tag, true), "<|"), "|>")
}

// pickTag gives the tag of a language, or of the likeliest.
func pickTag(tok infer.Tokenizer, logits []float32, first, end int32, language string) (int32, error) {
	best := first
	var known []string
	for id := first; id < end; id++ {
		l := languageOf(tok, id)
		if l == language {
			return id, nil
		}
		known = append(known, l)
		if logits[id] > logits[best] {
			best = id
		}
	}
	if language != "" {
		return 0, usagef("--language %s: the model knows %s", language, strings.Join(known, ", "))
	}
	return best, nil
}
