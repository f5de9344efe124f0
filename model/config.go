package model

import (
	"fmt"
	"math"
	"strings"

	"quern/internal/pyjson"
)

// Config is a model's config.json. Two views of it exist: the file as it
// stands, and the effective values, in which the defaults of the transformers
// class of the model's model_type are filled in and text_config lies over the
// root. All getters read the effective values, as converters do.
//
// A Config is immutable; With returns a changed copy.
type Config struct {
	file  string
	raw   *pyjson.Object
	eff   *pyjson.Object
	arch  string
	notes []string
	// bare says why no class filled in defaults, empty when one did.
	bare string
}

// ParseConfig reads a config.json. file names it in errors.
func ParseConfig(file string, text []byte) (*Config, error) {
	raw, err := pyjson.ParseObject(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %w", file, ErrConfig, err)
	}
	return newConfig(file, raw)
}

func newConfig(file string, raw *pyjson.Object) (*Config, error) {
	c := &Config{file: file, raw: raw}
	var err error
	if c.eff, c.notes, c.bare, err = effective(raw); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if c.arch, err = architecture(raw); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return c, nil
}

// architecture finds the class name that decides how a model is converted: that
// of text_config when it has one, else that of the root.
func architecture(raw *pyjson.Object) (string, error) {
	first := func(o *pyjson.Object) (string, error) {
		v, _ := o.Get("architectures")
		if v == nil {
			return "", nil
		}
		list, ok := v.([]any)
		if !ok {
			return "", fmt.Errorf("%w: architectures is %s, want a list of class names", ErrConfig, pyjson.Kind(v))
		}
		if len(list) == 0 {
			return "", nil
		}
		s, ok := list[0].(string)
		if !ok {
			return "", fmt.Errorf("%w: architectures holds %s, want class names", ErrConfig, pyjson.Kind(list[0]))
		}
		return s, nil
	}
	if v, _ := raw.Get("text_config"); v != nil {
		if text, ok := v.(*pyjson.Object); ok {
			if s, err := first(text); s != "" || err != nil {
				return s, err
			}
		}
	}
	return first(raw)
}

// File is the name under which errors speak of the config.
func (c *Config) File() string { return c.file }

// Architecture is the class name, such as LlamaForCausalLM; empty when the file
// names none.
func (c *Config) Architecture() string { return c.arch }

// ModelType is the model_type of the root.
func (c *Config) ModelType() string {
	v, _ := c.raw.Get("model_type")
	s, _ := v.(string)
	return s
}

// Notes says what was assumed while the file was read.
func (c *Config) Notes() []string { return append([]string(nil), c.notes...) }

// Raw gives a value of the file as it stands, from the root only.
func (c *Config) Raw(key string) (any, bool) { return c.raw.Get(key) }

// RawObject gives a copy of the file as it stands.
func (c *Config) RawObject() *pyjson.Object { return c.raw.Clone() }

// Find gives the effective value of the first of keys that is present, and that
// key. A null counts as present: its value is nil.
func (c *Config) Find(keys ...string) (v any, key string, ok bool) {
	for _, k := range keys {
		if v, ok := c.eff.Get(k); ok {
			return v, k, true
		}
	}
	return nil, "", false
}

// Setting is one change of a config value: nil, bool, int64, float64 or string.
type Setting struct {
	Key   string
	Value any
}

// With returns a config with changed values. In a config with a text_config the
// values go there, for that is where the text model's values come from.
func (c *Config) With(settings ...Setting) (*Config, error) {
	raw := c.raw.Clone()
	at := raw
	if v, _ := raw.Get("text_config"); v != nil {
		if text, ok := v.(*pyjson.Object); ok {
			at = text
		}
	}
	for _, s := range settings {
		v, err := jsonValue(s.Value)
		if err != nil {
			return nil, fmt.Errorf("%s: %s: %w", c.file, s.Key, err)
		}
		at.Set(s.Key, v)
	}
	return newConfig(c.file, raw)
}

