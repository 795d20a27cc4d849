package channel

import (
	"testing"

	"github.com/parley-chat/parley/x402"
)

// TestGenerationOf: a payment channel is of a generation by its delay, as far as the longest delay allows.
func TestGenerationOf(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ ours, theirs, want, last uint64 }{
		{900, 900, 0, 63},
		{900, 901, 1, 63},
		{900, 963, 63, 63},
		{900, 964, 0, 63},
		{901, 900, 0, 63},
		{x402.MaxWithdrawDelay - 1, x402.MaxWithdrawDelay, 1, 1},
		{x402.MaxWithdrawDelay, x402.MaxWithdrawDelay + 1, 0, 0},
	} {
		c := &Scheme{terms: x402.ChannelTerms{WithdrawDelay: row.ours}}
		if got, last := c.generationOf(row.theirs), c.lastGeneration(); got != row.want || last != row.last {
			t.Errorf("delay %d is generation %d of %d, want %d of %d", row.theirs, got, last, row.want, row.last)
		}
	}
}
