package chat

import (
	"github.com/ardanlabs/jinja"

	"quern/internal/pyjson"
)

// value gives the library's form of a JSON value.
func value(v any) jinja.Value {
	switch v := v.(type) {
	case *pyjson.Object:
		d := jinja.NewDict()
		for _, k := range v.Keys() {
			x, _ := v.Get(k)
			d.AsDict().Set(k, value(x))
		}
		return d
	case []any:
		out := make([]jinja.Value, len(v))
		for i := range v {
			out[i] = value(v[i])
		}
		return jinja.NewList(out)
	case pyjson.Number:
		if n, ok := v.Int64(); ok {
			return jinja.NewInt(n)
		}
		return jinja.NewFloat(v.Float64())
	}
	return jinja.FromGoValue(v)
}
