package quant

import (
	"os"
	"regexp"
	"slices"
	"testing"
)

// TestStubs: both processors have the same kernels. Where this fails, the
// generator ran for one of them only; see make generate.
func TestStubs(t *testing.T) {
	kernel := regexp.MustCompile(`(?m)^func \w+SIMD\(.*$`)
	for _, prefix := range []string{"", "iq_"} {
		var found [2][]string
		for i, arch := range []string{"amd64", "arm64"} {
			text, err := os.ReadFile(prefix + "stubs_" + arch + ".go")
			if err != nil {
				t.Fatal(err)
			}
			found[i] = kernel.FindAllString(string(text), -1)
		}
		if len(found[0]) == 0 || !slices.Equal(found[0], found[1]) {
			t.Errorf("%sstubs: amd64 has %q, arm64 %q", prefix, found[0], found[1])
		}
	}
}
