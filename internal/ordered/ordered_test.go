package ordered_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"quern/internal/ordered"
)

// gauge tracks a level and its highest value.
type gauge struct{ now, max atomic.Int64 }

func (g *gauge) add(n int64) {
	v := g.now.Add(n)
	for {
		m := g.max.Load()
		if v <= m || g.max.CompareAndSwap(m, v) {
			return
		}
	}
}

// noGoroutinesLeft fails the test when f leaves a goroutine behind. A worker
// that Run has waited for may still be on its way out of the scheduler when Run
// returns, so the count is asked again until it fits; a worker that is really
// left is blocked for ever and runs into the limit.
func noGoroutinesLeft(t *testing.T, f func()) {
	t.Helper()
	before := runtime.NumGoroutine()
	f()
	for limit := time.Now().Add(10 * time.Second); runtime.NumGoroutine() > before; {
		if time.Now().After(limit) {
			t.Errorf("%d goroutines before, %d after", before, runtime.NumGoroutine())
			return
		}
		runtime.Gosched()
	}
}

func fill(i int, b []byte) []byte {
	r := rand.New(rand.NewPCG(uint64(i), 1))
	for len(b) >= 8 {
		binary.LittleEndian.PutUint64(b, r.Uint64())
		b = b[8:]
	}
	for j := range b {
		b[j] = byte(i)
	}
	return b
}

func TestSameBytesForAnyJobsAndBudget(t *testing.T) {
	const n = 500
	sizes := make([]int64, n)
	r := rand.New(rand.NewPCG(7, 7))
	for i := range sizes {
		sizes[i] = r.Int64N(5000)
		if i%50 == 0 {
			sizes[i] = 40000 // larger than the smallest budget
		}
		if i%17 == 0 {
			sizes[i] = 0
		}
	}
	var want [32]byte
	for _, jobs := range []int{1, 2, 3, 7, 16} {
		for _, budget := range []int64{1, 4096, 30000, 1 << 20} {
			t.Run(fmt.Sprintf("jobs=%d,budget=%d", jobs, budget), func(t *testing.T) {
				h := sha256.New()
				noGoroutinesLeft(t, func() {
					next := 0
					err := ordered.Run(t.Context(), ordered.Options{Jobs: jobs, Budget: budget}, n,
						func(i int) int64 { return sizes[i] },
						func(_ context.Context, i int, buf []byte) ([]byte, error) {
							if int64(len(buf)) != sizes[i] {
								return nil, fmt.Errorf("chunk %d: buffer of %d, want %d", i, len(buf), sizes[i])
							}
							fill(i, buf)
							return buf[:len(buf)/2], nil
						},
						func(i int, b []byte) error {
							if i != next {
								return fmt.Errorf("chunk %d out of order, want %d", i, next)
							}
							next++
							h.Write(b)
							return nil
						})
					if err != nil || next != n {
						t.Fatalf("%d chunks, error %v", next, err)
					}
				})
				got := [32]byte(h.Sum(nil))
				if want == [32]byte{} {
					want = got
				}
				if got != want {
					t.Error("the bytes depend on jobs or budget")
				}
			})
		}
	}
}

// TestBudget counts the bytes lent to work and emit, which must never pass the
// budget unless a chunk alone does, and the distinct buffers, which must not
// grow with the number of chunks.
func TestBudget(t *testing.T) {
	for _, jobs := range []int{1, 2, 8} {
		const n, budget = 2000, 64 << 10
		cost := func(i int) int64 {
			if i == 1000 {
				return 3 * budget
			}
			return int64(1000 + i%7*1000)
		}
		var g gauge
		var mu sync.Mutex
		seen := map[*byte]int64{}
		err := ordered.Run(t.Context(), ordered.Options{Jobs: jobs, Budget: budget}, n, cost,
			func(_ context.Context, i int, buf []byte) ([]byte, error) {
				g.add(cost(i))
				mu.Lock()
				seen[&buf[0]] = int64(len(buf))
				mu.Unlock()
				runtime.Gosched()
				return buf, nil
			},
			func(i int, b []byte) error {
				if i == 1000 {
					if v := g.now.Load(); v != 3*budget {
						t.Errorf("jobs %d: %d bytes in flight beside a chunk larger than the budget", jobs, v-3*budget)
					}
					g.max.Store(0)
				} else if m := g.max.Load(); i < 1000 && m > budget {
					t.Errorf("jobs %d: %d bytes in flight, budget %d", jobs, m, budget)
				}
				g.add(-cost(i))
				return nil
			})
		if err != nil {
			t.Fatal(err)
		}
		if m := g.max.Load(); m > budget {
			t.Errorf("jobs %d: %d bytes in flight after the large chunk, budget %d", jobs, m, budget)
		}
		if g.now.Load() != 0 {
			t.Errorf("jobs %d: %d bytes not given back", jobs, g.now.Load())
		}
		if len(seen) > 300 {
			t.Errorf("jobs %d: %d buffers for %d chunks", jobs, len(seen), n)
		}
	}
}

