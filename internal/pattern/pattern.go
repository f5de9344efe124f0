// Package pattern holds regular expressions that are compiled when they are first
// used. Tables of a program have dozens, and a command uses few.
package pattern

import (
	"regexp"
	"sync"
)

// A Pattern is a regular expression. It is safe for use by several goroutines.
type Pattern struct {
	source   string
	compiled func() *regexp.Regexp
}

// New makes a pattern of an expression in the syntax of package regexp. One that does not
// compile panics when it is used.
func New(source string) *Pattern {
	return &Pattern{source, sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(source) })}
}

// String is the expression.
func (p *Pattern) String() string { return p.source }

// MatchString is regexp.Regexp.MatchString.
func (p *Pattern) MatchString(s string) bool { return p.compiled().MatchString(s) }

// FindStringSubmatch is regexp.Regexp.FindStringSubmatch.
func (p *Pattern) FindStringSubmatch(s string) []string { return p.compiled().FindStringSubmatch(s) }
