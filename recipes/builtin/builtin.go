// Package builtin holds recipes for published models, which the program carries
// along: what was built for a television box, an old tablet and microcontrollers,
// from the same repositories. They are recipes like any other, so --set changes
// where they take a model from and what they do to it.
package builtin

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"quern/recipes"
)

//go:embed *.yaml
var files embed.FS

// Prefix marks the name of a recipe of this package where a path could stand.
const Prefix = "builtin:"

// ErrUnknown marks a name that no recipe has.
var ErrUnknown = errors.New("no built-in recipe")

// Names lists the recipes in order of their names.
func Names() []string {
	list, err := fs.Glob(files, "*.yaml")
	if err != nil {
		panic(err) // a bad pattern
	}
	for i, f := range list {
		list[i] = strings.TrimSuffix(f, ".yaml")
	}
	slices.Sort(list)
	return list
}

// Cut gives the name behind Prefix; ok is false for a path.
func Cut(arg string) (name string, ok bool) { return strings.CutPrefix(arg, Prefix) }

// Text gives a recipe as it is written. The error wraps ErrUnknown.
func Text(name string) ([]byte, error) {
	b, err := files.ReadFile(name + ".yaml")
	if err != nil {
		return nil, fmt.Errorf("%w is called %q; there are %s", ErrUnknown, name, strings.Join(Names(), ", "))
	}
	return b, nil
}

// About gives the first line of a recipe's opening comment: what it makes.
func About(name string) string {
	text, err := Text(name)
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(string(text), "\n")
	return strings.TrimSpace(strings.TrimPrefix(line, "#"))
}

// Parse checks a recipe, with changes. Paths of its sources start at the current
// folder. The error wraps ErrUnknown or is that of recipes.Parse.
func Parse(name string, opt recipes.Options) (*recipes.Recipe, error) {
	text, err := Text(name)
	if err != nil {
		return nil, err
	}
	r, err := recipes.Parse(Prefix+name, text, opt)
	if err != nil {
		return nil, err
	}
	r.Dir = "."
	return r, nil
}
