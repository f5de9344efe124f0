package ladder

import (
	"fmt"

	"quern/model"
)

// ofNeedle refuses models that know no ladder.
func ofNeedle(m *model.Model) error {
	if m.Form != model.Needle && m.Form != model.Cact {
		return fmt.Errorf("%w: the model is in %s form; Needle checkpoints and .cact archives can be cut", model.ErrForm, m.Form)
	}
	return nil
}
