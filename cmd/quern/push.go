package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"quern/artifacts"
	"quern/artifacts/pack"
	"quern/artifacts/registry"
	"quern/formats/gguf"
	"quern/internal/digest"
	"quern/pipeline"
	"quern/tensor"
)

func pushCommand() *cli.Command {
	return &cli.Command{
		Name:      "push",
		Usage:     "bring a build or files into an OCI registry",
		ArgsUsage: "[NAME|@DIGEST|FILE...] REF",
		Description: "REF is HOST[:PORT]/REPOSITORY[:TAG]. Without a name before it the store's artifact of the name REF goes there. A build of the store is packed for other tools\n" +
			"(--format) with its provenance beside it; any other artifact goes as it is. Files are packed too: weights first, README, LICENSE and *.jinja by their names; the\n" +
			"first shard stands for all. What the registry has is not sent, and after a break the same command goes on.",
		Flags: registryFlags(
			&cli.StringSliceFlag{Name: "format", Usage: "modelpack (docker model, modctl, kit, oras), docker (older docker model), ollama or quern (a build as it is); several get the tags TAG, TAG-docker, ..."},
			&cli.BoolFlag{Name: "no-provenance", Usage: "do not bring the provenance of a packed build beside it"},
			&cli.BoolFlag{Name: "referrers", Usage: "bring what refers to the artifact in the store too, such as signatures"},
			&cli.StringFlag{Name: "chunk", Usage: "send longer blobs in pieces of this `SIZE`, 64MiB by default"},
			&cli.StringSliceFlag{Name: "mount-from", Usage: "try to mount blobs from another `REPOSITORY` of the registry; may be repeated"},
		),
		Action: runPush,
	}
}

// pushed is the document of push --json.
type pushed struct {
	Reference string       `json:"reference"`
	Tags      []*pushedTag `json:"tags"`
	// Sent counts the bytes of blobs that went over the network.
	Sent int64 `json:"sent"`
}

// pushedTag is one manifest that was pushed.
type pushedTag struct {
	Reference  string                `json:"reference"`
	Format     pack.Format           `json:"format"`
	Manifest   artifacts.Digest      `json:"manifest"`
	MediaType  string                `json:"mediaType"`
	Size       int64                 `json:"size"`
	There      bool                  `json:"already_there"`
	Blobs      []registry.PushedBlob `json:"blobs"`
	Provenance *artifacts.Digest     `json:"provenance,omitempty"`
	Referrers  []artifacts.Digest    `json:"referrers,omitempty"`
}

func runPush(c *cli.Context) error {
	if c.NArg() == 0 {
		return usagef("push: a reference is missing; quern push --help")
	}
	args := c.Args().Slice()
	ref, err := parseRef(args[len(args)-1])
	if err != nil {
		return err
	}
	formats, err := pushFormats(c, ref)
	if err != nil {
		return err
	}
	what := args[:len(args)-1]
	if len(what) == 0 {
		name, err := nameOfRef(ref)
		if err != nil {
			return err
		}
		what = []string{name}
	}
	x, err := openExchange(c, ref, areFiles(what))
	if err != nil {
		return err
	}
	defer x.close()
	p := &pushing{exchange: x}
	if p.store != nil {
		p.over.Base = p.store
	}
	if areFiles(what) {
		err = p.files(what)
	} else {
		err = p.stored(what)
	}
	if err != nil {
		return err
	}
	if err := p.from(); err != nil {
		return err
	}
	var plans []planned
	for i, f := range formats {
		m, err := p.plan(f, i)
		if err != nil {
			return err
		}
		plans = append(plans, m)
	}
	doc := &pushed{Reference: ref.String(), Tags: []*pushedTag{}}
	programOf(c).doc = doc
	for _, m := range plans {
		if err := p.push(m, doc); err != nil {
			return err
		}
	}
	return p.done(func() error { return p.print(doc) })
}

// asIs is the format of what is pushed byte by byte.
const asIs = pack.Format("")

