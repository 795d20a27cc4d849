package server_test

import (
	"net/http"
	"sync"
	"testing"

	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/x402"
)

// blockedMeanwhile sends a message with a deposit. The recipient blocks the sender while the deposit settles.
func (w *world) blockedMeanwhile(from, to *agent, deposit string) testkit.Reply {
	w.T.Helper()
	block := sync.OnceFunc(func() {
		if a := w.pay(to.Wallet, "/agent/block", `{"agent_id":`+quote(from.ID)+`}`, "X-API-KEY", to.Key); a.Status != http.StatusOK {
			w.T.Errorf("%s blocks: %v", to.Name, a)
		}
	})
	mend := w.atSettlement(func() {
		w.fault.Store(nil)
		block()
	})
	defer mend()
	return from.sendWith(deposit, to, "blocked meanwhile")
}

// TestRejectedDeposit: the operation rejects the call after its deposit settled. The deposit is the payer's, nothing is
// charged, and the same voucher pays for the next call, also if it comes with the same deposit again.
func TestRejectedDeposit(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withChannels)
	alice, bob, carol := w.agent("alice"), w.agent("bob"), w.agent("carol")
	payer := w.channelPayer(alice.Wallet)
	deposit := payer.sign(sendPath, 5000, 50_000)
	a := w.blockedMeanwhile(alice, bob, deposit)
	settled, extra := settledOf(t, a)
	if a.Status != http.StatusForbidden || a.Code != "blocked" || a.Charged || !settled.Success || settled.Amount != "50000" ||
		extra.ChargedAmount != "0" || extra.ChannelState.ChargedCumulativeAmount != "0" || extra.ChannelState.Balance != "50000" {
		t.Fatalf("rejected after the deposit: %v %+v %+v", a, settled, extra)
	}
	w.checkChannels()
	a = alice.sendWith(deposit, bob, "blocked still")
	if settled, extra := settledOf(t, a); a.Code != "blocked" || a.Charged || settled.Amount != "50000" || extra.ChargedAmount != "0" {
		t.Errorf("the same deposit, rejected again: %v %+v %+v", a, settled, extra)
	}
	a = alice.sendWith(deposit, carol, "to another")
	if settled, extra := settledOf(t, a); a.Status != http.StatusOK || settled.Amount != "50000" || extra.ChargedAmount != "5000" {
		t.Errorf("the same deposit for another call: %v %+v %+v", a, settled, extra)
	}
	if again := alice.sendWith(deposit, carol, "to another"); string(again.Body) != string(a.Body) {
		t.Errorf("and repeated: %v, want %v", again, a)
	}
	alice.sendWith(payer.sign(sendPath, 10_000, 0), carol, "next").Want(t, "the next voucher", http.StatusOK)
	if n := w.Count(`SELECT count(*) FROM payments WHERE state = 'deposited'`); n != 1 {
		t.Errorf("%d payments are deposited, want 1", n)
	}
	w.checkChannels()
}

// TestDepositRefused: a deposit whose money is gone when it is to be settled leaves nothing behind.
func TestDepositRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withChannels)
	alice, bob, rich := w.agent("alice"), w.agent("bob"), w.Wallet(testkit.Dollar)
	deposit := w.channelPayer(rich).sign(sendPath, 5000, testkit.Dollar)
	defer w.atSettlement(func() {
		testkit.NoError(t, w.Ledger.Transfer(testkit.Address(rich), testkit.Address(alice.Wallet), testkit.Dollar, zeroSalt, zeroSalt))
	})()
	if a := alice.sendWith(deposit, bob, "spent meanwhile"); a.Status != http.StatusPaymentRequired || a.Charged {
		t.Errorf("a deposit whose money is gone: %v, want 402", a)
	}
	if n := w.Count(`SELECT count(*) FROM payment_channels`); n != 0 {
		t.Errorf("%d payment channels, want none", n)
	}
}

// TestDepositOutside: a payment channel whose deposit did not come through the server is unknown until one does. Then all its money counts.
func TestDepositOutside(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withChannels)
	alice, bob := w.agent("alice"), w.agent("bob")
	payer := w.channelPayer(alice.Wallet)
	testkit.NoError(t, w.Ledger.DepositIntoChannel(payer.signer(sendPath).Config, 20_000))
	if reason := reasonOf(t, alice.sendWith(payer.sign(sendPath, 5000, 0), bob, "unknown")); reason != x402.ReasonBatchChannelNotFound {
		t.Errorf("a voucher of an unknown payment channel: %s", reason)
	}
	for n := uint64(1); n <= 5; n++ {
		alice.sendWith(payer.sign(sendPath, 5000*n, 5000*(2-min(n, 2))), bob, "hello").Want(t, "after a deposit", http.StatusOK)
	}
	w.checkChannels()
}
