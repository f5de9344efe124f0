package needle

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"quern/formats/cact"
	"quern/formats/pickle"
	"quern/formats/safetensors"
	"quern/model"
	"quern/tensor"
)

// ErrChoice marks a folder with several models of one kind.
var ErrChoice = errors.New("several models to choose from")

// FolderOptions say how the files of a folder are opened.
type FolderOptions struct {
	// Source is the recipe's name of the source, put into Tensor.Origin.
	Source string
	// FileKey gives the key of a file's content; nil derives keys from the digests
	// that the folder knows.
	FileKey func(model.FileInfo) tensor.Key
	// MaxHeader is the longest safetensors header accepted, 0 for the default.
	MaxHeader int64
}

// kinds are the files that may be a whole model, by the ends of their names: the
// first kind that a folder has a model of is what the folder holds. Repositories
// keep archives beside the checkpoint that they were made from, and pickles from
// before there were safetensors.
var kinds = [][]string{{".safetensors"}, {".pkl", ".pickle", ".pt", ".pth", ".ckpt"}, {".cact"}}

// mostFiles bounds how many files of a kind are looked into.
const mostFiles = 64

// LoadFolder opens the only model of a folder or repository without config.json: a
// checkpoint, else an archive. Files beside it that are none, such as adapters, do
// not count. It gives nil when there is no model, and ErrChoice when there are
// several of a kind. file is the path of what it gives.
func LoadFolder(ctx context.Context, files model.FileSet, opt FolderOptions) (m *model.Model, file string, err error) {
	list, err := files.List(ctx)
	if err != nil {
		return nil, "", err
	}
	for _, ends := range kinds {
		var found *model.Model
		var names []string
		looked := 0
		for _, f := range list {
			if !slices.Contains(ends, strings.ToLower(path.Ext(f.Path))) {
				continue
			}
			if looked++; looked > mostFiles {
				return nil, "", fmt.Errorf("%w: over %d files %s; name one with file: or url:", ErrChoice, mostFiles, strings.Join(ends, ", "))
			}
			m, err := loadFile(ctx, files, f, opt)
			if err != nil {
				return nil, "", err
			}
			if m != nil {
				found, names = m, append(names, f.Path)
			}
		}
		if len(names) > 1 {
			return nil, "", fmt.Errorf("%w: %s; name one with file: or url:", ErrChoice, strings.Join(names, ", "))
		}
		if found != nil {
			return found, names[0], nil
		}
	}
	return nil, "", nil
}

// loadFile opens a file of a folder, and gives nil when it is no model.
func loadFile(ctx context.Context, files model.FileSet, f model.FileInfo, opt FolderOptions) (*model.Model, error) {
	blob, err := files.Open(ctx, f.Path)
	if err != nil {
		return nil, err
	}
	var key tensor.Key
	switch {
	case opt.FileKey != nil:
		key = opt.FileKey(f)
	case f.SHA256 != "":
		key = tensor.Derive("file", f.SHA256)
	}
	return LoadFile(ctx, f.Path, blob, FileOptions{Source: opt.Source, Key: key, MaxHeader: opt.MaxHeader})
}

// FileOptions say how a single file is opened.
type FileOptions struct {
	Source string
	// Key identifies the file's content, zero when that is not known.
	Key       tensor.Key
	MaxHeader int64 // of safetensors, 0 for the default
}

// HeadBytes is how much of a file tells its format.
const HeadBytes = 9

// noText bounds lengths of safetensors headers that are no text: their upper bytes
// are zeros.
const noText = 1 << 32

// LoadFile opens a file that is a whole model, whatever it is called: an archive or
// a checkpoint. It gives nil for other files. One that is called as if it were a
// model and does not begin like one, such as what is left of a download, is an error
// of the reader for such names.
func LoadFile(ctx context.Context, name string, blob tensor.Blob, opt FileOptions) (*model.Model, error) {
	head := make([]byte, min(blob.Size(), HeadBytes))
	if err := blob.ReadAt(ctx, head, 0); err != nil {
		return nil, err
	}
	ext := strings.ToLower(path.Ext(name))
	isPickle := ext == ".pkl" || ext == ".pickle" || ext == ".pth"
	switch {
	case cact.IsCact(head), ext == ".cact":
		return model.LoadCact(ctx, name, blob, cact.Options{Source: opt.Source, Key: opt.Key})
	case len(head) == HeadBytes && head[8] == '{' && (le.Uint64(head) < uint64(blob.Size()) || le.Uint64(head) < noText), ext == ".safetensors":
		return LoadSafetensors(ctx, name, blob, safetensors.Options{Source: opt.Source, Key: opt.Key, MaxHeader: opt.MaxHeader})
	case pickle.IsPickle(head), isPickle:
		m, err := LoadPickle(ctx, name, blob, pickle.Options{Source: opt.Source, Key: opt.Key})
		if errors.Is(err, pickle.ErrNotPickle) && !isPickle {
			return nil, nil // some other zip archive
		}
		return m, err
	}
	return nil, nil
}
