package artifacts

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"quern/internal/ordered"
)

// FindingKind says what is wrong.
type FindingKind string

// The kinds of findings.
const (
	FindingDigest   FindingKind = "wrong digest"     // a blob's bytes are not those of its name
	FindingRead     FindingKind = "unreadable"       // a blob or file cannot be read
	FindingMissing  FindingKind = "missing blob"     // something refers to a blob that is not there
	FindingSize     FindingKind = "wrong size"       // a blob is shorter or longer than a descriptor says
	FindingManifest FindingKind = "bad manifest"     // a manifest cannot be parsed or contradicts itself
	FindingIndex    FindingKind = "bad index"        // index.json or oci-layout is damaged
	FindingKey      FindingKind = "bad key"          // a key's range is beyond its blob, or has another digest
	FindingKeyFile  FindingKind = "damaged key file" // keys are lost; builds compute again
)

// Finding is one thing that is wrong in a store.
type Finding struct {
	Kind FindingKind `json:"kind"`
	// Subject is the blob, file or name that is damaged, From what refers to
	// it, if that is how it was found.
	Subject string `json:"subject"`
	From    string `json:"from,omitempty"`
	// Want and Got are the two values that differ.
	Want string `json:"want,omitempty"`
	Got  string `json:"got,omitempty"`
}

// String is the finding in one line.
func (f Finding) String() string {
	s := f.Subject + ": " + string(f.Kind)
	if f.From != "" {
		s += ", needed by " + f.From
	}
	if f.Want != "" {
		s += ": want " + f.Want
	}
	if f.Got != "" {
		s += ", got " + f.Got
	}
	return s
}

// VerifyOptions change how a store is verified, never what is found.
type VerifyOptions struct {
	// Jobs is how many blobs are read at once; zero means one a CPU.
	Jobs int
	// Progress, if set, is told the bytes read so far and in all. Calls do
	// not overlap.
	Progress func(done, total int64)
}

// Verify reads every blob of a store again and follows every reference and
// every key. It returns all that is wrong, blobs first, in an order that does
// not depend on Jobs. An error means that the store could not be verified.
func Verify(ctx context.Context, s ReadStore, opt VerifyOptions) ([]Finding, error) {
	blobs, err := s.List(ctx)
	if err != nil {
		return nil, err
	}
	roots, err := s.Roots(ctx)
	if err != nil {
		return nil, err
	}
	keys, err := s.Keys(ctx)
	if err != nil {
		return nil, err
	}
	v := &verifier{s: s, opt: opt, sizes: map[Digest]int64{}}
	for _, b := range blobs {
		v.sizes[b.Digest] = b.Size
	}
	refs := v.checkRanges(keys)
	for _, b := range blobs {
		v.total += b.Size
	}
	for _, r := range refs {
		v.total += r.Bytes
	}
	if err := v.hashAll(ctx, blobs, refs); err != nil {
		return nil, err
	}
	if err := v.follow(ctx, roots); err != nil {
		return nil, err
	}
	return append(append(v.damaged, v.graph...), v.keys...), nil
}

type verifier struct {
	s     ReadStore
	opt   VerifyOptions
	sizes map[Digest]int64

	damaged, graph, keys []Finding

	mu    sync.Mutex
	done  int64
	total int64
}

