package recipes

import "strings"

// ParseSize reads a size as recipes write it, such as 2MiB, for flags of the
// command line.
func ParseSize(s string) (int64, error) {
	n := &node{tag: "!!str", text: s}
	if s != "" && strings.Trim(s, "0123456789") == "" {
		n.tag = "!!int"
	}
	return parseSize(n)
}
