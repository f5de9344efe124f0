package pipeline

import (
	"encoding/json"

	"quern/internal/digest"
	"quern/tensor/quant"
)

// Result is what a build did. Its JSON is the document of quern build --json.
type Result struct {
	Name     string         `json:"name"`
	Outputs  []OutputResult `json:"outputs"`
	Gates    []GateResult   `json:"gates"`
	Sources  []SourceRecord `json:"sources"`
	Warnings []string       `json:"warnings"`
	// Products are the side products of steps, such as token lists.
	Products []ProductReport `json:"products,omitempty"`
	// Manifest is the digest of the build's manifest in the store, zero when
	// nothing was kept.
	Manifest *digest.Digest `json:"manifest,omitempty"`
	Lock     string         `json:"lock,omitempty"`
	Stats    Stats          `json:"stats"`
}

// OutputResult is one file of a Result.
type OutputResult struct {
	File   string        `json:"file"`
	Path   string        `json:"path,omitempty"` // none where the file is only elsewhere
	Format string        `json:"format"`
	Size   int64         `json:"size"`
	SHA256 digest.Digest `json:"sha256"`
	// BitsPerWeight counts tensor data only.
	BitsPerWeight float64 `json:"bits_per_weight"`
	Tensors       int     `json:"tensors"`
	// Made counts the tensors that were computed; the others were in the
	// store.
	Made int `json:"tensors_made"`
	// Cached says that the whole file was in the store.
	Cached bool `json:"cached"`
	// Targets are where the file was sent, without what is secret in them; Already
	// says that all of them had it.
	Targets []string    `json:"targets,omitempty"`
	Already bool        `json:"already_there,omitempty"`
	Lost    *LostValues `json:"lost,omitempty"`
	// Worst is the tensor with the lowest signal-to-noise ratio, where it was
	// measured.
	Worst *WorstTensor `json:"worst,omitempty"`
}

// LostValues counts what casts to a smaller float type dropped.
type LostValues struct {
	Flushed int64 `json:"flushed_to_zero"`
}

// WorstTensor names the tensor that lost most.
type WorstTensor struct {
	Name  string  `json:"name"`
	Type  string  `json:"type"`
	SNRdB float64 `json:"snr_db"`
}

// MarshalJSON writes null for a ratio that JSON does not have.
func (w WorstTensor) MarshalJSON() ([]byte, error) {
	type plain WorstTensor
	return json.Marshal(struct {
		plain
		SNRdB finite `json:"snr_db"`
	}{plain(w), finite(w.SNRdB)})
}

// Stats counts the work of a build.
type Stats struct {
	// SourceBytes are the bytes of weights read from sources, the hashing of
	// local files left out.
	SourceBytes int64 `json:"source_bytes_read"`
	// StoreBytes are the bytes of tensors taken from the store.
	StoreBytes int64                 `json:"store_bytes_read"`
	Hashed     int64                 `json:"source_bytes_hashed"`
	Fetch      map[string]FetchStats `json:"fetch,omitempty"`
}

// lossOf sums what the casts of a layout have lost.
func lossOf(l *Layout) *LostValues {
	var n int64
	for _, it := range l.Items {
		if c, ok := it.Tensor.Src.(interface{ Loss() quant.Loss }); ok {
			n += c.Loss().Flush.N
		}
	}
	if n == 0 {
		return nil
	}
	return &LostValues{Flushed: n}
}

// bitsPerWeight counts the data of all tensors against their values.
func bitsPerWeight(l *Layout) float64 {
	var bytes, values int64
	for _, it := range l.Items {
		bytes += it.Tensor.Bytes()
		n, err := it.Tensor.Shape.Values()
		if err != nil {
			return 0
		}
		if !it.Aside {
			values += n
		}
	}
	if values == 0 {
		return 0
	}
	return float64(bytes) * 8 / float64(values)
}
