package recipes

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"math/big"
	"net/url"
	"reflect"
	"regexp"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"

	"quern/artifacts/sink"
	"quern/hub"
	"quern/internal/pattern"
	"quern/tensor"
)

// value decodes n into dst by the field's kind.
func (c *checker) value(n *node, path string, f *field, dst reflect.Value) {
	if n.bad {
		return
	}
	if f.list {
		if f.one && n.kind == scalar && !n.isNull() {
			n = &node{kind: list, pos: n.pos, items: []*node{n}}
		}
		if n.kind != list {
			c.errorf(n.pos, path, "must be a list, not %s", n.what())
			return
		}
		one := *f
		one.list = false
		out := reflect.MakeSlice(dst.Type(), len(n.items), len(n.items))
		for i, item := range n.items {
			c.value(item, join(path, strconv.Itoa(i)), &one, out.Index(i))
		}
		dst.Set(out)
		return
	}
	if f.kind == kindObject {
		n = f.object.shorten(n)
		if v := c.object(n, path, f.object); v != nil {
			dst.Set(reflect.ValueOf(v).Elem())
		}
		return
	}
	if n.kind != scalar {
		c.errorf(n.pos, path, "must be %s, not %s", f.kindWords(), n.what())
		return
	}
	if n.isNull() && n.plain && (n.text == "" || !n.set) {
		c.errorf(n.pos, path, "has no value; it must be %s", f.kindWords())
		return
	}
	v, err := f.parse(n)
	if err != nil {
		c.errorf(n.pos, path, "%v", err)
		return
	}
	if f.kind == kindResult || f.kind == kindSource && !slices.ContainsFunc(f.choices, func(c choice) bool { return c.name == v.(string) }) {
		c.refs = append(c.refs, ref{n.pos, path, v.(string), f.kind, c.step})
	}
	x := reflect.ValueOf(v)
	if dst.Kind() == reflect.Pointer {
		p := reflect.New(dst.Type().Elem())
		p.Elem().Set(x.Convert(dst.Type().Elem()))
		dst.Set(p)
		return
	}
	dst.Set(x.Convert(dst.Type()))
}

// parse reads a scalar. The results are string, int64, float64 and bool.
func (f *field) parse(n *node) (any, error) {
	switch f.kind {
	case kindInt:
		v, err := parseInt(n)
		if err != nil {
			return nil, err
		}
		return v, f.inRange(big.NewRat(v, 1), n.text)
	case kindSize:
		v, err := parseSize(n)
		if err != nil {
			return nil, err
		}
		return v, f.inRange(big.NewRat(v, 1), n.text)
	case kindNumber:
		v, err := parseNumber(n)
		if err != nil {
			return nil, err
		}
		return v, f.inRange(new(big.Rat).SetFloat64(v), n.text)
	case kindShare:
		return f.parseShare(n)
	case kindBool:
		if n.tag != "!!bool" {
			return nil, fmt.Errorf("must be true or false, not %s", n.what())
		}
		return strings.EqualFold(n.text, "true"), nil
	}
	if n.tag != "!!str" && !n.set {
		return nil, fmt.Errorf("must be %s, not the %s %s; put it in quotes if it is meant as text",
			f.kindWords(), map[string]string{"!!int": "number", "!!float": "number", "!!bool": "boolean", "!!null": "null"}[n.tag], n.text)
	}
	return f.parseText(n.text)
}

func (f *field) parseText(s string) (any, error) {
	if s == "" {
		return nil, fmt.Errorf("is empty; it must be %s", f.kindWords())
	}
	switch f.kind {
	case kindName, kindSource, kindResult:
		return s, checkName(s)
	case kindChoice:
		var all []string
		for _, c := range f.choices {
			if c.name == s {
				return s, nil
			}
			all = append(all, c.name)
		}
		return nil, fmt.Errorf("unknown value %s%s", quote(s), suggest(s, all))
	case kindType:
		var words []string
		for _, c := range f.choices {
			if c.name == s {
				return s, nil
			}
			words = append(words, c.name)
		}
		return parseType(s, words...)
	case kindPreset:
		for _, p := range presets() {
			if strings.EqualFold(p.name, s) {
				return p.name, nil
			}
		}
		return nil, fmt.Errorf("unknown preset %s%s", quote(s), suggest(s, Presets()))
	case kindRegexp:
		return s, checkRegexp(s)
	case kindPath:
		if strings.ContainsRune(s, 0) {
			return nil, fmt.Errorf("path %s holds a NUL byte", quote(s))
		}
		return s, nil
	case kindOutputFile:
		return s, checkOutputFile(s)
	case kindURL:
		return s, checkURL(s)
	case kindRepoFile:
		if !fs.ValidPath(s) || s == "." || strings.ContainsAny(s, "\\\x00") {
			return nil, fmt.Errorf("%s is not a file of a repository: it must be a path such as folder/model.gguf, from the repository's root", quote(s))
		}
		return s, nil
	case kindTarget:
		_, err := sink.Parse(s)
		return s, err
	case kindHF:
		ref, err := hub.ParseRef(s)
		if err != nil {
			return nil, err
		}
		return ref.String(), nil
	case kindArtifact:
		if !artifactPattern.MatchString(s) {
			return nil, fmt.Errorf("%s is not an artifact: it must be a recipe's name, the reference of what was pulled, or sha256: and 64 hex digits, and may name a file behind a /", quote(s))
		}
		// A reference goes on with a repository where a name goes on with a file.
		if name, file, ok := strings.Cut(s, "/"); ok && !strings.ContainsAny(name, ".:") && name != "localhost" {
			return s, checkOutputFile(file)
		}
		return s, nil
	case kindSHA256:
		if _, err := tensor.ParseKey(s); err != nil {
			return nil, fmt.Errorf("%s is not 64 lower-case hex digits", quote(s))
		}
		return s, nil
	}
	if i := strings.IndexFunc(s, func(r rune) bool { return r < 0x20 || r == 0x7f }); i >= 0 {
		return nil, fmt.Errorf("%s holds a control character", quote(s))
	}
	return s, nil
}

