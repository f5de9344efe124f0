package pyjson

import (
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	cases := []struct {
		name, text string
		want       any
	}{
		{"null", ` null `, nil},
		{"bools", `[true,false]`, []any{true, false}},
		{"numbers keep their spelling", `[0,-1,1.0,1e5,123456789012345678901234567890]`,
			[]any{Number("0"), Number("-1"), Number("1.0"), Number("1e5"), Number("123456789012345678901234567890")}},
		{"bare constants", `[NaN,Infinity,-Infinity]`, []any{Number("NaN"), Number("Infinity"), Number("-Infinity")}},
		{"escapes", `"a\"\\\/\b\f\n\r\tA\u00e9\ud83e\udd99"`, "a\"\\/\b\f\n\r\tAé🦙"},
		{"lone surrogate", `"\ud83e!"`, "\uFFFD!"},
		{"two high surrogates", `"\ud83e\ud83e\udd99"`, "\uFFFD🦙"},
		{"empty", `[[],"",{}]`, []any{[]any{}, "", &Object{vals: map[string]any{}}}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got, err := Parse([]byte(c.text))
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, c.want) {
				t.Errorf("got %#v, want %#v", got, c.want)
			}
		})
	}
}

func TestObjectOrder(t *testing.T) {
	o, err := ParseObject([]byte(`{"b":1,"a":{"x":[1]},"b":2,"c":null}`))
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(o.Keys(), ""); got != "bac" {
		t.Errorf("keys %q, want bac", got)
	}
	if v, _ := o.Get("b"); v != Number("2") {
		t.Errorf("the last value of b should win, got %v", v)
	}
	if v, ok := o.Get("c"); v != nil || !ok {
		t.Errorf("null is a value, got %v %v", v, ok)
	}
	c := o.Clone()
	a, _ := c.Get("a")
	a.(*Object).Set("x", "changed")
	c.Delete("b")
	c.SetDefault("c", "kept null")
	if got := strings.Join(c.Keys(), ""); got != "ac" {
		t.Errorf("keys after delete %q, want ac", got)
	}
	inner, _ := o.Get("a")
	if x, _ := inner.(*Object).Get("x"); !reflect.DeepEqual(x, []any{Number("1")}) || o.Len() != 3 {
		t.Errorf("the clone shares with the original: %v", x)
	}
}

func TestNumber(t *testing.T) {
	for _, n := range []Number{"1.0", "1e3", "NaN", "Infinity", "99999999999999999999"} {
		if v, ok := n.Int64(); ok {
			t.Errorf("%s: Int64 gives %d", n, v)
		}
	}
	if v, ok := Number("-42").Int64(); v != -42 || !ok {
		t.Errorf("-42: %d %v", v, ok)
	}
	if v := Number("1e400").Float64(); !math.IsInf(v, 1) {
		t.Errorf("1e400: %v", v)
	}
	if v := Number("NaN").Float64(); v == v {
		t.Errorf("NaN: %v", v)
	}
}

func TestParseErrors(t *testing.T) {
	cases := map[string]string{
		``:                        "1:1",
		"{\n \"a\": ,}":           "2:7",
		`{"a":1,}`:                "1:8",
		`{a:1}`:                   "1:2",
		`[1 2]`:                   "1:4",
		`[1,]`:                    "1:4",
		`{"a" 1}`:                 "colon",
		`1 2`:                     "more text",
		`1.`:                      "more text",
		`01`:                      "more text",
		`-`:                       "minus",
		`"abc`:                    "ends inside a string",
		"\"a\nb\"":                "control character",
		`"\x"`:                    "escape",
		`"\u12"`:                  "hex",
		`"\`:                      "escape",
		"\"\xff\"":                "UTF-8",
		"\ufeff{}":                "byte order mark",
		`nul`:                     "want a value",
		`+1`:                      "want a value",
		strings.Repeat("[", 9999): "nested",
	}
	for text, want := range cases {
		_, err := Parse([]byte(text))
		if !errors.Is(err, ErrSyntax) || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: error %v, want one with %q", text, err, want)
		}
	}
	if _, err := ParseObject([]byte(`[]`)); !errors.Is(err, ErrSyntax) {
		t.Errorf("a list is not an object: %v", err)
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{`{"a":[1,2.5,{"b":null}]}`, `"\ud83e\udd99"`, `[NaN,-Infinity]`, `{"a":1,"a":2}`, `-`, `"\`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		v, err := Parse(b)
		if err != nil && !errors.Is(err, ErrSyntax) {
			t.Fatalf("error without ErrSyntax: %v", err)
		}
		if err == nil && !reflect.DeepEqual(cloneValue(v), v) {
			t.Fatal("clone differs")
		}
	})
}
