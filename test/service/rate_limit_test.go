package service

import (
	"crypto/ecdsa"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/parley-chat/parley/client"
	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/payment"
	"github.com/parley-chat/parley/server"
	"github.com/parley-chat/parley/server/edge"
	"github.com/parley-chat/parley/x402"
	"github.com/parley-chat/parley/x402/evm"
)

// withLimits runs the server with other limits.
func withLimits(limits edge.Limits) setting {
	return func(config *server.Config, _ *payment.Chain, _ string) { config.Limits = limits }
}

// withoutLimits lets one address send as many unpaid calls as a benchmark or a fuzzer makes.
var withoutLimits = withLimits(edge.Limits{Address: plenty, Account: plenty, Wallet: plenty, WrongTANs: 1_000_000})

var plenty = edge.Rate{PerSecond: 1_000_000, Burst: 1_000_000}

// few is a rate that a test uses up and that does not come back while it runs.
func few(burst int) edge.Rate { return edge.Rate{PerSecond: 0.001, Burst: burst} }

// wantLimited fails unless the reply is the 429 of a limit.
func (w *world) wantLimited(when string, a testkit.Reply, limit string) {
	w.T.Helper()
	if a.Status != http.StatusTooManyRequests || a.Code != "rate_limited" || a.Charged || a.Header.Get("Retry-After") == "" ||
		!strings.HasPrefix(a.Header.Get("RateLimit-Policy"), `"`+limit+`";q=`) || !strings.HasPrefix(a.Header.Get("RateLimit"),
		`"`+limit+`";r=0;t=`) {
		w.T.Errorf("%s: %v %v, want 429 rate_limited of the limit %s", when, a, a.Header, limit)
	}
}

// exhaust asks for prices until the address has no token left.
func (w *world) exhaust() {
	w.T.Helper()
	for range 10_000 {
		if a := w.call(http.MethodPost, "/chat/private/send", ""); a.Status == http.StatusTooManyRequests {
			return
		}
	}
	w.T.Fatal("ten thousand price inquiries were replied")
}

// TestUnpaidCallsAreLimited: with as many tokens as by default, whoever only asks is told to wait, whatever it asks for. One token a second
// comes back, because a busy machine may not ask as fast as they come back by default.
func TestUnpaidCallsAreLimited(t *testing.T) {
	t.Parallel()
	for name, ask := range map[string]func(w *world) testkit.Reply{
		"prices":         func(w *world) testkit.Reply { return w.call(http.MethodPost, "/chat/private/send", "") },
		"requests":       func(w *world) testkit.Reply { return w.call(http.MethodPost, "/agent/profile", `{"username":"alice"}`) },
		"wrong requests": func(w *world) testkit.Reply { return w.call(http.MethodPost, "/agent/profile", `{}`) },
		"malformed payments": func(w *world) testkit.Reply {
			return w.call(http.MethodPost, "/agent/profile", `{}`, x402.HeaderPaymentSignature, "x")
		},
		"the skill": func(w *world) testkit.Reply { return w.call(http.MethodGet, "/skill", "") },
		"the skill, with a payment": func(w *world) testkit.Reply {
			return w.call(http.MethodGet, "/skill", "", x402.HeaderPaymentSignature, "x")
		},
		"preflight requests": func(w *world) testkit.Reply {
			return w.call(http.MethodOptions, "/agent/me", "", "Origin", "http://x.test")
		},
		"no path": func(w *world) testkit.Reply { return w.call(http.MethodGet, "/wp-login.php", "") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			limit := edge.Rate{PerSecond: 1, Burst: edge.DefaultLimits().Address.Burst}
			w := newWorld(t, withLimits(edge.Limits{Address: limit}))
			started := time.Now()
			for n := 0; ; n++ {
				a := ask(w)
				if a.Status == http.StatusTooManyRequests {
					w.wantLimited(name, a, "address")
					if n < limit.Burst {
						t.Errorf("call %d is refused, want %d replied", n+1, limit.Burst)
					}
					break
				}
				if earned := time.Since(started).Seconds() * limit.PerSecond; float64(n) > float64(limit.Burst)+earned+1 {
					t.Fatalf("%d calls were replied, want %d and %.0f a second", n, limit.Burst, limit.PerSecond)
				}
			}
			if metrics := w.admin("/metrics"); !strings.Contains(metrics, `parley_rate_limited_total{limit="address"} 1`) {
				t.Error("the metrics do not count it")
			}
		})
	}
}

// TestPayersAreNotLimited: 24 clients on one address, each of which asks for the price and then pays, at full speed. The
// tokens would not last for a fraction of that, and none come back by themselves.
func TestPayersAreNotLimited(t *testing.T) {
	t.Parallel()
	const clients, calls = 24, 4
	w := newWorld(t, withLimits(edge.Limits{Address: few(2 * clients), Account: few(2), Wallet: few(1)}))
	agents := make([]*agent, clients)
	for i := range agents {
		agents[i] = w.agent(fmt.Sprintf("agent_%d", i))
	}
	var running sync.WaitGroup
	for i, a := range agents {
		running.Go(func() {
			for n := range calls {
				message := client.SendPrivateMessageRequest{RecipientAgentID: agents[(i+1)%clients].ID, Content: fmt.Sprint("message ", n)}
				sent, err := a.SendPrivateMessageWithResponse(t.Context(), message) // asks, then pays
				if err != nil || sent.JSON200 == nil {
					t.Errorf("call %d of %s: %v %s", n, a.Name, err, sent.Body)
					return
				}
			}
		})
	}
	running.Wait()
	// All tokens are there again.
	for range 2 * clients {
		w.call(http.MethodPost, "/chat/private/send", "").Require(t, "a price inquiry after all is paid", 402)
	}
}

