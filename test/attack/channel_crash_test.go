//go:build attack

package attack

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/parley-chat/parley/internal/devnet"
	"github.com/parley-chat/parley/internal/testkit"
)

// TestKilledAtEveryStepOfAVoucher kills the server while it charges a voucher. The charge and the effect are there together, or
// neither is. The same voucher then pays for the call, or returns its response.
func TestKilledAtEveryStepOfAVoucher(t *testing.T) {
	t.Parallel()
	for point, charges := range map[string]bool{"parsed": false, "committing": false, "charged": true} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			w := newChannelWorld(t)
			p := w.payer(w.alice)
			charged := p.open(w.s, 1)
			for round := range rounds(t) {
				o := p.says("through a crash", charged+sendPrice, 0)
				w.s.crashes(o, point)
				w.s.start("")
				if got := w.messages(o.content); (got == 1) != charges {
					t.Errorf("round %d: the message is there %d times after the crash, want it there: %v", round, got, charges)
				}
				w.check()
				if round%2 == 0 || charges {
					w.s.pay(o).Want(t, "the voucher with the same request", 200)
				} else { // the voucher is good for anything else
					w.s.pay(p.says("instead", charged+sendPrice, 0)).Want(t, "the voucher with another request", 200)
				}
				charged += sendPrice
				w.check()
			}
		})
	}
}

// TestKilledAtEveryStepOfADeposit kills the server while it settles a deposit, which opens a channel or adds to it. The deposit,
// the charge and the effect are there once, or none is.
func TestKilledAtEveryStepOfADeposit(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		points string // one life each, the first with the request
		begun  bool   // it is completed without its caller
	}{
		{"parsed", false}, {"dry-run", false}, {"begun", true}, {"settled", true}, {"committing", true}, {"delivered", true},
		{"begun, claimed", true}, {"begun, resettled", true}, {"settled, committing", true}, {"begun, delivered", true},
	} {
		t.Run(test.points, func(t *testing.T) {
			t.Parallel()
			w := newChannelWorld(t)
			var p *channelPayer
			charged := uint64(0)
			for round := range rounds(t) {
				if round%3 == 0 { // else a top-up
					p, charged = w.payer(w.alice), 0
				}
				balance := w.Ledger.Channel(p.id).Balance
				o := p.says("with a deposit through a crash", charged+sendPrice, testkit.Dollar)
				w.s.crashes(o, strings.Split(test.points, ", ")...)
				w.s.start("")
				paid := test.begun || round%2 == 0
				if round%2 == 0 {
					w.s.insist(o).Want(t, fmt.Sprintf("round %d, sent again", round), 200)
				}
				w.check()
				want := balance
				if paid {
					want, charged = balance+testkit.Dollar, charged+sendPrice
				}
				if got := w.Ledger.Channel(p.id).Balance; got != want || (w.messages(o.content) == 1) != paid {
					t.Errorf("round %d: the channel has %d and %d messages, want %d and a message: %v", round, got, w.messages(o.content), want, paid)
				}
				if p.charged() != charged {
					t.Errorf("round %d: charged %d, want %d", round, p.charged(), charged)
				}
				if charged == 0 { // the next rounds add to a channel
					charged = p.open(w.s, 1)
				}
				if t.Failed() {
					return
				}
			}
		})
	}
}

// TestKilledAtEveryStepOfAClaim kills the server while it claims and pays out. Everything is claimed and paid out once.
func TestKilledAtEveryStepOfAClaim(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		point   string
		claimed bool // at the kill
	}{{"claiming", false}, {"claimed on chain", true}, {"paid out", true}} {
		t.Run(test.point, func(t *testing.T) {
			t.Parallel()
			w := newChannelWorld(t)
			payers := []*channelPayer{w.payer(w.alice), w.payer(w.bob)}
			sums := []uint64{payers[0].open(w.s, 1), payers[1].open(w.s, 1)}
			for range rounds(t) {
				for i, p := range payers {
					sums[i] += sendPrice
					w.s.insist(p.says("to be claimed", sums[i], 0)).Want(t, "a voucher", 200)
				}
				w.s.kill()
				w.pass(7 * time.Hour)
				w.s.start(test.point)
				w.s.awaitEnd(15 * time.Second)
				if claimed := w.Ledger.Channel(payers[0].id).TotalClaimed == sums[0]; claimed != test.claimed {
					t.Errorf("claimed: %v at the crash", claimed)
				}
				w.pass(11 * time.Minute) // the lease of the claim
				w.s.start("")
				w.paidOut()
				if settled := w.Ledger.Received(devnet.Payee).Settled; settled != sums[0]+sums[1] {
					t.Errorf("%d are paid out, want %d", settled, sums[0]+sums[1])
				}
				w.check()
				if t.Failed() {
					return
				}
			}
		})
	}
}

