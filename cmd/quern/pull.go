package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/urfave/cli/v2"

	"quern/artifacts"
	"quern/artifacts/local"
	"quern/artifacts/pack"
	"quern/artifacts/registry"
	"quern/pipeline"
)

func pullCommand() *cli.Command {
	return &cli.Command{
		Name:      "pull",
		Usage:     "fetch an artifact from an OCI registry",
		ArgsUsage: "REF",
		Description: "REF is HOST[:PORT]/REPOSITORY[:TAG|@DIGEST]. The artifact comes into the store under that name, every byte verified: recipes (artifact: NAME), quern quantize and quern store\n" +
			"find it there. With --out its files are put into a folder. ModelPack, docker model, Ollama, KitOps and oras artifacts are understood. What is here is not\n" +
			"fetched, and after a break the same command goes on.",
		Flags: registryFlags(
			&cli.StringFlag{Name: "out", Aliases: []string{"o"}, Usage: "put the files into `FOLDER` too"},
			&cli.BoolFlag{Name: "no-store", Usage: "put the files into the folder of --out and keep nothing else"},
			&cli.BoolFlag{Name: "replace", Usage: "replace files that are there"},
			&cli.StringFlag{Name: "as", Usage: "the `NAME` in the store, the reference by default"},
			&cli.BoolFlag{Name: "referrers", Usage: "fetch into the store what refers to the artifact too, such as signatures; a build's provenance always comes there"},
		),
		Action: runPull,
	}
}

// pulled is the document of pull --json.
type pulled struct {
	Reference  string             `json:"reference"`
	Name       string             `json:"name,omitempty"` // in the store
	Manifest   artifacts.Digest   `json:"manifest,omitzero"`
	MediaType  string             `json:"mediaType,omitempty"`
	Format     pack.Format        `json:"format,omitempty"`
	Bytes      int64              `json:"bytes"`
	Fetched    int64              `json:"fetched"`
	Files      []pulledFile       `json:"files"`
	Provenance *artifacts.Digest  `json:"provenance,omitempty"`
	Referrers  []artifacts.Digest `json:"referrers,omitempty"`
}

// pulledFile is a file of the artifact.
type pulledFile struct {
	File   string           `json:"file"`
	Size   int64            `json:"size"`
	SHA256 artifacts.Digest `json:"sha256"`
	Path   string           `json:"path,omitempty"`   // where --out put it
	Method string           `json:"method,omitempty"` // how: reflink, copy, fetched, unpacked or present
	packed bool             // a folder, to be unpacked
}

func runPull(c *cli.Context) error {
	what, err := oneArg(c, "a reference")
	if err != nil {
		return err
	}
	ref, err := parseRef(what)
	if err != nil {
		return err
	}
	if c.Bool("no-store") && !c.IsSet("out") {
		return usagef("pull: --no-store wants a folder, --out")
	}
	if c.Bool("replace") && !c.IsSet("out") {
		return usagef("pull: --replace is about the folder of --out, and none is given")
	}
	for _, f := range []string{"as", "referrers"} {
		if c.Bool("no-store") && c.IsSet(f) {
			return usagef("pull: --%s is about the store, and --no-store keeps nothing there", f)
		}
	}
	name := c.String("as")
	if name == "" && !c.Bool("no-store") {
		if name, err = nameOfRef(ref); err != nil {
			return err
		}
	}
	if name != "" {
		if err := artifacts.CheckName(name); err != nil {
			return usagef("%v", err)
		}
	}
	x, err := openExchange(c, ref, false)
	if err != nil {
		return err
	}
	defer x.close()
	p := &pulling{exchange: x}
	programOf(c).doc = &p.doc
	p.doc.Reference, p.doc.Files = ref.String(), []pulledFile{}
	if err := p.run(name); err != nil {
		return err
	}
	return p.done(p.print)
}

// pulling is one pull.
type pulling struct {
	*exchange
	out *folder // nil without --out

	d   artifacts.Descriptor
	m   *pack.Manifest
	doc pulled
}

