package server_test

import (
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/parley-chat/parley/internal/testkit"
)

// TestPaymentsUnderWayCount: while a payment of a wallet is being settled that takes all its money, the facilitator is asked to settle no
// other payment of that wallet, although it paid lately.
func TestPaymentsUnderWayCount(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice, bob := w.agent("alice"), w.agent("bob")
	wallet := w.Wallet(10_000)
	send := func() testkit.Reply { return alice.sendWith(w.sign(wallet, sendPath), bob, "text") }
	send().Require(t, "a payment", http.StatusOK)
	var settlements atomic.Int32
	settling, mended := make(chan struct{}), make(chan struct{})
	defer w.atSettlement(func() {
		if settlements.Add(1) == 1 {
			close(settling)
			<-mended
		}
	})()
	first := make(chan testkit.Reply)
	go func() { first <- send() }()
	<-settling
	for range 5 {
		if r := send(); r.Status != http.StatusTooManyRequests || r.Code != "rate_limited" || r.Header.Get("Retry-After") == "" {
			t.Errorf("another payment: %d %s", r.Status, r.Body)
		}
	}
	close(mended)
	if r := <-first; r.Status != http.StatusOK || settlements.Load() != 1 {
		t.Errorf("the payment got %d %s, and the facilitator was asked to settle %d, want 1", r.Status, r.Body, settlements.Load())
	}
}
