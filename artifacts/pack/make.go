package pack

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	godigest "github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"quern/artifacts"
)

// Meta is what manifests say about a model beside its files. What is empty is
// left out.
type Meta struct {
	Name         string
	Version      string
	Description  string
	Authors      []string
	Licenses     []string // SPDX expressions
	SourceURL    string
	Architecture string // "llama"
	ModelFormat  string // "gguf", "safetensors", "cact"
	Parameters   string // "135M"
	Quantization string // "Q4_K_M"
	// GGUF are values of the file's header as text, for docker model.
	GGUF map[string]string
	// Created is the one moment that manifests hold; nil leaves it out, so that
	// equal files give equal manifests.
	Created *time.Time
}

// Image is a manifest with its config, both as the bytes that their digests name.
type Image struct {
	Manifest  artifacts.Descriptor
	Raw       []byte
	Config    artifacts.Descriptor
	ConfigRaw []byte
	// Left are files that the format has no place for.
	Left []File
}

// Make packs files. Equal files, names and Meta give equal bytes. It fails with
// ErrFormat if the format cannot hold the model, and with ErrPath for names that
// Read would refuse.
func Make(format Format, files []File, meta Meta) (*Image, error) {
	files = slices.Clone(files)
	slices.SortStableFunc(files, func(a, b File) int { return cmp.Compare(rank[a.Kind], rank[b.Kind]) })
	if err := CheckPaths(files); err != nil {
		return nil, err
	}
	p := packing{meta: meta}
	for _, f := range files {
		mediaType := layerType(format, f)
		if mediaType == "" && f.Kind == Weights {
			return nil, fmt.Errorf("%w: %s holds GGUF files alone, and %s is none", ErrFormat, format, f.Path)
		}
		if mediaType == "" {
			p.left = append(p.left, f)
			continue
		}
		p.add(format, f, mediaType)
	}
	if p.weights == 0 {
		return nil, fmt.Errorf("%w: there is no file of weights to pack", ErrFormat)
	}
	switch format {
	case ModelPack:
		return p.modelPack()
	case Docker:
		return p.docker()
	case Ollama:
		if p.weights > 1 {
			return nil, fmt.Errorf("%w: ollama takes a model in one file, and this one has %d; merge the shards first", ErrFormat, p.weights)
		}
		return p.ollama()
	}
	return nil, fmt.Errorf("%w %q cannot be made of files", ErrFormat, format)
}

// rank is the order of layers: docker model and ollama look for the weights first.
var rank = map[Kind]int{Weights: 0, Projector: 1, Config: 2, Template: 3, Doc: 4, License: 5, Other: 6}

// layerType is the media type of a file in a format, "" if it has none.
func layerType(format Format, f File) string {
	isGGUF := strings.HasSuffix(strings.ToLower(f.Path), ".gguf")
	switch format {
	case ModelPack:
		switch f.Kind {
		case Weights, Projector:
			return modelPackLayer + "weight.v1.raw"
		case Doc, License:
			return modelPackLayer + "doc.v1.raw"
		case Other:
			return modelPackLayer + "code.v1.raw"
		}
		return modelPackLayer + "weight.config.v1.raw"
	case Docker:
		switch f.Kind {
		case Weights:
			if isGGUF {
				return dockerGGUF
			}
		case Projector:
			return dockerMMProj
		case License:
			return dockerLicense
		case Template:
			return dockerTemplate
		}
	case Ollama:
		switch f.Kind {
		case Weights:
			if isGGUF {
				return ollamaModel
			}
		case Projector:
			return ollamaProjector
		case License:
			return ollamaLicense
		}
	}
	return ""
}

// packing collects the layers of one manifest.
type packing struct {
	meta    Meta
	layers  []ocispec.Descriptor
	diffIDs []godigest.Digest
	weights int
	left    []File
}

// add names the layer for everyone who reads names: oras by the title, ModelPack's
// tools by their path.
func (p *packing) add(format Format, f File, mediaType string) {
	d := artifacts.Descriptor{MediaType: mediaType, Digest: f.Digest, Size: f.Size, Annotations: map[string]string{
		ocispec.AnnotationTitle: f.Path,
	}}
	if format != Ollama {
		d.Annotations[annotationPath] = f.Path
	}
	o := d.OCI()
	p.layers = append(p.layers, o)
	p.diffIDs = append(p.diffIDs, o.Digest)
	if f.Kind == Weights {
		p.weights++
	}
}

func (p *packing) annotations() map[string]string {
	a := map[string]string{}
	set := func(k, v string) {
		if v != "" {
			a[k] = v
		}
	}
	set(ocispec.AnnotationTitle, p.meta.Name)
	set(ocispec.AnnotationVersion, p.meta.Version)
	set(ocispec.AnnotationDescription, p.meta.Description)
	set(ocispec.AnnotationLicenses, strings.Join(p.meta.Licenses, " OR "))
	set(ocispec.AnnotationSource, p.meta.SourceURL)
	set(ocispec.AnnotationCreated, p.created())
	if len(a) == 0 {
		return nil
	}
	return a
}

func (p *packing) created() string {
	if p.meta.Created == nil {
		return ""
	}
	return p.meta.Created.UTC().Format(time.RFC3339)
}

