package quantize

import (
	"fmt"
	"sort"
	"strconv"
	"strings"

	"quern/tensor"
)

// ftype is one of llama-quantize's file types: a number for general.file_type,
// the type that most tensors get, and the mix rules that go with the name.
type ftype struct {
	name string
	id   uint32
	def  tensor.Type
}

// ftypes is llama.cpp v0.5.0's list of the names that llama-quantize takes.
var ftypes = []ftype{
	{"F32", 0, tensor.F32},
	{"F16", 1, tensor.F16},
	{"Q4_0", 2, tensor.Q4_0},
	{"Q4_1", 3, tensor.Q4_1},
	{"Q8_0", 7, tensor.Q8_0},
	{"Q5_0", 8, tensor.Q5_0},
	{"Q5_1", 9, tensor.Q5_1},
	{"Q2_K", 10, tensor.Q2_K},
	{"Q3_K_S", 11, tensor.Q3_K},
	{"Q3_K_M", 12, tensor.Q3_K},
	{"Q3_K_L", 13, tensor.Q3_K},
	{"Q4_K_S", 14, tensor.Q4_K},
	{"Q4_K_M", 15, tensor.Q4_K},
	{"Q5_K_S", 16, tensor.Q5_K},
	{"Q5_K_M", 17, tensor.Q5_K},
	{"Q6_K", 18, tensor.Q6_K},
	{"IQ2_XXS", 19, tensor.IQ2_XXS},
	{"IQ2_XS", 20, tensor.IQ2_XS},
	{"Q2_K_S", 21, tensor.Q2_K},
	{"IQ3_XS", 22, tensor.IQ3_S},
	{"IQ3_XXS", 23, tensor.IQ3_XXS},
	{"IQ1_S", 24, tensor.IQ1_S},
	{"IQ4_NL", 25, tensor.IQ4_NL},
	{"IQ3_S", 26, tensor.IQ3_S},
	{"IQ3_M", 27, tensor.IQ3_S},
	{"IQ2_S", 28, tensor.IQ2_XS},
	{"IQ2_M", 29, tensor.IQ2_S},
	{"IQ4_XS", 30, tensor.IQ4_XS},
	{"IQ1_M", 31, tensor.IQ1_M},
	{"BF16", 32, tensor.BF16},
	{"TQ1_0", 36, tensor.TQ1_0},
	{"TQ2_0", 37, tensor.TQ2_0},
	{"MXFP4_MOE", 38, tensor.MXFP4},
	{"Q1_0", 40, tensor.Q1_0},
	{"Q2_0", 41, tensor.Q2_0},
}

// aliases are the short names that llama-quantize takes for its medium mixes.
var aliases = map[string]string{"Q3_K": "Q3_K_M", "Q4_K": "Q4_K_M", "Q5_K": "Q5_K_M"}

// Presets lists the preset names, aliases included, in byte-wise order.
func Presets() []string {
	var out []string
	for _, f := range ftypes {
		out = append(out, f.name)
	}
	for a := range aliases {
		out = append(out, a)
	}
	sort.Strings(out)
	return out
}

// ParsePreset gives the name of a preset that is written in any letter case or
// as its number.
func ParsePreset(s string) (string, error) {
	if n, err := strconv.ParseUint(s, 10, 31); err == nil {
		for _, f := range ftypes {
			if uint64(f.id) == n {
				// The tool's table has the short name first.
				for short, long := range aliases {
					if long == f.name {
						return short, nil
					}
				}
				return f.name, nil
			}
		}
	}
	if _, err := presetByName(s); err != nil {
		return "", err
	}
	return strings.ToUpper(s), nil
}

func presetByName(name string) (ftype, error) {
	up := strings.ToUpper(name)
	if a, ok := aliases[up]; ok {
		up = a
	}
	for _, f := range ftypes {
		if f.name == up {
			return f, nil
		}
	}
	return ftype{}, fmt.Errorf("%w: %q is no preset of llama-quantize; there are %s", ErrPreset, name, strings.Join(Presets(), ", "))
}

// ftypeOfType gives the file type that `llama-quantize --pure` with one tensor
// type would write: the first name whose default is that type.
func ftypeOfType(t tensor.Type) (ftype, bool) {
	order := map[tensor.Type]string{
		// Several names share these types; the plain one is meant.
		tensor.Q2_K: "Q2_K", tensor.Q3_K: "Q3_K_M", tensor.Q4_K: "Q4_K_M", tensor.Q5_K: "Q5_K_M",
		tensor.IQ3_S: "IQ3_S", tensor.IQ2_XS: "IQ2_XS", tensor.IQ2_S: "IQ2_M",
	}
	want := order[t]
	for _, f := range ftypes {
		if f.def == t && (want == "" || f.name == want) {
			return f, true
		}
	}
	return ftype{}, false
}
