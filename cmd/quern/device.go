package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/urfave/cli/v2"

	"quern/device"
	"quern/formats/cact"
	"quern/model"
	"quern/pipeline"
	"quern/recipes"
	"quern/runtime/needle"
	"quern/tensor"
)

// deviceFlags describe a device.
func deviceFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "ram", Usage: "say what a device holds of each output whose programs may use this much memory, a `SIZE` such as 1GB"},
		&cli.StringFlag{Name: "map-limit", Usage: "the most that the device maps, a `SIZE`"},
		&cli.StringFlag{Name: "flash", Usage: "what the device's flash gives in a second, a `SIZE` such as 278MB"},
		&cli.IntFlag{Name: "device-context", Usage: "the `TOKENS` that keys and values are kept of; 0 means what the model has"},
		&cli.StringFlag{Name: "kv", Value: "f16", Usage: "the `TYPE` of keys and values: f32, f16, bf16, q8_0 or q4_0"},
	}
}

// size reads a flag that is a size; 0 when it is not there. A speed may end in /s.
func size(c *cli.Context, flag string) (int64, error) {
	text := c.String(flag)
	if text == "" {
		return 0, nil
	}
	n, err := recipes.ParseSize(strings.TrimSuffix(text, "/s"))
	if err != nil {
		return 0, usagef("--%s: %v", flag, err)
	}
	if n <= 0 {
		return 0, usagef("--%s %s: more than nothing", flag, text)
	}
	return n, nil
}

// deviceSpec reads deviceFlags; nil when no device is asked about.
func deviceSpec(c *cli.Context) (*device.Spec, error) {
	var s device.Spec
	var err error
	for _, f := range []struct {
		name string
		to   *int64
	}{{"ram", &s.RAM}, {"map-limit", &s.MapLimit}, {"flash", &s.Flash}} {
		if *f.to, err = size(c, f.name); err != nil {
			return nil, err
		}
	}
	s.Context = int64(c.Int("device-context"))
	if s.RAM == 0 {
		for _, f := range []string{"map-limit", "flash", "device-context", "kv"} {
			if c.IsSet(f) {
				return nil, usagef("--%s says something of a device: --ram SIZE is missing", f)
			}
		}
		return nil, nil
	}
	if s.KV, err = tensor.ParseType(strings.ToUpper(c.String("kv"))); err != nil {
		return nil, usagef("--kv: %v", err)
	}
	return &s, nil
}

// deviceDoc is what a device makes of one output.
type deviceDoc struct {
	*device.Account
	Needle *needle.Budget `json:"needle,omitempty"`
	Fits   bool           `json:"fits"`
}

// deviceAccounts makes the accounts of the outputs of a plan.
func deviceAccounts(p *pipeline.Plan, s device.Spec) ([]deviceDoc, error) {
	var out []deviceDoc
	for _, l := range p.Layouts {
		switch {
		case l.Of != nil: // a cache holds nothing of its own
		case l.Model == nil:
		case l.Model.Form == model.GGUF:
			a, err := device.Fit(layoutFile(l), s)
			if errors.Is(err, device.ErrSpec) {
				return nil, usagef("%v", err)
			}
			if err != nil {
				return nil, err
			}
			out = append(out, deviceDoc{Account: a, Fits: a.Resident == a.Needed && a.MapFits})
		case l.Model.Archive != nil:
			out = append(out, needleAccount(l, s, &l.Model.Archive.Header))
		}
	}
	return out, nil
}

// needleAccount is the account of a .cact archive: weights are mapped as they
// stand, the KV cache has a window.
func needleAccount(l *pipeline.Layout, s device.Spec, h *cact.Header) deviceDoc {
	var stored int64
	for _, it := range l.Items {
		stored += it.Tensor.Bytes()
	}
	b := needle.BudgetOf(h, stored)
	total := b.Total()
	a := &device.Account{File: l.File, Size: l.Size, Work: b.Activations + b.Engram, KV: b.KV, Weights: b.Weights,
		Needed: total, Resident: min(total, s.RAM), Streamed: max(0, total-s.RAM), Map: l.Size, MapFits: s.MapLimit == 0 || l.Size <= s.MapLimit}
	return deviceDoc{Account: a, Needle: &b, Fits: total <= s.RAM && a.MapFits}
}

func layoutFile(l *pipeline.Layout) *device.File {
	f := &device.File{Name: l.File, Size: l.Size, Meta: l.Model.Meta}
	for _, it := range l.Items {
		f.Parts = append(f.Parts, device.Part{Name: it.Tensor.Name, Shape: it.Tensor.Shape, Offset: it.Offset, Bytes: it.Tensor.Bytes()})
	}
	return f
}

// printDevice writes an account for people.
func printDevice(w io.Writer, s device.Spec, d deviceDoc) {
	a := d.Account
	fmt.Fprintf(w, "%s on a device with %s of memory:\n", a.File, bytesText(s.RAM))
	row := func(what string, n int64, more string) { fmt.Fprintf(w, "  %-28s %12s%s\n", what, bytesText(n), more) }
	row("activations", a.Work, "")
	row("keys and values", a.KV, fmt.Sprintf("  %d tokens", a.Context))
	row("weights of every token", a.Weights, "")
	if a.Embedding > 0 {
		row("embedding, read by rows", a.Embedding, "  not counted")
	}
	if e := a.Experts; e != nil {
		row("routed experts", e.Bytes, fmt.Sprintf("  %d layers of %d, a token uses %d", e.Layers, e.Count, e.Used))
		row("  of them in memory", e.Bytes/e.Count*e.Pool, fmt.Sprintf("  %d of each layer", e.Pool))
	}
	row("needed", a.Needed, "")
	row("in memory", a.Resident, "")
	row("to map", a.Map, limitText(s.MapLimit, a.MapFits))
	if a.Streamed > 0 {
		more := "  for each token"
		if a.Experts != nil {
			more = "  for each token, if experts are used alike"
		}
		if a.Ceiling > 0 {
			more += fmt.Sprintf(": at most %.2f tokens a second", a.Ceiling)
		}
		row("from flash", a.Streamed, more)
	}
	for _, n := range a.Notes {
		fmt.Fprintf(w, "  note: %s\n", n)
	}
}

func limitText(limit int64, fits bool) string {
	switch {
	case limit == 0:
		return ""
	case fits:
		return fmt.Sprintf("  of %s that can be", bytesText(limit))
	}
	return fmt.Sprintf("  more than the %s that can be", bytesText(limit))
}
