package registry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/registry/remote/auth"

	"quern/artifacts"
)

// accept lists the manifests that quern can follow. An OCI one is not found by
// those who do not ask for it by name.
var accept = strings.Join([]string{
	ocispec.MediaTypeImageManifest, ocispec.MediaTypeImageIndex,
	"application/vnd.docker.distribution.manifest.v2+json", "application/vnd.docker.distribution.manifest.list.v2+json",
	"application/vnd.oci.artifact.manifest.v1+json",
}, ", ")

// Manifest fetches a manifest's bytes. They are verified if ref has a digest; a
// digest that the registry gives must be theirs in any case.
func (c *Client) Manifest(ctx context.Context, ref Ref) (artifacts.Descriptor, []byte, error) {
	p := c.at(ref)
	d, raw, err := p.manifest(ctx, ref.what())
	if err == nil && !ref.Digest.IsZero() && d.Digest != ref.Digest {
		err = fmt.Errorf("%w: they have digest %s", ErrBytes, d.Digest)
	}
	if err != nil {
		return artifacts.Descriptor{}, nil, c.fault(ctx, ref, "manifest "+ref.what(), err)
	}
	return d, raw, nil
}

func (p *place) manifest(ctx context.Context, what string) (artifacts.Descriptor, []byte, error) {
	var none artifacts.Descriptor
	for fruitless := 1; ; fruitless++ {
		res, raw, err := p.getManifest(ctx, what)
		if err == nil {
			return manifestOf(res, raw)
		}
		if res == nil || ctx.Err() != nil || fruitless >= barren {
			return none, nil, err
		}
		if err := p.c.opt.sleep(ctx, backoff(fruitless)); err != nil {
			return none, nil, err
		}
	}
}

// getManifest makes one request. With an answer that breaks off it returns both the
// answer and an error.
func (p *place) getManifest(ctx context.Context, what string) (*http.Response, []byte, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	req, err := request(ctx, http.MethodGet, p.url("manifests/"+what), nil, 0)
	if err != nil {
		return nil, nil, err
	}
	req.Header.Set("Accept", accept)
	res, err := p.do(req, auth.ActionPull)
	if err != nil {
		return nil, nil, err
	}
	if res.StatusCode != http.StatusOK {
		return nil, nil, readAnswer(res)
	}
	body := p.watch(res.Body, cancel)
	defer body.Close()
	raw, err := io.ReadAll(io.LimitReader(body, artifacts.MaxManifest+1))
	if err != nil {
		err = causeOf(ctx, short(err))
	}
	return res, raw, err
}

// manifestOf describes an answer. Its type is the one in the Content-Type, which
// not every server knows, else the one that the manifest gives itself.
func manifestOf(res *http.Response, raw []byte) (artifacts.Descriptor, []byte, error) {
	var none artifacts.Descriptor
	if len(raw) > artifacts.MaxManifest {
		return none, nil, fmt.Errorf("it is longer than %d bytes", artifacts.MaxManifest)
	}
	d := artifacts.Descriptor{Digest: artifacts.DigestOf(raw), Size: int64(len(raw))}
	if said := res.Header.Get("Docker-Content-Digest"); strings.HasPrefix(said, "sha256:") && said != d.Digest.String() {
		return none, nil, fmt.Errorf("%w: the registry gives their digest as %.90q, and it is %s", ErrBytes, said, d.Digest)
	}
	var m struct {
		SchemaVersion int                 `json:"schemaVersion"`
		MediaType     string              `json:"mediaType"`
		ArtifactType  string              `json:"artifactType"`
		Manifests     json.RawMessage     `json:"manifests"`
		Layers        json.RawMessage     `json:"layers"`
		Config        *ocispec.Descriptor `json:"config"`
	}
	t, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type"))
	if err := json.Unmarshal(raw, &m); err != nil {
		return none, nil, fmt.Errorf("%w: the answer, of type %q, is no manifest", artifacts.ErrManifest, shorten(t))
	}
	switch {
	case m.MediaType != "" && artifacts.IsManifest(m.MediaType):
		if artifacts.IsManifest(t) && t != m.MediaType {
			return none, nil, fmt.Errorf("%w: it is a %s, and the registry sends it as %s", artifacts.ErrManifest, m.MediaType, t)
		}
		d.MediaType = m.MediaType
	case artifacts.IsManifest(t):
		d.MediaType = t
	case m.Manifests != nil && m.MediaType == "":
		d.MediaType = ocispec.MediaTypeImageIndex
	case m.Layers != nil && m.MediaType == "":
		d.MediaType = ocispec.MediaTypeImageManifest
	default:
		return none, nil, fmt.Errorf("%w: unknown type %q", artifacts.ErrManifest, shorten(m.MediaType+" "+t))
	}
	if m.SchemaVersion == 1 {
		return none, nil, fmt.Errorf("%w: schema version 1, which has no digests of files", artifacts.ErrManifest)
	}
	d.ArtifactType = m.ArtifactType
	return d, raw, nil
}

// maxManifests bounds the manifests of one pull, which are held in memory.
const maxManifests = 64 << 20

// Pulled is what a pull has done.
type Pulled struct {
	Manifest artifacts.Descriptor
	Blobs    int
	Bytes    int64 // of everything
	Fetched  int64 // of what had to be fetched
}

// Dest is where blobs go.
type Dest interface {
	artifacts.BlobReader
	// Start opens the writer of a blob that is not there.
	Start(context.Context, artifacts.Descriptor) (artifacts.BlobWriter, error)
}

