package parquet

import (
	"bytes"
	"math"
	"strings"
	"testing"

	"github.com/apache/arrow/go/v17/arrow/memory"
	"github.com/apache/arrow/go/v17/parquet/file"
	"github.com/apache/arrow/go/v17/parquet/pqarrow"
)

// TestTable reads tables back through the bridge to Arrow, which writing does
// without.
func TestTable(t *testing.T) {
	for _, rows := range []int{0, 1, 3} {
		cols := []Column{
			{"name", []string{"Ä", "", "blk.0"}[:rows]},
			{"raw", [][]byte{{0xff, 0}, {}, {1}}[:rows]},
			{"n", []int64{-1, math.MaxInt64, 0}[:rows]},
			{"x", []float64{0.5, math.Inf(1), -2}[:rows]},
			{"yes", []bool{true, false, true}[:rows]},
		}
		b, err := Table(cols)
		if err != nil {
			t.Fatal(err)
		}
		f, err := file.NewParquetReader(bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		r, err := pqarrow.NewFileReader(f, pqarrow.ArrowReadProperties{}, memory.NewGoAllocator())
		if err != nil {
			t.Fatal(err)
		}
		table, err := r.ReadTable(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got := table.Schema().String(); !strings.Contains(got, "- name: type=utf8") || !strings.Contains(got, "- raw: type=binary") ||
			!strings.Contains(got, "- n: type=int64") || !strings.Contains(got, "- x: type=float64") || !strings.Contains(got, "- yes: type=bool") {
			t.Errorf("schema %s", got)
		}
		want := [][]string{{"Ä", "", "blk.0"}, {"/wA=", "", "AQ=="}, {"-1", "9223372036854775807", "0"}, {"0.5", "+Inf", "-2"}, {"true", "false", "true"}}
		if table.NumRows() != int64(rows) || table.NumCols() != int64(len(cols)) {
			t.Fatalf("%d rows of %d columns", table.NumRows(), table.NumCols())
		}
		for i := range cols {
			var got []string
			for _, chunk := range table.Column(i).Data().Chunks() {
				for j := range chunk.Len() {
					got = append(got, chunk.ValueStr(j))
				}
			}
			if strings.Join(got, "|") != strings.Join(want[i][:rows], "|") {
				t.Errorf("column %s of %d rows is %q, want %q", cols[i].Name, rows, got, want[i][:rows])
			}
		}
	}
}

func TestTableRefuses(t *testing.T) {
	for _, c := range []struct {
		cols []Column
		says string
	}{
		{[]Column{{"a", []int64{1}}, {"b", []int64{1, 2}}}, "column b has 2 rows, those before have 1"},
		{[]Column{{"a", []int32{1}}}, "column a: values of type []int32"},
	} {
		if b, err := Table(c.cols); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%d bytes, %v; want an error that says %q", len(b), err, c.says)
		}
	}
}
