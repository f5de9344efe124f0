//go:build !linux

package resident

// Pages are none where the system says nothing of its mappings.
type Pages struct{}

// Find finds nothing.
func Find() (Pages, error) { return Pages{}, nil }

// Release does nothing.
func (Pages) Release() error { return nil }
