package tokenizer

import (
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
)

func readValue(text string, loose bool) (any, error) {
	r, err := newJSONReader("x.json", []byte(text), loose)
	if err != nil {
		return nil, err
	}
	v, err := r.value()
	if err != nil {
		return nil, err
	}
	return v, r.end()
}

func TestJSONValues(t *testing.T) {
	for _, c := range []struct {
		text string
		want any
	}{
		{` null `, nil},
		{`[true, false,[]]`, []any{true, false, []any{}}},
		{`[0,-1,1.5e+3,12]`, []any{jsonNumber("0"), jsonNumber("-1"), jsonNumber("1.5e+3"), jsonNumber("12")}},
		{`"a\"\\\/\b\f\n\r\tA\u00e9\ud83e\udd99é🦙"`, "a\"\\/\b\f\n\r\tAé🦙é🦙"},
		{`""`, ""},
	} {
		got, err := readValue(c.text, false)
		if err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %#v, %v; want %#v", c.text, got, err, c.want)
		}
	}
	v, err := readValue(`[Infinity,-Infinity,NaN]`, true)
	if err != nil {
		t.Fatal(err)
	}
	l := v.([]any)
	if !math.IsInf(l[0].(float64), 1) || !math.IsInf(l[1].(float64), -1) || !math.IsNaN(l[2].(float64)) {
		t.Errorf("%v", l)
	}
}

func TestJSONObjects(t *testing.T) {
	v, err := readValue(`{"b":1,"a":{"x":null},"b":[2]}`, false)
	if err != nil {
		t.Fatal(err)
	}
	o := v.(*jsonObject)
	if strings.Join(o.keys, "") != "ba" || len(o.dups) != 1 || o.dups[0] != "b" {
		t.Errorf("keys %v, repeated %v", o.keys, o.dups)
	}
	if !reflect.DeepEqual(o.get("b"), []any{jsonNumber("2")}) {
		t.Errorf("the later value should count: %v", o.get("b"))
	}
	if !o.object("a").has("x") || o.object("a").get("x") != nil || o.object("c").has("x") {
		t.Error("null and absent are mixed up")
	}
	c := o.clone()
	c.set("b", "changed")
	if _, ok := o.get("b").([]any); !ok {
		t.Error("changing a copy changed the original")
	}
}

func TestJSONRejects(t *testing.T) {
	deep := strings.Repeat("[", maxJSONDepth+1) + strings.Repeat("]", maxJSONDepth+1)
	for _, c := range []struct{ text, want string }{
		{"", "unexpected end"},
		{"{", "x.json:1:2"},
		{`{"a" 1}`, "x.json:1:6"},
		{`{"a":1,}`, "x.json:1:8"},
		{`[1,]`, "x.json:1:4"},
		{`[1 2]`, "x.json:1:4"},
		{`[,1]`, "x.json:1:2"},
		{"[1,\n 2,\n x]", "x.json:3:2"},
		{`1 2`, "after"},
		{`"a`, "unfinished"},
		{`"a\`, "unfinished"},
		{"\"a\nb\"", "control character"},
		{"\"\\u00e9\nb\"", "control character"},
		{`"\x41"`, "escape"},
		{`"\u12"`, "unfinished escape"},
		{`"\u12g4"`, "hexadecimal"},
		{`"\ud83e"`, "lone surrogate"},
		{`"\udd99"`, "lone surrogate"},
		{`"\ud83e\u0041"`, "lone surrogate"},
		{`"\ud83ex"`, "lone surrogate"},
		{"\"\xff\"", "UTF-8"},
		{"\ufeff1", "byte order mark"},
		{"01", "number"},
		{"-", "number"},
		{"1.", "number"},
		{"1e", "number"},
		{"+1", "unexpected"},
		{"NaN", "unexpected"},
		{"Infinity", "unexpected"},
		{"-Infinity", "number"},
		{"nul", "unexpected"},
		{"truex", "after"},
		{deep, "nested"},
	} {
		_, err := readValue(c.text, false)
		if !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.40q: error %v, want %q", c.text, err, c.want)
		}
	}
}
