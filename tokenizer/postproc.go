package tokenizer

// postProcessor reads from tokenizer.json which special tokens are put around a
// text, in the converter's simple way: only the ends of the template are looked
// at. It may change cfg, the private copy of tokenizer_config.json, exactly
// where the converter changes its own.
func (s *specialSet) postProcessor(post *jsonObject, cfg *jsonObject) error {
	bos, cls := cfg.get("bos_token"), cfg.get("cls_token")
	eos, sep := cfg.get("eos_token"), cfg.get("sep_token")
	if !truthy(bos) && truthy(cls) && cfg.nonEmpty() {
		bos = cls
		cfg.set("bos_token", bos)
	}
	if !truthy(eos) && truthy(sep) && cfg.nonEmpty() {
		eos = sep
		cfg.set("eos_token", eos)
	}
	if post == nil || len(post.keys) == 0 {
		return nil
	}
	list := []any{post}
	if post.has("processors") {
		list = post.list("processors")
	}
	e := &templateEnds{s: s, cfg: cfg, bos: bos, eos: eos, cls: cls, sep: sep}
	for _, p := range list {
		o, _ := p.(*jsonObject)
		switch typ, _ := o.str("type"); typ {
		case "RobertaProcessing":
			e.roberta(o)
		case "TemplateProcessing":
			e.template(o)
		}
	}
	return nil
}

// templateEnds carries the special tokens known so far: strings, objects with
// "content", or nil. Comparison is Python's: an object never equals a string.
type templateEnds struct {
	s                  *specialSet
	cfg                *jsonObject
	bos, eos, cls, sep any
}

func (e *templateEnds) roberta(o *jsonObject) {
	for _, typ := range []string{"bos", "eos", "sep"} {
		e.s.setAdd(typ, true)
	}
	first := func(key string, fallback any) any {
		if l := o.list(key); len(l) > 0 {
			return l[0]
		}
		return fallback
	}
	if !truthy(e.cls) && e.cfg.nonEmpty() {
		e.cls = first("cls", e.bos)
		e.cfg.set("cls_token", e.cls)
	}
	if !truthy(e.sep) && e.cfg.nonEmpty() {
		e.sep = first("sep", e.eos)
		e.cfg.set("sep_token", e.sep)
	}
}

func (e *templateEnds) template(o *jsonObject) {
	single, pair := o.list("single"), o.list("pair")
	var first, last string
	if len(single) > 1 {
		if first = partID(single[0], "SpecialToken"); first != "" {
			e.first(first)
		}
		if last = partID(single[len(single)-1], "SpecialToken"); last != "" {
			e.last(last)
		}
	}
	if len(pair) == 0 {
		return
	}
	start, stop := 0, len(pair)
	if first != "" && partID(pair[0], "SpecialToken") == first {
		start = 1
	}
	if last != "" && partID(pair[len(pair)-1], "SpecialToken") == last {
		stop--
	}
	if start < stop {
		e.pair(pair[start:stop], last)
	}
}

// first handles the token before a text.
func (e *templateEnds) first(tok string) {
	if !e.cfg.nonEmpty() {
		e.bos = tok
	} else if !isText(e.bos, tok) && !isText(e.cls, tok) {
		if !truthy(e.bos) {
			e.bos = tok
			e.cfg.set("bos_token", tok)
		}
		if !truthy(e.cls) {
			e.cls = tok
			e.cfg.set("cls_token", tok)
		}
	}
	known := isText(e.bos, tok) || isText(e.cls, tok)
	e.s.setAdd("bos", known)
	if !known {
		e.s.warnf("TemplateProcessing: leading token %q is neither bos nor cls", tok)
	}
}

// last handles the token after a text. When it is not the eos token it becomes
// that, and the old eos goes on as eot or eom.
func (e *templateEnds) last(tok string) {
	if !e.cfg.nonEmpty() {
		e.eos = tok
	} else if !isText(e.eos, tok) {
		switch {
		case !e.s.has("eot"):
			e.s.types = append(e.s.types, "eot")
			e.cfg.set("eot_token", e.eos)
		case !e.s.has("eom"):
			e.s.types = append(e.s.types, "eom")
			e.cfg.set("eom_token", e.eos)
		default:
			e.s.warnf("TemplateProcessing: eos token replaced by %q with no name left for the old one", tok)
		}
		e.eos = tok
		e.cfg.set("eos_token", tok)
	}
	e.s.setAdd("eos", isText(e.eos, tok))
}

// pair looks for separators between two texts: A [sep] [eos] B.
func (e *templateEnds) pair(parts []any, last string) {
	a, b := partID(parts[0], "Sequence"), partID(parts[len(parts)-1], "Sequence")
	if a != "A" || b != "B" || len(parts) < 3 {
		return
	}
	middle := parts[1 : len(parts)-1]
	isSep := func(part any) bool {
		tok := partID(part, "SpecialToken")
		return tok != "" && (isText(e.sep, tok) || isText(e.eos, tok))
	}
	add := isSep(middle[0]) && last == ""
	if len(middle) == 2 && isSep(middle[1]) {
		add = true
	}
	e.s.setAdd("sep", add)
	if add && !truthy(e.sep) && e.cfg.nonEmpty() {
		e.cfg.set("sep_token", e.eos)
	}
}

// partID reads {"SpecialToken": {"id": X}} or {"Sequence": {"id": X}}.
func partID(part any, kind string) string {
	o, _ := part.(*jsonObject)
	id, _ := o.object(kind).str("id")
	return id
}

func isText(v any, s string) bool {
	t, ok := v.(string)
	return ok && t == s
}
