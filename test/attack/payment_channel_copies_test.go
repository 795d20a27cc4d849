//go:build attack

package attack

import (
	"bytes"
	"fmt"
	"math"
	"net/http"
	"testing"

	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/x402"
)

// TestCopiesOfOneVoucher: one charge, one effect, and the same response for every copy, at two servers.
func TestCopiesOfOneVoucher(t *testing.T) {
	t.Parallel()
	w := newChannelWorld(t)
	servers := []*server{w.s, w.serveChannels()}
	p := w.payer(w.alice)
	charged := p.open(w.s, testkit.Dollar, 1)
	for range rounds(t) {
		deposits := w.proxy.count("/settle deposit")
		charged += sendPrice
		o := p.says("one of many copies", charged, 0)
		replies := make(chan []testkit.Reply)
		for _, s := range servers {
			go func() { replies <- s.sendAll(slicesOf(o, 10)...) }()
		}
		first := testkit.Reply{}
		for _, r := range append(<-replies, <-replies...) {
			switch {
			case r.Code == "payment_in_progress", r.Code == "unavailable": // it waited for the others too long
			case r.Status != http.StatusOK:
				t.Errorf("a copy returns %v, want 200", r)
			case first.Status == 0:
				first = r
			case !bytes.Equal(r.Body, first.Body) || r.Header.Get(x402.HeaderPaymentResponse) != first.Header.Get(x402.HeaderPaymentResponse):
				t.Errorf("a copy returns %v, another one %v", r, first)
			}
		}
		if again := w.s.insist(o); !bytes.Equal(again.Body, first.Body) {
			t.Errorf("one more copy returns %v, want %v", again, first)
		}
		if n := w.proxy.count("/settle deposit") - deposits; n != 0 {
			t.Errorf("%d deposits were settled, want none", n)
		}
		w.arrivedOnce(o)
		w.check()
	}
}

func slicesOf(o order, n int) []order {
	all := make([]order, n)
	for i := range all {
		all[i] = o
	}
	return all
}

// TestOneVoucherManyRequests: one voucher with many different requests at two servers pays for one of them. The others are told
// the state of the channel.
func TestOneVoucherManyRequests(t *testing.T) {
	t.Parallel()
	w := newChannelWorld(t)
	servers := []*server{w.s, w.serveChannels()}
	p := w.payer(w.alice)
	charged := p.open(w.s, testkit.Dollar, 1)
	for range rounds(t) {
		charged += sendPrice
		replies := make(chan []testkit.Reply)
		for _, s := range servers {
			var orders []order
			for range 10 {
				orders = append(orders, p.says("one of many requests", charged, 0))
			}
			go func() { replies <- s.sendAll(orders...) }()
		}
		served := 0
		for _, r := range append(<-replies, <-replies...) {
			if r.Status == http.StatusOK {
				served++
				continue
			}
			if reason, state, _ := correctionOf(t, r); reason != x402.ReasonBatchCumulativeMismatch || state.ChargedCumulativeAmount != fmt.Sprint(charged) {
				t.Errorf("another request: %s %+v", reason, state)
			}
		}
		if served != 1 {
			t.Errorf("one voucher paid for %d requests, want one", served)
		}
		stranger := p.pays(w.bob.says(w.alice, "by another account"), charged, 0)
		if reason, _, _ := correctionOf(t, w.s.pay(stranger)); reason != x402.ReasonBatchCumulativeMismatch {
			t.Errorf("the voucher by another account: %s", reason)
		}
		w.check()
	}
}

