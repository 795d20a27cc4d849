package payment

import "testing"

// TestWaitingResponsesHaveABudget: the response of a read is kept until it is settled, unless too many wait; when they end there is room.
func TestWaitingResponsesHaveABudget(t *testing.T) {
	t.Parallel()
	s := newSlots()
	long := make([]byte, maxWaiting)
	kept, done := s.keep(long)
	if len(kept) != len(long) {
		t.Fatalf("%d bytes are kept, want %d", len(kept), len(long))
	}
	if more, none := s.keep([]byte("x")); more != nil {
		t.Error("a further response is kept")
	} else {
		none()
	}
	done()
	if more, done := s.keep([]byte("x")); string(more) != "x" {
		t.Error("when the first has ended, there is no room for another")
	} else {
		done()
	}
}