func (f *field) inRange(v *big.Rat, text string) error {
	if !f.limited {
		return nil
	}
	low, high := v.Cmp(big.NewRat(f.min, 1)) < 0, v.Cmp(big.NewRat(f.max, 1)) > 0
	if f.min == f.max && (low || high) {
		return fmt.Errorf("must be %d, not %s", f.min, text)
	}
	if low {
		return fmt.Errorf("is %s, at least %d is needed", text, f.min)
	}
	if high {
		return fmt.Errorf("is %s, at most %d is allowed", text, f.max)
	}
	return nil
}

// parseInt reads plain decimal digits. YAML's other notations (0x10, 0o17,
// 017, 1_000) mean different numbers to different parsers.
func parseInt(n *node) (int64, error) {
	s := n.text
	if n.tag != "!!int" {
		return 0, fmt.Errorf("must be a whole number, not %s", n.what())
	}
	if strings.HasPrefix(s, "-") {
		return 0, fmt.Errorf("must not be negative: %s", s)
	}
	if !digits(s) || len(s) > 1 && s[0] == '0' {
		return 0, fmt.Errorf("%s: write a whole number with decimal digits only", quote(s))
	}
	v, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s is over 2^63-1", quote(s))
	}
	return v, nil
}

func digits(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}

// sizeUnits are powers of 1000 and of 1024. Case counts, so that MB, Mb and mB
// are not taken for one another.
var sizeUnits = []struct {
	name  string
	bytes int64
}{
	{"B", 1},
	{"kB", 1e3}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12},
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40},
}

var sizePattern = pattern.New(`^(-?)([0-9]{1,19})(\.[0-9]{1,18})?( ?)([A-Za-z]+)$`)

// parseSize reads bytes: a whole number, or a number with a unit that comes to
// whole bytes.
func parseSize(n *node) (int64, error) {
	if n.tag == "!!int" {
		return parseInt(n)
	}
	m := sizePattern.FindStringSubmatch(n.text)
	if n.tag != "!!str" || m == nil {
		return 0, fmt.Errorf("must be a size such as 2MiB, 64KiB, 2MB or a whole number of bytes, not %s", n.what())
	}
	if m[1] != "" {
		return 0, fmt.Errorf("must not be negative: %s", n.text)
	}
	unit := int64(0)
	for _, u := range sizeUnits {
		if u.name == m[5] {
			unit = u.bytes
		}
	}
	if unit == 0 {
		return 0, fmt.Errorf("unknown unit %s in %s%s", quote(m[5]), quote(n.text), unitHint(m[5]))
	}
	v, ok := new(big.Rat).SetString(m[2] + m[3])
	if !ok {
		return 0, fmt.Errorf("%s is not a number", quote(m[2]+m[3]))
	}
	v.Mul(v, new(big.Rat).SetInt64(unit))
	switch {
	case !v.IsInt():
		return 0, fmt.Errorf("%s is not a whole number of bytes: %s", quote(n.text), v.FloatString(3))
	case !v.Num().IsInt64():
		return 0, fmt.Errorf("%s is over 2^63-1 bytes", quote(n.text))
	}
	return v.Num().Int64(), nil
}

// unitHint explains the two units that a letter can stand for.
func unitHint(unit string) string {
	letter := strings.ToUpper(unit[:1])
	var hints []string
	for _, u := range sizeUnits {
		if len(u.name) > 1 && strings.HasPrefix(u.name, letter) {
			hints = append(hints, fmt.Sprintf("%s is %d bytes", u.name, u.bytes))
		}
	}
	if hints == nil {
		return "; units are B, KB, MB, GB, TB and KiB, MiB, GiB, TiB"
	}
	return "; " + strings.Join(hints, ", ")
}

