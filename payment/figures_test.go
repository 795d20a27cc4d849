package payment

import (
	"testing"
	"time"

	"github.com/parley-chat/parley/internal/promises"
	"github.com/parley-chat/parley/x402"
)

// TestPaymentFigures: the documents have the figures of the program.
func TestPaymentFigures(t *testing.T) {
	t.Parallel()
	promises.Says(t, "S31", PaidFor)
	promises.Says(t, "P6", PaidFor)
	promises.Says(t, "P12", settleTimeout)
	promises.Says(t, "P14", x402.MinimumValidity+settleMargin)
	promises.Says(t, "P19", Lease)
	promises.Says(t, "P40", "64 KiB", repeatableRead)
	promises.Says(t, "P45", joinTime)
	promises.Says(t, "P53", usedBefore)
	promises.Says(t, "P54", maxAttempts)
	promises.Says(t, "P57", atATime)
	promises.Says(t, "P65", probeAfter, probeTimeout)
	promises.Says(t, "P66", failuresToOpen, openFor)
	promises.Says(t, "P69", contractFor, plainFor)
	promises.Says(t, "P72", joinTime)
	promises.Says(t, "P113", shownTimeout)
	promises.Says(t, "P123", strangersBurst, strangersPerSecond)
	promises.Says(t, "P124", "one token", "four")
	promises.Says(t, "P125", shareBurst, time.Duration(float64(time.Second)/sharePerSecond))
	promises.Says(t, "P126", refusedFor)
	promises.Says(t, "P127", PaidFor)
	promises.Says(t, "O51", Lease)
	if maxStoredRead != 64<<10 || maxWaiting != 32<<20 || ChainCost != 1 || facilitatorCost != 4 || siteShares != 10 {
		t.Error("P40 says 64 KiB, S25 32 MiB, P124 one token and four, P125 tenfold")
	}
}
