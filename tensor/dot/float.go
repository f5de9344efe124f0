package dot

// floatRows is the number of weight rows decoded at once for float32
// activations.
const floatRows = 4

// mulFloat decodes weight rows and multiplies them with all activation rows.
func (k *Kernel) mulFloat(dst []float32, stride int, w []byte, b *Batch, s *Scratch) {
	width := k.width
	if len(s.rows) < floatRows*width {
		s.rows = make([]float32, floatRows*width)
	}
	rows, plain, rowBytes, group := len(w)/k.rowBytes, w, k.rowBytes, 0
	for r := 0; r < rows; r += floatRows {
		n := min(rows-r, floatRows)
		if k.layout != nil {
			if n = min(n, k.Rows()-r%k.Rows()); r%k.Rows() == 0 {
				plain, rowBytes, group = k.group(w, r, s), k.plainBytes, r
			}
		}
		for i := range n {
			decode(k.decoder, s.rows[i*width:(i+1)*width], plain[(r-group+i)*rowBytes:][:rowBytes], s)
		}
		dotFloats(dst[r:], stride, n, s.rows[:floatRows*width], b.floats[:b.rows*width], width)
	}
}

// dotFloatsScalar multiplies the first n of floatRows rows with the rows of x.
// Results of a row of x lie together, those of the next stride further.
func dotFloatsScalar(dst []float32, stride, n int, rows, x []float32, width int) {
	for t := range len(x) / width {
		out, x := dst[t*stride:][:n], x[t*width:(t+1)*width]
		for i := range out {
			out[i] = number(dotFloat(rows[i*width:(i+1)*width], x))
		}
	}
}

// dotFloat is the product of two rows in the package's order.
func dotFloat(w, x []float32) float32 {
	var l [lanes]float32
	for len(x) >= lanes {
		a, b := (*[lanes]float32)(w), (*[lanes]float32)(x)
		for j := range l {
			l[j] += float32(a[j] * b[j])
		}
		w, x = w[lanes:], x[lanes:]
	}
	for j := range x {
		l[j] += float32(w[j] * x[j])
	}
	return ((l[0] + l[4]) + (l[2] + l[6])) + ((l[1] + l[5]) + (l[3] + l[7]))
}
