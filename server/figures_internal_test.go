package server

import (
	"testing"

	"github.com/parley-chat/parley/internal/promises"
)

// TestServerFigures: the documents have the figures of the program.
func TestServerFigures(t *testing.T) {
	t.Parallel()
	promises.Says(t, "S10", DefaultLimits().WrongTANs, wrongTANsFor)
	promises.Says(t, "S25", "32 MiB")
	promises.Says(t, "S27", workPerToken, "32 KiB", "8 KiB")
	promises.Says(t, "O20", figuresFor)
	promises.Says(t, "O37", maxClockDifference)
	if maxSentBytes != 32<<20 || bodyPerToken != 32<<10 || documentPerToken != 8<<10 {
		t.Error("S25 says 32 MiB, S27 32 KiB and 8 KiB")
	}
}
