package convert

import (
	"fmt"
	"slices"
	"testing"

	"quern/internal/testmodel"
)

// expertMath is what an expert makes of x, without the nonlinearity: every value
// of its three matrices counts, and none can stand for another.
func expertMath(gate, up, down func(row, col int) float32, width int, x []float32) []float64 {
	y := make([]float64, len(x))
	for f := range width {
		var g, u float64
		for c := range x {
			g += float64(float64(gate(f, c)) * float64(x[c]))
			u += float64(float64(up(f, c)) * float64(x[c]))
		}
		gu := float64(g * u)
		for r := range y {
			y[r] += float64(float64(down(r, f)) * gu)
		}
	}
	return y
}

// TestExpertsByFamily converts the same expert out of the three ways that
// checkpoints store it and holds the products of every expert against those of the
// checkpoint's own matrices. The rows of queries are permuted in one family and
// stay in the other; those of experts and router stay in both.
func TestExpertsByFamily(t *testing.T) {
	const hidden, width, experts = 16, 3, 2
	const l = "model.layers.0."
	// matrix reads the values that the toy gives a tensor, from value first on.
	matrix := func(name string, cols, size, first int) func(row, col int) float32 {
		v := testmodel.Values(name, size)
		return func(row, col int) float32 { return v[first+row*cols+col] }
	}
	type three struct{ gate, up, down func(row, col int) float32 }
	for _, c := range []struct {
		name, router string
		permuted     bool // rows of queries
		build        func(t *testing.T) *toy
		source       func(e int) three
	}{
		{"mixtral, w1 w2 w3", l + "block_sparse_moe.gate.weight", true, func(t *testing.T) *toy {
			m := newToy(t)
			m.config["architectures"], m.config["model_type"] = []string{"MixtralForCausalLM"}, "mixtral"
			m.config["num_local_experts"], m.config["num_experts_per_tok"], m.config["intermediate_size"] = experts, 1, width
			m.drop("mlp")
			m.add(l+"block_sparse_moe.gate.weight", experts, hidden)
			for e := range experts {
				p := fmt.Sprintf("%sblock_sparse_moe.experts.%d.", l, e)
				m.add(p+"w1.weight", width, hidden)
				m.add(p+"w2.weight", hidden, width)
				m.add(p+"w3.weight", width, hidden)
			}
			return m
		}, func(e int) three {
			p := fmt.Sprintf("%sblock_sparse_moe.experts.%d.", l, e)
			return three{matrix(p+"w1.weight", hidden, width*hidden, 0), matrix(p+"w3.weight", hidden, width*hidden, 0), matrix(p+"w2.weight", width, width*hidden, 0)}
		}},
		{"qwen3moe, single experts", l + "mlp.gate.weight", false, func(t *testing.T) *toy {
			m := moeToy(t)
			for e := range experts {
				p := fmt.Sprintf("%smlp.experts.%d.", l, e)
				m.add(p+"gate_proj.weight", width, hidden)
				m.add(p+"up_proj.weight", width, hidden)
				m.add(p+"down_proj.weight", hidden, width)
			}
			return m
		}, func(e int) three {
			p := fmt.Sprintf("%smlp.experts.%d.", l, e)
			return three{matrix(p+"gate_proj.weight", hidden, width*hidden, 0), matrix(p+"up_proj.weight", hidden, width*hidden, 0), matrix(p+"down_proj.weight", width, width*hidden, 0)}
		}},
		{"qwen3moe, fused", l + "mlp.gate.weight", false, func(t *testing.T) *toy {
			m := moeToy(t)
			m.add(l+"mlp.experts.gate_up_proj", experts, 2*width, hidden)
			m.add(l+"mlp.experts.down_proj", experts, hidden, width)
			return m
		}, func(e int) three {
			const both, all = 2 * width * hidden, experts * 2 * width * hidden
			return three{
				matrix(l+"mlp.experts.gate_up_proj", hidden, all, e*both),
				matrix(l+"mlp.experts.gate_up_proj", hidden, all, e*both+width*hidden),
				matrix(l+"mlp.experts.down_proj", width, experts*hidden*width, e*hidden*width),
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := c.build(t).mustConvert(t, "f32")
			gate, up, down := values(t, g.Tensor("blk.0.ffn_gate_exps.weight")), values(t, g.Tensor("blk.0.ffn_up_exps.weight")), values(t, g.Tensor("blk.0.ffn_down_exps.weight"))
			x := testmodel.Values("x", hidden)
			for e := range experts {
				at := func(v []float32, cols int) func(row, col int) float32 {
					return func(row, col int) float32 { return v[e*width*hidden+row*cols+col] }
				}
				s := c.source(e)
				want := expertMath(s.gate, s.up, s.down, width, x)
				if got := expertMath(at(gate, hidden), at(up, hidden), at(down, width), width, x); !slices.Equal(got, want) {
					t.Errorf("expert %d computes %v, in the checkpoint %v", e, got, want)
				}
			}
			if !slices.Equal(values(t, g.Tensor("blk.0.ffn_gate_inp.weight")), testmodel.Values(c.router, experts*hidden)) {
				t.Error("rows of the router were moved")
			}
			q := testmodel.Values(l+"self_attn.q_proj.weight", hidden*hidden)
			want := slices.Clone(q)
			if c.permuted {
				// Two heads of 8 rows: row i of a head's first half goes to 2i,
				// of its second half to 2i+1.
				for r := range hidden {
					to := r/8*8 + 2*(r%4) + r%8/4
					copy(want[to*hidden:(to+1)*hidden], q[r*hidden:(r+1)*hidden])
				}
			}
			if !slices.Equal(values(t, g.Tensor("blk.0.attn_q.weight")), want) {
				t.Error("rows of the queries are not in the family's order")
			}
		})
	}
}
