package verify

import (
	"fmt"
	"reflect"
	"strconv"

	"quern/formats/gguf"
)

// describe shows a value next to another one: of arrays the kind and the first
// element that differs, of scalars whose text is the same the type too.
func describe(v, other gguf.Value) string {
	s := v.String()
	if !v.IsArray() {
		if s == other.String() {
			return s + " (" + v.Kind() + ")"
		}
		return s
	}
	if !other.IsArray() || v.Elem() != other.Elem() {
		return s
	}
	x, y := reflect.ValueOf(v.Any()), reflect.ValueOf(other.Any())
	for i := range x.Len() {
		if i >= y.Len() || !x.Index(i).Equal(y.Index(i)) {
			e := fmt.Sprint(x.Index(i))
			if x.Index(i).Kind() == reflect.String {
				e = strconv.Quote(e)
			}
			return fmt.Sprintf("%s, [%d] = %s", s, i, e)
		}
	}
	return s
}