// TestKilledAtEveryStepOfARefund kills the server while it refunds: the refund is made once, and nothing that was charged goes back.
func TestKilledAtEveryStepOfARefund(t *testing.T) {
	t.Parallel()
	for _, points := range [][]string{{"refunding"}, {"refunded"}, {"refunding", "refunded"}} {
		t.Run(points[len(points)-1]+fmt.Sprint(len(points)), func(t *testing.T) {
			t.Parallel()
			w := newChannelWorld(t)
			for round := range rounds(t) {
				p := w.payer(w.alice)
				charged := p.open(w.s, 1)
				had := w.Ledger.Balance(testkit.Address(w.alice.wallet))
				amount := uint64(round%2) * 300_000 // 0 asks for everything
				w.s.crashes(p.refund(charged, amount), points[0])
				for _, point := range points[1:] {
					w.pass(2 * time.Minute) // the lease
					w.s.start(point)
					w.s.awaitEnd(15 * time.Second)
				}
				w.s.start("")
				if r := w.s.pay(p.says("meanwhile", charged+sendPrice, 0)); r.Status != http.StatusConflict || r.Code != "payment_in_progress" {
					t.Errorf("a voucher while the refund is open: %v, want 409", r)
				}
				w.pass(2 * time.Minute)
				w.check()
				if amount == 0 {
					amount = testkit.Dollar - charged
				}
				chain := w.Ledger.Channel(p.id)
				if got := w.Ledger.Balance(testkit.Address(w.alice.wallet)) - had; got != amount || chain.RefundNonce != 1 ||
					chain.TotalClaimed != charged {
					t.Errorf("%d were refunded and the channel has %+v, want one refund of %d and %d claimed", got, chain, amount, charged)
				}
				if recorded := w.Count("SELECT balance FROM payment_channels WHERE id = $1",
					p.id); uint64(recorded) != chain.Balance { //nolint:gosec // not negative
					t.Errorf("the ledger has a balance of %d after the refund, the channel %d", recorded, chain.Balance)
				}
				w.s.pay(p.says("after the refund", charged+sendPrice, sendPrice)).Want(t, "a deposit after the refund", 200)
				w.check()
				if t.Failed() {
					return
				}
			}
		})
	}
}

// TestLostResponsesToClaims: the facilitator's responses to claims and payouts are lost before and after it acts, or say nothing certain.
// Everything is claimed and paid out once.
func TestLostResponsesToClaims(t *testing.T) {
	t.Parallel()
	w := newChannelWorld(t)
	p := w.payer(w.alice)
	sum := p.open(w.s, 1)
	for round, fault := range []fault{dropBefore, dropAfter, respondAfter(200, page), respond(200, pending)} {
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
}

// TestVouchersOfALostHour: the payer of a restored database sends its vouchers of the lost hour again, which were claimed meanwhile.
// Nobody would pay for what they buy now, so they buy nothing.
func TestVouchersOfALostHour(t *testing.T) {
	t.Parallel()
	w := newChannelWorld(t)
	p := w.payer(w.alice)
	charged := p.open(w.s, 3)
	w.s.kill()
	w.pass(7 * time.Hour)
	w.s.start("")
	w.paidOut() // so that the restored database has nothing to claim and does not look at the channel
	var vouchers []uint64
	w.restored(func() {
		for range 5 {
			charged += sendPrice
			vouchers = append(vouchers, charged)
			w.s.pay(p.says("lost, but claimed", charged, 0)).Want(t, "a voucher", 200)
		}
		w.s.kill()
		w.pass(7 * time.Hour)
		w.s.start("")
		w.paidOut()
	})
	for _, amount := range vouchers {
		o := p.says("for a voucher that is claimed", amount, 0)
		w.s.pay(o).WantRefused(t, "a voucher that was claimed", 402)
		if n := w.messages(o.content); n != 0 {
			t.Errorf("a voucher that was claimed bought %d messages", n)
		}
	}
	w.s.pay(p.says("the next voucher", charged+sendPrice, 0)).Want(t, "the next voucher", 200)
}
