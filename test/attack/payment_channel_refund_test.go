//go:build attack

package attack

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/parley-chat/parley/internal/devnet"
	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/x402"
)

// TestRefundAgainstCalls: vouchers and deposits that arrive while a refund is under way are not charged, whether the facilitator
// has made the refund or not, and what was charged before stays the payee's.
func TestRefundAgainstCalls(t *testing.T) {
	t.Parallel()
	for name, acted := range map[string]bool{"before it is made": false, "after it is made": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newChannelWorld(t)
			second := w.serveChannels()
			for range rounds(t) {
				p := w.payer(w.alice)
				charged := p.open(w.s, testkit.Dollar, 2)
				voucher, deposit := p.says("while a refund is made", charged+sendPrice, 0), p.says("with a deposit", charged+sendPrice, testkit.Dollar)
				had := w.Ledger.Balance(testkit.Address(w.alice.wallet))
				refunded := w.proxy.whileSettling(t, acted, func(ctx context.Context) (testkit.Reply, error) { return w.s.send(ctx, p.refund(charged, 0)) }, func() {
					for _, s := range []*server{w.s, second} {
						for _, r := range s.sendAll(voucher, deposit, p.refund(charged, 0)) {
							if r.Status != http.StatusConflict && r.Status != http.StatusServiceUnavailable || r.Charged {
								t.Errorf("a call while a refund is made: %v, want 409 or 503", r)
							}
						}
					}
				})
				if refunded.Status != http.StatusNoContent {
					t.Errorf("the refund: %v, want 204", refunded)
				}
				if got := w.Ledger.Balance(testkit.Address(w.alice.wallet)) - had; got != testkit.Dollar-charged {
					t.Errorf("%d were refunded, want %d", got, testkit.Dollar-charged)
				}
				if reason, state, _ := correctionOf(t, w.s.pay(voucher)); reason != x402.ReasonBatchExceedsBalance {
					t.Errorf("the voucher after the refund: %s %+v", reason, state)
				}
				second.insist(deposit).Want(t, "the deposit after the refund", 200)
				w.check()
			}
		})
	}
}

// TestRefundDuringADeposit: no refund is made while a deposit is being settled.
func TestRefundDuringADeposit(t *testing.T) {
	t.Parallel()
	w := newChannelWorld(t)
	for range rounds(t) {
		p := w.payer(w.alice)
		charged := p.open(w.s, testkit.Dollar, 1)
		o := p.says("with a top-up", charged+sendPrice, testkit.Dollar)
		r := w.proxy.whileSettling(t, true, func(ctx context.Context) (testkit.Reply, error) { return w.s.send(ctx, o) }, func() {
			w.s.pay(p.refund(charged, 0)).Want(t, "a refund while a deposit is settled", 409)
			w.s.pay(p.refund(charged+sendPrice, 0)).Want(t, "a refund with the deposit's voucher", 409)
		})
		r.Want(t, "the deposit", 200)
		if state := w.Ledger.Channel(p.id); state.Balance != 2*testkit.Dollar || state.RefundNonce != 0 {
			t.Errorf("the channel has %+v, want both deposits and no refund", state)
		}
		w.check()
	}
}

// TestRefundsAtOnce: many copies of one refund, sent to two servers, make one refund.
func TestRefundsAtOnce(t *testing.T) {
	t.Parallel()
	w := newChannelWorld(t)
	servers := []*server{w.s, w.serveChannels()}
	for range rounds(t) {
		p := w.payer(w.alice)
		charged := p.open(w.s, testkit.Dollar, 1)
		replies := make(chan []testkit.Reply)
		for _, s := range servers {
			go func() { replies <- s.sendAll(slicesOf(p.refund(charged, 400_000), 10)...) }()
		}
		made := uint64(statuses(append(<-replies, <-replies...))[http.StatusNoContent]) //nolint:gosec // a count
		if state := w.Ledger.Channel(p.id); made != 1 || state.RefundNonce != made || state.Balance != testkit.Dollar-400_000*made {
			t.Errorf("%d copies were told of a refund and the channel has %+v, want one refund of 400000", made, state)
		}
		w.check()
	}
}

// TestForgedRefunds: only the newest voucher of the channel asks for a refund, and it goes to the payer whoever asks.
func TestForgedRefunds(t *testing.T) {
	t.Parallel()
	w := newChannelWorld(t)
	p := w.payer(w.alice)
	charged := p.open(w.s, testkit.Dollar, 3)
	stranger := w.payer(&agent{w: w.world, wallet: testkit.NewKey()})
	for name, o := range map[string]order{
		"for the first voucher": p.refund(sendPrice, 0), "for zero": p.refund(0, 0), "for the next voucher": p.refund(charged+sendPrice, 0),
		"of a channel that nobody opened": stranger.refund(charged, 0),
	} {
		w.s.pay(o).WantRefused(t, "a refund "+name, 402)
	}
	forged := p.refund(charged, 0)
	payment, err := p.signer.SignRefund(t.Context(), charged, 0)
	if err != nil {
		t.Fatal(err)
	}
	forged = p.with(forged, payment, func(b *x402.BatchPayment) {
		b.Payload.Voucher, _ = channelDomain.SignVoucher(t.Context(), x402.NewKeySigner(stranger.agent.wallet), b.Payload.Voucher.ChannelID, charged)
	})
	w.s.pay(forged).WantRefused(t, "a refund signed by somebody else", 402)
	elsewhere := w.alice.says(w.bob, "with a refund")
	elsewhere.header = p.with(order{operation: elsewhere.operation}, payment).header
	w.s.pay(elsewhere).WantRefused(t, "a refund to an operation that takes none", 402)
	if state := w.Ledger.Channel(p.id); state.RefundNonce != 0 || state.Balance != testkit.Dollar {
		t.Errorf("the channel has %+v, want no refund", state)
	}
	w.check()
}