func (p *pulling) run(name string) error {
	ctx := p.c.Context
	d, raw, err := p.client.Manifest(ctx, p.ref)
	if err != nil {
		return err
	}
	p.d = d
	if p.m, err = pack.Read(raw); err != nil {
		return pipeline.SourceFault(fmt.Errorf("%s: %w", p.ref, err))
	}
	p.doc.Manifest, p.doc.MediaType, p.doc.Format = d.Digest, d.MediaType, p.m.Format
	if err := p.prepare(); err != nil {
		return err
	}
	if p.store == nil {
		return p.onlyFiles(ctx)
	}
	p.room(ctx)
	res, err := p.client.Pull(ctx, p.ref, storeDest{p.store}, d, raw)
	if err != nil {
		return err
	}
	p.doc.Bytes, p.doc.Fetched = res.Bytes, res.Fetched
	if err := p.referrers(ctx); err != nil {
		return err
	}
	if err := p.store.Tag(ctx, name, d); err != nil {
		return err
	}
	p.doc.Name = name
	return p.export(ctx)
}

// prepare looks at the files before anything is fetched.
func (p *pulling) prepare() error {
	unnamed := 0
	for _, f := range p.m.Files {
		if f.Path == "" {
			unnamed++
			continue
		}
		p.doc.Files = append(p.doc.Files, pulledFile{File: f.Path, Size: f.Size, SHA256: f.Digest, packed: f.Archive != ""})
	}
	if !p.c.IsSet("out") {
		return nil
	}
	if len(p.m.Children) > 0 {
		list := ""
		for _, c := range p.m.Children {
			list += "\n  " + c.Digest.String()
		}
		return usagef("%s is an index of %s; choose one by its digest:%s", p.ref, plural(len(p.m.Children), "manifest"), list)
	}
	var err error
	if p.out, err = newFolder(p.c, p.store, p.c.String("out"), p.c.Bool("replace")); err != nil {
		return err
	}
	for i := range p.doc.Files {
		if err := p.out.plan(&p.doc.Files[i]); err != nil {
			return err
		}
	}
	if unnamed > 0 {
		p.rep.Event(pipeline.Event{Kind: pipeline.EventWarning, Message: fmt.Sprintf("%s without a file name: not put into %s", plural(unnamed, "layer"), p.out.dir)})
	}
	if len(p.doc.Files) == 0 {
		return pipeline.SourceFault(fmt.Errorf("%s: no layer has a file name; pull it without --out", p.ref))
	}
	return nil
}

// room warns when the disk has less free space than the files need that are not in
// the store yet.
func (p *pulling) room(ctx context.Context) {
	need := int64(0)
	for _, f := range p.m.Files {
		if _, err := p.store.Stat(ctx, f.Digest); err != nil {
			need += min(f.Size, math.MaxInt64-need)
		}
	}
	if free, err := p.store.FreeBytes(); err == nil && free < need {
		p.rep.Event(pipeline.Event{Kind: pipeline.EventWarning, Message: fmt.Sprintf("the artifact needs %s and the store's disk has %s free", bytesText(need), bytesText(free))})
	}
}

// export puts the files into the folder of --out.
func (p *pulling) export(ctx context.Context) error {
	if p.out == nil {
		return nil
	}
	for i := range p.doc.Files {
		f := &p.doc.Files[i]
		if f.Method != "" {
			continue
		}
		if err := p.out.parent(f); err != nil {
			return err
		}
		d := artifacts.Descriptor{Digest: f.SHA256, Size: f.Size}
		if f.packed {
			if err := p.unpack(ctx, d, f); err != nil {
				return err
			}
			continue
		}
		m, err := p.store.Export(ctx, d, p.out.path(f.File), local.ExportOptions{Replace: p.c.Bool("replace")})
		if err != nil {
			return err
		}
		f.Path, f.Method = p.out.path(f.File), string(m)
	}
	return nil
}

// unpack puts the files of a packed folder into the folder of --out.
func (p *pulling) unpack(ctx context.Context, d artifacts.Descriptor, f *pulledFile) error {
	b, err := p.store.Open(ctx, d.Digest)
	if err != nil {
		return err
	}
	defer b.Close()
	return p.out.unpack(ctx, f, b)
}

// onlyFiles fetches the files straight into the folder.
func (p *pulling) onlyFiles(ctx context.Context) error {
	var blobs []artifacts.Descriptor
	for i := range p.doc.Files {
		f := &p.doc.Files[i]
		p.doc.Bytes += f.Size
		if f.Method != "" || !p.out.want(f) {
			continue
		}
		if err := p.out.parent(f); err != nil {
			return err
		}
		blobs = append(blobs, artifacts.Descriptor{Digest: f.SHA256, Size: f.Size})
	}
	n, err := p.client.Fetch(ctx, p.ref, p.out, blobs)
	p.doc.Fetched = n
	return err
}

