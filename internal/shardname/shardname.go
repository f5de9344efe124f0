// Package shardname knows the names of the files that a large one is split into:
//
//	STEM-00001-of-00003.EXT
//
// GGUF and safetensors name the shards of a model so, and whoever keeps files
// without knowing their formats can tell by it what belongs together.
package shardname

import (
	"fmt"
	"strings"
)

// Join names shard i of n, where the first is 1. ext has its dot.
func Join(stem string, i, n int, ext string) string {
	return fmt.Sprintf("%s-%05d-of-%05d%s", stem, i, n, ext)
}

// form is what stands between a stem and its ending, 0 for any digit.
const form = "-00000-of-00000"

// Split takes a name with the ending ext apart. The stem keeps the folder; i and n
// are the numbers as they stand there, whether or not there can be such a shard.
func Split(name, ext string) (stem string, i, n int, ok bool) {
	stem, ok = strings.CutSuffix(name, ext)
	if !ok || len(stem) < len(form) {
		return "", 0, 0, false
	}
	stem, numbers := stem[:len(stem)-len(form)], stem[len(stem)-len(form):]
	for k := range len(form) {
		c := numbers[k]
		switch {
		case form[k] != '0':
			if c != form[k] {
				return "", 0, 0, false
			}
		case c < '0' || c > '9':
			return "", 0, 0, false
		case k <= len("00000"):
			i = 10*i + int(c-'0')
		default:
			n = 10*n + int(c-'0')
		}
	}
	return stem, i, n, true
}
