package pack

import (
	"cmp"
	"encoding/json"
	"fmt"
	"path"
	"strings"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"quern/artifacts"
	"quern/internal/shardname"
)

// File is a layer of a manifest under the name that it has as a file. Path is ""
// for a layer that nothing names.
type File struct {
	Path string
	Kind Kind
	// Archive is "tar", "tar+gzip" or "tar+zstd" where the layer is a packed
	// folder; Path then ends in that suffix.
	Archive string
	artifacts.Descriptor
}

// Manifest is what a manifest says of its files.
type Manifest struct {
	Format Format
	Files  []File
	// Children are the manifests that an index lists; it has no files itself.
	Children []artifacts.Descriptor
}

// manifest has the parts of all kinds of manifests.
type manifest struct {
	MediaType    string               `json:"mediaType"`
	ArtifactType string               `json:"artifactType"`
	Config       *ocispec.Descriptor  `json:"config"`
	Layers       []ocispec.Descriptor `json:"layers"`
	Blobs        []ocispec.Descriptor `json:"blobs"`
	Manifests    []ocispec.Descriptor `json:"manifests"`
}

// Read names the files of a manifest: by the title of the layer, else by
// ModelPack's path, else by what the layer's type stands for in the formats that
// give no names. It fails with ErrPath if a name leaves the folder that the files
// are put into, or if two files are in each other's way there, on any system; and
// with artifacts.ErrManifest if the manifest cannot be read.
func Read(raw []byte) (*Manifest, error) {
	var m manifest
	if err := json.Unmarshal(raw, &m); err != nil {
		return nil, fmt.Errorf("%w: %w", artifacts.ErrManifest, err)
	}
	out := &Manifest{Format: formatOf(&m)}
	for _, c := range m.Manifests {
		d, err := artifacts.FromOCI(c)
		if err != nil {
			return nil, err
		}
		out.Children = append(out.Children, d)
	}
	layers := append(m.Layers, m.Blobs...)
	models := 0
	for _, l := range layers {
		if l.MediaType == dockerGGUF || l.MediaType == ollamaModel {
			models++
		}
	}
	seen := map[string]int{}
	for i, l := range layers {
		d, err := artifacts.FromOCI(l)
		if err != nil {
			return nil, fmt.Errorf("layer %d: %w", i, err)
		}
		f := File{Descriptor: d, Archive: archiveOf(&l)}
		f.Path = cmp.Or(l.Annotations[ocispec.AnnotationTitle], l.Annotations[annotationPath], l.Annotations[annotationPathDraft])
		if f.Path == "" {
			f.Path = nameOf(l.MediaType, seen, models)
		}
		if f.Archive != "" && f.Path != "" {
			f.Path += "." + strings.NewReplacer("+gzip", ".gz", "+zstd", ".zst").Replace(f.Archive)
		}
		f.Kind = kindOf(l.MediaType, f.Path)
		out.Files = append(out.Files, f)
	}
	return out, CheckPaths(out.Files)
}

func formatOf(m *manifest) Format {
	config := ""
	if m.Config != nil {
		config = m.Config.MediaType
	}
	switch {
	case m.ArtifactType == artifacts.ArtifactTypeBuild:
		return Quern
	case m.ArtifactType == modelPackType, config == modelPackConfig, strings.HasPrefix(config, modelPackDraft):
		return ModelPack
	case strings.HasPrefix(config, dockerPrefix):
		return Docker
	case strings.HasPrefix(config, kitopsPrefix), strings.HasPrefix(m.ArtifactType, kitopsPrefix):
		return KitOps
	}
	for _, l := range m.Layers {
		if strings.HasPrefix(l.MediaType, ollamaPrefix) {
			return Ollama
		}
	}
	return ORAS
}

// archiveOf says how a layer is packed, "" if it is a file. A title may come with
// a file that happens to be an archive, as oras pushes them: that is no packing.
func archiveOf(l *ocispec.Descriptor) string {
	t := l.MediaType
	if l.Annotations[annotationUnpack] == "true" {
		return "tar+gzip"
	}
	if strings.HasPrefix(t, modelPackLayer) || strings.HasPrefix(t, modelPackDraft) || strings.HasPrefix(t, kitopsPrefix) {
		for _, a := range []string{"tar", "tar+gzip", "tar+zstd"} {
			if strings.HasSuffix(t, "."+a) {
				return a
			}
		}
	}
	if t == dockerPrefix+"dir.tar" || t == dockerPrefix+"vllm.config.tar" {
		return "tar"
	}
	return ""
}

// layerNames are the files of the formats that give no names.
var layerNames = map[string]string{
	dockerGGUF:                      "model.gguf",
	dockerMMProj:                    "mmproj.gguf",
	dockerPrefix + "gguf.v3.mmproj": "mmproj.gguf", // as the written specification has it
	dockerPrefix + "safetensors":    "model.safetensors",
	dockerPrefix + "dduf":           "model.dduf",
	dockerLicense:                   "LICENSE",
	dockerTemplate:                  "chat_template.jinja",
	ollamaModel:                     "model.gguf",
	ollamaProjector:                 "mmproj.gguf",
	ollamaPrefix + "adapter":        "adapter.gguf",
	ollamaPrefix + "template":       "template.txt",
	ollamaPrefix + "system":         "system.txt",
	ollamaPrefix + "params":         "params.json",
	ollamaPrefix + "messages":       "messages.json",
	ollamaLicense:                   "LICENSE",
}

