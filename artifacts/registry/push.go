package registry

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync/atomic"

	"oras.land/oras-go/v2/registry/remote/auth"

	"golang.org/x/sync/errgroup"

	"quern/artifacts"
)

// How a blob came into the registry.
const (
	Sent    = "sent"
	Resumed = "resumed" // sent, but for what an earlier upload had sent
	Mounted = "mounted" // out of another repository of the registry
	Present = "present"
)

// PushOptions change one push.
type PushOptions struct {
	// From names repositories of the same registry that may have a blob.
	From func(artifacts.Digest) []string
	// Trusted are blobs whose bytes were hashed just now.
	Trusted func(artifacts.Digest) bool
}

// PushedBlob is a blob of a push and how it came to be there.
type PushedBlob struct {
	artifacts.Descriptor
	How string `json:"how"`
}

// Pushed is what a push has done.
type Pushed struct {
	Manifest artifacts.Descriptor
	// There says that the tag stood for this very manifest before.
	There bool
	Blobs []PushedBlob // everything but the manifests
	Bytes int64        // of the blobs that were sent
}

// Push brings a manifest and everything that it refers to into a registry, the
// manifest last and byte by byte as it is. Blobs are hashed before they are sent:
// what is damaged here goes nowhere. If ref has a digest it must be that of d.
func (c *Client) Push(ctx context.Context, ref Ref, src artifacts.BlobReader, d artifacts.Descriptor, opt PushOptions) (*Pushed, error) {
	if !ref.Digest.IsZero() && ref.Digest != d.Digest {
		return nil, fmt.Errorf("%w %s: the manifest to push is %s; give a tag", ErrRef, ref, d.Digest)
	}
	order, err := artifacts.Closure(ctx, src, d)
	if err != nil {
		return nil, err
	}
	p := c.at(ref)
	out := &Pushed{Manifest: d}
	var manifests []artifacts.Descriptor
	for _, o := range order {
		switch {
		case artifacts.IsManifest(o.MediaType):
			manifests = append(manifests, o)
		default:
			out.Blobs = append(out.Blobs, PushedBlob{Descriptor: o})
		}
	}
	if err := p.pushBlobs(ctx, src, out, opt); err != nil {
		return nil, err
	}
	// Closure lists what refers before what is referred to.
	for _, m := range slices.Backward(manifests) {
		tag := ""
		if m.Digest == d.Digest {
			tag = ref.Tag
		}
		there, err := p.pushManifest(ctx, src, m, tag)
		if err != nil {
			return nil, err
		}
		if m.Digest == d.Digest {
			out.There = there
		}
	}
	return out, nil
}

func (p *place) pushBlobs(ctx context.Context, src artifacts.BlobReader, out *Pushed, opt PushOptions) error {
	total := int64(0)
	for _, b := range out.Blobs {
		total += b.Size
	}
	var done atomic.Int64
	count := func(n int64) { p.c.opt.Progress(done.Add(n), total) }
	var sent atomic.Int64
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(parallel)
	for i := range out.Blobs {
		g.Go(func() error {
			how, n, err := p.pushBlob(gctx, src, out.Blobs[i].Descriptor, opt, count)
			out.Blobs[i].How = how
			sent.Add(n)
			return err
		})
	}
	err := g.Wait()
	out.Bytes = sent.Load()
	if cause := context.Cause(ctx); err != nil && cause != nil {
		return cause
	}
	return err
}

