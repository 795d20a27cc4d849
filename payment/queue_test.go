package payment

import "testing"

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
