package retention

import (
	"testing"

	"github.com/parley-chat/parley/internal/promises"
)

// TestRetentionFigures: the documents have the figures of the program.
func TestRetentionFigures(t *testing.T) {
	t.Parallel()
	promises.Says(t, "O28", every)
}
