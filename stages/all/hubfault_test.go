package all_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"quern/hub"
	"quern/hub/hubtest"
	"quern/internal/testmodel"
	"quern/pipeline"
)

const shard1, shard2 = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"

// leftovers fails if a folder has more than the wanted files.
func leftovers(t *testing.T, dir string, want ...string) {
	t.Helper()
	var got []string
	err := filepath.WalkDir(dir, func(p string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			got = append(got, filepath.Base(p))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%v are in the output folder, want %v", got, want)
	}
}

// TestResumeAfterCancel: what an interrupted build has fetched is not fetched
// again, and nothing half-made stays.
func TestResumeAfterCancel(t *testing.T) {
	o := goOnline(t, "stories-wide", hubtest.Options{})
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("the user has had enough")
	// spooled is how much of the second file is on disk.
	spooled := func() int64 {
		list, err := hub.ListSpool(o.store.SpoolDir())
		if err != nil {
			t.Error(err)
		}
		for _, e := range list.Entries {
			if e.Size == int64(len(o.files[shard2])) {
				return e.Have
			}
		}
		return 0
	}
	o.hub.Inject(hubtest.Fault{On: hubtest.CDN, Path: shard2, Skip: 1, Times: -1, Stall: true, CutAfter: 700_000, Stalled: func() {
		for spooled() < 512<<10 && t.Context().Err() == nil { // two whole pieces
			runtime.Gosched()
		}
		cancel(stop)
	}})
	res, err := o.try(ctx, "gguf-q8", o.options(), func(h *hub.Options) { h.Concurrency = 1 })
	if !errors.Is(err, stop) {
		t.Fatalf("%v, %v", res, err)
	}
	leftovers(t, o.out)
	first := o.hub.Sent("")
	if first == 0 {
		t.Fatal("nothing was sent before the stall")
	}
	o.hub.ClearFaults()
	res = o.build("gguf-q8")
	o.same(res, o.fromDir("gguf-q8"))
	needed := o.needed(res)
	// The last, unfinished piece of the connection goes with it.
	if sent := o.hub.Sent(""); sent > needed+needed/100+256<<10 {
		t.Errorf("both builds got %d bytes, %d are needed", sent, needed)
	}
	if st := res.Stats.Fetch["base"]; st.Cached == 0 || st.Fetched+st.Cached > needed+needed/100 {
		t.Errorf("%+v of %d", st, needed)
	}
	leftovers(t, o.out, "stories-wide-q8_0.gguf")
}

// TestFlippedByte flips one byte on the way, once, wherever it may hurt.
func TestFlippedByte(t *testing.T) {
	const weight = "model.layers.1.mlp.up_proj.weight"
	for name, c := range map[string]struct {
		path string
		at   func(o *online) int64
	}{
		"weight":             {shard1, func(o *online) int64 { lo, hi := o.tensor(weight); return (lo + hi) / 2 }},
		"weight to infinity": {shard1, func(o *online) int64 { lo, _ := o.tensor(weight); return lo + 1001 }},
		"header length":      {shard1, func(*online) int64 { return 5 }},
		"header":             {shard2, func(*online) int64 { return 700 }},
		"index":              {"model.safetensors.index.json", func(*online) int64 { return 500 }},
		"config":             {"config.json", func(*online) int64 { return 100 }},
		"tokenizer":          {"tokenizer.model", func(*online) int64 { return 3000 }},
		"tokenizer config":   {"tokenizer_config.json", func(*online) int64 { return 60 }},
	} {
		for _, kept := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, store %v", name, kept), func(t *testing.T) {
				files, err := testmodel.Build("stories-wide")
				if err != nil {
					t.Fatal(err)
				}
				o := &online{t: t, files: files}
				at := c.at(o)
				if name == "weight to infinity" {
					// 2^-126 in BF16: with its upper byte inverted it is -Inf.
					files[shard1][at-1], files[shard1][at] = 0x80, 0x00
				}
				o = serve(t, "stories-wide", files, hubtest.Options{})
				for _, on := range []hubtest.Kind{hubtest.CDN, hubtest.ResolveCache} {
					o.hub.Inject(hubtest.Fault{On: on, Path: c.path, Covering: at + 1, Flip: at + 1})
				}
				if !kept {
					o.store = nil
				}
				res, err := o.try(t.Context(), "gguf-q8", o.options())
				if !kept && strings.HasPrefix(name, "weight") {
					// Without a store there are no bytes to go back to.
					if !errors.Is(err, pipeline.ErrSource) {
						t.Errorf("the damage was not found: %v", err)
					}
					leftovers(t, o.out)
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				o.same(res, o.fromDir("gguf-q8"))
				if told := strings.Contains(strings.Join(res.Warnings, "\n"), "start over"); told != strings.HasPrefix(name, "weight") && name != "index" {
					t.Errorf("started over: %v", res.Warnings)
				}
			})
		}
	}
}
