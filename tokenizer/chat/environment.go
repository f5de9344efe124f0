package chat

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ardanlabs/jinja"
)

// state is one rendering under way.
type state struct {
	refused *string // the message of raise_exception
	calls   int     // macros inside macros
	numbers int     // of ranges, all together
	now     time.Time
}

// named are arguments by name.
type named = map[string]jinja.Value

// environment is what a template finds beside its input.
func (s *state) environment() map[string]jinja.Value {
	out := map[string]jinja.Value{}
	for name, f := range map[string]func(args []jinja.Value, kw named) (jinja.Value, error){
		"range":               s.span,
		"dict":                dictOf,
		"raise_exception":     s.raise,
		enterMacro:            s.enter,
		leaveMacro:            s.leave,
		filterMark + "tojson": toJSON,
		filterMark + "string": show,
		printed:               show,
	} {
		out[name] = jinja.NewCallable(name, f)
	}
	out["strftime_now"] = jinja.Undefined()
	if !s.now.IsZero() {
		out["strftime_now"] = jinja.NewCallable("strftime_now", s.strftime)
	}
	return out
}

// raise ends the rendering with a message of the template.
func (s *state) raise(args []jinja.Value, _ named) (jinja.Value, error) {
	text := ""
	if len(args) > 0 {
		text = printedText(args[0])
	}
	if s.refused == nil {
		s.refused = &text
	}
	return jinja.Undefined(), errors.New(text)
}

// enter and leave stand at both ends of every macro.
func (s *state) enter([]jinja.Value, named) (jinja.Value, error) {
	if s.calls++; s.calls > maxCalls {
		return jinja.Undefined(), fmt.Errorf("more than %d macros inside one another", maxCalls)
	}
	return jinja.NewBool(false), nil
}

func (s *state) leave([]jinja.Value, named) (jinja.Value, error) {
	s.calls--
	return jinja.NewBool(false), nil
}

// span is range: not without bounds.
func (s *state) span(args []jinja.Value, _ named) (jinja.Value, error) {
	var n [3]int64
	for i, a := range args {
		if i == len(n) || !a.IsInt() {
			return jinja.Undefined(), errors.New("range takes one to three whole numbers")
		}
		n[i] = a.AsInt()
	}
	start, stop, step := int64(0), n[0], int64(1)
	switch len(args) {
	case 0:
		return jinja.Undefined(), errors.New("range takes one to three whole numbers")
	case 2, 3:
		start, stop = n[0], n[1]
		if len(args) == 3 {
			step = n[2]
		}
	}
	if step == 0 {
		return jinja.Undefined(), errors.New("range: a step of 0")
	}
	var out []jinja.Value
	for i := start; step > 0 && i < stop || step < 0 && i > stop; i += step {
		if s.numbers++; s.numbers > maxRange {
			return jinja.Undefined(), fmt.Errorf("more than %d numbers of ranges", maxRange)
		}
		out = append(out, jinja.NewInt(i))
	}
	return jinja.NewList(out), nil
}

// dictOf is dict(a=1). The library does not tell the order of named arguments, so
// it is that of the names.
func dictOf(args []jinja.Value, kw named) (jinja.Value, error) {
	out := jinja.NewDict()
	if len(args) > 0 && args[0].IsDict() {
		for _, k := range args[0].AsDict().OrderedKeys() {
			v, _ := args[0].AsDict().Get(k)
			out.AsDict().Set(k, v)
		}
	}
	names := make([]string, 0, len(kw))
	for name := range kw {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		out.AsDict().Set(name, kw[name])
	}
	return out, nil
}