// TestVouchersOutOfStep: only the voucher for exactly the next amount is charged.
func TestVouchersOutOfStep(t *testing.T) {
	t.Parallel()
	w := newChannelWorld(t)
	p := w.payer(w.alice)
	charged := p.open(w.s, testkit.Dollar, 3)
	for range rounds(t) {
		asked := w.proxy.count("/verify")
		for name, amount := range map[string]uint64{
			"the last one": charged, "the first one": sendPrice, "zero": 0, "one unit less": charged + sendPrice - 1, "one unit more": charged + sendPrice + 1,
			"one skipped": charged + 2*sendPrice, "a hundred skipped": charged + 100*sendPrice, "the whole balance": testkit.Dollar,
			"2^63-1": math.MaxInt64, "2^63-5000": math.MaxInt64 - sendPrice + 1, "2^63": math.MaxInt64 + 1, "2^64-1": math.MaxUint64,
		} {
			o := p.says("out of step", amount, 0)
			r := w.s.pay(o)
			r.WantRefused(t, "a voucher for "+name, 402)
			if r.Status == http.StatusPaymentRequired && amount <= math.MaxInt64 {
				if _, state, _ := correctionOf(t, r); state.ChargedCumulativeAmount != fmt.Sprint(charged) {
					t.Errorf("a voucher for %s: %+v, want that %d were charged", name, state, charged)
				}
			}
		}
		if n := w.proxy.count("/verify") - asked; n != 0 {
			t.Errorf("the facilitator was asked %d times, want never", n)
		}
		charged += sendPrice
		w.s.pay(p.says("in step", charged, 0)).Want(t, "the next voucher", 200)
		w.check()
	}
}

// TestVouchersAboveBalance: no call is delivered that the channel does not cover, also if all come at once to two servers.
func TestVouchersAboveBalance(t *testing.T) {
	t.Parallel()
	w := newChannelWorld(t)
	servers := []*server{w.s, w.serveChannels()}
	for range rounds(t) {
		p := w.payer(w.alice)
		charged := p.open(w.s, 4*sendPrice, 1)
		var orders []order
		for i := range uint64(8) { // three of them are covered
			orders = append(orders, p.says("more than the balance", charged+(1+i)*sendPrice, 0))
		}
		for range 3 { // each time at least the one that is in step is charged
			for _, s := range servers {
				s.sendAll(orders...)
			}
		}
		for _, r := range w.s.sendAll(orders[3:]...) {
			r.WantRefused(t, "a voucher above the balance", 402)
		}
		if got := p.charged(); got != 4*sendPrice {
			t.Errorf("charged %d, want the balance, %d", got, 4*sendPrice)
		}
		if reason, _, _ := correctionOf(t, w.s.pay(p.says("above", 5*sendPrice, 0))); reason != x402.ReasonBatchExceedsBalance {
			t.Errorf("above the balance: %s", reason)
		}
		if reason, _, _ := correctionOf(t, w.s.pay(p.says("too small a top-up", 5*sendPrice, sendPrice-1))); reason != x402.ReasonBatchExceedsBalance {
			t.Errorf("too small a top-up: %s", reason)
		}
		w.s.pay(p.says("topped up", 5*sendPrice, sendPrice)).Want(t, "a top-up", 200)
		w.check()
	}
}

// TestCopiesOfOneDeposit: copies of one deposit at two servers, and other deposits with the same voucher, are one charge and one call.
// All deposits that reach the chain are in the channel.
func TestCopiesOfOneDeposit(t *testing.T) {
	t.Parallel()
	w := newChannelWorld(t)
	servers := []*server{w.s, w.serveChannels()}
	for range rounds(t) {
		p := w.payer(w.alice)
		deposits := w.proxy.count("/settle deposit")
		o, other := p.says("one of many copies", sendPrice, testkit.Dollar), p.says("another deposit", sendPrice, testkit.Dollar)
		replies := make(chan []testkit.Reply)
		for _, s := range servers {
			go func() { replies <- s.sendAll(o, other, o, o, other) }()
		}
		for _, r := range append(<-replies, <-replies...) {
			if r.Status != http.StatusOK && r.Status != http.StatusPaymentRequired && r.Code != "payment_in_progress" || r.Charged {
				t.Errorf("a copy of a deposit: %v, want 200, 402 or 409", r)
			}
		}
		if n := w.messages(o.content) + w.messages(other.content); n != 1 {
			t.Errorf("one voucher bought %d messages", n)
		}
		if n := w.proxy.count("/settle deposit") - deposits; n != 1 || w.Ledger.Channel(p.id).Balance != testkit.Dollar {
			t.Errorf("%d deposits were settled and the channel has %+v, want one", n, w.Ledger.Channel(p.id))
		}
		w.check()
	}
}