// pushBlob sends a blob that the registry does not have and cannot mount.
func (p *place) pushBlob(ctx context.Context, src artifacts.BlobReader, d artifacts.Descriptor, opt PushOptions, count func(int64)) (how string, sent int64, err error) {
	what := "blob " + d.Digest.String()
	there, err := p.exists(ctx, d)
	if err != nil {
		return "", 0, p.c.fault(ctx, p.ref, what, err)
	}
	if there {
		count(d.Size)
		return Present, 0, nil
	}
	u := &upload{place: p, d: d, chunk: p.c.opt.Chunk, count: count}
	if err := u.recall(ctx); err != nil {
		return "", 0, err
	}
	if opt.From != nil && u.loc == nil {
		for _, from := range opt.From(d.Digest) {
			ok, err := p.mount(ctx, u, from)
			if err != nil {
				return "", 0, p.c.fault(ctx, p.ref, what, err)
			}
			if ok {
				count(d.Size)
				return Mounted, 0, nil
			}
			if u.loc != nil {
				break
			}
		}
	}
	if opt.Trusted == nil || !opt.Trusted(d.Digest) {
		if err := artifacts.Copy(ctx, io.Discard, src, d); err != nil {
			return "", 0, err
		}
	}
	blob, err := src.Open(ctx, d.Digest)
	if err != nil {
		return "", 0, err
	}
	defer blob.Close()
	if blob.Size() != d.Size {
		return "", 0, fmt.Errorf("%s: %w: it has %d bytes by now, not %d", what, artifacts.ErrCorrupt, blob.Size(), d.Size)
	}
	u.blob = blob
	if err := u.run(ctx); err != nil {
		return "", 0, err
	}
	if u.resumed {
		return Resumed, d.Size - u.had, nil
	}
	return Sent, d.Size, nil
}

// exists asks for a blob. Registries that do not know HEAD are asked to upload.
func (p *place) exists(ctx context.Context, d artifacts.Descriptor) (bool, error) {
	req, err := request(ctx, http.MethodHead, p.url("blobs/"+d.Digest.String()), nil, 0)
	if err != nil {
		return false, err
	}
	res, err := p.do(req, auth.ActionPull, auth.ActionPush)
	if err != nil {
		return false, err
	}
	switch {
	case res.StatusCode == http.StatusOK:
		end(res)
		// Another length is not this blob, whatever the registry takes it for;
		// proxies leave the length out.
		return res.ContentLength == d.Size || res.ContentLength <= 0, nil
	case res.StatusCode == http.StatusUnauthorized, res.StatusCode == http.StatusForbidden, passing(res.StatusCode):
		return false, readAnswer(res)
	}
	end(res)
	return false, nil
}

// mount asks for a blob of another repository. A registry that cannot opens an
// upload instead.
func (p *place) mount(ctx context.Context, u *upload, from string) (bool, error) {
	to := p.url("blobs/uploads/")
	q := to.Query()
	q.Set("mount", u.d.Digest.String())
	q.Set("from", from)
	to.RawQuery = q.Encode()
	other := p.oras.Reference
	other.Repository = from
	req, err := request(auth.AppendRepositoryScope(ctx, other, auth.ActionPull), http.MethodPost, to, nil, 0)
	if err != nil {
		return false, err
	}
	res, err := p.do(req, auth.ActionPull, auth.ActionPush)
	if err != nil {
		return false, err
	}
	switch res.StatusCode {
	case http.StatusCreated:
		end(res)
		return true, nil
	case http.StatusAccepted:
		return false, u.begun(res)
	}
	end(res)
	return false, nil // an upload of its own says what is wrong
}

// pushManifest puts a manifest. oras-go looks after the index of referrers where
// the registry does not.
func (p *place) pushManifest(ctx context.Context, src artifacts.BlobReader, d artifacts.Descriptor, tag string) (there bool, err error) {
	raw, err := artifacts.ReadAll(ctx, src, d, artifacts.MaxManifest)
	if err != nil {
		return false, err
	}
	name := tag
	if name == "" {
		name = d.Digest.String()
	}
	if has, err := p.oras.Resolve(ctx, name); err == nil && string(has.Digest) == d.Digest.String() && has.MediaType == d.MediaType {
		return true, nil
	} else if ctx.Err() != nil {
		return false, context.Cause(ctx)
	}
	if err := p.oras.PushReference(ctx, d.OCI(), bytes.NewReader(raw), name); err != nil {
		return false, p.c.fault(ctx, p.ref, "manifest "+d.Digest.String(), err)
	}
	return false, nil
}

// PushAbout brings what refers to manifest subject, which the registry has, there
// too: signatures, provenance.
func (c *Client) PushAbout(ctx context.Context, ref Ref, src artifacts.BlobReader, d artifacts.Descriptor, opt PushOptions) (*Pushed, error) {
	ref.Tag, ref.Digest = "", artifacts.Digest{}
	out, err := c.Push(ctx, ref, src, d, opt)
	if err != nil {
		return nil, fmt.Errorf("what refers to the manifest: %w", err)
	}
	return out, nil
}
