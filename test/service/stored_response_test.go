package service

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/payment"
	"github.com/parley-chat/parley/server"
	"github.com/parley-chat/parley/x402"
)

// TestDatabaseOpensNoAccount: no table has an API key or a TAN, whatever was called. The ledger has what derives them with the server's
// secret only until they are used.
func TestDatabaseOpensNoAccount(t *testing.T) {
	t.Parallel()
	s := tellAll(t)
	unused := s.w.Wallet(10 * testkit.Dollar)
	tan := s.w.pay(unused, "/register/request_account", `{"requested_username":"registered"}`).Field(t, "tan")
	s.w.Secret(tan)
	const derived = `SELECT count(*) FROM payments WHERE position('derived:' in convert_from(response, 'LATIN1')) > 0 AND payer = $1`
	if n := s.w.Count(derived, strings.ToLower(testkit.Address(unused))); n != 1 {
		t.Errorf("%d responses have what derives the TAN that was not used, want 1", n)
	}
	s.w.Secret(s.w.pay(unused, "/register/create_account", `{"tan":"`+tan+`","username":"registered","description":""}`).Field(t, "api_key"))
	if n := s.w.Count(derived, strings.ToLower(testkit.Address(unused))); n != 1 {
		t.Errorf("%d responses have what derives the new API key, want 1, without that of the used TAN", n)
	}
	for _, table := range []string{"payments", "registrations", "agents"} {
		s.w.EachRow(func(rows pgx.Rows) error {
			values, err := rows.Values()
			for _, value := range values {
				if raw, ok := value.([]byte); ok {
					value = string(raw)
				}
				s.w.CheckSecrets(t, "the table "+table, fmt.Sprint(value))
			}
			return err
		}, "SELECT * FROM "+table)
	}
}

// withSecrets lets a server have these secrets.
func withSecrets(secrets ...server.Secret) setting {
	return func(config *server.Config, _ *payment.Chain, _ string) { config.Secrets = secrets }
}

// TestSecretRotation: a server with a new secret and the former one repeats a response with an API key; without the former one the outcome
// counts as unknown, because another server has it.
func TestSecretRotation(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	bob := w.agent("bob")
	const rotate = "/agent/rotate_key"
	signed := w.sign(bob.Wallet, rotate, testkit.Identified("a-name-of-the-payment"))
	send := func(on *world) testkit.Reply {
		return on.call(http.MethodPost, rotate, `{}`, "X-API-KEY", bob.Key, x402.HeaderPaymentSignature, signed)
	}
	first := send(w)
	w.Secret(first.Field(t, "api_key"))
	rotated, without := newWorldOn(t, w.DatabaseURL, withSecrets(server.Secret{2}, serverSecret)), newWorldOn(t, w.DatabaseURL,
		withSecrets(server.Secret{2}))
	if a := send(rotated); a.Status != http.StatusOK || string(a.Body) != string(first.Body) {
		t.Errorf("with a new secret and the former one: %v, want what was returned first", a)
	}
	send(without).WantRefused(t, "without the former secret", http.StatusServiceUnavailable, "payment_unknown")
	w.Exec("UPDATE payments SET updated_at = updated_at - interval '11 minutes'")
	send(rotated).WantRefused(t, "after ten minutes", http.StatusUnauthorized, "invalid_api_key")
}

// TestOpenPaymentsOpenNothing: while a registration settles, its row shows neither the payment identifier, which proves possession, nor
// the TAN, and no hash of it that could be found by trying.
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
	defer w.atSettlement(func() {
		w.Scan(`SELECT payload || request, fingerprint FROM payments WHERE state = 'settling'`, nil, &row, &fingerprint)
	})()
	signed := w.sign(payer, create, testkit.Identified(identifier))
	created := w.call(http.MethodPost, create, account("wanted", tan), x402.HeaderPaymentSignature, signed)
	w.Secret(created.Field(t, "api_key"))
	if len(row) == 0 || bytes.Contains(row, []byte(identifier)) || bytes.Contains(row, []byte(tan)) {
		t.Errorf("the %d bytes of the open payment show its identifier or the TAN", len(row))
	}
	const withoutTAN = `{"description":"x","username":"wanted"}`
	if want := sha256.Sum256([]byte("createAccount\x00\x00" + withoutTAN)); !bytes.Equal(fingerprint, want[:]) {
		t.Error("the fingerprint is not that of the request without its TAN")
	}
}

// TestTANOutlivesARotation: a TAN that was issued before the secret changed is valid after it, and not at a server without the former one.
func TestTANOutlivesARotation(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	payer := w.Wallet(10 * testkit.Dollar)
	tan := w.pay(payer, "/register/request_account", `{"requested_username":"wanted"}`).Field(t, "tan")
	w.Secret(tan)
	on := func(keys ...server.Secret) *world { return w.beside(withSecrets(keys...)) }
	on(server.Secret{2}).pay(payer, "/register/create_account", account("wanted", tan)).WantRefused(t, "at a server without the secret",
		http.StatusForbidden, "invalid_tan")
	w.Secret(on(server.Secret{2}, serverSecret).pay(payer, "/register/create_account", account("wanted", tan)).Field(t, "api_key"))
}
