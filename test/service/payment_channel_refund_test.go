package service

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/server/edge"
	"github.com/parley-chat/parley/x402"
)

// refund asks for a refund, as official clients do: without an API key, unless headers have one.
func (p *channelPayer) refund(path string, charged, amount uint64, headers ...string) testkit.Reply {
	p.w.T.Helper()
	signed, err := p.signer(sendPath).SignRefund(p.w.T.Context(), charged, amount)
	testkit.NoError(p.w.T, err)
	signed.Accepted = offerOf(p.w.T, p.w.priceOf(http.MethodGet, path))
	return p.w.call(http.MethodGet, path, "", append(headers, x402.HeaderPaymentSignature, p.encode(signed))...)
}

// TestRefund: what is not charged goes back to the payer, what is charged is claimed, and the channel goes on after a deposit.
func TestRefund(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withChannels)
	alice, bob, payer := w.openChannel()
	id := payer.signer(sendPath).ID
	before := w.Ledger.Balance(testkit.Address(alice.Wallet))
	if reason, state, _ := correctionOf(t, payer.refund("/agent/me", 0, 0)); reason != x402.ReasonBatchCumulativeMismatch ||
		state.ChargedCumulativeAmount != "5000" {
		t.Errorf("a refund by a client that lost its state: %s %+v", reason, state)
	}
	signed, err := payer.signer(sendPath).SignRefund(t.Context(), 5000, 0)
	testkit.NoError(t, err)
	if a := alice.sendWith(payer.encode(signed), bob, "with a refund"); a.Code != "payment_refused" ||
		!strings.Contains(a.Message, "takes no refund") {
		t.Errorf("a refund to an operation that takes none: %v", a)
	}
	other, err := w.channelPayer(bob.Wallet).signer(sendPath).SignRefund(t.Context(), 5000, 0)
	testkit.NoError(t, err)
	forged := payer.encode(signed, func(p *x402.BatchPayment) {
		p.Accepted = offerOf(t, w.priceOf(http.MethodGet, "/agent/me"))
		p.Payload.Voucher.Signature = other.Payload.Voucher.Signature
	})
	w.call(http.MethodGet, "/agent/me", "", x402.HeaderPaymentSignature, forged).
		WantRefused(t, "a refund signed by somebody else", 402, "payment_refused")
	a := payer.refund("/agent/me", 5000, 15_000)
	settled, extra := settledOf(t, a)
	if a.Status != http.StatusNoContent || settled.Amount != "15000" || len(settled.Transaction) != 66 ||
		extra.ChannelState.Balance != "35000" ||
		extra.ChannelState.TotalClaimed != "5000" || extra.ChannelState.RefundNonce != "1" || extra.ChargedAmount != "" {
		t.Errorf("a part: %v %+v %+v", a, settled, extra)
	}
	second := w.beside()
	for _, server := range []*world{w, second} {
		payer.w = server
		payer.refund("/agent/me", 5000, 0).Want(t, "again at once", http.StatusTooManyRequests, "rate_limited")
	}
	w.Exec(`UPDATE payment_channels SET refunded_at = now() - interval '57 seconds'`)
	if after := payer.refund("/agent/me", 5000, 0).Header.Get("Retry-After"); after != "3" {
		t.Errorf("57 seconds after a refund Retry-After is %s, want 3", after)
	}
	w.Exec(`UPDATE payment_channels SET refunded_at = now() - interval '1 minute'`)
	payer.refund("/agent/me", 5000, 9_999).Want(t, "less than a cent", http.StatusPaymentRequired, "payment_refused")
	if settled, extra := settledOf(t, payer.refund("/agent/unread", 5000, 0)); settled.Amount != "30000" ||
		extra.ChannelState.Balance != "5000" {
		t.Errorf("the rest: %+v %+v", settled, extra)
	}
	if reason, _, _ := correctionOf(t, payer.refund("/agent/unread", 5000, 0)); reason != x402.ReasonBatchRefundNoBalance {
		t.Errorf("nothing is left: %s", reason)
	}
	payer.w = w
	if got := w.Ledger.Balance(testkit.Address(alice.Wallet)); got != before+45_000 {
		t.Errorf("the payer has %d more, want 45000", got-before)
	}
	if state := w.Ledger.Channel(id); state.Balance != 5000 || state.TotalClaimed != 5000 {
		t.Errorf("the channel has %+v, want what was charged, claimed", state)
	}
	correctionOf(t, alice.sendWith(payer.sign(sendPath, 10_000, 0), bob, "nothing left"))
	alice.sendWith(payer.sign(sendPath, 10_000, 20_000), bob, "after another deposit").Want(t, "after another deposit", http.StatusOK)
	w.checkChannels()
}

