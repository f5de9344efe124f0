package quant

import "quern/tensor"

// decoders is indexed by type. The writable types are those whose entry is a
// Codec.
var decoders = [...]Decoder{
	tensor.F64:    f64{},
	tensor.F32:    f32{},
	tensor.F16:    f16{},
	tensor.BF16:   bf16{},
	tensor.F8E4M3: f8e4m3{},
	tensor.F8E5M2: f8e5m2{},

	tensor.Q1_0: q1_0{},
	tensor.Q2_0: q2_0{},
	tensor.Q4_0: q4_0{},
	tensor.Q4_1: q4_1{},
	tensor.Q5_0: q5_0{},
	tensor.Q5_1: q5_1{},
	tensor.Q8_0: q8_0{},

	tensor.Q2_K:    q2_K{},
	tensor.Q3_K:    q3_K{},
	tensor.Q4_K:    q4_K{},
	tensor.Q5_K:    q5_K{},
	tensor.Q6_K:    q6_K{},
	tensor.TQ1_0:   tq1_0{},
	tensor.TQ2_0:   tq2_0{},
	tensor.IQ1_S:   iq1_S{},
	tensor.IQ1_M:   iq1_M{},
	tensor.IQ2_XXS: iq2_XXS{},
	tensor.IQ2_XS:  iq2_XS{},
	tensor.IQ2_S:   iq2_S{},
	tensor.IQ3_XXS: iq3_XXS{},
	tensor.IQ3_S:   iq3_S{},
	tensor.IQ4_NL:  iq4_NL{},
	tensor.IQ4_XS:  iq4_XS{},
	tensor.MXFP4:   mxfp4{},
	tensor.NVFP4:   nvfp4{},

	tensor.KMCUQ4: kmcuQ4{},
}
