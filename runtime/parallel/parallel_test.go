package parallel_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"quern/runtime/parallel"
)

func TestEachDoesEveryPieceOnce(t *testing.T) {
	for _, jobs := range []int{0, 1, 2, 7, 100} {
		var done [50]atomic.Int32
		var mu sync.Mutex
		busy := map[int]bool{}
		err := parallel.Each(t.Context(), jobs, len(done), func(i, worker int) error {
			mu.Lock()
			if busy[worker] || worker < 0 || worker >= max(jobs, 1) {
				t.Errorf("%d jobs: worker %d twice at once, or none", jobs, worker)
			}
			busy[worker] = true
			mu.Unlock()
			done[i].Add(1)
			mu.Lock()
			busy[worker] = false
			mu.Unlock()
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		for i := range done {
			if n := done[i].Load(); n != 1 {
				t.Errorf("%d jobs: piece %d was done %d times", jobs, i, n)
			}
		}
	}
	if parallel.Jobs(3) != 3 || parallel.Jobs(0) < 1 || parallel.Jobs(-1) < 1 {
		t.Error("numbers of jobs")
	}
}

// TestEachGivesTheLowestError: also when a later piece fails first.
func TestEachGivesTheLowestError(t *testing.T) {
	for _, jobs := range []int{1, 2, 7} {
		late := make(chan struct{})
		err := parallel.Each(t.Context(), jobs, 40, func(i, _ int) error {
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
		if err == nil || err.Error() != "piece 3" {
			t.Errorf("%d jobs: %v", jobs, err)
		}
	}
}

func TestEachStops(t *testing.T) {
	cause := errors.New("enough")
	for _, jobs := range []int{1, 4} {
		ctx, cancel := context.WithCancelCause(t.Context())
		var n atomic.Int32
		err := parallel.Each(ctx, jobs, 1000, func(int, int) error {
			if n.Add(1) == 10 {
				cancel(cause)
			}
			return nil
		})
		if !errors.Is(err, cause) || n.Load() > int32(10+jobs) {
			t.Errorf("%d jobs: %v after %d pieces", jobs, err, n.Load())
		}
	}
}
