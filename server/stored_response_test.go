package server_test

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/payment"
	"github.com/parley-chat/parley/server"
	"github.com/parley-chat/parley/x402"
)

// storedRow is a stored response, with all that the row tells besides.
type storedRow struct {
	id        uuid.UUID
	operation string
	response  []byte
	columns   map[string]any
}

func (w *world) storedRows() (rows []storedRow) {
	w.T.Helper()
	w.EachRow(func(r pgx.Rows) error {
		var row storedRow
		if err := r.Scan(&row.id, &row.operation, &row.response, &row.columns); err != nil {
			return err
		}
		rows = append(rows, row)
		return nil
	}, "SELECT id, operation, response, to_jsonb(p) FROM payments p WHERE response IS NOT NULL")
	return rows
}

// secrets are the keys that a reader of the row can make: of each column as text, as bytes, and hashed.
func (r storedRow) secrets() (secrets [][]byte) {
	secrets = append(secrets, nil, make([]byte, 32))
	for _, value := range r.columns {
		text := fmt.Sprint(value)
		raw, _ := hex.DecodeString(strings.TrimPrefix(strings.TrimPrefix(text, "\\x"), "0x"))
		for _, one := range [][]byte{[]byte(text), raw} {
			hash := sha256.Sum256(one)
			secrets = append(secrets, one, hash[:])
		}
	}
	return secrets
}

// opens reports whether a response can be opened with one of the secrets, or with its request alone.
func (r storedRow) opens(requests, secrets [][]byte) bool {
	for _, request := range requests {
		alone := sha256.Sum256(append([]byte("parley response\x00"), request...))
		keys := [][]byte{alone[:]}
		for _, secret := range secrets {
			mixed := hmac.New(sha256.New, secret)
			_, _ = fmt.Fprintf(mixed, "parley response\x00%s%s", r.id[:], request)
			keys = append(keys, mixed.Sum(nil))
			if len(secret) == 32 {
				keys = append(keys, secret)
			}
		}
		for _, key := range keys {
			block, _ := aes.NewCipher(key)
			gcm, _ := cipher.NewGCM(block)
			for _, skipped := range []int{0, 4} {
				sealed := r.response[skipped:]
				if _, err := gcm.Open(nil, sealed[:gcm.NonceSize()], sealed[gcm.NonceSize():], nil); err == nil {
					return true
				}
			}
		}
	}
	return false
}

// TestStoredResponsesOpenNothing: of no paid operation a stored response can be opened with the database and all requests. The control
// is the server's key, which opens one of each operation.
func TestStoredResponsesOpenNothing(t *testing.T) {
	t.Parallel()
	s := tellAll(t)
	// A response with a secret is erased when the secret is used. These are not used.
	unused := s.w.Wallet(10 * testkit.Dollar)
	request := func(path, body string) testkit.Reply {
		s.sent(path, body)
		return s.w.pay(unused, path, body)
	}
	tan := request("/register/request_account", `{"requested_username":"registered"}`).Field(t, "tan")
	s.w.Secret(tan)
	s.w.Secret(request("/register/create_account", `{"tan":"`+tan+`","username":"registered","description":""}`).Field(t, "api_key"))
	s.w.Secret(request("/register/request_account", `{"requested_username":"reserved"}`).Field(t, "tan"))

	rows, open, controls := s.w.storedRows(), map[string]int{}, map[string]bool{}
	for _, row := range rows {
		s.w.CheckSecrets(t, "the ledger", fmt.Sprint(row.columns))
		s.w.CheckSecrets(t, "a sealed response", string(row.response))
		if row.opens(s.requests, row.secrets()) {
			open[row.operation]++
		}
		if row.opens(s.requests, [][]byte{responseKey[:]}) {
			controls[row.operation] = true
		}
	}
	if len(open) > 0 {
		t.Errorf("of %d stored responses these can be opened with columns and requests alone: %v", len(rows), open)
	}
	for name, route := range testkit.Operations {
		if testkit.Price(name) > 0 && !controls[route.Operation.OperationID] {
			t.Errorf("no stored response of %s is tried with its request", name)
		}
	}
}

