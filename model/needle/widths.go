package needle

import (
	"errors"
	"fmt"
	"strings"

	"quern/tensor/cq"
)

// ErrBits marks a bits map that is malformed, has no default, or names what no
// tensor is called.
var ErrBits = errors.New("bad bits map")

// Bits says how many bits each matrix gets: by the longest of the names that its
// own, canonical one begins with.
type Bits struct {
	def   cq.Width
	names []string
	by    map[string]cq.Width
}

// OneWidth gives all matrices one width.
func OneWidth(w cq.Width) *Bits { return &Bits{def: w} }

// ParseBits reads a list such as default=2,embedding=4,attn.q_proj=3. Widths are
// 2, 3, 4 and 1.58, and for generation 3 also 1.
func ParseBits(s string) (*Bits, error) {
	b := &Bits{by: map[string]cq.Width{}}
	for _, part := range strings.Split(s, ",") {
		name, value, ok := strings.Cut(part, "=")
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		if !ok || name == "" {
			return nil, fmt.Errorf("%w: %q is not name=bits", ErrBits, part)
		}
		w, err := cq.ParseWidth(value)
		if err != nil || value != w.String() {
			return nil, fmt.Errorf("%w: %s: %w", ErrBits, name, errors.Join(err, nil))
		}
		if name == "default" {
			if b.def != 0 {
				return nil, fmt.Errorf("%w: default comes twice", ErrBits)
			}
			b.def = w
			continue
		}
		if _, dup := b.by[name]; dup {
			return nil, fmt.Errorf("%w: %s comes twice", ErrBits, name)
		}
		b.by[name] = w
		b.names = append(b.names, name)
	}
	if b.def == 0 {
		return nil, fmt.Errorf("%w: default=BITS is missing", ErrBits)
	}
	return b, nil
}

// Canonical is the name that a bits map knows a tensor by: that of the archive
// with layerNN. as attn.
func Canonical(name string) string {
	if len(name) > 8 && strings.HasPrefix(name, "layer") && name[7] == '.' {
		return "attn" + name[7:]
	}
	return name
}

// Of gives the width of a tensor of the archive, and the entry that decided.
func (b *Bits) Of(name string) (w cq.Width, why string) {
	name = Canonical(name)
	best := ""
	for _, n := range b.names {
		if strings.HasPrefix(name, n) && len(n) > len(best) {
			best = n
		}
	}
	if best == "" {
		return b.def, "default"
	}
	return b.by[best], best
}

// unused names the first entry that fits none of the tensors.
func (b *Bits) unused(names []string) string {
	for _, n := range b.names {
		found := false
		for _, name := range names {
			found = found || strings.HasPrefix(Canonical(name), n)
		}
		if !found {
			return n
		}
	}
	return ""
}