// TestCheapRefunds: refunds of a payment channel that brought in less than they cost are bounded, and a new API key brings no further ones.
func TestCheapRefunds(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withChannels)
	alice, bob, payer := w.openChannel()
	alice.sendWith(payer.sign(sendPath, 10_000, 200_000), bob, "a top-up").Require(t, "a top-up", http.StatusOK)
	for n := range 12 { // the first one claims what was charged
		a := payer.refund("/agent/me", 10_000, 10_000, "X-API-KEY", alice.Key)
		if n < 11 {
			a.Require(t, fmt.Sprint("refund ", n), http.StatusNoContent)
		} else {
			a.Want(t, "one more", http.StatusTooManyRequests, "rate_limited")
		}
		w.Exec(`UPDATE payment_channels SET refunded_at = now() - interval '1 minute'`)
	}
	alice.Key = alice.ask("/agent/rotate_key", fields{}).Field(t, "api_key")
	w.Secret(alice.Key)
	payer.refund("/agent/me", 10_000, 10_000, "X-API-KEY", alice.Key).Want(t, "with a new key", http.StatusTooManyRequests, "rate_limited")
	for _, sum := range []uint64{15_000, 20_000} { // a cent since the last claim
		alice.sendWith(payer.sign(sendPath, sum, 0), bob, fmt.Sprint("worth ", sum)).Require(t, "a voucher", http.StatusOK)
	}
	payer.refund("/agent/me", 20_000, 10_000, "X-API-KEY", alice.Key).Want(t, "when it is worth it", http.StatusNoContent)
}

// TestLostRefund: the response of /settle is lost after the refund, or before. The channel waits, and one refund is made.
func TestLostRefund(t *testing.T) {
	t.Parallel()
	for name, arrives := range map[string]bool{"after it was made": true, "before": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, withChannels)
			alice, bob, payer := w.openChannel()
			id := payer.signer(sendPath).ID
			mend := w.breakFacilitator(func(rw http.ResponseWriter, r *http.Request) bool {
				if r.URL.Path == "/settle" && arrives {
					w.Facilitator.ServeHTTP(httptest.NewRecorder(), r)
				}
				testkit.HangUp(rw) // the chain is away too
				return true
			})
			payer.refund("/agent/me", 5000, 0).Want(t, "the response is lost", http.StatusServiceUnavailable, "payment_unknown")
			mend()
			alice.sendWith(payer.sign(sendPath, 10_000, 0), bob, "meanwhile").Want(t, "a voucher meanwhile", http.StatusConflict,
				"payment_in_progress")
			w.Exec(`UPDATE payment_channels SET lease_until = now() - interval '1 second'`)
			if !w.recoverUntil(func() bool { return w.Count(`SELECT count(*) FROM payment_channels WHERE state <> 'open'`) == 0 }) {
				t.Error("the refund stays open")
			}
			if state := w.Ledger.Channel(id); state.Balance != 5000 || state.RefundNonce != 1 {
				t.Errorf("the channel has %+v, want one refund of 45000", state)
			}
			if balance := w.Count(`SELECT balance FROM payment_channels`); balance != 5000 {
				t.Errorf("the ledger has a balance of %d, want 5000", balance)
			}
			w.checkChannels()
		})
	}
}