func jsonValue(v any) (any, error) {
	switch v := v.(type) {
	case nil, bool, string, pyjson.Number, []any, *pyjson.Object:
		return v, nil
	case int:
		return pyjson.Number(fmt.Sprint(v)), nil
	case int64:
		return pyjson.Number(fmt.Sprint(v)), nil
	case float64:
		s := fmt.Sprint(v)
		switch {
		case math.IsNaN(v):
			s = "NaN"
		case math.IsInf(v, 0):
			s = strings.TrimPrefix(fmt.Sprintf("%+v", v), "+") + "inity"
		case !strings.ContainsAny(s, ".e"):
			s += ".0"
		}
		return pyjson.Number(s), nil
	}
	return nil, fmt.Errorf("%w: a value of type %T has no JSON form", ErrConfig, v)
}

func (c *Config) bad(key string, v any, want string) error {
	return fmt.Errorf("%s: %w: %s is %s (%s), want %s", c.file, ErrConfig, key, pyjson.Show(v), pyjson.Kind(v), want)
}

func (c *Config) missing(keys []string) error {
	why := ""
	if c.bare != "" {
		why = "; no defaults hold: " + c.bare
	}
	if len(keys) == 1 {
		return fmt.Errorf("%s: %w: %s is missing%s", c.file, ErrConfig, keys[0], why)
	}
	return fmt.Errorf("%s: %w: none of %s is there%s", c.file, ErrConfig, strings.Join(keys, ", "), why)
}

// OptInt gives the whole number under the first present key; ok is false when
// none is present or the value is null.
func (c *Config) OptInt(keys ...string) (n int64, ok bool, err error) {
	v, key, _ := c.Find(keys...)
	if v == nil {
		return 0, false, nil
	}
	num, isNum := v.(pyjson.Number)
	if isNum {
		n, ok = num.Int64()
	}
	if !ok {
		return 0, false, c.bad(key, v, "a whole number")
	}
	return n, true, nil
}

// Int is OptInt for a value that must be there.
func (c *Config) Int(keys ...string) (int64, error) {
	n, ok, err := c.OptInt(keys...)
	if err == nil && !ok {
		err = c.missing(keys)
	}
	return n, err
}

// Size is Int for a value that must be positive.
func (c *Config) Size(keys ...string) (int64, error) {
	n, err := c.Int(keys...)
	if err == nil && n <= 0 {
		_, key, _ := c.Find(keys...)
		err = fmt.Errorf("%s: %w: %s is %d, want a number above 0", c.file, ErrConfig, key, n)
	}
	return n, err
}

// OptFloat gives the number under the first present key, whole or not.
func (c *Config) OptFloat(keys ...string) (f float64, ok bool, err error) {
	v, key, _ := c.Find(keys...)
	if v == nil {
		return 0, false, nil
	}
	num, isNum := v.(pyjson.Number)
	if !isNum {
		return 0, false, c.bad(key, v, "a number")
	}
	return num.Float64(), true, nil
}

// Float is OptFloat for a value that must be there.
func (c *Config) Float(keys ...string) (float64, error) {
	f, ok, err := c.OptFloat(keys...)
	if err == nil && !ok {
		err = c.missing(keys)
	}
	return f, err
}

// Bool gives a boolean, or def when the key is missing or null.
func (c *Config) Bool(key string, def bool) (bool, error) {
	v, _, _ := c.Find(key)
	if v == nil {
		return def, nil
	}
	b, ok := v.(bool)
	if !ok {
		return def, c.bad(key, v, "true or false")
	}
	return b, nil
}

// OptString gives the string under the first present key.
func (c *Config) OptString(keys ...string) (s string, ok bool, err error) {
	v, key, _ := c.Find(keys...)
	if v == nil {
		return "", false, nil
	}
	if s, ok = v.(string); !ok {
		return "", false, c.bad(key, v, "a string")
	}
	return s, true, nil
}

// Object gives a nested object; nil when the key is missing or null.
func (c *Config) Object(key string) (*pyjson.Object, error) {
	v, _, _ := c.Find(key)
	if v == nil {
		return nil, nil
	}
	o, ok := v.(*pyjson.Object)
	if !ok {
		return nil, c.bad(key, v, "an object")
	}
	return o.Clone(), nil
}
