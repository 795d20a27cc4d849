package service

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/payment"
	"github.com/parley-chat/parley/server"
	"github.com/parley-chat/parley/x402"
)

// breakFacilitator makes the facilitator misbehave until the returned function is called.
func (w *world) breakFacilitator(fault func(rw http.ResponseWriter, r *http.Request) bool) (mend func()) {
	w.fault.Store(&fault)
	return func() { w.fault.Store(nil) }
}

// settleAndThen lets the facilitator settle, throws its reply away and replies something else.
func (w *world) settleAndThen(reply func(rw http.ResponseWriter)) func(http.ResponseWriter, *http.Request) bool {
	return func(rw http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path != "/settle" {
			return false
		}
		w.Facilitator.ServeHTTP(httptest.NewRecorder(), r)
		reply(rw)
		return true
	}
}

// TestRefusedSettlement: a definite no is a 402 with both headers, and the next payment is a new one.
func TestRefusedSettlement(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice, bob := w.agent("alice"), w.agent("bob")
	send := w.sendOnCredit(alice, bob)
	for range 2 {
		a := send()
		settled, err := x402.DecodeSettleResponse(a.Header.Get(x402.HeaderPaymentResponse))
		if a.Status != http.StatusPaymentRequired || err != nil || settled.Success || settled.ErrorReason != x402.ReasonInsufficientBalance {
			t.Errorf("a payment without money: %v, PAYMENT-RESPONSE %+v (%v)", a, settled, err)
		}
	}
	if w.Count("SELECT count(*) FROM messages") != 0 ||
		w.Count("SELECT count(*) FROM payments WHERE state = 'failed' AND payload IS NULL") != 1 {
		t.Error("a refused payment left a message, or did not end as failed")
	}
}

// TestRefusedAfterSettlement: the world changed while the money moved. The payment is kept and redeemed once.
func TestRefusedAfterSettlement(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	payer := w.Wallet(testkit.Dollar)
	mend := w.atSettlement(func() {
		w.Exec(`INSERT INTO registrations (username, tan_hash, payer, expires_at) VALUES ('wanted', '\x` + strings.Repeat("00", 32) +
			`', '0xsomebody', now() + interval '10 minutes') ON CONFLICT DO NOTHING`)
	})
	const path = "/register/request_account"
	payment := w.sign(payer, path)
	a := w.call(http.MethodPost, path, `{"requested_username":"wanted"}`, x402.HeaderPaymentSignature, payment)
	if a.Status != http.StatusConflict || a.Code != "username_reserved" || !a.Charged {
		t.Fatalf("the username went while the money moved: %v, want 409 username_reserved, charged", a)
	}
	if settled, err := x402.DecodeSettleResponse(a.Header.Get(x402.HeaderPaymentResponse)); err != nil || !settled.Success {
		t.Errorf("a charged refusal names its settlement: %+v (%v)", settled, err)
	}
	mend()
	if again := w.pay(payer, path, `{"requested_username":"wanted"}`); again.Status != http.StatusConflict || !again.Charged {
		t.Errorf("the same request once more: %v, want the same refusal", again)
	}
	if other := w.call(http.MethodPost, "/register/create_account", `{"username":"wanted","tan":"00000000","description":""}`,
		x402.HeaderPaymentSignature, payment); other.Status == http.StatusOK {
		t.Errorf("the payment bought another operation: %v", other)
	}
	if theft := w.call(http.MethodPost, path, `{"requested_username":"stolen"}`, x402.HeaderPaymentSignature,
		payment); theft.Status != http.StatusConflict || theft.Code != "proof_required" {
		t.Errorf("somebody who has read the payment on the chain: %v, want 409 proof_required", theft)
	}
	w.pay(w.Wallet(0), path, `{"requested_username":"stolen"}`).Want(t, "another wallet", 402)
	redeemed := w.pay(payer, path, `{"requested_username":"free"}`)
	redeemed.Want(t, "a mended request with a fresh payment by the wallet", 200)
	w.call(http.MethodPost, path, `{"requested_username":"another"}`, x402.HeaderPaymentSignature, payment).Want(t, "redeemed a second time",
		409, "proof_required")
	if w.Revenue() != 10_000 {
		t.Errorf("charged %d, want the price once", w.Revenue())
	}
}

