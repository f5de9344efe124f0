package hubtest

import (
	"bytes"
	"crypto/sha1"
	"crypto/sha256"
	"fmt"
	"io"
	"sort"
	"strings"
	"sync"
)

// File is one file of a commit. Content is Data, or Reader and Size for large
// files that are not held in memory.
type File struct {
	Data   []byte
	Reader io.ReaderAt
	Size   int64
	// LFS files are served through the storage host.
	LFS bool

	// The listing lies where these are set.
	ListedSize   *int64
	ListedSHA256 string
	ListedOID    string
	// ListedPath replaces the path in listings.
	ListedPath string

	sha256, oid string // of the content; oid of the pointer for LFS files
}

// Git makes a file that is kept in git.
func Git(data string) *File { return &File{Data: []byte(data)} }

// LFS makes a file that is kept in large file storage.
func LFS(data []byte) *File { return &File{Data: data, LFS: true} }

// LFSReader makes a large file whose content is read on demand.
func LFSReader(r io.ReaderAt, size int64) *File { return &File{Reader: r, Size: size, LFS: true} }

// SHA256 is the digest of the content in hex, after Commit.
func (f *File) SHA256() string { return f.sha256 }

// OID is git's blob hash of the content, or of the pointer for LFS files,
// after Commit.
func (f *File) OID() string { return f.oid }

func (f *File) seal() error {
	if f.Reader == nil {
		f.Reader, f.Size = bytes.NewReader(f.Data), int64(len(f.Data))
	}
	h := sha256.New()
	if _, err := io.Copy(h, io.NewSectionReader(f.Reader, 0, f.Size)); err != nil {
		return err
	}
	f.sha256 = fmt.Sprintf("%x", h.Sum(nil))
	if f.LFS {
		f.oid = blobHash([]byte(f.pointer()))
		return nil
	}
	g := sha1.New()
	fmt.Fprintf(g, "blob %d\x00", f.Size)
	if _, err := io.Copy(g, io.NewSectionReader(f.Reader, 0, f.Size)); err != nil {
		return err
	}
	f.oid = fmt.Sprintf("%x", g.Sum(nil))
	return nil
}

// pointer is the text that git holds in place of an LFS file.
func (f *File) pointer() string {
	return fmt.Sprintf("version https://git-lfs.github.com/spec/v1\noid sha256:%s\nsize %d\n", f.sha256, f.Size)
}

// xetHash stands for the Merkle hash that storage uses: 64 hex digits that are
// not the SHA-256.
func (f *File) xetHash() string { return fmt.Sprintf("%x", sha256.Sum256([]byte("xet "+f.sha256))) }

func blobHash(b []byte) string {
	h := sha1.New()
	fmt.Fprintf(h, "blob %d\x00", len(b))
	h.Write(b)
	return fmt.Sprintf("%x", h.Sum(nil))
}

// Repo is a model repository. Its switches may be set before the hub starts.
type Repo struct {
	ID string
	// Private repositories hide from those without access, Gated ones refuse
	// their files, Disabled ones refuse everything.
	Private, Gated, Disabled bool

	mu      sync.Mutex
	commits map[string]map[string]*File
	refs    map[string]string // "main", "v1", "refs/pr/1"
	tags    map[string]bool
}

// NewRepo makes an empty repository.
func NewRepo(id string) *Repo {
	return &Repo{ID: id, commits: map[string]map[string]*File{}, refs: map[string]string{}, tags: map[string]bool{}}
}

// Commit adds a commit with these files, moves main to it and returns its
// hash, which depends on the content only.
func (r *Repo) Commit(files map[string]*File) string {
	h := sha1.New()
	paths := make([]string, 0, len(files))
	for p := range files {
		paths = append(paths, p)
	}
	sort.Strings(paths)
	for _, p := range paths {
		if err := files[p].seal(); err != nil {
			panic(fmt.Sprintf("hubtest: read %s: %v", p, err))
		}
		fmt.Fprintf(h, "%s %s %v\n", p, files[p].sha256, files[p].LFS)
	}
	commit := fmt.Sprintf("%x", h.Sum(nil))
	r.mu.Lock()
	defer r.mu.Unlock()
	r.commits[commit] = files
	r.refs["main"] = commit
	return commit
}

// SetRef points a branch or "refs/pr/N" to a commit.
func (r *Repo) SetRef(name, commit string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refs[name] = commit
}

// SetTag points a tag to a commit.
func (r *Repo) SetTag(name, commit string) {
	r.SetRef(name, commit)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tags[name] = true
}

// resolve gives the commit of a revision and its files.
func (r *Repo) resolve(rev string) (string, map[string]*File, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c, ok := r.refs[rev]; ok {
		rev = c
	}
	files, ok := r.commits[rev]
	return rev, files, ok
}

// dirs lists the folders of a commit.
func dirs(files map[string]*File) []string {
	set := map[string]bool{}
	for p := range files {
		for i, c := range p {
			if c == '/' {
				set[p[:i]] = true
			}
		}
	}
	out := make([]string, 0, len(set))
	for d := range set {
		if d != "" && !strings.HasPrefix(d, ".") {
			out = append(out, d)
		}
	}
	sort.Strings(out)
	return out
}
