package sink

import (
	"context"
	"errors"
	"io"

	"quern/internal/digest"
)

// stdoutSink writes to whoever reads our output. That side sees a file that may
// end early, so it has to look at our exit code.
type stdoutSink struct{ w io.Writer }

func (s *stdoutSink) String() string { return "standard output" }
func (s *stdoutSink) Name() string   { return "-" }
func (s *stdoutSink) Temp() string   { return "-" }
func (s *stdoutSink) Stream()        {}
func (s *stdoutSink) Close() error   { return nil }

func (s *stdoutSink) Stat(context.Context, string) (int64, error) { return 0, ErrNotExist }
func (s *stdoutSink) Free(context.Context) (int64, error)         { return 0, errors.ErrUnsupported }
func (s *stdoutSink) Sum(context.Context, string, int64) (digest.Digest, error) {
	return digest.Digest{}, errors.ErrUnsupported
}
func (s *stdoutSink) Rename(context.Context, string, string) error { return errors.ErrUnsupported }
func (s *stdoutSink) Remove(context.Context, string) error         { return errors.ErrUnsupported }

func (s *stdoutSink) Open(context.Context, string, int64, int64) (io.WriteCloser, error) {
	return nopCloser{s.w}, nil
}

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }
