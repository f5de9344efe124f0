package recipes

import (
	"fmt"
	"slices"
)

func gateObjects() []*object {
	gates := []*object{
		{
			name:    "tensors",
			doc:     "Bounds the error of every tensor of the written file against its source, after the declared changes.",
			example: "tensors: {min-snr-db: 18}",
			new:     func() any { return new(TensorsGate) },
			anyOf:   [][]string{{"min-snr-db", "max-abs", "max-rms"}},
			fields: []field{
				{key: "min-snr-db", goName: "MinSNRdB", kind: kindNumber, unit: "dB", noDef: "no bound", example: "18",
					doc: "The lowest signal-to-noise ratio."},
				{key: "max-abs", goName: "MaxAbs", kind: kindNumber, limited: true, min: 0, max: 1 << 60, noDef: "no bound", example: "0.05",
					doc: "The largest absolute error of a value."},
				{key: "max-rms", goName: "MaxRMS", kind: kindNumber, limited: true, min: 0, max: 1 << 60, noDef: "no bound", example: "0.002",
					doc: "The largest root-mean-square error of a tensor."},
			},
		},
		{
			name:    "perplexity",
			doc:     "Runs the written file over a text and bounds its perplexity, counted exactly as llama-perplexity does: by a number, by a baseline, or by both. See [gates.md](gates.md).",
			example: "perplexity: {text: eval, max: 5, max-increase: 1 %}",
			new:     func() any { return new(PerplexityGate) },
			anyOf:   [][]string{{"max", "max-increase"}},
			check: func(c *checker, v any, n *node, path string) {
				checkBaseline(c, v.(*PerplexityGate).MaxIncrease != nil, n, path)
			},
			fields: append(textFields("512"), scoreFields("perplexity", "4.95")...),
		},
		{
			name:    "bits-per-byte",
			doc:     "The same for the bits that the model needs for a byte of the text.",
			example: "bits-per-byte: {text: eval, max: 1.05}",
			new:     func() any { return new(BitsPerByteGate) },
			anyOf:   [][]string{{"max", "max-increase"}},
			check: func(c *checker, v any, n *node, path string) {
				checkBaseline(c, v.(*BitsPerByteGate).MaxIncrease != nil, n, path)
			},
			fields: append(textFields("512"), scoreFields("number of bits", "1.05")...),
		},
		{
			name:    "kl-divergence",
			doc:     "Runs the written file beside a baseline over a text and bounds how far its probabilities are from the baseline's, at the positions that perplexity counts.",
			example: "kl-divergence: {text: eval, max: 0.02, min-top-1: 95 %}",
			new:     func() any { return new(DivergenceGate) },
			anyOf:   [][]string{{"max", "min-top-1"}},
			fields: append(textFields("512"),
				field{key: "baseline", goName: "Baseline", kind: kindSource, def: baselineSource, choices: baselines(), example: "f16",
					doc: "The model to compare with, or the name of a source that is a model."},
				field{key: "max", goName: "Max", kind: kindNumber, limited: true, min: 0, max: 1 << 60, unit: "nats", noDef: "no bound", example: "0.02",
					doc: "The largest mean Kullback-Leibler divergence."},
				field{key: "min-top-1", goName: "MinTop1", kind: kindShare, limited: true, min: 0, max: 1, noDef: "no bound", example: "95 %",
					doc: "The least share of positions at which both think the same token the most likely."}),
		},
		{
			name:    "tokens",
			doc:     "Lets the written file go on from a prompt, always with the most likely token, and demands the golden tokens.",
			example: "tokens: {prompt: Once upon a time, expect: [432, 383, 286]}",
			new:     func() any { return new(TokensGate) },
			oneOf:   [][]string{{"prompt", "ids", "file"}},
			check:   checkTokens,
			fields: []field{
				{key: "prompt", goName: "Prompt", kind: kindText, example: "Once upon a time",
					doc: "The prompt as text, which gets what the vocabulary puts before it."},
				{key: "ids", goName: "IDs", kind: kindInt, list: true, limited: true, min: 0, max: maxID, example: "[1, 403, 407]",
					doc: "The prompt as token ids, taken as they are."},
				{key: "file", goName: "File", kind: kindSource, example: "golden",
					doc: "A source with prompts and answers, in JSON: what `quern run --json` prints, or a list of such."},
				{key: "expect", goName: "Expect", kind: kindInt, list: true, limited: true, min: 0, max: maxID, noDef: "those of the file", example: "[432, 383, 286]",
					doc: "The ids that must follow."},
				actField(),
			},
		},
		{
			name:    "logits",
			doc:     "Runs the written file over token ids and holds what it expects after each of them against goldens, made with `quern logits` or elsewhere.",
			example: "logits: {ids: [1, 403, 407], sha256: 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08}",
			new:     func() any { return new(LogitsGate) },
			oneOf:   [][]string{{"sha256", "file"}},
			check:   checkLogits,
			fields: []field{
				{key: "ids", goName: "IDs", kind: kindInt, list: true, limited: true, min: 0, max: maxID, noDef: "those of the file", example: "[1, 403, 407]",
					doc: "The token ids."},
				{key: "sha256", goName: "SHA256", kind: kindSHA256,
					example: "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
					doc:     "The digest of all rows as `quern logits` gives it. It is the same on every machine."},
				{key: "file", goName: "File", kind: kindSource, example: "golden",
					doc: "A source with the logits: a safetensors file with a tensor `logits` of a row for each token and, in its metadata, the ids as `tokens`."},
				{key: "max-abs", goName: "MaxAbs", kind: kindNumber, limited: true, min: 0, max: 1 << 60, noDef: "0, equal to the bit", example: "0.0002",
					doc: "With file: the largest difference of a logit."},
				actField(),
			},
		},
		{
			name:    "loops",
			doc:     "Lets the written file give long answers and bounds the share of those that fall into a loop: by a number, by a baseline, or by both. Perplexity does not see such damage. What a loop is stands in [gates.md](gates.md#loops).",
			example: "loops: {text: eval, max: 10 %}",
			new:     func() any { return new(LoopsGate) },
			anyOf:   [][]string{{"max", "max-increase"}},
			check: func(c *checker, v any, n *node, path string) {
				checkBaseline(c, v.(*LoopsGate).MaxIncrease != nil, n, path)
			},
			fields: []field{
				{key: "text", goName: "Text", kind: kindSource, required: true, example: "eval",
					doc: "The source with the text that prompts are taken from, at equal distances."},
				{key: "max", goName: "Max", kind: kindShare, limited: true, min: 0, max: 1, noDef: "no bound", example: "10 %",
					doc: "The largest share of answers that may fall into a loop."},
				{key: "baseline", goName: "Baseline", kind: kindSource, def: baselineSource, choices: baselines(), example: "f16",
					doc: "With max-increase: the model to compare with, or the name of a source that is a model. It gets the same prompts."},
				{key: "max-increase", goName: "MaxIncrease", kind: kindShare, limited: true, min: 0, max: 1, noDef: "no baseline", example: "10 %",
					doc: "How much larger the share may be than the baseline's: 10 % lets 3 of 10 loop where 2 of 10 of the baseline do."},
				{key: "answers", goName: "Answers", kind: kindInt, limited: true, min: 1, max: 1 << 20, unit: "answers", def: "16", example: "32",
					doc: "How many answers are made."},
				{key: "tokens", goName: "Tokens", kind: kindInt, limited: true, min: 1, max: 1 << 20, unit: "tokens", def: "256", example: "400",
					doc: "The length of an answer."},
				{key: "prompt", goName: "Prompt", kind: kindInt, limited: true, min: 1, max: 1 << 20, unit: "tokens", def: "16", example: "8",
					doc: "The length of a prompt."},
				{key: "temperature", goName: "Temperature", kind: kindNumber, limited: true, min: 0, max: 1000, noDef: "0, the most likely token", example: "0.8",
					doc: "Draws tokens by chance, the hotter the freer."},
				{key: "top-k", goName: "TopK", kind: kindInt, limited: true, min: 0, max: 1 << 30, unit: "tokens", def: "40", example: "0",
					doc: "With temperature: draws from that many of the most likely tokens, 0 for all."},
				{key: "top-p", goName: "TopP", kind: kindNumber, limited: true, min: 0, max: 1, noDef: "0.95", example: "0.9",
					doc: "With temperature: draws from the most likely tokens that sum up to this probability."},
				{key: "min-p", goName: "MinP", kind: kindNumber, limited: true, min: 0, max: 1, noDef: "0.05", example: "0.1",
					doc: "With temperature: draws from tokens at least this many times as likely as the most likely."},
				{key: "repeat-penalty", goName: "RepeatPenalty", kind: kindNumber, limited: true, min: 1, max: 1000, noDef: "1, none", example: "1.1",
					doc: "Makes the latest 256 tokens less likely."},
				{key: "seed", goName: "Seed", kind: kindInt, limited: true, min: 0, max: 1<<63 - 1, def: "0", example: "7",
					doc: "With temperature: the start of the random numbers."},
				scoreActField(),
			},
		},
		{
			name:    "tokenizer",
			doc:     "Encodes golden strings with the written file's tokenizer and with the source's, and demands the same ids: forty of accents, scripts, emoji, digits, spaces and line ends, or those of a file with their ids.",
			example: "tokenizer: {}",
			new:     func() any { return new(TokenizerGate) },
			check: func(c *checker, v any, n *node, path string) {
				if g := v.(*TokenizerGate); g.File == "" && n.get("parse-special") != nil {
					c.errorf(n.get("parse-special").pos, join(path, "parse-special"), "is unused: it goes with file")
				}
			},
			fields: []field{
				{key: "file", goName: "File", kind: kindSource, noDef: "the forty strings, by the source's tokenizer", example: "golden",
					doc: "A source with golden strings in JSON: a mapping of texts to their ids, without what the vocabulary puts around a text."},
				{key: "parse-special", goName: "ParseSpecial", kind: kindBool, def: "false", example: "true",
					doc: "With file: takes the texts of special tokens in the strings for these tokens."},
				{key: "max", goName: "Max", kind: kindInt, limited: true, min: 0, max: 1 << 30, unit: "strings", def: "0", example: "1",
					doc: "How many strings may have other ids."},
			},
		},
	}
	for _, g := range gates {
		g.fields = append(g.fields, field{key: "output", goName: "Output", kind: kindOutputFile, noDef: "every output", example: "stories.gguf",
			doc: "The output that the gate is for, by its file."})
	}
	return gates
}

