package assemble

import (
	"fmt"
	"slices"
	"strings"

	"quern/formats/gguf"
	"quern/model"
)

const keyFileType = "general.file_type"

// compared reports whether a metadata key says something of the weights: which
// architecture they are of, its settings, and what the ids mean. What files say of
// their names, their making and their chat templates is their own.
func compared(key, arch string) bool {
	switch key {
	case "general.architecture", "general.quantization_version":
		return true
	}
	if strings.HasPrefix(key, "tokenizer.chat_template") {
		return false
	}
	return strings.HasPrefix(key, "tokenizer.") || strings.HasPrefix(key, arch+".")
}

// compare lists where the metadata of two models says different things.
func (a *assembly) compare(t *take) {
	base, other := a.base.Meta, t.m.Meta
	arch, err := base.Text("general.architecture")
	if err != nil {
		a.faultf("%s: %v", a.name, err)
		return
	}
	if was, err := other.Text("general.architecture"); err != nil || was != arch {
		a.faultf("%s is of architecture %q, %s of %q", a.name, arch, t.name, was)
		return
	}
	for key, v := range base.All() {
		if !compared(key, arch) {
			continue
		}
		w, ok := other.Get(key)
		switch {
		case ok && equal(v, w):
		case a.allowed(key, t):
		case !ok:
			a.faultf("key %s is %s in %s and missing in %s", key, show(v), a.name, t.name)
		default:
			a.faultf("key %s %s", key, difference(v, w, a.name, t.name))
		}
	}
	for key, w := range other.All() {
		if compared(key, arch) && !base.Has(key) && !a.allowed(key, t) {
			a.faultf("key %s is missing in %s and %s in %s", key, a.name, show(w), t.name)
		}
	}
	if v, w := template(base), template(other); v != w {
		a.notes = append(a.notes, model.Note{Subject: t.name, Text: "it has another chat template, which is left out"})
	}
}

func template(m *gguf.Metadata) string {
	s, err := m.Text("tokenizer.chat_template")
	if err != nil {
		return ""
	}
	return s
}

func (a *assembly) allowed(key string, t *take) bool {
	if a.own[key] {
		return true
	}
	for _, re := range a.allow {
		if re.MatchString(key) {
			a.notes = append(a.notes, model.Note{Subject: key, Text: fmt.Sprintf("differs in %s, as the recipe allows; %s counts", t.name, a.name)})
			return true
		}
	}
	return false
}

// equal compares values; a number is a number in whatever width.
func equal(v, w gguf.Value) bool {
	if v.Equal(w) {
		return true
	}
	if a, err := gguf.AsInts[int64](v); err == nil {
		b, err := gguf.AsInts[int64](w)
		return err == nil && slices.Equal(a, b)
	}
	if a, err := gguf.AsInt[int64](v); err == nil {
		b, err := gguf.AsInt[int64](w)
		return err == nil && a == b
	}
	return false
}

// show writes a value in short.
func show(v gguf.Value) string {
	if v.IsArray() {
		return fmt.Sprintf("a list of %d", v.Len())
	}
	switch s := v.Any().(type) {
	case string:
		return fmt.Sprintf("%.60s", s) // a precision would pad numbers with zeros
	default:
		return fmt.Sprint(s)
	}
}

// difference says where two values differ.
func difference(v, w gguf.Value, a, b string) string {
	if !v.IsArray() || !w.IsArray() || v.Len() != w.Len() {
		return fmt.Sprintf("is %s in %s and %s in %s", show(v), a, show(w), b)
	}
	at, x, y := firstDifference(v.Any(), w.Any())
	if at < 0 {
		return fmt.Sprintf("is a list of other values in %s than in %s", a, b)
	}
	return fmt.Sprintf("differs from item %d on: %s in %s and %s in %s", at, x, a, y, b)
}

func firstDifference(v, w any) (int, string, string) {
	switch v := v.(type) {
	case []string:
		if w, ok := w.([]string); ok {
			return differ(v, w)
		}
	case []int32:
		if w, ok := w.([]int32); ok {
			return differ(v, w)
		}
	case []uint32:
		if w, ok := w.([]uint32); ok {
			return differ(v, w)
		}
	case []float32:
		if w, ok := w.([]float32); ok {
			return differ(v, w)
		}
	case []bool:
		if w, ok := w.([]bool); ok {
			return differ(v, w)
		}
	}
	return -1, "", ""
}

func differ[T comparable](v, w []T) (int, string, string) {
	for i := range v {
		if v[i] != w[i] {
			return i, fmt.Sprintf("%.60q", fmt.Sprint(v[i])), fmt.Sprintf("%.60q", fmt.Sprint(w[i]))
		}
	}
	return -1, "", ""
}
