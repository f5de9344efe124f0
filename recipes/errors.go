package recipes

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// ErrRecipe marks every error in a recipe's text or in a --set value, as
// opposed to a file that cannot be read.
var ErrRecipe = errors.New("bad recipe")

// Error is one fault of a recipe.
type Error struct {
	Pos Pos
	// Path names the value as --set does, steps.0.quantize.type, and is empty
	// for faults of the text as a whole.
	Path string
	Msg  string
}

// Error writes file:line:column: path: message, without the path where the
// position is an override that says it.
func (e *Error) Error() string {
	if e.Path == "" || e.Pos.Line == 0 && strings.HasSuffix(e.Pos.File, " "+e.Path) {
		return fmt.Sprintf("%v: %s", e.Pos, e.Msg)
	}
	return fmt.Sprintf("%v: %s: %s", e.Pos, e.Path, e.Msg)
}

// Unwrap gives ErrRecipe.
func (e *Error) Unwrap() error { return ErrRecipe }

// Errors are all faults of a recipe, those of the file sorted by position and
// those of --set values after them.
type Errors []*Error

// maxShown bounds the message; the list itself is whole.
const maxShown = 50

// Error writes one fault a line.
func (e Errors) Error() string {
	var b strings.Builder
	for i, x := range e {
		if i == maxShown {
			fmt.Fprintf(&b, "\nand %d more", len(e)-i)
			break
		}
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(x.Error())
	}
	return b.String()
}

// Unwrap gives ErrRecipe.
func (e Errors) Unwrap() error { return ErrRecipe }

func (e Errors) sort() {
	slices.SortStableFunc(e, func(a, b *Error) int {
		as, bs := a.Pos.Line == 0, b.Pos.Line == 0
		if as != bs {
			if as {
				return 1
			}
			return -1
		}
		return cmp.Or(cmp.Compare(a.Pos.Line, b.Pos.Line), cmp.Compare(a.Pos.Column, b.Pos.Column))
	})
}
