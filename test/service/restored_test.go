package service

import (
	"bytes"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/parley-chat/parley/internal/devnet"
	"github.com/parley-chat/parley/internal/reconcile"
	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/payment"
	"github.com/parley-chat/parley/server"
	"github.com/parley-chat/parley/store"
	"github.com/parley-chat/parley/x402"
)

// restoredWorld is a world whose database can lose what a restore from a backup loses.
type restoredWorld struct {
	*world
	chain *x402.Chain
}

func newRestoredWorld(t *testing.T) *restoredWorld {
	t.Helper()
	r := &restoredWorld{chain: &x402.Chain{}}
	r.world = newWorld(t, func(_ *server.Config, _ *payment.Chain, facilitatorURL string) { r.chain.URL = facilitatorURL + "/rpc" })
	return r
}

// lose deletes the payments that match a condition, and enters them again from the chain.
func (r *restoredWorld) lose(condition string, payments int) {
	r.T.Helper()
	r.Exec(`DELETE FROM payments WHERE ` + condition)
	terms := store.PaymentTerms{Network: devnet.NetworkID, Asset: strings.ToLower(testkit.PlayMoney.Asset),
		PayTo: strings.ToLower(devnet.Payee)}
	report, err := reconcile.Compare(r.T.Context(), r.store, r.chain, terms, time.Now().Add(-time.Hour))
	testkit.NoError(r.T, err)
	if entered, err := report.Enter(r.T.Context(), r.store, r.chain); err != nil || entered != payments {
		r.T.Fatalf("%d payments entered, %v, want %d", entered, err, payments)
	}
	r.checkLedger()
}

// checkLedger compares the ledger with the payee's balance.
func (r *restoredWorld) checkLedger() {
	r.T.Helper()
	if sum := r.Count(`SELECT coalesce(sum(amount), 0) FROM payments
		WHERE state IN ('delivered', 'undeliverable')`); uint64(sum) != r.Revenue() {
		r.T.Errorf("the ledger has %d, the payee %d", sum, r.Revenue())
	}
}

// TestRestoredPaymentBuysItsCall: a payer whose message was lost with a restored database sends the same payment again. The message is
// sent once, and nothing is charged.
func TestRestoredPaymentBuysItsCall(t *testing.T) {
	t.Parallel()
	r := newRestoredWorld(t)
	alice, bob := r.agent("alice"), r.agent("bob")
	const content = "lost and found"
	body := `{"recipient_agent_id":` + quote(bob.ID) + `,"content":` + quote(content) + `}`
	header := r.sign(alice.Wallet, sendPath)
	send := func(key, body, header string) testkit.Reply {
		return r.call(http.MethodPost, sendPath, body, "X-API-KEY", key, x402.HeaderPaymentSignature, header)
	}
	send(alice.Key, body, header).Require(t, "the message", 200)
	r.Exec(`DELETE FROM messages WHERE content = '` + content + `'`)
	r.lose(`operation = 'sendPrivateMessage'`, 1)
	charged, settles := r.Revenue(), r.settles.Load()

	send(bob.Key, body, header).Want(t, "a stranger who has read the payment on the chain", 409, "payment_reused")
	lost, err := x402.DecodePayment(header)
	testkit.NoError(t, err)
	public := lost.(*x402.PaymentPayload) //nolint:forcetypeassert // it was signed for exact
	public.Payload.Signature = "0x" + strings.Repeat("ab", 96)
	contract, err := x402.EncodePaymentPayload(public)
	testkit.NoError(t, err)
	send(alice.Key, body, contract).Want(t, "with a signature that only a contract can judge", 409, "payment_reused")
	again := send(alice.Key, body, header)
	again.Require(t, "the same payment", 200)
	if repeated := send(alice.Key, body, header); !bytes.Equal(repeated.Body, again.Body) {
		t.Errorf("once more: %v, want the stored response", repeated)
	}
	send(alice.Key, strings.Replace(body, "lost", "stolen", 1), header).Want(t, "the same payment for another message", 409, "payment_reused")
	send(bob.Key, body, header).Want(t, "a stranger after that", 409, "payment_reused")
	if n := r.Count(`SELECT count(*) FROM messages 
		WHERE content = '` + content + `'`); n != 1 || r.Revenue() != charged || r.settles.Load() != settles {
		t.Errorf("%d messages, charged %d, want one and nothing", n, r.Revenue()-charged)
	}
	r.checkLedger()
}

