package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/urfave/cli/v2"

	"quern/formats/gguf"
	"quern/formats/kmcu"
	"quern/formats/repacked"
	"quern/formats/safetensors"
	"quern/hub"
	"quern/model"
	"quern/model/order"
	"quern/pipeline"
	"quern/recipes"
	"quern/stages/source"
	"quern/tensor"
	"quern/verify"
)

func inspectCommand() *cli.Command {
	return &cli.Command{
		Name:      "inspect",
		Usage:     "show what a file, a model folder or a repository holds",
		ArgsUsage: "FILE|FOLDER|hf:REPO[@REVISION]",
		Description: "Reads headers only: of a repository a few ranges, not its files. A GGUF file with faults or with types\n" +
			"newer than this program is shown as far as it can be read, with what is wrong.",
		Flags:  slices.Concat([]cli.Flag{jsonFlag(), progressFlag()}, networkFlags(), headerFlags()),
		Action: runInspect,
	}
}

// inspection is the document of quern inspect --json.
type inspection struct {
	Name     string                `json:"name"`
	Format   string                `json:"format"`
	Size     int64                 `json:"size"`
	Commit   string                `json:"commit,omitempty"`
	Details  []field               `json:"details"`
	Metadata []metadataEntry       `json:"metadata"`
	Tensors  []inspectedTensor     `json:"tensors"`
	Files    []pipeline.SourceFile `json:"files,omitempty"`
	// Ignored are weight files that are no part of the model.
	Ignored  []string             `json:"ignored,omitempty"`
	Problems []string             `json:"problems"`
	Fetched  *pipeline.FetchStats `json:"fetch,omitempty"`
}

type field struct {
	Key   string `json:"key"`
	Value any    `json:"value"`
}

type metadataEntry struct {
	Key  string `json:"key"`
	Type string `json:"type"`
	// Value is the value, or the first few of an array's with Count.
	Value any  `json:"value"`
	Count *int `json:"count,omitempty"`
}

type inspectedTensor struct {
	Name   string       `json:"name"`
	Type   string       `json:"type"`
	Shape  tensor.Shape `json:"shape"` // outermost axis first
	File   string       `json:"file,omitempty"`
	Offset int64        `json:"offset"`
	Bytes  int64        `json:"bytes"` // -1 when the type is unknown
}

func runInspect(c *cli.Context) error {
	what, err := oneArg(c, "a file")
	if err != nil {
		return err
	}
	doc, err := inspect(c, what)
	if err != nil {
		if !errors.Is(err, errUsage) {
			err = pipeline.SourceFault(err)
		}
		return err
	}
	if doc.Metadata == nil {
		doc.Metadata = []metadataEntry{}
	}
	if doc.Problems == nil {
		doc.Problems = []string{}
	}
	if c.Bool("json") {
		return printJSON(c, doc)
	}
	return printInspection(c.App.Writer, doc)
}

func inspect(c *cli.Context, what string) (*inspection, error) {
	ctx := c.Context
	h, err := headers(c)
	if err != nil {
		return nil, err
	}
	if ref, ok := strings.CutPrefix(what, "hf:"); ok {
		return inspectRepo(c, ref, h)
	}
	src, err := folderOrShards(ctx, what, h)
	if err != nil {
		return nil, err
	}
	if src != nil {
		defer src.Close()
		return inspectModel(ctx, src)
	}
	blob, err := tensor.OpenFile(what)
	if err != nil {
		return nil, err
	}
	defer blob.Close()
	return inspectFile(ctx, filepath.Base(what), blob, h)
}

// folderOrShards opens a model folder, or the shards that a name stands for; nil for
// a single file.
func folderOrShards(ctx context.Context, path string, h source.Headers) (*pipeline.Source, error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	kind := recipes.SourceDir
	if _, _, shards, ok := gguf.ParseSplitName(filepath.Base(path)); ok && shards > 1 {
		kind = recipes.SourceGGUF // all shards of it
	}
	if !st.IsDir() && kind == recipes.SourceDir {
		return nil, nil
	}
	srcs, err := source.Open(ctx, source.Env{Digests: &source.Digests{}, Headers: h}, []recipes.Source{{Name: "base", Kind: kind, Value: absolute(path)}})
	if err != nil {
		return nil, err
	}
	return srcs[0], nil
}

