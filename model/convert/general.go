package convert

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"strings"

	"quern/internal/pyjson"
	"quern/model"
)

// general gathers what the general.* keys say. The strings come from untyped
// files, so they stay untyped until they are written; nil means not known.
type general struct {
	sampling *pyjson.Object // generation_config.json

	name, author, version, organization      any
	finetune, basename, description          any
	sizeLabel                                any
	license, licenseName, licenseLink        any
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
	if opt.ModelName != "" {
		g.name = opt.ModelName
	}
	var note *model.Note
	if g.sampling, note, err = loadGeneration(ctx, m); err != nil {
		return nil, nil, err
	}
	if note != nil {
		notes = append(notes, *note)
	}
	return g, notes, nil
}

// loadGeneration reads the sampling defaults. Published files are not all valid
// JSON, and nothing depends on them, so those are passed over.
func loadGeneration(ctx context.Context, m *model.Model) (*pyjson.Object, *model.Note, error) {
	text, err := m.Files.ReadFile(ctx, generationName, limitCard)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", generationName, err)
	}
	o, err := pyjson.ParseObject(text)
	if err != nil {
		return nil, &model.Note{Subject: generationName, Text: fmt.Sprintf("it cannot be read and is left out: %v", err)}, nil
	}
	return o, nil, nil
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

var hubURL = regexp.MustCompile(`^https?://huggingface\.co/([^/]+/[^/]+)$`)

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
	g.writeSampling(w)
	const card = cardName
	w.str(card, "general.name", g.name)
	w.str(card, "general.author", g.author)
	w.str(card, "general.version", g.version)
	w.str(card, "general.organization", g.organization)
	w.str(card, "general.finetune", g.finetune)
	w.str(card, "general.basename", g.basename)
	w.str(card, "general.description", g.description)
	w.str(card, "general.size_label", g.sizeLabel)
	if list, ok := g.license.([]any); ok {
		names := make([]string, len(list))
		for i, v := range list {
			s, ok := v.(string)
			if !ok {
				w.fail(card, "general.license", v, "strings")
			}
			names[i] = s
		}
		w.str(card, "general.license", strings.Join(names, ","))
	} else {
		w.str(card, "general.license", g.license)
	}
	w.str(card, "general.license.name", g.licenseName)
	w.str(card, "general.license.link", g.licenseLink)
	w.str(card, "general.source.url", g.sourceURL)
	w.str(card, "general.source.doi", g.sourceDOI)
	w.str(card, "general.source.uuid", g.sourceUUID)
	w.str(card, "general.source.repo_url", g.source)
	writeReferences(w, "general.base_model", g.bases, g.hasBases)
	writeReferences(w, "general.dataset", g.datasets, g.hasData)
	w.list(card, "general.tags", g.tags)
	w.list(card, "general.languages", g.languages)
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

func (g *general) writeSampling(w *kvWriter) {
	const prefix = "general.sampling."
	get := func(keys ...string) any {
		for _, k := range keys {
			if v, ok := g.sampling.Get(k); ok {
				return v
			}
		}
		return nil
	}
	i32 := func(key string, v any) {
		if v != nil {
			w.i32(generationName, prefix+key, v)
		}
	}
	f32 := func(key string, v any) {
		if v != nil {
			w.f32(generationName, prefix+key, v)
		}
	}
	w.str(generationName, prefix+"sequence", get("sequence"))
	i32("top_k", get("top_k"))
	f32("top_p", get("top_p"))
	f32("min_p", get("min_p"))
	f32("xtc_probability", get("xtc_probability"))
	f32("xtc_threshold", get("xtc_threshold"))
	f32("temp", get("temperature"))
	i32("penalty_last_n", get("penalty_last_n"))
	f32("penalty_repeat", get("penalty_repeat", "repetition_penalty"))
	i32("mirostat", get("mirostat"))
	f32("mirostat_tau", get("mirostat_tau"))
	f32("mirostat_eta", get("mirostat_eta"))
}
