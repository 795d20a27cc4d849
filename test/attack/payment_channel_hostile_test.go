//go:build attack

package attack

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/x402"
)

// TestPublicVouchers: what a claim publishes opens nothing for a stranger: no stored response, no secret, no effect, no charge.
func TestPublicVouchers(t *testing.T) {
	t.Parallel()
	w := newChannelWorld(t)
	p := w.payer(w.alice)
	charged := p.open(w.s, testkit.Dollar, 1)
	newKey := p.pays(order{operation: operations["/agent/rotate_key"], body: "{}", headers: []string{"X-API-KEY", w.alice.key}},
		charged+operations["/agent/rotate_key"].price, 0)
	rotated := w.s.pay(newKey)
	old := w.alice.key
	w.alice.learn(rotated)
	charged += newKey.price
	p.others += newKey.price
	reserve := p.pays(order{operation: operations["/register/request_account"], body: `{"requested_username":"newcomer"}`},
		charged+operations["/register/request_account"].price, 0)
	tan := w.s.pay(reserve).Field(t, "tan")
	w.Secret(tan)
	charged += reserve.price
	p.others += reserve.price
	message := p.says("a private message", charged+sendPrice, 0)
	w.s.pay(message).Require(t, "a message", 200)
	charged += sendPrice
	w.s.kill()
	w.pass(7 * time.Hour)
	w.s.start("")
	w.paidOut() // now all vouchers are public
	stolen := message
	stolen.headers = []string{"X-API-KEY", w.bob.key}
	w.s.pay(stolen).WantRefused(t, "the message's voucher by a stranger", 402)
	withOldKey := message
	withOldKey.headers = []string{"X-API-KEY", old}
	w.s.pay(withOldKey).WantRefused(t, "the message's voucher with a key that was replaced", 401)
	again := newKey
	again.headers = []string{"X-API-KEY", w.bob.key}
	if r := w.s.pay(again); r.Status == http.StatusOK || r.Text("api_key") != "" {
		t.Errorf("a stranger replays the voucher of a new key: %v", r)
	}
	again.headers = []string{"X-API-KEY", old}
	if r := w.s.pay(again); r.Status == http.StatusOK {
		t.Errorf("the voucher of a new key, which is public, returns the key again: %v", r)
	}
	w.s.pay(reserve).WantRefused(t, "the voucher of a TAN by a stranger, with the same request", 409, "proof_required")
	w.s.pay(p.pays(reserve, charged+reserve.price, 0)).Want(t, "the next voucher, which proves the channel, with the same request", 200)
	w.s.pay(p.pays(order{operation: operations[mePath]}, charged, 0)).WantRefused(t, "a public voucher without an API key", 401)
	w.arrivedOnce(message)
	w.check()
}

// TestVoucherWithAnIdentifier: a payment identifier buys one effect over both schemes and any number of vouchers, and is charged once.
func TestVoucherWithAnIdentifier(t *testing.T) {
	t.Parallel()
	w := newChannelWorld(t)
	second := w.serveChannels()
	p := w.payer(w.alice)
	charged := p.open(w.s, testkit.Dollar, 1)
	for range rounds(t) {
		identifier := testkit.Identifier(fmt.Sprintf("payment-identifier-%d", contentNumber.Add(1)))
		named := func(b *x402.BatchPayment) { b.Extensions = identifier }
		o := p.says("with an identifier", charged+sendPrice, 0, named)
		other := p.pays(o, charged+2*sendPrice, 0, named) // the same request, with the voucher after it
		var group sync.WaitGroup
		for range 5 {
			group.Go(func() { _, _ = w.s.send(t.Context(), o) })
			group.Go(func() { _, _ = second.send(t.Context(), other) })
		}
		group.Wait()
		first, again := w.s.pay(o), second.pay(other)
		if first.Status != http.StatusOK || again.Status != http.StatusOK || string(first.Body) != string(again.Body) {
			t.Errorf("one identifier with two vouchers: %v and %v, want the same 200", first, again)
		}
		if _, extra := settledOf(t, again); extra.ChargedAmount != "0" {
			t.Errorf("the second voucher of an identifier was charged %+v", extra)
		}
		misused := p.says("another request with the identifier", charged+2*sendPrice, 0, named)
		w.s.pay(misused).WantRefused(t, "the identifier with another request", 409, "payment_reused")
		byExact := w.alice.says(w.bob, "replaced")
		exact, _ := w.sign(w.alice.wallet, sendPath, func(e *x402.PaymentPayload) { e.Extensions = identifier })
		byExact.body, byExact.header, byExact.content = o.body, exact, o.content
		if r := w.s.pay(byExact); r.Status != http.StatusOK || string(r.Body) != string(first.Body) {
			t.Errorf("the identifier with a single payment: %v, want the stored response", r)
		}
		charged += sendPrice
		w.arrivedOnce(o)
		if got := p.charged(); got != charged {
			t.Errorf("charged %d, want %d", got, charged)
		}
		w.check()
	}
}

