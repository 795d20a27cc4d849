//go:build attack

package attack

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/parley-chat/parley/internal/devnet"
	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/x402"
)

// TestFacilitatorGoneForDays: vouchers are charged while nobody responds, until the state of the channels is too old. When the
// facilitator is back, everything is claimed and paid out.
func TestFacilitatorGoneForDays(t *testing.T) {
	t.Parallel()
	w := newChannelWorld(t)
	alice, bob := w.payer(w.alice), w.payer(w.bob)
	sum, bobs := alice.open(w.s, testkit.Dollar, 1), bob.open(w.s, testkit.Dollar, 1)
	for range rounds(t) {
		w.Exec("UPDATE payment_channels SET synced_at = now()") // the servers have just looked
		w.proxy.close()
		for range 3 {
			sum += sendPrice
			w.s.pay(alice.says("while nobody responds", sum, 0)).Want(t, "a voucher without the facilitator", 200)
		}
		w.pass(8 * time.Hour) // due, and nobody can be told
		sum += sendPrice
		w.s.pay(alice.says("eight hours later", sum, 0)).Want(t, "a voucher eight hours later", 200)
		w.pass(64 * time.Hour)
		late := alice.says("three days later", sum+sendPrice, 0)
		w.s.pay(late).WantRefused(t, "a voucher three days later", 503, "unavailable")
		w.s.pay(alice.says("a top-up", sum+sendPrice, testkit.Dollar)).WantRefused(t, "a deposit without the facilitator", 503)
		if n := w.messages(late.content); n != 0 {
			t.Errorf("%d messages on a state that is three days old", n)
		}
		w.proxy.open()
		w.s.insist(late).Want(t, "the same voucher when the facilitator is back", 200)
		sum += sendPrice
		bobs += sendPrice
		w.s.insist(bob.says("and the other channel", bobs, 0)).Want(t, "a voucher of the other channel", 200)
		w.pass(7 * time.Hour)
		w.paidOut()
		if settled := w.Ledger.Received(devnet.Payee).Settled; settled != sum+bobs {
			t.Errorf("%d are paid out, want %d", settled, sum+bobs)
		}
		w.check()
	}
}

// TestClaimsMeetEveryFault: the facilitator's responses to claims and pay-outs are lost, cut or wrong, before and after it acts.
func TestClaimsMeetEveryFault(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]fault{
		"dropped before": dropBefore, "dropped after": dropAfter, "cut after": cutAfter, "500 before": respond(500, ""), "500 after": respondAfter(500, ""),
		"HTML after": respondAfter(200, page), "nothing before": respond(200, ""), "nothing after": respondAfter(200, ""), "pending": respond(200, pending),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newChannelWorld(t)
			p := w.payer(w.alice)
			sum := p.open(w.s, testkit.Dollar, 1)
			for round := range max(2, rounds(t)/5) {
				sum += sendPrice
				w.s.insist(p.says("to be claimed", sum, 0)).Want(t, "a voucher", 200)
				claims := w.proxy.count("/settle claim")
				w.proxy.breakWith(onSettle(fault))
				w.pass(7 * time.Hour)
				if !testkit.Eventually(recoveryTime, func() bool { return w.proxy.count("/settle claim") > claims }) {
					t.Fatal("nothing is claimed")
				}
				if round%2 == 1 { // else no later claim makes up for this one
					sum += sendPrice
					w.s.insist(p.says("meanwhile", sum, 0)).Want(t, "a voucher meanwhile", 200)
				}
				w.proxy.mend()
				w.s.kill()
				w.pass(7 * time.Hour)
				w.s.start("") // a start pays out what was claimed by an earlier life
				w.paidOut()
				if claimed := w.Ledger.Channel(p.id).TotalClaimed; claimed != sum {
					t.Errorf("%d are claimed, want %d", claimed, sum)
				}
				w.check()
			}
		})
	}
}

// TestClaimBatchWithBadRows: rows that the chain rejects do not hold up the others, wherever they are in the batch.
func TestClaimBatchWithBadRows(t *testing.T) {
	t.Parallel()
	w := newChannelWorldWith(t, quarter)
	var good []*channelPayer
	lost := uint64(0)
	for round := range max(2, rounds(t)/4) {
		for i := range 7 {
			p := w.payer(w.alice)
			charged := p.open(w.s, testkit.Dollar, 2)
			if i != round%7 && i != (3*round+1)%7 {
				good = append(good, p)
				continue
			}
			w.withdraws(p, testkit.Dollar)
			lost += charged
		}
		w.s.kill()
		w.pass(7 * time.Hour)
		w.s.start("")
		if !testkit.Eventually(recoveryTime, func() bool {
			for _, p := range good {
				if w.Ledger.Channel(p.id).TotalClaimed != 2*sendPrice {
					return false
				}
			}
			sums := w.Ledger.Received(devnet.Payee)
			return sums.Settled == sums.Claimed
		}) {
			t.Errorf("the good rows are not claimed: %+v", w.Ledger.Received(devnet.Payee))
		}
		if claimed, want := w.Ledger.Received(devnet.Payee).Claimed, uint64(len(good))*2*sendPrice; claimed != want {
			t.Errorf("claimed %d, want %d and nothing of the %d that are lost", claimed, want, lost)
		}
		w.check()
	}
}

// withdraws lets a payer withdraw on the chain as if the servers had not been able to claim in time. The chain's clock goes forward
// by the delay.
func (w *channelWorld) withdraws(p *channelPayer, amount uint64) {
	w.T.Helper()
	if err := w.Ledger.InitiateWithdraw(p.signer.Config, amount); err != nil {
		w.T.Fatal(err)
	}
	w.Ledger.Advance(w.delay + time.Second)
	if _, err := w.Ledger.FinalizeWithdraw(p.signer.Config); err != nil {
		w.T.Fatal(err)
	}
}

