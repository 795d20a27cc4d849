package service

import (
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/server/edge"
	"github.com/parley-chat/parley/store"
	"github.com/parley-chat/parley/x402"
)

// TestRedeemingInVainIsLimited: a payment that could not be delivered may be redeemed with another request; each that is
// refused, too, counts as a call that is not paid, although the payment was charged.
func TestRedeemingInVainIsLimited(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withLimits(edge.Limits{Wallet: few(5)}))
	payer := w.Wallet(testkit.Dollar)
	const path, body = "/register/request_account", `{"requested_username":"wanted"}`
	mend := w.atSettlement(func() {
		w.Exec(`INSERT INTO registrations (username, tan_hash, payer, expires_at) VALUES ('wanted', '\x` + strings.Repeat("00", 32) +
			`', '0xsomebody', now() + interval '10 minutes') ON CONFLICT DO NOTHING`)
	})
	if a := w.pay(payer, path, body); a.Status != http.StatusConflict || !a.Charged {
		t.Fatalf("the username went while the money moved: %v, want 409, charged", a)
	}
	mend()
	for i := range 5 {
		if a := w.pay(payer, path, body); a.Status != http.StatusConflict || !a.Charged {
			t.Fatalf("redeemed in vain %d times: %v, want the refusal, charged", i+1, a)
		}
	}
	w.wantLimited("once too often", w.pay(payer, path, body), "wallet")
}

// TestTANLimitSparesWhatHasSettled: an account that was paid with the right TAN is created, whatever was tried meanwhile.
func TestTANLimitSparesWhatHasSettled(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	owner := w.Wallet(50 * testkit.Dollar)
	const create = "/register/create_account"
	tan := w.pay(owner, "/register/request_account", `{"requested_username":"slow"}`).Field(t, "tan")
	w.Secret(tan)
	var wrong []string
	for range 5 {
		wrong = append(wrong, w.sign(owner, create))
	}
	tryWrong := sync.OnceFunc(func() {
		for _, payment := range wrong {
			if a, err := w.try(http.MethodPost, create, account("nobody", "00000000"), x402.HeaderPaymentSignature, payment); err != nil ||
				a.Code != "invalid_tan" {
				t.Errorf("a wrong TAN: %v (%v), want invalid_tan", a, err)
			}
		}
	})
	mend := w.atSettlement(func() {
		tryWrong()
	})
	defer mend()
	a := w.pay(owner, create, account("slow", tan))
	a.Require(t, "the account", 200)
	w.Secret(a.Field(t, "api_key"))
}

// TestUsedAuthorizationIsNoProof: an authorization that was used elsewhere, for another service of the same payee, is public,
// so it opens no secret.
func TestUsedAuthorizationIsNoProof(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	victim := w.Wallet(10 * testkit.Dollar)
	const path, body = "/register/request_account", `{"requested_username":"victim"}`
	var signed x402.Authorization
	elsewhere := w.sign(victim, path, func(p *x402.PaymentPayload) { signed = p.Payload.Authorization })
	w.transfer(signed, 10_000)
	tan := w.pay(victim, path, body).Field(t, "tan")
	w.Secret(tan)
	w.wantNoSecret("the TAN", w.call(http.MethodPost, path, body, x402.HeaderPaymentSignature, elsewhere), tan)
	if again := w.pay(victim, path, body).Field(t, "tan"); again != tan {
		t.Error("a fresh authorization returns another TAN")
	}
}

// TestRefusedWalletIsNotBelieved: a wallet that paid lately is believed to have money, until a payment of it does not settle.
func TestRefusedWalletIsNotBelieved(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	payer := w.Wallet(20_000)
	request := func(name string) testkit.Reply {
		return w.pay(payer, "/register/request_account", `{"requested_username":`+quote(name)+`}`)
	}
	request("first").Require(t, "a call", http.StatusOK)
	w.transfer(x402.Authorization{From: testkit.Address(payer), To: testkit.Address(w.Wallet(0))}, 10_000)
	request("second").Want(t, "an emptied wallet", 402)
	settles := w.settles.Load()
	if a := request("third"); a.Status != http.StatusPaymentRequired || w.settles.Load() != settles {
		t.Errorf("an emptied wallet once more: %v, after %d calls of /settle, want 402 without any", a, w.settles.Load()-settles)
	}
}

// TestRefundedPaymentIsNotRedeemed: who got the money of an undeliverable payment back cannot use the payment any more.
func TestRefundedPaymentIsNotRedeemed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice, bob := w.agent("alice"), w.agent("bob")
	mend := w.atSettlement(func() {
		w.addBlock(bob, alice)
	})
	payment := w.sign(alice.Wallet, "/chat/private/send")
	send := func() testkit.Reply { return alice.sendWith(payment, bob, "hello") }
	if refused := send(); refused.Code != "blocked" || !refused.Charged {
		t.Fatalf("blocked after the settlement: %v", refused)
	}
	mend()
	w.Exec("DELETE FROM blocks")
	o := w.operator()
	refund := store.Refund{Amount: 5000, Transaction: "0x" + strings.Repeat("ab", 32)}
	w.Scan("SELECT id, payer FROM payments WHERE state = 'undeliverable'", nil, &refund.PaymentID, &refund.Payer)
	o.must(o.on.RecordRefund(t.Context(), o.by, refund))
	// Redemptions that read the payment before the refund end afterwards.
	for what, end := range map[string]func() error{
		"refused": func() error { return o.on.PaymentUndeliverable(t.Context(), refund.PaymentID, "", "blocked") },
		"delivered": func() error {
			_, err := o.on.Commit(t.Context(), store.Done(store.Response{}), store.Closing{
				Delivery: &store.Delivery{Payment: refund.PaymentID, State: store.PaymentUndeliverable, Fingerprint: make([]byte, 32)},
				Encode:   func(store.Response) ([]byte, error) { return nil, nil },
			})
			return err
		},
	} {
		if err := end(); !errors.Is(err, store.ErrStalePayment) {
			t.Errorf("a redemption that was %s after the refund: %v, want ErrStalePayment", what, err)
		}
	}
	send().WantRefused(t, "the refunded payment", http.StatusPaymentRequired, "payment_refused")
	if got := w.Count("SELECT count(*) FROM messages"); got != 0 {
		t.Errorf("%d messages were sent for a refunded payment", got)
	}
}
