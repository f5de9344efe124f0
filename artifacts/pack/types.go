// Package pack knows how models are packed into OCI manifests: it names the files
// of manifests that quern and other tools have made, and makes the manifests that
// other tools take. It moves no bytes.
//
//	            modelpack                docker                  ollama
//	manifest    OCI, artifactType        OCI                     docker v2
//	config      …cncf.model.config       …docker.ai.model…v0.1   …docker.container.image.v1
//	GGUF        …model.weight.v1.raw     …docker.ai.gguf.v3      …ollama.image.model
//	its name    two annotations          one annotation          none
package pack

import (
	"errors"
	"fmt"
	"path"
	"strings"
)

// Format is a way to pack a model.
type Format string

// The formats. Only the first three can be made out of files.
const (
	ModelPack Format = "modelpack" // CNCF ModelPack: docker model, modctl, kit, oras
	Docker    Format = "docker"    // docker model before it read ModelPack
	Ollama    Format = "ollama"
	Quern     Format = "quern" // a build as the store has it, with its provenance
	KitOps    Format = "kitops"
	ORAS      Format = "oras" // any other manifest whose layers have titles
)

// ParseFormat reads the name of a format that Make makes, or Quern.
func ParseFormat(s string) (Format, error) {
	for _, f := range []Format{ModelPack, Docker, Ollama, Quern} {
		if s == string(f) {
			return f, nil
		}
	}
	return "", fmt.Errorf("%w %q: modelpack, docker, ollama or quern", ErrFormat, s)
}

var (
	// ErrFormat marks files that a format cannot hold, and names of formats that
	// there are not.
	ErrFormat = errors.New("format")
	// ErrPath marks a manifest whose file names must not be written to.
	ErrPath = errors.New("unsafe file name in the manifest")
)

// Media types and annotations of ModelPack, model-spec 0.0.7. The older drafts
// had other prefixes, which are still met.
const (
	modelPackType   = "application/vnd.cncf.model.manifest.v1+json"
	modelPackConfig = "application/vnd.cncf.model.config.v1+json"
	modelPackLayer  = "application/vnd.cncf.model."
	modelPackDraft  = "application/vnd.cnai.model."

	annotationPath      = "org.cncf.model.filepath"
	annotationPathDraft = "org.cnai.model.filepath"
	annotationUnpack    = "io.deis.oras.content.unpack"
)

// Media types of docker model, as model-runner's code has them.
const (
	dockerPrefix   = "application/vnd.docker.ai."
	dockerConfig   = dockerPrefix + "model.config.v0.1+json"
	dockerGGUF     = dockerPrefix + "gguf.v3"
	dockerMMProj   = dockerPrefix + "mmproj"
	dockerLicense  = dockerPrefix + "license"
	dockerTemplate = dockerPrefix + "chat.template.jinja"
)

// Media types of Ollama.
const (
	ollamaPrefix    = "application/vnd.ollama.image."
	ollamaConfig    = "application/vnd.docker.container.image.v1+json"
	ollamaModel     = ollamaPrefix + "model"
	ollamaProjector = ollamaPrefix + "projector"
	ollamaLicense   = ollamaPrefix + "license"
	ollamaManifest  = "application/vnd.docker.distribution.manifest.v2+json"
)

const kitopsPrefix = "application/vnd.kitops.modelkit."

// Kind says what a file is for.
type Kind string

// The kinds.
const (
	Weights   Kind = "weights"
	Projector Kind = "projector" // of pictures or sound into a model's embeddings
	Config    Kind = "config"    // tokenizer, settings, id lists
	Template  Kind = "template"  // of chats
	License   Kind = "license"
	Doc       Kind = "doc"
	Other     Kind = "other" // code and data
)

// KindOf goes by a file's name.
func KindOf(name string) Kind {
	base := strings.ToLower(path.Base(name))
	stem, _, _ := strings.Cut(base, ".")
	switch {
	case strings.HasPrefix(base, "mmproj") && strings.HasSuffix(base, ".gguf"):
		return Projector
	case stem == "license" || stem == "licence" || stem == "copying" || stem == "notice":
		return License
	case strings.HasSuffix(base, ".jinja"):
		return Template
	case strings.HasSuffix(base, ".md") || stem == "readme":
		return Doc
	}
	switch path.Ext(base) {
	case ".json", ".txt", ".ids", ".yaml", ".yml", ".toml":
		return Config
	case ".py", ".sh":
		return Other
	}
	return Weights
}
