// Package chat turns the messages of a conversation into the prompt that a model
// was trained on, by the chat template of its vocabulary: a Jinja text with the
// environment that transformers gives it.
//
// That environment, beside Jinja's own: blocks are trimmed (trim_blocks,
// lstrip_blocks), break and continue work, tojson is Python's json.dumps without
// ASCII escapes, raise_exception ends the rendering with its message, and
// strftime_now gives the date, here only if the caller says which it is. Mappings
// keep the order of their keys. A template reads no file, and what comes out of a
// vocabulary is not trusted: its size, brackets inside brackets, ranges and macros
// inside macros have limits.
package chat

import (
	"errors"
	"fmt"
	"time"

	"github.com/ardanlabs/jinja"

	"quern/internal/pyjson"
)

var (
	// ErrTemplate marks a template that cannot be read or rendered.
	ErrTemplate = errors.New("chat template")
	// ErrRefused marks a conversation that the template itself refuses, by
	// raise_exception. It is an ErrTemplate too.
	ErrRefused = fmt.Errorf("%w refuses the conversation", ErrTemplate)
	// ErrMessages marks messages that are no list of objects.
	ErrMessages = errors.New("bad messages")
)

// Bounds of a template and of what it makes.
const (
	maxSource = 256 << 10 // bytes
	maxNested = 400       // brackets inside brackets
	maxOutput = 64 << 20  // bytes of JSON
	maxRange  = 100_000   // numbers of a range, as in Jinja's sandbox
	maxCalls  = 200       // macros inside macros
)

// Template is a chat template. It may be used by several goroutines at once.
type Template struct{ t *jinja.Template }

// Parse reads a template. Errors wrap ErrTemplate.
func Parse(source string) (t *Template, err error) {
	if len(source) > maxSource {
		return nil, fmt.Errorf("%w of %d bytes: at most %d", ErrTemplate, len(source), maxSource)
	}
	if n := nested(source); n > maxNested {
		return nil, fmt.Errorf("%w has %d brackets inside one another: at most %d", ErrTemplate, n, maxNested)
	}
	defer guard(&err)
	inner, err := jinja.Compile(prepare(source))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrTemplate, err)
	}
	return &Template{inner}, nil
}

// nested counts brackets that are open at once, those in plain text included.
func nested(source string) int {
	open, most := 0, 0
	for i := range len(source) {
		switch source[i] {
		case '(', '[', '{':
			if open++; open > most {
				most = open
			}
		case ')', ']', '}':
			if open > 0 {
				open--
			}
		}
	}
	return most
}

// Input is what a template is rendered with.
type Input struct {
	// Messages are the conversation: objects with role, content and whatever else
	// the template knows, such as tool_calls.
	Messages []any
	// Tools are JSON schemas of functions, nil for none.
	Tools []any
	// Generate asks for the beginning of an answer at the end.
	Generate bool
	// Variables are further names, such as bos_token or enable_thinking. They
	// beat those above.
	Variables map[string]any
	// Now is the time that strftime_now shows. While it is zero the template has no
	// such function: many have a date of their own for that case.
	Now time.Time
}

// guard turns a panic of the library into an error.
func guard(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("%w: %v", ErrTemplate, p)
	}
}

// Render gives the prompt of a conversation. Values are those of package pyjson.
// Errors wrap ErrTemplate, ErrRefused or ErrMessages.
func (t *Template) Render(in Input) (out string, err error) {
	for i, m := range in.Messages {
		if _, ok := m.(*pyjson.Object); !ok {
			return "", fmt.Errorf("%w: message %d is %s; want an object with role and content", ErrMessages, i, pyjson.Kind(m))
		}
	}
	s := &state{now: in.Now}
	data := s.environment()
	data["messages"] = value(in.Messages)
	data["add_generation_prompt"] = jinja.NewBool(in.Generate)
	data["tools"], data["documents"] = jinja.None(), jinja.None()
	if in.Tools != nil {
		data["tools"] = value(in.Tools)
	}
	for name, v := range in.Variables {
		data[name] = value(v)
	}
	defer guard(&err)
	out, err = t.t.RenderValues(data)
	switch {
	case s.refused != nil:
		return "", fmt.Errorf("%w: %s", ErrRefused, *s.refused)
	case err != nil:
		return "", fmt.Errorf("%w: %w", ErrTemplate, err)
	}
	return out, nil
}
