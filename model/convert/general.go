package convert

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"quern/formats/gguf"
	"quern/internal/pattern"
	"quern/internal/pyjson"
	"quern/model"
)

// general gathers what the general.* keys say. The strings come from untyped
// files, so they stay untyped until they are written; nil means not known.
type general struct {
	sampling [len(samplingKeys)]any

	name, author, version, organization      any
	finetune, basename, description          any
	quantizedBy, sizeLabel                   any
	license, licenseName, licenseLink        any
	url, doi, uuid, repoURL                  any
	sourceURL, sourceDOI, sourceUUID, source any

	bases, datasets   []*pyjson.Object
	hasBases, hasData bool
	tags, languages   []any
}

const generationName = "generation_config.json"

// limitCard bounds the side files read for metadata.
const limitCard = 8 << 20

// loadGeneral gathers from the model card, then the config's _name_or_path, then
// the folder's name: the first that knows a field wins.
func loadGeneral(ctx context.Context, m *model.Model, opt Options, params int64) (*general, []model.Note, error) {
	g := &general{}
	var notes []model.Note
	text, err := m.Files.ReadFile(ctx, cardName, limitCard)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, nil, fmt.Errorf("%s: %w", cardName, err)
	default:
		card, err := parseCard(text)
		if err != nil {
			notes = append(notes, model.Note{Subject: cardName, Text: fmt.Sprintf("its front matter cannot be read and is left out: %v", err)})
		}
		g.fromCard(card, params)
	}
	if v, _ := m.Config.Raw("_name_or_path"); v != nil {
		s, ok := v.(string)
		if !ok {
			return nil, nil, fmt.Errorf("%s: %w: _name_or_path is %s, want a string", m.Config.File(), model.ErrConfig, pyjson.Show(v))
		}
		if strings.Count(s, "/") <= 1 {
			g.fromID(s, params)
		}
	}
	g.fromID(m.Name, params)
	var note *model.Note
	if g.sampling, note, err = loadGeneration(ctx, m); err != nil {
		return nil, nil, err
	}
	if note != nil {
		notes = append(notes, *note)
	}
	g.override(opt.Metadata)
	if opt.ModelName != "" {
		g.name = opt.ModelName
	}
	return g, notes, nil
}

// loadGeneration reads the sampling defaults. Published files are not all valid
// JSON, and nothing depends on them, so those are passed over.
func loadGeneration(ctx context.Context, m *model.Model) (out [len(samplingKeys)]any, note *model.Note, err error) {
	text, err := m.Files.ReadFile(ctx, generationName, limitCard)
	if errors.Is(err, fs.ErrNotExist) {
		return out, nil, nil
	}
	if err != nil {
		return out, nil, fmt.Errorf("%s: %w", generationName, err)
	}
	o, err := pyjson.ParseObject(text)
	if err != nil {
		return out, &model.Note{Subject: generationName, Text: fmt.Sprintf("it cannot be read and is left out: %v", err)}, nil
	}
	for i, k := range samplingKeys {
		for _, name := range k.from {
			if v, ok := o.Get(name); ok {
				out[i] = v
				break
			}
		}
	}
	return out, nil, nil
}

// samplingKeys pairs general.sampling.* with the names in generation_config.json,
// in the order of writing.
var samplingKeys = [...]struct {
	name string
	from []string
	typ  gguf.ValueType
}{
	{"sequence", []string{"sequence"}, gguf.String},
	{"top_k", []string{"top_k"}, gguf.Int32},
	{"top_p", []string{"top_p"}, gguf.Float32},
	{"min_p", []string{"min_p"}, gguf.Float32},
	{"xtc_probability", []string{"xtc_probability"}, gguf.Float32},
	{"xtc_threshold", []string{"xtc_threshold"}, gguf.Float32},
	{"temp", []string{"temperature"}, gguf.Float32},
	{"penalty_last_n", []string{"penalty_last_n"}, gguf.Int32},
	{"penalty_repeat", []string{"penalty_repeat", "repetition_penalty"}, gguf.Float32},
	{"mirostat", []string{"mirostat"}, gguf.Int32},
	{"mirostat_tau", []string{"mirostat_tau"}, gguf.Float32},
	{"mirostat_eta", []string{"mirostat_eta"}, gguf.Float32},
}

