package parquet

import (
	"bytes"
	"fmt"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/memory"
	"github.com/apache/arrow/go/v17/parquet"
	"github.com/apache/arrow/go/v17/parquet/compress"
	"github.com/apache/arrow/go/v17/parquet/pqarrow"
)

// A Column is one column of a table: a name and the values of all rows, as
// []string (UTF-8), [][]byte, []int64, []float64 or []bool.
type Column struct {
	Name   string
	Values any
}

// Table writes columns of equal length as a Parquet table with Zstandard pages.
func Table(cols []Column) ([]byte, error) {
	var fields []arrow.Field
	var arrays []arrow.Array
	defer func() {
		for _, a := range arrays {
			a.Release()
		}
	}()
	mem := memory.NewGoAllocator()
	rows := -1
	for _, c := range cols {
		a, err := column(mem, c)
		if err != nil {
			return nil, err
		}
		arrays = append(arrays, a)
		fields = append(fields, arrow.Field{Name: c.Name, Type: a.DataType()})
		if rows >= 0 && a.Len() != rows {
			return nil, fmt.Errorf("parquet: column %s has %d rows, those before have %d", c.Name, a.Len(), rows)
		}
		rows = a.Len()
	}
	schema := arrow.NewSchema(fields, nil)
	rec := array.NewRecord(schema, arrays, int64(rows))
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

func column(mem memory.Allocator, c Column) (arrow.Array, error) {
	switch v := c.Values.(type) {
	case []string:
		b := array.NewStringBuilder(mem)
		defer b.Release()
		b.AppendValues(v, nil)
		return b.NewArray(), nil
	case [][]byte:
		b := array.NewBinaryBuilder(mem, arrow.BinaryTypes.Binary)
		defer b.Release()
		b.AppendValues(v, nil)
		return b.NewArray(), nil
	case []int64:
		b := array.NewInt64Builder(mem)
		defer b.Release()
		b.AppendValues(v, nil)
		return b.NewArray(), nil
	case []float64:
		b := array.NewFloat64Builder(mem)
		defer b.Release()
		b.AppendValues(v, nil)
		return b.NewArray(), nil
	case []bool:
		b := array.NewBooleanBuilder(mem)
		defer b.Release()
		b.AppendValues(v, nil)
		return b.NewArray(), nil
	}
	return nil, fmt.Errorf("parquet: column %s: values of type %T", c.Name, c.Values)
}
