package registry

import (
	"context"
	"net/http"
	"time"
)

// Sleeper makes a client's pauses calls of f.
func Sleeper(opt Options, f func(time.Duration)) Options {
	opt.sleep = func(ctx context.Context, d time.Duration) error {
		f(d)
		return context.Cause(ctx)
	}
	return opt
}

// Transport makes a client speak through t.
func Transport(opt Options, t http.RoundTripper) Options {
	opt.transport = t
	return opt
}

// Patience is how long a body may give nothing.
func Patience(opt Options, d time.Duration) Options {
	opt.stall = d
	return opt
}
