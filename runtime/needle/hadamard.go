package needle

import "quern/runtime/num"

// walsh adds the Hadamard layer of generation 2 of h to x:
//
//	z = (d1 * h) H    z = silu(d2 * z) H    x += d3 * z
func (p *shape) walsh(x, h []float32, l *hadamard, sc *scratch) {
	z := grow(&sc.z, p.hada)
	clear(z[copy(z, h):])
	num.Mul(z, l.d1)
	transform(z)
	for i, v := range z {
		z[i] = num.SiLU(float32(l.d2[i] * v))
	}
	transform(z)
	for i := range x {
		x[i] += float32(l.d3[i] * z[i])
	}
}

// transform is the product with Sylvester's matrix over sqrt(len(x)), neighbours
// first; len(x) is a power of two.
func transform(x []float32) {
	for h := 1; h < len(x); h *= 2 {
		for i := 0; i < len(x); i += 2 * h {
			a, b := x[i:i+h], x[i+h:i+2*h]
			for j, u := range a {
				v := b[j]
				a[j], b[j] = u+v, u-v
			}
		}
	}
	num.Scale(x, 1/num.Sqrt(float32(len(x))))
}

// shuffle adds the Hadamard layer of generation 3 of h to x, with K a step of
// Kronecker factors and p1, p2 the model's permutations:
//
//	cond = 1 + softmax(h V) U
//	z = K1(d1 * h)[p1]    z = K2(silu(d2 * cond * z + b2))[p2]    x += d4 * K3(d3 * z)
func (m *Model) shuffle(x, h []float32, l *hadamard, sc *scratch) {
	p := m.p
	n, rank := p.hada, l.rank
	room := grow(&sc.z, 3*n+rank)
	z, y, cond, mix := room[:n], room[n:2*n], room[2*n:3*n], room[3*n:]
	num.Dots(mix, rank, num.Matrix{Data: l.condV, Rows: rank, Stride: p.d}, num.Matrix{Data: h, Rows: 1, Stride: p.d}, p.d)
	num.Softmax(mix)
	num.WeightedSum(cond, mix, num.Matrix{Data: l.condU, Rows: rank, Stride: n})

	clear(z[copy(z, h):])
	num.Mul(z, l.d1)
	p.step(y, z, &l.kron[0], sc)
	for i, from := range m.w.p1 {
		z[i] = num.SiLU(float32(float32(l.d2[i]*(1+cond[i]))*y[from]) + l.b2[i])
	}
	p.step(y, z, &l.kron[1], sc)
	for i, from := range m.w.p2 {
		z[i] = float32(l.d3[i] * y[from])
	}
	p.step(y, z, &l.kron[2], sc)
	for i := range x {
		x[i] += float32(l.d4[i] * y[i])
	}
}

// step writes A^T z B to dst, z and dst as matrices of a rows and b columns.
func (p *shape) step(dst, z []float32, k *kronecker, sc *scratch) {
	t := grow(&sc.t, p.a*p.b)
	num.Dots(t, p.b, num.Matrix{Data: k.b, Rows: p.b, Stride: p.b}, num.Matrix{Data: z, Rows: p.a, Stride: p.b}, p.b)
	for i := range p.a {
		num.WeightedSum(dst[i*p.b:][:p.b], k.a[i*p.a:][:p.a], num.Matrix{Data: t, Rows: p.a, Stride: p.b})
	}
}
