package a

func bare(x, y, z float32) float32 {
	return x*y + z // want "float product may be fused"
}

func converted(x, y, z float32) float32 {
	return float32(x*y) + z
}

func acrossStatements(x, y, z float32) float32 {
	t := x * y // want "float product may be fused"
	return t + z
}

func inlined(x, y float32) float32 {
	return x * y // want "float product may be fused"
}

func sum(x []float32) (s float32) {
	for _, v := range x {
		s += v * v // want "float product may be fused"
	}
	return s
}

func scaled(x, y float32) float32 {
	x *= y // want "float product may be fused"
	return x
}

func factors(x, y, z float32) float32 {
	return float32(x * y * z)
}

func compared(x, y, z float32) bool { return x*y > z }

func negated(x, y, z float32) float32 {
	return z + -(x * y) // want "float product may be fused"
}

func double(x, y, z float64) float64 {
	return z - x*y // want "float product may be fused"
}

func integers(x, y, z int) int { return x*y + z }

const c = 2.0 * 3.0

func generic[T ~float32 | ~float64](x, y, z T) T {
	return x*y + z // want "float product may be fused"
}
