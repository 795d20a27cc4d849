package server_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/payment"
	"github.com/parley-chat/parley/server"
	"github.com/parley-chat/parley/x402"
)

// walletChain counts who asks it for code. It says no, and yes for the address contract, once it may speak.
type walletChain struct {
	payment.Chain
	contract      string
	unavailable   atomic.Bool
	calls         atomic.Int64
	running, most atomic.Int64
	mayRespond    chan struct{}
}

func (c *walletChain) HasCode(ctx context.Context, address string) (bool, error) {
	c.calls.Add(1)
	running := c.running.Add(1)
	defer c.running.Add(-1)
	for most := c.most.Load(); running > most && !c.most.CompareAndSwap(most, running); most = c.most.Load() {
	}
	select {
	case <-c.mayRespond:
	case <-ctx.Done():
	}
	if c.unavailable.Load() {
		return false, errors.New("the endpoint is unavailable")
	}
	return strings.EqualFold(address, c.contract), nil
}

func newWalletChain() *walletChain {
	c := &walletChain{mayRespond: make(chan struct{}), contract: "0xc0de00000000000000000000000000000000c0de"}
	close(c.mayRespond)
	return c
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
	if err != nil {
		w.T.Fatal(err)
	}
	payload.Payload.Authorization.From = from
	for _, change := range changes {
		change(&payload.Payload.Authorization)
	}
	payload.Payload.Signature = "0x" + strings.Repeat("ab", 64) + "1b"
	header, err := x402.EncodePaymentPayload(payload)
	if err != nil {
		w.T.Fatal(err)
	}
	return header
}

const accountBody = `{"requested_username":"wallet"}`

// TestJunkSignaturesAskTheChainLittle: only a payment that is in order but for its signature has its payer looked up,
// each address once, and no more than four at a time.
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

// TestWalletLookupsAreBounded: while the chain is slow, many calls for one address are one look-up, and of many addresses
// four are looked up; the others are told to come again. Payments with good signatures do not notice.
func TestWalletLookupsAreBounded(t *testing.T) {
	t.Parallel()
	chain := newWalletChain()
	chain.mayRespond = make(chan struct{})
	w := newWorld(t, chain.on)
	const callers = 24
	payments := make([]string, callers)
	for i := range payments {
		payments[i] = w.junk(requestAccount, fmt.Sprintf("0x%040x", 0xa0+i%12)) // two for each of twelve addresses
	}
	replies := make([]testkit.Reply, callers)
	var group sync.WaitGroup
	for i := range replies {
		group.Go(func() {
			replies[i], _ = w.try(http.MethodPost, requestAccount, accountBody, "PAYMENT-SIGNATURE", payments[i])
		})
	}
	for deadline := time.Now().Add(time.Second); chain.running.Load() < 4 && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	w.pay(w.Wallet(testkit.Dollar), requestAccount, `{"requested_username":"honest"}`).Want(t, "an honest payment meanwhile", 200)
	close(chain.mayRespond)
	group.Wait()
	refused := 0
	for _, a := range replies {
		switch {
		case a.Status == http.StatusServiceUnavailable && a.Code == "unavailable" && a.Header.Get("Retry-After") != "":
			refused++
		case a.Status != http.StatusPaymentRequired:
			t.Errorf("junk while the chain is slow: %v, want 402, or 503 with Retry-After", a)
		}
	}
	if chain.most.Load() != 4 || chain.calls.Load() > 12 || refused == 0 {
		t.Errorf("%d look-ups at a time, %d in all, %d callers told to come again, want 4, at most 12, some", chain.most.Load(),
			chain.calls.Load(), refused)
	}
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