func TestEqualChunksReuseBuffers(t *testing.T) {
	allocs := testing.AllocsPerRun(3, func() {
		err := ordered.Run(t.Context(), ordered.Options{Jobs: 1}, 1000,
			func(int) int64 { return 4096 },
			func(_ context.Context, _ int, buf []byte) ([]byte, error) { return buf, nil },
			func(int, []byte) error { return nil })
		if err != nil {
			t.Fatal(err)
		}
	})
	if allocs > 20 {
		t.Errorf("%v allocations for 1000 equal chunks", allocs)
	}
}

// TestParallel proves that as many workers as asked for run at once: each
// waits until all are there.
func TestParallel(t *testing.T) {
	const jobs = 5
	var wg sync.WaitGroup
	wg.Add(jobs)
	err := ordered.Run(t.Context(), ordered.Options{Jobs: jobs}, jobs,
		func(int) int64 { return 1 },
		func(_ context.Context, _ int, buf []byte) ([]byte, error) {
			wg.Done()
			wg.Wait()
			return buf, nil
		},
		func(int, []byte) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
}

// TestOneJobRunsInCaller would race (and fail under -race) if work and emit
// ran in different goroutines; it also counts goroutines.
func TestOneJobRunsInCaller(t *testing.T) {
	before := runtime.NumGoroutine()
	var order []string
	err := ordered.Run(t.Context(), ordered.Options{Jobs: 1}, 3,
		func(int) int64 { return 1 },
		func(_ context.Context, i int, buf []byte) ([]byte, error) {
			order = append(order, fmt.Sprint("work", i))
			if n := runtime.NumGoroutine(); n > before {
				t.Errorf("%d goroutines, %d before", n, before)
			}
			return buf, nil
		},
		func(i int, _ []byte) error {
			order = append(order, fmt.Sprint("emit", i))
			return nil
		})
	if got := fmt.Sprint(order); err != nil || got != "[work0 emit0 work1 emit1 work2 emit2]" {
		t.Errorf("%s, %v", got, err)
	}
}

// TestFirstErrorInOrder lets chunk 7 fail first in time and chunk 3 later:
// chunk 3's error is returned and chunks 0 to 2 are emitted.
func TestFirstErrorInOrder(t *testing.T) {
	for _, jobs := range []int{1, 4, 8} {
		err7 := make(chan struct{})
		var emitted []int
		var got error
		noGoroutinesLeft(t, func() {
			got = ordered.Run(t.Context(), ordered.Options{Jobs: jobs}, 20,
				func(int) int64 { return 1 },
				func(ctx context.Context, i int, buf []byte) ([]byte, error) {
					switch {
					case i == 7:
						defer close(err7)
						return nil, errors.New("chunk 7")
					case i == 3:
						if jobs > 1 {
							<-err7
						}
						if ctx.Err() != nil {
							return nil, errors.New("cancelled by a later chunk")
						}
						return nil, errors.New("chunk 3")
					}
					return buf, nil
				},
				func(i int, _ []byte) error {
					emitted = append(emitted, i)
					return nil
				})
		})
		if got == nil || got.Error() != "chunk 3" || fmt.Sprint(emitted) != "[0 1 2]" {
			t.Errorf("jobs %d: error %v after %v", jobs, got, emitted)
		}
	}
}

func TestEmitError(t *testing.T) {
	full := errors.New("disk full")
	for _, jobs := range []int{1, 3} {
		noGoroutinesLeft(t, func() {
			err := ordered.Run(t.Context(), ordered.Options{Jobs: jobs, Budget: 10}, 100,
				func(int) int64 { return 3 },
				func(_ context.Context, _ int, buf []byte) ([]byte, error) { return buf, nil },
				func(i int, _ []byte) error {
					if i == 5 {
						return full
					}
					if i > 5 {
						t.Error("emit after its error")
					}
					return nil
				})
			if !errors.Is(err, full) {
				t.Errorf("jobs %d: %v", jobs, err)
			}
		})
	}
}

func TestCancelGivesCause(t *testing.T) {
	cause := errors.New("interrupted by the user")
	for _, jobs := range []int{1, 2, 8} {
		for _, where := range []string{"before", "work", "emit", "last emit"} {
			t.Run(fmt.Sprintf("%d jobs, in %s", jobs, where), func(t *testing.T) {
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				if where == "before" {
					cancel(cause)
				}
				noGoroutinesLeft(t, func() {
					err := ordered.Run(ctx, ordered.Options{Jobs: jobs}, 50,
						func(int) int64 { return 1 },
						func(ctx context.Context, i int, buf []byte) ([]byte, error) {
							if where == "work" && i == 9 {
								cancel(cause)
								<-ctx.Done()
								return nil, ctx.Err()
							}
							return buf, nil
						},
						func(i int, _ []byte) error {
							if where == "emit" && i == 9 || where == "last emit" && i == 49 {
								cancel(cause)
							}
							return nil
						})
					if !errors.Is(err, cause) {
						t.Errorf("error %v, want the cause", err)
					}
				})
			})
		}
	}
}

// TestCancelStopsSlowWork cancels while every worker waits for the context.
func TestCancelStopsSlowWork(t *testing.T) {
	cause := errors.New("stop")
	ctx, cancel := context.WithCancelCause(t.Context())
	var started sync.WaitGroup
	started.Add(4)
	go func() {
		started.Wait()
		cancel(cause)
	}()
	err := ordered.Run(ctx, ordered.Options{Jobs: 4}, 100,
		func(int) int64 { return 1 },
		func(ctx context.Context, _ int, _ []byte) ([]byte, error) {
			started.Done()
			<-ctx.Done()
			return nil, context.Cause(ctx)
		},
		func(int, []byte) error { return nil })
	if !errors.Is(err, cause) {
		t.Errorf("error %v", err)
	}
}

func TestEmitPanicLeavesNoWorker(t *testing.T) {
	noGoroutinesLeft(t, func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic was lost")
			}
		}()
		_ = ordered.Run(t.Context(), ordered.Options{Jobs: 3}, 10,
			func(int) int64 { return 1 },
			func(_ context.Context, _ int, b []byte) ([]byte, error) { return b, nil },
			func(int, []byte) error { panic("emit") })
	})
}

