package tokenizer

import (
	"math/rand"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/dlclark/regexp2"
)

// pieces cuts s at the matches of a matcher.
func pieces(t testing.TB, m matcher, s string) []string {
	t.Helper()
	cuts, err := cutText(s, m, false)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, c := range cuts {
		if c.start < c.end {
			out = append(out, s[c.start:c.end])
		}
	}
	return out
}

var scanPools = []string{
	"abcXYZ", "    ", "\n\r\t\v\u0085\u00a0\u2003\u3000", "0123456789", "\u0663\u0967\u216b\u00bd", "'sSdDtTmMlLvVrReE", "\u017f'",
	"\u00e9\u00df\u00f1", "e\u0301a\u0300\u0323", "\u4f60\u597d", "\u304b\u30ab", "\ud55c", "\u0645\u0631", "\u0939\u093f", "\U0001f680\u200d\ufe0f",
	"-=+*/|~!@#$%^&*()[]{};:\"<>,.?", "\u200b\ufeff", "\u0378\U000e0100", "\x00\x01\x7f",
}

func randomText(rng *rand.Rand) string {
	var b strings.Builder
	for n := rng.Intn(24); n > 0; n-- {
		pool := []rune(scanPools[rng.Intn(len(scanPools))])
		for k := 1 + rng.Intn(3); k > 0; k-- {
			b.WriteRune(pool[rng.Intn(len(pool))])
		}
	}
	return b.String()
}

// TestWordRules holds the scanners against the patterns they stand for, run by
// the general engine.
func TestWordRules(t *testing.T) {
	rng := rand.New(rand.NewSource(5))
	for _, pattern := range []string{patternGPT2, patternLlama3, patternQwen2, patternQwen35} {
		rule, ok := ruleFor(pattern)
		if !ok {
			t.Fatalf("no rule for %s", pattern)
		}
		re, err := regexp2.Compile(pattern, regexp2.Multiline)
		if err != nil {
			t.Fatal(err)
		}
		// The engine does not fold U+017F to s; the scanner is asked not to.
		rule.longS = false
		for i := 0; i < 3000; i++ {
			s := randomText(rng)
			got := pieces(t, ruleMatcher{rule.fast()}, s)
			want := pieces(t, regexMatcher{re}, s)
			if strings.Join(got, "\x1e") != strings.Join(want, "\x1e") {
				t.Fatalf("%s\n%q:\n got %q\nwant %q", pattern, s, got, want)
			}
		}
	}
}

func TestTranslateOniguruma(t *testing.T) {
	for _, c := range []struct{ in, out string }{
		{`a?+b`, `(?>a?)b`},
		{`[^\r\n\p{L}]?+\p{L}+`, `(?>[^\r\n\p{L}]?)\p{L}+`},
		{`(?:ab|c)++d`, `(?>(?:ab|c)+)d`},
		{`\p{N}*+x`, `(?>\p{N}*)x`},
		{`a+?b`, `a+?b`},
		{`a{2}+`, `a{2}+`},
		{`x{y`, `x{y`},
		{`é++`, `(?>é+)`},
		{`[^(\s|[.,!])]+`, `[^(\s|.,!)]+`},
		{`[]a]`, `[]a]`},
		{`[\[\]]`, `[\[\]]`},
		{`\w`, `[` + wordClass + `]`},
		{`[^\w\s]`, `[^` + wordClass + `\s]`},
		{`(?i:'s)|(?=x)(?!y)`, `(?i:'s)|(?=x)(?!y)`},
	} {
		got, err := translateOniguruma(c.in)
		if err != nil || got != c.out {
			t.Errorf("%s: %s, %v; want %s", c.in, got, err, c.out)
		}
	}
	for _, bad := range []string{`[a`, `[a[^b]]`, `[a&&b]`, `[[:alpha:]]`} {
		if got, err := translateOniguruma(bad); err == nil {
			t.Errorf("%s became %s", bad, got)
		}
	}
}

