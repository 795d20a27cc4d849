package payment

import (
	"context"
	"testing"
)

// TestWaitingResponsesHaveABudget: the response of a read is kept until it is settled, unless too many wait; when they end there is room.
func TestWaitingResponsesHaveABudget(t *testing.T) {
	t.Parallel()
	s := newSlots()
	long, short := make([]byte, maxWaiting), []byte("x")
	if !s.keep(long) {
		t.Fatalf("%d bytes are not kept", len(long))
	}
	if s.keep(short) {
		t.Error("a further response is kept")
	}
	s.forget(long)
	if !s.keep(short) {
		t.Error("when the first has ended, there is no room for another")
	}
}

// TestStrangersShareAFewSlots: dry runs for wallets that have not paid lately use up their own slots, and not those of payers.
func TestStrangersShareAFewSlots(t *testing.T) {
	t.Parallel()
	s := newSlots()
	impatient, cancel := context.WithCancel(t.Context())
	cancel()
	admitted := func(payer bool) (n int) {
		for {
			if _, err := s.acquire(impatient, &Attempt{Operation: &Operation{}}, payer); err != nil {
				return n
			}
			n++
		}
	}
	strangers, payers := admitted(false), admitted(true)
	if strangers == 0 || strangers*2 > payers || payers > 100 {
		t.Errorf("%d dry runs of strangers are admitted and %d of payers; want few, and a part", strangers, payers)
	}
}