// TestPaymentsUnderWayTakeNothing: one agent has more payments under way than it has tokens.
func TestPaymentsUnderWayTakeNothing(t *testing.T) {
	t.Parallel()
	const calls = 20
	w := newWorld(t, withLimits(edge.Limits{Address: few(5), Account: few(2), Wallet: few(1)}))
	alice := w.agent("alice")
	const profile, body = "/agent/profile", `{"username":"alice"}`
	required := w.price(profile)
	here, all := make(chan struct{}, calls), make(chan struct{})
	go func() {
		defer close(all)
		for late := time.After(20 * time.Second); len(here) < calls; time.Sleep(time.Millisecond) {
			select {
			case <-late:
				t.Errorf("%d payments are under way at the same time, want %d", len(here), calls)
				return
			default:
			}
		}
	}()
	defer w.atSettlement(func() {
		here <- struct{}{}
		<-all
	})()
	var running sync.WaitGroup
	for i := range calls {
		payment := w.Encode(testkit.Payment(t, alice.Wallet, required))
		running.Go(func() {
			a, err := w.try(http.MethodPost, profile, body, "X-API-KEY", alice.Key, x402.HeaderPaymentSignature, payment)
			if err != nil || a.Status != http.StatusOK {
				t.Errorf("payment %d of %d at the same time: %v %v, want 200", i+1, calls, a, err)
			}
		})
	}
	running.Wait()
}

// TestPayersAreServedBesideAnAttacker: who uses up the tokens of an address keeps nobody from paying there who paid
// before, nor from asking for prices with its key.
func TestPayersAreServedBesideAnAttacker(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withLimits(edge.Limits{Address: few(50)}))
	alice, bob := w.agent("alice"), w.agent("bob")
	const send = "/chat/private/send"
	required := w.price(send)
	pay := func(key *ecdsa.PrivateKey, apiKey string) testkit.Reply {
		return w.call(http.MethodPost, send, fields{"recipient_agent_id": bob, "content": "hello"}.json(t), "X-API-KEY", apiKey,
			x402.HeaderPaymentSignature, w.Encode(testkit.Payment(t, key, required)))
	}
	w.exhaust()
	for range 100 { // more than the burst
		pay(alice.Wallet, alice.Key).Require(t, "a payment from an address without tokens", 200)
		w.exhaust() // what the payment gave back
	}
	alice.send(bob, "asks for the price first")
	w.exhaust()
	stranger := w.Wallet(testkit.Dollar)
	w.wantLimited("a payment of a new wallet", pay(stranger, alice.Key), "address")
	w.wantLimited("a price inquiry with a wrong key", w.call(http.MethodPost, send, "", "X-API-KEY", alice.Key+"x"), "address")
	w.wantLimited("a payment with a wrong key", pay(alice.Wallet, "parley_x"), "address")
	w.wantLimited("a malformed payment", w.call(http.MethodPost, send, `{}`, x402.HeaderPaymentSignature, "x"), "address")
	forged, err := evm.GenerateKey()
	testkit.NoError(t, err)
	claimed := w.Encode(testkit.Payment(t, forged, required,
		func(p *x402.PaymentPayload) { p.Payload.Authorization.From = testkit.Address(alice.Wallet) }))
	w.wantLimited("a payment that only claims to be alice's", w.call(http.MethodPost, send, fields{"recipient_agent_id": bob,
		"content": "hello"}.json(t),
		"X-API-KEY", alice.Key, x402.HeaderPaymentSignature, claimed), "address")
}

// TestPublicSignaturesAreLimited: at an address without tokens only a signature by a recent payer admits a call without a recent account's
// key. It can be public, so calls that fail with it use up a bucket of the address, and so do payments that are signed otherwise. A 429
// asks the database for nothing.
func TestPublicSignaturesAreLimited(t *testing.T) {
	t.Parallel()
	const failures = 10
	const profile, body = "/agent/profile", `{"username":"alice"}`
	for _, with := range []string{"alice's signature", "junk"} {
		w := newWorld(t, withLimits(edge.Limits{Address: few(failures)}))
		alice := w.agent("alice")
		required := w.price(profile)
		junk := w.Encode(testkit.Payment(t, alice.Wallet, required, func(p *x402.PaymentPayload) {
			p.Payload.Signature = "0x" + strings.Repeat("11", 65)
		}))
		genuine := w.Encode(testkit.Payment(t, alice.Wallet, required))
		w.exhaust()
		call := func(payment, key string) testkit.Reply {
			return w.call(http.MethodPost, profile, body, "X-API-KEY", key, x402.HeaderPaymentSignature, payment)
		}
		unknown := alice.Key[:len(alice.Key)-1] // not well-formed: refused after the limit, without the database
		for n := range failures {
			payment := genuine
			if with == "junk" {
				payment = junk
			}
			call(payment, unknown).Require(t, fmt.Sprintf("failure %d with %s", n+1, with), http.StatusTooManyRequests)
		}
		w.store.Close()
		for n := range 3 {
			w.wantLimited("a junk signature that names alice", call(junk, testkit.UnknownKey(n)), "address")
			w.wantLimited("alice's signature after too many failures with "+with, call(genuine, testkit.UnknownKey(n)), "address")
		}
	}
}

