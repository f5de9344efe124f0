package pipeline

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"quern/model"
	"quern/tensor"
)

// Source is an opened source of a recipe: a model, or a plain file that a step
// reads.
type Source struct {
	Name string
	Kind string // dir, file, gguf, url, hf, artifact
	Ref  string // as the recipe names it
	// Commit pins what Ref meant: 40 hex digits of a repository, empty for
	// files.
	Commit string
	Model  *model.Model // nil for a plain file
	// Content reads a plain file, nil for a model.
	Content tensor.Blob
	// Texts are the files of a folder of texts, in order; nil for all else.
	Texts []Text
	// Files lists what the build reads of the source, by path. The digests of
	// files that are on this machine only may be missing until Digest fills
	// them in.
	Files []SourceFile
	Notes []string
	// Local lists the absolute paths of local files, which no output may
	// overwrite.
	Local []string
	// Refresh, if set, brings Files and Local up to date: planning reads side
	// files, such as those of the tokenizer, after the source was opened.
	Refresh func()
	// Fetch is set for sources that are read over a network.
	Fetch Fetcher
	// Digest computes the SHA-256 of the local files that have none, once, and
	// remembers it. It is nil when all are known.
	Digest func(ctx context.Context) error
	// Read counts the bytes of weights read so far, hashing left out. A plain
	// file has none.
	Read func() int64
	// Check fails if a local file has changed since it was opened.
	Check func() error
	Close func() error
}

// Text is one file of a folder of texts.
type Text struct {
	Name string // path below the folder
	Open func(ctx context.Context) (io.ReadCloser, error)
}

// TextsOf gives the texts of a source: the files of a folder, or a plain file.
func (s *Source) TextsOf() ([]Text, error) {
	switch {
	case s.Texts != nil:
		return s.Texts, nil
	case s.Content == nil:
		return nil, fmt.Errorf("source %s is a model, and texts are wanted", s.Name)
	}
	return []Text{{s.FileName(), func(ctx context.Context) (io.ReadCloser, error) {
		return io.NopCloser(&blobReader{ctx: ctx, b: s.Content}), nil
	}}}, nil
}

// blobReader reads a blob from its beginning on.
type blobReader struct {
	ctx context.Context
	b   tensor.Blob
	off int64
}

func (r *blobReader) Read(p []byte) (int, error) {
	left := r.b.Size() - r.off
	if left <= 0 {
		return 0, io.EOF
	}
	if int64(len(p)) > left {
		p = p[:left]
	}
	if err := r.b.ReadAt(r.ctx, p, r.off); err != nil {
		return 0, readFault(r.ctx, err)
	}
	r.off += int64(len(p))
	return len(p), nil
}

// FileName is the name of a plain source's file, without folders.
func (s *Source) FileName() string {
	if len(s.Files) == 0 {
		return s.Name
	}
	p := s.Files[0].Path
	return p[strings.LastIndexByte(p, '/')+1:]
}

// maxText bounds the texts that steps and gates read whole.
const maxText = 1 << 30

// Find finds the source of a name.
func Find(sources []*Source, name string) (*Source, error) {
	i := slices.IndexFunc(sources, func(s *Source) bool { return s.Name == name })
	if i < 0 {
		return nil, fmt.Errorf("%w: no source is called %s", ErrRecipe, name)
	}
	return sources[i], nil
}

// FindModel finds the source of a name that is a model.
func FindModel(sources []*Source, name string) (*Source, error) {
	s, err := Find(sources, name)
	if err == nil && s.Model == nil {
		return nil, fmt.Errorf("%w: source %s is no model", ErrRecipe, name)
	}
	return s, err
}

// FindText finds the plain source of a name, which a step or gate reads whole.
func FindText(sources []*Source, name string) (*Source, error) {
	s, err := Find(sources, name)
	switch {
	case err != nil:
		return nil, err
	case s.Content == nil:
		return nil, fmt.Errorf("source %s is a model, and a text is wanted", name)
	case s.Content.Size() > maxText:
		return nil, fmt.Errorf("source %s has %d bytes; a text may have %d", name, s.Content.Size(), maxText)
	case len(s.Files) == 0:
		return nil, fmt.Errorf("source %s has no file", name)
	}
	return s, nil
}

// ReadAll reads a source that FindText gave.
func (s *Source) ReadAll(ctx context.Context) ([]byte, error) {
	b := make([]byte, s.Content.Size())
	if err := s.Content.ReadAt(ctx, b, 0); err != nil {
		return nil, fmt.Errorf("source %s: %w", s.Name, readFault(ctx, err))
	}
	return b, nil
}

// SourceFile is one file of a Source.
type SourceFile struct {
	Path string `json:"path"`
	Size int64  `json:"size"`
	// SHA256 is lower-case hex, empty while unknown. Files kept in git have
	// GitOID, the SHA-1 of their blob, until they are read.
	SHA256 string `json:"sha256,omitempty"`
	GitOID string `json:"git,omitempty"`
}

// Fetcher is the part of a network source that the pipeline drives.
type Fetcher interface {
	// Need declares, in the order of reading, the ranges that will be read.
	Need(ctx context.Context, ranges []tensor.Extent) error
	// Missing counts the distinct bytes of ranges that are not here yet, in a
	// cache or from an earlier time.
	Missing(ctx context.Context, ranges []tensor.Extent) (int64, error)
	// Finish verifies what was read. It returns ErrRepaired when bytes that
	// had been read before were wrong and are right now: the caller starts
	// its output again.
	Finish(ctx context.Context) error
	// Recheck compares ranges with the source once more, after their values
	// turned out to make no sense, and reports whether they were replaced.
	Recheck(ctx context.Context, ranges []tensor.Extent) (replaced bool, err error)
	// Proved reports whether a file is here as a whole and has its digest, so
	// that its tensors are what their keys say.
	Proved(file string) bool
	Stats() FetchStats
}

// FetchStats counts bytes of a network source.
type FetchStats struct {
	Needed   int64 `json:"needed"`   // distinct bytes that the build reads
	Fetched  int64 `json:"fetched"`  // body bytes received
	Cached   int64 `json:"cached"`   // bytes served from a local cache
	Requests int64 `json:"requests"` // HTTP requests sent
	Retries  int64 `json:"retries"`
}

// unhashed reports whether Digest has anything to do.
func (s *Source) unhashed() bool {
	if s.Digest == nil {
		return false
	}
	for _, f := range s.Files {
		if f.SHA256 == "" && f.GitOID == "" {
			return true
		}
	}
	return false
}

// bytes is the size of all files that are read.
func (s *Source) bytes() int64 {
	var n int64
	for _, f := range s.Files {
		n += f.Size
	}
	return n
}