var numberPattern = pattern.New(`^[-+]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?$`)

func parseNumber(n *node) (float64, error) {
	if n.tag != "!!int" && n.tag != "!!float" || !numberPattern.MatchString(n.text) {
		return 0, fmt.Errorf("must be a decimal number, not %s", n.what())
	}
	v, err := strconv.ParseFloat(n.text, 64)
	if err != nil || math.IsInf(v, 0) {
		return 0, fmt.Errorf("%s is out of range", quote(n.text))
	}
	return v, nil
}

var sharePattern = pattern.New(`^([0-9]{1,9}(\.[0-9]{0,18})?|\.[0-9]{1,18}) ?%$`)

// ParsePercent reads a percentage such as 99.5 % as a part of one. ok is false for a
// text that is none.
func ParsePercent(s string) (v float64, ok bool) {
	m := sharePattern.FindStringSubmatch(s)
	if m == nil {
		return 0, false
	}
	// The decimal exponent keeps 7 % the number that 0.07 is.
	v, err := strconv.ParseFloat(m[1]+"e-2", 64)
	return v, err == nil
}

// parseShare reads a percentage, or a number under 1. A plain 1 could mean the
// whole or a hundredth of it.
func (f *field) parseShare(n *node) (float64, error) {
	v, percent := ParsePercent(n.text)
	if !percent || n.tag != "!!str" {
		var err error
		if v, err = parseNumber(n); err != nil {
			return 0, fmt.Errorf("must be %s, not %s", f.kindWords(), n.what())
		}
		if v >= 1 {
			return 0, fmt.Errorf("is %s: write %s %% or a number under 1", n.text, n.text)
		}
	}
	switch {
	case v < float64(f.min) && f.limited:
		return 0, fmt.Errorf("is %s, at least %d %% is needed", n.text, 100*f.min)
	case v > float64(f.max) && f.limited:
		return 0, fmt.Errorf("is %s, at most %d %% is allowed", n.text, 100*f.max)
	}
	return v, nil
}

var namePattern = pattern.New(`^[a-z0-9][a-z0-9._-]*$`)

const maxName = 100

func checkName(s string) error {
	if len(s) > maxName {
		return fmt.Errorf("%s has %d characters, at most %d are allowed", quote(s), len(s), maxName)
	}
	if !namePattern.MatchString(s) {
		return fmt.Errorf("%s is not a name: it must start with a lower-case letter or digit and go on with those, '.', '_' and '-'", quote(s))
	}
	return nil
}

var artifactPattern = pattern.New(`^((sha256:[0-9a-f]{64}|[a-z0-9][a-z0-9._-]{0,99})(/.+)?|[a-z0-9][a-z0-9._-]{0,99}:[0-9]{1,5}/.+)$`)

// parseType takes any ggml type of numbers in any letter case; whether it can
// be written is for the stage to say. words are what else could be meant.
func parseType(s string, words ...string) (string, error) {
	t, err := tensor.ParseType(s)
	if err != nil || !quantTarget(t) {
		return "", fmt.Errorf("unknown type %s%s", quote(s), suggest(s, append(words, typeNames()...)))
	}
	return t.String(), nil
}

func quantTarget(t tensor.Type) bool {
	_, ok := t.GGML()
	return ok && (t.IsFloat() || t.IsBlock())
}

func typeNames() []string {
	var out []string
	for _, t := range tensor.Types() {
		if quantTarget(t) {
			out = append(out, t.String())
		}
	}
	return out
}

func checkRegexp(s string) error {
	_, err := regexp.Compile(s)
	if err == nil {
		return nil
	}
	if se, ok := errors.AsType[*syntax.Error](err); ok {
		hint := ""
		if se.Code == syntax.ErrInvalidPerlOp || se.Code == syntax.ErrInvalidEscape {
			hint = " (RE2 has no look-around and no back-references)"
		}
		at := ""
		if i := strings.Index(s, se.Expr); i >= 0 && se.Expr != s {
			at = fmt.Sprintf(" at character %d", len([]rune(s[:i]))+1)
		}
		return fmt.Errorf("bad regular expression %s: %s in %s%s%s", quote(s), se.Code, quote(se.Expr), at, hint)
	}
	return fmt.Errorf("bad regular expression %s: %v", quote(s), err)
}

func checkURL(s string) error {
	u, err := url.Parse(s)
	switch {
	case err != nil:
		return fmt.Errorf("%s is not a URL: %v", quote(s), errors.Unwrap(err))
	case u.Scheme != "http" && u.Scheme != "https":
		return fmt.Errorf("%s must start with https:// or http://", quote(s))
	case u.Host == "":
		return fmt.Errorf("%s names no host", quote(s))
	case u.User != nil:
		return errors.New("a URL in a recipe must not hold a user name or password")
	}
	return nil
}
