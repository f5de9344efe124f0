package verify

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"math"
	"strings"
	"text/tabwriter"
)

// text writes a decibel for people.
func (d Decibel) text() string {
	switch {
	case math.IsInf(float64(d), 1):
		return "equal"
	case math.IsInf(float64(d), -1):
		return "-inf"
	}
	return fmt.Sprintf("%.2f", float64(d))
}

// Table writes a report as aligned text.
func Table(w io.Writer, r *Report) error {
	var head strings.Builder
	fmt.Fprintf(&head, "%s", r.File)
	if r.Against != "" {
		fmt.Fprintf(&head, " against %s", r.Against)
	}
	fmt.Fprintln(w, head.String())
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	if r.Against == "" {
		fmt.Fprintln(t, "tensor\ttype\tshape\tbytes\tNaN\tInf")
		for _, x := range r.Rows {
			fmt.Fprintf(t, "%s\t%s\t%v\t%d\t%d\t%d\n", x.Name, x.Type, x.Shape, x.Bytes, x.NaN, x.Inf)
		}
		fmt.Fprintf(t, "total\t\t\t%d\t%d\t%d\n", r.Total.Bytes, r.Total.NaN, r.Total.Inf)
	} else {
		fmt.Fprintln(t, "tensor\ttype\tmax error\tRMS error\tSNR dB\tcosine\tNaN\tInf\tflushed")
		row := func(x Row) {
			fmt.Fprintf(t, "%s\t%s\t%.3e\t%.3e\t%s\t%.6f\t%d\t%d\t%d\n", x.Name, x.Type, x.MaxAbs, x.RMS, x.SNRdB.text(), x.Cosine, x.NaN, x.Inf, x.Flushed)
		}
		for _, x := range r.Rows {
			row(x)
		}
		row(r.Total)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if w0 := r.Worst(); w0 != nil && r.Against != "" {
		fmt.Fprintf(w, "worst: %s (%s), SNR %s dB, largest error %.3e at value %d\n", w0.Name, w0.Type, w0.SNRdB.text(), w0.MaxAbs, w0.MaxAt)
	}
	for _, n := range r.Notes {
		fmt.Fprintf(w, "note: %s\n", n)
	}
	return nil
}

//go:embed report.html
var page string

// HTML writes a report as one page without scripts or outside parts.
func HTML(r *Report) ([]byte, error) {
	t, err := template.New("report").Funcs(template.FuncMap{
		"db":  func(d Decibel) string { return d.text() },
		"sci": func(v float64) string { return fmt.Sprintf("%.3e", v) },
		"cos": func(v float64) string { return fmt.Sprintf("%.6f", v) },
	}).Parse(page)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	if err := t.Execute(&b, r); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}
