// Package parquet writes comparison reports and other tables as Parquet files. It is
// apart from package verify because the library behind it is large and only the
// command line needs it. Of that library it takes the part that writes files: the
// bridge from Arrow's arrays draws in much that every command would load.
package parquet

import (
	"quern/verify"
)

// Encode writes a report as a Parquet table with Zstandard pages, one row a tensor.
func Encode(r *verify.Report) ([]byte, error) {
	n := len(r.Rows)
	var (
		name, typ, from, shape                    = make([]string, n), make([]string, n), make([]string, n), make([]string, n)
		values, bytes, maxAt, nans, infs, flushed = make([]int64, n), make([]int64, n), make([]int64, n), make([]int64, n), make([]int64, n), make([]int64, n)
		maxAbs, rms, snr, cosine                  = make([]float64, n), make([]float64, n), make([]float64, n), make([]float64, n)
		equal                                     = make([]bool, n)
	)
	for i, x := range r.Rows {
		name[i], typ[i], from[i], shape[i] = x.Name, x.Type, x.From, x.Shape.String()
		values[i], bytes[i], maxAt[i] = x.Values, x.Bytes, x.MaxAt
		maxAbs[i], rms[i], snr[i], cosine[i] = x.MaxAbs, x.RMS, float64(x.SNRdB), x.Cosine
		nans[i], infs[i], flushed[i], equal[i] = x.NaN, x.Inf, x.Flushed, x.Equal
	}
	return Table([]Column{
		{"tensor", name}, {"type", typ}, {"from", from}, {"shape", shape},
		{"values", values}, {"bytes", bytes}, {"max_abs", maxAbs}, {"max_at", maxAt}, {"rms", rms}, {"snr_db", snr}, {"cosine", cosine},
		{"nan", nans}, {"inf", infs}, {"blocks_flushed", flushed}, {"equal", equal},
	})
}