// maxID is the largest token id.
const maxID = 1<<31 - 1

// baselineSource is the word for the model that the output is made of.
const baselineSource = "source"

func baselines() []choice {
	return []choice{{baselineSource, "the model before the first step that loses anything, as a GGUF file of F16"}}
}

func actField() field {
	return field{key: "act", goName: "Act", kind: kindChoice, def: "exact", example: "q8",
		choices: []choice{{"exact", "float32"}, {"q8", "8 bits, as the kernels of devices compute"}},
		doc:     "What activations are when they meet a weight."}
}

// scoreActField is for gates that judge how well a file does what it is for, which
// is to be seen in the arithmetic of the engine that will run it. Needle's has one.
func scoreActField() field {
	f := actField()
	f.def, f.noDef = "", "`q8` for .cact, which is what Needle's engine computes; `exact` for other formats"
	return f
}

// textFields say what a model is run over.
func textFields(context string) []field {
	return []field{
		{key: "text", goName: "Text", kind: kindSource, required: true, example: "eval",
			doc: "The source with the text: a file or a url."},
		{key: "context", goName: "Context", kind: kindInt, limited: true, min: 4, max: 1 << 20, unit: "tokens", def: context, example: "256",
			doc: "The length of the chunks that the text is cut into; what is left over at its end does not count."},
		{key: "chunks", goName: "Chunks", kind: kindInt, limited: true, min: 1, max: 1 << 30, unit: "chunks", noDef: "all of the text", example: "20",
			doc: "The most chunks that are used."},
		scoreActField(),
	}
}

