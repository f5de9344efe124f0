package main

import (
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"quern/formats/safetensors"
	"quern/internal/testmodel"
	infer "quern/runtime"
	"quern/runtime/load"
	"quern/runtime/needle"
	"quern/tensor"
	"quern/tensor/quant"
)

// cactGolden is a file of testdata/cact.
func cactGolden(name string) string { return filepath.Join(testmodel.Root(), "cact", name) }

// goldenTensors reads a safetensors file of goldens: values by name, texts by key.
func goldenTensors(t *testing.T, name string) (map[string][]float32, map[string]string) {
	t.Helper()
	blob, err := tensor.OpenFile(cactGolden(name))
	check(t, err)
	defer blob.Close()
	f, err := safetensors.Open(t.Context(), name, blob, safetensors.Options{})
	check(t, err)
	values, meta := map[string][]float32{}, map[string]string{}
	for _, x := range f.Tensors {
		b := make([]byte, x.Bytes())
		check(t, x.ReadRows(t.Context(), b, 0, x.Rows()))
		dec, err := quant.DecoderFor(x.Type)
		check(t, err)
		v := make([]float32, x.Bytes()/4)
		dec.Decode(v, b)
		values[x.Name] = v
	}
	for _, kv := range f.Metadata {
		meta[kv.Key] = strings.Trim(kv.Value, "[]")
	}
	return values, meta
}

// near compares with a golden, by the largest of its values.
func near(t *testing.T, what string, got []jsonFloat, want []float32) {
	t.Helper()
	if len(got) != len(want) || len(got) == 0 {
		t.Errorf("%s: %d values, want %d", what, len(got), len(want))
		return
	}
	var most, worst float64
	for i, w := range want {
		most = math.Max(most, math.Abs(float64(w)))
		worst = math.Max(worst, math.Abs(float64(got[i])-float64(w)))
	}
	if !(worst <= 1e-4*most) {
		t.Errorf("%s: differs by %g of %g", what, worst, most)
	}
}

// TestHeads holds what the heads say against the JAX model, and without rounding
// against what the runtime computes.
func TestHeads(t *testing.T) {
	b := newBench(t)
	want, meta := goldenTensors(t, "needle3-a-logits.safetensors")
	var doc headsDoc
	b.ok("heads", cactGolden("needle3-a.cact"), "--prompt-tokens", meta["w4a8.tokens"], "--act", "q8", "--json").json(t, &doc)
	near(t, "embedding", doc.Embedding, want["w4a8.embedding"])
	near(t, "router", doc.Router.Logits, want["w4a8.router"])
	near(t, "confidence", []jsonFloat{doc.Confidence.Logit}, want["w4a8.confidence"])
	if p := 1 / (1 + math.Exp(-float64(doc.Confidence.Logit))); math.Abs(p-float64(doc.Confidence.Probability)) > 1e-6 || doc.Act != "q8" {
		t.Errorf("%+v", doc.Confidence)
	}
	if len(doc.Router.Calibration) != 3 || doc.Router.Way != greatest(want["w4a8.router"]) {
		t.Errorf("router %+v", doc.Router)
	}
	for _, name := range []string{"needle3-a.cact", "needle3-a.safetensors", "needle2-b-w4.cact"} {
		var doc headsDoc
		b.ok("heads", cactGolden(name), "--prompt-tokens", "2,5,100,9", "--json").json(t, &doc)
		m, err := load.Open(t.Context(), cactGolden(name))
		check(t, err)
		got, err := m.(reader).Read(t.Context(), []int32{2, 5, 100, 9}, infer.SessionOptions{}, needle.Options{})
		check(t, err)
		if !slices.Equal(doc.Embedding, jsonFloats(got.Embedding)) || len(doc.Embedding) == 0 || doc.Confidence.Logit != jsonFloat(got.Confidence[0]) {
			t.Errorf("%s: the command says other things than the runtime", name)
		}
		check(t, m.Close())
	}
	out := b.ok("heads", cactGolden("needle3-a.cact"), "-p", "Once upon a time").out
	for _, word := range []string{"embedding ", "confidence ", "router ", "calibration 0.85"} {
		if !strings.Contains(out, word) {
			t.Errorf("%q is not in\n%s", word, out)
		}
	}
	doc = headsDoc{} // generation 2: no router
	b.ok("heads", cactGolden("needle2-b-w4.cact"), "-p", "Once upon a time", "--json").json(t, &doc)
	if len(doc.Embedding) == 0 || doc.Confidence == nil || doc.Router != nil {
		t.Errorf("%+v", doc)
	}
	// A checkpoint has no tokenizer and borrows one.
	b.ok("heads", cactGolden("needle3-a.safetensors"), "-p", "Once", "--tokenizer", cactGolden("needle3-a.cact"))
	b.fails(exitUsage, []string{"no heads"}, "heads", cactGolden("needle3-b.cact"), "-p", "Once")
	b.fails(exitUsage, []string{"no heads", "Needle"}, "heads", storiesModel(), "-p", "Once")
	b.fails(exitUsage, []string{"prompt"}, "heads", cactGolden("needle3-a.cact"))
}

