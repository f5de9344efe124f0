package local

import (
	"context"
	"errors"
	"maps"
	"slices"

	"quern/artifacts"
)

// Verify reads the whole store again and lists everything that is wrong with
// it. See artifacts.Verify.
func (s *Store) Verify(ctx context.Context, opt artifacts.VerifyOptions) ([]artifacts.Finding, error) {
	var out []artifacts.Finding
	if exists, err := s.checkLayout(); err != nil {
		out = append(out, artifacts.Finding{Kind: artifacts.FindingIndex, Subject: layoutFile, Got: err.Error()})
	} else if !exists {
		out = append(out, artifacts.Finding{Kind: artifacts.FindingIndex, Subject: layoutFile, Want: artifacts.LayoutFile, Got: "nothing"})
	}
	var rest artifacts.ReadStore = s
	_, err := s.Index(ctx)
	switch {
	case errors.Is(err, artifacts.ErrCorrupt):
		out = append(out, artifacts.Finding{Kind: artifacts.FindingIndex, Subject: indexFile, Got: err.Error()})
		rest = noIndex{s}
	case err != nil:
		return nil, err
	}
	s.keys.forget()
	_, bad, err := s.keyTables(ctx)
	if err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(bad)) {
		out = append(out, artifacts.Finding{Kind: artifacts.FindingKeyFile, Subject: keysDir + "/" + name, Got: bad[name].Error()})
	}
	found, err := artifacts.Verify(ctx, rest, opt)
	return append(out, found...), err
}

// noIndex lets the blobs be verified when the index is damaged.
type noIndex struct{ *Store }

func (noIndex) Roots(context.Context) ([]artifacts.Descriptor, error) { return nil, nil }
