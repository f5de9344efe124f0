package model

import "errors"

var (
	// ErrConfig marks a config that is not valid JSON, lacks a key or gives
	// it a value of the wrong kind.
	ErrConfig = errors.New("bad model config")
	// ErrArchitecture marks an architecture that quern does not know.
	ErrArchitecture = errors.New("unknown architecture")
	// ErrTensors marks a model whose tensors are not those that its
	// architecture has: missing, left over or of another shape.
	ErrTensors = errors.New("tensors do not fit the architecture")
	// ErrForm marks a step that wants a model of another form.
	ErrForm = errors.New("model has another form")
)
