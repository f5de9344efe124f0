package recipes

import "testing"

// TestParsePercent: a percentage is the very number that its decimals are.
func TestParsePercent(t *testing.T) {
	for s, want := range map[string]float64{"7 %": 0.07, "99.9%": 0.999, ".5%": 0.005, "100 %": 1, "0%": 0} {
		if got, ok := ParsePercent(s); !ok || got != want {
			t.Errorf("%q: %v, %t; want %v", s, got, ok, want)
		}
	}
	for _, s := range []string{"", "%", "0.999", "-1%", "+1%", "1e1%", "1  %", "nan%", "1%%"} {
		if got, ok := ParsePercent(s); ok {
			t.Errorf("%q: %v", s, got)
		}
	}
}
