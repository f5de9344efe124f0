package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"
)

func TestSplitLine(t *testing.T) {
	app := newApp(newProgram(nil, nil, nil, nil))
	for _, c := range []struct{ in, want string }{
		{"quern", "quern"},
		{"quern build r.yaml -o out", "quern build -o out r.yaml"},
		{"quern build r.yaml -o=out --locked", "quern build -o=out --locked r.yaml"},
		{"quern build --jobs 2 r.yaml --json", "quern build --jobs 2 --json r.yaml"},
		{"quern build --jobs -1 r.yaml", "quern build --jobs -1 r.yaml"},
		{"quern build -- r.yaml -o", "quern build r.yaml -o"},
		{"quern build -- -r.yaml", "quern build -- -r.yaml"},
		{"quern build --locked -- --json", "quern build --locked -- --json"},
		{"quern store tag a b --json", "quern store tag --json a b"},
		{"quern store gc --grace 1h -n", "quern store gc --grace 1h -n"},
		{"quern verify f.gguf --against model --min-snr 20", "quern verify --against model --min-snr 20 f.gguf"},
		{"quern build r.yaml --set a=b --set c=-d", "quern build --set a=b --set c=-d r.yaml"},
		{"quern nothing x --json", "quern --json nothing x"},
		{"quern __complete build --js", "quern __complete build --js"},
	} {
		if got := strings.Join(splitLine(app, strings.Fields(c.in)).args(), " "); got != c.want {
			t.Errorf("%s: got %s, want %s", c.in, got, c.want)
		}
	}
	if l := splitLine(app, []string{"quern", "build", "r.yaml", "--jobs"}); l.hungry != "--jobs" || !slices.Equal(l.plain, []string{"r.yaml"}) {
		t.Errorf("%+v", l)
	}
}

// TestFlagsAnywhere builds with flags on both sides of the recipe, joined and
// apart, and with a recipe whose name looks like a flag.
func TestFlagsAnywhere(t *testing.T) {
	b := newBench(t)
	b.model("stories260k", "model")
	recipe := b.recipe(q8)
	os.Rename(recipe, b.path("-r.yaml"))
	recipe = b.path("r.yaml")
	b.write("r.yaml", string(mustRead(t, b.path("-r.yaml"))))
	t.Chdir(b.dir)
	want := ""
	for i, args := range [][]string{
		{"build", recipe, "-o", "out0"},
		{"build", "-o", "out1", recipe},
		{"build", recipe, "-o=out2"},
		{"build", "--out=out3", recipe, "--jobs", "0"},
		{"build", recipe, "--jobs", "0", "--out", "out4", "--memory=16MiB"},
		{"build", "-o", "out5", "--", "-r.yaml"},
		{"build", "--set", "name=other", recipe, "-o", "out6", "--no-store"},
	} {
		b.ok(args...)
		got := sum(t, b.path("out"+string(rune('0'+i)), "r.gguf"))
		if want == "" {
			want = got
		}
		if got == "" || got != want {
			t.Errorf("%v: output has SHA-256 %q, want %s", args, got, want)
		}
	}
	// Two --set, one for each of two values; the last of one key wins.
	r := b.ok("plan", recipe, "--set", "steps.quantize.type=Q5_0", "--set", "steps.quantize.fallback=F32", "--set", "steps.quantize.type=Q5_1")
	if !strings.Contains(r.out, "Q5_1") || strings.Contains(r.out, "Q8_0") || !strings.Contains(r.out, "F32") {
		t.Errorf("plan shows\n%s", r.out)
	}
}

