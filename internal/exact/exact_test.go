package exact

import "testing"

// TestRounded: logarithms and powers are right to the last place where float64 can
// tell.
func TestRounded(t *testing.T) {
	for _, c := range []struct{ x, ln float64 }{
		{1, 0}, {2, 0.6931471805599453}, {6.4, 1.8562979903656263}, {8, 2.0794415416798357}, {0.75, -0.2876820724517809}, {24, 3.1780538303479458},
	} {
		if got, _ := Ln(c.x).Float64(); got != c.ln {
			t.Errorf("ln %v is %v, want %v", c.x, got, c.ln)
		}
	}
	for _, c := range []struct{ x, exp float64 }{{0, 1}, {1, 2.718281828459045}, {-1, 0.36787944117144233}, {5.5, 244.69193226422038}} {
		if got, _ := Exp(Num(c.x)).Float64(); got != c.exp {
			t.Errorf("exp %v is %v, want %v", c.x, got, c.exp)
		}
	}
}