// Pull brings a manifest, as Manifest gave it, and everything that it refers to
// into a store, the manifest last. Blobs that are there already are not fetched.
func (c *Client) Pull(ctx context.Context, ref Ref, dst Dest, d artifacts.Descriptor, raw []byte) (*Pulled, error) {
	p := c.at(ref)
	out := &Pulled{Manifest: d}
	small := map[artifacts.Digest][]byte{d.Digest: raw}
	held := len(raw)
	read := func(ctx context.Context, o ocispec.Descriptor) ([]byte, error) {
		to, err := artifacts.FromOCI(o)
		if err != nil {
			return nil, err
		}
		if b, ok := small[to.Digest]; ok {
			return b, nil
		}
		got, b, err := p.manifest(ctx, to.Digest.String())
		if err == nil && (got.Digest != to.Digest || got.Size != to.Size) {
			err = fmt.Errorf("%w: %d bytes of digest %s", ErrBytes, got.Size, got.Digest)
		}
		if err != nil {
			return nil, c.fault(ctx, ref, "manifest "+to.Digest.String(), err)
		}
		if held += len(b); held > maxManifests {
			return nil, c.fault(ctx, ref, "index", fmt.Errorf("%w: its manifests have more than %d bytes; pull one of them by its digest", artifacts.ErrManifest, maxManifests))
		}
		small[to.Digest] = b
		return b, nil
	}
	var manifests, blobs []artifacts.Descriptor
	seen := map[artifacts.Digest]int64{}
	err := artifacts.Walk(ctx, []ocispec.Descriptor{d.OCI()}, read, func(e artifacts.Edge) error {
		to, err := artifacts.FromOCI(e.To)
		if err != nil {
			return c.fault(ctx, ref, "manifest "+string(e.From), err)
		}
		size, was := seen[to.Digest]
		switch {
		case was && size != to.Size:
			return c.fault(ctx, ref, "manifest", fmt.Errorf("%w: blob %s has %d bytes and %d bytes", artifacts.ErrManifest, to.Digest, size, to.Size))
		case was:
			return nil
		}
		seen[to.Digest] = to.Size
		out.Bytes += to.Size
		if artifacts.IsManifest(to.MediaType) {
			manifests = append(manifests, to)
		} else {
			blobs = append(blobs, to)
		}
		return nil
	}, func(e artifacts.Edge, err error) error {
		if errors.Is(err, artifacts.ErrManifest) {
			return c.fault(ctx, ref, "manifest "+string(e.To.Digest), err)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	out.Blobs = len(blobs)
	if out.Fetched, err = p.pullBlobs(ctx, dst, blobs); err != nil {
		return nil, err
	}
	for i := len(manifests) - 1; i >= 0; i-- {
		m := manifests[i]
		if in, err := dst.Stat(ctx, m.Digest); err == nil && in.Size == m.Size {
			if artifacts.Copy(ctx, io.Discard, dst, m) == nil {
				continue
			}
		}
		w, err := dst.Start(ctx, m)
		if err != nil {
			return nil, err
		}
		if w.Size() < m.Size {
			_, err = w.Write(small[m.Digest][w.Size():])
		}
		if err == nil {
			_, err = w.Commit(m.Digest)
		}
		w.Abort()
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// Fetch brings blobs alone, for those who keep no manifests. It returns how many
// bytes came.
func (c *Client) Fetch(ctx context.Context, ref Ref, dst Dest, blobs []artifacts.Descriptor) (int64, error) {
	return c.at(ref).pullBlobs(ctx, dst, blobs)
}

func (p *place) pullBlobs(ctx context.Context, dst Dest, blobs []artifacts.Descriptor) (int64, error) {
	total := int64(0)
	for _, b := range blobs {
		total += b.Size
	}
	var done, fetched atomic.Int64
	count := func(n int64) { p.c.opt.Progress(done.Add(n), total) }
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(parallel)
	for _, b := range blobs {
		g.Go(func() error {
			if in, err := dst.Stat(gctx, b.Digest); err == nil && in.Size == b.Size {
				if artifacts.Copy(gctx, io.Discard, dst, b) == nil {
					count(b.Size)
					return nil
				}
				p.c.opt.Say(fmt.Sprintf("blob %s is damaged here; fetching it", b.Digest))
			}
			n, err := p.fetch(gctx, b, dst.Start, count)
			fetched.Add(n)
			return err
		})
	}
	err := g.Wait()
	if cause := context.Cause(ctx); err != nil && cause != nil {
		err = cause
	}
	return fetched.Load(), err
}

// Referrers lists what refers to a manifest: by the registry's own list, else by
// the index that clients keep under a tag. An artifactType chooses among them.
func (c *Client) Referrers(ctx context.Context, ref Ref, d artifacts.Descriptor, artifactType string) ([]artifacts.Descriptor, error) {
	var out []artifacts.Descriptor
	err := c.at(ref).oras.Referrers(ctx, d.OCI(), artifactType, func(list []ocispec.Descriptor) error {
		for _, o := range list {
			r, err := artifacts.FromOCI(o)
			if err != nil {
				continue // of another algorithm
			}
			out = append(out, r)
		}
		return nil
	})
	if err != nil {
		return nil, c.fault(ctx, ref, "what refers to "+d.Digest.String(), err)
	}
	return out, nil
}
