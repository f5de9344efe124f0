// Package needle runs Needle models of generations 2 and 3 out of .cact archives
// and out of the weights of checkpoints.
//
// A token's state is a few lanes of d values, at first its embedding times
// sqrt(d) in each. Every layer mixes the lanes by weights that it reads off all of
// them:
//
//	nx    = lanes, flattened, divided by their root mean square
//	hpre  = sigmoid(a_pre * (phi_pre nx) + b_pre + off)     (lanes)
//	u     = sum of hpre[j] * lane j                         (d)
//	y     = block(u) - u                                    (d)
//	hpost = 2 sigmoid(a_post * (phi_post nx) + b_post + off)
//	hres  = sinkhorn(a_res * (phi_res nx) + b_res)          (lanes, lanes)
//	lanes = hres lanes + hpost y
//
// and its block is
//
//	x += sigmoid(<unit(x), unit(k)> / sqrt(d)) * v          at engram sites
//	x += sigmoid(gate) * norm(out(sigmoid(g n) * attention(n)))   n = norm(x)
//	x += hadamard(norm(x))
//
// with k and v looked up by hashes of the last few tokens. The logits are the
// embedding times the norm of the lanes' mean.
//
// CQ weights stay as they are stored. Activations are put through the
// Walsh-Hadamard transform once instead of every row of a matrix.
//
// With quantization on (W4A8), a vector that enters a quantized matrix is rounded
// to 255 steps: multiples of its greatest magnitude over 127. In generation 3 the
// lanes and the heads of the queries are rounded too.
package needle
