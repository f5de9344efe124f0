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

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/memory"
	"github.com/apache/arrow/go/v17/parquet"
	"github.com/apache/arrow/go/v17/parquet/compress"
	"github.com/apache/arrow/go/v17/parquet/pqarrow"
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

// columns are the fields of the Parquet table, one row a tensor.
var columns = []arrow.Field{
	{Name: "tensor", Type: arrow.BinaryTypes.String},
	{Name: "type", Type: arrow.BinaryTypes.String},
	{Name: "from", Type: arrow.BinaryTypes.String},
	{Name: "shape", Type: arrow.BinaryTypes.String},
	{Name: "values", Type: arrow.PrimitiveTypes.Int64},
	{Name: "bytes", Type: arrow.PrimitiveTypes.Int64},
	{Name: "max_abs", Type: arrow.PrimitiveTypes.Float64},
	{Name: "max_at", Type: arrow.PrimitiveTypes.Int64},
	{Name: "rms", Type: arrow.PrimitiveTypes.Float64},
	{Name: "snr_db", Type: arrow.PrimitiveTypes.Float64},
	{Name: "cosine", Type: arrow.PrimitiveTypes.Float64},
	{Name: "nan", Type: arrow.PrimitiveTypes.Int64},
	{Name: "inf", Type: arrow.PrimitiveTypes.Int64},
	{Name: "blocks_flushed", Type: arrow.PrimitiveTypes.Int64},
	{Name: "equal", Type: arrow.FixedWidthTypes.Boolean},
}

// Parquet writes a report as a Parquet table with Zstandard pages.
func Parquet(r *Report) ([]byte, error) {
	schema := arrow.NewSchema(columns, nil)
	b := array.NewRecordBuilder(memory.NewGoAllocator(), schema)
	defer b.Release()
	for _, x := range r.Rows {
		for i, v := range []any{x.Name, x.Type, x.From, x.Shape.String(), x.Values, x.Bytes, x.MaxAbs, x.MaxAt, x.RMS,
			float64(x.SNRdB), x.Cosine, x.NaN, x.Inf, x.Flushed, x.Equal} {
			switch f := b.Field(i).(type) {
			case *array.StringBuilder:
				f.Append(v.(string))
			case *array.Int64Builder:
				f.Append(v.(int64))
			case *array.Float64Builder:
				f.Append(v.(float64))
			case *array.BooleanBuilder:
				f.Append(v.(bool))
			}
		}
	}
	rec := b.NewRecord()
	defer rec.Release()
	var out bytes.Buffer
	w, err := pqarrow.NewFileWriter(schema, &out,
		parquet.NewWriterProperties(parquet.WithCompression(compress.Codecs.Zstd), parquet.WithCreatedBy("quern")),
		pqarrow.DefaultWriterProps())
	if err != nil {
		return nil, err
	}
	if err := w.Write(rec); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}
