package tokenizer

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"unicode/utf8"
)

// Files reads whole small files of a model folder by their slash-separated
// paths. A missing file is fs.ErrNotExist; a file longer than limit bytes is an
// error before it is read.
type Files interface {
	ReadFile(ctx context.Context, path string, limit int64) ([]byte, error)
}

// Limits on the side files. The largest published tokenizer.json has 33 MB.
const (
	limitTokenizer = 256 << 20
	limitConfig    = 32 << 20
)

// LoadOptions are the optional inputs of Load.
type LoadOptions struct {
	// Paths is the folder's listing; only needed to find
	// additional_chat_templates/*.jinja.
	Paths []string
	// Pre overrides the pre-tokenizer's name and the checks around it. Empty:
	// it is found by definition and probe hash.
	Pre string
}

// Load reads the tokenizer files of a model in Hugging Face form and makes of
// them what llama.cpp's converter would write for the architecture.
//
// Errors wrap ErrNoTokenizer, ErrFormat (with file:line:column), ErrUnsupported,
// ErrUnknownPre, ErrPreConflict, ErrVocabSize or ErrSpecialID.
func Load(ctx context.Context, files Files, cfg Config, opt LoadOptions) (*Vocabulary, error) {
	l := &loader{ctx: ctx, files: files, cfg: cfg, opt: opt, v: &Vocabulary{keys: newKeyList()}}
	if err := l.readSideFiles(); err != nil {
		return nil, err
	}
	var err error
	switch cfg.Architecture {
	case "LlamaForCausalLM", "LLaMAForCausalLM", "MistralForCausalLM", "MixtralForCausalLM":
		err = l.llama()
	case "Qwen2ForCausalLM", "Qwen3ForCausalLM":
		err = l.qwen()
	case "Gemma3ForCausalLM", "Gemma3ForConditionalGeneration":
		err = l.gemma3()
	default:
		err = l.bpe()
	}
	if err != nil {
		return nil, err
	}
	extra := append([]int64(nil), cfg.EndIDs...)
	if id, ok := cfg.TokenIDs["eos"]; ok {
		extra = append(extra, id)
	}
	l.v.setEnds(append(extra, l.generationEnds...))
	l.v.Warnings = append(l.v.Warnings, l.v.Lint()...)
	return l.v, nil
}

type loader struct {
	ctx   context.Context
	files Files
	cfg   Config
	opt   LoadOptions
	v     *Vocabulary

	side           sideFiles
	hf             *hfTokenizer // tokenizer.json or what takes its place
	spModel        []byte       // tokenizer.model, nil when absent
	addedTokens    *jsonObject
	generationEnds []int64
}

// read returns nil for a file that does not exist.
func (l *loader) read(name string, limit int64) ([]byte, error) {
	data, err := l.files.ReadFile(l.ctx, name, limit)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if data == nil {
		data = []byte{}
	}
	return data, nil
}

func (l *loader) readObject(name string) (*jsonObject, error) {
	data, err := l.read(name, limitConfig)
	if data == nil || err != nil {
		return nil, err
	}
	o, err := parseObject(name, data, true)
	if o != nil && len(o.dups) > 0 {
		l.warnf("%s: key %q occurs twice; the later value counts", name, o.dups[0])
	}
	return o, err
}

func (l *loader) warnf(format string, args ...any) {
	l.v.Warnings = append(l.v.Warnings, fmt.Sprintf(format, args...))
}

func (l *loader) readSideFiles() error {
	var err error
	l.side.model = l.cfg
	if l.spModel, err = l.read("tokenizer.model", limitTokenizer); err != nil {
		return err
	}
	data, err := l.read("tokenizer.json", limitTokenizer)
	if err != nil {
		return err
	}
	if data != nil {
		if l.hf, err = parseHF("tokenizer.json", data); err != nil {
			return err
		}
		l.side.tokenizer = l.hf
	}
	if l.side.config, err = l.readObject("tokenizer_config.json"); err != nil {
		return err
	}
	if l.addedTokens, err = l.readObject("added_tokens.json"); err != nil {
		return err
	}
	if l.side.mergesTxt, err = l.read("merges.txt", limitTokenizer); err != nil {
		return err
	}
	if data, err = l.read("generation_config.json", limitConfig); err != nil {
		return err
	}
	if data != nil {
		l.generationEnds = endsOf(data)
	}
	return l.readTemplates()
}

