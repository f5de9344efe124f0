package selecttokens

import (
	"strings"

	"quern/tokenizer"
	"quern/tokenizer/count"
	"quern/verify/parquet"
)

// Table writes counts as a Parquet table with a row for each token: id, token (the
// text that it stands for, with U+FFFD in place of what is no UTF-8), bytes (the
// same without that), kind, a column count_NAME for each corpus, weight (the merged
// share) and kept. ids are those that are kept, ascending.
func Table(t *tokenizer.Tokenizer, c *count.Counts, kinds []count.Kind, ids []int32) ([]byte, error) {
	n := c.Vocab
	id, token, raw, kind := make([]int64, n), make([]string, n), make([][]byte, n), make([]string, n)
	kept := make([]bool, n)
	for i := range n {
		piece := t.Piece(int32(i), true)
		id[i], raw[i], kind[i] = int64(i), []byte(piece), string(kinds[i])
		token[i] = strings.ToValidUTF8(piece, "\ufffd")
	}
	for _, i := range ids {
		kept[i] = true
	}
	cols := []parquet.Column{{Name: "id", Values: id}, {Name: "token", Values: token}, {Name: "bytes", Values: raw}, {Name: "kind", Values: kind}}
	for _, x := range c.Corpora {
		counts := make([]int64, n)
		for i, k := range x.IDs {
			counts[i] = int64(k)
		}
		cols = append(cols, parquet.Column{Name: "count_" + x.Name, Values: counts})
	}
	cols = append(cols, parquet.Column{Name: "weight", Values: count.Scores(c)}, parquet.Column{Name: "kept", Values: kept})
	return parquet.Table(cols)
}
