package tokenizer

import (
	"encoding/json"
	"fmt"
	"testing"
)

func unmarshal(t testing.TB, data []byte, v any) {
	t.Helper()
	if err := json.Unmarshal(data, v); err != nil {
		t.Fatal(err)
	}
}

func equalIDs(t testing.TB, what string, got, want []int32) {
	t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%q:\n got %v\nwant %v", what, got, want)
	}
}