// nameOf names a layer by its type. The parts of a split model are numbered as
// GGUF shards are, a second file of another type gets a number.
func nameOf(mediaType string, seen map[string]int, models int) string {
	name := layerNames[mediaType]
	if name == "" {
		return ""
	}
	seen[name]++
	n := seen[name]
	ext := path.Ext(name)
	stem := strings.TrimSuffix(name, ext)
	switch {
	case mediaType == dockerGGUF && models > 1:
		return shardname.Join(stem, n, models, ext)
	case n > 1:
		return fmt.Sprintf("%s-%d%s", stem, n, ext)
	}
	return name
}

func kindOf(mediaType, name string) Kind {
	if what, ok := cutAny(mediaType, modelPackLayer, modelPackDraft); ok {
		byName := KindOf(name)
		switch what, _, _ = strings.Cut(what, ".v1"); {
		case what == "weight" && byName != Projector:
			return Weights
		case what == "weight.config" && byName != Template:
			return Config
		case what == "doc" && byName != License:
			return Doc
		case what == "code" || what == "dataset":
			return Other
		}
		return byName
	}
	switch {
	case mediaType == dockerGGUF || mediaType == ollamaModel:
		return Weights
	case mediaType == dockerMMProj || mediaType == ollamaProjector:
		return Projector
	case mediaType == dockerLicense || mediaType == ollamaLicense:
		return License
	case mediaType == dockerTemplate:
		return Template
	}
	return KindOf(name)
}

// cutAny cuts the first of the prefixes that fits.
func cutAny(s string, prefixes ...string) (rest string, ok bool) {
	for _, p := range prefixes {
		if rest, ok = strings.CutPrefix(s, p); ok {
			return rest, true
		}
	}
	return s, false
}

// maxPath is the longest name, in bytes: a quarter of what Linux takes, folders
// around it included. It bounds the work that a stranger's manifest makes.
const maxPath = 1024

// CheckPaths makes sure that all files can stand in one folder, also where the
// file system knows no letter case. It fails with ErrPath.
func CheckPaths(files []File) error {
	taken := map[string]string{}
	for _, f := range files {
		if f.Path == "" {
			continue
		}
		if len(f.Path) > maxPath {
			return fmt.Errorf("%w: layer %s: a name of %d bytes, %.40q...; up to %d are taken", ErrPath, f.Digest, len(f.Path), f.Path, maxPath)
		}
		if err := artifacts.CheckFile(f.Path); err != nil {
			return fmt.Errorf("%w: layer %s: %w", ErrPath, f.Digest, err)
		}
		for _, c := range f.Path {
			if c < ' ' || c == 0x7f {
				return fmt.Errorf("%w: layer %s: control character in %q", ErrPath, f.Digest, f.Path)
			}
		}
		low := strings.ToLower(f.Path)
		if was, ok := taken[low]; ok {
			return fmt.Errorf("%w: two layers are called %q and %q", ErrPath, was, f.Path)
		}
		taken[low] = f.Path
	}
	for low, name := range taken {
		for i, c := range []byte(low) {
			if c != '/' {
				continue
			}
			if was, ok := taken[low[:i]]; ok {
				return fmt.Errorf("%w: %q is a file and a folder, of %q", ErrPath, was, name)
			}
		}
	}
	return nil
}

// Model is the one file that a model's manifest is about: the named one, or else
// the only one with weights, where a file whose name says so counts more than one
// that may hold anything. Of a split model it is the first shard.
func (m *Manifest) Model(name string) (*File, error) {
	var found *File
	sure := false
	for i := range m.Files {
		f := &m.Files[i]
		if name != "" && f.Path == name {
			return f, nil
		}
		if name != "" || f.Kind != Weights || f.Path == "" || f.Archive != "" || isLaterShard(f.Path) {
			continue
		}
		switch is := isModelName(f.Path); {
		case found == nil || is && !sure:
			found, sure = f, is
		case is == sure:
			return nil, fmt.Errorf("%w: it has several files of weights, %s and %s; name one as NAME/FILE", ErrFormat, found.Path, f.Path)
		}
	}
	if found == nil {
		var have []string
		for _, f := range m.Files {
			have = append(have, cmp.Or(f.Path, f.MediaType))
		}
		return nil, fmt.Errorf("%w: no file of weights %q in it; it has %s", ErrFormat, name, strings.Join(have, ", "))
	}
	return found, nil
}

// isModelName knows the files that quern can start from.
func isModelName(p string) bool {
	switch path.Ext(strings.ToLower(p)) {
	case ".gguf", ".safetensors", ".cact":
		return true
	}
	return false
}

// IsShard reports whether a file is a part of a split GGUF file, by its name.
func IsShard(p string) bool { return shard(p) > 0 }

func isLaterShard(p string) bool { return shard(p) > 1 }

// shard is the number of a shard, from 1, and 0 for a whole file.
func shard(p string) int {
	_, i, n, ok := shardname.Split(p, ".gguf")
	if !ok || n < 2 {
		return 0
	}
	return i
}
