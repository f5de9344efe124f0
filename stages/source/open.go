package source

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"quern/formats/gguf"
	"quern/formats/imatrix"
	"quern/formats/safetensors"
	"quern/model"
	"quern/model/needle"
	"quern/pipeline"
	"quern/recipes"
	"quern/tensor"
)

// ErrKind marks a kind of source that this build cannot open.
var ErrKind = errors.New("source cannot be opened")

// Env is what opening needs of the outside.
type Env struct {
	// Dir is the folder that relative paths start from: the recipe's.
	Dir string
	// Digests knows local files; nil forgets them between openings.
	Digests *Digests
	// Hub opens hf: and url: sources, nil refuses them.
	Hub Remote
	// Artifacts opens artifact: sources, nil refuses them.
	Artifacts Artifacts
	// Texts are the names of sources that steps read as texts: such a folder is
	// one of texts and no model's.
	Texts map[string]bool
	Headers
}

// Headers change how headers of weight files are read. The zero value is right
// for most.
type Headers struct {
	// Max is the longest header accepted, in bytes; 0 means each format's own
	// limit.
	Max int64
	// Rebuild leaves the index of a checkpoint's shards aside and takes the
	// weights from the headers of the files at hand.
	Rebuild bool
}

func (h Headers) hf(source string) model.HFOptions {
	return model.HFOptions{Source: source, MaxHeader: h.Max, FromHeaders: h.Rebuild}
}

func (h Headers) gguf(source string, key tensor.Key) gguf.Options {
	return gguf.Options{Source: source, Key: key, MaxHeader: h.Max}
}

// Remote opens sources that are reached over HTTP.
type Remote interface {
	// Repo opens a repository's model, or, with a path, one of its files.
	Repo(ctx context.Context, name, ref, path string, h Headers) (*pipeline.Source, error)
	URL(ctx context.Context, name, url, sha256 string, h Headers) (*pipeline.Source, error)
}

// Artifacts opens what earlier builds have put into the store.
type Artifacts interface {
	Artifact(ctx context.Context, name, ref string, h Headers) (*pipeline.Source, error)
}

// Open opens the sources of a recipe in order. When one fails those before it
// are closed.
func Open(ctx context.Context, env Env, list []recipes.Source) ([]*pipeline.Source, error) {
	var out []*pipeline.Source
	for _, s := range list {
		src, err := open(ctx, env, s)
		if err != nil {
			for _, o := range out {
				if o.Close != nil {
					o.Close()
				}
			}
			err = fmt.Errorf("source %s: %w", s.Name, pipeline.SourceFault(err))
			if s.Pos.File != "" {
				err = fmt.Errorf("%s: %w", s.Pos, err)
			}
			return nil, err
		}
		src.Name, src.Kind, src.Ref = s.Name, string(s.Kind), ref(s)
		out = append(out, src)
	}
	return out, nil
}

// ref is what locks and manifests say of where a source is: the recipe's words,
// but for paths that mean something on one machine only.
func ref(s recipes.Source) string {
	switch s.Kind {
	case recipes.SourceDir, recipes.SourceFile, recipes.SourceGGUF:
		if filepath.IsAbs(s.Value) {
			return filepath.Base(s.Value)
		}
	}
	if s.Path != "" {
		return s.Value + " " + s.Path
	}
	return s.Value
}

// marked puts failed reads down to the source, whoever reads.
type marked struct{ tensor.Blob }

func (m marked) ReadAt(ctx context.Context, p []byte, off int64) error {
	err := m.Blob.ReadAt(ctx, p, off)
	if err != nil && ctx.Err() == nil {
		return pipeline.SourceFault(err)
	}
	return err
}

func open(ctx context.Context, env Env, s recipes.Source) (*pipeline.Source, error) {
	local := func() string {
		if filepath.IsAbs(s.Value) {
			return s.Value
		}
		return filepath.Join(env.Dir, filepath.FromSlash(s.Value))
	}
	if env.Texts[s.Name] && (s.Kind == recipes.SourceDir || s.Kind == recipes.SourceFile) {
		if st, err := os.Stat(local()); err == nil && st.IsDir() {
			return openTexts(local(), env.Digests)
		}
	}
	switch s.Kind {
	case recipes.SourceDir:
		return openDir(ctx, env, s.Name, local())
	case recipes.SourceGGUF:
		return openGGUF(ctx, env, s, local())
	case recipes.SourceFile:
		return openFile(ctx, env, s, local())
	case recipes.SourceHF, recipes.SourceURL:
		if env.Hub == nil {
			return nil, fmt.Errorf("%w: no network here", ErrKind)
		}
		if s.Kind == recipes.SourceHF {
			return env.Hub.Repo(ctx, s.Name, s.Value, s.Path, env.Headers)
		}
		return env.Hub.URL(ctx, s.Name, s.Value, s.SHA256, env.Headers)
	case recipes.SourceArtifact:
		if env.Artifacts == nil {
			return nil, fmt.Errorf("%w: there is no store to take artifacts from", ErrKind)
		}
		return env.Artifacts.Artifact(ctx, s.Name, s.Value, env.Headers)
	}
	return nil, fmt.Errorf("%w: kind %q", ErrKind, s.Kind)
}

