package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

const (
	// maxJSON bounds one JSON answer. A page of 1000 files is about 300 kB,
	// a model object with all its siblings may be a few MB.
	maxJSON = 64 << 20
	// maxPages and maxFiles bound a listing.
	maxPages = 10_000
	maxFiles = 1_000_000
)

// getJSON sends an API request, retries it, and decodes the answer into v.
func (c *Client) getJSON(ctx context.Context, what string, u *url.URL, count *counters, v any) (http.Header, error) {
	op := c.newOperation(what, count)
	for {
		h, err := c.getJSONOnce(ctx, op, u, v)
		if err == nil || !c.again(op, err) {
			return h, err
		}
	}
}

func (c *Client) getJSONOnce(ctx context.Context, op *operation, u *url.URL, v any) (http.Header, error) {
	a, err := c.follow(ctx, request{url: u, auth: true, timeout: c.opt.MetadataTimeout, op: op})
	if err != nil {
		return nil, err
	}
	if a.StatusCode != http.StatusOK {
		return nil, c.classify(a, op.what)
	}
	defer a.Body.Close()
	notHub := func(err error) error {
		return &Error{Kind: ErrNotHub, What: op.what, URL: redact(a.url), Err: err, RequestID: requestID(a.Header),
			Hint: "check the endpoint (HF_ENDPOINT) and that no login page is in the way"}
	}
	if mt, _, _ := mime.ParseMediaType(a.Header.Get("Content-Type")); mt == "text/html" {
		return nil, notHub(errors.New("an HTML page came in place of JSON"))
	}
	if enc := a.Header.Get("Content-Encoding"); enc != "" && !strings.EqualFold(enc, "identity") {
		return nil, &Error{Kind: ErrEncoding, What: op.what, URL: redact(a.url), Err: fmt.Errorf("Content-Encoding %q", clean(enc))}
	}
	b, err := io.ReadAll(io.LimitReader(a.Body, maxJSON+1))
	if err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		c.pause(a.url.Host, op.wait())
		return nil, &Error{Kind: ErrNetwork, What: op.what, URL: redact(a.url), Err: err}
	}
	if len(b) > maxJSON {
		return nil, notHub(fmt.Errorf("the answer is larger than %d bytes", maxJSON))
	}
	if err := json.Unmarshal(b, v); err != nil {
		return nil, notHub(fmt.Errorf("the answer is not the JSON that a hub sends: %w", err))
	}
	return a.Header, nil
}

// apiFile is an entry of a tree or of siblings. The same digest is lfs.oid in
// the one and lfs.sha256 in the other.
type apiFile struct {
	Type      string  `json:"type"`
	Path      string  `json:"path"`
	RFilename string  `json:"rfilename"`
	Size      int64   `json:"size"`
	OID       string  `json:"oid"`
	BlobID    string  `json:"blobId"`
	LFS       *apiLFS `json:"lfs"`
}

type apiLFS struct {
	OID    string `json:"oid"`
	SHA256 string `json:"sha256"`
	Size   int64  `json:"size"`
}

// file checks an entry. For an LFS file the outer oid is the pointer's and
// says nothing about the content.
func (e apiFile) file() (File, error) {
	f := File{Path: e.Path, Size: e.Size}
	if f.Path == "" {
		f.Path = e.RFilename
	}
	if err := checkPath(f.Path); err != nil {
		return File{}, err
	}
	bad := func(field, v string) (File, error) {
		return File{}, fmt.Errorf("%w: %s: %s %q", ErrListing, f.Path, field, clean(v))
	}
	if e.LFS != nil {
		sum := e.LFS.OID
		if sum == "" {
			sum = e.LFS.SHA256
		}
		if f.SHA256 = strings.TrimPrefix(strings.ToLower(sum), "sha256:"); !isHex(f.SHA256, 64) {
			return bad("LFS digest is not 64 hex digits:", sum)
		}
		if e.LFS.Size > 0 {
			f.Size = e.LFS.Size
		}
	} else {
		oid := e.OID
		if oid == "" {
			oid = e.BlobID
		}
		if f.GitOID = strings.ToLower(oid); oid != "" && !isHex(f.GitOID, 40) {
			return bad("git hash is not 40 hex digits:", oid)
		}
	}
	if f.Size < 0 {
		return bad("negative size", fmt.Sprint(f.Size))
	}
	return f.believe(), nil
}

type modelInfo struct {
	SHA      string    `json:"sha"`
	Siblings []apiFile `json:"siblings"`
}

