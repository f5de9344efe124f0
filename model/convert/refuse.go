package convert

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"quern/model"
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
