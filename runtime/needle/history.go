package needle

// history holds the last rows of a stream that a causal convolution reads; rows
// before the start are zero.
type history struct {
	rows  []float32 // (keep, width)
	next  []float32
	keep  int
	width int
}

func (h *history) reset(keep, width int) {
	h.keep, h.width = keep, width
	clear(grow(&h.rows, keep*width))
	grow(&h.next, keep*width)
}

// convolve replaces n new rows x by taps[0]*x[t] + taps[1]*x[t-dilation] + ... and
// remembers them as they were.
func (h *history) convolve(x, taps []float32, dilation, n int) {
	w := h.width
	// What is to be remembered: the end of the old rows and of the new ones.
	next := h.next[:h.keep*w]
	if n < h.keep {
		copy(next[copy(next, h.rows[n*w:h.keep*w]):], x[:n*w])
	} else {
		copy(next, x[(n-h.keep)*w:n*w])
	}
	count := len(taps) / w
	for t := n - 1; t >= 0; t-- { // backwards: a row is needed by later ones only
		row := x[t*w:][:w]
		for i, v := range taps[:w] {
			row[i] = float32(v * row[i])
		}
		for j := 1; j < count; j++ {
			at := t - j*dilation
			var old []float32
			if at >= 0 {
				old = x[at*w:][:w]
			} else {
				old = h.rows[(h.keep+at)*w:][:w]
			}
			for i, v := range taps[j*w:][:w] {
				row[i] += float32(v * old[i])
			}
		}
	}
	h.rows, h.next = h.next, h.rows
}