// TestNeedleCommands runs every command that takes a model on archives and
// checkpoints of both generations, with heads, taps, a cut depth, half a width and 16
// engram sites.
func TestNeedleCommands(t *testing.T) {
	b := newBench(t)
	text := b.path("text.txt")
	check(t, os.WriteFile(text, []byte(strings.Repeat("Once upon a time there was a little girl. She liked to play. ", 12)), 0o644))
	for _, name := range []string{"needle2-a-w4.cact", "needle2-a-mixed.cact", "needle2-b-w4.cact", "needle3-a.cact", "needle3-a-layers3.cact",
		"needle3-b.cact", "needle3-b-lora.cact", "needle3-b-width32.cact", "needle3-c.cact", "needle3-c-layers5.cact"} {
		t.Run(name, func(t *testing.T) {
			b := &bench{t: t, dir: b.dir}
			file := cactGolden(name)
			var ran runDoc
			b.ok("run", file, "-p", "Once upon a time", "-n", "5", "--ignore-end", "--json").json(t, &ran)
			if len(ran.Tokens) != 5 {
				t.Errorf("made %v", ran.Tokens)
			}
			sums := map[string]string{}
			for _, act := range []string{"exact", "q8"} {
				for _, jobs := range []string{"1", "3"} {
					var doc logitsDoc
					b.ok("logits", file, "--tokens", "2,5,9,100,7", "--act", act, "--jobs", jobs, "--json").json(t, &doc)
					if old, ok := sums[act]; ok && old != doc.SHA256 {
						t.Errorf("%s: other logits with %s jobs", act, jobs)
					}
					sums[act] = doc.SHA256
				}
			}
			if sums["exact"] == sums["q8"] {
				t.Error("rounded activations change nothing")
			}
			var ppl pplDoc
			b.ok("ppl", file, "-f", text, "-c", "32", "--chunks", "2", "--json").json(t, &ppl)
			if !(ppl.Perplexity.Perplexity > 1) || ppl.Scored == 0 || !(ppl.BitsPerByte > 0) {
				t.Errorf("%+v", ppl)
			}
			b.ok("tokenize", file, "Once upon a time")
			b.fails(exitUsage, []string{"importance matrices of Needle models"}, "imatrix", file, "-f", text, "-o", b.path("x.gguf"), "-c", "32")
			doc := b.inspect(file)
			if doc.detail("memory_total") == "" {
				t.Error("no account of memory")
			}
		})
	}
	for _, name := range []string{"needle2-a.safetensors", "needle2-b.safetensors", "needle3-a.safetensors", "needle3-b.pkl", "needle3-c.safetensors"} {
		var doc logitsDoc
		b.ok("logits", cactGolden(name), "--tokens", "2,5,9", "--json").json(t, &doc)
		b.ok("run", cactGolden(name), "--prompt-tokens", "2,5", "-n", "2", "--tokens")
	}
}

// TestNeedleFolder: a folder that holds a checkpoint or an archive and no
// config.json is a model too.
func TestNeedleFolder(t *testing.T) {
	for _, name := range []string{"needle3-b.safetensors", "needle3-b.pkl", "needle3-b.cact"} {
		b := newBench(t)
		check(t, os.MkdirAll(b.path("m"), 0o755))
		check(t, os.Link(b.archive(name), filepath.Join(b.path("m"), name)))
		var file, folder logitsDoc
		b.ok("logits", cactGolden(name), "--tokens", "2,5,9", "--json").json(t, &file)
		b.ok("logits", b.path("m"), "--tokens", "2,5,9", "--json").json(t, &folder)
		if file.SHA256 != folder.SHA256 {
			t.Errorf("%s: other logits out of a folder", name)
		}
		doc := b.inspect(b.path("m"))
		if want := map[bool]string{true: "cact", false: "needle checkpoint"}[strings.HasSuffix(name, ".cact")]; doc.Format != want || doc.detail("num_layers") != "3" || len(doc.Tensors) == 0 {
			t.Errorf("%s: %s, %v", name, doc.Format, doc.Details)
		}
	}
}