// TestPayerDepositsItself: money that the payer brings to its channel on its own, or a deposit that somebody else brought to the
// chain first, is in the channel and never charged twice.
func TestPayerDepositsItself(t *testing.T) {
	t.Parallel()
	w := newChannelWorld(t)
	for range rounds(t) {
		p := w.payer(w.alice)
		if err := w.Ledger.DepositIntoChannel(p.signer.Config, 2*sendPrice); err != nil {
			t.Fatal(err)
		}
		deposit := p.says("with a deposit", sendPrice, testkit.Dollar)
		w.s.pay(deposit).Want(t, "a deposit into a channel that has money", 200)
		if err := w.Ledger.DepositIntoChannel(p.signer.Config, sendPrice); err != nil {
			t.Fatal(err)
		}
		charged := sendPrice
		if got := w.Ledger.Channel(p.id).Balance; got != testkit.Dollar+3*sendPrice {
			t.Errorf("the channel has %d, want all three deposits", got)
		}
		w.s.pay(deposit).Want(t, "the same deposit once more", 200)
		// A deposit that somebody else settles before the server does.
		early := p.says("brought by somebody else", charged+sendPrice, testkit.Dollar)
		decoded, err := x402.DecodePayment(early.header)
		batch, _ := decoded.(*x402.BatchPayment)
		if err != nil {
			t.Fatal(err)
		}
		facilitator := &x402.Facilitator{BaseURL: w.proxy.url}
		if settled, err := facilitator.SettleDeposit(t.Context(), batch, channelOffer(sendPath, day)); err != nil || !settled.Success {
			t.Fatalf("somebody else brings the deposit: %+v %v", settled, err)
		}
		w.s.insist(early).Want(t, "a deposit that somebody else brought", 200)
		charged += sendPrice
		w.pass(13 * time.Hour) // the servers look at the chain again
		w.s.pay(p.says("and on", charged+sendPrice, 0)).Want(t, "the next voucher", 200)
		if got := w.Count("SELECT balance FROM payment_channels WHERE id = $1", p.id); uint64(got) != 2*testkit.Dollar+3*sendPrice { //nolint:gosec // not negative
			t.Errorf("the ledger has a balance of %d, want %d", got, 2*testkit.Dollar+3*sendPrice)
		}
		w.paidOut() // the claims are due, too
		w.check()
	}
}

// TestCancelledDeposit: the payer cancels its deposit while it is being settled. Nothing is deposited and nothing is charged, also
// where the channel covers the voucher without the deposit.
func TestCancelledDeposit(t *testing.T) {
	t.Parallel()
	w := newChannelWorld(t)
	for round := range rounds(t) {
		p := w.payer(w.alice)
		charged := uint64(round%2) * p.open(w.s, testkit.Dollar, 1)
		if round%2 == 0 {
			p = w.payer(w.alice)
		}
		o := p.says("with a deposit that is cancelled", charged+sendPrice, testkit.Dollar)
		decoded, err := x402.DecodePayment(o.header)
		payment, _ := decoded.(*x402.BatchPayment)
		if err != nil {
			t.Fatal(err)
		}
		nonce, err := x402.DepositNonce(p.id, payment.Payload.Deposit.Authorization.ERC3009.Salt)
		if err != nil {
			t.Fatal(err)
		}
		balance := w.Ledger.Channel(p.id).Balance
		r := w.proxy.whileSettling(t, false, func(ctx context.Context) (testkit.Reply, error) { return w.s.send(ctx, o) }, func() {
			if err := w.Ledger.Cancel(testkit.Address(w.alice.wallet), nonce); err != nil {
				t.Error(err)
			}
		})
		r.WantRefused(t, "a deposit that was cancelled", 402)
		if got := w.Ledger.Channel(p.id).Balance; got != balance || w.messages(o.content) != 0 {
			t.Errorf("the channel has %d and %d messages, want %d and none", got, w.messages(o.content), balance)
		}
		w.s.pay(p.says("with a new deposit", charged+sendPrice, testkit.Dollar)).Want(t, "a new deposit", 200)
		w.check()
	}
}

// TestTwoServersClaim: two servers never claim one channel at the same time, and claim all of them.
func TestTwoServersClaim(t *testing.T) {
	t.Parallel()
	w := newChannelWorld(t)
	second := w.serveChannels()
	for range max(2, rounds(t)/5) {
		sum := w.Ledger.Received(devnet.Payee).Claimed
		for range 30 {
			p := w.payer(w.alice)
			sum += p.open(w.s, 10*sendPrice, 1)
		}
		rows := w.proxy.count("claimed rows")
		w.s.kill()
		second.kill()
		w.pass(7 * time.Hour)
		if err := w.s.launch(""); err != nil {
			t.Fatal(err)
		}
		second.start("")
		w.paidOut()
		if got := w.proxy.count("claimed rows") - rows; got != 30 {
			t.Errorf("%d rows were claimed, want 30: each once", got)
		}
		if claimed := w.Ledger.Received(devnet.Payee).Claimed; claimed != sum {
			t.Errorf("%d were claimed, want %d", claimed, sum)
		}
		w.check()
	}
}
