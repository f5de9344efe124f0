package convert

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"quern/internal/pyjson"
	"quern/model"
	"quern/tensor"
)

// unsupported refuses models that share their class with what is converted but
// are something else.
func unsupported(ctx context.Context, m *model.Model, f model.Family) error {
	switch f {
	case model.Llama:
		layers, _, _ := m.Config.OptInt("num_hidden_layers")
		if _, _, ok := m.Config.Find("draft_vocab_size"); ok && layers == 1 {
			return fmt.Errorf("%s: %w: a draft model (EAGLE-3), which needs its target", m.Config.File(), model.ErrArchitecture)
		}
	case model.Qwen3:
		is, err := isReranker(ctx, m)
		if err != nil {
			return err
		}
		if is {
			return fmt.Errorf("%w: a Qwen3 reranker, whose head is cut to two tokens", model.ErrArchitecture)
		}
	}
	return nil
}

// quantized refuses checkpoints that are quantized in a way of which LoadHF makes
// no plain weights. Like the converter it knows 8-bit floats of three kinds.
func quantized(m *model.Model) error {
	qc, err := m.Config.Object("quantization_config")
	if err != nil || qc == nil {
		return err
	}
	v, _ := qc.Get("quant_method")
	switch v {
	case nil, "fp8", "modelopt":
		return nil
	case "compressed-tensors":
		f, _ := qc.Get("format")
		if format, _ := f.(string); format == "float-quantized" || format == "naive-quantized" {
			return nil
		}
		return fmt.Errorf("%s: %w: format %s of %s; float-quantized is read, other checkpoints must be given unquantized", m.Config.File(), ErrQuantized, pyjson.Show(f), v)
	}
	return fmt.Errorf("%s: %w: quant_method %s; fp8 is read, other checkpoints must be given unquantized", m.Config.File(), ErrQuantized, pyjson.Show(v))
}

// stored gives the tensors as the files have them.
func stored(m *model.Model) []*tensor.Tensor {
	if m.Stored != nil {
		return m.Stored
	}
	return m.Tensors
}

// isReranker follows the hints that the converter goes by.
func isReranker(ctx context.Context, m *model.Model) (bool, error) {
	hints := []string{m.Name, m.Config.ModelType(), m.Config.Architecture()}
	if v, _ := m.Config.Raw("_name_or_path"); v != nil {
		s, _ := v.(string)
		hints = append(hints, s)
	}
	for _, h := range hints {
		h = strings.ToLower(h)
		if strings.Contains(h, "qwen3-reranker") || strings.Contains(h, "qwen3-vl-reranker") {
			return true, nil
		}
	}
	text, err := m.Files.ReadFile(ctx, cardName, limitCard)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("%s: %w", cardName, err)
	}
	card := strings.ToLower(string(text))
	return strings.Contains(card, "# qwen3-reranker") || strings.Contains(card, "# qwen3-vl-reranker"), nil
}
