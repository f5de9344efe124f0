package transformer_test

import (
	"math"
	"testing"

	"quern/model"
	"quern/model/convert"
	"quern/model/order"
	infer "quern/runtime"
	"quern/runtime/transformer"
)

// routes keeps what the routers chose.
type routes struct{ chosen []int }

func (r *routes) Ahead() int { return 1 }

func (r *routes) Route(x infer.Routing) error {
	r.chosen = append(append(r.chosen, x.Chosen...), x.Guess...)
	return nil
}

// TestOrderByUseGivesTheSameLogits: routers with softmax and with sigmoid, a bias on
// the choice, and groups of experts: renumbered experts compute what they did to
// the bit, and the router's choices are in the file's numbers.
func TestOrderByUseGivesTheSameLogits(t *testing.T) {
	for _, name := range []string{"stories-moe", "tiny-mixtral", "tiny-qwen3moe", "tiny-bailingmoe2"} {
		h, err := model.LoadHF(t.Context(), scaled(t, name, nil, 0), model.HFOptions{})
		if err != nil {
			t.Fatal(err)
		}
		g, err := convert.ToGGUF(t.Context(), h, convert.Options{OutType: "f32"})
		if err != nil {
			t.Fatal(err)
		}
		arch, err := g.Meta.Text("general.architecture")
		if err != nil {
			t.Fatal(err)
		}
		experts, err := g.Meta.Int64(arch + ".expert_count")
		if err != nil {
			t.Fatal(err)
		}
		blocks, err := g.Meta.Int64(arch + ".block_count")
		if err != nil {
			t.Fatal(err)
		}
		uses := order.Uses{}
		for b := range int(blocks) {
			uses[b] = make([]int64, experts)
			for e := range uses[b] {
				uses[b][e] = int64((e*5 + b*3) % 7)
			}
		}
		moved, err := order.ByUse(g, uses)
		if err != nil {
			t.Fatal(err)
		}
		from, n, err := order.From(moved.Meta)
		if err != nil || n != int(experts) {
			t.Fatalf("%s: %v", name, err)
		}
		var rows [2][][]float32
		var chose [2]routes
		for i, m := range []*model.Model{g, moved} {
			x, err := transformer.FromGGUF(t.Context(), m)
			if err != nil {
				t.Fatal(err)
			}
			rows[i] = logits(t, x, infer.SessionOptions{Context: 64, Routes: &chose[i]}, []int32{5, 9, 1, 77, 31, 20})
		}
		for i, row := range rows[0] {
			for j, v := range row {
				if math.Float32bits(v) != math.Float32bits(rows[1][i][j]) {
					t.Fatalf("%s: logit %d after token %d is %v, before %v", name, j, i, rows[1][i][j], v)
				}
			}
		}
		if len(chose[0].chosen) == 0 || len(chose[0].chosen) != len(chose[1].chosen) {
			t.Fatalf("%s: %d choices, before %d", name, len(chose[1].chosen), len(chose[0].chosen))
		}
		differ := 0
		for i, e := range chose[0].chosen {
			if e != chose[1].chosen[i] {
				differ++
			}
		}
		same := true
		for i, f := range from {
			same = same && int(f) == i%n
		}
		if same || differ == 0 {
			t.Errorf("%s: the experts did not move, the test shows nothing", name)
		}
	}
}
