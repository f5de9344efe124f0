package recipes

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// checkOutputFile demands a file name that means the same file, inside the
// output folder, on every system.
func checkOutputFile(s string) error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%s is not an output file: %s", quote(s), fmt.Sprintf(format, args...))
	}
	switch {
	case strings.ContainsRune(s, '\\'):
		return bad(`write / between folders, not \`)
	case strings.HasPrefix(s, "/"):
		return bad("it must be relative to the output folder")
	case strings.HasSuffix(s, "/"):
		return bad("it names a folder")
	case len(s) >= 2 && s[1] == ':':
		return bad("it starts with a drive letter")
	}
	for _, r := range s {
		if r < 0x20 || r == 0x7f || strings.ContainsRune(`<>:"|?*`, r) {
			return bad("%q is not allowed in file names everywhere", r)
		}
	}
	for part := range strings.SplitSeq(s, "/") {
		switch {
		case part == "":
			return bad("it has an empty part")
		case part == "..":
			return bad(`".." leaves the output folder`)
		case strings.HasSuffix(part, ".") || strings.HasSuffix(part, " "):
			return bad("the part %s ends with a dot or a space, which Windows drops", quote(part))
		case strings.HasPrefix(part, " "):
			return bad("the part %s starts with a space", quote(part))
		case len(part) > 200:
			return bad("a part has %d bytes, at most 200 are allowed", len(part))
		case reserved(part):
			return bad("%s is a device name on Windows", quote(part))
		}
	}
	return nil
}

// reserved reports whether Windows opens a device under the name, whatever its
// extension.
func reserved(part string) bool {
	stem, _, _ := strings.Cut(part, ".")
	stem = strings.ToUpper(strings.TrimRight(stem, " "))
	switch stem {
	case "CON", "PRN", "AUX", "NUL", "CONIN$", "CONOUT$":
		return true
	}
	rest, ok := strings.CutPrefix(stem, "COM")
	if !ok {
		rest, ok = strings.CutPrefix(stem, "LPT")
	}
	return ok && utf8.RuneCountInString(rest) == 1 && strings.Contains("0123456789¹²³", rest)
}

// foldPath maps names that a file system without letter case takes for one
// another to one string.
func foldPath(s string) string {
	return strings.Map(func(r rune) rune {
		// The smallest rune of the folding orbit stands for all.
		least := r
		for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
			least = min(least, f)
		}
		return least
	}, s)
}

// checkOutputs demands that no two outputs are the same file and none is a
// folder of another.
func (c *checker) checkOutputs(outs []Output) {
	first := map[string]int{}
	for i, o := range outs {
		if o.File == "" {
			continue
		}
		path := fmt.Sprintf("outputs.%d.file", i)
		fold := foldPath(o.File)
		j, taken := first[fold]
		switch {
		case !taken:
			first[fold] = i
		case outs[j].File == o.File:
			c.errorf(o.Pos, path, "%s is written by outputs.%d already", quote(o.File), j)
		default:
			c.errorf(o.Pos, path, "%s and %s of outputs.%d are one file where letter case does not count", quote(o.File), quote(outs[j].File), j)
		}
	}
	for i, o := range outs {
		fold := foldPath(o.File)
		for k := range len(fold) {
			if fold[k] != '/' {
				continue
			}
			if j, taken := first[fold[:k]]; taken {
				c.errorf(o.Pos, fmt.Sprintf("outputs.%d.file", i), "%s is a file of outputs.%d and cannot be a folder too", quote(outs[j].File), j)
			}
		}
	}
}