func absolute(p string) string {
	if a, err := filepath.Abs(p); err == nil {
		return a
	}
	return p
}

func inspectFile(ctx context.Context, name string, blob tensor.Blob, h source.Headers) (*inspection, error) {
	format, err := verify.Sniff(ctx, name, blob)
	if err != nil {
		return nil, err
	}
	switch format {
	case verify.GGUF:
		return inspectGGUF(ctx, name, blob, h)
	case verify.KMCU:
		return inspectKMCU(ctx, name, blob)
	case verify.Cact:
		return inspectCact(ctx, name, blob)
	case verify.Repacked:
		return inspectRepacked(ctx, name, blob)
	}
	f, err := safetensors.Open(ctx, name, blob, safetensors.Options{MaxHeader: h.Max})
	if err != nil {
		return nil, err
	}
	doc := &inspection{Name: name, Format: string(format), Size: f.Size,
		Details: []field{{"header bytes", f.DataStart}, {"tensors", len(f.Tensors)}, {"weights", weights(f.Tensors)}}}
	for _, kv := range f.Metadata {
		doc.Metadata = append(doc.Metadata, metadataEntry{Key: kv.Key, Type: "string", Value: kv.Value})
	}
	doc.Tensors = listTensors(f.Tensors, false)
	return doc, nil
}

// inspectRepacked lists the plain tensors of a repack cache, at the places of the
// repacked ones.
func inspectRepacked(ctx context.Context, name string, blob tensor.Blob) (*inspection, error) {
	f, err := repacked.Open(ctx, name, blob, repacked.Options{})
	if err != nil {
		return nil, err
	}
	ts := make([]*tensor.Tensor, len(f.Entries))
	for i := range f.Entries {
		if ts[i], err = f.Plain(&f.Entries[i]); err != nil {
			return nil, err
		}
	}
	doc := &inspection{Name: name, Format: string(verify.Repacked), Size: f.Size, Details: []field{
		{"layout", f.Layout.String()}, {"of the GGUF file", "sha256:" + f.GGUF.Hex()}, {"its size", f.GGUFSize}, {"alignment", f.Alignment},
		{"tensors", len(ts)}, {"weights", weights(ts)}}}
	doc.Tensors = listTensors(ts, false)
	for i := range doc.Tensors {
		doc.Tensors[i].Bytes = f.Entries[i].Bytes // a layout may take fewer than plain rows
	}
	return doc, nil
}

func weights(ts []*tensor.Tensor) int64 {
	var n int64
	for _, t := range ts {
		v, _ := t.Shape.Values()
		n += v
	}
	return n
}

func listTensors(ts []*tensor.Tensor, files bool) []inspectedTensor {
	out := make([]inspectedTensor, 0, len(ts))
	for _, t := range ts {
		it := inspectedTensor{Name: t.Name, Type: t.Type.String(), Shape: t.Shape, Bytes: t.Bytes()}
		if len(t.Origin) > 0 {
			it.Offset = t.Origin[0].Offset
			if files {
				it.File = t.Origin[0].File
			}
		}
		out = append(out, it)
	}
	return out
}

func inspectGGUF(ctx context.Context, name string, blob tensor.Blob, h source.Headers) (*inspection, error) {
	f, err := gguf.Open(ctx, name, blob, gguf.Options{Partial: true, MaxHeader: h.Max})
	if err != nil {
		return nil, err
	}
	doc := &inspection{Name: name, Format: "gguf", Size: f.Size, Details: []field{
		{"version", f.Version}, {"alignment", f.Alignment}, {"data start", f.DataStart}, {"tensors", len(f.Tensors)}}}
	for k, v := range f.Meta.All() {
		doc.Metadata = append(doc.Metadata, ggufEntry(k, v))
	}
	for i := range f.Tensors {
		t := &f.Tensors[i]
		doc.Tensors = append(doc.Tensors, inspectedTensor{Name: t.Name, Type: t.TypeName(), Shape: t.Shape(), Offset: t.Offset, Bytes: t.Bytes})
	}
	doc.Details = append(doc.Details, prunedFields(f.Meta, func(name string) tensor.Shape {
		for i := range f.Tensors {
			if f.Tensors[i].Name == name {
				return f.Tensors[i].Shape()
			}
		}
		return nil
	})...)
	for _, p := range f.Problems {
		doc.Problems = append(doc.Problems, p.Error())
	}
	split, last, err := order.SplitOf(f)
	if last {
		doc.Details = append(doc.Details, field{"bytes to map", split.Offset}, field{"bytes of experts behind them", split.Bytes})
	}
	if err != nil {
		doc.Problems = append(doc.Problems, err.Error())
	}
	return doc, doc.punched(ctx, f, blob)
}

