package recipes

// idField is part of every step.
func idField() field {
	return field{key: "id", goName: "", kind: kindName, noDef: "the step has no name", example: "small", free: true,
		doc: "A name for the step's result, for later steps and gates to refer to. It must differ from all other ids and sources."}
}

func stepObjects() []*object {
	steps := []*object{
		{
			name:    "convert",
			doc:     "Turns a Hugging Face model into GGUF form: names, layout and metadata as convert_hf_to_gguf.py gives them. Where a later step or output needs GGUF form and there is no convert step, one is implied, with the default outtype or, before a quantize step to F32 or BF16, with that one.",
			example: "convert: {outtype: bf16}",
			new:     func() any { return new(Convert) },
			fields: []field{
				{key: "outtype", goName: "OutType", kind: kindChoice, def: "f16", choices: outTypes(), example: "bf16",
					doc: "The type of matrices; one-dimensional tensors stay F32."},
				{key: "model-name", goName: "ModelName", kind: kindText, noDef: "the name that the source's files give", example: "Stories 260K",
					doc: "Goes into general.name."},
				{key: "mtp", goName: "MTP", kind: kindChoice, noDef: "all layers are converted", example: "without",
					choices: []choice{{"without", "as --no-mtp: without them"}, {"only", "as --mtp: them only, with the embedding and the head, for a graft"}},
					doc:     "What becomes of the layers for multi-token prediction of a Qwen3.5 model."},
			},
		},
		{
			name:    "tie-head",
			doc:     "Drops the output head so that the embedding serves for both.",
			example: "tie-head: {force: true}",
			new:     func() any { return new(TieHead) },
			fields: []field{
				{key: "force", goName: "Force", kind: kindBool, def: "false", example: "true",
					doc: "Drops a head that differs from the embedding too, with a warning that says what is lost. Otherwise that is an error."},
			},
		},
		{
			name:    "pad",
			doc:     "Grows axes with zeros so that the function stays the same and blocks fit.",
			example: "pad: {ffn: 32}",
			new:     func() any { return new(Pad) },
			anyOf:   [][]string{{"ffn", "vocab"}},
			fields: []field{
				{key: "ffn", goName: "FFN", kind: kindInt, limited: true, min: 1, max: 1 << 20, noDef: "not padded", example: "32",
					doc: "Grows the feed-forward width to the next multiple."},
				{key: "vocab", goName: "Vocab", kind: kindInt, limited: true, min: 1, max: 1 << 20, noDef: "not padded", example: "64",
					doc: "Grows the vocabulary rows to the next multiple; the new tokens are unused ones."},
			},
		},
		{
			name:    "imatrix",
			doc:     "Runs the model over a text and makes an importance matrix, as llama-imatrix does, for quantize steps behind it. The model stays as it is. See [imatrix.md](imatrix.md).",
			example: "imatrix: {id: im, text: calibration, context: 512}",
			new:     func() any { return new(Imatrix) },
			fields: []field{
				{key: "text", goName: "Text", kind: kindSource, required: true, example: "calibration",
					doc: "The source with the text: a file or a url."},
				{key: "context", goName: "Context", kind: kindInt, limited: true, min: 4, max: 1 << 20, unit: "tokens", def: "512", example: "256",
					doc: "The length of the chunks that the text is cut into; what is left over at its end does not count."},
				{key: "chunks", goName: "Chunks", kind: kindInt, limited: true, min: 1, max: 1 << 30, unit: "chunks", noDef: "all of the text", example: "100",
					doc: "The most chunks that are used."},
				{key: "output", goName: "Output", kind: kindBool, def: "false", example: "true",
					doc: "Covers the output head as well, as --process-output."},
				{key: "parse-special", goName: "ParseSpecial", kind: kindBool, def: "false", example: "true",
					doc: "Takes the texts of special tokens in the text for these tokens, as --parse-special."},
			},
		},
		selectTokensObject(),
		assembleObject(),
		graftObject(),
		pruneHeadObject(),
		quantizeObject(),
		{
			name:    "reorder",
			doc:     "Moves the experts of a GGUF file behind all other tensors, so that a device maps what stands in front of them and reads experts on demand. No byte of a tensor changes, and llama.cpp loads the file as before. Keys in the metadata say where the experts begin. With by the most used experts come first in each tensor, too. See [repack.md](repack.md).",
			example: "reorder: {experts: last, align: 16KiB}",
			new:     func() any { return new(Reorder) },
			check:   checkReorder,
			fields: []field{
				{key: "experts", goName: "Experts", kind: kindChoice, required: true, example: "last",
					choices: []choice{{"last", "behind all other tensors, in the order that they had"}, {"restore", "where they were before a reorder step, whose keys go"}},
					doc:     "Where the tensors of routed experts go."},
				{key: "align", goName: "Align", kind: kindSize, limited: true, min: 1, max: 64 << 20, unit: "bytes", noDef: "the alignment of every tensor", example: "16KiB",
					doc: "The first expert begins at a multiple of this in the file, a power of two such as the page of the device."},
				{key: "by", goName: "By", kind: kindResult, noDef: "experts keep their numbers", example: "use",
					doc: "Renumbers the experts of each layer, the most used first, by an expert-use trace or an importance matrix in GGUF format: a source, or the id of an imatrix step. Router rows and biases move with them, and the file computes the same function. Quantize first."},
			},
		},
		{
			name:    "codebook",
			doc:     "Fits CQ codebooks to the weights of a Needle checkpoint, for quantize steps behind it, which name the step's id. The model stays as it is. See [cact.md](cact.md).",
			example: "codebook: {id: books, bits: [4, 2]}",
			new:     func() any { return new(Codebook) },
			check:   checkCodebook,
			fields: []field{
				{key: "bits", goName: "Bits", kind: kindInt, list: true, limited: true, min: 2, max: 4, noDef: "4, 3 and 2", example: "[4]",
					doc: "The widths."},
				{key: "group", goName: "Group", kind: kindInt, limited: true, min: 32, max: 256, def: "128", example: "64",
					doc: "How many weights share a norm, as in the quantize step."},
				{key: "samples", goName: "Samples", kind: kindInt, limited: true, min: 1000, max: 1 << 26, def: "1000000", unit: "coordinates", example: "4000000",
					doc: "How many coordinates the fit is of, at most; they are taken from all matrices alike."},
				{key: "rounds", goName: "Rounds", kind: kindInt, limited: true, min: 1, max: 10000, def: "200", example: "50",
					doc: "Rounds of Lloyd's algorithm."},
			},
		},
		{
			name:    "lora",
			doc:     "Merges a LoRA adapter into a Needle checkpoint, and leaves out its confidence head, which was not trained with it. See [cact.md](cact.md).",
			example: "lora: {adapter: tuned}",
			new:     func() any { return new(Lora) },
			fields: []field{
				{key: "adapter", goName: "Adapter", kind: kindSource, required: true, example: "tuned",
					doc: "The source with the adapter, a safetensors file."},
				{key: "scale", goName: "Scale", kind: kindNumber, noDef: "the adapter's own", example: "0.5",
					doc: "What the change is multiplied by."},
			},
		},
		{
			name:    "layers",
			doc:     "Cuts a Needle checkpoint or a .cact archive to a rung of its depth ladder: first and last layer, then the middles of the largest gaps. The matrices of an archive are taken as they are. A plain number will do: `layers: 8`.",
			example: "layers: {count: 8}",
			new:     func() any { return new(Layers) },
			short:   "count",
			fields: []field{
				{key: "count", goName: "Count", kind: kindInt, limited: true, min: 2, max: 64, required: true, example: "8",
					doc: "How many layers stay."},
			},
		},
		{
			name:    "width",
			doc:     "Cuts a Needle checkpoint of generation 3 to half its width: the first half of every stream, of the heads and of the engram tables. A plain number will do: `width: 512`.",
			example: "width: {to: 512}",
			new:     func() any { return new(Width) },
			short:   "to",
			fields: []field{
				{key: "to", goName: "To", kind: kindInt, limited: true, min: 32, max: 1 << 20, required: true, example: "512",
					doc: "The new d_model, half the old one."},
			},
		},
	}
	for _, s := range steps {
		s.fields = append(s.fields, idField())
	}
	return steps
}

