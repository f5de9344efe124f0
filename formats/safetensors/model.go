package safetensors

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"

	"quern/internal/shardname"
	"quern/tensor"
)

const weightsExt = ".safetensors"

// FileInfo names one file of a folder; a model.FileInfo converts to it.
type FileInfo struct {
	Path   string
	Size   int64
	SHA256 string
}

// Files is what OpenModel needs of a folder of files; model.FileSet has it.
// A missing file is fs.ErrNotExist.
type Files interface {
	Open(ctx context.Context, path string) (tensor.Blob, error)
}

// ModelOptions change how a folder's weights are opened. The zero value is
// right for most.
type ModelOptions struct {
	// MaxHeader is Options.MaxHeader for every file.
	MaxHeader int64
	// Source is the recipe's name of the source.
	Source string
	// FileKey gives the key that identifies a file's content, see
	// Options.Key. When nil, keys derive from FileInfo.SHA256, and files
	// without it have none.
	FileKey func(FileInfo) tensor.Key
	// FromHeaders takes the weights from the headers of the files at hand
	// and leaves the index aside: the way out when the index is stale.
	FromHeaders bool
	// Parallel is how many headers are read at once; 0 means 8.
	Parallel int
}

// Model is the weights of one folder.
type Model struct {
	// Tensors are in file order: files sorted by name, tensors of one file
	// sorted by name, both byte-wise.
	Tensors []*tensor.Tensor
	// Files are the opened files, sorted by name.
	Files []*File
	// Index is nil when there is none or it was left aside.
	Index *Index
	// Ignored lists weight files that were not read, sorted.
	Ignored []string
	// Warnings are for the user.
	Warnings []string
}

// OpenModel finds and opens the weights of a folder: the shards of its index,
// else model.safetensors, else the only safetensors file there is. list is
// the folder's listing. Only headers are read. Index and shard headers must
// agree in both directions, so a failure here comes before any work.
func OpenModel(ctx context.Context, fsys Files, list []FileInfo, opt ModelOptions) (*Model, error) {
	have := make(map[string]FileInfo, len(list))
	for _, fi := range list {
		have[fi.Path] = fi
	}
	m := &Model{}
	names, err := m.choose(ctx, fsys, have, opt)
	if err != nil {
		return nil, err
	}
	if err := m.open(ctx, fsys, names, have, opt); err != nil {
		return nil, err
	}
	if err := m.agree(); err != nil {
		return nil, err
	}
	used := map[string]bool{}
	for _, n := range names {
		used[n] = true
	}
	for _, p := range sortedPaths(have) {
		if !used[p] && isWeights(p) {
			m.Ignored = append(m.Ignored, p)
			if strings.HasSuffix(p, weightsExt) && !strings.Contains(p, "/") {
				m.Warnings = append(m.Warnings, fmt.Sprintf("%s is not part of the model and was not read", p))
			}
		}
	}
	return m, nil
}

// choose lists the files to read, sorted.
func (m *Model) choose(ctx context.Context, fsys Files, have map[string]FileInfo, opt ModelOptions) ([]string, error) {
	if _, ok := have[IndexName]; ok && !opt.FromHeaders {
		blob, err := fsys.Open(ctx, IndexName)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", IndexName, err)
		}
		if m.Index, err = ReadIndex(ctx, IndexName, blob); err != nil {
			return nil, err
		}
		return m.Index.Shards, m.missing(have)
	}
	if _, ok := have[SingleName]; ok && !opt.FromHeaders {
		return []string{SingleName}, nil
	}
	var top, shards []string
	for _, p := range sortedPaths(have) {
		if strings.Contains(p, "/") || !strings.HasSuffix(p, weightsExt) || strings.HasPrefix(p, "consolidated") {
			continue
		}
		top = append(top, p)
		if _, _, _, ok := shardname.Split(p, weightsExt); ok {
			shards = append(shards, p)
		}
	}
	switch {
	case opt.FromHeaders && len(shards) > 0:
		return shards, wholeSet(shards)
	case len(top) == 1 && len(shards) == 0, opt.FromHeaders && len(top) > 0:
		return top, nil
	case len(top) == 0:
		return nil, fmt.Errorf("%w: neither %s nor %s is there%s", ErrNoWeights, IndexName, SingleName, otherWeights(have))
	}
	return nil, fmt.Errorf("%w: %s is not there and %d files could be meant: %s; restore the index or have it rebuilt from the headers with --rebuild-index",
		ErrNoWeights, IndexName, len(top), some(top))
}

// missing compares the index with the folder before a header is read.
func (m *Model) missing(have map[string]FileInfo) error {
	var lost, tensors []string
	gone := map[string]bool{}
	for _, s := range m.Index.Shards {
		if _, ok := have[s]; !ok {
			lost = append(lost, s)
			gone[s] = true
		}
	}
	if len(lost) == 0 {
		return nil
	}
	for _, w := range m.Index.Weights {
		if gone[w.Shard] {
			tensors = append(tensors, w.Tensor)
		}
	}
	named := map[string]bool{}
	for _, s := range m.Index.Shards {
		named[s] = true
	}
	var extra []string
	for _, p := range sortedPaths(have) {
		if strings.HasSuffix(p, weightsExt) && !named[p] {
			extra = append(extra, p)
		}
	}
	msg := fmt.Sprintf("%s names %d shards, %d are missing: %s; they hold %d tensors: %s",
		IndexName, len(m.Index.Shards), len(lost), some(lost), len(tensors), some(tensors))
	if len(extra) > 0 {
		msg += fmt.Sprintf("; files that it does not name: %s; if the index is stale, have it rebuilt from the headers with --rebuild-index", some(extra))
	}
	return fmt.Errorf("%w: %s", ErrShards, msg)
}