// pin asks which commit a revision is now.
func (c *Client) pin(ctx context.Context, ref Ref, count *counters) (string, error) {
	u, err := c.address("/api/models/" + escapeSegments(ref.Repo) + "/revision/" + url.PathEscape(ref.Revision))
	if err != nil {
		return "", err
	}
	var info modelInfo
	h, err := c.getJSON(ctx, ref.String(), u, count, &info)
	if err != nil {
		return "", apiNotFound(err)
	}
	if !IsCommit(info.SHA) {
		return "", &Error{Kind: ErrNotHub, What: ref.String(), URL: redact(u), RequestID: requestID(h),
			Err: fmt.Errorf("the answer names no commit (sha %q)", clean(info.SHA)), Hint: "check the endpoint (HF_ENDPOINT)"}
	}
	return info.SHA, nil
}

// apiNotFound: a 404 without a code on an API path is about the repository.
func apiNotFound(err error) error {
	var e *Error
	if errors.As(err, &e) && e.Kind == ErrNotFound && e.Code == "" {
		c := *e
		c.Kind, c.Hint = ErrRepoNotFound, "check the name and the endpoint; a private repository needs a token (HF_TOKEN)"
		return &c
	}
	return err
}

// tree lists all files of a commit, sorted by path.
func (c *Client) tree(ctx context.Context, ref Ref, commit string, count *counters) ([]File, error) {
	u, err := c.address("/api/models/" + escapeSegments(ref.Repo) + "/tree/" + commit + "?recursive=true&expand=false")
	if err != nil {
		return nil, err
	}
	var files []File
	seen := map[string]bool{}
	for page := 0; u != nil; page++ {
		if page >= maxPages || seen[u.String()] {
			return nil, &Error{Kind: ErrListing, What: ref.String(), URL: redact(u), Err: errors.New("the listing's pages do not end")}
		}
		seen[u.String()] = true
		var entries []apiFile
		h, err := c.getJSON(ctx, ref.String(), u, count, &entries)
		if err != nil {
			if page == 0 && noTree(err) {
				return c.siblings(ctx, ref, commit, count)
			}
			return nil, apiNotFound(err)
		}
		for _, e := range entries {
			if e.Type != "file" {
				continue
			}
			f, err := e.file()
			if err != nil {
				return nil, about(ref.String(), err)
			}
			files = append(files, f)
		}
		if len(files) > maxFiles {
			return nil, &Error{Kind: ErrListing, What: ref.String(), Err: fmt.Errorf("more than %d files", maxFiles)}
		}
		if u, err = c.nextPage(u, h); err != nil {
			return nil, about(ref.String(), err)
		}
	}
	return sortFiles(ref.String(), files)
}

// nextPage takes the next page's address from Link. Mirrors pass the public
// hub's Link on unchanged, so the address is moved to the endpoint.
func (c *Client) nextPage(from *url.URL, h http.Header) (*url.URL, error) {
	link, ok := parseLinkNext(h.Values("Link"))
	if !ok {
		return nil, nil
	}
	next, err := from.Parse(link)
	if err != nil {
		return nil, fmt.Errorf("%w: the Link to the next page is not a URL", ErrListing)
	}
	if origin(next) != origin(c.end) {
		if !strings.HasPrefix(next.Path, c.end.Path) {
			next.Path = c.end.Path + next.Path
			next.RawPath = ""
		}
		next.Scheme, next.Host = c.end.Scheme, c.end.Host
	}
	next.User, next.Fragment, next.RawFragment = nil, "", ""
	return next, nil
}

// noTree: a mirror without the tree call.
func noTree(err error) bool {
	var e *Error
	if !errors.As(err, &e) || e.Code != "" {
		return false
	}
	return e.Status == http.StatusNotFound || e.Status == http.StatusMethodNotAllowed || e.Status == http.StatusNotImplemented
}

// siblings lists files through the model object, for mirrors without trees.
func (c *Client) siblings(ctx context.Context, ref Ref, commit string, count *counters) ([]File, error) {
	u, err := c.address("/api/models/" + escapeSegments(ref.Repo) + "/revision/" + commit + "?blobs=true")
	if err != nil {
		return nil, err
	}
	var info modelInfo
	if _, err := c.getJSON(ctx, ref.String(), u, count, &info); err != nil {
		return nil, apiNotFound(err)
	}
	if len(info.Siblings) > maxFiles {
		return nil, &Error{Kind: ErrListing, What: ref.String(), Err: fmt.Errorf("more than %d files", maxFiles)}
	}
	files := make([]File, 0, len(info.Siblings))
	for _, s := range info.Siblings {
		f, err := s.file()
		if err != nil {
			return nil, about(ref.String(), err)
		}
		files = append(files, f)
	}
	return sortFiles(ref.String(), files)
}

// sortFiles orders a listing and refuses a path that comes twice.
func sortFiles(what string, files []File) ([]File, error) {
	slices.SortFunc(files, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	for i := 1; i < len(files); i++ {
		if files[i].Path == files[i-1].Path {
			if files[i] == files[i-1] {
				continue
			}
			return nil, &Error{Kind: ErrListing, What: what, Err: fmt.Errorf("%s is listed twice with different content", files[i].Path)}
		}
	}
	return slices.Compact(files), nil
}