// TestRestoredPaymentNeedsItsAccount: the payment of a wallet that has paid for no account, or for two, waits for the operator's refund.
func TestRestoredPaymentNeedsItsAccount(t *testing.T) {
	t.Parallel()
	r := newRestoredWorld(t)
	alice, bob := r.agent("alice"), r.agent("bob")
	for _, paidFor := range [][]string{{}, {alice.Key, bob.Key}} {
		wallet := r.Wallet(testkit.Dollar)
		send := func(key, header string) testkit.Reply {
			return r.call(http.MethodPost, sendPath, `{"recipient_agent_id":`+quote(bob.ID)+`,"content":"hello"}`, "X-API-KEY", key,
				x402.HeaderPaymentSignature, header)
		}
		for _, key := range paidFor {
			r.call(http.MethodGet, "/agent/me", "", "X-API-KEY", key, x402.HeaderPaymentSignature, r.signFor(wallet, http.MethodGet, "/agent/me")).
				Require(t, "a call of the account", 200)
		}
		header := r.sign(wallet, sendPath)
		send(alice.Key, header).Require(t, "the message", 200)
		r.lose(`operation = 'sendPrivateMessage' AND payer = '`+strings.ToLower(testkit.Address(wallet))+`'`, 1)
		send(alice.Key, header).Want(t, "the same payment", 409, "payment_reused")
	}
	r.checkLedger()
}

// TestRestoredRegistration: a wallet that had registered after the backup registers again. Its lost payments pay for that. The lost
// payments alone, which are public, open nothing.
func TestRestoredRegistration(t *testing.T) {
	t.Parallel()
	r := newRestoredWorld(t)
	r.agent("before")
	wallet := r.Wallet(2 * testkit.Dollar)
	const request, create = "/register/request_account", "/register/create_account"
	header := r.sign(wallet, request)
	tan := r.call(http.MethodPost, request, `{"requested_username":"carol"}`, x402.HeaderPaymentSignature, header).Field(t, "tan")
	r.Secret(tan)
	key := r.pay(wallet, create, account("carol", tan)).Field(t, "api_key")
	r.Secret(key)
	r.Exec(`DELETE FROM agents WHERE username = 'carol'`)
	r.Exec(`DELETE FROM registrations`)
	r.lose(`payer = '`+strings.ToLower(testkit.Address(wallet))+`'`, 2)
	charged := r.Revenue()

	theft := r.call(http.MethodPost, request, `{"requested_username":"thief"}`, x402.HeaderPaymentSignature, header)
	theft.Want(t, "somebody who has read the payment on the chain", 409, "proof_required")
	tan = r.pay(wallet, request, `{"requested_username":"carol"}`).Field(t, "tan")
	r.Secret(tan)
	if again := r.pay(wallet, request, `{"requested_username":"carol"}`).Field(t, "tan"); again != tan {
		t.Errorf("the same request with another payment returns another TAN")
	}
	key = r.pay(wallet, create, account("carol", tan)).Field(t, "api_key")
	r.Secret(key)
	if r.Revenue() != charged {
		t.Errorf("the registration was charged %d again", r.Revenue()-charged)
	}
	r.pay(wallet, request, `{"requested_username":"dora"}`).Require(t, "one more registration", 200)
	if r.Revenue() != charged+10_000 {
		t.Errorf("a lost payment paid twice: charged %d, want 10000", r.Revenue()-charged)
	}
	r.checkLedger()
}

// TestRefundedRegistration: a restored payment that was refunded does not keep its wallet from registering with another payment.
func TestRefundedRegistration(t *testing.T) {
	t.Parallel()
	r := newRestoredWorld(t)
	r.agent("before")
	wallet := r.Wallet(2 * testkit.Dollar)
	const request = "/register/request_account"
	r.pay(wallet, request, `{"requested_username":"carol"}`).Require(t, "a registration", 200)
	r.Exec(`DELETE FROM registrations`)
	r.lose(`payer = '`+strings.ToLower(testkit.Address(wallet))+`'`, 1)
	o := r.operator()
	refund := store.Refund{Amount: 10_000, Transaction: "0x" + strings.Repeat("ab", 32)}
	r.Scan("SELECT id, payer FROM payments WHERE state = 'undeliverable'", nil, &refund.PaymentID, &refund.Payer)
	o.must(o.on.RecordRefund(t.Context(), o.by, refund))
	charged := r.Revenue()
	r.pay(wallet, request, `{"requested_username":"carol"}`).Require(t, "a registration with another payment", 200)
	if r.Revenue() != charged+10_000 {
		t.Errorf("charged %d, want 10000", r.Revenue()-charged)
	}
}
