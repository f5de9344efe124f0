package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"quern/internal/atomicfile"
	"quern/internal/digest"
	"quern/internal/faulty"
	"quern/internal/testmodel"
)

// The test binary is also quern: with the first variable set it is nothing else.
// The second makes it end before the given step that touches the disk, as dead
// as by kill -9: nothing that was deferred is run.
const (
	childEnv = "QUERN_TEST_CHILD"
	dieEnv   = "QUERN_TEST_DIE"
	dieCode  = 99
)

func TestMain(m *testing.M) {
	if steps, err := strconv.Atoi(os.Getenv(dieEnv)); err == nil {
		p := newProgram(os.Args, os.Stdin, os.Stdout, os.Stderr)
		count := faulty.FailOnce(steps, faulty.ErrInjected)
		few := fewSteps{}
		p.hooks.before = func(s atomicfile.Step, path string) error {
			if !few.enough(s, path) && count.Next() != nil {
				os.Exit(dieCode)
			}
			return nil
		}
		os.Exit(p.run(context.Background()))
	}
	if os.Getenv(childEnv) != "" {
		main()
	}
	// What a user's machine has set must not reach the tests.
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); strings.HasPrefix(name, "HF_") || strings.HasPrefix(name, "QUERN_") {
			os.Unsetenv(name)
		}
	}
	os.Exit(m.Run())
}

// bench is a place of its own for the commands of a test: models, recipes,
// outputs and a store.
type bench struct {
	t   *testing.T
	dir string
	// hooks go into every command that is run in this process.
	hooks hooks
}

func newBench(t *testing.T) *bench {
	b := &bench{t: t, dir: t.TempDir()}
	t.Setenv("QUERN_STORE", b.path("store"))
	t.Setenv("HF_HOME", b.path("no-cache"))
	return b
}

func (b *bench) path(rel ...string) string { return filepath.Join(append([]string{b.dir}, rel...)...) }

// dropDownloads makes the store forget what was fetched.
func (b *bench) dropDownloads() {
	b.t.Helper()
	if err := os.RemoveAll(b.path("store", "quern", "spool")); err != nil {
		b.t.Fatal(err)
	}
}

// ran is what a command did.
type ran struct {
	code     int
	out, err string
}

func (b *bench) run(args ...string) ran {
	b.t.Helper()
	return b.runCtx(b.t.Context(), args...)
}

func (b *bench) runCtx(ctx context.Context, args ...string) ran {
	b.t.Helper()
	var out, errOut bytes.Buffer
	p := newProgram(append([]string{"quern"}, args...), strings.NewReader(""), &out, &errOut)
	p.hooks = b.hooks
	code := p.run(ctx)
	return ran{code, out.String(), errOut.String()}
}

// ok runs a command that must succeed.
func (b *bench) ok(args ...string) ran {
	b.t.Helper()
	r := b.run(args...)
	if r.code != exitDone {
		b.t.Fatalf("quern %s: exit code %d\n%s%s", strings.Join(args, " "), r.code, r.out, r.err)
	}
	return r
}

// fails runs a command that must end with a code and say some words on stderr.
func (b *bench) fails(code int, words []string, args ...string) ran {
	b.t.Helper()
	r := b.run(args...)
	if r.code != code {
		b.t.Errorf("quern %s: exit code %d, want %d\n%s", strings.Join(args, " "), r.code, code, r.err)
	}
	for _, w := range words {
		if !strings.Contains(r.err, w) {
			b.t.Errorf("quern %s: the error does not say %q:\n%s", strings.Join(args, " "), w, r.err)
		}
	}
	return r
}

// json decodes the document that a command printed, which must be all of its
// standard output.
func (r ran) json(t *testing.T, v any) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(r.out))
	if err := d.Decode(v); err != nil {
		t.Fatalf("stdout is not JSON: %v\n%s", err, r.out)
	}
	if _, err := d.Token(); err != io.EOF {
		t.Fatalf("more than one document on stdout: %v\n%s", err, r.out)
	}
}

// command prepares quern as a process of its own.
func (b *bench) command(args ...string) *exec.Cmd {
	b.t.Helper()
	self, err := os.Executable()
	if err != nil {
		b.t.Fatal(err)
	}
	cmd := exec.Command(self, args...)
	cmd.Env = append(os.Environ(), childEnv+"=1")
	return cmd
}

// write puts a file into the bench and gives its path.
func (b *bench) write(name, text string) string {
	b.t.Helper()
	p := b.path(filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
		b.t.Fatal(err)
	}
	return p
}

// model puts a model of testdata into a folder of the bench.
func (b *bench) model(name, dir string) string {
	b.t.Helper()
	files, err := testmodel.Build(name)
	if err != nil {
		b.t.Fatal(err)
	}
	for f, data := range files {
		b.write(dir+"/"+f, string(data))
	}
	return b.path(dir)
}

// recipe writes a recipe r.yaml that starts from folder model. Its lines are
// steps, outputs and gates.
func (b *bench) recipe(text string) string {
	return b.write("r.yaml", "version: 1\nname: r\nsources:\n  base: {dir: model}\n"+text)
}

