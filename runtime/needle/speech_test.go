package needle_test

import (
	"errors"
	"math"
	"slices"
	"testing"

	infer "quern/runtime"
	"quern/runtime/needle"
)

// hear runs the encoder.
func hear(t testing.TB, m *needle.Model, sound []float32, opt infer.SessionOptions, more needle.Options) *needle.Heard {
	t.Helper()
	h, err := m.Hear(t.Context(), sound, opt, more)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// TestSpeech compares with the JAX model of speech in float64 arithmetic: what the
// encoder says of a sound, and the logits of a text about it.
func TestSpeech(t *testing.T) {
	g, archive, float := openGolden(t, "whistle-logits.safetensors"), openArchive(t, "whistle.cact"), openCheckpoint(t, "whistle.safetensors")
	if !archive.IsSpeech() || archive.SampleRate() != 4000 {
		t.Fatalf("speech %v, %d samples a second", archive.IsSpeech(), archive.SampleRate())
	}
	for _, c := range []struct {
		m      *needle.Model
		prefix string
		opt    needle.Options
	}{
		{float, "checkpoint", needle.Options{}},
		{archive, "archive", needle.Options{}},
		{archive, "w4a8", needle.Options{Round8: true}},
		{archive, "w4a8kv8", needle.Options{Round8: true, KV8: true}},
	} {
		sound := g.rows(t, c.prefix+".wav")[0]
		c.opt.Heard = hear(t, c.m, sound, infer.SessionOptions{}, c.opt)
		var states [][]float32
		for x := range slices.Chunk(c.opt.Heard.States, len(c.opt.Heard.States)/c.opt.Heard.Frames) {
			states = append(states, x)
		}
		near(t, c.prefix+" encoder", states, g.rows(t, c.prefix+".encoder"), 2e-5)
		s := session(t, c.m, infer.SessionOptions{}, c.opt)
		near(t, c.prefix+" logits", logits(t, s, g.tokens(t, c.prefix+".tokens")), g.rows(t, c.prefix+".logits"), 2e-5)
	}
}

// TestSpeechGreedy writes down a sound as the exporter's evaluation does: first the
// likeliest tag, then the likeliest of all that is no tag.
func TestSpeechGreedy(t *testing.T) {
	g, m := openGolden(t, "whistle-logits.safetensors"), openArchive(t, "whistle.cact")
	want := g.tokens(t, "archive.greedy")
	for _, jobs := range []int{1, 3} {
		opt := infer.SessionOptions{Jobs: jobs}
		s := session(t, m, opt, needle.Options{Heard: hear(t, m, g.rows(t, "archive.wav")[0], opt, needle.Options{})})
		got := []int32{want[0]}
		for len(got) < len(want) {
			row := logits(t, s, got[len(got)-1:])[0]
			best := int32(-1)
			for id, v := range row {
				if (id >= 400) == (len(got) == 1) && (best < 0 || v > row[best]) {
					best = int32(id)
				}
			}
			got = append(got, best)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%d jobs: %v, want %v", jobs, got, want)
		}
	}
}

// TestSpeechRefuses: a speech model says nothing without a sound, and hears only
// what it can.
func TestSpeechRefuses(t *testing.T) {
	m, text := openArchive(t, "whistle.cact"), openArchive(t, "needle3-b.cact")
	if _, err := m.NewSession(infer.SessionOptions{}); !errors.Is(err, infer.ErrUnsupported) {
		t.Errorf("no sound: %v", err)
	}
	for name, sound := range map[string][]float32{"none": nil, "39 samples": make([]float32, 39), "over 30 seconds": make([]float32, 30*4000+1), "NaN": {float32(math.NaN()), 39: 0}} {
		if _, err := m.Hear(t.Context(), sound, infer.SessionOptions{}, needle.Options{}); err == nil {
			t.Errorf("%s: heard", name)
		}
	}
	if _, err := text.Hear(t.Context(), make([]float32, 400), infer.SessionOptions{}, needle.Options{}); !errors.Is(err, infer.ErrUnsupported) {
		t.Errorf("a model of text: %v", err)
	}
	h := hear(t, m, make([]float32, 400), infer.SessionOptions{}, needle.Options{})
	if _, err := openArchive(t, "whistle-lora.cact").NewSessionWith(infer.SessionOptions{}, needle.Options{Heard: h}); !errors.Is(err, infer.ErrUnsupported) {
		t.Errorf("what another model heard: %v", err)
	}
	for _, v := range h.States {
		if v != v {
			t.Fatal("silence gives NaN")
		}
	}
}
