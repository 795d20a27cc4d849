package service

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/payment"
	"github.com/parley-chat/parley/server"
	"github.com/parley-chat/parley/server/edge"
	"github.com/parley-chat/parley/x402"
)

// walletChain counts who asks it for code. It says yes for addresses that begin with c0de, such as
// contract.
type walletChain struct {
	payment.Chain
	contract    string
	unavailable atomic.Bool
	calls       atomic.Int64
}

func (c *walletChain) HasCode(_ context.Context, address string) (bool, error) {
	c.calls.Add(1)
	if c.unavailable.Load() {
		return false, errors.New("the endpoint is unavailable")
	}
	return strings.HasPrefix(address, "0xc0de"), nil
}

func newWalletChain() *walletChain {
	return &walletChain{contract: "0xc0de00000000000000000000000000000000c0de"}
}

// on lets a world's server ask this chain, and the payment network's for all else.
func (c *walletChain) on(_ *server.Config, chain *payment.Chain, facilitatorURL string) {
	c.Chain = &x402.Chain{URL: facilitatorURL + "/rpc"}
	*chain = c
}

// junk is a payment from an address with 65 bytes that nobody signed.
func (w *world) junk(path, from string, changes ...func(*x402.Authorization)) string {
	w.T.Helper()
	payload, err := x402.DecodePaymentPayload(w.sign(w.Wallet(testkit.Dollar), path))
	testkit.NoError(w.T, err)
	payload.Payload.Authorization.From = from
	for _, change := range changes {
		change(&payload.Payload.Authorization)
	}
	payload.Payload.Signature = "0x" + strings.Repeat("ab", 64) + "1b"
	header, err := x402.EncodePaymentPayload(payload)
	testkit.NoError(w.T, err)
	return header
}

const requestAccount, accountBody = "/register/request_account", `{"requested_username":"wallet"}`

// TestJunkSignaturesAskTheChainLittle: only a payment that is in order but for its signature has its payer looked up,
// each address once.
func TestJunkSignaturesAskTheChainLittle(t *testing.T) {
	t.Parallel()
	chain := newWalletChain()
	w := newWorld(t, chain.on)
	alice := w.agent("alice")
	const from = "0x00000000000000000000000000000000000000aa"
	for name, a := range map[string]testkit.Reply{
		"without a key": w.call(http.MethodPost, "/agent/profile", `{"username":"alice"}`, "PAYMENT-SIGNATURE", w.junk("/agent/profile", from)),
		"a mistyped key": w.call(http.MethodPost, "/agent/profile", `{"username":"alice"}`, "X-API-KEY", alice.Key[:len(alice.Key)-1]+"?",
			"PAYMENT-SIGNATURE", w.junk("/agent/profile", from)),
		"another amount": w.call(http.MethodPost, requestAccount, accountBody, "PAYMENT-SIGNATURE",
			w.junk(requestAccount, from, func(a *x402.Authorization) { a.Value = "1" })),
		"another payee": w.call(http.MethodPost, requestAccount, accountBody, "PAYMENT-SIGNATURE",
			w.junk(requestAccount, from, func(a *x402.Authorization) { a.To = from })),
		"no longer valid": w.call(http.MethodPost, requestAccount, accountBody, "PAYMENT-SIGNATURE",
			w.junk(requestAccount, from, func(a *x402.Authorization) { a.ValidBefore = "1700000000" })),
		"not valid yet": w.call(http.MethodPost, requestAccount, accountBody, "PAYMENT-SIGNATURE",
			w.junk(requestAccount, from, func(a *x402.Authorization) { a.ValidAfter = "9999999999" })),
	} {
		if (a.Status != http.StatusPaymentRequired && a.Status != http.StatusUnauthorized) || chain.calls.Load() != 0 {
			t.Errorf("%s: %v, and the chain was asked %d times, want a refusal without asking", name, a, chain.calls.Load())
		}
	}
	for range 5 {
		a := w.call(http.MethodPost, requestAccount, accountBody, "PAYMENT-SIGNATURE", w.junk(requestAccount, from))
		if a.Status != http.StatusPaymentRequired || chain.calls.Load() != 1 {
			t.Errorf("junk in one name: %v, and the chain was asked %d times, want 402 after one", a, chain.calls.Load())
		}
	}
}

