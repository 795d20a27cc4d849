package server_test

import (
	"net/http"
	"testing"

	"github.com/parley-chat/parley/x402"
)

// TestLostResponseToADeposit: a client that did not see the response to a deposit knows nothing of it, and signs another deposit with
// the same voucher. For the same request it gets the response, and a PAYMENT-RESPONSE that puts it in step. The second deposit is not
// settled.
func TestLostResponseToADeposit(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withChannels)
	alice, bob := w.agent("alice"), w.agent("bob")
	payer := w.channelPayer(alice.Wallet)
	repeats := func(what string, first, again uint64, content, charged string) {
		t.Helper()
		lost := alice.sendWith(payer.sign(sendPath, first, again), bob, content)
		settles := w.settles.Load()
		a := alice.sendWith(payer.sign(sendPath, first, again), bob, content)
		settled, extra := settledOf(t, a)
		if a.Status != http.StatusOK || string(a.Body) != string(lost.Body) || w.settles.Load() != settles || settled.Transaction != "" {
			t.Errorf("%s: %v %+v, %d settlements, want %v and none", what, a, settled, w.settles.Load()-settles, lost)
		}
		if extra.ChargedAmount != "5000" || extra.ChannelState.ChargedCumulativeAmount != charged {
			t.Errorf("%s: %+v, want 5000 charged, %s in all", what, extra, charged)
		}
		if offer := alice.firstOffer(); offer != x402.SchemeBatch {
			t.Errorf("%s: %s is offered first", what, offer)
		}
	}
	repeats("the first deposit", 5000, 10_000, "one", "5000")
	// A client that forgot the first call is in step now: the next time the same request is a new call.
	alice.sendWith(payer.sign(sendPath, 10_000, 0), bob, "one").Want(t, "the next voucher", http.StatusOK)
	repeats("a top-up", 15_000, 10_000, "three", "15000")
	// A client that restarted without its state may want the first request again.
	if reason, state, _ := correctionOf(t, alice.sendWith(payer.sign(sendPath, 5000, 10_000), bob,
		"one")); reason != x402.ReasonBatchCumulativeMismatch ||
		state.ChargedCumulativeAmount != "15000" {
		t.Errorf("the first voucher, charged long ago: %s %+v", reason, state)
	}
	if n := w.Count(`SELECT count(*) FROM messages`); n != 3 {
		t.Errorf("%d messages, want 3", n)
	}
	w.checkChannels()
}
