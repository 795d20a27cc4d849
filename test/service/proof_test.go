package service

import (
	"bytes"
	"crypto/ecdsa"
	"net/http"
	"regexp"
	"testing"

	"github.com/parley-chat/parley/client"
	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/x402"
)

// TestSettledPaymentOpensNoSecret: after settlement a payment is public. Replayed by somebody else it returns no TAN and no
// API key, for none of the operations that return one.
func TestSettledPaymentOpensNoSecret(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const request, create = "/register/request_account", "/register/create_account"
	victim, thief := w.Wallet(10*testkit.Dollar), w.Wallet(10*testkit.Dollar)
	body := `{"requested_username":"victim"}`
	payment := w.sign(victim, request)
	tan := w.call(http.MethodPost, request, body, x402.HeaderPaymentSignature, payment).Field(t, "tan")
	w.Secret(tan)
	w.wantNoSecret("the TAN", w.call(http.MethodPost, request, body, x402.HeaderPaymentSignature, payment), tan)

	payment = w.sign(victim, create)
	body = account("victim", tan)
	key := w.call(http.MethodPost, create, body, x402.HeaderPaymentSignature, payment).Field(t, "api_key")
	w.Secret(key)
	w.wantNoSecret("the API key", w.call(http.MethodPost, create, body, x402.HeaderPaymentSignature, payment), key)

	payment = w.sign(victim, rotate)
	rotated := w.rotated(w.call(http.MethodPost, rotate, `{}`, "X-API-KEY", key, x402.HeaderPaymentSignature, payment))
	w.wantNoSecret("the rotated key", w.call(http.MethodPost, rotate, `{}`, "X-API-KEY", key, x402.HeaderPaymentSignature, payment), rotated)
	w.pay(thief, rotate, `{}`, "X-API-KEY", key).Want(t, "somebody with the leaked old key and another wallet", 401)
}

func (w *world) wantNoSecret(what string, a testkit.Reply, secret string) {
	w.T.Helper()
	if a.Status != http.StatusConflict || a.Code != string(client.ErrorCodeProofRequired) || a.Charged ||
		bytes.Contains(a.Body, []byte(secret)) {
		w.T.Errorf("%s, for the settled payment alone: %v, want 409 proof_required", what, a)
	}
}

// TestSettledPaymentNamesNoUsername: whoever replays a settled registration payment, or the claimed voucher of one, gets the same response
// for the username that it paid for and for any other. So nobody finds out by guessing which username a wallet took.
func TestSettledPaymentNamesNoUsername(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withChannels)
	const path, right, wrong = "/register/request_account", `{"requested_username":"victim"}`, `{"requested_username":"guess"}`
	ask := func(payment, body string) testkit.Reply {
		return w.call(http.MethodPost, path, body, x402.HeaderPaymentSignature, payment)
	}
	same := func(what, payment string, status int) {
		t.Helper()
		hit, miss := ask(payment, right), ask(payment, wrong)
		hit.Want(t, what, status)
		for _, a := range []*testkit.Reply{&hit, &miss} {
			a.Body = regexp.MustCompile(`"request_id":"[^"]*"`).ReplaceAll(a.Body, nil)
		}
		if miss.Status != hit.Status || !bytes.Equal(hit.Body, miss.Body) ||
			hit.Header.Get(x402.HeaderPaymentRequired) != miss.Header.Get(x402.HeaderPaymentRequired) {
			t.Errorf("%s: %v for the username that it paid for, %v for another one, want the same", what, hit, miss)
		}
	}
	exact := w.sign(w.Wallet(testkit.Dollar), path)
	mend := w.breakFacilitator(w.settleAndThen(testkit.HangUp))
	ask(exact, right).Require(t, "the settlement's response is lost", http.StatusServiceUnavailable)
	same("a payment that may have settled", exact, http.StatusServiceUnavailable)
	mend()
	w.recover()
	same("a settled payment", exact, http.StatusConflict)

	w.Exec(`DELETE FROM registrations`)
	payer := w.channelPayer(w.Wallet(testkit.Dollar))
	deposit, later := payer.sign(path, 10_000, 100_000), payer.sign(path, 20_000, 0)
	w.Secret(ask(deposit, right).Field(t, "tan"))
	w.Secret(ask(later, `{"requested_username":"later"}`).Field(t, "tan"))
	same("a deposit", deposit, http.StatusPaymentRequired)
	w.due()
	if !w.recoverUntil(func() bool { return w.Count(`SELECT claimed FROM payment_channels`) == 20_000 }) {
		t.Fatal("nothing is claimed")
	}
	same("the claimed deposit", deposit, http.StatusPaymentRequired)
	same("a claimed voucher of the same payment channel", later, http.StatusPaymentRequired)
}

