package infer_test

import (
	"context"
	"errors"
	"testing"

	infer "quern/runtime"
)

// counter is a model of 10 ids whose logits say which token comes next.
type counter struct {
	seen []int32
	room int
}

func (c *counter) Len() int  { return len(c.seen) }
func (c *counter) Room() int { return c.room - len(c.seen) }

func (c *counter) Rewind(n int) error {
	c.seen = c.seen[:n]
	return nil
}

func (c *counter) Eval(_ context.Context, tokens []int32, want []int, each func(int, []float32) error) error {
	if err := infer.CheckEval(c, 10, tokens, want); err != nil {
		return err
	}
	for _, i := range want {
		logits := make([]float32, 10)
		logits[(tokens[i]+1)%10] = 1
		if err := each(i, logits); err != nil {
			return err
		}
	}
	c.seen = append(c.seen, tokens...)
	return nil
}

func TestCheckEval(t *testing.T) {
	for _, c := range []struct {
		name   string
		tokens []int32
		want   []int
		is     error
		ok     bool
	}{
		{"nothing", nil, nil, nil, true},
		{"all", []int32{0, 9}, []int{0, 1}, nil, true},
		{"full", []int32{0, 1, 2, 3, 4, 5, 6}, nil, infer.ErrContext, false},
		{"id above", []int32{1, 10}, nil, infer.ErrToken, false},
		{"id below", []int32{-1}, nil, infer.ErrToken, false},
		{"row above", []int32{1}, []int{1}, nil, false},
		{"row below", []int32{1}, []int{-1}, nil, false},
		{"row twice", []int32{1, 2}, []int{1, 1}, nil, false},
	} {
		err := infer.CheckEval(&counter{room: 6}, 10, c.tokens, c.want)
		if (err == nil) != c.ok || c.is != nil && !errors.Is(err, c.is) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func TestLast(t *testing.T) {
	s := &counter{room: 6}
	got, err := infer.Last(t.Context(), s, []int32{3, 4}, nil)
	if err != nil || len(got) != 10 || got[5] != 1 || s.Len() != 2 {
		t.Errorf("%v, %v after %d tokens", got, err, s.Len())
	}
	if _, err := infer.Last(t.Context(), s, nil, nil); err == nil {
		t.Error("nothing has last logits")
	}
	if _, err := infer.Last(t.Context(), s, []int32{12}, nil); !errors.Is(err, infer.ErrToken) {
		t.Errorf("id 12: %v", err)
	}
}

func TestParseAct(t *testing.T) {
	for _, a := range []infer.Act{infer.Exact, infer.Q8} {
		if got, err := infer.ParseAct(a.String()); got != a || err != nil {
			t.Errorf("%v: %v, %v", a, got, err)
		}
	}
	if _, err := infer.ParseAct("fast"); err == nil {
		t.Error("fast is an arithmetic")
	}
}
