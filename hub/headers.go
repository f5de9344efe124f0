package hub

import (
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// contentRange is a parsed Content-Range: bytes Start to End (inclusive) of
// Total. Total is -1 for "*". In a 416 answer only Total is known and
// Unsatisfied is set.
type contentRange struct {
	Start, End, Total int64
	Unsatisfied       bool
}

// parseContentRange reads RFC 9110 section 14.4, unit bytes only.
func parseContentRange(s string) (contentRange, error) {
	bad := func(why string) (contentRange, error) {
		return contentRange{}, fmt.Errorf("Content-Range %q: %s", clean(s), why)
	}
	unit, rest, ok := strings.Cut(strings.TrimSpace(s), " ")
	if !ok || !strings.EqualFold(unit, "bytes") {
		return bad("want \"bytes START-END/TOTAL\"")
	}
	span, total, ok := strings.Cut(strings.TrimSpace(rest), "/")
	if !ok {
		return bad("no total")
	}
	r := contentRange{Total: -1}
	if total != "*" {
		if r.Total, ok = parseDigits(total); !ok {
			return bad("bad total")
		}
	}
	if span == "*" {
		if r.Total < 0 {
			return bad("neither a range nor a total")
		}
		r.Unsatisfied = true
		return r, nil
	}
	a, b, ok := strings.Cut(span, "-")
	if !ok {
		return bad("no range")
	}
	var okA, okB bool
	r.Start, okA = parseDigits(a)
	r.End, okB = parseDigits(b)
	switch {
	case !okA || !okB:
		return bad("bad number")
	case r.End < r.Start:
		return bad("ends before it starts")
	case r.Total >= 0 && r.End >= r.Total:
		return bad("ends after the total")
	case r.End == math.MaxInt64:
		return bad("too large")
	}
	return r, nil
}

// parseDigits reads plain ASCII digits: no sign, no space, no overflow.
func parseDigits(s string) (int64, bool) {
	if s == "" {
		return 0, false
	}
	for i := 0; i < len(s); i++ {
		if s[i] < '0' || s[i] > '9' {
			return 0, false
		}
	}
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil
}

// parseLinkNext finds the target of rel="next" in Link headers (RFC 8288).
func parseLinkNext(values []string) (string, bool) {
	for _, v := range values {
		for v != "" {
			open := strings.IndexByte(v, '<')
			if open < 0 {
				break
			}
			v = v[open+1:]
			end := strings.IndexByte(v, '>')
			if end < 0 {
				break
			}
			target := v[:end]
			var params string
			params, v = cutOutsideQuotes(v[end+1:], ',')
			if linkHasRel(params, "next") {
				return target, target != ""
			}
		}
	}
	return "", false
}

func linkHasRel(params, rel string) bool {
	for params != "" {
		var p string
		p, params = cutOutsideQuotes(params, ';')
		k, v, _ := strings.Cut(p, "=")
		if !strings.EqualFold(strings.TrimSpace(k), "rel") {
			continue
		}
		for _, r := range strings.Fields(strings.Trim(strings.TrimSpace(v), `"`)) {
			if strings.EqualFold(r, rel) {
				return true
			}
		}
	}
	return false
}

// cutOutsideQuotes cuts s at the first sep that no quoted string holds.
func cutOutsideQuotes(s string, sep byte) (before, after string) {
	quoted := false
	for i := 0; i < len(s); i++ {
		switch {
		case quoted && s[i] == '\\':
			i++
		case s[i] == '"':
			quoted = !quoted
		case s[i] == sep && !quoted:
			return s[:i], s[i+1:]
		}
	}
	return s, ""
}

// rateLimit is one item of a RateLimit header: Left requests of class Class
// until the window ends in Reset.
type rateLimit struct {
	Class string
	Left  int64
	Reset time.Duration
}

// parseRateLimit reads items like `"resolvers";r=0;t=12` (IETF draft
// ratelimit-headers), separated by commas. Items that it cannot read are left
// out.
func parseRateLimit(values []string) []rateLimit {
	var out []rateLimit
	for _, v := range values {
		for v != "" && len(out) < 16 {
			var item string
			item, v = cutOutsideQuotes(v, ',')
			name, params := cutOutsideQuotes(item, ';')
			rl := rateLimit{Class: clean(strings.Trim(strings.TrimSpace(name), `"`)), Left: -1, Reset: -1}
			for params != "" {
				var p string
				p, params = cutOutsideQuotes(params, ';')
				k, val, _ := strings.Cut(strings.TrimSpace(p), "=")
				n, ok := parseDigits(strings.TrimSpace(val))
				if !ok {
					continue
				}
				switch strings.ToLower(strings.TrimSpace(k)) {
				case "r":
					rl.Left = n
				case "t":
					rl.Reset = seconds(n)
				}
			}
			if rl.Left >= 0 && rl.Reset >= 0 {
				out = append(out, rl)
			}
		}
	}
	return out
}

// seconds is n seconds without overflow; nothing waits a year.
func seconds(n int64) time.Duration {
	const year = 365 * 24 * 3600
	if n > year {
		n = year
	}
	return time.Duration(n) * time.Second
}

// parseRetryAfter reads delay seconds or an HTTP date.
func parseRetryAfter(s string, now time.Time) (time.Duration, bool) {
	s = strings.TrimSpace(s)
	if n, ok := parseDigits(s); ok {
		return seconds(n), true
	}
	t, err := http.ParseTime(s)
	if err != nil {
		return 0, false
	}
	if d := t.Sub(now); d > 0 {
		return min(d, seconds(math.MaxInt64)), true
	}
	return 0, true
}

// retryWait is how long a 429 or 503 asks us to wait: the RateLimit window
// when it is used up, else Retry-After, one second more in each case because
// the server's second may have begun before ours.
func retryWait(h http.Header, now time.Time) (time.Duration, bool) {
	var wait time.Duration
	found := false
	for _, rl := range parseRateLimit(h.Values("RateLimit")) {
		if rl.Left == 0 && rl.Reset >= wait {
			wait, found = rl.Reset, true
		}
	}
	if !found {
		wait, found = parseRetryAfter(h.Get("Retry-After"), now)
	}
	if !found {
		return 0, false
	}
	return wait + time.Second, true
}

// parseETag strips the quotes; weak validators prove nothing about bytes.
func parseETag(s string) (tag string, weak bool) {
	s = strings.TrimSpace(s)
	if rest, ok := strings.CutPrefix(s, "W/"); ok {
		weak, s = true, rest
	}
	return strings.Trim(s, `"`), weak
}

// clean makes a server's text safe for a terminal and a log line.
func clean(s string) string {
	const limit = 300
	s = strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' {
			return ' '
		}
		if r == unicode.ReplacementChar || !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, ""))
	s = strings.TrimSpace(s)
	if r := []rune(s); len(r) > limit {
		s = string(r[:limit]) + "..."
	}
	return s
}