// pushFormats reads --format. One format, or none, goes under the reference's own
// tag.
func pushFormats(c *cli.Context, ref registry.Ref) ([]pack.Format, error) {
	var out []pack.Format
	for _, s := range c.StringSlice("format") {
		for _, s := range strings.Split(s, ",") {
			f, err := pack.ParseFormat(s)
			if err != nil {
				return nil, usagef("--format: %v", err)
			}
			if slices.Contains(out, f) {
				return nil, usagef("--format %s is given twice", f)
			}
			if f == pack.Ollama {
				if err := ollamaName(ref); err != nil {
					return nil, err
				}
			}
			out = append(out, f)
		}
	}
	if len(out) > 1 && !ref.Digest.IsZero() {
		return nil, usagef("push: several formats have several digests; give a tag alone")
	}
	if len(out) == 0 {
		out = append(out, asIs)
	}
	return out, nil
}

// ollamaName demands what ollama can pull by.
func ollamaName(ref registry.Ref) error {
	parts := append(strings.Split(ref.Repository, "/"), ref.Tag)
	if len(parts) != 3 {
		return usagef("push: ollama takes HOST/NAMESPACE/MODEL:TAG, and %s has another number of parts", ref)
	}
	for _, p := range append(parts, ref.Host) {
		if len(p) > 80 {
			return usagef("push: ollama takes names of up to 80 characters, and %s is longer", p)
		}
	}
	return nil
}

// areFiles reports whether the arguments are files of this machine: several always
// are, one is if it is there.
func areFiles(what []string) bool {
	if len(what) > 1 {
		return true
	}
	if strings.HasPrefix(what[0], "@") {
		return false
	}
	st, err := os.Stat(what[0])
	return err == nil && !st.IsDir()
}

// pushing is one push.
type pushing struct {
	*exchange
	over    pack.Overlay
	image   artifacts.Descriptor  // of the store, zero for files
	build   *artifacts.Descriptor // the image, if it is a build
	was     pack.Format           // how the image is packed
	items   []pack.File
	meta    pack.Meta
	known   bool // meta is whole
	hashed  map[artifacts.Digest]bool
	options registry.PushOptions
}

// stored prepares an artifact of the store.
func (p *pushing) stored(what []string) error {
	ctx := p.c.Context
	d, err := storedImage(ctx, p.store, what[0])
	if errors.Is(err, artifacts.ErrNotFound) || errors.Is(err, artifacts.ErrName) {
		return fmt.Errorf("%s is no file, and nothing of the store: %w; quern store ls lists what there is", what[0], err)
	}
	if err != nil {
		return err
	}
	p.image = d
	raw, err := artifacts.ReadAll(ctx, p.store, d, artifacts.MaxManifest)
	if err != nil {
		return err
	}
	m, err := pack.Read(raw)
	if err != nil {
		return err
	}
	p.was, p.items = m.Format, m.Files
	if m.Format != pack.Quern {
		return nil
	}
	b, err := artifacts.ReadBuild(ctx, p.store, d)
	if err != nil {
		return err
	}
	p.build, p.meta.Name = &d, b.Name
	return nil
}

// files prepares files: they are hashed here and sent from where they are.
func (p *pushing) files(paths []string) error {
	paths, err := withShards(paths)
	if err != nil {
		return err
	}
	p.hashed = map[artifacts.Digest]bool{}
	for _, path := range paths {
		f, err := openToSend(path)
		if err != nil {
			return err
		}
		name := filepath.Base(path)
		p.rep.Event(pipeline.Event{Kind: pipeline.EventPhase, Message: "hashing " + name})
		sum, err := f.sum(p.c.Context, f.was.Size())
		if err == nil {
			err = f.same()
		}
		if cerr := f.Close(); err == nil {
			err = cerr
		}
		if err != nil {
			return err
		}
		d := artifacts.Descriptor{Digest: digest.Digest(sum), Size: f.was.Size()}
		p.over.AddFile(d.Digest, path, d.Size)
		p.hashed[d.Digest] = true
		p.items = append(p.items, pack.File{Path: name, Kind: pack.KindOf(name), Descriptor: d})
	}
	return nil
}