// TestOwnerGetsItsSecretAgain: the payment identifier or another authorization by the same wallet returns the response that was
// lost, uncharged, until the secret has served or ten minutes have passed.
func TestOwnerGetsItsSecretAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const request, create = "/register/request_account", "/register/create_account"
	owner, stranger := w.Wallet(50*testkit.Dollar), w.Wallet(50*testkit.Dollar)
	identifier := testkit.Identified("the-owner-keeps-this-name")
	again := func(path, body string, want testkit.Reply, headers ...string) {
		t.Helper()
		revenue, settles := w.Revenue(), w.settles.Load()
		for how, payment := range map[string]string{"identifier": w.sign(owner, path, identifier), "fresh authorization": w.sign(owner, path)} {
			a := w.call(http.MethodPost, path, body, append(headers, x402.HeaderPaymentSignature, payment)...)
			if a.Status != http.StatusOK || !bytes.Equal(a.Body, want.Body) || a.Header.Get(x402.HeaderPaymentResponse) == "" {
				t.Errorf("%s, by %s: %v, want %v", path, how, a, want)
			}
		}
		if w.Revenue() != revenue || w.settles.Load() != settles {
			t.Errorf("%s: repetitions were charged %d, and settled %d times", path, w.Revenue()-revenue, w.settles.Load()-settles)
		}
	}
	lost := func(wallet *ecdsa.PrivateKey, path, body string, headers ...string) testkit.Reply {
		return w.pay(wallet, path, body, headers...)
	}
	body := `{"requested_username":"owner"}`
	first := w.call(http.MethodPost, request, body, x402.HeaderPaymentSignature, w.sign(owner, request, identifier))
	tan := first.Field(t, "tan")
	w.Secret(tan)
	again(request, body, first)
	lost(stranger, request, body).Want(t, "another wallet asks for the TAN", 409, "username_reserved")

	account := account("owner", tan)
	created := w.call(http.MethodPost, create, account, x402.HeaderPaymentSignature, w.sign(owner, create, identifier))
	key := created.Field(t, "api_key")
	w.Secret(key)
	again(create, account, created)
	if a := w.call(http.MethodPost, request, body, x402.HeaderPaymentSignature,
		w.sign(owner, request, identifier)); a.Status == http.StatusOK {
		t.Errorf("the TAN, after it has served: %v", a)
	}

	old := key
	rotated := w.call(http.MethodPost, rotate, `{}`, "X-API-KEY", old, x402.HeaderPaymentSignature, w.sign(owner, rotate, identifier))
	key = w.rotated(rotated)
	again(rotate, `{}`, rotated, "X-API-KEY", old)
	if a := w.call(http.MethodPost, create, account, x402.HeaderPaymentSignature,
		w.sign(owner, create, identifier)); a.Status == http.StatusOK {
		t.Errorf("the first key, after it has served: %v", a)
	}

	w.Exec(`UPDATE payments SET updated_at = now() - interval '11 minutes'`)
	for how, payment := range map[string]string{"identifier": w.sign(owner, rotate, identifier),
		"fresh authorization": w.sign(owner, rotate)} {
		if a := w.call(http.MethodPost, rotate, `{}`, "X-API-KEY", old, x402.HeaderPaymentSignature, payment); a.Status == http.StatusOK ||
			bytes.Contains(a.Body, []byte(key)) {
			t.Errorf("after ten minutes, by %s: %v, want no key", how, a)
		}
	}
	if !w.recoverUntil(func() bool {
		return w.Count(`SELECT count(*) FROM payments WHERE secret AND response IS NOT NULL`) == 0
	}) {
		t.Error("responses with secrets are kept for longer than ten minutes")
	}
}
