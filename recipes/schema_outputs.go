package recipes

import (
	"strconv"
	"strings"

	"quern/model"
	"quern/tensor/repack"
)

func outputObjects() []*object {
	formats := []*object{
		{
			name:    "gguf",
			doc:     "A GGUF file for llama.cpp and its kin.",
			example: "{format: gguf, file: stories-q8_0.gguf}",
			check:   checkGGUF,
			fields: []field{
				{key: "outtype", goName: "OutType", kind: kindChoice, choices: outTypes(), noDef: "f16", example: "bf16",
					doc: "The outtype of the implied convert step. Only for a Hugging Face model that no step brings into GGUF form."},
				{key: "split-max-size", goName: "SplitSize", kind: kindSize, limited: true, min: 1, max: 1 << 50, unit: "bytes", noDef: "one file", example: "2000MB",
					doc: "The most bytes of tensors in one file. A larger model is written as shards, NAME-00001-of-00003.gguf and so on, as --split-max-size of convert_hf_to_gguf.py cuts it."},
				{key: "split-max-tensors", goName: "SplitTensors", kind: kindInt, limited: true, min: 1, max: 1 << 30, unit: "tensors", noDef: "one file", example: "256",
					doc: "The most tensors in one file, as --split-max-tensors."},
				{key: "no-tensor-first-split", goName: "NoTensorFirst", kind: kindBool, def: "false", example: "true",
					doc: "With a bound: the first shard holds the metadata and no tensor."},
				{key: "repack", goName: "Repack", kind: kindText, list: true, noDef: "no cache", example: "[q4_0_4x4]",
					doc: "Writes a cache beside the file for each of these layouts, NAME.gguf.LAYOUT.repack: the matrices of the layout's type, interleaved as ggml does it in memory or as a layout of quern's own has them. Not with shards. There are " + layoutNames() + "; letter case does not count. See [repack.md](repack.md)."},
			},
		},
		{
			name:    "kmcu",
			doc:     "A KMCU container for microcontrollers, 4-bit, mapped from flash.",
			example: "{format: kmcu, file: stories.kmcu, flash: 2MiB}",
			fields: []field{
				{key: "flash", goName: "Flash", kind: kindSize, limited: true, min: 1, max: 1 << 40, unit: "bytes", noDef: "no limit", example: "2MiB",
					doc: "The size of the partition; a file over it is an error before anything is written."},
				{key: "align", goName: "Align", kind: kindChoice, def: "row", example: "none",
					choices: []choice{{"row", "rows are padded to whole blocks of 32, so that every row starts a block"}, {"none", "the whole matrix is one run of blocks"}},
					doc:     "How rows meet blocks."},
				{key: "max-seq", goName: "MaxSeq", kind: kindInt, limited: true, min: 1, max: 1<<32 - 1, unit: "tokens", noDef: "the config's max_position_embeddings", example: "256",
					doc: "The longest sequence, as the header says it."},
			},
		},
		{
			name:    "cact",
			doc:     "A .cact archive for the Needle engine. The tokenizer is that of the source called tokenizer, a SentencePiece model or another archive, or the base's own.",
			example: "{format: cact, generation: 3, file: needle.cact}",
			fields: []field{
				{key: "generation", goName: "Generation", kind: kindInt, limited: true, min: 2, max: 3, noDef: "that of the model", example: "3",
					doc: "The generation of engines that read the archive: 2 or 3. Another one than the model's is an error."},
			},
		},
	}
	for _, f := range formats {
		var kinds []choice
		for _, g := range formats {
			kinds = append(kinds, choice{g.name, g.doc})
		}
		f.new = func() any { return new(Output) }
		f.fields = append([]field{
			{key: "format", goName: "Format", kind: kindChoice, required: true, choices: kinds, example: f.name,
				doc: "The file format."},
			{key: "file", goName: "File", kind: kindOutputFile, required: true, example: "stories." + f.name, free: true,
				doc: "Where to write, relative to the output folder (-o), inside it, with / between parts."},
			targetField(),
		}, f.fields...)
	}
	return formats
}

// roles lists what a rule can name: groups first, then the roles of GGUF
// tensors.
func roles() []choice {
	out := []choice{
		{"attention", "every attention matrix"},
		{"embedding", "the token embedding"},
		{"experts", "the matrices of routed experts"},
		{"feed-forward", "every feed-forward matrix, those of experts included"},
		{"head", "the output head, or the embedding where it serves as head"},
	}
	for _, r := range model.Roles() {
		if r != model.FFNGateUpExps { // a Hugging Face tensor only
			out = append(out, choice{name: string(r)})
		}
	}
	return out
}

// layoutNames lists the layouts of repack caches.
func layoutNames() string {
	var out []string
	for _, l := range repack.Layouts() {
		out = append(out, "`"+l.String()+"`")
	}
	return strings.Join(out, ", ")
}

// checkGGUF brings the names of layouts into one spelling and finds those that
// cannot be written.
func checkGGUF(c *checker, v any, n *node, path string) {
	o := v.(*Output)
	x := n.get("repack")
	if x == nil || len(o.Repack) != len(x.items) {
		return
	}
	path = join(path, "repack")
	seen := map[string]bool{}
	for i, name := range o.Repack {
		at, pos := join(path, strconv.Itoa(i)), x.items[i].pos
		if name == "" {
			continue // in error already
		}
		l, err := repack.Parse(name)
		if err != nil {
			c.errorf(pos, at, "%v", err)
			continue
		}
		if seen[l.String()] {
			c.errorf(pos, at, "%s is there already", l)
		}
		seen[l.String()] = true
		o.Repack[i] = l.String()
	}
	if o.SplitSize > 0 || o.SplitTensors > 0 {
		c.errorf(x.pos, path, "does not go with shards: a cache belongs to one file")
	}
}
