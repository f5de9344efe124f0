package parquet

import (
	"bytes"
	"fmt"

	"github.com/apache/arrow/go/v17/parquet"
	"github.com/apache/arrow/go/v17/parquet/compress"
	"github.com/apache/arrow/go/v17/parquet/file"
	"github.com/apache/arrow/go/v17/parquet/schema"
)

// A Column is one column of a table: a name and the values of all rows, as
// []string (UTF-8), [][]byte, []int64, []float64 or []bool.
type Column struct {
	Name   string
	Values any
}

// Table writes columns of equal length as a Parquet table with Zstandard pages, in
// one group of rows.
func Table(cols []Column) ([]byte, error) {
	var fields schema.FieldList
	rows := -1
	for _, c := range cols {
		logical, physical, n, err := c.kind()
		if err != nil {
			return nil, err
		}
		if rows >= 0 && n != rows {
			return nil, fmt.Errorf("parquet: column %s has %d rows, those before have %d", c.Name, n, rows)
		}
		rows = n
		field, err := schema.NewPrimitiveNodeLogical(c.Name, parquet.Repetitions.Required, logical, physical, -1, -1)
		if err != nil {
			return nil, fmt.Errorf("parquet: column %s: %w", c.Name, err)
		}
		fields = append(fields, field)
	}
	root, err := schema.NewGroupNode("schema", parquet.Repetitions.Repeated, fields, -1)
	if err != nil {
		return nil, fmt.Errorf("parquet: %w", err)
	}
	var out bytes.Buffer
	w := file.NewParquetWriter(&out, root, file.WithWriterProps(
		parquet.NewWriterProperties(parquet.WithCompression(compress.Codecs.Zstd), parquet.WithCreatedBy("quern"))))
	group := w.AppendRowGroup()
	for _, c := range cols {
		chunk, err := group.NextColumn()
		if err == nil {
			err = c.write(chunk)
		}
		if err != nil {
			return nil, fmt.Errorf("parquet: column %s: %w", c.Name, err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("parquet: %w", err)
	}
	return out.Bytes(), nil
}

// kind gives a column's types and the number of its rows.
func (c Column) kind() (logical schema.LogicalType, physical parquet.Type, rows int, err error) {
	switch v := c.Values.(type) {
	case []string:
		return schema.StringLogicalType{}, parquet.Types.ByteArray, len(v), nil
	case [][]byte:
		return schema.NoLogicalType{}, parquet.Types.ByteArray, len(v), nil
	case []int64:
		return schema.NewIntLogicalType(64, true), parquet.Types.Int64, len(v), nil
	case []float64:
		return schema.NoLogicalType{}, parquet.Types.Double, len(v), nil
	case []bool:
		return schema.NoLogicalType{}, parquet.Types.Boolean, len(v), nil
	}
	return nil, 0, 0, fmt.Errorf("parquet: column %s: values of type %T", c.Name, c.Values)
}

// write writes all values to the one chunk of the column, and closes it.
func (c Column) write(chunk file.ColumnChunkWriter) (err error) {
	switch v := c.Values.(type) {
	case []string:
		_, err = chunk.(*file.ByteArrayColumnChunkWriter).WriteBatch(byteArrays(v), nil, nil)
	case [][]byte:
		_, err = chunk.(*file.ByteArrayColumnChunkWriter).WriteBatch(byteArrays(v), nil, nil)
	case []int64:
		_, err = chunk.(*file.Int64ColumnChunkWriter).WriteBatch(v, nil, nil)
	case []float64:
		_, err = chunk.(*file.Float64ColumnChunkWriter).WriteBatch(v, nil, nil)
	case []bool:
		_, err = chunk.(*file.BooleanColumnChunkWriter).WriteBatch(v, nil, nil)
	}
	if err != nil {
		return err
	}
	return chunk.Close()
}

func byteArrays[T string | []byte](v []T) []parquet.ByteArray {
	out := make([]parquet.ByteArray, len(v))
	for i, x := range v {
		out[i] = parquet.ByteArray(x)
	}
	return out
}
