package recipes

import (
	"strings"
	"sync"
)

// valueKind is what a key takes. Every kind has its parser in value.go, its
// words in reference.go and its pattern in jsonschema.go.
type valueKind int

const (
	kindText       valueKind = iota // any text
	kindName                        // a recipe, source or step name
	kindInt                         // a whole number
	kindSize                        // bytes: 4096, 64KiB, 2MB
	kindNumber                      // a decimal number
	kindShare                       // a part of a whole: 5 % or 0.05
	kindBool                        // true or false
	kindChoice                      // one of field.choices
	kindType                        // a ggml tensor type
	kindPreset                      // a row of the preset table
	kindRegexp                      // RE2, searched
	kindPath                        // a file or folder, relative to the recipe
	kindOutputFile                  // a relative file name that stays inside -o
	kindURL                         // http or https
	kindHF                          // org/name@revision
	kindRepoFile                    // a path in a repository
	kindArtifact                    // a name in the store
	kindSHA256                      // 64 hex digits
	kindSource                      // the name of a source, or a word of field.choices
	kindResult                      // the id of an earlier step, or the name of a source
	kindTarget                      // where an output is sent
	kindObject                      // field.object
	kindPart                        // a part of the recipe with its own decoder
)

// choice is one allowed word.
type choice struct{ name, doc string }

// field is one key of an object: the row that the parser, the reference and
// the JSON Schema are made from.
type field struct {
	key string
	// goName is the field of the object's Go struct.
	goName string
	kind   valueKind
	list   bool // a list of kind
	// required keys must be there; others have a default: def is filled in
	// (YAML text), noDef says in words what happens without the key.
	required bool
	def      string
	noDef    string
	// min and max bound whole numbers, sizes, numbers and shares, where limited is
	// set; a share of 1 is the whole.
	limited  bool
	min, max int64
	unit     string
	choices  []choice // of kindChoice; of kindType and kindSource the words they take besides
	object   *object
	doc      string
	example  string // YAML text
	// free keys change no output byte: names of files and of results. They
	// are left out of Step.Key and Output.Key.
	free bool
	// here keys say where something is, on this machine or another one. They are
	// left out of the canonical form too, and so of locks and manifests.
	here bool
	// one lets a single value stand for a list of one.
	one bool
}

// object is a mapping with known keys.
type object struct {
	// name is the step, format or gate that the mapping belongs to.
	name   string
	doc    string
	fields []field
	// oneOf are groups of keys of which exactly one must be there, anyOf
	// groups of which at least one must be.
	oneOf [][]string
	anyOf [][]string
	// new makes the Go struct.
	new func() any
	// check looks at the decoded struct as a whole.
	check func(c *checker, v any, n *node, path string)
	// makesModel marks steps that take their model from sources they name, so
	// that no source needs to be called base.
	makesModel bool
	// short is the key that a plain value in place of the mapping stands for,
	// empty when there is none.
	short   string
	example string
}

func (o *object) field(key string) *field {
	for i := range o.fields {
		if o.fields[i].key == key {
			return &o.fields[i]
		}
	}
	return nil
}

func (o *object) keys() []string {
	out := make([]string, len(o.fields))
	for i := range o.fields {
		out[i] = o.fields[i].key
	}
	return out
}

// language is the whole table.
type language struct {
	root    *object
	source  *object
	steps   []*object
	outputs []*object
	gates   []*object
}

func find(list []*object, name string) *object {
	for _, o := range list {
		if o.name == name {
			return o
		}
	}
	return nil
}

func names(list []*object) []string {
	out := make([]string, len(list))
	for i, o := range list {
		out[i] = o.name
	}
	return out
}

// theLanguage is built once and never changed.
var theLanguage = sync.OnceValue(newLanguage)

func newLanguage() *language {
	return &language{
		root:    rootObject(),
		source:  sourceObject(),
		steps:   stepObjects(),
		outputs: outputObjects(),
		gates:   gateObjects(),
	}
}

// BaseSource is the name of the source that the steps start from.
const BaseSource = "base"

// TokenizerSource is the name of the source that takes the place of the
// base's own tokenizer.
const TokenizerSource = "tokenizer"

