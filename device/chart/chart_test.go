package chart

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
)

func TestWrite(t *testing.T) {
	var b strings.Builder
	err := Write(&b,
		Panel{Title: "misses", XLabel: "pool", Percent: true, Lines: []Line{{Name: "a < b", X: []float64{8, 16, 128}, Y: []float64{0.5, 0.25, 0}}}},
		Panel{Title: "speed", XLabel: "pool", Lines: []Line{{Name: "x", X: []float64{8, 16}, Y: []float64{1, 9}}, {Name: "y", X: []float64{8}, Y: []float64{4}}}})
	if err != nil {
		t.Fatal(err)
	}
	got := b.String()
	for _, want := range []string{
		// 8 is at the left, 128 at the right; the scale of 0.5 has marks at 0.1.
		`d="M70,40L107,145L620,250"`, "a &lt; b", ">50 %<", ">0 %<",
		// 9 on a scale to 10.
		`d="M70,229L620,61"`, `height="680"`,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %s in\n%s", want, got)
		}
	}
	for d := xml.NewDecoder(strings.NewReader(got)); ; {
		if _, err := d.Token(); err != nil {
			if !errors.Is(err, io.EOF) {
				t.Error(err)
			}
			break
		}
	}
}

func TestNothingToDraw(t *testing.T) {
	if err := Write(io.Discard, Panel{Title: "x"}); err == nil {
		t.Error("an empty panel was drawn")
	}
	if err := Write(io.Discard, Panel{Lines: []Line{{X: []float64{1}, Y: []float64{-1}}}}); err == nil {
		t.Error("a negative value was drawn")
	}
	// One point, and no value: a picture all the same.
	if err := Write(io.Discard, Panel{Lines: []Line{{X: []float64{1}, Y: []float64{0}}}}); err != nil {
		t.Error(err)
	}
}

func TestTick(t *testing.T) {
	for most, want := range map[float64]float64{0.5: 0.1, 1: 0.2, 9: 2, 10: 2, 11: 5, 0.02: 0.005, 26: 10} {
		if got := tick(most); got != want {
			t.Errorf("%v: %v, want %v", most, got, want)
		}
	}
}
