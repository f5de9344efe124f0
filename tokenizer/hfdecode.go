package tokenizer

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// decode joins the texts of ids by the tokenizer's decoder, special ones
// included.
func (e *hfEncoder) decode(ids []int32) (string, error) {
	var toks []string
	for _, id := range ids {
		if t, ok := e.added.byID[id]; ok {
			toks = append(toks, t.content)
		} else if id >= 0 && int(id) < len(e.t.model.byID) && !e.t.model.holes[id] {
			toks = append(toks, e.t.model.byID[id])
		}
	}
	if e.t.decoder == nil {
		return strings.Join(toks, " "), nil
	}
	toks, err := decodeChain(e.t.name, e.t.decoder, toks)
	return strings.Join(toks, ""), err
}

func decodeChain(file string, d *jsonObject, toks []string) ([]string, error) {
	switch typ, _ := d.str("type"); typ {
	case "Sequence":
		for _, s := range d.list("decoders") {
			o, ok := s.(*jsonObject)
			if !ok {
				return nil, fmt.Errorf("%s: decoder: not an object in a Sequence: %w", file, ErrFormat)
			}
			var err error
			if toks, err = decodeChain(file, o, toks); err != nil {
				return nil, err
			}
		}
		return toks, nil
	case "ByteLevel":
		var b strings.Builder
		for _, t := range toks {
			if bytes, ok := fromByteLevel(t); ok {
				b.WriteString(bytes)
			} else {
				b.WriteString(t)
			}
		}
		return []string{lossyUTF8(b.String())}, nil
	case "Replace":
		f, err := compileReplace(file, "decoder", d)
		if err != nil {
			return nil, err
		}
		out := make([]string, len(toks))
		for i, t := range toks {
			if out[i], err = f(t); err != nil {
				return nil, err
			}
		}
		return out, nil
	case "ByteFallback":
		return decodeByteTokens(toks), nil
	case "Fuse":
		return []string{strings.Join(toks, "")}, nil
	case "Strip":
		return decodeStrip(file, d, toks)
	case "Metaspace":
		mark, ok := oneRune(d.get("replacement"), '\u2581')
		if !ok {
			return nil, fmt.Errorf("%s: decoder: replacement is not one character: %w", file, ErrFormat)
		}
		scheme, has := d.str("prepend_scheme")
		prefix := has && scheme != "never" || !has && d.flag("add_prefix_space", true)
		out := make([]string, len(toks))
		for i, t := range toks {
			if i == 0 && prefix {
				t = strings.TrimPrefix(t, string(mark))
			}
			out[i] = strings.ReplaceAll(t, string(mark), " ")
		}
		return out, nil
	default:
		return nil, fmt.Errorf("%s: decoder %q: %w", file, typ, ErrUnsupported)
	}
}

// decodeByteTokens turns runs of <0xXX> into text, or into one U+FFFD a byte
// when they are no UTF-8.
func decodeByteTokens(toks []string) []string {
	var out []string
	var pending []byte
	flush := func() {
		if len(pending) == 0 {
			return
		}
		if utf8.Valid(pending) {
			out = append(out, string(pending))
		} else {
			for range pending {
				out = append(out, "\ufffd")
			}
		}
		pending = nil
	}
	for _, t := range toks {
		if b, ok := byteTokenValue(t); ok {
			pending = append(pending, b)
			continue
		}
		flush()
		out = append(out, t)
	}
	flush()
	return out
}

func decodeStrip(file string, d *jsonObject, toks []string) ([]string, error) {
	c, ok := oneRune(d.get("content"), ' ')
	start, ok1 := d.integer("start")
	stop, ok2 := d.integer("stop")
	if !ok || !ok1 || !ok2 || start < 0 || stop < 0 {
		return nil, fmt.Errorf("%s: decoder: Strip without content, start and stop: %w", file, ErrFormat)
	}
	out := make([]string, len(toks))
	for i, t := range toks {
		for n := start; n > 0 && strings.HasPrefix(t, string(c)); n-- {
			t = t[utf8.RuneLen(c):]
		}
		for n := stop; n > 0 && strings.HasSuffix(t, string(c)); n-- {
			t = t[:len(t)-utf8.RuneLen(c)]
		}
		out[i] = t
	}
	return out, nil
}

// cleanUp removes the spaces before punctuation and contractions, as asked for
// by clean_up_tokenization_spaces.
func cleanUp(s string) string {
	for _, r := range [][2]string{
		{" .", "."}, {" ?", "?"}, {" !", "!"}, {" ,", ","}, {" ' ", "'"},
		{" n't", "n't"}, {" 'm", "'m"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"},
	} {
		s = strings.ReplaceAll(s, r[0], r[1])
	}
	return s
}
