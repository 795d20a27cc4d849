package server_test

import (
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/parley-chat/parley/internal/testkit"
)

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
