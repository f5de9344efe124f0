// Package parquet writes comparison reports as Parquet tables. It is apart from
// package verify because the library behind it is large and only the command
// line needs it.
package parquet

import (
	"bytes"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/memory"
	"github.com/apache/arrow/go/v17/parquet"
	"github.com/apache/arrow/go/v17/parquet/compress"
	"github.com/apache/arrow/go/v17/parquet/pqarrow"

	"quern/verify"
)

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

// Encode writes a report as a Parquet table with Zstandard pages.
func Encode(r *verify.Report) ([]byte, error) {
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