// TestRefundIsNotForgotten: a refund whose response was lost is rejected when it is sent again. While the chain cannot be read, that does
// not
// show that nothing was refunded, so the payment channel stays closed.
func TestRefundIsNotForgotten(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withChannels)
	alice, bob := w.agent("alice"), w.agent("bob")
	payer := w.channelPayer(alice.Wallet)
	alice.sendWith(payer.sign(sendPath, 5000, 100_000), bob, "one").Require(t, "open", http.StatusOK)
	var settles atomic.Int32
	lose := w.settleAndThen(testkit.HangUp)
	defer w.breakFacilitator(func(rw http.ResponseWriter, r *http.Request) bool {
		switch {
		case r.URL.Path == "/rpc":
			rw.WriteHeader(http.StatusServiceUnavailable)
			return true
		case r.URL.Path == "/settle" && settles.Add(1) == 1:
			return lose(rw, r)
		}
		return false
	})()
	payer.refund("/agent/me", 5000, 0).Require(t, "a refund whose response is lost", http.StatusServiceUnavailable)
	w.Exec(`UPDATE payment_channels SET lease_until = now() - interval '1 second'`)
	if !w.recoverUntil(func() bool { return settles.Load() > 1 }) {
		t.Fatal("the refund is not sent again")
	}
	if a := alice.sendWith(payer.sign(sendPath, 10_000, 0), bob, "two"); a.Status == http.StatusOK {
		t.Errorf("a voucher is charged to a payment channel that was refunded: %v", a)
	}
}

// TestRefundEndedElsewhere: while a refund is being settled its lease ends, and another server ends it. The refund was made, but
// this server cannot record it. Its outcome is unknown for the caller, and nothing says that it was not made.
func TestRefundEndedElsewhere(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withChannels)
	_, _, payer := w.openChannel()
	mend := w.breakFacilitator(func(_ http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path == "/settle" { // another server has resumed the refund and records its end now
			w.Exec(`UPDATE payment_channels SET state = 'open', refund_amount = 0, lease_until = NULL, refund_nonce = 1, balance = 5000,
				claimed = 5000, unclaimed_since = NULL`)
		}
		return false
	})
	a := payer.refund("/agent/me", 5000, 0)
	mend()
	if a.Status != http.StatusServiceUnavailable || a.Code != "payment_unknown" {
		t.Errorf("a refund that another server has recorded: %v\n%s\nwant 503 payment_unknown", a, a.Body)
	}
}

// TestRefundCause: the facilitator says that a refund succeeded, without the channel's state, and the chain cannot be read. The log
// must say why the refund stays open.
func TestRefundCause(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withChannels)
	_, _, payer := w.openChannel()
	defer w.breakFacilitator(func(rw http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path != "/settle" {
			return false // the chain responds, but does not show the refund yet
		}
		body, _ := io.ReadAll(r.Body)
		if !strings.Contains(string(body), `"refund"`) {
			r.Body = io.NopCloser(strings.NewReader(string(body)))
			return false
		}
		rw.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(rw).Encode(map[string]any{"success": true, "transaction": "0x" + strings.Repeat("ab", 32), "network": "eip155:84532",
			"payer": "0x0000000000000000000000000000000000000001"})
		return true
	})()
	payer.refund("/agent/me", 5000, 0)
	log := w.log.String()
	i := strings.LastIndex(log, "payment_unknown")
	line := log[strings.LastIndex(log[:max(i, 0)], "\n")+1:]
	if end := strings.IndexByte(line, '\n'); end > 0 {
		line = line[:end]
	}
	if !strings.Contains(line, `"error":"`) || strings.Contains(line, `"error":""`) {
		t.Errorf("the log does not tell the cause: %s", line)
	}
}

// TestEarlyRefundsTakeTokens: a refund that is too early costs the server a look at the ledger, so it counts as a refused payment.
func TestEarlyRefundsTakeTokens(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withChannels, withLimits(edge.Limits{Address: few(30),
		TrustedProxies: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}))
	const stranger = "192.0.2.66"
	_, _, payer := w.openChannel()
	payer.refund("/agent/me", 5000, 10_000).Require(t, "a part", http.StatusNoContent)
	signed, err := payer.signer(sendPath).SignRefund(t.Context(), 5000, 0)
	testkit.NoError(t, err)
	signed.Accepted = offerOf(t, w.priceOf(http.MethodGet, "/agent/me"))
	header := payer.encode(signed)
	for range 30 {
		a := w.call(http.MethodGet, "/agent/me", "", "X-Forwarded-For", stranger, x402.HeaderPaymentSignature, header)
		if a.Status != http.StatusTooManyRequests || !strings.Contains(a.Message, "refunded within the last minute") {
			t.Fatalf("%v, want that it is too early", a)
		}
	}
	w.wantLimited("too many of them", w.call(http.MethodGet, "/skill", "", "X-Forwarded-For", stranger), "address")
}
