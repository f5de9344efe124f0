package artifacts

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
)

// BuildVersion is the version of the config that Build describes.
const BuildVersion = 1

// MaxBuildConfig bounds the config of a build, which grows with the number of
// tensors.
const MaxBuildConfig = 64 << 20

// Build is the config of a build's manifest: what was built, from what, by
// which steps, and what every tensor of the outputs is. Equal builds give equal
// bytes, so it holds no clock, host, user or path of the machine.
type Build struct {
	Version int    `json:"version"`
	Tool    Tool   `json:"tool"`
	Name    string `json:"name"`
	// Recipe is the recipe in its canonical JSON form.
	Recipe  json.RawMessage `json:"recipe"`
	Sources []BuildSource   `json:"sources"`
	Steps   []BuildStep     `json:"steps"`
	Outputs []BuildOutput   `json:"outputs"`
	// Gates are the conditions that the outputs met, each with its value, its limit
	// and how it was measured, as quern build --json shows them.
	Gates []json.RawMessage `json:"gates,omitempty"`
}

// Tool is the program that made a build.
type Tool struct {
	Name    string `json:"name"`
	Version string `json:"version"`
}

// BuildSource is a source of a recipe with everything that was read of it.
type BuildSource struct {
	Name string `json:"name"`
	Kind string `json:"kind"` // dir, file, gguf, url, hf, artifact
	Ref  string `json:"ref"`  // as the recipe names it
	// Commit pins what Ref meant, for sources that have revisions.
	Commit string      `json:"commit,omitempty"`
	Files  []BuildFile `json:"files"`
}

// BuildFile is one file of a source. It has a SHA-256, the SHA-1 that git knows
// it by, or both.
type BuildFile struct {
	Path   string `json:"path"`
	Size   int64  `json:"size"`
	Digest Digest `json:"digest,omitzero"`
	Git    string `json:"git,omitempty"`
}

// BuildStep is a stage with its parameters.
type BuildStep struct {
	Stage   string          `json:"stage"`
	Version string          `json:"version"`
	Params  json.RawMessage `json:"params,omitempty"`
}

// BuildOutput is one file that was made.
type BuildOutput struct {
	File      string        `json:"file"` // relative, with slashes
	Format    string        `json:"format"`
	MediaType string        `json:"mediaType"`
	Digest    Digest        `json:"digest"`
	Size      int64         `json:"size"`
	Key       Key           `json:"key,omitzero"`
	Tensors   []BuildTensor `json:"tensors"`
}

// BuildTensor is one tensor of an output, in file order.
type BuildTensor struct {
	Name   string  `json:"name"`
	Type   string  `json:"type"`
	Shape  []int64 `json:"shape"`  // outermost axis first
	Offset int64   `json:"offset"` // from the start of the file
	Bytes  int64   `json:"bytes"`
	Digest Digest  `json:"digest"`
	Key    Key     `json:"key,omitzero"`
	// Reason says why the tensor has its type.
	Reason string `json:"reason,omitempty"`
}

// MarshalText gives the key in lower-case hex.
func (k Key) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText reads 64 lower-case hex digits.
func (k *Key) UnmarshalText(b []byte) error {
	d, err := ParseDigest("sha256:" + string(b))
	if err != nil {
		return fmt.Errorf("key %.70q is not 64 lower-case hex digits", b)
	}
	*k = Key(d)
	return nil
}

// Marshal checks the build and writes it in the one form that it has.
func (b *Build) Marshal() ([]byte, error) {
	if err := b.check(); err != nil {
		return nil, err
	}
	return encode(b.normal())
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

// normal is the build with [] in place of null.
func (b *Build) normal() *Build {
	c := *b
	c.Sources = notNil(c.Sources)
	c.Steps = notNil(c.Steps)
	c.Outputs = notNil(c.Outputs)
	for i := range c.Sources {
		c.Sources[i].Files = notNil(c.Sources[i].Files)
	}
	for i := range c.Outputs {
		o := &c.Outputs[i]
		o.Tensors = notNil(o.Tensors)
		for j := range o.Tensors {
			o.Tensors[j].Shape = notNil(o.Tensors[j].Shape)
		}
	}
	return &c
}

// notNil copies s, so that what normal changes is its own.
func notNil[T any](s []T) []T { return append(make([]T, 0, len(s)), s...) }

// ParseBuild reads what Marshal writes, and nothing else: unknown or repeated
// keys, another order or other spaces are ErrManifest, as are values that
// contradict each other.
func ParseBuild(raw []byte) (*Build, error) {
	var v struct {
		Version *int `json:"version"`
	}
	if err := json.Unmarshal(raw, &v); err != nil {
		return nil, fmt.Errorf("%w: build config: %w", ErrManifest, err)
	}
	if v.Version == nil || *v.Version != BuildVersion {
		return nil, fmt.Errorf("%w: build config: version is %s, this quern reads %d", ErrManifest, show(v.Version), BuildVersion)
	}
	var b Build
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(&b); err != nil {
		return nil, fmt.Errorf("%w: build config: at offset %d: %w", ErrManifest, d.InputOffset(), err)
	}
	again, err := b.Marshal()
	if err != nil {
		return nil, err
	}
	if !bytes.Equal(again, raw) {
		return nil, fmt.Errorf("%w: build config: not in canonical form, first at offset %d", ErrManifest, firstDifference(again, raw))
	}
	return &b, nil
}

func show(n *int) string {
	if n == nil {
		return "missing"
	}
	return fmt.Sprint(*n)
}

func firstDifference(a, b []byte) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	return min(len(a), len(b))
}

