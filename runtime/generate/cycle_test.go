package generate_test

import (
	"slices"
	"testing"

	"quern/runtime/generate"
)

// run is n ids, all different.
func run(n int) (out []int32) {
	for i := range n {
		out = append(out, int32(i))
	}
	return out
}

func TestFindCycle(t *testing.T) {
	type cycle = generate.Cycle
	for _, c := range []struct {
		name string
		ids  []int32
		want cycle
	}{
		{"nothing", nil, cycle{}},
		{"no repetition", run(100), cycle{}},
		{"one token", slices.Repeat([]int32{7}, 24), cycle{1, 0, 24}},
		{"one token, short", slices.Repeat([]int32{7}, 23), cycle{}},
		{"a sentence", append(run(50), slices.Repeat(run(9), 3)...), cycle{9, 50, 77}},
		{"a sentence twice", append(slices.Repeat([]int32{99}, 5), slices.Repeat(run(20), 2)...), cycle{}},
		{"a loop that ended", slices.Concat(run(10), slices.Repeat([]int32{77}, 60), run(30)), cycle{1, 10, 70}},
		{"cut in the middle of a piece", slices.Repeat(run(9), 4)[2:33], cycle{9, 0, 31}},
		{"the longer of two", slices.Concat(slices.Repeat([]int32{70, 71}, 13), run(5), slices.Repeat(run(12), 3)), cycle{12, 31, 67}},
		{"at the beginning", append(slices.Repeat(run(10), 3), 50, 51, 52), cycle{10, 0, 30}},
		{"a pause between pieces", slices.Concat(run(30), []int32{99}, run(30), []int32{98}, run(30)), cycle{}},
	} {
		if got := generate.FindCycle(c.ids); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

func TestRepeated(t *testing.T) {
	// A list whose numbers go up: nine tokens of ten are the same in each round.
	list := run(0)
	for n := range int32(20) {
		list = append(append(list, 1000+n), run(9)...)
	}
	if c := generate.FindCycle(list); c.Period != 0 {
		t.Fatalf("%+v: the list is no plain cycle", c)
	}
	for _, c := range []struct {
		name        string
		ids         []int32
		share       float64
		least, most int
	}{
		{"nothing", nil, 0, 0, 0},
		{"shorter than a gram", run(3), 0, 0, 0},
		{"no repetition", run(300), 0, 0, 0},
		{"a sentence again", append(run(100), run(20)...), 17.0 / 117, 17, 17},
		{"twice the same", append(run(100), run(100)...), 97.0 / 197, 64, 64},
		{"a list", list, 114.0 / 197, 40, 40},
		{"one token", slices.Repeat([]int32{7}, 103), 0.99, 64, 64},
	} {
		share, most := generate.Repeated(c.ids)
		if share != c.share || most < c.least || most > c.most {
			t.Errorf("%s: %v and %d, want %v and %d to %d", c.name, share, most, c.share, c.least, c.most)
		}
	}
}
