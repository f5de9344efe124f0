package artifacts

import (
	"context"
	"slices"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// Usage says how much of a store each name takes.
type Usage struct {
	Names []NameUsage `json:"names"`
	Blobs int         `json:"blobs"`
	Bytes int64       `json:"bytes"` // of all blobs
	// Loose is the size of blobs that no root reaches: gc removes them once
	// they are old enough.
	Loose int64 `json:"loose"`
	// Linked is the size of blobs that exported files share by hard link.
	// Only a local store knows it.
	Linked int64 `json:"linked,omitempty"`
}

// NameUsage is what a name reaches.
type NameUsage struct {
	Name   string `json:"name"`
	Digest Digest `json:"digest"`
	Bytes  int64  `json:"bytes"`
	// Unique is what would become free if this name went, Shared what other
	// names or roots reach too.
	Unique int64 `json:"unique"`
	Shared int64 `json:"shared"`
}

// Measure adds up sizes. Content that is missing counts nothing.
func Measure(ctx context.Context, s ReadStore) (*Usage, error) {
	blobs, err := s.List(ctx)
	if err != nil {
		return nil, err
	}
	names, err := s.Names(ctx)
	if err != nil {
		return nil, err
	}
	roots, err := s.Roots(ctx)
	if err != nil {
		return nil, err
	}
	sizes := map[Digest]int64{}
	u := &Usage{Blobs: len(blobs), Names: []NameUsage{}}
	for _, b := range blobs {
		sizes[b.Digest] = b.Size
		u.Bytes += b.Size
	}
	// How many names, or roots without one, reach a blob.
	count := map[Digest]int{}
	sets := make([][]Digest, len(names))
	for i, n := range names {
		if sets[i], err = reach(ctx, s, n.Descriptor); err != nil {
			return nil, err
		}
		for _, d := range sets[i] {
			count[d]++
		}
	}
	for _, r := range roots {
		if slices.ContainsFunc(names, func(n Named) bool { return n.Digest == r.Digest }) {
			continue
		}
		set, err := reach(ctx, s, r)
		if err != nil {
			return nil, err
		}
		for _, d := range set {
			count[d]++
		}
	}
	for i, n := range names {
		nu := NameUsage{Name: n.Name, Digest: n.Digest}
		for _, d := range sets[i] {
			nu.Bytes += sizes[d]
			if count[d] > 1 {
				nu.Shared += sizes[d]
			} else {
				nu.Unique += sizes[d]
			}
		}
		u.Names = append(u.Names, nu)
	}
	u.Loose = u.Bytes
	for d := range count {
		u.Loose -= sizes[d]
	}
	return u, nil
}

// reach lists the distinct blobs under a root, as far as they can be read.
func reach(ctx context.Context, s BlobReader, root Descriptor) ([]Digest, error) {
	var out []Digest
	seen := map[Digest]bool{}
	err := Walk(ctx, ociList([]Descriptor{root}), ManifestReader(s), func(e Edge) error {
		if d, err := FromOCI(e.To); err == nil && !seen[d.Digest] {
			seen[d.Digest] = true
			out = append(out, d.Digest)
		}
		return nil
	}, func(Edge, error) error { return nil })
	return out, err
}

func ociList(ds []Descriptor) []ocispec.Descriptor {
	out := make([]ocispec.Descriptor, 0, len(ds))
	for _, d := range ds {
		out = append(out, d.OCI())
	}
	return out
}
