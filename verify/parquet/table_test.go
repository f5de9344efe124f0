package parquet

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/memory"
	"github.com/apache/arrow/go/v17/parquet/file"
	"github.com/apache/arrow/go/v17/parquet/pqarrow"
)

// read reads a table by Apache Arrow's library.
func read(t *testing.T, b []byte) arrow.Table {
	t.Helper()
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
	return table
}

// values are the texts of a column's values.
func values(table arrow.Table, column int) []string {
	var out []string
	for _, chunk := range table.Column(column).Data().Chunks() {
		for i := range chunk.Len() {
			out = append(out, chunk.ValueStr(i))
		}
	}
	return out
}

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
		table := read(t, b)
		if got := table.Schema().String(); !strings.Contains(got, "- name: type=utf8") || !strings.Contains(got, "- raw: type=binary") ||
			!strings.Contains(got, "- n: type=int64") || !strings.Contains(got, "- x: type=float64") || !strings.Contains(got, "- yes: type=bool") {
			t.Errorf("schema %s", got)
		}
		want := [][]string{{"Ä", "", "blk.0"}, {"/wA=", "", "AQ=="}, {"-1", "9223372036854775807", "0"}, {"0.5", "+Inf", "-2"}, {"true", "false", "true"}}
		if table.NumRows() != int64(rows) || table.NumCols() != int64(len(cols)) {
			t.Fatalf("%d rows of %d columns", table.NumRows(), table.NumCols())
		}
		for i := range cols {
			got := values(table, i)
			if strings.Join(got, "|") != strings.Join(want[i][:rows], "|") {
				t.Errorf("column %s of %d rows is %q, want %q", cols[i].Name, rows, got, want[i][:rows])
			}
		}
	}
}

// TestTablePages: columns of many pages, whose bounds lie elsewhere in each column,
// and more columns than a list's first byte can count.
func TestTablePages(t *testing.T) {
	const rows = 300_001
	texts, numbers, yes := make([]string, rows), make([]int64, rows), make([]bool, rows)
	for i := range rows {
		texts[i], numbers[i], yes[i] = strings.Repeat("x", i%11), int64(i)*int64(i), i%3 == 0
	}
	cols := []Column{{"text", texts}, {"number", numbers}, {"yes", yes}}
	for i := range 20 {
		cols = append(cols, Column{fmt.Sprint("more ", i), numbers})
	}
	b, err := Table(cols)
	if err != nil {
		t.Fatal(err)
	}
	table := read(t, b)
	if table.NumRows() != rows || table.NumCols() != int64(len(cols)) {
		t.Fatalf("%d rows of %d columns", table.NumRows(), table.NumCols())
	}
	a, n, y, last := values(table, 0), values(table, 1), values(table, 2), values(table, len(cols)-1)
	for i := range rows {
		if want := fmt.Sprint(numbers[i]); a[i] != texts[i] || n[i] != want || y[i] != fmt.Sprint(yes[i]) || last[i] != want {
			t.Fatalf("row %d: %q, %s, %s, %s", i, a[i], n[i], y[i], last[i])
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
