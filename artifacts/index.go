package artifacts

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strings"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// Index is the content of an OCI layout's index.json: the entries that names
// and untagged roots are. What other tools have put into it, in fields or
// entries that quern knows nothing of, is kept as it is.
type Index struct {
	fields  map[string]json.RawMessage // all but manifests
	entries []indexEntry
}

type indexEntry struct {
	raw  json.RawMessage
	oci  ocispec.Descriptor
	name string // empty for a root without a name
}

// NewIndex gives an index without entries.
func NewIndex() *Index {
	return &Index{fields: map[string]json.RawMessage{
		"schemaVersion": json.RawMessage("2"),
		"mediaType":     json.RawMessage(`"` + ocispec.MediaTypeImageIndex + `"`),
	}}
}

// ParseIndex reads an index.json. It fails with ErrManifest.
func ParseIndex(b []byte) (*Index, error) {
	x := &Index{}
	if err := json.Unmarshal(b, &x.fields); err != nil {
		return nil, fmt.Errorf("%w: index: %w", ErrManifest, err)
	}
	var version int
	if err := json.Unmarshal(orNull(x.fields["schemaVersion"]), &version); err != nil || version != 2 {
		return nil, fmt.Errorf("%w: index: schemaVersion is %.20s, want 2", ErrManifest, orNull(x.fields["schemaVersion"]))
	}
	var raws []json.RawMessage
	if err := json.Unmarshal(orNull(x.fields["manifests"]), &raws); err != nil {
		return nil, fmt.Errorf("%w: index: manifests: %w", ErrManifest, err)
	}
	delete(x.fields, "manifests")
	for i, raw := range raws {
		e := indexEntry{raw: raw}
		if err := json.Unmarshal(raw, &e.oci); err != nil {
			return nil, fmt.Errorf("%w: index: entry %d: %w", ErrManifest, i, err)
		}
		if !validOCIDigest(string(e.oci.Digest)) || e.oci.Size < 0 {
			return nil, fmt.Errorf("%w: index: entry %d: digest %.90q, size %d", ErrManifest, i, e.oci.Digest, e.oci.Size)
		}
		e.name = e.oci.Annotations[ocispec.AnnotationRefName]
		x.entries = append(x.entries, e)
	}
	return x, nil
}

func orNull(raw json.RawMessage) json.RawMessage {
	if raw == nil {
		return json.RawMessage("null")
	}
	return raw
}

// validOCIDigest reports whether s is ALGORITHM:ENCODED in OCI's grammar, of
// whatever algorithm. What passes is safe as a path of two parts.
func validOCIDigest(s string) bool {
	alg, enc, ok := strings.Cut(s, ":")
	if !ok || alg == "" || enc == "" || len(s) > 255 {
		return false
	}
	for i := range len(alg) {
		c := alg[i]
		lower := c >= 'a' && c <= 'z' || c >= '0' && c <= '9'
		if !lower && (i == 0 || i == len(alg)-1 || !strings.ContainsRune("+._-", rune(c))) {
			return false
		}
	}
	for i := range len(enc) {
		c := enc[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '=' && c != '_' && c != '-' {
			return false
		}
	}
	if alg == "sha256" {
		_, err := ParseDigest(s)
		return err == nil
	}
	return true
}

// Marshal writes the index. Equal histories of changes give equal bytes.
func (x *Index) Marshal() ([]byte, error) {
	fields := maps.Clone(x.fields)
	raws := make([]json.RawMessage, 0, len(x.entries))
	for _, e := range x.entries {
		raws = append(raws, e.raw)
	}
	m, err := json.Marshal(raws)
	if err != nil {
		return nil, err
	}
	fields["manifests"] = m
	// The fields that everyone looks for first, then the rest in order.
	keys := []string{"schemaVersion", "mediaType", "manifests"}
	rest := slices.Sorted(maps.Keys(fields))
	for _, k := range rest {
		if !slices.Contains(keys, k) {
			keys = append(keys, k)
		}
	}
	var out bytes.Buffer
	sep := "{"
	for _, k := range keys {
		v, ok := fields[k]
		if !ok {
			continue
		}
		name, err := json.Marshal(k)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&out, "%s%s:%s", sep, name, v)
		sep = ","
	}
	out.WriteString("}\n")
	return out.Bytes(), nil
}

// Tag points name at d. An entry of the same name is replaced in its place; an
// entry of the same digest without a name gets the name.
func (x *Index) Tag(name string, d Descriptor) error {
	if err := CheckName(name); err != nil {
		return err
	}
	o := d.OCI()
	if o.Annotations == nil {
		o.Annotations = map[string]string{}
	}
	o.Annotations[ocispec.AnnotationRefName] = name
	raw, err := json.Marshal(o)
	if err != nil {
		return err
	}
	e := indexEntry{raw: raw, oci: o, name: name}
	out := make([]indexEntry, 0, len(x.entries)+1)
	placed := false
	for _, old := range x.entries {
		if old.name != name {
			out = append(out, old)
			continue
		}
		if !placed {
			out = append(out, e)
			placed = true
		}
	}
	if !placed {
		nameless := func(old indexEntry) bool { return old.name == "" && old.oci.Digest == o.Digest }
		if i := slices.IndexFunc(out, nameless); i >= 0 {
			out[i] = e
		} else {
			out = append(out, e)
		}
	}
	x.entries = out
	return nil
}

// Untag removes a name and reports whether it was there.
func (x *Index) Untag(name string) bool {
	n := len(x.entries)
	x.entries = slices.DeleteFunc(x.entries, func(e indexEntry) bool { return e.name == name && name != "" })
	return len(x.entries) < n
}

// Names lists the names in order, with the descriptors that quern can read:
// SHA-256 ones.
func (x *Index) Names() []Named {
	var out []Named
	for _, e := range x.entries {
		if d, err := e.descriptor(); err == nil && e.name != "" {
			out = append(out, Named{e.name, d})
		}
	}
	sort.SliceStable(out, func(i, j int) bool { return out[i].Name < out[j].Name })
	return out
}

// Roots lists the descriptors of all entries that quern can read, in order.
func (x *Index) Roots() []Descriptor {
	var out []Descriptor
	for _, e := range x.entries {
		if d, err := e.descriptor(); err == nil {
			out = append(out, d)
		}
	}
	return out
}

// OCI lists the descriptors of all entries as they are.
func (x *Index) OCI() []ocispec.Descriptor {
	out := make([]ocispec.Descriptor, 0, len(x.entries))
	for _, e := range x.entries {
		out = append(out, e.oci)
	}
	return out
}

// descriptor is the entry without the annotation that holds its name.
func (e indexEntry) descriptor() (Descriptor, error) {
	d, err := FromOCI(e.oci)
	delete(d.Annotations, ocispec.AnnotationRefName)
	if len(d.Annotations) == 0 {
		d.Annotations = nil
	}
	return d, err
}

// Lookup finds an entry by its exact name. found is false if there is none.
func (x *Index) Lookup(name string) (d Descriptor, found bool, err error) {
	for _, e := range x.entries {
		if e.name != name || name == "" {
			continue
		}
		this, err := e.descriptor()
		if err != nil {
			return Descriptor{}, true, fmt.Errorf("name %s: %w", name, err)
		}
		if found && this.Digest != d.Digest {
			return Descriptor{}, true, fmt.Errorf("name %s: %w: it stands for %s and for %s", name, ErrAmbiguous, d.Digest, this.Digest)
		}
		d, found = this, true
	}
	return d, found, nil
}