func rootObject() *object {
	return &object{
		doc: "A recipe is one YAML mapping.",
		new: func() any { return new(Recipe) },
		fields: []field{
			{key: "version", goName: "Version", kind: kindInt, required: true, limited: true, min: 1, max: 1, example: "1",
				doc: "The version of the language."},
			{key: "name", goName: "Name", kind: kindName, required: true, example: "stories-tv", free: true,
				doc: "Names the artifact in the store and in reports."},
			{key: "sources", kind: kindPart, required: true, example: "{base: {hf: org/name@main}}",
				doc: "What the recipe reads, by name. The steps start from the source called `base`; one called `tokenizer` takes the place of the base's own tokenizer. Every other source must be named by a step or a gate."},
			{key: "steps", kind: kindPart, noDef: "no steps", example: "[{quantize: {preset: Q8_0}}]",
				doc: "What is done to the model, in order. An item is one key, the step, with its parameters; `{}` or nothing takes the defaults."},
			{key: "outputs", kind: kindPart, required: true, example: "[{format: gguf, file: model.gguf}]",
				doc: "The files to write."},
			{key: "gates", kind: kindPart, noDef: "no gates", example: "[{tensors: {min-snr-db: 18}}]",
				doc: "What must hold of the written files. An item is one key, the gate, with its parameters."},
		},
	}
}

// sourceFields is the decoded form of a source before its one kind is known.
type sourceFields struct {
	Dir, File, GGUF, URL, HF, Path, Artifact, SHA256 string
}

func sourceObject() *object {
	return &object{
		doc:   "A source has exactly one of the kinds below.",
		new:   func() any { return new(sourceFields) },
		oneOf: [][]string{{"dir", "file", "gguf", "url", "hf", "artifact"}},
		check: checkSource,
		fields: []field{
			{key: "dir", goName: "Dir", kind: kindPath, example: "../models/stories",
				doc: "A folder in Hugging Face form: config.json, tokenizer files and safetensors weights. Relative paths start at the recipe's folder."},
			{key: "file", goName: "File", kind: kindPath, example: "corpus.txt",
				doc: "One file: a text, a tokenizer or a safetensors file. Relative paths start at the recipe's folder."},
			{key: "gguf", goName: "GGUF", kind: kindPath, example: "../models/stories-f16.gguf",
				doc: "A GGUF file, or the first one of its splits. Relative paths start at the recipe's folder."},
			{key: "url", goName: "URL", kind: kindURL, example: "https://example.org/model.gguf",
				doc: "A file read over HTTP by ranges."},
			{key: "hf", goName: "HF", kind: kindHF, example: "org/name@main",
				doc: "A Hugging Face repository and its branch, tag, commit or refs/pr/N, `main` when left out. The commit is pinned in the lock file."},
			{key: "path", goName: "Path", kind: kindRepoFile, noDef: "the model that the repository holds", example: "model-BF16.gguf",
				doc: "With hf: one file of the repository, such as one of its GGUF files (of a split one the first), a text, or an importance matrix."},
			{key: "artifact", goName: "Artifact", kind: kindArtifact, example: "stories-q8",
				doc: "An artifact of the store: the name of the recipe that built it, the reference that `quern pull` fetched it by, or sha256: and its digest. One of several files is NAME/FILE."},
			{key: "sha256", goName: "SHA256", kind: kindSHA256, noDef: "not checked before the first build",
				example: "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
				doc:     "With file, gguf or url: the digest that the content must have."},
		},
	}
}

// words writes "a, b".
func words(list []choice) string {
	out := make([]string, len(list))
	for i, c := range list {
		out[i] = c.name
	}
	return strings.Join(out, ", ")
}

// kindWords says what a value must be: "must be ...".
func (f *field) kindWords() string {
	switch f.kind {
	case kindText:
		return "text"
	case kindName:
		return "a name"
	case kindInt:
		return "a whole number"
	case kindSize:
		return "a size such as 2MiB"
	case kindNumber:
		return "a number"
	case kindShare:
		return "a share such as 5 % or 0.05"
	case kindBool:
		return "true or false"
	case kindChoice:
		return "a word of the list"
	case kindType:
		if f.choices != nil {
			return words(f.choices) + " or a tensor type such as Q4_0"
		}
		return "a tensor type such as Q4_0"
	case kindPreset:
		return "a preset such as Q8_0"
	case kindRegexp:
		return "a regular expression"
	case kindPath:
		return "a path"
	case kindOutputFile:
		return "a file name"
	case kindRepoFile:
		return "a path in the repository"
	case kindURL:
		return "a URL"
	case kindHF:
		return "org/name@revision"
	case kindArtifact:
		return "an artifact's name"
	case kindSHA256:
		return "64 hex digits"
	case kindSource:
		if f.choices != nil {
			return words(f.choices) + " or the name of a source"
		}
		return "the name of a source"
	case kindResult:
		return "the id of a step or the name of a source"
	case kindTarget:
		return "a target such as adb:/data/local/tmp/"
	case kindObject:
		return "a mapping"
	}
	return "a part of a recipe"
}