// punched tells of tensors whose bytes are gone.
func (doc *inspection) punched(ctx context.Context, f *gguf.File, blob tensor.Blob) error {
	marks, gone, err := f.Marks(ctx, blob)
	if err != nil {
		return err
	}
	for i, t := range f.Tensors {
		if gone[i] {
			doc.Problems = append(doc.Problems, fmt.Sprintf("tensor %s is not in the file: it was punched out, a repack cache in layout %s has it", t.Name, marks[i].Layout))
		}
	}
	return nil
}

// shownValues is how many values of an array are shown.
const shownValues = 8

func ggufEntry(key string, v gguf.Value) metadataEntry {
	e := metadataEntry{Key: key, Type: v.Kind(), Value: jsonSafe(v.Any())}
	if v.IsArray() {
		n := v.Len()
		first := reflect.ValueOf(v.Any())
		if n > shownValues {
			first = first.Slice(0, shownValues)
		}
		list := make([]any, first.Len())
		for i := range list {
			list[i] = jsonSafe(first.Index(i).Interface())
		}
		e.Count, e.Value = &n, list
	}
	return e
}

// jsonSafe gives numbers that JSON cannot hold as text.
func jsonSafe(v any) any {
	f := 0.0
	switch x := v.(type) {
	case float32:
		f = float64(x)
	case float64:
		f = x
	}
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return fmt.Sprint(f)
	}
	return v
}

func inspectKMCU(ctx context.Context, name string, blob tensor.Blob) (*inspection, error) {
	f, err := kmcu.Open(ctx, name, blob, kmcu.Options{})
	if err != nil {
		return nil, err
	}
	h := f.Header
	doc := &inspection{Name: name, Format: "kmcu", Size: f.Size, Details: []field{
		{"layers", h.Layers}, {"dim", h.Dim}, {"heads", h.Heads}, {"KV heads", h.KVHeads}, {"head dim", h.HeadDim},
		{"ffn dim", h.FFNDim}, {"vocabulary", h.Vocab}, {"max sequence", h.MaxSeq}, {"BOS", h.BOS}, {"EOS", h.EOS},
		{"tied embedding", h.Tied}, {"rope theta", h.RopeTheta}, {"norm epsilon", h.NormEps},
		{"block alignment", f.Align.String()}, {"weights", f.TotalParams}, {"tensors", len(f.Tensors)}}}
	for _, t := range f.Tensors {
		doc.Tensors = append(doc.Tensors, inspectedTensor{Name: t.Name, Type: t.Type.String(), Shape: tensor.Shape{t.Rows, t.Cols}, Offset: t.Offset, Bytes: t.Bytes})
	}
	return doc, nil
}

