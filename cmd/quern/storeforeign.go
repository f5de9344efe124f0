package main

import (
	"errors"
	"fmt"

	"quern/artifacts"
	"quern/artifacts/pack"
)

// foreign is the document of store show --json for what is no build: it was pulled,
// or another tool has put it into the layout.
type foreign struct {
	Manifest     artifacts.Digest   `json:"manifest"`
	MediaType    string             `json:"mediaType"`
	ArtifactType string             `json:"artifactType,omitempty"`
	Format       pack.Format        `json:"format"`
	Files        []pulledFile       `json:"files"`
	Unnamed      int                `json:"unnamed_layers,omitempty"`
	Manifests    []artifacts.Digest `json:"manifests,omitempty"` // of an index
	// Build is the provenance that came with it.
	Build *artifacts.Build `json:"build,omitempty"`
}

// readPacked reads any manifest of the store.
func readPacked(s *storeContext, d artifacts.Descriptor) (*pack.Manifest, error) {
	raw, err := artifacts.ReadAll(s.Context.Context, s.s, d, artifacts.MaxManifest)
	if err != nil {
		return nil, err
	}
	m, err := pack.Read(raw)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", d.Digest, err)
	}
	return m, nil
}

func showForeign(s *storeContext, d artifacts.Descriptor) error {
	m, err := readPacked(s, d)
	if err != nil {
		return err
	}
	doc := foreign{Manifest: d.Digest, MediaType: d.MediaType, ArtifactType: d.ArtifactType, Format: m.Format, Files: []pulledFile{}}
	for _, f := range m.Files {
		if f.Path == "" {
			doc.Unnamed++
			continue
		}
		doc.Files = append(doc.Files, pulledFile{File: f.Path, Size: f.Size, SHA256: f.Digest})
	}
	for _, c := range m.Children {
		doc.Manifests = append(doc.Manifests, c.Digest)
	}
	doc.Build, err = artifacts.FindBuild(s.Context.Context, s.s, d)
	if err != nil && !errors.Is(err, artifacts.ErrNotFound) {
		return err
	}
	if s.Bool("json") {
		return printJSON(s.Context, doc)
	}
	w := s.App.Writer
	fmt.Fprintf(w, "%s %s\n", doc.Format, doc.Manifest)
	for _, f := range doc.Files {
		fmt.Fprintf(w, "file %s: %d bytes, %s\n", f.File, f.Size, f.SHA256)
	}
	if doc.Unnamed > 0 {
		fmt.Fprintf(w, "%s without a file name\n", plural(doc.Unnamed, "layer"))
	}
	for _, c := range doc.Manifests {
		fmt.Fprintf(w, "manifest %s\n", c)
	}
	if doc.Build == nil {
		return nil
	}
	fmt.Fprint(w, "its provenance:\n")
	return printStored(s, d, doc.Build)
}

// exportable lists the files of what a reference means, and its name.
func exportable(s *storeContext, ref string) (d artifacts.Descriptor, name string, files []pack.File, err error) {
	ctx := s.Context.Context
	if d, err = s.s.Resolve(ctx, ref); err != nil {
		return d, "", nil, err
	}
	b, err := artifacts.ReadBuild(ctx, s.s, d)
	if err == nil {
		for _, o := range b.Outputs {
			files = append(files, pack.File{Path: o.File, Descriptor: artifacts.Descriptor{MediaType: o.MediaType, Digest: o.Digest, Size: o.Size}})
		}
		return d, b.Name, files, nil
	}
	if !errors.Is(err, artifacts.ErrNoBuild) || !artifacts.IsManifest(d.MediaType) {
		return d, "", nil, err
	}
	m, err := readPacked(s, d)
	if err != nil {
		return d, "", nil, err
	}
	for _, f := range m.Files {
		if f.Path != "" {
			files = append(files, f)
		}
	}
	if len(files) == 0 && !s.IsSet("layout") && !s.IsSet("tar") {
		return d, "", nil, fmt.Errorf("%s: no layer has a file name; --layout and --tar export it whole", ref)
	}
	return d, "digest-" + d.Digest.Hex()[:16], files, nil
}