// withResponseKeys lets a server have these keys.
func withResponseKeys(keys ...payment.ResponseKey) setting {
	return func(config *server.Config, _ *payment.Chain, _ string) { config.ResponseKeys = keys }
}

// TestResponseKeyRotation: a server with a new key and the former one repeats responses; without the former one they count as erased.
func TestResponseKeyRotation(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice, bob := w.agent("alice"), w.agent("bob")
	type sent struct {
		path, body string
		from       *agent
		payment    string
	}
	var calls []sent
	var bodies []string
	for _, call := range []sent{
		{path: "/chat/private/send", body: fields{"recipient_agent_id": bob, "content": "hello"}.json(t), from: alice},
		{path: "/agent/profile", body: fields{"agent_id": bob}.json(t), from: alice},
		{path: "/agent/rotate_key", body: `{}`, from: bob},
	} {
		call.payment = w.sign(call.from.Wallet, call.path, testkit.Identified("a-name-of-"+strings.ReplaceAll(call.path[1:], "/", "-")))
		a := w.call(http.MethodPost, call.path, call.body, "X-API-KEY", call.from.Key, x402.HeaderPaymentSignature, call.payment)
		a.Require(t, call.path, http.StatusOK)
		if key := a.Text("api_key"); key != "" {
			w.Secret(key)
		}
		calls, bodies = append(calls, call), append(bodies, string(a.Body))
	}
	repeat := func(on *world, call sent) testkit.Reply {
		return on.call(http.MethodPost, call.path, call.body, "X-API-KEY", call.from.Key, x402.HeaderPaymentSignature, call.payment)
	}
	rotated := newWorldOn(t, w.DatabaseURL, withResponseKeys(payment.ResponseKey{2}, responseKey))
	for i, call := range calls {
		if a := repeat(rotated, call); a.Status != http.StatusOK || string(a.Body) != bodies[i] {
			t.Errorf("%s with a new key and the former one returns %v, want what it returned first", call.path, a)
		}
	}
	without := newWorldOn(t, w.DatabaseURL, withResponseKeys(payment.ResponseKey{2}))
	for i, call := range calls[:2] { // another server may have the key
		if a := repeat(without, call); a.Status != http.StatusServiceUnavailable || a.Code != "payment_unknown" {
			t.Errorf("%s without the former key, soon: %v, want 503", calls[i].path, a)
		}
	}
	w.Exec("UPDATE payments SET updated_at = updated_at - interval '61 minutes'")
	repeat(without, calls[0]).WantRefused(t, "a message without the former key", http.StatusConflict, "payment_reused")
	repeat(without, calls[2]).WantRefused(t, "a replaced API key without the former key", http.StatusUnauthorized, "invalid_api_key")
	repeat(without, calls[1]).WantRefused(t, "a read without the former key", http.StatusConflict, "payment_reused")
}

