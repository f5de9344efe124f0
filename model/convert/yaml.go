package convert

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"

	"quern/internal/pattern"
	"quern/internal/pyjson"
)

// Model cards are read with PyYAML by everyone else. It follows YAML 1.1, where
// a bare no is false and 1:30 is a number, so plain scalars are resolved here by
// its rules and the library does only the syntax.
//
// A value becomes nil, bool, int64, float64, string, []any, *pyjson.Object or
// otherYAML.

// otherYAML is a value that no metadata can hold, such as a date.
type otherYAML string

var (
	yamlBool  = pattern.New(`^(?:yes|Yes|YES|no|No|NO|true|True|TRUE|false|False|FALSE|on|On|ON|off|Off|OFF)$`)
	yamlFloat = pattern.New(`^(?:[-+]?[0-9][0-9_]*\.[0-9_]*(?:[eE][-+][0-9]+)?|\.[0-9][0-9_]*(?:[eE][-+][0-9]+)?|[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+\.[0-9_]*|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$`)
	yamlInt   = pattern.New(`^(?:[-+]?0b[0-1_]+|[-+]?0[0-7_]+|[-+]?(?:0|[1-9][0-9_]*)|[-+]?0x[0-9a-fA-F_]+|[-+]?[1-9][0-9_]*(?::[0-5]?[0-9])+)$`)
	yamlNull  = pattern.New(`^(?:~|null|Null|NULL|)$`)
	yamlDate  = pattern.New(`^(?:[0-9]{4}-[0-9]{2}-[0-9]{2}|[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(?:[Tt]|[ \t]+)[0-9]{1,2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]*)?(?:[ \t]*(?:Z|[-+][0-9]{1,2}(?::[0-9]{2})?))?)$`)
)

// parseYAML reads one document.
func parseYAML(text string) (any, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal([]byte(text), &doc); err != nil {
		return nil, err
	}
	if doc.Kind == 0 {
		return nil, nil
	}
	y := &yamlReader{budget: 1 << 16}
	return y.value(&doc, 0)
}

// yamlReader bounds depth and size: aliases can make a small text huge.
type yamlReader struct{ budget int }

func (y *yamlReader) value(n *yaml.Node, depth int) (any, error) {
	if y.budget--; y.budget < 0 || depth > 100 {
		return nil, fmt.Errorf("line %d: too many or too deeply nested values", n.Line)
	}
	switch n.Kind {
	case yaml.DocumentNode:
		if len(n.Content) != 1 {
			return nil, nil
		}
		return y.value(n.Content[0], depth+1)
	case yaml.AliasNode:
		return y.value(n.Alias, depth+1)
	case yaml.SequenceNode:
		out := []any{}
		for _, c := range n.Content {
			v, err := y.value(c, depth+1)
			if err != nil {
				return nil, err
			}
			out = append(out, v)
		}
		return out, nil
	case yaml.MappingNode:
		return y.mapping(n, depth)
	}
	return scalar(n)
}

// mapping keeps string keys only; no other key means anything in a card.
func (y *yamlReader) mapping(n *yaml.Node, depth int) (any, error) {
	own, merged := &pyjson.Object{}, &pyjson.Object{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, node := n.Content[i], n.Content[i+1]
		v, err := y.value(node, depth+1)
		if err != nil {
			return nil, err
		}
		if k.Value == "<<" && plain(k) {
			list, ok := v.([]any)
			if !ok {
				list = []any{v}
			}
			for _, m := range list {
				o, ok := m.(*pyjson.Object)
				if !ok {
					return nil, fmt.Errorf("line %d: << merges mappings only", k.Line)
				}
				for _, key := range o.Keys() {
					val, _ := o.Get(key)
					merged.SetDefault(key, val)
				}
			}
			continue
		}
		if k.Kind == yaml.AliasNode {
			k = k.Alias
		}
		key, err := scalar(k)
		if err != nil {
			return nil, err
		}
		if s, ok := key.(string); ok {
			own.Set(s, v)
		}
	}
	for _, key := range own.Keys() {
		v, _ := own.Get(key)
		merged.Set(key, v)
	}
	return merged, nil
}

func plain(n *yaml.Node) bool {
	return n.Kind == yaml.ScalarNode && n.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle|yaml.TaggedStyle) == 0
}

func scalar(n *yaml.Node) (any, error) {
	if n.Kind != yaml.ScalarNode {
		return otherYAML("a collection as a key"), nil
	}
	s := n.Value
	if n.Style&yaml.TaggedStyle != 0 && n.Tag != "!!str" {
		return nil, fmt.Errorf("line %d: tag %s is not read", n.Line, n.Tag)
	}
	if !plain(n) {
		return s, nil
	}
	switch {
	case yamlNull.MatchString(s):
		return nil, nil
	case yamlBool.MatchString(s):
		switch strings.ToLower(s) {
		case "yes", "true", "on":
			return true, nil
		}
		return false, nil
	case yamlFloat.MatchString(s):
		return floatYAML(s)
	case yamlInt.MatchString(s):
		return intYAML(s)
	case yamlDate.MatchString(s):
		return otherYAML("a date"), nil
	case s == "=" || s == "<<":
		return nil, fmt.Errorf("line %d: a bare %s is no value", n.Line, s)
	}
	return s, nil
}

func floatYAML(s string) (any, error) {
	t := strings.ToLower(strings.ReplaceAll(s, "_", ""))
	sign := 1.0
	switch t[0] {
	case '-':
		sign, t = -1, t[1:]
	case '+':
		t = t[1:]
	}
	switch t {
	case ".inf":
		return math.Inf(int(sign)), nil
	case ".nan":
		return math.NaN(), nil
	}
	sum, base := 0.0, 1.0
	digits := strings.Split(t, ":")
	for i := len(digits) - 1; i >= 0; i-- {
		f, err := strconv.ParseFloat(digits[i], 64)
		if err != nil && !math.IsInf(f, 0) {
			return nil, fmt.Errorf("%q is no number", s)
		}
		sum += float64(f * base)
		base = float64(base * 60)
	}
	return float64(sign * sum), nil
}

// intYAML gives an int64, or a float64 for what does not fit one.
func intYAML(s string) (any, error) {
	t := strings.ReplaceAll(s, "_", "")
	neg := strings.HasPrefix(t, "-")
	t = strings.TrimLeft(t, "+-")
	base := 10
	switch {
	case t == "0":
	case strings.HasPrefix(t, "0b"):
		base, t = 2, t[2:]
	case strings.HasPrefix(t, "0x"):
		base, t = 16, t[2:]
	case strings.HasPrefix(t, "0"):
		base, t = 8, t[1:]
	}
	var n int64
	for part := range strings.SplitSeq(t, ":") {
		d, err := strconv.ParseInt(part, base, 64)
		if err != nil || n > (math.MaxInt64-d)/60 {
			return otherYAML("a number of more than 64 bits"), nil
		}
		n = n*60 + d
	}
	if neg {
		n = -n
	}
	return n, nil
}
