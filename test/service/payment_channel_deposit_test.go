package service

import (
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

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

// duringSettle runs meanwhile at the first call of /settle, before the facilitator acts.
func (w *world) duringSettle(meanwhile func()) (mend func()) {
	var once sync.Once
	return w.atSettlement(func() {
		once.Do(meanwhile)
	})
}

// TestBusyQueue: a call that waits too long for others of its payment channel is a conflict of the caller's own, no fault of the server.
func TestBusyQueue(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withChannels)
	alice, bob, payer := w.openChannel()
	voucher := payer.sign(sendPath, 10_000, 0)
	commit := w.hold("LOCK TABLE messages")
	replied := make(chan testkit.Reply, 3)
	send := func(text string) { replied <- alice.sendWith(voucher, bob, text) }
	go send("held up")
	testkit.Eventually(10*time.Second, func() bool {
		return w.Count("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'") > 0
	})
	go send("behind it") // when the database gives up the first one, one of the two takes its place
	go send("behind it too")
	one, other := <-replied, <-replied
	if other.Status == http.StatusConflict {
		one = other
	}
	one.WantRefused(t, "a call behind another one", http.StatusConflict, "payment_in_progress")
	commit()
	<-replied
	w.checkChannels()
}

// TestWithdrawalDuringADeposit: the payer starts a withdrawal while its deposit is being settled. The deposit is kept and nothing is
// charged.
func TestWithdrawalDuringADeposit(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withChannels)
	alice, bob, payer := w.openChannel()
	signer := payer.signer(sendPath)
	deposit := payer.sign(sendPath, 10_000, 50_000)
	var withdrawn atomic.Bool
	mend := w.duringSettle(func() { withdrawn.Store(w.Ledger.InitiateWithdraw(signer.Config, 20_000) == nil) })
	defer mend()
	a := alice.sendWith(deposit, bob, "while a withdrawal starts")
	settled, extra := settledOf(t, a)
	if a.Status != http.StatusPaymentRequired || a.Charged || settled.Amount != "50000" || extra.ChargedAmount != "0" || !withdrawn.Load() {
		t.Errorf("a withdrawal during the deposit: %v %+v %+v, want a 402 that reports the deposit", a, settled, extra)
	}
	if n := w.Count("SELECT count(*) FROM messages"); n != 1 || w.Ledger.Channel(signer.ID).Balance != 100_000 {
		t.Errorf("%d messages and the channel %+v, want 1 and both deposits", n, w.Ledger.Channel(signer.ID))
	}
	w.checkChannels()
}
