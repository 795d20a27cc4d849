package service

import (
	"bytes"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/server/edge"
	"github.com/parley-chat/parley/store/storetest"
	"github.com/parley-chat/parley/x402"
)

// TestRepetitionWithoutDatabase: a server that cannot read the ledger does not say that a payment was not charged. It may have been.
func TestRepetitionWithoutDatabase(t *testing.T) {
	t.Parallel()
	databaseURL := storetest.URL(t)
	route, serversURL := storetest.RouteTo(t, databaseURL)
	w := newWorldOver(t, databaseURL, serversURL)
	alice, bob := w.agent("alice"), w.agent("bob")
	body := fmt.Sprintf(`{"recipient_agent_id":%q,"content":"hello"}`, bob.ID)
	payment := w.sign(alice.Wallet, sendPath)
	send := func(headers ...string) testkit.Reply {
		return w.call(http.MethodPost, sendPath, body, append(headers, "X-API-KEY", alice.Key)...)
	}
	send(x402.HeaderPaymentSignature, payment).Want(t, "the first request", http.StatusOK)
	route.Cut(true)
	repeated := send(x402.HeaderPaymentSignature, payment)
	route.Cut(false)
	if repeated.Status != http.StatusServiceUnavailable || repeated.Code != "unavailable" ||
		bytes.Contains(repeated.Body, []byte(`"charged"`)) {
		t.Errorf("the repetition without a database: %v, want 503 unavailable without charged", repeated)
	}
	testkit.Eventually(30*time.Second, func() bool {
		repeated = send(x402.HeaderPaymentSignature, payment)
		return repeated.Status == http.StatusOK
	})
	if repeated.Header.Get("Idempotent-Replayed") == "" {
		t.Errorf("the repetition is not the stored response: %v", repeated)
	}
}

// TestUnrecordedOutcomeKeepsItsOwner: an outcome could not be recorded. The worker makes no other attempt before it is: the record
// says what the attempt found out.
func TestUnrecordedOutcomeKeepsItsOwner(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice, bob := w.agent("alice"), w.agent("bob")
	w.Exec(`CREATE FUNCTION forbid() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'not now'; END $$`)
	w.Exec(`CREATE TRIGGER forbid BEFORE UPDATE ON payments FOR EACH ROW WHEN (new.state = 'unknown') EXECUTE FUNCTION forbid()`)
	mend := w.breakFacilitator(w.settleAndThen(testkit.HangUp))
	alice.sends(bob, "recorded late").
		Want(t, "the settlement's reply is lost", 503)
	mend()
	w.Exec(`UPDATE payments SET updated_at = now() - interval '1 minute' WHERE state = 'settling'`)
	again := func() bool { return w.Count(`SELECT count(*) FROM payments WHERE attempts > 1`) > 0 }
	if w.recoverFor(3*time.Second, again) {
		t.Error("the worker made another attempt before the outcome of the first one was recorded")
	}
	w.Exec(`DROP TRIGGER forbid ON payments`)
	w.recover()
	if w.Count(`SELECT count(*) FROM messages WHERE content = 'recorded late'`) != 1 {
		t.Error("the message is not there once")
	}
}

// TestUndeliveredPaymentTakesNoTokens: a payment settled, and the database cannot store the effect for a while. The caller repeats
// the call as told, and is not limited.
func TestUndeliveredPaymentTakesNoTokens(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withLimits(edge.Limits{Address: few(20), Account: few(1), Wallet: few(1)}))
	alice, bob := w.agent("alice"), w.agent("bob")
	body, payment := fmt.Sprintf(`{"recipient_agent_id":%q,"content":"late"}`, bob.ID), w.sign(alice.Wallet, sendPath)
	send := func() testkit.Reply {
		return w.call(http.MethodPost, sendPath, body, "X-API-KEY", alice.Key, x402.HeaderPaymentSignature, payment)
	}
	w.Exec(`CREATE FUNCTION too_busy() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'too busy' USING ERRCODE = '53000'; END $$`)
	w.Exec(`CREATE TRIGGER too_busy BEFORE INSERT ON messages FOR EACH ROW EXECUTE FUNCTION too_busy()`)
	for range 5 {
		send().Want(t, "a settled payment that cannot be delivered", http.StatusServiceUnavailable, "payment_unknown")
	}
	w.Exec(`DROP TRIGGER too_busy ON messages`)
	send().Require(t, "the same payment afterwards", http.StatusOK)
}