// check finds what contradicts itself.
func (b *Build) check() error {
	fail := func(format string, args ...any) error {
		return fmt.Errorf("%w: build %q: %w", ErrManifest, b.Name, fmt.Errorf(format, args...))
	}
	if b.Version != BuildVersion {
		return fail("version is %d, want %d", b.Version, BuildVersion)
	}
	if b.Name == "" || b.Tool.Name == "" || b.Tool.Version == "" {
		return fail("name, tool name and tool version must be set")
	}
	if !json.Valid(b.Recipe) {
		return fail("the recipe is not JSON")
	}
	if len(b.Outputs) == 0 {
		return fail("no outputs")
	}
	if err := unique("source", b.Sources, func(s BuildSource) string { return s.Name }); err != nil {
		return fail("%w", err)
	}
	for _, s := range b.Sources {
		if err := s.check(); err != nil {
			return fail("source %q: %w", s.Name, err)
		}
	}
	for i, s := range b.Steps {
		if s.Stage == "" || s.Version == "" {
			return fail("step %d: stage and version must be set", i)
		}
		if s.Params != nil && !json.Valid(s.Params) {
			return fail("step %d (%s): the parameters are not JSON", i, s.Stage)
		}
	}
	for i, g := range b.Gates {
		if !json.Valid(g) {
			return fail("gate %d is not JSON", i)
		}
	}
	if err := unique("output", b.Outputs, func(o BuildOutput) string { return o.File }); err != nil {
		return fail("%w", err)
	}
	for i := range b.Outputs {
		if err := b.Outputs[i].check(); err != nil {
			return fail("output %q: %w", b.Outputs[i].File, err)
		}
	}
	return nil
}

func unique[T any](what string, list []T, name func(T) string) error {
	seen := make(map[string]bool, len(list))
	for _, v := range list {
		n := name(v)
		if seen[n] {
			return fmt.Errorf("two %ss are called %q", what, n)
		}
		seen[n] = true
	}
	return nil
}

func (s *BuildSource) check() error {
	if s.Name == "" || s.Kind == "" {
		return errors.New("name and kind must be set")
	}
	if err := unique("file", s.Files, func(f BuildFile) string { return f.Path }); err != nil {
		return err
	}
	for _, f := range s.Files {
		if err := checkPath(f.Path); err != nil {
			return err
		}
		if f.Size < 0 {
			return fmt.Errorf("file %q: negative size %d", f.Path, f.Size)
		}
		if f.Digest.IsZero() && f.Git == "" {
			return fmt.Errorf("file %q: no digest", f.Path)
		}
		if f.Git != "" && (len(f.Git) != 40 || !isHex(f.Git)) {
			return fmt.Errorf("file %q: %.50q is not 40 lower-case hex digits", f.Path, f.Git)
		}
	}
	return nil
}

func (o *BuildOutput) check() error {
	if err := CheckFile(o.File); err != nil {
		return err
	}
	if o.MediaType == "" || o.Digest.IsZero() || o.Size < 0 {
		return fmt.Errorf("media type %q, digest %s and size %d must be set", o.MediaType, o.Digest, o.Size)
	}
	if err := unique("tensor", o.Tensors, func(t BuildTensor) string { return t.Name }); err != nil {
		return err
	}
	at := int64(0)
	for _, t := range o.Tensors {
		if t.Name == "" || t.Type == "" || t.Digest.IsZero() {
			return fmt.Errorf("tensor %q: name, type and digest must be set", t.Name)
		}
		if slices.ContainsFunc(t.Shape, func(n int64) bool { return n < 0 }) {
			return fmt.Errorf("tensor %q: negative dimension in %v", t.Name, t.Shape)
		}
		if t.Bytes < 0 || t.Offset < at {
			return fmt.Errorf("tensor %q: %d bytes at offset %d, after data that ends at %d", t.Name, t.Bytes, t.Offset, at)
		}
		if t.Offset > o.Size || t.Bytes > o.Size-t.Offset {
			return fmt.Errorf("tensor %q: %d bytes at offset %d are beyond the file's end at %d", t.Name, t.Bytes, t.Offset, o.Size)
		}
		at = t.Offset + t.Bytes
	}
	return nil
}

// CheckFile accepts the names that files of an artifact may have: clean relative
// paths with slashes that every system keeps inside of a folder.
func CheckFile(p string) error {
	if err := checkPath(p); err != nil {
		return err
	}
	// What other systems take for a drive, a stream or a separator.
	if strings.ContainsAny(p, `:\`) {
		return fmt.Errorf("path %q has a character that is not safe everywhere", p)
	}
	return nil
}

// checkPath accepts relative paths with slashes that stay inside and have one
// spelling.
func checkPath(p string) error {
	if p == "" || p == "." || p == ".." || path.IsAbs(p) || path.Clean(p) != p || strings.HasPrefix(p, "../") || strings.Contains(p, "\x00") {
		return fmt.Errorf("path %q is not a clean relative one", p)
	}
	return nil
}