// TestOneChannelTwoAccounts: two accounts that pay from one channel at once, and one that tops it up meanwhile: each voucher pays for
// one call of one of them.
func TestOneChannelTwoAccounts(t *testing.T) {
	t.Parallel()
	w := newChannelWorld(t)
	servers := []*server{w.s, w.serveChannels()}
	p := w.payer(w.alice)
	charged := p.open(w.s, 2*sendPrice, 1)
	for range rounds(t) {
		for step := range uint64(3) {
			amount := charged + sendPrice
			orders := []order{
				p.pays(w.alice.says(w.bob, "by alice"), amount, 0), p.pays(w.bob.says(w.alice, "by bob"), amount, 0),
				p.pays(w.alice.says(w.bob, "with a top-up"), amount, 3*sendPrice*(1-min(step, 1))+1), p.pays(w.bob.says(w.alice, "with bob's top-up"), amount, sendPrice),
			}
			var group sync.WaitGroup
			served := make([]bool, len(orders))
			for i, o := range orders {
				group.Go(func() { served[i] = servers[i%2].insist(o).Status == http.StatusOK })
			}
			group.Wait()
			sum := 0
			for i, o := range orders {
				n := w.messages(o.content)
				sum += n
				if (n == 1) != served[i] {
					t.Errorf("replied 200: %v, and the message is there %d times", served[i], n)
				}
			}
			if sum > 1 || sum == 0 && p.charged() != charged {
				t.Errorf("one voucher paid for %d calls", sum)
			}
			charged = p.charged()
		}
		w.check()
	}
}

// TestEnormousAmounts: a channel that holds 2^63-1 units works at its end, and nothing overflows.
func TestEnormousAmounts(t *testing.T) {
	t.Parallel()
	w := newChannelWorld(t)
	rich := &agent{w: w.world, name: w.alice.name, id: w.alice.id, key: w.alice.key, wallet: testkit.NewKey()}
	if err := w.Ledger.Mint(testkit.Address(rich.wallet), math.MaxInt64-1<<40); err != nil {
		t.Fatal(err)
	}
	p := w.payer(rich)
	charged := p.open(w.s, math.MaxInt64-1<<40, 1)
	for _, amount := range []uint64{math.MaxInt64, math.MaxInt64 - sendPrice, math.MaxInt64 - 1<<40, math.MaxUint64 - sendPrice + charged + 1} {
		w.s.pay(p.says("enormous", amount, 0)).WantRefused(t, fmt.Sprint("a voucher for ", amount), 402)
		w.s.pay(p.says("enormous", amount, math.MaxInt64)).WantRefused(t, fmt.Sprint("a top-up with a voucher for ", amount), 402)
	}
	w.s.pay(p.refund(charged, math.MaxInt64)).Want(t, "an enormous refund", 204)
	w.s.pay(p.says("after the refund", charged+sendPrice, math.MaxInt64/2)).Want(t, "an enormous top-up", 200)
	w.check()
}

// TestRefundsCostLittle: refunds are limited, so that nobody makes the operator pay for transactions without end.
func TestRefundsCostLittle(t *testing.T) {
	t.Parallel()
	w := newChannelWorld(t)
	p := w.payer(w.alice)
	charged := p.open(w.s, testkit.Dollar, 1)
	refunds := w.proxy.count("/settle refund")
	for range 30 {
		w.s.pay(p.refund(charged, 1))
	}
	if n := w.proxy.count("/settle refund") - refunds; n != 0 {
		t.Errorf("30 refunds of one unit cost %d transactions, want none", n)
	}
	for range 30 {
		w.s.pay(p.refund(charged, 10_000))
	}
	if n := w.proxy.count("/settle refund") - refunds; n != 1 {
		t.Errorf("30 refunds of a cent cost %d transactions, want one", n)
	}
	w.check()
}

// TestAbandonedDeposits: the payer hangs up while its deposit is settled, and sends vouchers and deposits at the same time. All of
// it ends by itself.
func TestAbandonedDeposits(t *testing.T) {
	t.Parallel()
	w := newChannelWorld(t)
	for range rounds(t) {
		p := w.payer(w.alice)
		deposits := []order{p.says("abandoned", sendPrice, testkit.Dollar), p.says("abandoned, too", sendPrice, 2*testkit.Dollar), p.says("only a voucher", sendPrice, 0)}
		var group sync.WaitGroup
		for _, o := range deposits {
			group.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
				defer cancel()
				_, _ = w.s.send(ctx, o)
			})
		}
		group.Wait()
		w.check()
		if n := w.messages(deposits[0].content) + w.messages(deposits[1].content) + w.messages(deposits[2].content); n > 1 {
			t.Errorf("one voucher bought %d messages", n)
		}
	}
}