// TestOpenPaymentsOpenNothing: while a registration settles, its row shows neither the payment identifier, which proves possession, nor
// the TAN.
// The hash of the TAN and the fingerprint of the request have a key that is not in the database. A server that lacks the key does not say
// that
// nothing was charged.
func TestOpenPaymentsOpenNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const create, identifier = "/register/create_account", "secret_identifier_of_the_payer"
	payer := w.Wallet(10 * testkit.Dollar)
	tan := w.pay(payer, "/register/request_account", `{"requested_username":"wanted"}`).Field(t, "tan")
	w.Secret(tan)
	var hash []byte
	w.Scan(`SELECT tan_hash FROM registrations`, nil, &hash)
	if plain := sha256.Sum256([]byte("wanted\x00" + tan)); bytes.Equal(hash, plain[:]) {
		t.Error("the hash of the TAN has no key, so whoever reads it finds the TAN by trying")
	}
	var row, fingerprint []byte
	signed, elsewhere := w.sign(payer, create, testkit.Identified(identifier)), newWorldOn(t, w.DatabaseURL,
		withResponseKeys(payment.ResponseKey{2}))
	defer w.atSettlement(func() {
		w.Scan(`SELECT payload || request, fingerprint FROM payments WHERE state = 'settling'`, nil, &row, &fingerprint)
		a := elsewhere.call(http.MethodPost, create, account("wanted", tan), x402.HeaderPaymentSignature, signed)
		a.Want(t, "meanwhile at a server with another key", http.StatusServiceUnavailable, "payment_unknown")
	})()
	created := w.call(http.MethodPost, create, account("wanted", tan), x402.HeaderPaymentSignature, signed)
	w.Secret(created.Field(t, "api_key"))
	if len(row) == 0 || bytes.Contains(row, []byte(identifier)) || bytes.Contains(row, []byte(tan)) {
		t.Errorf("the %d bytes of the open payment show its identifier or the TAN", len(row))
	}
	var body map[string]any
	if err := json.Unmarshal([]byte(account("wanted", tan)), &body); err != nil {
		t.Fatal(err)
	}
	request, _ := json.Marshal(body) // canonical
	if plain := sha256.Sum256(fmt.Appendf(nil, "createAccount\x00\x00%s", request)); bytes.Equal(fingerprint, plain[:]) {
		t.Error("the fingerprint has no key, so whoever reads it finds the TAN by trying")
	}
}

// TestOpenPaymentOfAnotherKey: a server that lacks the response key leaves another server's open payment open, and never refuses it.
func TestOpenPaymentOfAnotherKey(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice, bob := w.agent("alice"), w.agent("bob")
	body, signed := `{"recipient_agent_id":`+quote(bob.ID)+`,"content":"hello"}`, w.sign(alice.Wallet, sendPath)
	send := func(to *world) testkit.Reply {
		return to.call(http.MethodPost, sendPath, body, "X-API-KEY", alice.Key, x402.HeaderPaymentSignature, signed)
	}
	mend := w.breakFacilitator(w.settleAndThen(testkit.HangUp))
	send(w).Want(t, "a payment whose outcome is lost", http.StatusServiceUnavailable)
	mend()
	other := newWorldOn(t, w.DatabaseURL, withResponseKeys(payment.ResponseKey{2}))
	other.Ledger, other.Facilitator = w.Ledger, w.Facilitator
	w.Exec(`UPDATE payments SET lease_until = now() WHERE state = 'unknown'`)
	send(other).Want(t, "at a server without the key", http.StatusServiceUnavailable, "payment_unknown")
	w.Exec(`UPDATE payments SET lease_until = now() WHERE state = 'unknown'`)
	known(func() testkit.Reply { return send(w) }).Want(t, "at its own server", http.StatusOK)
}

// TestTANOutlivesARotation: a TAN that was issued before the response key changed is valid after it, and not at a server without that key.
func TestTANOutlivesARotation(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	payer := w.Wallet(10 * testkit.Dollar)
	tan := w.pay(payer, "/register/request_account", `{"requested_username":"wanted"}`).Field(t, "tan")
	w.Secret(tan)
	on := func(keys ...payment.ResponseKey) *world {
		other := newWorldOn(t, w.DatabaseURL, withResponseKeys(keys...))
		other.Ledger, other.Facilitator = w.Ledger, w.Facilitator
		return other
	}
	on(payment.ResponseKey{2}).pay(payer, "/register/create_account", account("wanted", tan)).WantRefused(t, "at a server without the key",
		http.StatusForbidden, "invalid_tan")
	w.Secret(on(payment.ResponseKey{2}, responseKey).pay(payer, "/register/create_account", account("wanted", tan)).Field(t, "api_key"))
}