// TestStrangersAndTheFacilitator: payments that name contracts as their wallets cost their sender nothing. They make the server ask the
// facilitator a few times, and not again about what it has just rejected or while it wants a pause. Neither a payer who paid lately nor a
// new one at another address notices.
func TestStrangersAndTheFacilitator(t *testing.T) {
	t.Parallel()
	chain := newWalletChain()
	w := newWorld(t, chain.on, withLimits(edge.Limits{TrustedProxies: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}))
	alice, bob := w.agent("alice"), w.agent("bob")
	var verified atomic.Int64
	pause := ""
	defer w.breakFacilitator(func(rw http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path != "/verify" {
			return false
		}
		verified.Add(1)
		if pause != "" {
			rw.Header().Set("Retry-After", pause)
			rw.WriteHeader(http.StatusTooManyRequests)
		}
		return pause != ""
	})()
	send := func(address, payment string) testkit.Reply {
		t.Helper()
		return w.call(http.MethodPost, requestAccount, accountBody, "X-Forwarded-For", address, "PAYMENT-SIGNATURE", payment)
	}
	asked := func(what string, want int64) {
		t.Helper()
		if n := verified.Swap(0); n != want {
			t.Errorf("%s: /verify was called %d times, want %d", what, n, want)
		}
	}
	honest := func(name string) {
		t.Helper()
		alice.sends(bob, "meanwhile").Want(t, "a payer who paid lately", http.StatusOK)
		w.call(http.MethodPost, requestAccount, `{"requested_username":`+quote(name)+`}`, "X-Forwarded-For", "198.51.100.99", "PAYMENT-SIGNATURE",
			w.sign(w.Wallet(testkit.Dollar), requestAccount)).Want(t, "a new payer at another address", http.StatusOK)
	}
	rejected := w.junk(requestAccount, chain.contract)
	send("198.51.100.1", rejected).Want(t, "a contract", http.StatusPaymentRequired, "payment_refused")
	asked("a contract", 1)
	send("198.51.100.1", w.junk(requestAccount, chain.contract)).WantRefused(t, "the same contract again", http.StatusTooManyRequests,
		"rate_limited")
	send("198.51.100.2", rejected).Want(t, "the same payment again", http.StatusPaymentRequired, "payment_refused")
	asked("what it has just rejected", 0)
	send("198.51.100.2", w.junk(requestAccount, chain.contract)).Want(t, "from another address", http.StatusPaymentRequired, "payment_refused")
	asked("from another address", 1)

	limited := 0
	for n := 0; limited == 0 && n < 100; n++ {
		a := send("198.51.100.3", w.junk(requestAccount, fmt.Sprintf("0xc0de%036x", n)))
		if a.Status == http.StatusTooManyRequests {
			a.Require(t, "too many contracts", http.StatusTooManyRequests, "rate_limited")
			limited++
		}
	}
	if n := verified.Swap(0); limited == 0 || n == 0 || n > 50 {
		t.Errorf("many contracts: /verify was called %d times, and %d calls were refused, want a few calls and then refusals", n, limited)
	}
	honest("first")

	pause = "5"
	for _, address := range []string{"198.51.100.4", "198.51.100.5"} {
		a := send(address, w.junk(requestAccount, fmt.Sprintf("0xc0de%036x", 1000)))
		if after, _ := strconv.Atoi(a.Header.Get("Retry-After")); a.Status != http.StatusServiceUnavailable || after < 2 || after > 5 {
			t.Errorf("while the facilitator wants a pause: %v %v, want 503 with Retry-After", a, a.Header)
		}
	}
	asked("while the facilitator wants a pause", 1)
	honest("second")
	asked("by honest payers", 0)
}

// TestContractsPayWith65Bytes: a contract's own signature goes to the facilitator's /verify; where the chain is unavailable the
// payer is told to send the same payment again, never to sign a new one.
func TestContractsPayWith65Bytes(t *testing.T) {
	t.Parallel()
	chain := newWalletChain()
	w := newWorld(t, chain.on)
	var verified atomic.Int64
	mend := w.breakFacilitator(func(rw http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path == "/verify" {
			verified.Add(1)
		}
		return false
	})
	defer mend()
	payment := w.junk(requestAccount, chain.contract)
	chain.unavailable.Store(true)
	if a := w.call(http.MethodPost, requestAccount, accountBody, "PAYMENT-SIGNATURE", payment); a.Status != http.StatusServiceUnavailable ||
		a.Header.Get("Retry-After") == "" || verified.Load() != 0 {
		t.Errorf("a contract pays while the chain is unavailable: %v, want 503 with Retry-After", a)
	}
	chain.unavailable.Store(false)
	if a := w.call(http.MethodPost, requestAccount, accountBody, "PAYMENT-SIGNATURE", payment); a.Status != http.StatusPaymentRequired ||
		verified.Load() != 1 {
		t.Errorf("a contract pays: %v, and /verify was called %d times, want its word", a, verified.Load())
	}
}
