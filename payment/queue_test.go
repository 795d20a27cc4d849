package payment

import (
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/parley-chat/parley/x402"
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

// TestStrangersShareAFewSlots: dry runs for wallets that have not paid lately use up their own slots, and not those of payers; one payer
// uses up a few of these.
func TestStrangersShareAFewSlots(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSlots()
		admitted := func(payer bool, name func(n int) string) (n int) {
			for {
				by := Checked{Checked: x402.Checked{Payer: name(n)}}
				if _, err := s.acquire(t.Context(), &Attempt{Operation: &Operation{}, Checked: by}, payer); err != nil {
					return n
				}
				n++
			}
		}
		each := func(n int) string { return fmt.Sprint("wallet ", n) }
		one := admitted(true, func(int) string { return "the same" })
		strangers, payers := admitted(false, each), admitted(true, each)
		if strangers == 0 || strangers*2 > payers || payers > 100 {
			t.Errorf("%d dry runs of strangers are admitted and %d of payers; want few, and a part", strangers, payers)
		}
		if one == 0 || one*5 > payers {
			t.Errorf("%d dry runs of one payer are admitted and then %d of others; want few, and a part", one, payers)
		}
	})
}
