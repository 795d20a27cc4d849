package server_test

import (
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/x402"
)

// duringSettle runs meanwhile at the first call of /settle, before the facilitator acts.
func (w *world) duringSettle(meanwhile func()) (mend func()) {
	var once sync.Once
	return w.atSettlement(func() {
		once.Do(meanwhile)
	})
}

// TestBusyChannel: while a deposit or a refund of a payment channel is being settled, nothing else is charged, deposited or refunded.
func TestBusyChannel(t *testing.T) {
	t.Parallel()
	for name, refunds := range map[string]bool{"refund": true, "deposit": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, withChannels)
			alice, bob, payer := w.openChannel()
			id := payer.signer(sendPath).ID
			voucher, deposit := payer.sign(sendPath, 10_000, 0), payer.sign(sendPath, 10_000, 50_000)
			topUp := payer.sign(sendPath, 10_000, 40_000)
			mend := w.duringSettle(func() {
				var group sync.WaitGroup
				for what, call := range map[string]func() testkit.Reply{
					"a voucher": func() testkit.Reply { return alice.sendWith(voucher, bob, "by a voucher") },
					"a deposit": func() testkit.Reply { return alice.sendWith(topUp, bob, "by a deposit") },
					"a refund":  func() testkit.Reply { return payer.refund("/agent/me", 5000, 0) },
				} {
					group.Go(func() { call().Want(t, what+" during a "+name, http.StatusConflict, "payment_in_progress") })
				}
				group.Wait()
			})
			defer mend()
			if refunds {
				payer.refund("/agent/me", 5000, 0).Want(t, "the refund", http.StatusNoContent)
			} else if a := alice.sendWith(deposit, bob, "by the first deposit"); a.Status != http.StatusOK {
				t.Errorf("the first deposit: %v, want 200", a)
			}
			want := map[bool]x402.Channel{
				true:  {Balance: 5000, TotalClaimed: 5000, RefundNonce: 1},
				false: {Balance: 100_000},
			}[refunds]
			if state := w.Ledger.Channel(id); state != want {
				t.Errorf("the channel has %+v, want %+v", state, want)
			}
			w.checkChannels()
		})
	}
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

// TestCancelledDeposit: the payer cancels its deposit while it is being settled. Nothing is deposited and nothing is charged.
func TestCancelledDeposit(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withChannels)
	alice, bob, payer := w.openChannel()
	var nonce string
	deposit := payer.sign(sendPath, 10_000, 50_000, func(p *x402.BatchPayment) {
		nonce, _ = x402.DepositNonce(p.Payload.Voucher.ChannelID, p.Payload.Deposit.Authorization.ERC3009.Salt)
	})
	var cancelled atomic.Bool
	mend := w.duringSettle(func() { cancelled.Store(w.Ledger.Cancel(testkit.Address(alice.Wallet), nonce) == nil) })
	defer mend()
	for range 2 {
		a := alice.sendWith(deposit, bob, "for a cancelled deposit")
		if a.Status != http.StatusPaymentRequired || a.Charged || !cancelled.Load() {
			t.Errorf("a cancelled deposit: %v (cancelled %v), want 402", a, cancelled.Load())
		}
	}
	if n := w.Count("SELECT count(*) FROM messages"); n != 1 || w.Ledger.Channel(payer.signer(sendPath).ID).Balance != 50_000 {
		t.Errorf("%d messages, want 1, and the first deposit alone", n)
	}
	w.checkChannels()
}
