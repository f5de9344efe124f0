package pipeline

import "errors"

var (
	// ErrLayout marks an emitter's plan that contradicts itself: a fault of
	// quern, never of the input.
	ErrLayout = errors.New("inconsistent layout")
	// ErrSource marks a source that cannot be reached, read or trusted.
	ErrSource = errors.New("source failed")
	// ErrRecipe marks a recipe that asks for what cannot be done.
	ErrRecipe = errors.New("recipe cannot be built")
	// ErrLocked marks a difference from the lock file under --locked.
	ErrLocked = errors.New("differs from the lock file")
	// ErrGate marks a written artifact that fails one of its gates.
	ErrGate = errors.New("gate failed")
)