// describe puts the folder's view of itself into a Source.
func (d *folder) describe(src *pipeline.Source) *pipeline.Source {
	src.Refresh = func() { src.Files, src.Local = d.sourceFiles(), d.local() }
	src.Refresh()
	if src.Model != nil {
		opened := d.read.Load() // headers
		src.Read = func() int64 { return d.read.Load() - opened }
	}
	src.Check = d.check
	src.Close = d.close
	src.Digest = func(ctx context.Context) error {
		if err := d.hash(ctx); err != nil {
			return err
		}
		src.Files = d.sourceFiles()
		return nil
	}
	return src
}

func openDir(ctx context.Context, env Env, name, root string) (*pipeline.Source, error) {
	d, err := openFolder(root, env.Digests)
	if err != nil {
		return nil, err
	}
	m, err := model.LoadHF(ctx, d, env.Headers.hf(name))
	if lacksModel(err) {
		m, err = needleIn(ctx, d, err, needle.FolderOptions{Source: name, MaxHeader: env.Headers.Max})
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", root, err), d.close())
	}
	return d.describe(&pipeline.Source{Model: m}), nil
}

// lacksModel reports whether a folder is none of Hugging Face's form: without a
// config, or with one and no weights.
func lacksModel(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, safetensors.ErrNoWeights)
}

// needleIn looks for a Needle checkpoint or archive among files that were no model
// for the reason why, which it gives back when there is none.
func needleIn(ctx context.Context, files model.FileSet, why error, opt needle.FolderOptions) (*model.Model, error) {
	m, _, err := needle.LoadFolder(ctx, files, opt)
	if m == nil && err == nil {
		err = why
	}
	return m, err
}

// openGGUF opens a GGUF file, or all shards of one.
func openGGUF(ctx context.Context, env Env, s recipes.Source, file string) (*pipeline.Source, error) {
	d, err := openFolder(filepath.Dir(file), env.Digests)
	if err != nil {
		return nil, err
	}
	fail := func(err error) (*pipeline.Source, error) {
		return nil, errors.Join(fmt.Errorf("%s: %w", file, err), d.close())
	}
	load := func(key tensor.Key) (*model.Model, error) {
		m, _, err := model.LoadGGUF(ctx, filepath.Base(file), d.Open, env.Headers.gguf(s.Name, key))
		return m, err
	}
	m, err := load(tensor.Key{})
	if err != nil {
		return fail(err)
	}
	if err := d.expect(ctx, filepath.Base(file), s.SHA256); err != nil {
		return fail(err)
	}
	if !isModel(m) {
		content, err := d.Open(ctx, filepath.Base(file))
		if err != nil {
			return fail(err)
		}
		return d.describe(&pipeline.Source{Content: content}), nil
	}
	if key := d.key(); !key.IsZero() {
		if m, err = load(key); err != nil {
			return fail(err)
		}
	}
	return d.describe(&pipeline.Source{Model: m}), nil
}

// isModel tells GGUF files with a model in them from those that hold tables
// about one.
func isModel(m *model.Model) bool {
	if m.Form != model.GGUF {
		return true
	}
	kind, err := m.Meta.Text("general.type")
	return err != nil || kind != imatrix.GeneralType
}

// key identifies the content of all opened files together; it is zero while a
// digest is missing.
func (d *folder) key() tensor.Key {
	used := d.used()
	var all []byte
	for _, p := range used {
		o := d.file(p)
		if !o.has {
			return tensor.Key{}
		}
		if len(used) == 1 {
			return tensor.Derive("file", o.sha.Hex())
		}
		all = append(all, o.sha.Hex()...)
	}
	return tensor.Derive("files", string(all))
}

// ErrDigest marks a file that is not the one the recipe names.
var ErrDigest = errors.New("SHA-256 is not the recipe's")

// expect holds a file against the digest that a recipe pins it to.
func (d *folder) expect(ctx context.Context, p, want string) error {
	if want == "" {
		return nil
	}
	if err := d.hash(ctx); err != nil {
		return err
	}
	if got := d.file(p).sha.Hex(); got != want {
		return fmt.Errorf("%w: it is %s, the recipe says %s", ErrDigest, got, want)
	}
	return nil
}

// openFile opens a plain file. One that holds a model of its own, as its first
// bytes say, is opened as such.
func openFile(ctx context.Context, env Env, s recipes.Source, file string) (*pipeline.Source, error) {
	head, err := firstBytes(file, headBytes)
	if err != nil {
		return nil, err
	}
	if bytes.HasPrefix(head, []byte("GGUF")) {
		return openGGUF(ctx, env, s, file)
	}
	d, err := openFolder(filepath.Dir(file), env.Digests)
	if err != nil {
		return nil, err
	}
	fail := func(err error) (*pipeline.Source, error) {
		return nil, errors.Join(fmt.Errorf("%s: %w", file, err), d.close())
	}
	base := filepath.Base(file)
	content, err := d.Open(ctx, base)
	if err != nil {
		return nil, errors.Join(err, d.close())
	}
	if err := d.expect(ctx, base, s.SHA256); err != nil {
		return fail(err)
	}
	m, err := loadSingle(ctx, head, base, content, s.Name, d.key(), env.Headers)
	if err != nil {
		return fail(err)
	}
	if m == nil {
		return d.describe(&pipeline.Source{Content: content}), nil
	}
	return d.describe(&pipeline.Source{Model: m}), nil
}

func firstBytes(file string, n int) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if st.IsDir() {
		return nil, fmt.Errorf("%s: a folder; a model's folder goes under dir:", file)
	}
	b := make([]byte, n)
	m, err := io.ReadFull(f, b)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return b[:m], nil
}
