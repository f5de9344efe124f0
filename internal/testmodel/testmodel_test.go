package testmodel

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestInputs holds every made file against the digest of the one that the real
// converter was given.
func TestInputs(t *testing.T) {
	goldens, err := filepath.Glob(filepath.Join(Root(), "convert", "*.json"))
	if err != nil || len(goldens) == 0 {
		t.Fatalf("no goldens: %v", err)
	}
	for _, g := range goldens {
		text, err := os.ReadFile(g)
		if err != nil {
			t.Fatal(err)
		}
		var doc struct {
			Model  string
			Inputs map[string]string
		}
		if json.Unmarshal(text, &doc) != nil || doc.Model == "" {
			continue // a golden of another kind
		}
		t.Run(doc.Model, func(t *testing.T) {
			files, err := Build(doc.Model)
			if err != nil {
				t.Fatal(err)
			}
			if len(files) != len(doc.Inputs) {
				t.Errorf("%d files, the golden has %d", len(files), len(doc.Inputs))
			}
			for name, want := range doc.Inputs {
				sum := sha256.Sum256(files[name])
				if got := hex.EncodeToString(sum[:]); got != want {
					t.Errorf("%s: SHA-256 %s, want %s", name, got, want)
				}
			}
		})
	}
}

func TestHalf(t *testing.T) {
	cases := map[float32]uint16{
		0: 0, 1: 0x3c00, -2: 0xc000, 0.1: 0x2e66, 0x1p-14: 0x0400, 0x1p-24: 1, 0x1p-25: 0, 0x1.8p-24: 2,
		0x1.ffep-15: 0x0400, 1 + 0x1p-11: 0x3c00, 1 + 0x3p-11: 0x3c02, 0x1.ffep0: 0x4000,
	}
	for v, want := range cases {
		if got := halfOf(v); got != want {
			t.Errorf("%v: %#04x, want %#04x", v, got, want)
		}
	}
	if strings.Contains(Root(), "internal/testmodel/testdata") {
		t.Error("Root stays inside the package")
	}
}
