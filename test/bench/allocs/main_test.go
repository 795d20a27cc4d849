package main

import (
	"io"
	"testing"
)

func TestCompare(t *testing.T) {
	t.Parallel()
	const baseline = "# a comment\n./x402 Match 0\n./server PaidSend 900\n"
	for _, row := range []struct {
		name string
		seen map[string]uint64
		fine bool
	}{
		{"as it was", map[string]uint64{"./x402 Match": 0, "./server PaidSend": 900}, true},
		{"fewer", map[string]uint64{"./x402 Match": 0, "./server PaidSend": 100}, true},
		{"two more of few", map[string]uint64{"./x402 Match": 2}, true},
		{"three more of few", map[string]uint64{"./x402 Match": 3}, false},
		{"a twentieth more of many", map[string]uint64{"./server PaidSend": 945}, true},
		{"more than a twentieth", map[string]uint64{"./server PaidSend": 946}, false},
		{"one that is new", map[string]uint64{"./server PaidReaction": 1}, false},
	} {
		if err := compare(io.Discard, baseline, row.seen); (err == nil) != row.fine {
			t.Errorf("%s: %v", row.name, err)
		}
	}
}