// soundFile writes samples as a WAV file of 4000 floats a second.
func (b *bench) soundFile(name string, samples []float32) string {
	b.t.Helper()
	le := binary.LittleEndian
	raw := append([]byte("RIFF\x00\x00\x00\x00WAVEfmt \x10\x00\x00\x00\x03\x00\x01\x00"), 0xa0, 0x0f, 0, 0, 0x80, 0x3e, 0, 0, 4, 0, 32, 0)
	raw = append(raw, "data"...)
	raw = le.AppendUint32(raw, uint32(4*len(samples)))
	for _, v := range samples {
		raw = le.AppendUint32(raw, math.Float32bits(v))
	}
	le.PutUint32(raw[4:], uint32(len(raw)-8))
	check(b.t, os.WriteFile(b.path(name), raw, 0o644))
	return b.path(name)
}

// TestSpeech writes down a sound as the exporter's own decoding does, and computes
// the JAX model's logits.
func TestSpeech(t *testing.T) {
	b := newBench(t)
	want, meta := goldenTensors(t, "whistle-logits.safetensors")
	var greedy []int32
	for _, w := range strings.Split(meta["archive.greedy"], ",") {
		n, err := strconv.Atoi(w)
		check(t, err)
		greedy = append(greedy, int32(n))
	}
	file, sound := cactGolden("whistle.cact"), b.soundFile("sound.wav", want["archive.wav"])
	var doc runDoc
	b.ok("run", file, "--audio", sound, "-n", "40", "--ignore-end", "--json").json(t, &doc)
	if !slices.Equal(doc.Prompt, greedy[:2]) || !slices.Equal(doc.Tokens, greedy[2:42]) || doc.Language == "" || doc.Text == "" {
		t.Errorf("%+v, want %v", doc, greedy)
	}
	for _, l := range []string{"en", "de"} {
		b.ok("run", file, "--audio", sound, "-n", "3", "--language", l, "--json").json(t, &doc)
		if doc.Language != l {
			t.Errorf("language %s, want %s", doc.Language, l)
		}
	}
	if out := b.ok("run", file, "--audio", sound, "-n", "3", "--tokens", "--ignore-end", "--language", doc.Language).out; strings.Count(out, ",") != 2 {
		t.Errorf("tokens %q", out)
	}
	for mode, act := range map[string]string{"archive": "exact", "w4a8": "q8"} {
		b.ok("logits", file, "--audio", b.soundFile(mode+".wav", want[mode+".wav"]), "--tokens", meta[mode+".tokens"], "--act", act, "-o", b.path("x.safetensors"))
		blob, err := tensor.OpenFile(b.path("x.safetensors"))
		check(t, err)
		f, err := safetensors.Open(t.Context(), "x", blob, safetensors.Options{})
		check(t, err)
		raw := make([]byte, f.Tensors[0].Bytes())
		check(t, f.Tensors[0].ReadRows(t.Context(), raw, 0, f.Tensors[0].Rows()))
		check(t, blob.Close())
		got := make([]jsonFloat, len(raw)/4)
		for i := range got {
			got[i] = jsonFloat(math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:])))
		}
		near(t, mode, got, want[mode+".logits"])
	}
	// A checkpoint borrows the tokenizer.
	b.ok("run", cactGolden("whistle.safetensors"), "--audio", sound, "-n", "3", "--tokenizer", file)
	doc2 := b.inspect(file)
	for key, v := range map[string]string{"audio_text": "400", "audio_rate": "4000", "audio_enc_layers": "2"} {
		if doc2.detail(key) != v {
			t.Errorf("%s is %s, want %s", key, doc2.detail(key), v)
		}
	}
	b.fails(exitUsage, []string{"--audio"}, "run", file)
	b.fails(exitUsage, []string{"no prompt"}, "run", file, "--audio", sound, "-p", "x")
	b.fails(exitUsage, []string{"en, de"}, "run", file, "--audio", sound, "--language", "xx")
	b.fails(exitUsage, []string{"no speech model"}, "run", cactGolden("needle3-b.cact"), "--audio", sound, "-p", "x")
	b.fails(exitUsage, []string{"16000", "4000"}, "run", file, "--audio", filepath.Join(testmodel.Root(), "wav", "u8.wav"))
	b.fails(exitSource, []string{"not a WAV"}, "run", file, "--audio", file)
	b.fails(exitSource, []string{"no.wav"}, "run", file, "--audio", b.path("no.wav"))
	check(t, os.WriteFile(b.path("t.txt"), []byte(strings.Repeat("a text ", 200)), 0o644))
	b.fails(exitUsage, []string{"needs a sound"}, "ppl", file, "-f", b.path("t.txt"), "-c", "32")
	b.fails(exitUsage, []string{"no heads"}, "heads", file, "-p", "x")
}
