package convert

import (
	"fmt"
	"strings"

	"quern/model"
	"quern/tensor"
)

// outTypes pairs the names of --outtype with types and the numbers of
// general.file_type.
var outTypes = []struct {
	name     string
	typ      tensor.Type
	fileType int64
}{{"f32", tensor.F32, 0}, {"f16", tensor.F16, 1}, {"bf16", tensor.BF16, 32}, {"q8_0", tensor.Q8_0, 7}}

// outType is a resolved output type.
type outType struct {
	name     string
	typ      tensor.Type
	fileType int64
}

// resolveOutType reads the option; auto takes the type of the first tensor with
// two dimensions or more that has 16 bits, in file order, else F16.
func resolveOutType(name string, f model.Family, tensors []*tensor.Tensor) (outType, error) {
	switch name = strings.ToLower(name); name {
	case "":
		name = "f16"
	case "auto":
		name = "f16"
		for _, t := range tensors {
			if len(t.Shape) >= 2 && dropped(f, t.Name) == "" && (t.Type == tensor.BF16 || t.Type == tensor.F16) {
				name = strings.ToLower(t.Type.String())
				break
			}
		}
	}
	names := []string{"auto"}
	for _, o := range outTypes {
		if o.name == name {
			return outType(o), nil
		}
		names = append(names, o.name)
	}
	return outType{}, fmt.Errorf("%w %q; known are %s", ErrOutType, name, strings.Join(names, ", "))
}

// typeOf decides the type of one output tensor and says why. What is small or
// sensitive stays in float32; rows that do not divide into blocks fall back to
// F16.
func (o outType) typeOf(id model.ID, shape tensor.Shape) (tensor.Type, string) {
	switch {
	case len(shape) <= 1 && id.Role.IsNorm():
		return tensor.F32, "norm: F32"
	case len(shape) <= 1:
		return tensor.F32, "one dimension: F32"
	case id.Suffix == ".weight" && id.Role.IsNorm():
		return tensor.F32, "norm: F32"
	case id.Role == model.FFNGateInp || id.Role == model.FFNGateInpShexp:
		return tensor.F32, "router: F32"
	case id.Role == model.SSMConv1D:
		return tensor.F32, "convolution: F32"
	case id.Suffix != ".weight":
		return tensor.F32, "no weight: F32"
	}
	if block := o.typ.BlockValues(); shape.RowLen()%block != 0 {
		return tensor.F16, fmt.Sprintf("rows of %d are no multiple of %d: F16 instead of %s", shape.RowLen(), block, o.typ)
	}
	return o.typ, "outtype " + o.name
}