func mustRead(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// eachCommand calls f for every command that users see, with its full name.
func eachCommand(f func(name string, c *cli.Command)) {
	var walk func(prefix string, list []*cli.Command)
	walk = func(prefix string, list []*cli.Command) {
		for _, c := range list {
			if c.Hidden || c.Name == "help" {
				continue
			}
			f(prefix+c.Name, c)
			walk(prefix+c.Name+" ", c.Subcommands)
		}
	}
	walk("", newApp(newProgram(nil, nil, nil, nil)).Commands)
}

// TestHelp: the help of every command names the exit codes, goes to standard
// output and is no failure. Every command has --json.
func TestHelp(t *testing.T) {
	b := newBench(t)
	n := 0
	eachCommand(func(name string, c *cli.Command) {
		n++
		for _, flag := range []string{"--help", "-h"} {
			r := b.ok(append(strings.Fields(name), flag)...)
			for _, code := range []string{"0    done", "1    failed", "2    bad usage or recipe", "3    verification or gate failed", "4    source or network failed", "130  interrupted"} {
				if !strings.Contains(r.out, code) {
					t.Errorf("%s: exit code %q is not in\n%s", name, code, r.out)
				}
			}
			if r.err != "" {
				t.Errorf("%s: stderr has %q", name, r.err)
			}
		}
		if len(c.Subcommands) == 0 && !slices.ContainsFunc(c.Flags, func(f cli.Flag) bool { return f.Names()[0] == "json" }) {
			t.Errorf("%s has no --json", name)
		}
	})
	if n < 14 {
		t.Errorf("only %d commands", n)
	}
	if r := b.ok(); !strings.Contains(r.out, "COMMANDS") || !strings.Contains(r.out, "130  interrupted") || strings.Contains(r.out, "__complete") {
		t.Errorf("quern alone prints\n%s", r.out)
	}
	if r := b.ok("--version"); !strings.Contains(r.out, version) {
		t.Errorf("--version prints %q", r.out)
	}
	if _, err := os.Stat(b.path("store")); err == nil {
		t.Error("help made a store")
	}
}

func TestComplete(t *testing.T) {
	b := newBench(t)
	for _, c := range []struct {
		words string // a trailing space starts a new word
		want  []string
	}{
		{"", []string{"build", "plan", "recipes", "quantize", "inspect", "diff", "verify", "punch", "send", "store", "push", "pull", "run", "logits", "heads", "tokenize", "tokens", "ppl", "loops", "imatrix", "trace", "schema", "completion"}},
		{"b", []string{"build"}},
		{"build ", nil},
		{"build --lo", []string{"--locked"}},
		{"build r.yaml --off", []string{"--offline"}},
		{"build --progress ", []string{"auto", "bar", "plain", "json", "none"}},
		{"build --progress=", nil},
		{"build --out ", nil},
		{"build --out x --me", []string{"--measure", "--memory"}},
		{"store ", []string{"ls", "show", "tag", "untag", "verify", "gc", "export"}},
		{"store ex", []string{"export"}},
		{"store export x --method ", []string{"auto", "link", "reflink", "copy"}},
		{"run m.gguf --act ", []string{"exact", "q8"}},
		{"ppl m.gguf --order ", []string{"quern", "ggml"}},
		{"push r --format ", []string{"modelpack", "docker", "ollama", "quern"}},
		{"completion z", []string{"zsh"}},
		{"completion zsh ", nil},
		{"nothing ", nil},
		{"--h", []string{"--help"}},
	} {
		r := b.ok(append([]string{"__complete"}, strings.Split(c.words, " ")...)...)
		if got := strings.Fields(r.out); !slices.Equal(got, c.want) {
			t.Errorf("%q: got %v, want %v", c.words, got, c.want)
		}
	}
}

// TestBashCompletion completes in a real bash, which asks this very binary.
func TestBashCompletion(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("there is no bash here to complete in")
	}
	b := newBench(t)
	script := b.write("quern.bash", b.ok("completion", "bash").out)
	if out, err := exec.Command(bash, "-n", script).CombinedOutput(); err != nil {
		t.Fatalf("bash -n: %v\n%s", err, out)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	bin := b.path("bin", "quern")
	if err := os.MkdirAll(filepath.Dir(bin), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(self, bin); err != nil {
		t.Fatal(err)
	}
	t.Chdir(b.path("bin"))
	for _, c := range []struct{ line, want string }{
		{"quern bu", "build"},
		{"quern store ex", "export"},
		{"quern build r.yaml --lock", "--locked"},
		{"quern build --progress pl", "plain"},
		{"quern build qu", "quern"}, // a file
		{"quern completion ", "bash fish zsh"},
	} {
		words := strings.Split(c.line, " ")
		cmd := exec.Command(bash, "--norc", "-c", `source "$0"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _quern; printf '%s\n' "${COMPREPLY[@]}"`, script)
		cmd.Args = append(cmd.Args, words...)
		cmd.Env = append(os.Environ(), childEnv+"=1", "PATH="+filepath.Dir(bin)+":"+os.Getenv("PATH"))
		var out, errOut bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &errOut
		if err := cmd.Run(); err != nil {
			t.Fatalf("%s: %v\n%s", c.line, err, errOut.String())
		}
		got := strings.Fields(out.String())
		slices.Sort(got)
		if s := strings.Join(got, " "); s != c.want {
			t.Errorf("%q completes to %q, want %q", c.line, s, c.want)
		}
	}
}

// TestOtherShells: the scripts for zsh and fish ask the same question.
func TestOtherShells(t *testing.T) {
	b := newBench(t)
	for shell, check := range map[string][]string{"zsh": {"-n"}, "fish": {"--no-execute"}} {
		r := b.ok("completion", shell)
		if !strings.Contains(r.out, "__complete") || strings.Contains(r.out, "\t") {
			t.Errorf("%s: %s", shell, r.out)
		}
		path, err := exec.LookPath(shell)
		if err != nil {
			t.Logf("no %s here to check the script's grammar with", shell)
			continue
		}
		script := b.write("script."+shell, r.out)
		if out, err := exec.Command(path, append(check, script)...).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", shell, err, out)
		}
	}
}