// wholeSet demands that files named NAME-0000i-of-0000n are all there.
func wholeSet(shards []string) error {
	seen := map[string]bool{}
	var stems []string
	var last, want int
	for _, s := range shards {
		stem, i, n, _ := shardname.Split(s, weightsExt)
		stem = fmt.Sprintf("%s-of-%05d", stem, n)
		if !seen[stem] {
			seen[stem], stems = true, append(stems, stem)
		}
		last, want = i, n
	}
	if len(stems) > 1 {
		return fmt.Errorf("%w: more than one set of shards: %s", ErrShards, some(stems))
	}
	if len(shards) != want || last != want {
		return fmt.Errorf("%w: shards say they are %05d files, %d are there: %s", ErrShards, want, len(shards), some(shards))
	}
	return nil
}

// open reads the headers, a few at a time, and keeps the order of names.
func (m *Model) open(ctx context.Context, fsys Files, names []string, have map[string]FileInfo, opt ModelOptions) error {
	parallel := opt.Parallel
	if parallel <= 0 {
		parallel = 8
	}
	m.Files = make([]*File, len(names))
	errs := make([]error, len(names))
	slots := make(chan struct{}, parallel)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	for i, name := range names {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			if errs[i] = ctx.Err(); errs[i] != nil {
				return
			}
			if m.Files[i], errs[i] = openOne(ctx, fsys, have[name], opt); errs[i] != nil {
				cancel()
			}
		})
	}
	wg.Wait()
	var first error
	for _, err := range errs {
		// Files after the first bad one fail by the cancel; that is not news.
		if err != nil && (first == nil || errors.Is(first, context.Canceled)) {
			first = err
		}
	}
	return first
}

func openOne(ctx context.Context, fsys Files, fi FileInfo, opt ModelOptions) (*File, error) {
	blob, err := fsys.Open(ctx, fi.Path)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("%w: shard %s: %w", ErrShards, fi.Path, err)
		}
		return nil, fmt.Errorf("%s: %w", fi.Path, err)
	}
	o := Options{MaxHeader: opt.MaxHeader, Source: opt.Source}
	switch {
	case opt.FileKey != nil:
		o.Key = opt.FileKey(fi)
	case fi.SHA256 != "":
		o.Key = tensor.Derive("file", fi.SHA256)
	}
	return Open(ctx, fi.Path, blob, o)
}

// agree joins the files' tensors, demands unique names and compares them with
// the index.
func (m *Model) agree() error {
	type place struct {
		tensor string
		file   string
	}
	var all []place
	total := int64(0)
	for _, f := range m.Files {
		for _, t := range f.Tensors {
			all = append(all, place{t.Name, f.Name})
			m.Tensors = append(m.Tensors, t)
			total += t.Bytes()
		}
	}
	slices.SortStableFunc(all, func(a, b place) int { return strings.Compare(a.tensor, b.tensor) })
	for i := 1; i < len(all); i++ {
		if a, b := all[i-1], all[i]; a.tensor == b.tensor {
			return fmt.Errorf("%w: tensor %s is in %s and in %s", ErrShards, clip(a.tensor), a.file, b.file)
		}
	}
	if m.Index == nil {
		return nil
	}
	var lost, extra []string
	i, j := 0, 0
	for w := m.Index.Weights; i < len(w) || j < len(all); {
		switch {
		case j == len(all) || i < len(w) && w[i].Tensor < all[j].tensor:
			lost = append(lost, w[i].Tensor+" ("+w[i].Shard+")")
			i++
		case i == len(w) || w[i].Tensor > all[j].tensor:
			extra = append(extra, all[j].tensor+" ("+all[j].file+")")
			j++
		default:
			if w[i].Shard != all[j].file {
				return fmt.Errorf("%w: %s puts tensor %s in %s, it is in %s; if the index is stale, have it rebuilt from the headers with --rebuild-index",
					ErrShards, m.Index.Name, clip(w[i].Tensor), w[i].Shard, all[j].file)
			}
			i++
			j++
		}
	}
	if len(lost)+len(extra) > 0 {
		msg := ""
		if len(lost) > 0 {
			msg += fmt.Sprintf("; %d tensors of the index are in no shard: %s", len(lost), some(lost))
		}
		if len(extra) > 0 {
			msg += fmt.Sprintf("; %d tensors of the shards are not in the index: %s", len(extra), some(extra))
		}
		return fmt.Errorf("%w: %s%s; if the index is stale, have it rebuilt from the headers with --rebuild-index", ErrShards, m.Index.Name, msg)
	}
	switch {
	case !m.Index.HasTotal:
		m.Warnings = append(m.Warnings, fmt.Sprintf("%s has no metadata.total_size; the tensors hold %d bytes", m.Index.Name, total))
	case m.Index.TotalSize != total:
		m.Warnings = append(m.Warnings, fmt.Sprintf("%s says total_size %d, the tensors hold %d bytes", m.Index.Name, m.Index.TotalSize, total))
	}
	return nil
}

// isWeights reports whether a path looks like a file of weights.
func isWeights(p string) bool {
	switch strings.ToLower(path.Ext(p)) {
	case ".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".onnx", ".h5", ".msgpack", ".gguf", ".npz":
		return true
	}
	return false
}

func otherWeights(have map[string]FileInfo) string {
	var other []string
	for _, p := range sortedPaths(have) {
		if isWeights(p) {
			other = append(other, p)
		}
	}
	if len(other) == 0 {
		return ""
	}
	return "; other weight files: " + some(other)
}

func sortedPaths(have map[string]FileInfo) []string {
	out := make([]string, 0, len(have))
	for p := range have {
		out = append(out, p)
	}
	slices.Sort(out)
	return out
}

// some lists names, at most ten of them.
func some(names []string) string {
	const most = 10
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}
