package recipes

// PruneHead cuts the output head, or the whole vocabulary, to a list of tokens.
type PruneHead struct {
	Tokens     string // id of a select-tokens step, or a source with a list
	Mode       string // output_ids or vocab
	MultipleOf int64  // with vocab: fills up to a multiple, 0 does not
}

func pruneHeadObject() *object {
	return &object{
		name:    "prune-head",
		doc:     "Cuts what the model can say to a list of tokens. Small heads are what small models gain the most from: a third of the weights may be rows for tokens that never come. See [prune.md](prune.md).",
		example: "prune-head: {tokens: calibration, mode: vocab, multiple-of: 32}",
		new:     func() any { return new(PruneHead) },
		check:   checkPruneHead,
		fields: []field{
			{key: "tokens", goName: "Tokens", kind: kindResult, required: true, example: "keep",
				doc: "The tokens that are kept: the id of a select-tokens step, or a source, a file or a url with a list of token ids."},
			{key: "mode", goName: "Mode", kind: kindChoice, def: "output_ids", example: "vocab",
				choices: []choice{
					{"output_ids", "the head keeps the rows of these tokens, and an I32 tensor `output_ids` names them; every text can be read still. A tied head becomes a matrix of its own. Needs a runtime that knows the tensor, as quern does and llama.cpp does not"},
					{"vocab", "tokenizer, embedding and head shrink together to these tokens, special ones and those that they are merged from; llama.cpp loads the file"},
				},
				doc: "What is cut."},
			{key: "multiple-of", goName: "MultipleOf", kind: kindInt, limited: true, min: 1, max: 1 << 20, unit: "tokens", noDef: "not filled up", example: "32",
				doc: "With vocab: more tokens are kept, lowest ids first, until their number is a multiple. The tokenizer keeps more than the list, so that the multiple which that has may be lost."},
		},
	}
}

func checkPruneHead(c *checker, v any, n *node, path string) {
	p := v.(*PruneHead)
	if x := n.get("multiple-of"); x != nil && p.Mode != "vocab" {
		c.errorf(x.pos, join(path, "multiple-of"), "is unused: it goes with mode: vocab; select-tokens has a multiple-of for heads")
	}
}