type modelPackModel struct {
	Descriptor struct {
		CreatedAt   string   `json:"createdAt,omitempty"`
		Authors     []string `json:"authors,omitempty"`
		Family      string   `json:"family,omitempty"`
		Name        string   `json:"name,omitempty"`
		SourceURL   string   `json:"sourceURL,omitempty"`
		Version     string   `json:"version,omitempty"`
		Licenses    []string `json:"licenses,omitempty"`
		Description string   `json:"description,omitempty"`
	} `json:"descriptor"`
	ModelFS struct {
		Type    string            `json:"type"`
		DiffIDs []godigest.Digest `json:"diffIds"`
	} `json:"modelfs"`
	Config struct {
		Architecture string `json:"architecture,omitempty"`
		Format       string `json:"format,omitempty"`
		ParamSize    string `json:"paramSize,omitempty"`
		Quantization string `json:"quantization,omitempty"`
	} `json:"config"`
}

func (p *packing) modelPack() (*Image, error) {
	var c modelPackModel
	m := p.meta
	c.Descriptor.CreatedAt, c.Descriptor.Authors, c.Descriptor.Family, c.Descriptor.Name = p.created(), m.Authors, m.Architecture, m.Name
	c.Descriptor.SourceURL, c.Descriptor.Version, c.Descriptor.Licenses, c.Descriptor.Description = m.SourceURL, m.Version, m.Licenses, m.Description
	c.ModelFS.Type, c.ModelFS.DiffIDs = "layers", p.diffIDs
	// The architecture of the specification is "transformer"; the tools show
	// what GGUF calls by that name.
	c.Config.Architecture, c.Config.Format, c.Config.ParamSize, c.Config.Quantization = m.Architecture, m.ModelFormat, m.Parameters, m.Quantization
	return p.image(ocispec.MediaTypeImageManifest, modelPackType, modelPackConfig, c)
}

// dockerModel is the config as model-runner's code reads it. With a paramSize, a
// createdAt or a modelfs in it the code would take it for a ModelPack.
type dockerModel struct {
	Config struct {
		Format       string            `json:"format,omitempty"`
		Quantization string            `json:"quantization,omitempty"`
		Parameters   string            `json:"parameters,omitempty"`
		Architecture string            `json:"architecture,omitempty"`
		Size         string            `json:"size,omitempty"`
		GGUF         map[string]string `json:"gguf,omitempty"`
	} `json:"config"`
	Descriptor struct {
		Created string `json:"created,omitempty"`
	} `json:"descriptor"`
	RootFS rootFS `json:"rootfs"`
}

type rootFS struct {
	Type    string            `json:"type"`
	DiffIDs []godigest.Digest `json:"diff_ids"`
}

func (p *packing) docker() (*Image, error) {
	var c dockerModel
	c.Config.Format, c.Config.Quantization, c.Config.Parameters, c.Config.Architecture = p.meta.ModelFormat, p.meta.Quantization, p.meta.Parameters, p.meta.Architecture
	size := int64(0)
	for _, l := range p.layers[:p.weights] {
		size += l.Size
	}
	c.Config.Size, c.Config.GGUF = mebibytes(size), p.meta.GGUF
	c.Descriptor.Created = p.created()
	c.RootFS = rootFS{"rootfs", p.diffIDs}
	return p.image(ocispec.MediaTypeImageManifest, "", dockerConfig, c)
}

// mebibytes is a size as docker model shows it.
func mebibytes(n int64) string {
	if n >= 1<<30 {
		return fmt.Sprintf("%.2f GiB", float64(n)/(1<<30))
	}
	return fmt.Sprintf("%.2f MiB", float64(n)/(1<<20))
}

type ollamaModelConfig struct {
	ModelFormat   string   `json:"model_format"`
	ModelFamily   string   `json:"model_family"`
	ModelFamilies []string `json:"model_families"`
	ModelType     string   `json:"model_type"`
	FileType      string   `json:"file_type"`
	Architecture  string   `json:"architecture"`
	OS            string   `json:"os"`
	RootFS        rootFS   `json:"rootfs"`
}

func (p *packing) ollama() (*Image, error) {
	m := p.meta
	return p.image(ollamaManifest, "", ollamaConfig, ollamaModelConfig{
		ModelFormat: "gguf", ModelFamily: m.Architecture, ModelFamilies: []string{m.Architecture},
		ModelType: m.Parameters, FileType: m.Quantization,
		Architecture: "amd64", OS: "linux", // as ollama writes them for every model
		RootFS: rootFS{"layers", p.diffIDs},
	})
}

func (p *packing) image(mediaType, artifactType, configType string, config any) (*Image, error) {
	im := &Image{Left: p.left}
	var err error
	if im.ConfigRaw, err = encode(config); err != nil {
		return nil, err
	}
	im.Config = artifacts.Descriptor{MediaType: configType, Digest: artifacts.DigestOf(im.ConfigRaw), Size: int64(len(im.ConfigRaw))}
	m := ocispec.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: mediaType, ArtifactType: artifactType,
		Config: im.Config.OCI(), Layers: p.layers,
	}
	if mediaType == ocispec.MediaTypeImageManifest {
		m.Annotations = p.annotations()
	}
	if im.Raw, err = encode(m); err != nil {
		return nil, err
	}
	if len(im.Raw) > artifacts.MaxManifest {
		return nil, fmt.Errorf("%w: the manifest has %d bytes, registries take %d", ErrFormat, len(im.Raw), artifacts.MaxManifest)
	}
	im.Manifest = artifacts.Descriptor{MediaType: mediaType, ArtifactType: artifactType, Digest: artifacts.DigestOf(im.Raw), Size: int64(len(im.Raw))}
	return im, nil
}

// encode is JSON without HTML escapes, on one line.
func encode(v any) ([]byte, error) {
	var buf bytes.Buffer
	e := json.NewEncoder(&buf)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n")), nil
}