// TestWithdrawalBeforeACall: vouchers that are charged before the servers know of a withdrawal are claimed before it ends, none is
// charged after they know, and the channel is good again after a new deposit.
func TestWithdrawalBeforeACall(t *testing.T) {
	t.Parallel()
	w := newChannelWorldWith(t, quarter)
	for range rounds(t) {
		p := w.payer(w.alice)
		charged := p.open(w.s, testkit.Dollar, 1)
		if err := w.Ledger.InitiateWithdraw(p.signer.Config, testkit.Dollar); err != nil {
			t.Fatal(err)
		}
		charged += sendPrice
		w.s.pay(p.says("before the server knows", charged, 0)).Want(t, "a voucher while the state is fresh", 200)
		w.pass(w.delay / 15) // the worker looks more often, and claims by age later
		if !testkit.Eventually(recoveryTime, func() bool { return w.Ledger.Channel(p.id).TotalClaimed == charged }) {
			t.Errorf("the channel is not claimed: %+v", w.Ledger.Channel(p.id))
		}
		o := p.says("during the withdrawal", charged+sendPrice, 0)
		if _, state, _ := correctionOf(t, w.s.pay(o)); state.WithdrawRequestedAt == 0 {
			t.Errorf("a voucher during the withdrawal: %+v", state)
		}
		w.s.pay(p.says("with a deposit", charged+sendPrice, testkit.Dollar)).WantRefused(t, "a deposit during the withdrawal", 402)
		w.Ledger.Advance(w.delay + time.Second)
		if _, err := w.Ledger.FinalizeWithdraw(p.signer.Config); err != nil {
			t.Fatal(err)
		}
		w.pass(2 * time.Minute) // the servers look again
		w.s.pay(p.says("after the withdrawal", charged+sendPrice, 0)).WantRefused(t, "a voucher after the withdrawal", 402)
		w.s.insist(p.says("after a new deposit", charged+sendPrice, testkit.Dollar)).Want(t, "a voucher with a new deposit", 200)
		w.check()
		w.pass(7 * time.Hour)
		w.paidOut()
		w.check()
	}
}

// TestWithdrawalDuringADeposit: the payer starts a withdrawal while its deposit is being settled. The deposit is in the channel and
// nothing is charged.
func TestWithdrawalDuringADeposit(t *testing.T) {
	t.Parallel()
	w := newChannelWorldWith(t, quarter)
	for range rounds(t) {
		p := w.payer(w.alice)
		charged := p.open(w.s, testkit.Dollar, 1)
		o := p.says("while a withdrawal starts", charged+sendPrice, testkit.Dollar)
		r := w.proxy.whileSettling(t, false, func(ctx context.Context) (testkit.Reply, error) { return w.s.send(ctx, o) }, func() {
			if err := w.Ledger.InitiateWithdraw(p.signer.Config, testkit.Dollar/2); err != nil {
				t.Error(err)
			}
		})
		settled, extra := settledOf(t, r)
		if r.Status != http.StatusPaymentRequired || r.Charged || settled.Amount != fmt.Sprint(testkit.Dollar) || extra.ChargedAmount != "0" {
			t.Errorf("a withdrawal during the deposit: %v %+v %+v, want a 402 that reports the deposit", r, settled, extra)
		}
		if n := w.messages(o.content); n != 0 || w.Ledger.Channel(p.id).Balance != 2*testkit.Dollar {
			t.Errorf("%d messages and the channel %+v, want none and both deposits", n, w.Ledger.Channel(p.id))
		}
		w.check()
	}
}

// TestWithdrawalNeverStopsAClaim: whoever withdraws in every round loses nothing that was not charged, and the payee nothing that
// was.
func TestWithdrawalNeverStopsAClaim(t *testing.T) {
	t.Parallel()
	w := newChannelWorldWith(t, quarter)
	second := w.serveChannels()
	p := w.payer(w.alice)
	charged := p.open(w.s, testkit.Dollar, 1)
	for range max(2, rounds(t)/4) {
		if err := w.Ledger.InitiateWithdraw(p.signer.Config, w.Ledger.Channel(p.id).Balance-w.Ledger.Channel(p.id).TotalClaimed); err != nil {
			t.Fatal(err)
		}
		for range 3 { // as many as the servers take
			if r := second.pay(p.says("while withdrawing", charged+sendPrice, 0)); r.Status == http.StatusOK {
				charged += sendPrice
			}
		}
		w.pass(61 * time.Minute)
		w.paidOut()
		w.Ledger.Advance(w.delay + time.Second)
		if _, err := w.Ledger.FinalizeWithdraw(p.signer.Config); err != nil {
			t.Fatal(err)
		}
		if state := w.Ledger.Channel(p.id); state.TotalClaimed != charged || state.Balance != charged {
			t.Errorf("the channel has %+v after the withdrawal, want that %d are claimed", state, charged)
		}
		w.pass(2 * time.Minute)
		charged += sendPrice
		w.s.insist(p.says("with a new deposit", charged, testkit.Dollar)).Want(t, "a new deposit", 200)
		w.check()
	}
	if reason, _, _ := correctionOf(t, w.s.pay(p.says("once more", charged, 0))); reason != x402.ReasonBatchCumulativeMismatch {
		t.Errorf("a voucher that was charged: %s", reason)
	}
}