// disconnect makes the database unavailable to the server.
func (w *world) disconnect() {
	w.T.Helper()
	own, err := url.Parse(w.DatabaseURL)
	testkit.NoError(w.T, err)
	name := strings.TrimPrefix(own.Path, "/")
	own.Path = "/postgres"
	connection, err := pgx.Connect(context.Background(), own.String())
	testkit.NoError(w.T, err)
	defer connection.Close(context.Background())
	for _, statement := range []string{"ALTER DATABASE " + name + " ALLOW_CONNECTIONS false",
		"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '" + name + "'"} {
		if _, err := connection.Exec(context.Background(), statement); err != nil {
			w.T.Fatal(err)
		}
	}
}

// TestDatabaseUnavailable: paid calls say so and ask for the same payment again; prices are still told; no inner text gets out.
func TestDatabaseUnavailable(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice := w.agent("alice")
	payment := w.signFor(alice.Wallet, http.MethodGet, "/agent/me")
	w.disconnect()
	a := w.call(http.MethodGet, "/agent/me", "", "X-API-KEY", alice.Key, x402.HeaderPaymentSignature, payment)
	if a.Status != http.StatusServiceUnavailable || a.Code != "unavailable" || a.Header.Get("Retry-After") == "" {
		t.Errorf("a paid call without a database: %v, want 503 unavailable with Retry-After", a)
	}
	for _, inner := range []string{"pool", "conn", "sql", "SELECT"} {
		if strings.Contains(string(a.Body), inner) {
			t.Errorf("the reply holds inner text (%s): %s", inner, a.Body)
		}
	}
	w.call(http.MethodPost, "/chat/private/send", "").Want(t, "the price without a database", 402)
}

// TestFormerTerms: the payee has changed. A payment that was begun before is repeated or completed, and never gets a 402, after which its
// payer would sign another one. A payment that is not in the ledger gets the 402.
func TestFormerTerms(t *testing.T) {
	t.Parallel()
	for name, lost := range map[string]bool{"delivered": false, "outcome unknown": true} {
		for _, voucher := range []bool{false, true} {
			if lost && voucher {
				continue // a voucher is charged at once
			}
			t.Run(fmt.Sprintf("%s, voucher %t", name, voucher), func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, withChannels)
				alice, bob := w.agent("alice"), w.agent("bob")
				body := `{"recipient_agent_id":` + quote(bob.ID) + `,"content":"hello"}`
				signed, unused := w.sign(alice.Wallet, sendPath), w.sign(alice.Wallet, sendPath)
				if voucher {
					alice.opened(bob, 1)
					signed = w.channelPayer(alice.Wallet).sign(sendPath, 10_000, 0)
				}
				mend := func() {}
				if lost {
					mend = w.breakFacilitator(w.settleAndThen(testkit.HangUp))
				}
				alice.sendWith(signed, bob, "hello")
				mend()
				other := w.beside(func(config *server.Config, _ *payment.Chain, _ string) {
					config.PayTo = "0x" + strings.Repeat("42", 20)
				})
				send := func(payment string) testkit.Reply {
					return known(func() testkit.Reply {
						return other.call(http.MethodPost, sendPath, body, "X-API-KEY", alice.Key, x402.HeaderPaymentSignature, payment)
					})
				}
				send(signed).Want(t, "the payment again", http.StatusOK)
				send(unused).Want(t, "another payment for the former terms", http.StatusPaymentRequired)
				if n := other.Count(`SELECT count(*) FROM messages WHERE content = 'hello'`); n != 1 {
					t.Errorf("%d messages, want 1", n)
				}
			})
		}
	}
}
