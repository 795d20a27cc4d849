package store

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestQueueIsShed: a call that waits too long for its batch is refused, and nothing of it is sent. Later calls are served.
func TestQueueIsShed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const limit = 200 * time.Millisecond
		var ran []int
		begun := make(chan struct{})
		b := newBatcher(batchKind{limit: limit, sizes: newBatchSizes().WithLabelValues("test")}, func(_ context.Context, batch []batchItem[int]) {
			for _, item := range batch {
				ran = append(ran, item.value)
				if item.value == 1 {
					close(begun)
					time.Sleep(2 * limit)
				}
				item.done <- nil
			}
		}, nil)
		first := b.add(t.Context(), 1)
		<-begun
		second := b.add(t.Context(), 2)
		if err := <-first; err != nil {
			t.Error(err)
		}
		if err := <-second; !errors.Is(err, errNotSent) || !NotCommitted(err) || !Unavailable(err) {
			t.Errorf("the call that waited gets %v", err)
		}
		if err := b.do(t.Context(), 3); err != nil {
			t.Error(err)
		}
		if len(ran) != 2 || ran[1] != 3 {
			t.Errorf("ran %v, want 1 and 3", ran)
		}
	})
}

// TestBatchTakesWhatCameMeanwhile: a batch has all items that came while begin waited. If begin fails, nothing of them is sent.
func TestBatchTakesWhatCameMeanwhile(t *testing.T) {
	t.Parallel()
	begun, proceed := make(chan struct{}), make(chan error)
	var ran [][]int
	b := &batcher[int]{begin: func() (func(context.Context, []batchItem[int]), error) {
		begun <- struct{}{}
		return func(_ context.Context, batch []batchItem[int]) {
			ran = append(ran, column(batch, func(n int) int { return n }))
			finish(batch, func(int, int) error { return nil })
		}, <-proceed
	}, batchKind: batchKind{sizes: newBatchSizes().WithLabelValues("test")}}
	for round, want := range []error{nil, errNotSent, nil} {
		first := b.add(t.Context(), round)
		<-begun
		results := []<-chan error{first, b.add(t.Context(), round), b.add(t.Context(), round)}
		proceed <- want
		for _, result := range results {
			if err := <-result; !errors.Is(err, want) {
				t.Errorf("round %d: an item gets %v, want %v", round, err, want)
			}
		}
	}
	if diff := cmp.Diff([][]int{{0, 0, 0}, {2, 2, 2}}, ran); diff != "" {
		t.Errorf("batches (-want +got):\n%s", diff)
	}
}

// TestRetriedItemsComeFirst: items that a batch puts back are in the next one, before those that came later.
func TestRetriedItemsComeFirst(t *testing.T) {
	t.Parallel()
	begun, proceed := make(chan struct{}), make(chan struct{})
	var ran []int
	var b *batcher[int]
	b = newBatcher(batchKind{sizes: newBatchSizes().WithLabelValues("test")}, func(_ context.Context, batch []batchItem[int]) {
		begun <- struct{}{}
		<-proceed
		first := ran == nil
		ran = append(ran, column(batch, func(n int) int { return n })...)
		if first {
			b.retry(batch)
			return
		}
		finish(batch, func(int, int) error { return nil })
	}, nil)
	first := b.add(t.Context(), 1)
	<-begun
	second := b.add(t.Context(), 2)
	proceed <- struct{}{}
	<-begun
	proceed <- struct{}{}
	if err := errors.Join(<-first, <-second); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff([]int{1, 1, 2}, ran); diff != "" {
		t.Errorf("items run (-want +got):\n%s", diff)
	}
}

// TestContendedConversationLeaves: a conversation leaves its queue when it was not locked and its batches are small, or when it was
// not locked for long. While it is locked it stays.
func TestContendedConversationLeaves(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		batches []int // their sizes; negative if the conversation was locked
		want    int   // the batch after which it leaves
	}{
		"small and free":              {[]int{1}, 1},
		"small and locked":            {[]int{-1, -3, -1, 2}, 4},
		"large batches are forgotten": {[]int{-16, 1, 1, 1}, 4},
		"large and free for long":     {[]int{64, 64, 64, 64, 64, 64, 64, 64}, calmAfter},
		"taking turns":                {[]int{8, 8, -8, 8, 8, 8, 8, 8, 8, -8, 8, 1, 8}, 0},
	} {
		q, left := &conversationQueue{}, 0
		for i, size := range test.batches {
			if q.leaves(max(size, -size), size > 0) {
				left = i + 1
				break
			}
		}
		if left != test.want {
			t.Errorf("%s: leaves after batch %d, want %d", name, left, test.want)
		}
	}
}

// TestLongItemsEndABatch: a batch has at most maxBatchBytes, so that short items do not wait for many long ones. A longer item is alone.
func TestLongItemsEndABatch(t *testing.T) {
	t.Parallel()
	b := &batcher[int]{bytes: func(n int) int { return n }}
	for _, bytes := range []int{1, maxBatchBytes - 1, 1, 2 * maxBatchBytes, 1, 1} {
		b.waiting = append(b.waiting, batchItem[int]{value: bytes})
	}
	var sizes []int
	for len(b.waiting) > 0 {
		sizes = append(sizes, len(b.next()))
	}
	if diff := cmp.Diff([]int{2, 1, 1, 2}, sizes); diff != "" {
		t.Errorf("items of batches (-want +got):\n%s", diff)
	}
}