func TestByteAlphabet(t *testing.T) {
	seen := map[rune]bool{}
	for i := 0; i < 256; i++ {
		r := byteChar(byte(i))
		b, ok := charByte(r)
		if !ok || b != byte(i) || seen[r] {
			t.Errorf("byte %02X is %U, which is %02X %v", i, r, b, ok)
		}
		seen[r] = true
	}
	for b, want := range map[byte]rune{0: 0x100, ' ': 0x120, '!': '!', '~': '~', 0x7F: 0x121, 0xA0: 0x142, 0xA1: 0xA1, 0xAD: 0x143, 0xFF: 0xFF} {
		if byteChar(b) != want {
			t.Errorf("byte %02X is %U, want %U", b, byteChar(b), want)
		}
	}
	for _, r := range []rune{' ', 0x7F, 0xA0, 0xAD, 0x144, 0x2581} {
		if b, ok := charByte(r); ok {
			t.Errorf("%U is byte %02X", r, b)
		}
	}
}

func TestLossyUTF8(t *testing.T) {
	for in, want := range map[string]string{
		"abc\u00e9":        "abc\u00e9",
		"\xff":             "\ufffd",
		"a\xe2\x82b":       "a\ufffdb",                 // one for the longest start of a character
		"\xe2\x82\xe2":     "\ufffd\ufffd",             //
		"\xf0\x9f\x98":     "\ufffd",                   //
		"\xed\xa0\x80":     "\ufffd\ufffd\ufffd",       // a surrogate begins nothing
		"\xc0\x80":         "\ufffd\ufffd",             // nor does an overlong form
		"\xf5\x80":         "\ufffd\ufffd",             //
		"\xf4\x90\x80\x80": "\ufffd\ufffd\ufffd\ufffd", // past U+10FFFF
		"\x80\xe2\x82\xac": "\ufffd\u20ac",
	} {
		if got := lossyUTF8(in); got != want || !utf8.ValidString(got) {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
	// Byte by byte, and lenient.
	for in, want := range map[string]string{"\xe2\x82": "\ufffd\ufffd", "\xc1\x81": "A", "\xff\x41": "\ufffdA"} {
		if got := looseUTF8(in); got != want {
			t.Errorf("loose %q: %q, want %q", in, got, want)
		}
	}
}

// TestFastRules holds the scanners with tables against the plain ones.
func TestFastRules(t *testing.T) {
	rng := rand.New(rand.NewSource(6))
	for _, rule := range []wordRule{{gpt2: true}, {maxDigits: 3}, {maxDigits: 1}, {maxDigits: 1, longS: true}, {maxDigits: 1, marks: true}} {
		fast := rule.fast()
		for i := 0; i < 20000; i++ {
			s := looseUTF8(countText(rng))
			for at := 0; at < len(s); {
				want := at + rule.next(s[at:])
				if got := fast.next(s, at); got != want {
					t.Fatalf("%+v %q: the word at %d ends at %d, want %d", rule, s, at, got, want)
				}
				at = want
			}
		}
	}
}

// TestBailing: the rule cuts as the pattern does.
func TestBailing(t *testing.T) {
	rng := rand.New(rand.NewSource(7))
	rule, ok := patternRule(cutBailing)
	if !ok {
		t.Fatal("no rule")
	}
	expr, classes := expandClasses(cutBailing)
	re, err := regexp2.Compile(expr, regexp2.ECMAScript)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < 3000; i++ {
		s := looseUTF8(countText(rng))
		var got, want []string
		rule.fast().words(s, func(start, end int) { got = append(got, s[start:end]) })
		if err := cutCollapsed(re, s, classes, func(w string) { want = append(want, w) }); err != nil {
			t.Fatal(err)
		}
		if strings.Join(got, "\x1e") != strings.Join(want, "\x1e") {
			t.Fatalf("%q:\n got %q\nwant %q", s, got, want)
		}
	}
}
