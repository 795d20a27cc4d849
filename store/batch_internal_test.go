package store

import (
	"errors"
	"testing"
	"time"
)

// TestQueueIsShed: a call that waits too long for its batch is refused, and nothing of it is sent. Later calls are served.
func TestQueueIsShed(t *testing.T) {
	t.Parallel()
	var ran []int
	begun := make(chan struct{})
	b := newBatcher(func(batch []batchItem[int]) {
		for _, item := range batch {
			ran = append(ran, item.value)
			if item.value == 1 {
				close(begun)
				time.Sleep(maxQueued + 200*time.Millisecond)
			}
			item.done <- nil
		}
	}, nil)
	first := b.add(1)
	<-begun
	second := b.add(2)
	if err := <-first; err != nil {
		t.Error(err)
	}
	if err := <-second; !errors.Is(err, errNotSent) || !NotCommitted(err) || !Unavailable(err) {
		t.Errorf("the call that waited gets %v", err)
	}
	if err := b.do(3); err != nil {
		t.Error(err)
	}
	if len(ran) != 2 || ran[1] != 3 {
		t.Errorf("ran %v, want 1 and 3", ran)
	}
}