// override puts given values over what was found. The license alone cannot be
// replaced, as with the converter.
func (g *general) override(o *pyjson.Object) {
	set := func(field *any, key string) {
		if v, ok := o.Get("general." + key); ok {
			*field = v
		}
	}
	for i, k := range samplingKeys {
		set(&g.sampling[i], "sampling."+k.name)
	}
	for _, f := range g.fields() {
		if f.key != "license" {
			set(f.value, f.key)
		}
	}
	list := func(entries *[]*pyjson.Object, found *bool, key string) {
		v, ok := o.Get("general." + key)
		if !ok {
			return
		}
		values, _ := v.([]any)
		*entries, *found = nil, v != nil
		for _, e := range values {
			entry, _ := e.(*pyjson.Object)
			*entries = append(*entries, entry)
		}
	}
	list(&g.bases, &g.hasBases, "base_models")
	list(&g.datasets, &g.hasData, "datasets")
	array := func(field *[]any, key string) {
		if v, ok := o.Get("general." + key); ok {
			*field, _ = v.([]any)
		}
	}
	array(&g.tags, "tags")
	array(&g.languages, "languages")
}

// fields lists the plain keys in the order of writing.
func (g *general) fields() []struct {
	key   string
	value *any
} {
	return []struct {
		key   string
		value *any
	}{
		{"name", &g.name}, {"author", &g.author}, {"version", &g.version}, {"organization", &g.organization},
		{"finetune", &g.finetune}, {"basename", &g.basename}, {"description", &g.description}, {"quantized_by", &g.quantizedBy},
		{"size_label", &g.sizeLabel}, {"license", &g.license}, {"license.name", &g.licenseName}, {"license.link", &g.licenseLink},
		{"url", &g.url}, {"doi", &g.doi}, {"uuid", &g.uuid}, {"repo_url", &g.repoURL},
		{"source.url", &g.sourceURL}, {"source.doi", &g.sourceDOI}, {"source.uuid", &g.sourceUUID}, {"source.repo_url", &g.source},
	}
}

// fromID fills what is still unknown from an id or folder name.
func (g *general) fromID(id string, params int64) {
	p := identify(id, params)
	fill := func(field *any, v string) {
		if *field == nil && v != "" {
			*field = v
		}
	}
	if g.name == nil {
		g.name = title(p.full)
	}
	if g.organization == nil && p.hasOrg {
		g.organization = title(p.org)
	}
	fill(&g.basename, p.basename)
	fill(&g.finetune, p.finetune)
	fill(&g.version, p.version)
	fill(&g.sizeLabel, p.size)
}

// fromCard takes what a model card says: llama.cpp's own keys, then the same
// with model_ before them, then those of the Hub.
func (g *general) fromCard(card *pyjson.Object, params int64) {
	take := func(field *any, keys ...string) {
		for _, k := range keys {
			if *field == nil {
				*field, _ = card.Get(k)
			}
		}
	}
	take(&g.name, "name", "model_name")
	take(&g.author, "author", "model_author", "model_creator")
	take(&g.version, "version", "model_version")
	take(&g.organization, "organization", "model_organization")
	take(&g.description, "description", "model_description")
	take(&g.finetune, "finetune", "model_finetune")
	take(&g.basename, "basename", "model_basename", "model_type")
	take(&g.sizeLabel, "size_label", "model_size_label")
	take(&g.sourceURL, "url", "model_url")
	take(&g.sourceDOI, "doi", "model_doi")
	take(&g.sourceUUID, "uuid", "model_uuid")
	take(&g.source, "repo_url", "model_repo_url")
	g.bases, g.hasBases = references(card, params, "base_model", "base_models", "base_model_sources")
	g.datasets, g.hasData = references(card, params, "datasets", "dataset", "dataset_sources")
	take(&g.license, "license")
	take(&g.licenseName, "license_name")
	take(&g.licenseLink, "license_link")
	gather := func(list *[]any, keys ...string) {
		for _, k := range keys {
			switch v, _ := card.Get(k); v := v.(type) {
			case string:
				*list = append(*list, v)
			case []any:
				*list = append(*list, v...)
			}
		}
	}
	gather(&g.tags, "tags", "pipeline_tag")
	gather(&g.languages, "languages", "language")
}

