package artifacts

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
)

// copyBuffer is how many bytes are read before the context is looked at again.
const copyBuffer = 1 << 20

// Copy writes the blob that d names to w and verifies it on the way: a size or
// digest that differs, or bytes beyond the size, are ErrCorrupt. What w has got
// by then must be thrown away.
func Copy(ctx context.Context, w io.Writer, s BlobReader, d Descriptor) error {
	b, err := s.Open(ctx, d.Digest)
	if err != nil {
		return err
	}
	defer b.Close()
	if b.Size() != d.Size {
		return fmt.Errorf("blob %s: %w: %d bytes, its descriptor says %d", d.Digest, ErrCorrupt, b.Size(), d.Size)
	}
	h := NewHash()
	n, err := CopyRange(ctx, io.MultiWriter(h, w), b, 0, d.Size)
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("blob %s: %w: ends at offset %d of %d: %w", d.Digest, ErrCorrupt, n, d.Size, err)
	}
	if err != nil {
		return fmt.Errorf("blob %s: at offset %d: %w", d.Digest, n, err)
	}
	// A file that grows, or a reader that lies about its size, has more.
	var one [1]byte
	if n, err := b.ReadAt(one[:], d.Size); n > 0 {
		return fmt.Errorf("blob %s: %w: trailing bytes after the %d of its descriptor", d.Digest, ErrCorrupt, d.Size)
	} else if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("blob %s: at offset %d: %w", d.Digest, d.Size, err)
	}
	if got := SumHash(h); got != d.Digest {
		return fmt.Errorf("blob %s: %w: its bytes have digest %s", d.Digest, ErrCorrupt, got)
	}
	return nil
}

// ReadAll returns the verified bytes of a small blob. It fails before reading
// anything if the blob is larger than limit.
func ReadAll(ctx context.Context, s BlobReader, d Descriptor, limit int64) ([]byte, error) {
	if d.Size > limit {
		return nil, fmt.Errorf("blob %s: %d bytes are more than the limit of %d", d.Digest, d.Size, limit)
	}
	// The descriptor may promise more than there is: memory follows the
	// bytes, not the promise.
	in, err := s.Stat(ctx, d.Digest)
	if err != nil {
		return nil, err
	}
	var buf bytes.Buffer
	buf.Grow(int(min(in.Size, d.Size)))
	if err := Copy(ctx, &buf, s, d); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}

// CopyRange writes n bytes of r from off to w and looks at ctx as it goes. It
// returns how many were written; fewer than n always come with an error.
func CopyRange(ctx context.Context, w io.Writer, r io.ReaderAt, off, n int64) (int64, error) {
	buf := make([]byte, min(n, copyBuffer))
	done := int64(0)
	for done < n {
		if ctx.Err() != nil {
			return done, context.Cause(ctx)
		}
		p := buf[:min(int64(len(buf)), n-done)]
		k, err := r.ReadAt(p, off+done)
		if k < len(p) {
			if err == nil || errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return done, err
		}
		if _, err := w.Write(p); err != nil {
			return done, err
		}
		done += int64(k)
	}
	return done, nil
}

// HashRange is the digest of n bytes of r from off.
func HashRange(ctx context.Context, r io.ReaderAt, off, n int64) (Digest, error) {
	h := NewHash()
	if _, err := CopyRange(ctx, h, r, off, n); err != nil {
		return Digest{}, err
	}
	return SumHash(h), nil
}

// CopyRef writes the bytes of a Ref to w and verifies them as Copy does.
func CopyRef(ctx context.Context, w io.Writer, s BlobReader, r Ref) error {
	b, err := s.Open(ctx, r.Blob)
	if err != nil {
		return err
	}
	defer b.Close()
	if !r.Fits(b.Size()) {
		return fmt.Errorf("blob %s: %w: %d bytes at offset %d of %d", r.Blob, ErrCorrupt, r.Bytes, r.Offset, b.Size())
	}
	h := NewHash()
	n, err := CopyRange(ctx, io.MultiWriter(h, w), b, r.Offset, r.Bytes)
	if err != nil {
		return fmt.Errorf("blob %s: at offset %d: %w", r.Blob, r.Offset+n, err)
	}
	if got := SumHash(h); got != r.Sum {
		return fmt.Errorf("blob %s: %w: bytes %d to %d have digest %s, want %s",
			r.Blob, ErrCorrupt, r.Offset, r.Offset+r.Bytes, got, r.Sum)
	}
	return nil
}

// Fits reports whether the range lies in a blob of the given size.
func (r Ref) Fits(size int64) bool {
	return r.Offset >= 0 && r.Bytes >= 0 && r.Offset <= size && r.Bytes <= size-r.Offset
}

// PutBytes stores a small blob.
func PutBytes(ctx context.Context, s WriteStore, mediaType string, b []byte) (Descriptor, error) {
	w, err := s.NewBlob(ctx, BlobOptions{MediaType: mediaType, Size: int64(len(b))})
	if err != nil {
		return Descriptor{}, err
	}
	defer w.Abort()
	if _, err := w.Write(b); err != nil {
		return Descriptor{}, err
	}
	return w.Commit(DigestOf(b))
}

// Put stores everything from r, which must be what d says.
func Put(ctx context.Context, s WriteStore, d Descriptor, r io.Reader) (Descriptor, error) {
	w, err := s.NewBlob(ctx, BlobOptions{MediaType: d.MediaType, Size: d.Size})
	if err != nil {
		return Descriptor{}, err
	}
	defer w.Abort()
	// One byte more than promised is enough to know that it is too much.
	n, err := io.Copy(w, io.LimitReader(r, d.Size+1))
	if err != nil {
		return Descriptor{}, fmt.Errorf("blob %s: %w", d.Digest, err)
	}
	if n != d.Size {
		return Descriptor{}, fmt.Errorf("blob %s: %w: got %d bytes, want %d%s", d.Digest, ErrMismatch, n, d.Size, more(n > d.Size))
	}
	return w.Commit(d.Digest)
}

func more(yes bool) string {
	if yes {
		return " and no more"
	}
	return ""
}

// Compare orders refs by blob, offset, length and digest.
func (r Ref) Compare(o Ref) int {
	return cmp.Or(r.Blob.Compare(o.Blob), cmp.Compare(r.Offset, o.Offset), cmp.Compare(r.Bytes, o.Bytes), r.Sum.Compare(o.Sum))
}

// CheckPromise compares what was written with what the writer had promised. It
// is what stores implement Commit with.
func CheckPromise(got Descriptor, opt BlobOptions, want Digest) error {
	if opt.Size > 0 && got.Size != opt.Size {
		return fmt.Errorf("write blob: %w: %d bytes, planned %d", ErrMismatch, got.Size, opt.Size)
	}
	if !want.IsZero() && got.Digest != want {
		return fmt.Errorf("write blob: %w: digest %s, want %s", ErrMismatch, got.Digest, want)
	}
	return nil
}

// CheckKeyRef makes sure that a KeyRef can mean something. It is what stores
// implement PutKeys with.
func CheckKeyRef(k KeyRef) error {
	if k.Blob.IsZero() || k.Sum.IsZero() || k.Offset < 0 || k.Bytes < 0 || k.Offset > math.MaxInt64-k.Bytes {
		return fmt.Errorf("key %s: %w: %d bytes at offset %d of blob %s, digest %s", k.Key, ErrMismatch, k.Bytes, k.Offset, k.Blob, k.Sum)
	}
	return nil
}