func (v *verifier) progress(n int64) {
	if v.opt.Progress == nil {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.done += n
	v.opt.Progress(v.done, v.total)
}

// checkRanges finds keys whose range is beyond the blob and returns the other
// ranges to be read, each once. Keys whose blob is gone are not damage.
func (v *verifier) checkRanges(keys []KeyRef) []Ref {
	var out []Ref
	seen := map[Ref]bool{}
	for _, k := range keys {
		size, ok := v.sizes[k.Blob]
		if !ok || seen[k.Ref] {
			continue
		}
		seen[k.Ref] = true
		if !k.Fits(size) {
			v.keys = append(v.keys, Finding{
				Kind: FindingKey, Subject: k.Blob.String(), From: "key " + k.Key.String(),
				Want: fmt.Sprintf("%d bytes at offset %d", k.Bytes, k.Offset), Got: fmt.Sprintf("a blob of %d bytes", size),
			})
			continue
		}
		out = append(out, k.Ref)
	}
	return out
}

// hashAll reads all blobs and then all ranges.
func (v *verifier) hashAll(ctx context.Context, blobs []Info, refs []Ref) error {
	n := len(blobs) + len(refs)
	got := make([]Digest, n)
	errs := make([]error, n)
	cost := func(int) int64 { return copyBuffer }
	work := func(ctx context.Context, i int, buf []byte) ([]byte, error) {
		if i < len(blobs) {
			got[i], errs[i] = v.hash(ctx, Ref{Blob: blobs[i].Digest, Bytes: blobs[i].Size}, buf)
		} else {
			got[i], errs[i] = v.hash(ctx, refs[i-len(blobs)], buf)
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, nil
	}
	emit := func(i int, _ []byte) error {
		f := Finding{Kind: FindingDigest}
		if i < len(blobs) {
			f.Subject, f.Want = blobs[i].Digest.String(), blobs[i].Digest.String()
		} else {
			r := refs[i-len(blobs)]
			f.Kind, f.Subject, f.Want = FindingKey, r.Blob.String(), r.Sum.String()
			f.From = fmt.Sprintf("a key, bytes %d to %d", r.Offset, r.Offset+r.Bytes)
		}
		switch {
		case errs[i] != nil:
			f.Kind, f.Want, f.Got = FindingRead, "", errs[i].Error()
		case got[i].String() == f.Want:
			return nil
		default:
			f.Got = got[i].String()
		}
		if i < len(blobs) {
			v.damaged = append(v.damaged, f)
		} else {
			v.keys = append(v.keys, f)
		}
		return nil
	}
	opt := ordered.Options{Jobs: v.opt.Jobs}
	return ordered.Run(ctx, opt, n, cost, work, emit)
}

func (v *verifier) hash(ctx context.Context, r Ref, buf []byte) (Digest, error) {
	b, err := v.s.Open(ctx, r.Blob)
	if err != nil {
		return Digest{}, err
	}
	defer b.Close()
	h := NewHash()
	for at := int64(0); at < r.Bytes; {
		if ctx.Err() != nil {
			return Digest{}, context.Cause(ctx)
		}
		p := buf[:min(int64(len(buf)), r.Bytes-at)]
		n, err := b.ReadAt(p, r.Offset+at)
		h.Write(p[:n])
		v.progress(int64(n))
		at += int64(n)
		if n < len(p) {
			if errors.Is(err, io.EOF) {
				break // the digest of what is there will differ
			}
			return Digest{}, fmt.Errorf("at offset %d: %w", r.Offset+at, err)
		}
	}
	return SumHash(h), nil
}

// follow checks every reference from the roots.
func (v *verifier) follow(ctx context.Context, roots []Descriptor) error {
	list := ociList(roots)
	seen := map[string]bool{}
	visit := func(e Edge) error {
		to, err := FromOCI(e.To)
		if err != nil {
			return nil // another algorithm: not ours to judge
		}
		f := Finding{Subject: to.Digest.String(), From: "index.json"}
		if e.From != "" {
			f.From = "manifest " + string(e.From)
		}
		once := fmt.Sprint(f.From, f.Subject, to.Size)
		if seen[once] {
			return nil
		}
		seen[once] = true
		size, ok := v.sizes[to.Digest]
		switch {
		case !ok:
			f.Kind, f.Want, f.Got = FindingMissing, fmt.Sprintf("%d bytes of %s", to.Size, to.MediaType), "nothing"
		case size != to.Size:
			f.Kind, f.Want, f.Got = FindingSize, fmt.Sprintf("%d bytes", to.Size), fmt.Sprintf("%d bytes", size)
		default:
			return nil
		}
		v.graph = append(v.graph, f)
		return nil
	}
	bad := func(e Edge, err error) error {
		// Missing and damaged bytes have been found already.
		if errors.Is(err, ErrManifest) {
			v.graph = append(v.graph, Finding{Kind: FindingManifest, Subject: string(e.To.Digest), Got: err.Error()})
		}
		return nil
	}
	if err := Walk(ctx, list, ManifestReader(v.s), visit, bad); err != nil {
		return err
	}
	for _, r := range roots {
		if r.ArtifactType != ArtifactTypeBuild {
			continue
		}
		if _, err := ReadBuild(ctx, v.s, r); errors.Is(err, ErrManifest) {
			v.graph = append(v.graph, Finding{Kind: FindingManifest, Subject: r.Digest.String(), Got: err.Error()})
		} else if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	return nil
}
