package recipes

import "fmt"

// Assemble makes one model out of the tensors of several.
type Assemble struct {
	Base  string // source; the model so far if empty
	Take  []Take
	Allow []string // regular expressions of metadata keys that may differ
}

// Take says which tensors come from another source.
type Take struct {
	From  string
	Match string
	Add   bool // tensors that the base has not got are added
}

func assembleObject() *object {
	take := &object{
		name:    "take",
		doc:     "Tensors that come from another source. The first item that matches a tensor counts.",
		example: "{from: small, match: '_exps'}",
		new:     func() any { return new(Take) },
		fields: []field{
			{key: "from", goName: "From", kind: kindSource, required: true, example: "small",
				doc: "The source: a GGUF file or a Hugging Face model, which is converted first."},
			{key: "match", goName: "Match", kind: kindRegexp, required: true, example: "'_exps'",
				doc: "A regular expression (RE2) searched in the tensor's GGUF name."},
			{key: "add", goName: "Add", kind: kindBool, def: "false", example: "true",
				doc: "Tensors that match and that the base has not got go behind the base's. Otherwise they are an error."},
		},
	}
	return &object{
		name: "assemble",
		doc: "Makes one model out of the tensors of several published ones: those that match come from other sources, byte by byte and in the types that they have there, all else and the order from the base. " +
			"Shapes, tokenizers, architectures and their settings must agree. Only the tensors that are taken are fetched. See [assemble.md](assemble.md).",
		example:    "assemble: {base: fine, take: [{from: small, match: '_exps'}]}",
		new:        func() any { return new(Assemble) },
		check:      checkAssemble,
		makesModel: true,
		fields: []field{
			{key: "base", goName: "Base", kind: kindSource, noDef: "the model so far", example: "fine",
				doc: "The source that the model starts from. With it the step is the first."},
			{key: "take", goName: "Take", kind: kindObject, list: true, object: take, required: true, example: "[{from: small, match: '_exps'}]",
				doc: "What comes from elsewhere."},
			{key: "allow", goName: "Allow", kind: kindRegexp, list: true, noDef: "none", example: `['^tokenizer\.ggml\.add_']`,
				doc: "Metadata keys that may differ; the base's values are kept."},
		},
	}
}

func checkAssemble(c *checker, v any, n *node, path string) {
	p := v.(*Assemble)
	x := n.get("take")
	if len(p.Take) == 0 {
		c.errorf(x.pos, join(path, "take"), "nothing is taken")
	}
	if b := n.get("base"); b != nil && c.step > 0 {
		c.errorf(b.pos, join(path, "base"), "would throw away the steps before; put the step first, or leave base out")
	}
	for i, t := range p.Take {
		if t.From == p.Base {
			c.errorf(x.items[i].pos, join(path, fmt.Sprintf("take.%d.from", i)), "is the base itself")
		}
	}
}