// referrers fetches a build's provenance, and with --referrers all that refers to
// the artifact. That a registry has none of it, or cannot say, is no fault of what
// was pulled.
func (p *pulling) referrers(ctx context.Context) error {
	kind := artifacts.ArtifactTypeBuild
	if p.c.Bool("referrers") {
		kind = ""
	}
	list, err := p.client.Referrers(ctx, p.ref, p.d, kind)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil && p.c.Bool("referrers") && !errors.Is(err, registry.ErrNotFound) {
		return err
	}
	if err != nil {
		p.rep.Event(pipeline.Event{Kind: pipeline.EventNote, Message: fmt.Sprintf("the registry does not say where the artifact comes from: %v", err)})
		return nil
	}
	for _, r := range list {
		if err := p.referrer(ctx, r); err != nil {
			return err
		}
	}
	return nil
}

// referrer fetches one. What it is its own bytes say, whatever the list says.
func (p *pulling) referrer(ctx context.Context, r artifacts.Descriptor) error {
	ref := p.ref
	ref.Tag, ref.Digest = "", r.Digest
	d, raw, err := p.client.Manifest(ctx, ref)
	if err != nil {
		return err
	}
	isBuild := d.ArtifactType == artifacts.ArtifactTypeBuild
	if !isBuild && !p.c.Bool("referrers") {
		return nil
	}
	shared, only := p.shared(raw)
	if isBuild && !only {
		p.rep.Event(pipeline.Event{Kind: pipeline.EventWarning, Message: fmt.Sprintf("%s says to be the provenance of the artifact and has other files: it is left there", r.Digest)})
		return nil
	}
	res, err := p.client.Pull(ctx, ref, storeDest{p.store}, d, raw)
	if err != nil {
		return err
	}
	p.doc.Bytes += res.Bytes - shared
	p.doc.Fetched += res.Fetched
	if isBuild {
		p.doc.Provenance = &r.Digest
	} else {
		p.doc.Referrers = append(p.doc.Referrers, r.Digest)
	}
	return nil
}

// shared gives the bytes of a manifest's files that the artifact has too, and
// whether it has no others: provenance is no way to bring in anything else.
func (p *pulling) shared(raw []byte) (bytes int64, only bool) {
	m, err := pack.Read(raw)
	if err != nil {
		return 0, false
	}
	only = true
	counted := map[artifacts.Digest]bool{}
	for _, f := range m.Files {
		switch {
		case !slices.ContainsFunc(p.m.Files, func(o pack.File) bool { return o.Digest == f.Digest && o.Size == f.Size }):
			only = false
		case !counted[f.Digest]:
			bytes += f.Size
			counted[f.Digest] = true
		}
	}
	return bytes, only
}

func (p *pulling) print() error {
	w := p.c.App.Writer
	fmt.Fprintf(w, "%-10s %s (%s)\n", "pulled", p.doc.Reference, p.doc.Format)
	fmt.Fprintf(w, "%-10s %s\n", "manifest", p.doc.Manifest)
	for _, f := range p.doc.Files {
		fmt.Fprintf(w, "  %s  %s", f.File, bytesText(f.Size))
		if f.Path != "" {
			fmt.Fprintf(w, "  %s (%s)", f.Path, f.Method)
		}
		fmt.Fprintln(w)
	}
	if p.doc.Provenance != nil {
		fmt.Fprintf(w, "%-10s %s\n", "provenance", *p.doc.Provenance)
	}
	_, err := fmt.Fprintf(w, "%-10s %s of %s\n", "fetched", bytesText(p.doc.Fetched), bytesText(p.doc.Bytes))
	return err
}

// storeDest puts blobs into the store, and keeps unfinished large ones.
type storeDest struct{ *local.Store }

// worthKeeping is how long a blob is whose beginning is kept.
const worthKeeping = 1 << 20

func (s storeDest) Start(ctx context.Context, d artifacts.Descriptor) (artifacts.BlobWriter, error) {
	if d.Size < worthKeeping {
		return s.NewBlob(ctx, artifacts.BlobOptions{MediaType: d.MediaType, Size: d.Size})
	}
	return s.ResumeBlob(ctx, d)
}