func TestBadCost(t *testing.T) {
	for _, jobs := range []int{1, 2} {
		for _, bad := range []int64{-1, math.MinInt64} {
			emitted := 0
			err := ordered.Run(t.Context(), ordered.Options{Jobs: jobs}, 10,
				func(i int) int64 {
					if i == 4 {
						return bad
					}
					return 1
				},
				func(_ context.Context, _ int, b []byte) ([]byte, error) { return b, nil },
				func(int, []byte) error { emitted++; return nil })
			if !errors.Is(err, ordered.ErrCost) || emitted != 4 {
				t.Errorf("jobs %d: %v after %d chunks", jobs, err, emitted)
			}
		}
	}
}

func TestNothingToDo(t *testing.T) {
	for _, n := range []int{0, -1} {
		if err := ordered.Run(t.Context(), ordered.Options{Jobs: 4}, n, nil, nil, nil); err != nil {
			t.Errorf("n = %d: %v", n, err)
		}
	}
}

// TestOwnMemory lets work return memory of its own in place of the buffer.
func TestOwnMemory(t *testing.T) {
	var got bytes.Buffer
	err := ordered.Run(t.Context(), ordered.Options{Jobs: 3}, 26,
		func(int) int64 { return 0 },
		func(_ context.Context, i int, _ []byte) ([]byte, error) { return []byte{'a' + byte(i)}, nil },
		func(_ int, b []byte) error { got.Write(b); return nil })
	if err != nil || got.String() != "abcdefghijklmnopqrstuvwxyz" {
		t.Errorf("%q, %v", got.String(), err)
	}
}

func BenchmarkRun(b *testing.B) {
	for _, jobs := range []int{1, 2} {
		b.Run(fmt.Sprintf("jobs=%d", jobs), func(b *testing.B) {
			b.SetBytes(1 << 20 * 16)
			b.ReportAllocs()
			for b.Loop() {
				_ = ordered.Run(b.Context(), ordered.Options{Jobs: jobs, Budget: 8 << 20}, 16,
					func(int) int64 { return 1 << 20 },
					func(_ context.Context, i int, buf []byte) ([]byte, error) { sha256.Sum256(buf); return buf, nil },
					func(int, []byte) error { return nil })
			}
		})
	}
}
