// Package num holds the arithmetic of the runtime: elementary functions and
// kernels over float32 vectors whose results are the same bits on every
// machine.
//
// Nothing here calls package math's Exp, Log, Pow, Sin or Cos, which have
// assembly of their own on some machines. Products that are added are converted
// explicitly, so that no compiler fuses them. The square root is math.Sqrt, which
// IEEE 754 defines to the last bit.
//
// Sums of products have one order, whatever code computes them: eight lanes, lane
// l adding the products of elements l, l+8, l+16, ... in turn, starting from
// zero, then the tree
//
//	t0 = s0+s4  t1 = s1+s5  t2 = s2+s6  t3 = s3+s7
//	result = (t0+t2) + (t1+t3)
//
// Blocking for caches, workers and tiles of several rows change which sums are
// made together, never the order inside one.
//
// The AVX2 forms do the scalar code's operations lane by lane. Build tag noasm
// leaves them out, the environment variable QUERN_NOASM=1 switches them off.
// The bits of a NaN are not promised: whether it has a sign depends on the
// machine.
package num

//go:generate go -C _gen run . -out ../kernels_amd64.s -stubs ../stubs_amd64.go -pkg num
