//go:build !linux

package resident

// Pages are none where the system says nothing of its mappings.
type Pages struct{}

// Find finds nothing.
func Find() (Pages, error) { return Pages{}, nil }

// Only is none either.
func (Pages) Only(string) Pages { return Pages{} }

// Release does nothing.
func (Pages) Release() error { return nil }