// withShards puts the shards of a split model in place of its first one.
func withShards(paths []string) ([]string, error) {
	var out []string
	for _, path := range paths {
		stem, i, n, ok := gguf.ParseSplitName(path)
		switch {
		case ok && i > 0 && slices.Contains(paths, gguf.SplitName(stem, 0, n)):
			continue // the first one brings it
		case ok && i > 0:
			return nil, usagef("push: %s is shard %d of %d, and no model without the others; give the first one, %s", path, i+1, n, gguf.SplitName(stem, 0, n))
		case !ok:
			out = append(out, path)
			continue
		}
		for k := range n {
			shard := gguf.SplitName(stem, k, n)
			if _, err := os.Stat(shard); errors.Is(err, fs.ErrNotExist) {
				return nil, pipeline.SourceFault(fmt.Errorf("shard %d of %d is missing: %w", k+1, n, err))
			}
			out = append(out, shard)
		}
	}
	return out, nil
}

// from sets where blobs may be mounted from.
func (p *pushing) from() error {
	flags := p.c.StringSlice("mount-from")
	known := func(artifacts.Digest) []string { return nil }
	if p.store != nil {
		var err error
		if known, err = mountFrom(p.c.Context, p.store, p.ref); err != nil {
			return err
		}
	}
	p.options.From = func(d artifacts.Digest) []string { return append(slices.Clone(flags), known(d)...) }
	p.options.Trusted = func(d artifacts.Digest) bool { return p.hashed[d] }
	return nil
}

// planned is a manifest with the place where it goes.
type planned struct {
	ref    registry.Ref
	format pack.Format // its name
	d      artifacts.Descriptor
	packed bool // made here, not the store's own
}

// plan makes the manifest of one format. All are made before anything is sent, so
// that one that cannot be made leaves the others' tags as they were.
func (p *pushing) plan(f pack.Format, nth int) (planned, error) {
	m := planned{ref: p.ref, format: f, d: p.image}
	switch {
	case f == asIs && (p.image.Digest.IsZero() || p.build != nil):
		m.format, m.packed = pack.ModelPack, true
	case f == asIs, f == p.was && nth == 0:
		m.format = p.was
	case f == pack.Quern:
		if p.build == nil {
			return m, usagef("push: --format quern is for builds of the store")
		}
	default:
		m.packed = true
	}
	if nth > 0 {
		m.ref.Tag += "-" + string(m.format)
	}
	var err error
	if m.packed {
		m.d, err = p.make(m.format)
	}
	return m, err
}

// push brings a manifest under its tag.
func (p *pushing) push(m planned, doc *pushed) error {
	ctx, ref, d := p.c.Context, m.ref, m.d
	res, err := p.client.Push(ctx, ref, &p.over, d, p.options)
	if err != nil {
		return err
	}
	t := &pushedTag{Reference: ref.String(), Format: m.format, Manifest: d.Digest, MediaType: d.MediaType, Size: d.Size, There: res.There, Blobs: res.Blobs}
	doc.Tags = append(doc.Tags, t)
	doc.Sent += res.Bytes
	if err := p.referrers(ref, d, t, doc); err != nil {
		return err
	}
	if !m.packed || p.build == nil || p.c.Bool("no-provenance") {
		return nil
	}
	about, raw, err := artifacts.AboutBuild(ctx, p.store, *p.build, d)
	if err != nil {
		return err
	}
	p.over.Add(raw)
	res, err = p.client.PushAbout(ctx, ref, &p.over, about, p.options)
	if err != nil {
		return fmt.Errorf("%w; --no-provenance does without", err)
	}
	doc.Sent += res.Bytes
	t.Provenance = &about.Digest
	return nil
}