// inspectModel shows an opened Hugging Face model or GGUF file of a source.
func inspectModel(ctx context.Context, src *pipeline.Source) (*inspection, error) {
	m := src.Model
	tensors := m.Tensors
	if m.Stored != nil {
		tensors = m.Stored // 8-bit floats and their scales, as the files have them
	}
	doc := &inspection{Name: m.Name, Commit: src.Commit, Tensors: listTensors(tensors, true)}
	for _, f := range src.Files {
		doc.Size += f.Size
	}
	doc.Files, doc.Ignored = src.Files, m.Ignored
	for _, n := range m.Notes {
		doc.Problems = append(doc.Problems, n.String())
	}
	switch m.Form {
	case model.GGUF:
		doc.Format = "gguf"
		doc.Details = prunedFields(m.Meta, func(name string) tensor.Shape {
			if t := m.Tensor(name); t != nil {
				return t.Shape
			}
			return nil
		})
		for k, v := range m.Meta.All() {
			doc.Metadata = append(doc.Metadata, ggufEntry(k, v))
		}
		return doc, nil
	case model.Cact:
		doc.Format = "cact"
		doc.Details = append(cactDetails(&m.Archive.Header, m.Archive.Heads), field{"group", m.Archive.Group}, field{"tensors", len(tensors)})
		return doc, nil
	case model.Needle:
		doc.Format = "needle checkpoint"
		var err error
		doc.Details, err = needleDetails(m)
		doc.Details = append(doc.Details, field{"tensors", len(tensors)}, field{"weights", weights(m.Tensors)})
		return doc, err
	}
	doc.Format = "hugging face"
	doc.Details = []field{{"architecture", m.Config.Architecture()}, {"model type", m.Config.ModelType()}}
	for _, key := range []string{"hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim",
		"intermediate_size", "vocab_size", "max_position_embeddings"} {
		if n, ok, err := m.Config.OptInt(key); err == nil && ok {
			doc.Details = append(doc.Details, field{key, n})
		}
	}
	doc.Details = append(doc.Details, field{"tensors", len(tensors)}, field{"weights", weights(m.Tensors)})
	return doc, nil
}

func inspectRepo(c *cli.Context, ref string, h source.Headers) (*inspection, error) {
	if _, err := hub.ParseRef(ref); err != nil {
		return nil, usagef("hf:%s: %v", ref, err)
	}
	rep, err := newReporter(c)
	if err != nil {
		return nil, err
	}
	defer rep.Close()
	e := &environment{c: c, events: rep}
	env, err := e.sources()
	if err != nil {
		return nil, err
	}
	src, err := env.Hub.Repo(c.Context, "base", ref, "", h)
	if err != nil {
		return nil, err
	}
	defer src.Close()
	doc, err := inspectModel(c.Context, src)
	if err != nil {
		return nil, err
	}
	s := src.Fetch.Stats()
	doc.Fetched = &s
	return doc, nil
}

// printInspection writes an inspection for people.
func printInspection(w io.Writer, doc *inspection) error {
	fmt.Fprintf(w, "%s: %s, %d bytes (%s)\n", doc.Name, doc.Format, doc.Size, bytesText(doc.Size))
	if doc.Commit != "" {
		fmt.Fprintf(w, "  commit: %s\n", doc.Commit)
	}
	for _, d := range doc.Details {
		fmt.Fprintf(w, "  %s: %v\n", d.Key, d.Value)
	}
	if len(doc.Metadata) > 0 {
		fmt.Fprintln(w, "metadata")
		t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		for _, e := range doc.Metadata {
			fmt.Fprintf(t, "  %s\t%s\t%s\n", e.Key, e.Type, entryText(e))
		}
		if err := t.Flush(); err != nil {
			return err
		}
	}
	if len(doc.Files) > 0 {
		fmt.Fprintln(w, "files read")
		for _, f := range doc.Files {
			fmt.Fprintf(w, "  %s  %d bytes\n", f.Path, f.Size)
		}
	}
	for _, f := range doc.Ignored {
		fmt.Fprintf(w, "not read: %s\n", f)
	}
	fmt.Fprintln(w, "tensors")
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, x := range doc.Tensors {
		size := fmt.Sprint(x.Bytes)
		if x.Bytes < 0 {
			size = "unknown"
		}
		fmt.Fprintf(t, "  %s\t%s\t%v\t%s\t%d\t%s\n", x.Name, x.Type, x.Shape, size, x.Offset, x.File)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, p := range doc.Problems {
		fmt.Fprintf(w, "note: %s\n", p)
	}
	if doc.Fetched != nil {
		fmt.Fprintf(w, "fetched %d bytes in %d requests\n", doc.Fetched.Fetched, doc.Fetched.Requests)
	}
	return nil
}

// entryText shortens a value to a line.
func entryText(e metadataEntry) string {
	s := fmt.Sprint(e.Value)
	if v, ok := e.Value.(string); ok {
		s = fmt.Sprintf("%q", v)
	}
	if r := []rune(s); len(r) > 100 {
		s = string(r[:100]) + "..."
	}
	if e.Count != nil {
		s = fmt.Sprintf("%d values: %s", *e.Count, s)
	}
	return s
}
