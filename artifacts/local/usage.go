package local

import (
	"context"
	"errors"
	"io/fs"
	"os"

	"quern/artifacts"
)

// Usage says how much of the store each name takes, and how much exported files
// share with it by hard link.
func (s *Store) Usage(ctx context.Context) (*artifacts.Usage, error) {
	u, err := artifacts.Measure(ctx, s)
	if err != nil {
		return nil, err
	}
	blobs, err := s.List(ctx)
	if err != nil {
		return nil, err
	}
	for _, b := range blobs {
		st, err := os.Stat(s.blobPath(b.Digest))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if linkCount(st) > 1 {
			u.Linked += b.Size
		}
	}
	return u, nil
}
