package hub

import (
	"context"
	"sync"
	"time"
)

// gate stops all requests to one host while it is in trouble. Workers that
// each waited and then all came at once would only prolong a block, so after
// the pause a single request probes, and the rest go on when it succeeds.
type gate struct {
	mu      sync.Mutex
	shut    bool
	until   time.Time
	probing bool
	change  chan struct{} // closed at each change
}

func newGate() *gate { return &gate{change: make(chan struct{})} }

// enter waits until a request may be sent. probe is true for the one request
// that finds out whether the host has recovered; done must be told how it
// went. A pause that ends after limit is not waited for.
func (g *gate) enter(ctx context.Context, clk Clock, limit time.Time) (probe bool, err error) {
	for {
		g.mu.Lock()
		if !g.shut {
			g.mu.Unlock()
			return probe, context.Cause(ctx)
		}
		wait := g.until.Sub(clk.Now())
		late := g.until.After(limit)
		mine := probe || !g.probing
		if mine && !late {
			g.probing, probe = true, true
		}
		change := g.change
		g.mu.Unlock()
		switch {
		case late:
			if probe {
				g.done(true, false)
			}
			return false, &Error{Kind: ErrRateLimited, Hint: "the server asked for a pause of " + wait.Round(time.Second).String() + "; try again after it"}
		case mine && wait <= 0:
			return true, nil
		case mine:
			if err := clk.Sleep(ctx, wait); err != nil {
				g.done(true, false)
				return false, err
			}
		default:
			select {
			case <-change:
			case <-ctx.Done():
				return false, context.Cause(ctx)
			}
		}
	}
}

// close shuts the gate for d from now, or longer if it was.
func (g *gate) close(now time.Time, d time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shut = true
	if t := now.Add(d); t.After(g.until) {
		g.until = t
	}
	g.bump()
}

// done ends a request. Only a probe opens the gate: an answer to a request
// sent before the trouble proves nothing.
func (g *gate) done(probe, healthy bool) {
	if !probe {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.probing = false
	if healthy {
		g.shut, g.until = false, time.Time{}
	}
	g.bump()
}

func (g *gate) bump() {
	close(g.change)
	g.change = make(chan struct{})
}

// gates holds one gate a host.
type gates struct {
	mu sync.Mutex
	m  map[string]*gate
}

func (s *gates) of(host string) *gate {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.m[host]
	if g == nil {
		if s.m == nil {
			s.m = map[string]*gate{}
		}
		g = newGate()
		s.m[host] = g
	}
	return g
}
