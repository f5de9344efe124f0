package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"

	"quern/artifacts/pack"
	"quern/formats/gguf"
	"quern/stages/quantize"
	"quern/tensor"
)

// openHeader reads the header of a GGUF file, and gives nil for any other.
func openHeader(ctx context.Context, name string, r io.ReaderAt, size int64) (*gguf.File, error) {
	var magic [4]byte
	if n, _ := r.ReadAt(magic[:], 0); n < 4 || string(magic[:]) != "GGUF" {
		return nil, nil
	}
	f, err := gguf.Open(ctx, name, tensor.ReaderAtBlob(name, r, size), gguf.Options{Partial: true})
	if err != nil {
		return nil, err
	}
	if len(f.Problems) > 0 {
		return nil, fmt.Errorf("%s is damaged: %w; quern inspect shows it", name, f.Problems[0])
	}
	return f, nil
}

// describe adds to meta what the header of a model says, which the first of its
// shards has, and what the tensors of all of them are.
func describe(meta *pack.Meta, shards []*gguf.File) {
	f := shards[0]
	text := func(key string) string {
		s, _ := f.Meta.Text(key) // "" where there is none
		return s
	}
	meta.ModelFormat = "gguf"
	meta.Architecture = text("general.architecture")
	set := func(to *string, s string) {
		if *to == "" {
			*to = s
		}
	}
	set(&meta.Name, text("general.name"))
	set(&meta.Version, text("general.version"))
	set(&meta.Description, text("general.description"))
	set(&meta.SourceURL, text("general.source.url"))
	if s := text("general.author"); s != "" && meta.Authors == nil {
		meta.Authors = []string{s}
	}
	if s := text("general.license"); s != "" && meta.Licenses == nil {
		meta.Licenses = []string{s}
	}
	meta.Parameters = text("general.size_label")
	if meta.Parameters == "" {
		meta.Parameters = countLabel(shards)
	}
	meta.Quantization = quantLabel(shards)
	meta.GGUF = headerText(f)
}

// headerText are the short values of a header but the tokenizer's, as docker model
// shows them.
func headerText(f *gguf.File) map[string]string {
	out := map[string]string{}
	for k, v := range f.Meta.All() {
		if v.IsArray() || strings.HasPrefix(k, "tokenizer.") && v.Type() == gguf.String {
			continue
		}
		if s := fmt.Sprint(v.Any()); len(s) <= 200 {
			out[k] = s
		}
	}
	return out
}

// countLabel is the number of weights with two or three digits.
func countLabel(shards []*gguf.File) string {
	n := int64(0)
	for _, f := range shards {
		for _, t := range f.Tensors {
			k := int64(1)
			for _, d := range t.Dims {
				k *= d
			}
			n += k
		}
	}
	for _, u := range []struct {
		name string
		is   int64
	}{{"T", 1e12}, {"B", 1e9}, {"M", 1e6}, {"K", 1e3}} {
		if n >= 10*u.is {
			return strconv.FormatInt((n+u.is/2)/u.is, 10) + u.name
		}
		if n >= u.is {
			tenths := (n + u.is/20) / (u.is / 10)
			return fmt.Sprintf("%d.%d%s", tenths/10, tenths%10, u.name)
		}
	}
	return strconv.FormatInt(n, 10)
}

// quantLabel is the type that most bytes of the tensors have. Where the header
// names a mix of that type, as Q4_K_M is one of Q4_K, it is that name: a name that
// the tensors do not bear out counts nothing.
func quantLabel(shards []*gguf.File) string {
	bytes := map[string]int64{}
	for _, f := range shards {
		for _, t := range f.Tensors {
			bytes[t.TypeName()] += max(t.Bytes, 0)
		}
	}
	most := ""
	for name, b := range bytes {
		if most == "" || b > bytes[most] || b == bytes[most] && name < most {
			most = name
		}
	}
	if most == "" {
		return ""
	}
	id, err := shards[0].Meta.Uint32("general.file_type")
	if err != nil {
		return most
	}
	label, err := quantize.ParsePreset(strconv.FormatUint(uint64(id), 10))
	if err != nil {
		return most
	}
	switch label {
	case "Q3_K", "Q4_K", "Q5_K":
		label += "_M"
	}
	if strings.HasPrefix(label, most) || strings.HasPrefix(most, "IQ") && strings.HasPrefix(label, most[:3]) {
		return label
	}
	return most
}