// referrers brings what the store has that refers to a manifest.
func (p *pushing) referrers(ref registry.Ref, d artifacts.Descriptor, t *pushedTag, doc *pushed) error {
	if !p.c.Bool("referrers") || p.store == nil {
		return nil
	}
	list, err := artifacts.Referrers(p.c.Context, p.store, d.Digest, "")
	if err != nil {
		return err
	}
	for _, r := range list {
		res, err := p.client.PushAbout(p.c.Context, ref, &p.over, r, p.options)
		if err != nil {
			return err
		}
		doc.Sent += res.Bytes
		t.Referrers = append(t.Referrers, r.Digest)
	}
	return nil
}

// make packs the files anew.
func (p *pushing) make(f pack.Format) (artifacts.Descriptor, error) {
	if err := p.describe(); err != nil {
		return artifacts.Descriptor{}, err
	}
	im, err := pack.Make(f, p.items, p.meta)
	if err != nil {
		return artifacts.Descriptor{}, usagef("push: %v", err)
	}
	for _, l := range im.Left {
		p.rep.Event(pipeline.Event{Kind: pipeline.EventWarning, Message: fmt.Sprintf("%s has no place in the format %s and stays here", l.Path, f)})
	}
	p.over.AddImage(im)
	return im.Manifest, nil
}

// describe finds out once what manifests say of the model: it reads the headers
// of the first file of weights and of its other shards, and looks whether the other
// GGUF files have one. A file that is no GGUF has the format that its name ends in.
func (p *pushing) describe() error {
	if p.known {
		return nil
	}
	ctx, meta := p.c.Context, &p.meta
	var err error
	if meta.Created, err = created(); err != nil {
		return err
	}
	for _, it := range p.items {
		if it.Path == "" || it.Archive != "" {
			return usagef("push: layer %s of type %s is no plain file; push the artifact as it is, without --format", it.Digest, it.MediaType)
		}
	}
	var shards []*gguf.File
	for _, it := range p.items {
		if it.Kind != pack.Weights {
			continue
		}
		b, err := p.over.Open(ctx, it.Digest)
		if err != nil {
			return err
		}
		f, err := openHeader(ctx, it.Path, tensor.ContextReaderAt(ctx, tensor.ReaderAtBlob(it.Path, b, b.Size())), b.Size())
		if cerr := b.Close(); err == nil {
			err = cerr
		}
		if err != nil {
			return pipeline.SourceFault(err)
		}
		ext := strings.ToLower(strings.TrimPrefix(filepath.Ext(it.Path), "."))
		switch {
		case f != nil && (len(shards) == 0 || pack.IsShard(it.Path)):
			shards = append(shards, f)
		case f != nil: // another model, of which manifests say nothing
		case ext == "gguf":
			return pipeline.SourceFault(fmt.Errorf("%s: its name says GGUF and its %d bytes do not", it.Path, it.Size))
		case meta.ModelFormat == "":
			meta.ModelFormat = ext
		}
	}
	if len(shards) > 0 {
		describe(meta, shards)
	}
	p.known = true
	return nil
}

func (p *pushing) print(doc *pushed) error {
	w := p.c.App.Writer
	for _, t := range doc.Tags {
		verb := "pushed"
		if t.There {
			verb = "was there"
		}
		fmt.Fprintf(w, "%-10s %s (%s)\n", verb, t.Reference, t.Format)
		fmt.Fprintf(w, "%-10s %s\n", "manifest", t.Manifest)
		for _, b := range t.Blobs {
			fmt.Fprintf(w, "  %-8s %s  %s\n", b.How, b.Digest.Hex()[:12], bytesText(b.Size))
		}
		if t.Provenance != nil {
			fmt.Fprintf(w, "%-10s %s\n", "provenance", *t.Provenance)
		}
		for _, r := range t.Referrers {
			fmt.Fprintf(w, "%-10s %s\n", "referrer", r)
		}
	}
	_, err := fmt.Fprintf(w, "%-10s %s\n", "sent", bytesText(doc.Sent))
	return err
}
