package artifacts

import (
	"fmt"
	"strings"
)

// MinPrefix is the shortest beginning of a digest, in hex digits, that Resolve
// takes.
const MinPrefix = 8

// maxNameLen keeps names readable in listings; OCI sets no limit.
const maxNameLen = 255

// CheckName reports why s cannot be a name. Names follow the grammar of OCI's
// ref.name annotation: letters and digits in runs, joined by one of - . _ : @
// + / or by --. A name that reads like a digest is refused, since it would hide
// what it seems to mean.
func CheckName(s string) error {
	if s == "" {
		return fmt.Errorf("%w: empty", ErrName)
	}
	if len(s) > maxNameLen {
		return fmt.Errorf("%w %.40q...: %d characters, the limit is %d", ErrName, s, len(s), maxNameLen)
	}
	alnum := func(c byte) bool {
		return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
	}
	for i := 0; i < len(s); i++ {
		switch {
		case alnum(s[i]):
			continue
		case !strings.ContainsRune("-._:@+/", rune(s[i])):
			return fmt.Errorf("%w %q: %q at position %d; use letters, digits and - . _ : @ + /", ErrName, s, s[i], i)
		}
		double := s[i] == '-' && i+1 < len(s) && s[i+1] == '-'
		next := i + 1
		if double {
			next++
		}
		if i == 0 || next >= len(s) || !alnum(s[next]) {
			return fmt.Errorf("%w %q: %q at position %d must stand between letters or digits", ErrName, s, s[i], i)
		}
		i = next
	}
	if strings.HasPrefix(s, "sha256:") || len(s) >= MinPrefix && len(s) <= 64 && isHex(s) {
		return fmt.Errorf("%w %q: it reads like a digest; choose another", ErrName, s)
	}
	return nil
}

func isHex(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// digestPrefix reads a digest or the beginning of one. ok is false when ref
// does not look like either.
func digestPrefix(ref string) (hex string, ok bool, err error) {
	hex, prefixed := strings.CutPrefix(ref, "sha256:")
	if !isHex(hex) || len(hex) > 64 {
		if prefixed {
			return "", false, fmt.Errorf("%w %.90q: after sha256: come up to 64 lower-case hex digits", ErrName, ref)
		}
		return "", false, nil
	}
	if len(hex) < MinPrefix {
		if prefixed {
			return "", false, fmt.Errorf("%w %q: give at least %d hex digits", ErrName, ref, MinPrefix)
		}
		return "", false, nil
	}
	return hex, true, nil
}