// TestRefusalsAreLimited: an account that is refused again and again must wait, and pays undisturbed up to that. Who does not wait uses up
// the tokens of its address, so that its requests are not read any more.
func TestRefusalsAreLimited(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withLimits(edge.Limits{Account: few(10)}))
	alice, bob := w.agent("alice"), w.agent("bob")
	const info = "/chat/private/info"
	for i := range 10 {
		alice.ask(info, fields{"chat_id": noChat}).Require(t, fmt.Sprintf("refusal %d", i+1), 404)
	}
	w.wantLimited("one refusal too many", alice.ask(info, fields{"chat_id": noChat}), "account")
	bob.ask(info, fields{"chat_id": noChat}).Want(t, "another account at the same address", 404)

	w = newWorld(t, withLimits(edge.Limits{Address: few(30), Wallet: few(10)}))
	poor, _ := evm.GenerateKey()
	const path = "/register/request_account"
	unfunded := w.sign(poor, path)
	try := func(n int) testkit.Reply {
		return w.call(http.MethodPost, path, fmt.Sprintf(`{"requested_username":"name_%d"}`, n), x402.HeaderPaymentSignature, unfunded)
	}
	for n := range 10 {
		try(n).Require(t, fmt.Sprintf("payment %d of an empty wallet", n+1), http.StatusPaymentRequired)
	}
	w.wantLimited("a wallet without money", try(10), "wallet")
	for n := range 20 {
		try(n)
	}
	w.wantLimited("the same that goes on", try(10), "address")
}

// TestRepetitionsCountAgainstWhoRepeats: a payment is public once it has settled. Who sends it again uses up its own
// tokens, not those of the wallet that made it.
func TestRepetitionsCountAgainstWhoRepeats(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withLimits(edge.Limits{Account: few(10), Wallet: few(5)}))
	alice, mallory := w.agent("alice"), w.agent("mallory")
	const profile, body = "/agent/profile", `{"username":"alice"}`
	seen := w.sign(alice.Wallet, profile)
	w.call(http.MethodPost, profile, body, "X-API-KEY", alice.Key, x402.HeaderPaymentSignature, seen).Require(t, "a call", http.StatusOK)
	for i := range 10 {
		a := w.call(http.MethodPost, profile, body, "X-API-KEY", mallory.Key, x402.HeaderPaymentSignature, seen)
		a.Require(t, fmt.Sprintf("repetition %d by a stranger", i+1), 409)
	}
	w.wantLimited("one repetition too many", w.call(http.MethodPost, profile, body, "X-API-KEY", mallory.Key, x402.HeaderPaymentSignature,
		seen), "account")
	for range 20 {
		w.pay(alice.Wallet, profile, body, "X-API-KEY", alice.Key).Require(t, "alice pays after that", 200)
	}
	for i := range 5 { // of its own payment: the burst of the wallet
		if a := w.call(http.MethodPost, profile, body, "X-API-KEY", alice.Key, x402.HeaderPaymentSignature, seen); a.Status != http.StatusOK {
			t.Fatalf("repetition %d by alice: %v", i+1, a)
		}
	}
	w.wantLimited("one repetition too many of its own", w.call(http.MethodPost, profile, body, "X-API-KEY", alice.Key,
		x402.HeaderPaymentSignature, seen), "wallet")
}

// TestAddressesBehindAProxy: each client behind a trusted proxy has its own tokens; without that setting the header is
// not believed.
func TestAddressesBehindAProxy(t *testing.T) {
	t.Parallel()
	ask := func(w *world, from string) testkit.Reply {
		return w.call(http.MethodGet, "/skill", "", "X-Forwarded-For", from)
	}
	w := newWorld(t, withLimits(edge.Limits{Address: few(3), TrustedProxies: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}))
	for range 3 {
		ask(w, "198.51.100.1").Require(t, "a call", http.StatusOK)
	}
	w.wantLimited("the first client", ask(w, "203.0.113.9, 198.51.100.1"), "address")
	ask(w, "198.51.100.2").Want(t, "a second client behind the proxy", 200)
	w = newWorld(t, withLimits(edge.Limits{Address: few(3)}))
	for i := range 3 {
		ask(w, fmt.Sprint("198.51.100.", i)).Require(t, "a call", http.StatusOK)
	}
	w.wantLimited("a client that changes its header", ask(w, "198.51.100.77"), "address")
}
