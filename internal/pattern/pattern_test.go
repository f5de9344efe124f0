package pattern_test

import (
	"slices"
	"testing"

	"quern/internal/pattern"
)

func TestPattern(t *testing.T) {
	p := pattern.New(`^(a+)(b?)$`)
	if p.String() != `^(a+)(b?)$` || !p.MatchString("aab") || p.MatchString("b") {
		t.Error("another expression")
	}
	if got := p.FindStringSubmatch("aab"); !slices.Equal(got, []string{"aab", "aa", "b"}) {
		t.Errorf("parts %q", got)
	}
	defer func() {
		if recover() == nil {
			t.Error("an expression that does not compile was used")
		}
	}()
	pattern.New(`(`).MatchString("")
}
