package hub

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// The cache of huggingface_hub, one folder a repository:
//
//	models--ORG--NAME/blobs/<etag>              content; 40 hex git, 64 hex SHA-256
//	                  refs/<revision>           text: the commit
//	                  snapshots/<commit>/<path> link to the blob, or the file itself
//	                  .no_exist/<commit>/<path> empty: known to be absent
//	                  trees/<commit>.json       listing of the commit
//
// It is only read. What it says is a claim until a digest has proved it.
type cacheRepo struct {
	dir  string
	real string // dir without links
}

const (
	maxRefFile  = 4 << 10
	maxTreeFile = 256 << 20
	treeVersion = 1
)

// cacheRepos finds the repository in the cache folders.
func (c *Client) cacheRepos(ref Ref) []cacheRepo {
	var out []cacheRepo
	for _, dir := range c.opt.CacheDirs {
		if dir == "" {
			continue
		}
		d := filepath.Join(dir, "models--"+strings.ReplaceAll(ref.Repo, "/", "--"))
		real, err := filepath.EvalSymlinks(d)
		if err != nil {
			continue
		}
		if st, err := os.Stat(real); err == nil && st.IsDir() {
			out = append(out, cacheRepo{d, real})
		}
	}
	return out
}

// inside resolves all links of a path in the repository's folder and refuses
// one that leaves it.
func (r cacheRepo) inside(path string) (string, error) {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "", err
	}
	rel, err := filepath.Rel(r.real, real)
	if err != nil || !filepath.IsLocal(rel) {
		return "", fmt.Errorf("%w: %s links to %s, outside of the repository's cache folder", ErrPath, path, real)
	}
	return real, nil
}

// ref reads the commit that a revision was when it was last downloaded.
func (r cacheRepo) ref(revision string) (string, error) {
	path, err := r.inside(filepath.Join(r.dir, "refs", filepath.FromSlash(revision)))
	if err != nil {
		return "", err
	}
	b, err := readLimited(path, maxRefFile)
	if err != nil {
		return "", err
	}
	return parseRefFile(b)
}

func parseRefFile(b []byte) (string, error) {
	s := strings.TrimSpace(string(b))
	if !IsCommit(s) {
		return "", fmt.Errorf("%w: a ref file of the cache holds %q, not a commit", ErrListing, clean(s))
	}
	return s, nil
}

// absent reports whether a path is known not to be in the commit.
func (r cacheRepo) absent(commit, path string) bool {
	_, err := os.Lstat(filepath.Join(r.dir, ".no_exist", commit, filepath.FromSlash(path)))
	return err == nil
}

// cached is a file found in a cache. claim is what its blob's name says it is;
// the zero Digest for a plain file.
type cached struct {
	path  string // without links
	size  int64
	claim Digest
}

// find looks a file up. The error is fs.ErrNotExist when it is not there.
func (r cacheRepo) find(commit, path string) (cached, error) {
	if err := checkPath(path); err != nil {
		return cached{}, err
	}
	real, err := r.inside(filepath.Join(r.dir, "snapshots", commit, filepath.FromSlash(path)))
	if err != nil {
		return cached{}, err
	}
	st, err := os.Stat(real)
	if err != nil {
		return cached{}, err
	}
	if !st.Mode().IsRegular() {
		return cached{}, fmt.Errorf("%w: %s is not a regular file", ErrListing, real)
	}
	base := filepath.Base(real)
	if strings.HasSuffix(base, ".incomplete") || strings.HasSuffix(base, ".tmp") {
		return cached{}, fmt.Errorf("%s: unfinished download: %w", real, fs.ErrNotExist)
	}
	f := cached{path: real, size: st.Size()}
	if filepath.Base(filepath.Dir(real)) == "blobs" {
		f.claim = claimOf(base)
	}
	return f, nil
}

// claimOf reads a blob's name: 40 hex digits are git's hash; 64 are SHA-256,
// or the Xet hash that some JavaScript clients use, which proves nothing.
func claimOf(name string) Digest {
	switch {
	case isHex(name, 40):
		return Digest{GitSHA1, name}
	case isHex(name, 64):
		return Digest{SHA256, name}
	}
	return Digest{}
}

// tree reads the saved listing of a commit.
func (r cacheRepo) tree(commit string) ([]File, error) {
	path, err := r.inside(filepath.Join(r.dir, "trees", commit+".json"))
	if err != nil {
		return nil, err
	}
	b, err := readLimited(path, maxTreeFile)
	if err != nil {
		return nil, err
	}
	files, err := parseTreeFile(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return files, nil
}

// parseTreeFile reads trees/<commit>.json:
//
//	{"format_version": 1, "files": {"config.json": {"size": 519, "blob_id": "<git hash>"},
//	  "w.safetensors": {"size": 9, "blob_id": "...", "lfs_sha256": "...", "lfs_size": 9, "xet_hash": "..."}}}
func parseTreeFile(b []byte) ([]File, error) {
	var doc struct {
		Version int `json:"format_version"`
		Files   map[string]struct {
			Size   *int64  `json:"size"`
			BlobID string  `json:"blob_id"`
			SHA256 *string `json:"lfs_sha256"`
			LFS    *int64  `json:"lfs_size"`
		} `json:"files"`
	}
	if err := json.Unmarshal(b, &doc); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrListing, err)
	}
	if doc.Version != treeVersion {
		return nil, fmt.Errorf("%w: format_version %d, only %d is known", ErrListing, doc.Version, treeVersion)
	}
	files := make([]File, 0, len(doc.Files))
	for path, x := range doc.Files {
		e := apiFile{Path: path, OID: x.BlobID}
		if x.Size == nil {
			return nil, fmt.Errorf("%w: %s has no size", ErrListing, clean(path))
		}
		e.Size = *x.Size
		if x.SHA256 != nil {
			e.LFS = &apiLFS{OID: *x.SHA256}
			if x.LFS != nil {
				e.LFS.Size = *x.LFS
			}
		}
		f, err := e.file()
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	return sortFiles("trees", files)
}

// walk lists what the cache holds of a commit that has no saved listing. The
// commit may have more files.
func (r cacheRepo) walk(commit string) ([]File, error) {
	root := filepath.Join(r.dir, "snapshots", commit)
	if _, err := r.inside(root); err != nil {
		return nil, err
	}
	var files []File
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		path := filepath.ToSlash(rel)
		c, err := r.find(commit, path)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, ErrPath) || errors.Is(err, ErrListing) {
			// A dangling link, a link to the outside, an unfinished file:
			// not there.
			return nil
		}
		if err != nil {
			return err
		}
		f := File{Path: path, Size: c.size}
		switch c.claim.Algorithm {
		case SHA256:
			f.SHA256 = c.claim.Hex
		case GitSHA1:
			f.GitOID = c.claim.Hex
		}
		files = append(files, f)
		if len(files) > maxFiles {
			return fmt.Errorf("%w: more than %d files", ErrListing, maxFiles)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return sortFiles(root, files)
}
