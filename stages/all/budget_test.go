package all_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"quern/pipeline"
	"quern/recipes"
	"quern/stages/all"
	"quern/stages/gates"
	"quern/tensor"
	"quern/verify"
)

func budgetRecipe(step string) string {
	return strings.Replace(mixed, "type: Q8_0, rules: [{match: 'ffn_down', type: Q4_0}]", step, 1)
}

// TestBudget: the file stays within the budget and uses it, whatever the number
// of jobs; more bytes never give a larger error; rules go first.
func TestBudget(t *testing.T) {
	b := newBench(t)
	worst := 0.0
	var smaller string
	for i, kib := range []int64{900, 1000, 1200, 1600, 2200} {
		text := budgetRecipe(fmt.Sprintf("budget: %dKiB, rules: [{match: 'attn_v', type: Q5_0}]", kib))
		res := b.build(text)
		o := res.Outputs[0]
		if o.Size > kib<<10 || o.Size < (kib<<10)*9/10 {
			t.Errorf("a budget of %d KiB: %d bytes", kib, o.Size)
		}
		if o.SHA256.Hex() == smaller {
			t.Errorf("a budget of %d KiB gives the file of the one before", kib)
		}
		smaller = o.SHA256.Hex()
		opt := b.options()
		opt.Jobs, opt.NoCache, opt.Store, opt.OutDir = 1+6*(i%2), true, nil, t.TempDir()
		again, err := b.try(text, opt)
		if err != nil || again.Outputs[0].SHA256 != o.SHA256 {
			t.Errorf("a budget of %d KiB with %d jobs: %v, other bytes", kib, opt.Jobs, err)
		}
		sum := errorOf(t, b, text, o.Path)
		if i > 0 && sum >= worst {
			t.Errorf("a budget of %d KiB: error %g, more than %g of a smaller one", kib, sum, worst)
		}
		worst = sum
	}
}

// errorOf sums, over the tensors that the budget decides, the squared errors
// relative to the tensor's own squares: what a budget without an importance
// matrix makes small.
func errorOf(t *testing.T, b *bench, text, path string) float64 {
	t.Helper()
	r, err := recipes.Parse("recipe.yaml", []byte(strings.ReplaceAll(text, "DIR", b.dir)), recipes.Options{})
	if err != nil {
		t.Fatal(err)
	}
	r.Steps = nil
	prj, err := all.Project(r, b.env())
	if err != nil {
		t.Fatal(err)
	}
	plan, err := pipeline.NewPlan(t.Context(), prj, pipeline.PlanOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer plan.Close()
	want, err := gates.Reference(t.Context(), verify.GGUF, plan.Reference)
	if err != nil {
		t.Fatal(err)
	}
	blob, err := tensor.OpenFile(path)
	if err != nil {
		t.Fatal(err)
	}
	defer blob.Close()
	_, got, err := verify.Tensors(t.Context(), path, blob)
	if err != nil {
		t.Fatal(err)
	}
	rep, err := verify.Compare(t.Context(), got, want, verify.Options{})
	if err != nil {
		t.Fatal(err)
	}
	sum := 0.0
	for _, row := range rep.Rows {
		if !strings.Contains(row.Name, "attn_v") && !math.IsInf(float64(row.SNRdB), 0) {
			sum += math.Pow(10, -float64(row.SNRdB)/10)
		}
	}
	return sum
}

// TestBudgetFaults: what cannot be is the recipe's fault.
func TestBudgetFaults(t *testing.T) {
	b := newBench(t)
	for _, c := range []struct{ step, want string }{
		{"budget: 100KiB", "over the budget"},
		{"bits-per-weight: 1.5", "over the budget"},
		{"budget: 1MiB, types: [F64]", "F64"},
		{"budget: 1MiB, types: [IQ2_XXS]", "importance matrix"},
	} {
		_, err := b.try(budgetRecipe(c.step), b.options())
		if !errors.Is(err, pipeline.ErrRecipe) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.step, err)
		}
	}
}

// TestBudgetBeatsOneType: with the bytes of one type for all, the measured choice
// has less error than that type.
func TestBudgetBeatsOneType(t *testing.T) {
	b := newBench(t)
	one := b.build(budgetRecipe("type: Q4_0"))
	plain := errorOf(t, b, mixed, one.Outputs[0].Path)
	mix := b.build(budgetRecipe(fmt.Sprintf("budget: %d", one.Outputs[0].Size+1100)))
	if mix.Outputs[0].Size > one.Outputs[0].Size+1100 {
		t.Fatalf("%d bytes, one type takes %d", mix.Outputs[0].Size, one.Outputs[0].Size)
	}
	if e := errorOf(t, b, mixed, mix.Outputs[0].Path); e >= plain {
		t.Errorf("error %g with a budget, %g with one type of the same bytes", e, plain)
	}
}

// TestBudgetRecords: what the choice of types was made of is on record as a whole,
// the side files that the conversion reads included.
func TestBudgetRecords(t *testing.T) {
	b := newBench(t)
	want := b.build(mixed).Sources[0].Files
	if got := b.build(budgetRecipe("budget: 1MiB")).Sources[0].Files; len(want) < 4 || len(got) != len(want) {
		t.Errorf("recorded %v, without a budget %v", got, want)
	}
}
