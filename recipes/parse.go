package recipes

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// Options change how a recipe is read. The zero value is right for most.
type Options struct {
	// Set holds key=value overrides in order, as --set gives them. See set.go
	// for how keys name a place in the recipe.
	Set []string
	// MaxBytes is the longest text accepted; 0 means DefaultMaxBytes.
	MaxBytes int64
}

func (o Options) maxBytes() int64 {
	if o.MaxBytes > 0 {
		return o.MaxBytes
	}
	return DefaultMaxBytes
}

// ReadFile reads and checks the recipe at path. Faults of its text come as
// Errors, all of them at once.
func ReadFile(path string, opt Options) (*Recipe, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("recipe: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, opt.maxBytes()+1))
	if err != nil {
		return nil, fmt.Errorf("recipe %s: %w", path, err)
	}
	return Parse(path, text, opt)
}

// Parse checks a recipe's text. name is its file name in messages, and its
// folder is where relative source paths start.
func Parse(name string, text []byte, opt Options) (*Recipe, error) {
	c := &checker{lang: theLanguage()}
	r := c.parse(name, text, opt)
	if len(c.errs) > 0 {
		c.errs.sort()
		return nil, c.errs
	}
	return r, nil
}

func (c *checker) parse(name string, text []byte, opt Options) *Recipe {
	if limit := opt.maxBytes(); int64(len(text)) > limit {
		c.errorf(Pos{name, 1, 1}, "", "the file is over %d bytes; is it a recipe?", limit)
		return nil
	}
	n := c.parseYAML(name, text)
	if n == nil {
		return nil
	}
	if n.kind != mapping || n.bad {
		if !n.bad {
			c.errorf(n.pos, "", "a recipe is a mapping that starts with version: 1, not %s", n.what())
		}
		return nil
	}
	for _, s := range opt.Set {
		c.set(n, s)
	}
	r := c.recipe(n)
	if r != nil {
		r.File, r.Dir = name, filepath.Dir(name)
	}
	return r
}
