package channel

import (
	"testing"
	"time"

	"github.com/parley-chat/parley/internal/promises"
)

// TestChannelFigures: the documents have the figures of the program.
func TestChannelFigures(t *testing.T) {
	t.Parallel()
	promises.Says(t, "S40", cheapRefunds, "0.01 USD")
	promises.Says(t, "P79", "once a minute")
	promises.Says(t, "P80", recheckAfter)
	promises.Says(t, "P82", recheckAfter)
	promises.Says(t, "P92", "once a minute")
	promises.Says(t, "P96", claimEvery)
	promises.Says(t, "P98", maxGeneration*time.Second, lostFor)
	promises.Says(t, "P99", exactFor, maxLost)
	promises.Says(t, "P114", claimRetry)
	promises.Says(t, "P116", claimBatch)
	promises.Says(t, "P117", claimEvery)
	if adoptionPause != time.Minute || refundPause != time.Minute || refundWorth != 10_000 {
		t.Error("P79 and P92 say once a minute, S40 0.01 USD")
	}
}
