package recipes

import (
	"strings"
)

// nearest finds the candidate that was most likely meant, or "". Letter case
// and the choice between - and _ cost nothing.
func nearest(word string, candidates []string) string {
	fold := func(s string) []rune {
		if len(s) > 64 {
			s = s[:64]
		}
		return []rune(strings.ReplaceAll(strings.ToLower(s), "_", "-"))
	}
	w := fold(word)
	best, dist := "", 1+len(w)/3
	for _, c := range candidates {
		f := fold(c)
		if d := editDistance(w, f); d < len(f) && (d < dist || d == dist && best == "") {
			best, dist = c, d
		}
	}
	return best
}

// editDistance counts insertions, deletions, replacements and swaps of
// neighbours (optimal string alignment).
func editDistance(a, b []rune) int {
	prev2, prev, cur := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := 1; i <= len(a); i++ {
		cur[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			cur[j] = min(prev[j]+1, cur[j-1]+1, prev[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				cur[j] = min(cur[j], prev2[j-2]+1)
			}
		}
		prev2, prev, cur = prev, cur, prev2
	}
	return prev[len(b)]
}

// suggest ends a message about an unknown word: with the nearest candidate,
// else with all of them.
func suggest(word string, candidates []string) string {
	if n := nearest(word, candidates); n != "" {
		return "; did you mean " + n + "?"
	}
	if len(candidates) == 0 {
		return ""
	}
	return "; known are " + strings.Join(candidates, ", ")
}