var hubURL = pattern.New(`^https?://huggingface\.co/([^/]+/[^/]+)$`)

// references turns the base models or datasets of a card into entries with name,
// organization, version and repo_url. Entries that are mappings pass through.
func references(card *pyjson.Object, params int64, keys ...string) (entries []*pyjson.Object, found bool) {
	var value any
	for _, k := range keys {
		if v, ok := card.Get(k); ok {
			value, found = v, true
			break
		}
	}
	var ids []any
	switch v := value.(type) {
	case string:
		ids = []any{v}
	case []any:
		ids = v
	}
	for _, id := range ids {
		entry := &pyjson.Object{}
		switch id := id.(type) {
		case *pyjson.Object:
			entry = id
		case string:
			reference(entry, id, params)
		}
		entries = append(entries, entry)
	}
	return entries, found
}

func reference(entry *pyjson.Object, id string, params int64) {
	url := false
	for _, scheme := range []string{"http://", "https://", "ssh://"} {
		url = url || strings.HasPrefix(id, scheme)
	}
	if url {
		entry.Set("repo_url", id)
		m := hubURL.FindStringSubmatch(id)
		if m == nil {
			return
		}
		id = m[1]
	}
	p := identify(id, params)
	entry.Set("name", title(p.full))
	if p.hasOrg {
		entry.Set("organization", title(p.org))
	}
	if p.version != "" {
		entry.Set("version", p.version)
	}
	if p.hasOrg && !url {
		entry.Set("repo_url", hubPage(p.org, p.full))
	}
}

// hubPage is the web page of a repository. It names the public hub, as the
// converter does, wherever the model was fetched from.
func hubPage(org, name string) string { return "https://huggingface.co/" + org + "/" + name }

// write sets the general.* keys in the converter's order.
func (g *general) write(w *kvWriter) {
	for i, k := range samplingKeys {
		key, v := "general.sampling."+k.name, g.sampling[i]
		switch {
		case v == nil:
		case k.typ == gguf.String:
			w.str(generationName, key, v)
		case k.typ == gguf.Int32:
			w.i32(generationName, key, v)
		default:
			w.f32(generationName, key, v)
		}
	}
	for _, f := range g.fields() {
		v := *f.value
		if list, ok := v.([]any); ok && f.key == "license" {
			v = joinLicenses(w, list)
		}
		w.str(cardName, "general."+f.key, v)
	}
	writeReferences(w, "general.base_model", g.bases, g.hasBases)
	writeReferences(w, "general.dataset", g.datasets, g.hasData)
	w.list(cardName, "general.tags", g.tags)
	w.list(cardName, "general.languages", g.languages)
}

func joinLicenses(w *kvWriter, list []any) string {
	names := make([]string, len(list))
	for i, v := range list {
		s, ok := v.(string)
		if !ok {
			w.fail(cardName, "general.license", v, "strings")
		}
		names[i] = s
	}
	return strings.Join(names, ",")
}

func writeReferences(w *kvWriter, prefix string, entries []*pyjson.Object, found bool) {
	if !found {
		return
	}
	w.u32(cardName, prefix+".count", int64(len(entries)))
	for i, e := range entries {
		for _, k := range []string{"name", "author", "version", "organization", "description", "url", "doi", "uuid", "repo_url"} {
			v, _ := e.Get(k)
			w.str(cardName, fmt.Sprintf("%s.%d.%s", prefix, i, k), v)
		}
	}
}