// scoreFields bound a score.
func scoreFields(what, example string) []field {
	return []field{
		{key: "max", goName: "Max", kind: kindNumber, limited: true, min: 0, max: 1 << 60, noDef: "no bound", example: example,
			doc: "The largest " + what + "."},
		{key: "baseline", goName: "Baseline", kind: kindSource, def: baselineSource, choices: baselines(), example: "f16",
			doc: "With max-increase: what to compare with. Also the name of a source: a model, an artifact of the store for example, or a file with what `quern ppl --json` printed."},
		{key: "max-increase", goName: "MaxIncrease", kind: kindShare, limited: true, min: 0, max: 1000, noDef: "no baseline", example: "1 %",
			doc: "How much larger the " + what + " may be than the baseline's. Scores that were not made of the same tokens in the same way are not comparable, and the gate fails."},
	}
}

func checkBaseline(c *checker, has bool, n *node, path string) {
	if x := n.get("baseline"); x != nil && !has {
		c.errorf(x.pos, join(path, "baseline"), "is unused: it goes with max-increase")
	}
}

func checkTokens(c *checker, v any, n *node, path string) {
	g := v.(*TokensGate)
	expect := n.get("expect")
	switch {
	case g.File != "" && expect != nil:
		c.errorf(expect.pos, join(path, "expect"), "is unused: the file says what must follow")
	case g.File == "" && expect == nil:
		c.errorf(n.pos, path, "the key expect is missing")
	case g.File == "" && len(g.Expect) == 0:
		c.errorf(expect.pos, join(path, "expect"), "is empty; it must have the ids that must follow")
	}
	if ids := n.get("ids"); ids != nil && len(g.IDs) == 0 {
		c.errorf(ids.pos, join(path, "ids"), "is empty; a prompt has one token at least")
	}
}

func checkLogits(c *checker, v any, n *node, path string) {
	g := v.(*LogitsGate)
	if x := n.get("max-abs"); x != nil && g.File == "" {
		c.errorf(x.pos, join(path, "max-abs"), "is unused: it goes with file; a digest is equal or not")
	}
	if n.get("ids") == nil {
		if g.File == "" {
			c.errorf(n.pos, path, "the key ids is missing")
		}
	} else if len(g.IDs) == 0 {
		c.errorf(n.get("ids").pos, join(path, "ids"), "is empty; one token at least is needed")
	}
}

// checkGates holds the outputs that gates name against those that there are.
func (c *checker) checkGates(r *Recipe) {
	var files []string
	for _, o := range r.Outputs {
		files = append(files, o.File)
	}
	for _, g := range r.Gates {
		out := g.Output()
		if out == "" {
			continue
		}
		if !slices.Contains(files, out) {
			c.errorf(g.Pos, fmt.Sprintf("gates.%d.%s.output", g.index, g.Kind), "no output has the file %s%s", quote(out), suggest(out, files))
		}
	}
}
