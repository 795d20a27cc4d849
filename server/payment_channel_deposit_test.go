package server_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
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

// TestLostDeposit: the response of /settle is lost after the deposit arrived, or before. Either way the same payment ends it with
// one deposit and one message.
func TestLostDeposit(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]func(w *world) func(http.ResponseWriter, *http.Request) bool{
		"after it arrived": func(w *world) func(http.ResponseWriter, *http.Request) bool { return w.settleAndThen(testkit.HangUp) },
		"before": func(*world) func(http.ResponseWriter, *http.Request) bool {
			return func(rw http.ResponseWriter, r *http.Request) bool {
				if r.URL.Path == "/settle" {
					testkit.HangUp(rw)
				}
				return r.URL.Path == "/settle"
			}
		},
		"pending": func(w *world) func(http.ResponseWriter, *http.Request) bool {
			w.Facilitator.PendSettlements(1000)
			return func(http.ResponseWriter, *http.Request) bool { return false }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, withChannels)
			alice, bob := w.agent("alice"), w.agent("bob")
			payer := w.channelPayer(alice.Wallet)
			deposit := payer.sign(sendPath, 5000, 50_000)
			mend := w.breakFacilitator(fault(w))
			a := alice.sendWith(deposit, bob, "lost")
			if a.Status != http.StatusServiceUnavailable || a.Code != "payment_unknown" {
				t.Fatalf("the response of /settle is lost: %v, want 503 payment_unknown", a)
			}
			alice.sendWith(payer.sign(sendPath, 5000, 0), bob, "meanwhile").Want(t, "a voucher of the channel meanwhile", http.StatusConflict,
				"payment_in_progress")
			mend()
			w.Facilitator.PendSettlements(0)
			w.recover()
			a = alice.sendWith(deposit, bob, "lost")
			if settled, extra := settledOf(t, a); a.Status != http.StatusOK || settled.Amount != "50000" ||
				extra.ChannelState.ChargedCumulativeAmount != "5000" || extra.ChannelState.Balance != "50000" {
				t.Errorf("the deposit again: %v %+v %+v", a, settled, extra)
			}
			if n := w.Count(`SELECT count(*) FROM messages`); n != 1 {
				t.Errorf("%d messages, want 1", n)
			}
			if state := w.Ledger.Channel(payer.signer(sendPath).ID); state.Balance != 50_000 {
				t.Errorf("%d are in the channel, want 50000", state.Balance)
			}
			w.checkChannels()
		})
	}
}

// TestDepositWithoutTheChain: the facilitator was not reached and the blockchain endpoint is down. That the channel has more than the
// deposit shows nothing: it may have had that before.
func TestDepositWithoutTheChain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withChannels)
	alice, bob := w.agent("alice"), w.agent("bob")
	payer := w.channelPayer(alice.Wallet)
	alice.sendWith(payer.sign(sendPath, 5000, 100_000), bob, "opens").Require(t, "a call", http.StatusOK)
	deposit := payer.sign(sendPath, 10_000, 50_000)
	mend := w.breakFacilitator(func(rw http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path == "/settle" || r.URL.Path == "/rpc" {
			testkit.HangUp(rw)
			return true
		}
		return false
	})
	alice.sendWith(deposit, bob, "more").Require(t, "neither is reached", http.StatusServiceUnavailable, "payment_unknown")
	if !w.recoverUntil(func() bool { return w.Count(`SELECT max(attempts) FROM payments WHERE state <> 'settling'`) > 1 }) {
		t.Error("it is not tried again")
	}
	mend()
	w.recover()
	alice.sendWith(deposit, bob, "more").Want(t, "the same deposit later", http.StatusOK)
	if state := w.Ledger.Channel(payer.signer(sendPath).ID); state.Balance != 150_000 {
		t.Errorf("%d are in the channel, want 150000", state.Balance)
	}
	w.checkChannels()
}

