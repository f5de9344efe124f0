package storetest

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"quern/artifacts"
	"quern/internal/faulty"
)

// testBrokenSources writes from readers that fail in every way, at seeded
// places: nothing may be stored.
func testBrokenSources(t *testing.T, u Suite) {
	ctx, s := t.Context(), u.Open(t)
	data := Bytes(42, 200_000)
	d := artifacts.Descriptor{MediaType: "application/x-test", Digest: artifacts.DigestOf(data), Size: int64(len(data))}
	src := func() io.Reader { return faulty.Dribble(bytes.NewReader(data), 7) }
	for _, at := range []int64{0, 1, 4096, 131_071, 199_999} {
		for name, c := range map[string]struct {
			r    io.Reader
			want error
		}{
			"short":  {faulty.Short(src(), at), artifacts.ErrMismatch},
			"broken": {faulty.Break(src(), at, nil), faulty.ErrInjected},
			"flip":   {faulty.Flip(src(), at*8+at%8), artifacts.ErrMismatch},
			"long":   {io.MultiReader(src(), bytes.NewReader([]byte{1})), artifacts.ErrMismatch},
		} {
			if _, err := artifacts.Put(ctx, s, d, c.r); !errors.Is(err, c.want) {
				t.Errorf("%s at %d: %v, want %v", name, at, err, c.want)
			}
			u.empty(t, s)
		}
	}
	if got, err := artifacts.Put(ctx, s, d, src()); err != nil || !got.Same(d) {
		t.Errorf("%v, %v", got, err)
	}
	if !bytes.Equal(get(t, s, d), data) {
		t.Error("other bytes")
	}
}
