package recipes

// Graft puts the layers for multi-token prediction of a checkpoint onto a model.
type Graft struct {
	From  string // source, in Hugging Face form
	Type  string // of its matrices
	Allow []string
}

func graftObject() *object {
	return &object{
		name: "graft",
		doc: "Puts the layers for multi-token prediction (MTP) of a Qwen3.5 checkpoint onto a GGUF model that was published without them. Only their tensors are fetched. " +
			"Shapes, tokenizer and settings must agree. See [assemble.md](assemble.md).",
		example: "graft: {from: repo, type: Q4_0}",
		new:     func() any { return new(Graft) },
		fields: []field{
			{key: "from", goName: "From", kind: kindSource, required: true, example: "repo",
				doc: "The source with the layers: a checkpoint in Hugging Face form, local or on the hub."},
			{key: "type", goName: "Type", kind: kindType, def: "F16", example: "Q4_0",
				doc: "The type of their matrices; norms stay F32."},
			{key: "allow", goName: "Allow", kind: kindRegexp, list: true, noDef: "none", example: `['^tokenizer\.ggml\.padding_token_id$']`,
				doc: "Metadata keys that may differ; the model's values are kept."},
		},
	}
}