// outTypes are what convert_hf_to_gguf.py takes as --outtype.
func outTypes() []choice {
	return []choice{
		{"f32", "32-bit floats"},
		{"f16", "16-bit floats; values out of range are an error"},
		{"bf16", "bfloat16"},
		{"q8_0", "Q8_0 blocks, F16 where rows do not divide into blocks"},
		{"auto", "BF16 for a BF16 source, else F16"},
	}
}

func quantizeObject() *object {
	rule := &object{
		name:    "rule",
		doc:     "The first rule that matches a tensor gives its type.",
		example: "{match: 'ffn_down', type: Q8_0}",
		new:     func() any { return new(Rule) },
		anyOf:   [][]string{{"match", "role"}},
		fields: []field{
			{key: "match", goName: "Match", kind: kindRegexp, noDef: "any name", example: `'blk\.\d+\.ffn_.*_exps'`,
				doc: "A regular expression (RE2) searched in the tensor's GGUF name. Without ^ and $ it matches any part of it."},
			{key: "role", goName: "Role", kind: kindChoice, choices: roles(), noDef: "any role", example: "ffn_down",
				doc: "The tensor's role. With match, both must hold."},
			{key: "type", goName: "Type", kind: kindType, required: true, example: "Q4_0",
				doc: "The type of the tensors that match."},
		},
	}
	return &object{
		name:    "quantize",
		doc:     "Chooses the type of every tensor that llama-quantize would touch, or, with a CQ type or bits, of the matrices of a Needle checkpoint.",
		example: "quantize: {preset: Q8_0, rules: [{match: 'attn_v', type: F16}]}",
		new:     func() any { return new(Quantize) },
		oneOf:   [][]string{{"type", "preset", "bits", "budget", "bits-per-weight"}},
		check:   checkQuantize,
		fields: []field{
			{key: "type", goName: "Type", kind: kindType, choices: cqTypes(), example: "Q4_0",
				doc: "One type for all of them, as --pure gives."},
			{key: "preset", goName: "Preset", kind: kindPreset, example: "Q8_0",
				doc: "llama-quantize's mix of that name, its fallbacks included."},
			{key: "bits", goName: "Bits", kind: kindText, example: "'default=2,embedding=4,attn.q_proj=3'",
				doc: "CQ widths (4, 3, 2, 1.58, and 1 in generation 3) by name, separated by commas. The longest name that a matrix begins with decides; layers are called attn., engrams engramN. See [cact.md](cact.md)."},
			{key: "group", goName: "Group", kind: kindInt, limited: true, min: 32, max: 256, noDef: "128", example: "64",
				doc: "With a CQ type or bits: how many weights share a norm, 32, 64, 128 or 256."},
			{key: "codebook", goName: "Codebook", kind: kindResult, noDef: "the standard codebooks", example: "books",
				doc: "With a CQ type or bits: the id of a codebook step, or a source with its product. Engines read codebooks from the archive."},
			{key: "budget", goName: "Budget", kind: kindSize, limited: true, min: 1, max: 1 << 50, unit: "bytes", example: "90MiB",
				doc: "The most that the GGUF file may have. Each tensor gets the type that its measured error is worth: the rows of every tensor are tried in each of the types, and the step that lowers the error most for its bytes is taken until the budget is spent."},
			{key: "bits-per-weight", goName: "BitsPerWeight", kind: kindNumber, limited: true, min: 1, max: 32, unit: "bits", example: "4.5",
				doc: "A budget as bits for each weight, norms and head included and the file's header left out."},
			{key: "types", goName: "Types", kind: kindType, list: true, noDef: "Q2_K, Q3_K, IQ4_XS, Q4_K, Q5_K, Q6_K, Q8_0, and with an importance matrix IQ2_XXS, IQ2_S, IQ3_XXS too", example: "[Q4_0, Q8_0]",
				doc: "With a budget: the types to choose from."},
			{key: "pure", goName: "Pure", kind: kindBool, def: "false", example: "true",
				doc: "With preset: its main type for all of them, without the mix."},
			{key: "fallback", goName: "Fallback", kind: kindType, noDef: "such rows are an error", example: "F16",
				doc: "With type or rules: what tensors get whose rows do not divide into blocks."},
			{key: "output-type", goName: "OutputType", kind: kindType, noDef: "as the others", example: "Q8_0",
				doc: "The type of the output head, as --output-tensor-type."},
			{key: "embedding-type", goName: "EmbeddingType", kind: kindType, noDef: "as the others", example: "Q8_0",
				doc: "The type of the token embedding, as --token-embedding-type."},
			{key: "imatrix", goName: "Imatrix", kind: kindResult, noDef: "all weights count alike", example: "im",
				doc: "The importance matrix: the id of an imatrix step, or a source, a file or a url, in either of llama-imatrix's formats. See [imatrix.md](imatrix.md)."},
			{key: "imatrix-name", goName: "ImatrixName", kind: kindText, noDef: "the name of the matrix's file, without folders", example: "calibration.imatrix.gguf",
				doc: "What quantize.imatrix.file in the metadata says; llama-quantize writes the path that it was given."},
			{key: "missing", goName: "Missing", kind: kindType, def: "note", choices: missing(), example: "Q6_K",
				doc: "What happens to tensors that the importance matrix does not have: a word, or the type that they get unless a rule speaks of them. The embedding and the output head, which llama-imatrix leaves out, are never meant."},
			{key: "max-unseen-experts", goName: "MaxUnseen", kind: kindInt, limited: true, min: 0, max: 1 << 20, unit: "experts", noDef: "no limit", example: "4",
				doc: "How many experts of one tensor the calibration may have left out. They get neutral weights and are listed; more of them are an error."},
			{key: "allow-requantize", goName: "AllowRequantize", kind: kindBool, def: "false", example: "true",
				doc: "Quantizes tensors of the source that are quantized already, with the errors of both. Otherwise they are an error."},
			{key: "leave-output", goName: "LeaveOutput", kind: kindBool, def: "false", example: "true",
				doc: "The output head keeps the type that it has, as --leave-output-tensor."},
			{key: "include-weights", goName: "IncludeWeights", kind: kindText, list: true, noDef: "all of the matrix", example: "[ffn_down]",
				doc: "Uses the importance weights of tensors only whose names have one of these parts, as --include-weights."},
			{key: "exclude-weights", goName: "ExcludeWeights", kind: kindText, list: true, noDef: "all of the matrix", example: "[attn_v]",
				doc: "Leaves the importance weights out of tensors whose names have one of these parts, as --exclude-weights. Not together with include-weights."},
			{key: "rules", goName: "Rules", kind: kindObject, list: true, object: rule, noDef: "no rules", example: "[{role: ffn_down, type: Q8_0}]",
				doc: "Types for some tensors; they win over everything else here."},
		},
	}
}