const q8 = "steps:\n  - quantize: {type: Q8_0, fallback: F16}\noutputs:\n  - {format: gguf, file: r.gguf}\n"

// scored is q8 with a gate that runs the model over text.txt, up to its limit.
const scored = "  text: {file: text.txt}\n" + q8 + "gates:\n  - perplexity: {text: text, context: 16, "

// story is a text for it.
func story(b *bench) {
	b.write("text.txt", strings.Repeat("Once upon a time there was a little dog who liked to play in the park with a red ball. ", 3))
}

// patch changes a file of the bench.
func (b *bench) patch(name string, change func([]byte) []byte) {
	b.t.Helper()
	p := b.path(filepath.FromSlash(name))
	data, err := os.ReadFile(p)
	if err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(p, change(data), 0o644); err != nil {
		b.t.Fatal(err)
	}
}

// replace is a change of patch: one text for another, which must be there.
func (b *bench) replace(old, new string) func([]byte) []byte {
	return func(data []byte) []byte {
		b.t.Helper()
		if !bytes.Contains(data, []byte(old)) {
			b.t.Fatalf("%q is not there", old)
		}
		return bytes.ReplaceAll(data, []byte(old), []byte(new))
	}
}

// sum is the SHA-256 of a file in hex, or "" if there is none.
func sum(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return ""
	}
	if err != nil {
		t.Fatal(err)
	}
	return digest.Of(b).Hex()
}

// files lists what is below a folder, with slashes, sorted.
func files(t *testing.T, dir string) []string {
	t.Helper()
	var out []string
	err := filepath.WalkDir(dir, func(p string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		if st, err := os.Stat(p); err == nil && st.IsDir() {
			return nil // a link to a folder
		}
		rel, err := filepath.Rel(dir, p)
		out = append(out, filepath.ToSlash(rel))
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	slices.Sort(out)
	return out
}

// noTemps fails when a folder holds an unfinished file.
func noTemps(t *testing.T, dir string) {
	t.Helper()
	for _, f := range files(t, dir) {
		if atomicfile.IsTemp(filepath.Base(f)) {
			t.Errorf("an unfinished file was left: %s", f)
		}
	}
}

// sparseModel makes a checkpoint of zeros that takes no disk: layers of 4 MiB
// and 6 KiB for each unit of the feed-forward width, with the tokenizer of
// stories260k.
func (b *bench) sparseModel(dir string, layers int, ffn int64) string {
	b.t.Helper()
	const dim, vocab, heads = 512, 512, 8
	b.model("stories260k", dir)
	b.write(dir+"/config.json", fmt.Sprintf(`{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": %d,
"intermediate_size": %d, "num_hidden_layers": %d, "num_attention_heads": %d, "num_key_value_heads": %d, "vocab_size": %d,
"max_position_embeddings": 512, "hidden_act": "silu", "rms_norm_eps": 1e-05, "rope_theta": 10000.0, "bos_token_id": 1,
"eos_token_id": 2, "tie_word_embeddings": true, "torch_dtype": "float32"}`, dim, ffn, layers, heads, heads, vocab))
	shapes := map[string][]int64{"model.embed_tokens.weight": {vocab, dim}, "model.norm.weight": {dim}}
	for i := range layers {
		p := fmt.Sprintf("model.layers.%d.", i)
		for _, n := range []string{"q", "k", "v", "o"} {
			shapes[p+"self_attn."+n+"_proj.weight"] = []int64{dim, dim}
		}
		shapes[p+"mlp.gate_proj.weight"] = []int64{ffn, dim}
		shapes[p+"mlp.up_proj.weight"] = []int64{ffn, dim}
		shapes[p+"mlp.down_proj.weight"] = []int64{dim, ffn}
		shapes[p+"input_layernorm.weight"] = []int64{dim}
		shapes[p+"post_attention_layernorm.weight"] = []int64{dim}
	}
	head, size := sparseHeader(shapes)
	p := b.write(dir+"/model.safetensors", head)
	if err := os.Truncate(p, int64(len(head))+size); err != nil {
		b.t.Fatal(err)
	}
	return b.path(dir)
}

// sparseHeader is the header of a safetensors file of F32 tensors, and the size
// of its data.
func sparseHeader(shapes map[string][]int64) (string, int64) {
	var parts []string
	var at int64
	for _, name := range slices.Sorted(func(yield func(string) bool) {
		for n := range shapes {
			if !yield(n) {
				return
			}
		}
	}) {
		n := int64(4)
		dims := make([]string, len(shapes[name]))
		for i, d := range shapes[name] {
			n *= d
			dims[i] = fmt.Sprint(d)
		}
		parts = append(parts, fmt.Sprintf(`%q:{"dtype":"F32","shape":[%s],"data_offsets":[%d,%d]}`, name, strings.Join(dims, ","), at, at+n))
		at += n
	}
	head := "{" + strings.Join(parts, ",") + "}"
	for len(head)%8 != 0 {
		head += " "
	}
	var size [8]byte
	for i := range size {
		size[i] = byte(len(head) >> (8 * i))
	}
	return string(size[:]) + head, at
}