// TestDepositRefused: what the facilitator refuses for good leaves nothing behind.
func TestDepositRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withChannels)
	alice, bob := w.agent("alice"), w.agent("bob")
	rich := w.Wallet(testkit.Dollar)
	payer := w.channelPayer(rich)
	if a := alice.sendWith(payer.sign(sendPath, 5000, testkit.Dollar+1), bob, "too much"); a.Status != http.StatusPaymentRequired ||
		a.Header.Get(x402.HeaderPaymentResponse) != "" {
		t.Errorf("a deposit above the balance of the wallet: %v, want 402", a)
	}
	deposit := payer.sign(sendPath, 5000, testkit.Dollar)
	spend := func() error {
		return w.Ledger.Transfer(testkit.Address(rich), testkit.Address(alice.Wallet), testkit.Dollar, zeroSalt, zeroSalt)
	}
	mend := w.atSettlement(func() {
		if err := spend(); err != nil {
			t.Error(err)
		}
	})
	if a := alice.sendWith(deposit, bob, "spent meanwhile"); a.Status != http.StatusPaymentRequired || a.Charged {
		t.Errorf("a deposit whose money is gone: %v, want 402", a)
	}
	mend()
	if n := w.Count(`SELECT count(*) FROM payment_channels`); n != 0 {
		t.Errorf("%d payment channels, want none", n)
	}
	mend = w.breakFacilitator(func(rw http.ResponseWriter, _ *http.Request) bool {
		rw.Header().Set("Retry-After", "1")
		rw.WriteHeader(http.StatusTooManyRequests)
		return true
	})
	payer = w.channelPayer(alice.Wallet)
	deposit = payer.sign(sendPath, 5000, 50_000)
	alice.sendWith(deposit, bob, "later").Want(t, "a facilitator that wants no calls", http.StatusServiceUnavailable, "unavailable")
	mend()
	time.Sleep(1100 * time.Millisecond)
	alice.sendWith(deposit, bob, "later").Want(t, "the same deposit later", http.StatusOK)
	w.checkChannels()
}

// TestDepositsAtOnce: two deposits into one channel with the same voucher are one charge.
func TestDepositsAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withChannels)
	alice, bob := w.agent("alice"), w.agent("bob")
	payer := w.channelPayer(alice.Wallet)
	var group sync.WaitGroup
	replies := make([]testkit.Reply, 6)
	for i := range replies {
		payment := payer.sign(sendPath, 5000, 50_000)
		group.Go(func() {
			replies[i] = known(func() testkit.Reply { return alice.sendWith(payment, bob, quote(string(rune('a'+i)))) })
		})
	}
	group.Wait()
	won := 0
	for _, a := range replies {
		if a.Status == http.StatusOK {
			won++
		} else {
			correctionOf(t, a)
		}
	}
	if state := w.Ledger.Channel(payer.signer(sendPath).ID); won != 1 || state.Balance != 50_000 {
		t.Errorf("%d calls were paid and %d deposited, want 1 and 50000", won, state.Balance)
	}
	w.checkChannels()
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

// TestDepositByThePayer: money that the payer itself brought to its channel counts once the chain is asked again.
func TestDepositByThePayer(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withChannels)
	alice, bob := w.agent("alice"), w.agent("bob")
	payer := w.channelPayer(alice.Wallet)
	alice.sendWith(payer.sign(sendPath, 5000, 5000), bob, "one")
	testkit.NoError(t, w.Ledger.DepositIntoChannel(payer.signer(sendPath).Config, 20_000))
	if reason, _, _ := correctionOf(t, alice.sendWith(payer.sign(sendPath, 10_000, 0), bob,
		"at once")); reason != x402.ReasonBatchExceedsBalance {
		t.Errorf("the state of the channel is a moment old: %s", reason)
	}
	w.Exec(`UPDATE payment_channels SET synced_at = now() - interval '61 seconds'`)
	alice.sendWith(payer.sign(sendPath, 10_000, 0), bob, "a minute later").Want(t, "a minute later", http.StatusOK)
	w.breakFacilitator(func(_ http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path == "/settle" { // somebody else brings the deposit to the chain first
			body, _ := io.ReadAll(r.Body)
			first := r.Clone(r.Context())
			first.Body, r.Body = io.NopCloser(bytes.NewReader(body)), io.NopCloser(bytes.NewReader(body))
			w.Facilitator.ServeHTTP(httptest.NewRecorder(), first)
		}
		return false
	})
	alice.sendWith(payer.sign(sendPath, 15_000, 20_000), bob, "brought by somebody else").
		Want(t, "a deposit that somebody else brought", 200)
	w.checkChannels()
}
