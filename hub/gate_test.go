package hub

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestGateLetsOneProbeThrough: after a pause one request finds out whether the
// host has recovered, and the others go only when it has.
func TestGateLetsOneProbeThrough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		far := time.Now().Add(time.Hour)
		g.close(time.Now(), 3*time.Second)
		var in, probes atomic.Int32
		for range 8 {
			go func() {
				probe, err := g.enter(t.Context(), systemClock{}, far)
				if err != nil {
					t.Error(err)
				}
				in.Add(1)
				if probe {
					probes.Add(1)
				}
			}()
		}
		want := func(when string, n, p int32) {
			t.Helper()
			synctest.Wait()
			if in.Load() != n || probes.Load() != p {
				t.Fatalf("%s: %d went through, %d of them as probes; want %d and %d", when, in.Load(), probes.Load(), n, p)
			}
		}
		want("during the pause", 0, 0)
		// A late failure of a request from before lengthens it.
		time.Sleep(2 * time.Second)
		g.close(time.Now(), 4*time.Second)
		time.Sleep(2 * time.Second)
		want("during the longer pause", 0, 0)
		time.Sleep(2 * time.Second)
		want("after it", 1, 1)
		g.done(false, true) // an answer to a request from before the trouble
		want("after an old success", 1, 1)
		g.close(time.Now(), time.Second)
		g.done(true, false)
		want("after the probe failed", 1, 1)
		time.Sleep(time.Second)
		want("after the second pause", 2, 2)
		g.done(true, true)
		want("after the probe came back", 8, 2)
	})
}

func TestGateGivesUpAProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		g.close(time.Now(), time.Minute)
		ctx, cancel := context.WithCancelCause(t.Context())
		gone := errors.New("gone")
		first := make(chan error, 1)
		go func() {
			_, err := g.enter(ctx, systemClock{}, time.Now().Add(time.Hour))
			first <- err
		}()
		synctest.Wait()
		second := make(chan bool, 1)
		go func() {
			probe, err := g.enter(t.Context(), systemClock{}, time.Now().Add(time.Hour))
			second <- probe && err == nil
		}()
		synctest.Wait()
		cancel(gone)
		if err := <-first; !errors.Is(err, gone) {
			t.Errorf("the first: %v", err)
		}
		// The second takes over.
		if !<-second {
			t.Error("nobody probes any more")
		}
		// A pause past the limit is refused at once.
		start := time.Now()
		g.close(start, time.Hour)
		g.done(true, false)
		if _, err := g.enter(t.Context(), systemClock{}, start.Add(time.Minute)); !errors.Is(err, ErrRateLimited) || time.Since(start) != 0 {
			t.Errorf("%v after %v", err, time.Since(start))
		}
	})
}
