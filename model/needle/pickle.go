package needle

import (
	"context"
	"fmt"
	"strconv"

	"quern/formats/pickle"
	"quern/model"
	"quern/tensor"
)

// LoadPickle opens a checkpoint that is a pickle: a dict of params, config, step,
// run and format_version. It gives nil for pickles of other things.
func LoadPickle(ctx context.Context, name string, blob tensor.Blob, opt pickle.Options) (*model.Model, error) {
	f, err := pickle.Open(ctx, name, blob, opt)
	if err != nil {
		return nil, err
	}
	root, _ := f.Root.(*pickle.Dict)
	if root == nil || root.Get("params") == nil || root.Get("config") == nil {
		return nil, nil
	}
	ts, err := f.Tensors(root.Get("params"))
	if err != nil {
		return nil, err
	}
	config, err := pickle.JSON(root.Get("config"))
	if err != nil {
		return nil, fmt.Errorf("%s: config: %w", name, err)
	}
	version := ""
	switch v := root.Get("format_version").(type) {
	case int64:
		version = strconv.FormatInt(v, 10)
	case string:
		version = v
	}
	return FromParts(name, config, version, ts)
}

// AdapterFromPickle reads an adapter that is a pickle: a dict with lora, a dict of
// A and B by path, and scale.
func AdapterFromPickle(ctx context.Context, name string, blob tensor.Blob, opt pickle.Options) (*Adapter, error) {
	f, err := pickle.Open(ctx, name, blob, opt)
	if err != nil {
		return nil, err
	}
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%s: %w: "+format, append([]any{name, ErrAdapter}, args...)...)
	}
	root, _ := f.Root.(*pickle.Dict)
	if root == nil || root.Get("lora") == nil {
		return nil, bad("it is no dict with a lora in it")
	}
	a := &Adapter{Name: name, Parts: map[string]AdapterPart{}}
	switch v := root.Get("scale").(type) {
	case float64:
		a.Scale = v
	case int64:
		a.Scale = float64(v)
	default:
		return nil, bad("it has no scale")
	}
	if root.Get("languages") != nil {
		return nil, bad("it is for a speech model, whose adapters are safetensors files")
	}
	ts, err := f.Tensors(root.Get("lora"))
	if err != nil {
		return nil, err
	}
	return a, a.add(ts, "")
}