// cqTypes are the types that a Needle checkpoint is quantized to.
func cqTypes() []choice {
	return []choice{
		{"CQ4", "a Needle checkpoint in codebook indices of 4 bits"}, {"CQ3", "3 bits"}, {"CQ2", "2 bits"},
		{"CQ1.58", "three levels"}, {"CQ1", "two levels, of generation 3"},
	}
}

// missing are the words for what is done where importance weights are wanted and
// missing.
func missing() []choice {
	return []choice{
		{"note", "they are quantized as without a matrix, and listed; an error for the types that are unusable so"},
		{"error", "the build fails"},
	}
}

// preset is a row of the preset table.
type preset struct{ name, doc string }

func presets() []preset {
	return []preset{
		{"F32", "32-bit floats"},
		{"F16", "16-bit floats"},
		{"BF16", "bfloat16"},
		{"Q8_0", "8-bit blocks of 32, head included"},
		{"Q4_0", "4-bit blocks of 32 with a scale, head Q6_K"},
		{"Q4_1", "4-bit blocks of 32 with scale and minimum, head Q6_K"},
		{"Q5_0", "5-bit blocks of 32 with a scale, head Q6_K"},
		{"Q5_1", "5-bit blocks of 32 with scale and minimum, head Q6_K"},
		{"Q2_K", "2-bit superblocks of 256, more bits for attn_v, attn_output and ffn_down"},
		{"Q2_K_S", "2-bit superblocks, 4 bits for shared attn_v and some of ffn_down; needs an importance matrix"},
		{"Q3_K_S", "3-bit superblocks of 256, head Q6_K"},
		{"Q3_K_M", "3-bit superblocks, 4 and 5 bits for attn_v, attn_output and ffn_down"},
		{"Q3_K_L", "3-bit superblocks, 5 bits for attn_v, attn_output and ffn_down"},
		{"Q4_K_S", "4-bit superblocks, 5 bits for some of attn_v and ffn_down"},
		{"Q4_K_M", "4-bit superblocks, 6 bits for half of attn_v and ffn_down"},
		{"Q5_K_S", "5-bit superblocks, head Q6_K"},
		{"Q5_K_M", "5-bit superblocks, 6 bits for half of attn_v and ffn_down"},
		{"Q6_K", "6-bit superblocks"},
		{"IQ1_S", "1.6-bit codebook, 2 to 5 bits for the most sensitive tensors; needs an importance matrix"},
		{"IQ1_M", "1.75-bit codebook, 2 to 5 bits for the most sensitive tensors; needs an importance matrix"},
		{"IQ2_XXS", "2.06-bit codebook, more bits for attn_v and some of ffn_down; needs an importance matrix"},
		{"IQ2_XS", "2.3-bit codebook, more bits for attn_v and some of ffn_down; needs an importance matrix"},
		{"IQ2_S", "2.3-bit codebook, 3.4 bits for attn_v, attn_output and some of ffn_down; needs an importance matrix"},
		{"IQ2_M", "2.5-bit codebook, 3.4 bits for attn_v, attn_output and some of ffn_down; needs an importance matrix"},
		{"IQ3_XXS", "3.06-bit codebook, other bits for attention; needs an importance matrix"},
		{"IQ3_XS", "3.06- and 3.4-bit codebooks by layer; needs an importance matrix"},
		{"IQ3_S", "3.4-bit codebook, more bits for shared attn_v"},
		{"IQ3_M", "3.4-bit codebook, 4 bits for attn_v, attn_output and some of ffn_down"},
		{"IQ4_NL", "4-bit blocks of 32 with uneven steps"},
		{"IQ4_XS", "4-bit superblocks with uneven steps"},
		{"TQ1_0", "ternary, 1.69 bits"},
		{"TQ2_0", "ternary, 2.06 bits"},
		{"MXFP4_MOE", "experts in 4-bit floats with a shared exponent, all else Q8_0"},
		{"Q1_0", "1-bit blocks of 128"},
		{"Q2_0", "2-bit blocks of 64"},
	}
}

// Presets lists the names that quantize takes as preset.
func Presets() []string {
	var out []string
	for _, p := range presets() {
		out = append(out, p.name)
	}
	return out
}
