package parquet

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/klauspost/compress/zstd"
)

// A Column is one column of a table: a name and the values of all rows, as
// []string (UTF-8), [][]byte, []int64, []float64 or []bool.
type Column struct {
	Name   string
	Values any
}

// Table writes columns of equal length as a Parquet table with Zstandard pages, in
// one group of rows. All values are required and in PLAIN encoding:
//
//	"PAR1"
//	columns   pages one after another: PageHeader, then the values, compressed
//	footer    FileMetaData
//	u32       length of the footer, little-endian like all that follows
//	"PAR1"
//
//	[]string, [][]byte   u32 length and bytes of each value
//	[]int64, []float64   8 bytes
//	[]bool               a bit, the lowest of a byte first
func Table(cols []Column) ([]byte, error) {
	rows := -1
	for _, c := range cols {
		_, n, err := c.kind()
		if err != nil {
			return nil, err
		}
		if rows >= 0 && n != rows {
			return nil, fmt.Errorf("parquet: column %s has %d rows, those before have %d", c.Name, n, rows)
		}
		rows = n
	}
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
	if err != nil {
		return nil, fmt.Errorf("parquet: %w", err)
	}
	out, chunks := []byte(magic), make([]chunk, len(cols))
	for i, c := range cols {
		if out, chunks[i], err = c.write(out, rows, enc); err != nil {
			return nil, fmt.Errorf("parquet: column %s: %w", c.Name, err)
		}
	}
	foot := footer(cols, max(rows, 0), chunks)
	if len(foot) > math.MaxInt32 {
		return nil, fmt.Errorf("parquet: a footer of %d bytes", len(foot))
	}
	out = binary.LittleEndian.AppendUint32(append(out, foot...), uint32(len(foot)))
	return append(out, magic...), nil
}

const magic = "PAR1"

// physical is how values of a column are stored, as Parquet numbers it.
type physical int32

const (
	boolean   physical = 0
	int64s    physical = 2
	doubles   physical = 5
	byteArray physical = 6
)

// Numbers of other things in headers and footers.
const (
	required = 0 // repetition
	plain    = 0 // encoding
	rle      = 3 // encoding of levels, which required values have none of
	codec    = 6 // Zstandard
	dataPage = 0 // kind of a page
	utf8     = 0 // kind of text, for old readers
	signed64 = 18
)

// kind gives a column's type and the number of its rows.
func (c Column) kind() (p physical, rows int, err error) {
	switch v := c.Values.(type) {
	case []string:
		return byteArray, len(v), nil
	case [][]byte:
		return byteArray, len(v), nil
	case []int64:
		return int64s, len(v), nil
	case []float64:
		return doubles, len(v), nil
	case []bool:
		return boolean, len(v), nil
	}
	return 0, 0, fmt.Errorf("parquet: column %s: values of type %T", c.Name, c.Values)
}

// chunk is where the pages of a column are, and what they take with their headers.
type chunk struct{ offset, plain, packed int64 }

// pageBytes is what a page has at least before the next begins.
const pageBytes = 1 << 20

// write appends the pages of all rows to out.
func (c Column) write(out []byte, rows int, enc *zstd.Encoder) ([]byte, chunk, error) {
	at := chunk{offset: int64(len(out))}
	var page []byte
	for from, i := 0, 0; i < rows; from = i {
		page = page[:0]
		for ; i < rows && (len(page) < pageBytes || (i-from)%8 != 0); i++ {
			page = c.value(page, i, i-from)
		}
		if len(page) > math.MaxInt32 {
			return nil, at, fmt.Errorf("rows %d to %d take %d bytes, more than a page can have", from, i-1, len(page))
		}
		packed := enc.EncodeAll(page, nil)
		head := pageHeader(i-from, len(page), len(packed))
		out = append(append(out, head...), packed...)
		at.plain += int64(len(head) + len(page))
		at.packed += int64(len(head) + len(packed))
	}
	return out, at, nil
}

// value appends value i, the n-th of its page.
func (c Column) value(page []byte, i, n int) []byte {
	le := binary.LittleEndian
	switch v := c.Values.(type) {
	case []string:
		return append(le.AppendUint32(page, uint32(len(v[i]))), v[i]...)
	case [][]byte:
		return append(le.AppendUint32(page, uint32(len(v[i]))), v[i]...)
	case []int64:
		return le.AppendUint64(page, uint64(v[i]))
	case []float64:
		return le.AppendUint64(page, math.Float64bits(v[i]))
	case []bool:
		if n%8 == 0 {
			page = append(page, 0)
		}
		if v[i] {
			page[len(page)-1] |= 1 << (n % 8)
		}
	}
	return page
}

func pageHeader(values, plainBytes, packedBytes int) []byte {
	var h compact
	h.begin()
	h.i32(1, dataPage)
	h.i32(2, int32(plainBytes))
	h.i32(3, int32(packedBytes))
	h.open(5)
	h.i32(1, int32(values))
	h.i32(2, plain)
	h.i32(3, rle)
	h.i32(4, rle)
	h.end()
	h.end()
	return h.b
}

func footer(cols []Column, rows int, chunks []chunk) []byte {
	var f compact
	f.begin()
	f.i32(1, 2) // version
	f.list(2, kindStruct, 1+len(cols))
	f.begin()
	f.str(4, "schema")
	f.i32(5, int32(len(cols)))
	f.end()
	for _, c := range cols {
		c.schema(&f)
	}
	f.i64(3, int64(rows))
	groups := 1
	if rows == 0 {
		groups = 0
	}
	f.list(4, kindStruct, groups)
	if groups > 0 {
		rowGroup(&f, cols, rows, chunks)
	}
	f.str(6, "quern")
	f.end()
	return f.b
}

// schema appends the SchemaElement of a column.
func (c Column) schema(f *compact) {
	p, _, _ := c.kind()
	f.begin()
	f.i32(1, int32(p))
	f.i32(3, required)
	f.str(4, c.Name)
	switch c.Values.(type) {
	case []string:
		f.i32(6, utf8)
		f.open(10) // LogicalType
		f.open(1)  // STRING
		f.end()
		f.end()
	case []int64:
		f.i32(6, signed64)
		f.open(10)
		f.open(10) // INTEGER
		f.field(1, kindByte)
		f.b = append(f.b, 64)
		f.field(2, kindTrue)
		f.end()
		f.end()
	}
	f.end()
}

// rowGroup appends the RowGroup of all rows.
func rowGroup(f *compact, cols []Column, rows int, chunks []chunk) {
	total := int64(0)
	f.begin()
	f.list(1, kindStruct, len(cols))
	for i, c := range cols {
		p, _, _ := c.kind()
		at := chunks[i]
		total += at.plain
		f.begin()
		f.i64(2, at.offset)
		f.open(3) // ColumnMetaData
		f.i32(1, int32(p))
		f.list(2, kindI32, 1)
		f.b = append(f.b, plain)
		f.list(3, kindBinary, 1)
		f.text(c.Name)
		f.i32(4, codec)
		f.i64(5, int64(rows))
		f.i64(6, at.plain)
		f.i64(7, at.packed)
		f.i64(9, at.offset)
		f.end()
		f.end()
	}
	f.i64(2, total)
	f.i64(3, int64(rows))
	f.end()
}
