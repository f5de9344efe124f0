package all_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"quern/formats/gguf"
	"quern/hub"
	"quern/hub/hubtest"
	"quern/internal/testmodel"
	"quern/model"
	"quern/model/modeltest"
	"quern/pipeline"
	"quern/recipes"
	"quern/recipes/builtin"
	"quern/stages/all"
	"quern/stages/source"
	"quern/tensor"
)

// builtinCase says what stands for the published repositories of a recipe.
type builtinCase struct {
	repos map[string]map[string][]byte // by repository and path
	// types are those that tensors of the output must have, by part of a name.
	types map[string]string
	// snr is what the worst tensor must reach, in dB, 0 where tensors are copied:
	// then they are equal.
	snr string
	// mixed files have tensors of several published ones.
	mixed bool
	// run asks for the perplexity, by the runtime, of what was built.
	run bool
	// grafted begins the names of tensors that the published file has not got.
	grafted string
	// golden is a file that the output must equal.
	golden string
}

func modelFiles(t *testing.T, model string) map[string][]byte {
	t.Helper()
	files, err := testmodel.Build(model)
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func storyText(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(testdata, "text/eval-stories.txt"))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func builtinCases(t *testing.T) map[string]builtinCase {
	text := storyText(t)
	one := func(repo, path string, b []byte) map[string]map[string][]byte {
		return map[string]map[string][]byte{repo: {path: b}}
	}
	with := func(g *modeltest.Tiny, pre string) *modeltest.Tiny { g.Vocabulary(pre, text); return g }
	golden := func(name string) []byte {
		b, err := os.ReadFile(filepath.Join(testdata, name))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	q35 := with(modeltest.TinyQwen35(t, tensor.BF16, true), "qwen35")
	checkpoint := qwen35Checkpoint(t)
	trunk := qwen35Trunk(t, checkpoint, "BF16")
	trunkQ4 := qwen35Trunk(t, checkpoint, "Q4_0")
	var specs []gguf.TensorSpec
	for _, x := range openTiny(t, func(name string) (tensor.Blob, error) { return tensor.BytesBlob(name, trunk), nil }).Tensors {
		specs = append(specs, gguf.TensorSpec{Name: x.Name, Type: x.Type, Shape: x.Shape})
	}
	trunkImatrix := modeltest.ImatrixFor(t, specs)
	ling := with(modeltest.TinyBailing2(t, tensor.Q4_K), "bailingmoe2")
	beam := with(modeltest.TinyBailing3(t, tensor.Q8_0), "bailingmoe2")
	bonsai := with(modeltest.TinyQwen3(t, tensor.Q1_0), "qwen2")
	mistral := modelFiles(t, "stories-wide")
	mistral["config.json"] = []byte(strings.NewReplacer("LlamaForCausalLM", "MistralForCausalLM", `"model_type": "llama"`, `"model_type": "mistral"`).
		Replace(string(mistral["config.json"])))
	ternary := with(modeltest.TinyQwen3(t, tensor.Q2_0), "qwen2")
	needle := func(gen string) map[string]map[string][]byte {
		return map[string]map[string][]byte{"Cactus-Compute/needle" + gen: {
			"checkpoints/needle" + gen + ".safetensors": golden("cact/needle" + gen + "-a.safetensors"),
			"needle" + gen + ".cact":                    golden("cact/needle" + gen + "-a" + map[string]string{"2": "-w4"}[gen] + ".cact"),
		}}
	}
	allQ4K := map[string]string{"attn_qkv": "Q4_K", "ffn_down": "Q4_K", "token_embd": "Q4_K", "ssm_conv1d": "F32"}
	experts := map[string]string{"_exps": "Q2_K", "ffn_up_shexp": "Q4_K", "output.weight": "Q4_K"}
	return map[string]builtinCase{
		"qwen3.5-0.8b": {repos: map[string]map[string][]byte{"unsloth/Qwen3.5-0.8B-GGUF": {
			"Qwen3.5-0.8B-BF16.gguf": q35.Bytes(), "Qwen3.5-0.8B-Q4_K_M.gguf": nil, "imatrix_unsloth.gguf_file": q35.Imatrix()}}, types: allQ4K, snr: "20", run: true},
		"qwen3.5-2b": {repos: map[string]map[string][]byte{"Qwen/Qwen3.5-2B": checkpoint, "unsloth/Qwen3.5-2B-GGUF": {
			"Qwen3.5-2B-BF16.gguf": trunk, "imatrix_unsloth.gguf_file": trunkImatrix}}, run: true, snr: "20",
			types: map[string]string{"blk.0.ffn_down": "Q4_K", "blk.4.ffn_down": "Q4_K", "blk.4.nextn.eh_proj": "Q5_0", "token_embd": "Q5_0"}},
		"qwen3.5-9b-mtp": {repos: map[string]map[string][]byte{"Qwen/Qwen3.5-9B": checkpoint, "unsloth/Qwen3.5-9B-GGUF": {"Qwen3.5-9B-UD-IQ2_XXS.gguf": trunkQ4}},
			run: true, grafted: "blk.4.", types: map[string]string{"blk.4.ffn_down": "Q4_0", "blk.4.nextn.eh_proj": "Q4_0"}},
		"ling-mini-2.0": {repos: map[string]map[string][]byte{"bartowski/inclusionAI_Ling-mini-2.0-GGUF": {
			"inclusionAI_Ling-mini-2.0-Q4_K_M.gguf": ling.Bytes(), "inclusionAI_Ling-mini-2.0-imatrix.gguf": ling.Imatrix()}}, types: experts, snr: "9", run: true},
		"ling-mini-2.0-ipad": {repos: map[string]map[string][]byte{"bartowski/inclusionAI_Ling-mini-2.0-GGUF": {
			"inclusionAI_Ling-mini-2.0-Q4_K_M.gguf": ling.Bytes(), "inclusionAI_Ling-mini-2.0-Q2_K.gguf": with(modeltest.TinyBailing2(t, tensor.Q2_K), "bailingmoe2").Bytes()}},
			types: experts, mixed: true, run: true},
		"moon-beam-8b-a1b": {repos: one("tablinum/Moon-Beam-8B-A1B-GGUF-Preview", "Moon-Beam-8B-A1B-Preview-Q8_0.gguf", beam.Bytes()),
			types: map[string]string{"_exps": "Q2_K", "attn_k_b": "Q5_0", "attn_output": "Q4_K"}, snr: "9"},
		"bonsai-8b":         {repos: one("prism-ml/Bonsai-8B-gguf", "Bonsai-8B.gguf", bonsai.Bytes()), run: true},
		"bonsai-1.7b":       {repos: one("prism-ml/Bonsai-1.7B-gguf", "Bonsai-1.7B.gguf", bonsai.Bytes()), run: true},
		"ternary-bonsai-4b": {repos: one("prism-ml/Ternary-Bonsai-4B-gguf", "Ternary-Bonsai-4B-Q2_0_g64.gguf", ternary.Bytes()), run: true},
		"minueza-32m":       {repos: map[string]map[string][]byte{"Felladrin/Minueza-32M-Base": mistral}, snr: "18"},
		"minueza-32m-tied":  {repos: map[string]map[string][]byte{"Felladrin/Minueza-32M-Base": mistral}, golden: "golden/kmcu/stories-wide.force-tie.kmcu"},
		"smollm2-135m":      {repos: map[string]map[string][]byte{"HuggingFaceTB/SmolLM2-135M-Instruct": modelFiles(t, "stories-wide")}, snr: "18", run: true},
		"smollm2-360m":      {repos: map[string]map[string][]byte{"HuggingFaceTB/SmolLM2-360M-Instruct": modelFiles(t, "stories-wide")}, snr: "18", run: true},
		"gemma-3-270m":      {repos: map[string]map[string][]byte{"unsloth/gemma-3-270m-it": modelFiles(t, "tiny-gemma3")}, snr: "18", run: true},
		"stories260k":       {repos: one("ggml-org/models", "tinyllamas/stories260K.gguf", with(modeltest.TinyQwen3(t, tensor.F16), "qwen2").Bytes()), snr: "30", run: true},
		"needle2":           {repos: needle("2"), golden: "cact/needle2-a-w4.cact"},
		"needle3":           {repos: needle("3"), golden: "cact/needle3-a.cact"},
	}
}

// qwen35Checkpoint is a checkpoint of Qwen3.5 with a layer for multi-token
// prediction and the tokenizer of Qwen 3, some of whose rows divide into blocks of
// 256.
func qwen35Checkpoint(t *testing.T) map[string][]byte {
	t.Helper()
	const h, f, heads, kv, hd, vocab, layers, kh, vh, d = 32, 256, 4, 2, 64, 151936, 4, 2, 4, 64
	files := modelFiles(t, "tiny-qwen35")
	var config map[string]any
	if err := json.Unmarshal(files["config.json"], &config); err != nil {
		t.Fatal(err)
	}
	maps.Copy(config["text_config"].(map[string]any), map[string]any{"intermediate_size": f, "head_dim": hd, "linear_key_head_dim": d, "linear_value_head_dim": d,
		"rope_parameters": map[string]any{"rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.25, "mrope_section": []int{3, 3, 2}}})
	var err error
	if files["config.json"], err = json.Marshal(config); err != nil {
		t.Fatal(err)
	}
	var list []testmodel.Tensor
	add := func(name string, shape ...int64) {
		list = append(list, testmodel.Tensor{Name: name, DType: "BF16", Shape: shape})
	}
	block := func(p string, linear bool) {
		add(p+"input_layernorm.weight", h)
		add(p+"post_attention_layernorm.weight", h)
		add(p+"mlp.gate_proj.weight", f, h)
		add(p+"mlp.up_proj.weight", f, h)
		add(p+"mlp.down_proj.weight", h, f)
		if !linear {
			a := p + "self_attn."
			add(a+"q_proj.weight", 2*heads*hd, h)
			add(a+"k_proj.weight", kv*hd, h)
			add(a+"v_proj.weight", kv*hd, h)
			add(a+"o_proj.weight", h, heads*hd)
			add(a+"q_norm.weight", hd)
			add(a+"k_norm.weight", hd)
			return
		}
		a := p + "linear_attn."
		add(a+"in_proj_qkv.weight", 2*kh*d+vh*d, h)
		add(a+"in_proj_z.weight", vh*d, h)
		add(a+"in_proj_a.weight", vh, h)
		add(a+"in_proj_b.weight", vh, h)
		add(a+"conv1d.weight", 2*kh*d+vh*d, 1, 4)
		add(a+"A_log", vh)
		add(a+"dt_bias", vh)
		add(a+"norm.weight", d)
		add(a+"out_proj.weight", h, vh*d)
	}
	add("model.language_model.embed_tokens.weight", vocab, h)
	add("model.language_model.norm.weight", h)
	for i := range layers {
		block(fmt.Sprintf("model.language_model.layers.%d.", i), i != 3)
	}
	block("mtp.layers.0.", false)
	add("mtp.fc.weight", h, 2*h)
	add("mtp.pre_fc_norm_embedding.weight", h)
	add("mtp.pre_fc_norm_hidden.weight", h)
	add("mtp.norm.weight", h)
	if files["model.safetensors"], err = testmodel.Safetensors(list); err != nil {
		t.Fatal(err)
	}
	return files
}

// qwen35Trunk converts the checkpoint without that layer, as it would be published.
func qwen35Trunk(t *testing.T, checkpoint map[string][]byte, preset string) []byte {
	t.Helper()
	dir := t.TempDir()
	for name, b := range checkpoint {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	res, err := tryText(t, fmt.Sprintf("version: 1\nname: trunk\nsources:\n  base: {dir: %q}\nsteps:\n  - convert: {outtype: bf16, mtp: without}\n"+
		"  - quantize: {preset: %s}\noutputs:\n  - {format: gguf, file: out.gguf}\n", dir, preset), pipeline.BuildOptions{})
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(res.Outputs[0].Path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestBuiltin builds every built-in recipe, as it stands, from tiny models of the
// same architecture that a hub serves under the real names.
func TestBuiltin(t *testing.T) {
	cases := builtinCases(t)
	for _, name := range builtin.Names() {
		c, ok := cases[name]
		if !ok {
			t.Errorf("no model stands for %s", name)
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.build(t, name)
		})
	}
}

func (c builtinCase) build(t *testing.T, name string) {
	var repos []*hubtest.Repo
	for id, files := range c.repos {
		r := hubtest.NewRepo(id)
		r.Commit(hubFiles(files))
		repos = append(repos, r)
	}
	h := hubtest.New(t, hubtest.Options{}, repos...)
	client, err := hub.New(hub.Options{Endpoint: h.URL})
	if err != nil {
		t.Fatal(err)
	}
	var set []string
	text, err := builtin.Text(name)
	if err != nil {
		t.Fatal(err)
	}
	pruned := strings.Contains(string(text), "select-tokens")
	if pruned {
		corpus := filepath.Join(testdata, "text/eval-stories.txt")
		set = append(set, "sources.english.file="+corpus, "sources.code.file="+corpus, "sources.languages.file="+corpus, "steps.keep.count=300")
	}
	var gates []string
	if c.snr != "" {
		gates = append(gates, "{tensors: {min-snr-db: "+c.snr+"}}")
	}
	if c.run {
		set = append(set, "sources.eval={file: "+filepath.Join(testdata, "text/eval-stories.txt")+"}")
		gates = append(gates, "{perplexity: {text: eval, context: 32, chunks: 2, max: 1000000}}")
	}
	if len(gates) > 0 {
		set = append(set, "gates=["+strings.Join(gates, ", ")+"]")
	}
	r, err := builtin.Parse(name, recipes.Options{Set: set})
	if err != nil {
		t.Fatal(err)
	}
	prj, err := all.Project(r, source.Env{Digests: &source.Digests{}, Hub: source.FromHub(client, nil)})
	if err != nil {
		t.Fatal(err)
	}
	res, err := pipeline.Build(t.Context(), prj, pipeline.BuildOptions{OutDir: t.TempDir(), Jobs: 2})
	if err != nil {
		t.Fatal(err)
	}
	c.check(t, res, pruned)
}

func (c builtinCase) check(t *testing.T, res *pipeline.Result, pruned bool) {
	if c.golden != "" {
		got, err := os.ReadFile(res.Outputs[0].Path)
		if err != nil {
			t.Fatal(err)
		}
		want, err := os.ReadFile(filepath.Join(testdata, c.golden))
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != string(want) {
			t.Errorf("%s is not %s", res.Outputs[0].File, c.golden)
		}
	}
	if !strings.HasSuffix(res.Outputs[0].File, ".gguf") {
		return
	}
	built := openTiny(t, func(string) (tensor.Blob, error) { return tensor.OpenFile(res.Outputs[0].Path) })
	for part, want := range c.types {
		n := 0
		for _, x := range built.Tensors {
			if strings.Contains(x.Name, part) {
				n++
				if x.Type.String() != want {
					t.Errorf("%s is %s, want %s", x.Name, x.Type, want)
				}
			}
		}
		if n == 0 {
			t.Errorf("no tensor is called %s", part)
		}
	}
	if ids := built.Tensor("output_ids"); pruned != (ids != nil) {
		t.Errorf("output_ids: %v", ids)
	} else if pruned {
		if head := built.Tensor("output.weight"); head == nil || head.Shape[0] != ids.Shape[0] || head.Shape[0]%8 != 0 || head.Shape[0] < 300 {
			t.Errorf("the head is %v", head)
		}
	}
	if c.mixed {
		c.assembled(t, built)
	} else if c.snr == "" {
		c.copied(t, built)
	}
	if last := built.Tensors[len(built.Tensors)-1].Name; c.types["_exps"] != "" && !strings.Contains(last, "_exps") {
		t.Errorf("%s is the last tensor, and experts should be", last)
	}
}

func openTiny(t *testing.T, open func(string) (tensor.Blob, error)) *model.Model {
	t.Helper()
	m, set, err := model.LoadGGUF(t.Context(), "tiny.gguf", func(_ context.Context, name string) (tensor.Blob, error) { return open(name) }, gguf.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := set.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

// assembled holds the tensors of a mixed file against those of the same type and
// name in one of the published ones.
func (c builtinCase) assembled(t *testing.T, built *model.Model) {
	found := map[string]bool{}
	for _, files := range c.repos {
		for _, b := range files {
			for _, want := range openTiny(t, func(name string) (tensor.Blob, error) { return tensor.BytesBlob(name, b), nil }).Tensors {
				got := built.Tensor(want.Name)
				if got != nil && got.Type == want.Type && got.Shape.Equal(want.Shape) && bytes.Equal(allRows(t, got), allRows(t, want)) {
					found[want.Name] = true
				}
			}
		}
	}
	for _, x := range built.Tensors {
		if !found[x.Name] && x.Name != "output.weight" && x.Name != "output_ids" {
			t.Errorf("%s is in none of the published files", x.Name)
		}
	}
}

// copied holds every tensor against that of the published file, byte for byte.
func (c builtinCase) copied(t *testing.T, built *model.Model) {
	n := 0
	for _, x := range built.Tensors {
		if c.grafted != "" && strings.HasPrefix(x.Name, c.grafted) {
			n++
		}
	}
	if c.grafted != "" && n == 0 {
		t.Errorf("no tensor begins with %s", c.grafted)
	}
	for _, files := range c.repos {
		for name, b := range files {
			if !strings.HasSuffix(name, ".gguf") {
				continue
			}
			from := openTiny(t, func(name string) (tensor.Blob, error) { return tensor.BytesBlob(name, b), nil })
			if built.Tensor("output_ids") != nil {
				c.rows(t, built, from)
				n += 2
			}
			for _, want := range from.Tensors {
				got := built.Tensor(want.Name)
				if want.Name == "output.weight" && built.Tensor("output_ids") != nil {
					continue
				}
				if got == nil || got.Type != want.Type || !got.Shape.Equal(want.Shape) {
					t.Errorf("%s is missing, or of another type or shape", want.Name)
					continue
				}
				if !bytes.Equal(allRows(t, got), allRows(t, want)) {
					t.Errorf("%s has other values", want.Name)
				}
				n++
			}
		}
	}
	if n == 0 || n != len(built.Tensors) {
		t.Errorf("%d tensors compared of %d", n, len(built.Tensors))
	}
}

// rows holds the rows of a pruned head against those of their tokens.
func (c builtinCase) rows(t *testing.T, built, from *model.Model) {
	head := from.Tensor("output.weight")
	if head == nil {
		head = from.Tensor("token_embd.weight")
	}
	ids := allRows(t, built.Tensor("output_ids"))
	got := built.Tensor("output.weight")
	if got.Type != head.Type {
		t.Errorf("the head is %s, and was %s", got.Type, head.Type)
		return
	}
	a, b := allRows(t, got), allRows(t, head)
	for i := range got.Shape[0] {
		id, size := int64(binary.LittleEndian.Uint32(ids[4*i:])), head.RowBytes()
		if !bytes.Equal(a[i*size:(i+1)*size], b[id*size:(id+1)*size]) {
			t.Fatalf("row %d is not that of token %d", i, id)
		}
	}
}

func allRows(t *testing.T, x *tensor.Tensor) []byte {
	t.Helper()
	b := make([]byte, x.Bytes())
	if err := x.ReadRows(t.Context(), b, 0, x.Rows()); err != nil {
		t.Fatal(err)
	}
	return b
}
