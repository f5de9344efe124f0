package parallel_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"quern/runtime/parallel"
)

// TestTeamDoesEveryPieceOnce: over many phases of few and many pieces, some of
// them behind pauses in which workers fall asleep, with more workers than
// processors and fewer.
func TestTeamDoesEveryPieceOnce(t *testing.T) {
	for _, processors := range []int{1, 2, 4} {
		for _, jobs := range []int{1, 2, 3, 7} {
			before := runtime.GOMAXPROCS(processors)
			team := parallel.NewTeam(jobs)
			runtime.GOMAXPROCS(before)
			if team.Jobs() != jobs {
				t.Fatalf("%d workers, want %d", team.Jobs(), jobs)
			}
			for round := range 3 {
				err := team.Work(func() error {
					for phase := range 300 {
						n := []int{0, 1, 2, 3, 50, 1000}[phase%6]
						if phase%100 == 99 {
							time.Sleep(time.Millisecond)
						}
						done := make([]atomic.Int32, n)
						busy := make([]atomic.Int32, jobs)
						sum := 0 // only piece 0 writes it, and all is done before it is read
						err := team.Each(t.Context(), n, func(i, worker int) error {
							if busy[worker].Add(1) != 1 {
								t.Errorf("worker %d twice at once", worker)
							}
							if i == 0 {
								sum = phase
							}
							done[i].Add(1)
							busy[worker].Add(-1)
							return nil
						})
						if err != nil {
							return err
						}
						if n > 0 && sum != phase {
							t.Errorf("phase %d went on without piece 0", phase)
						}
						for i := range done {
							if got := done[i].Load(); got != 1 {
								return fmt.Errorf("round %d, phase %d: piece %d was done %d times", round, phase, i, got)
							}
						}
					}
					return nil
				})
				if err != nil {
					t.Fatalf("%d jobs on %d processors: %v", jobs, processors, err)
				}
			}
		}
	}
}

func TestTeamGivesTheLowestError(t *testing.T) {
	for _, jobs := range []int{1, 2, 7} {
		team := parallel.NewTeam(jobs)
		for _, within := range []bool{false, true} {
			each := func() error {
				late := make(chan struct{})
				return team.Each(t.Context(), 40, func(i, _ int) error {
					switch {
					case i == 3 && jobs > 1:
						<-late
					case i == 5:
						defer close(late)
					case i < 3 || i == 4:
						return nil
					}
					return fmt.Errorf("piece %d", i)
				})
			}
			for range 20 {
				var err error
				if within {
					err = team.Work(each)
				} else {
					err = each()
				}
				if err == nil || err.Error() != "piece 3" {
					t.Errorf("%d jobs: %v", jobs, err)
				}
			}
		}
		// The team goes on after an error.
		var n atomic.Int32
		if err := team.Work(func() error { return team.Each(t.Context(), 40, func(int, int) error { n.Add(1); return nil }) }); err != nil || n.Load() != 40 {
			t.Errorf("%d jobs: %v, %d pieces", jobs, err, n.Load())
		}
	}
}

func TestTeamStops(t *testing.T) {
	cause := errors.New("enough")
	for _, jobs := range []int{1, 4} {
		ctx, cancel := context.WithCancelCause(t.Context())
		var n atomic.Int32
		team := parallel.NewTeam(jobs)
		err := team.Work(func() error {
			return team.Each(ctx, 1000, func(int, int) error {
				if n.Add(1) == 10 {
					cancel(cause)
				}
				return nil
			})
		})
		if !errors.Is(err, cause) || n.Load() > int32(10+jobs) {
			t.Errorf("%d jobs: %v after %d pieces", jobs, err, n.Load())
		}
	}
}

// TestTeamLeavesNoGoroutines: there is nothing to close.
func TestTeamLeavesNoGoroutines(t *testing.T) {
	before := runtime.NumGoroutine()
	team := parallel.NewTeam(8)
	for range 50 {
		err := team.Work(func() error {
			// Work within work is work.
			return team.Work(func() error { return team.Each(t.Context(), 3, func(int, int) error { return nil }) })
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	// A goroutine is counted for a moment after it is done.
	n := runtime.NumGoroutine()
	for end := time.Now().Add(5 * time.Second); n > before && time.Now().Before(end); n = runtime.NumGoroutine() {
		time.Sleep(time.Millisecond)
	}
	if n > before {
		t.Errorf("%d goroutines, %d before", n, before)
	}
}
