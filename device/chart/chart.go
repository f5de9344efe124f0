// Package chart draws lines over a number, as an SVG picture. Coordinates are
// whole numbers, so the same data give the same bytes everywhere.
//
//	0        left            right
//	top      +----------------+   the largest value
//	         |      o----o    |
//	         |  o---          |
//	bottom   +----------------+   0
//	         x of the points      and a legend below
package chart

import (
	"fmt"
	"html/template"
	"io"
	"math"
	"slices"
	"strconv"
)

// Line is one line of a panel.
type Line struct {
	Name string
	// X and Y are its points; Y must not be negative.
	X, Y []float64
}

// Panel is a plot with axes of its own.
type Panel struct {
	Title, XLabel string
	// Percent writes values as a share of one.
	Percent bool
	Lines   []Line
}

// Size of a panel in pixels, and of the margins of what is drawn in it.
const (
	width, height = 640, 300
	left, right   = 70, 620
	top, bottom   = 40, 250
	legend        = 20 // a line of the legend
)

// colours are told apart by most who confuse red and green too.
var colours = []string{"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000"}

type mark struct {
	At   int
	Text string
}

type drawnLine struct {
	Name, Colour, Path string
	Points             [][2]int
	Key                int // where its entry in the legend stands
}

type drawn struct {
	Y                        int // where the panel begins
	Title, XLabel            string
	Left, Right, Top, Bottom int
	XMarks, YMarks           []mark
	Lines                    []drawnLine
}

var picture = template.Must(template.New("chart").Parse(`<svg xmlns="http://www.w3.org/2000/svg" width="{{.Width}}" height="{{.Height}}" font-family="sans-serif" font-size="12">
<rect width="100%" height="100%" fill="white"/>
{{range .Panels}}<g transform="translate(0,{{.Y}})">
{{$p := .}}<text x="{{.Left}}" y="24" font-size="14">{{.Title}}</text>
{{range .YMarks}}<path d="M{{$p.Left}},{{.At}}H{{$p.Right}}" stroke="#ddd"/><text x="{{$p.Left}}" dx="-6" y="{{.At}}" dy="4" text-anchor="end">{{.Text}}</text>
{{end}}{{range .XMarks}}<path d="M{{.At}},{{$p.Bottom}}v4" stroke="black"/><text x="{{.At}}" y="{{$p.Bottom}}" dy="18" text-anchor="middle">{{.Text}}</text>
{{end}}<path d="M{{.Left}},{{.Top}}V{{.Bottom}}H{{.Right}}" fill="none" stroke="black"/>
<text x="{{.Right}}" y="{{.Bottom}}" dy="36" text-anchor="end">{{.XLabel}}</text>
{{range .Lines}}<path d="{{.Path}}" fill="none" stroke="{{.Colour}}" stroke-width="2"/>
{{$c := .Colour}}{{range .Points}}<circle cx="{{index . 0}}" cy="{{index . 1}}" r="3" fill="{{$c}}"/>
{{end}}<path d="M{{$p.Left}},{{.Key}}h24" stroke="{{.Colour}}" stroke-width="2"/><text x="{{$p.Left}}" dx="30" y="{{.Key}}" dy="4">{{.Name}}</text>
{{end}}</g>
{{end}}</svg>
`))

// Write draws panels one below the other.
func Write(w io.Writer, panels ...Panel) error {
	doc := struct {
		Width, Height int
		Panels        []drawn
	}{Width: width}
	for _, p := range panels {
		d, high, err := draw(p)
		if err != nil {
			return err
		}
		d.Y = doc.Height
		doc.Height += high
		doc.Panels = append(doc.Panels, d)
	}
	return picture.Execute(w, doc)
}

func draw(p Panel) (drawn, int, error) {
	d := drawn{Title: p.Title, XLabel: p.XLabel, Left: left, Right: right, Top: top, Bottom: bottom}
	var xs []float64
	most := 0.0
	for _, l := range p.Lines {
		if len(l.X) != len(l.Y) {
			return d, 0, fmt.Errorf("line %q has %d places and %d values", l.Name, len(l.X), len(l.Y))
		}
		for i, y := range l.Y {
			if !(y >= 0) || math.IsInf(y, 0) || math.IsNaN(l.X[i]) || math.IsInf(l.X[i], 0) {
				return d, 0, fmt.Errorf("line %q has the point %v, %v", l.Name, l.X[i], y)
			}
			most = math.Max(most, y)
			xs = append(xs, l.X[i])
		}
	}
	if len(xs) == 0 {
		return d, 0, fmt.Errorf("nothing to draw in %q", p.Title)
	}
	slices.Sort(xs)
	xs = slices.Compact(xs)
	step := tick(most)
	lines := math.Max(1, math.Ceil(most/step))
	x := func(v float64) int { return left + place(v-xs[0], xs[len(xs)-1]-xs[0], right-left) }
	y := func(v float64) int { return bottom - place(v, float64(lines*step), bottom-top) }
	for i := range int(lines) + 1 {
		v := float64(float64(i) * step)
		d.YMarks = append(d.YMarks, mark{y(v), number(v, p.Percent)})
	}
	last := -100
	for _, v := range xs {
		if at := x(v); at-last >= 30 { // labels need room
			d.XMarks = append(d.XMarks, mark{at, number(v, false)})
			last = at
		}
	}
	key := bottom + 56
	for i, l := range p.Lines {
		o := drawnLine{Name: l.Name, Colour: colours[i%len(colours)], Key: key}
		for k := range l.X {
			at := [2]int{x(l.X[k]), y(l.Y[k])}
			o.Points = append(o.Points, at)
			letter := "L"
			if k == 0 {
				letter = "M"
			}
			o.Path += fmt.Sprintf("%s%d,%d", letter, at[0], at[1])
		}
		d.Lines = append(d.Lines, o)
		key += legend
	}
	return d, height + legend*len(p.Lines) + 10, nil
}

// place is v of most, on so many pixels.
func place(v, most float64, pixels int) int {
	if most == 0 {
		return 0
	}
	return int(math.Round(float64(v / most * float64(pixels))))
}

// tick is a round distance of marks, of which most takes two to five.
func tick(most float64) float64 {
	if most == 0 {
		return 1
	}
	for e := -12; e < 16; e++ {
		unit := 1.0
		for range max(e, -e) {
			unit = float64(unit * 10)
		}
		for _, m := range []float64{1, 2, 5} {
			step := float64(m * unit)
			if e < 0 {
				step = m / unit
			}
			if most/step <= 5 {
				return step
			}
		}
	}
	return most
}

func number(v float64, percent bool) string {
	if percent {
		return strconv.FormatFloat(float64(v*100), 'g', 4, 64) + " %"
	}
	return strconv.FormatFloat(v, 'g', 4, 64)
}