func (l *loader) readTemplates() error {
	t := &l.side.templates
	jinja, err := l.readText("chat_template.jinja")
	if err != nil {
		return err
	}
	if t.jinja = jinja; jinja != nil {
		for _, p := range additionalTemplates(l.opt.Paths) {
			text, err := l.readText(p)
			if err != nil {
				return err
			}
			if text != nil {
				name := strings.TrimSuffix(path.Base(p), ".jinja")
				t.more = append(t.more, namedTemplate{name, *text})
			}
		}
	}
	o, err := l.readObject("chat_template.json")
	if o != nil {
		t.hasJS, t.json = true, o.get("chat_template")
	}
	return err
}

// readText reads a template as Python reads text: all line ends become "\n".
func (l *loader) readText(name string) (*string, error) {
	data, err := l.read(name, limitConfig)
	if data == nil || err != nil {
		return nil, err
	}
	if !utf8.Valid(data) {
		return nil, fmt.Errorf("%s: offset %d: invalid UTF-8: %w", name, firstInvalidUTF8(data), ErrFormat)
	}
	s := strings.ReplaceAll(strings.ReplaceAll(string(data), "\r\n", "\n"), "\r", "\n")
	return &s, nil
}

// finish finds the special tokens and writes them after the vocabulary.
func (l *loader) finish(types []string, limit int64, merges bool) error {
	s, err := findSpecials(&l.side, types, limit, merges)
	if err != nil {
		return err
	}
	l.v.Warnings = append(l.v.Warnings, s.warns...)
	if merges {
		l.v.Merges = s.merges
		l.v.keys.reserve(keyMerges)
		if len(s.merges) == 0 {
			l.warnf("the tokenizer has no merges")
		}
	}
	if err := s.write(l.v.keys); err != nil {
		return err
	}
	for _, typ := range []string{"bos", "eos", "unk", "sep", "pad", "mask", "eot", "eom"} {
		if id, ok := l.v.keys.vals[specialKey(typ)].(uint32); ok && int64(id) >= int64(len(l.v.Tokens)) {
			return fmt.Errorf("%s: id %d, the vocabulary has %d tokens: %w", specialKey(typ), id, len(l.v.Tokens), ErrSpecialID)
		}
	}
	return nil
}

// llama is the rule for Llama, Mistral and Mixtral.
func (l *loader) llama() error {
	if l.side.tokenizer == nil {
		tekken, err := l.read("tekken.json", limitTokenizer)
		if err != nil {
			return err
		}
		if tekken != nil {
			return fmt.Errorf("tekken.json without tokenizer.json: %w", ErrUnsupported)
		}
	}
	if add, ok := l.side.config.boolean("add_prefix_space"); ok {
		l.v.keys.set(keyAddPrefix, add)
	}
	var err error
	switch {
	case l.spModel != nil:
		err = l.sentencePiece()
	case l.side.tokenizer.isByteFallback():
		err = l.byteFallback()
	default:
		err = l.bpe()
	}
	if err != nil {
		return err
	}
	switch l.cfg.VocabSize {
	case 32016: // Code Llama: the end of a fill-in-the-middle text
		s, err := findSpecials(&l.side, []string{"prefix", "suffix", "middle", "eot"}, -1, false)
		if err != nil {
			return err
		}
		if err := s.setID("eot", 32010); err != nil {
			return err
		}
		if err := s.write(l.v.keys); err != nil {
			return err
		}
	case 49152: // Granite's small models
		l.v.keys.set(addKey("bos"), false)
	}
	return nil
}

// qwen is the rule for Qwen2 and Qwen3. Their mixtures of experts follow the
// rule for all others, byte-level BPE, even where a tokenizer.model lies about.
func (l *loader) qwen() error {
	if l.spModel != nil {
		return l.sentencePiece()
	}
	return l.bpe()
}

func (l *loader) gemma3() error {
	if l.spModel == nil {
		return l.bpe()
	}
	if err := l.sentencePiece(); err != nil {
		return err
	}
	l.v.keys.set(keyAddPrefix, false)
	return nil
}
