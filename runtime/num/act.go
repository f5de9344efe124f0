package num

// Sigmoid is 1 / (1 + e^-x).
func Sigmoid(x float32) float32 { return 1 / (1 + Exp(-x)) }

// SiLU is x times its sigmoid.
func SiLU(x float32) float32 { return x / (1 + Exp(-x)) }

// GELU is the tanh form: x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), written
// as x times the sigmoid of twice the argument, which is the same function and
// needs no tanh.
func GELU(x float32) float32 {
	const twiceRoot = 1.5957691216057307117597842397375 // 2 sqrt(2/pi)
	cube := float32(float32(x*x) * x)
	return x / (1 + Exp(float32(-twiceRoot*(x+float32(0.044715*cube)))))
}

// Tanh is the hyperbolic tangent, with an absolute error of 1e-7: near zero it
// has fewer right digits than x.
func Tanh(x float32) float32 { return 1 - 2/(Exp(float32(2*x))+1) }

// SiLUMul replaces each g[i] by SiLU(g[i]) * u[i]; both have one length.
func SiLUMul(g, u []float32) {
	u = u[:len(g)]
	n := siluMul(g, u)
	siluMulScalar(g[n:], u[n:])
}

func siluMulScalar(g, u []float32) {
	for i, v := range g {
		g[i] = float32(SiLU(v) * u[i])
	}
}

// GELUMul replaces each g[i] by GELU(g[i]) * u[i]; both have one length.
func GELUMul(g, u []float32) {
	u = u[:len(g)]
	n := geluMul(g, u)
	geluMulScalar(g[n:], u[n:])
}

func geluMulScalar(g, u []float32) {
	for i, v := range g {
		g[i] = float32(GELU(v) * u[i])
	}
}
