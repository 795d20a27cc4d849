package service

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/parley-chat/parley/client"
	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/x402"
)

const rotate = "/agent/rotate_key"

// rotated reads the new key out of a reply.
func (w *world) rotated(a testkit.Reply) string {
	w.T.Helper()
	_, key, found := strings.Cut(string(a.Body), `"api_key":"`)
	key, _, _ = strings.Cut(key, `"`)
	if a.Status != http.StatusOK || !found {
		w.T.Fatalf("a rotation returns %v, want a new key", a)
	}
	w.Secret(key)
	return key
}

// TestRotateKey: the old key stops at once, but for one thing: whoever lost the reply with the new key gets it again
// with the same payment, until the new key is used.
func TestRotateKey(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice, bob := w.agent("alice"), w.agent("bob")
	old := alice.Key
	before := w.sign(alice.Wallet, "/agent/profile")
	profile := func(key string) testkit.Reply {
		return w.call(http.MethodPost, "/agent/profile", `{"username":"bob"}`, "X-API-KEY", key, x402.HeaderPaymentSignature, before)
	}
	profile(old).Require(t, "a call before the rotation", http.StatusOK)
	payment := w.sign(alice.Wallet, rotate, testkit.Identified("rotation-of-the-key-1"))
	send := func(path, payment, key string) testkit.Reply {
		return w.call(http.MethodPost, path, `{}`, "X-API-KEY", key, x402.HeaderPaymentSignature, payment)
	}
	first := send(rotate, payment, old)
	alice.Key = w.rotated(first)
	if alice.Key == old {
		t.Fatal("the new key is the old one")
	}

	revenue, settles := w.Revenue(), w.settles.Load()
	unauthorized := func(when string, a testkit.Reply) {
		t.Helper()
		if a.Status != http.StatusUnauthorized || a.Code != string(client.ErrorCodeInvalidAPIKey) || a.Charged ||
			a.Header.Get(x402.HeaderPaymentResponse) != "" {
			t.Errorf("%s: %v, want 401 invalid_api_key", when, a)
		}
	}
	unauthorized("the old key on a call that was paid before", profile(old))
	unauthorized("the old key on another operation", w.pay(alice.Wallet, "/agent/profile", `{"username":"bob"}`, "X-API-KEY", old))
	if again := w.pay(alice.Wallet, rotate, `{}`, "X-API-KEY", old); again.Status != http.StatusOK || !bytes.Equal(again.Body, first.Body) {
		t.Errorf("the old key with another payment by the same wallet: %v, want the reply of the first: %v", again, first)
	}
	unauthorized("the old key with a payment by another wallet", w.pay(bob.Wallet, rotate, `{}`, "X-API-KEY", old))
	unauthorized("the old key with a payment of another operation", send(rotate, w.sign(alice.Wallet, "/agent/profile"), old))
	unauthorized("the old key with a payment that cannot be read", send(rotate, "?", old))
	unauthorized("the same payment without a key", w.call(http.MethodPost, rotate, `{}`, x402.HeaderPaymentSignature, payment))
	if a := send(rotate, payment, bob.Key); a.Status != http.StatusConflict || a.Code != string(client.ErrorCodePaymentReused) {
		t.Errorf("the same payment with another agent's key: %v, want 409 payment_reused", a)
	}
	for range 2 {
		if again := send(rotate, payment, old); again.Status != http.StatusOK || !bytes.Equal(again.Body, first.Body) {
			t.Errorf("the same payment with the old key: %v, want the reply it had: %v", again, first)
		}
	}
	if w.Revenue() != revenue || w.settles.Load() != settles {
		t.Errorf("all this has brought %d, and /settle was called %d times", w.Revenue()-revenue, w.settles.Load()-settles)
	}

	if me, err := alice.GetOwnAgentWithResponse(t.Context()); err != nil || me.JSON200 == nil || me.JSON200.AgentID != alice.ID {
		t.Fatalf("alice with her new key: %v %s", err, me.Body)
	}
	unauthorized("the old key with the same payment, when the new one is in use", send(rotate, payment, old))
	if again := send(rotate, payment, alice.Key); again.Status != http.StatusConflict || strings.Contains(string(again.Body), alice.Key) {
		t.Errorf("the same payment when the key is in use: %v, want a 409 without it", again)
	}
	next, err := alice.RotateKeyWithResponse(t.Context(), client.RotateKeyRequest{})
	if err != nil || next.JSON200 == nil || !next.JSON200.Success {
		t.Fatalf("alice rotates once more: %v %s", err, next.Body)
	}
	w.Secret(next.JSON200.APIKey)
	unauthorized("the key before the last", w.pay(alice.Wallet, rotate, `{}`, "X-API-KEY", old))
}

// TestRedeemedRotation: the response of a redeemed rotation is erased when its key is used, so that the next rotation does not return it.
func TestRedeemedRotation(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice := w.agent("alice")
	turn := func() testkit.Reply { return w.pay(alice.Wallet, rotate, `{}`, "X-API-KEY", alice.Key) }
	mend := w.atSettlement(func() {
		w.Exec(`UPDATE agents SET previous_key_hash = key_hash, key_hash = sha256(key_hash)`)
	})
	if a := turn(); a.Status != http.StatusUnauthorized || !a.Charged {
		t.Fatalf("the key was replaced while the money moved: %v, want 401, charged", a)
	}
	mend()
	w.Exec(`UPDATE agents SET key_hash = previous_key_hash, previous_key_hash = NULL`)
	alice.Key = w.rotated(turn())
	if redeemed := alice.Key; w.rotated(turn()) == redeemed {
		t.Error("a rotation returns the key that it was to replace")
	}
}

// TestRotateKeyWithoutBody: the body {} may be left out, whatever media type the request then names. It is the same request.
func TestRotateKeyWithoutBody(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice := w.agent("alice")
	w.call(http.MethodPost, rotate, "").Require(t, "a price inquiry", 402)
	for _, test := range []struct{ first, again, media string }{
		{"", "{}", "application/json"}, {"{}", "", "application/json"}, {"", "", "application/x-www-form-urlencoded"},
	} {
		headers := []string{"X-API-KEY", alice.Key, x402.HeaderPaymentSignature, w.sign(alice.Wallet, rotate,
			testkit.Identified(rand.Text()+rand.Text()))}
		first := w.call(http.MethodPost, rotate, test.first, append(headers, "Content-Type", test.media)...)
		old := alice.Key
		if alice.Key = w.rotated(first); alice.Key == old {
			t.Fatalf("%+v: the new key is the old one", test)
		}
		if again := w.call(http.MethodPost, rotate, test.again, headers...); again.Status != http.StatusOK ||
			!bytes.Equal(again.Body, first.Body) {
			t.Errorf("%+v: the same payment: %v, want the response of the first: %v", test, again, first)
		}
	}
	revenue := w.Revenue()
	for body, want := range map[string]int{"null": 400, "[]": 400, `{"x":1}`: 400, " ": 400} {
		if a := w.pay(alice.Wallet, rotate, body, "X-API-KEY", alice.Key); a.Status != want || a.Charged {
			t.Errorf("body %q: %v, want a free %d", body, a, want)
		}
	}
	if w.Revenue() != revenue {
		t.Errorf("rejected rotations brought %d", w.Revenue()-revenue)
	}
}

// TestCopiesOfARotation: copies of one payment all get its reply, also one that was let in with the key that another
// copy has replaced meanwhile; and what the agent does beside it goes through or is refused, without a deadlock.
func TestCopiesOfARotation(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice := w.agent("alice")
	for round := range 20 {
		payment, key := w.sign(alice.Wallet, rotate, testkit.Identified(fmt.Sprintf("rotation-number-%d-of-alice", round))), alice.Key
		replies := make([]testkit.Reply, 8)
		var group sync.WaitGroup
		for i := range replies {
			group.Go(func() {
				replies[i], _ = w.try(http.MethodPost, rotate, `{}`, "X-API-KEY", key, x402.HeaderPaymentSignature, payment)
			})
			beside := w.signFor(alice.Wallet, http.MethodGet, "/agent/me")
			group.Go(func() {
				a, err := w.try(http.MethodGet, "/agent/me", "", "X-API-KEY", key, x402.HeaderPaymentSignature, beside)
				if err != nil || a.Status != http.StatusOK && a.Status != http.StatusUnauthorized {
					t.Errorf("another call of the agent: %v (%v)", a, err)
				}
			})
		}
		group.Wait()
		alice.Key = w.rotated(replies[0])
		for _, a := range replies {
			if a.Status != http.StatusOK || !bytes.Equal(a.Body, replies[0].Body) {
				t.Fatalf("round %d: a copy got %v, another %v", round, a, replies[0])
			}
		}
	}
}

// TestRotationsThatRace: one key, many payments, one new key. A rotation that comes too late is refused, so that no key
// is replaced that its owner has just been given; money that moved meanwhile is redeemed with the new key.
func TestRotationsThatRace(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice := w.agent("alice")
	old, revenue := alice.Key, w.Revenue()
	payments := make([]string, 6)
	for i := range payments {
		payments[i] = w.sign(w.Wallet(testkit.Dollar), rotate) // one wallet's would be one rotation
	}
	// The dry run of all rotations ends before one of them is settled.
	var dryRuns sync.WaitGroup
	dryRuns.Add(len(payments))
	mend := w.atSettlement(func() {
		dryRuns.Done()
		dryRuns.Wait()
	})
	replies := make([]testkit.Reply, len(payments))
	var group sync.WaitGroup
	for i := range replies {
		group.Go(func() {
			replies[i], _ = w.try(http.MethodPost, rotate, `{}`, "X-API-KEY", old, x402.HeaderPaymentSignature, payments[i])
		})
	}
	group.Wait()
	mend()
	var late []string
	for i, a := range replies {
		if a.Status == http.StatusOK {
			alice.Key = w.rotated(a)
			continue
		}
		late = append(late, payments[i])
		if a.Status != http.StatusUnauthorized || a.Code != string(client.ErrorCodeInvalidAPIKey) || !a.Charged {
			t.Errorf("a rotation that comes too late: %v, want a charged 401", a)
		}
	}
	if len(late) != len(payments)-1 || alice.Key == old {
		t.Fatalf("%d of %d rotations with one key came too late, want all but one", len(late), len(payments))
	}
	for _, payment := range late {
		alice.Key = w.rotated(w.call(http.MethodPost, rotate, `{}`, "X-API-KEY", alice.Key, x402.HeaderPaymentSignature, payment))
	}
	if charged := w.Revenue() - revenue; charged != uint64(len(payments))*2000 {
		t.Errorf("%d rotations have brought %d", len(payments), charged)
	}
	if me, err := alice.GetOwnAgentWithResponse(t.Context()); err != nil || me.JSON200 == nil {
		t.Errorf("alice with her last key: %v %s", err, me.Body)
	}
}

// another is a second server on the world's database, with its own payment network, in which these agents have money.
func (w *world) another(agents ...*agent) *world {
	w.T.Helper()
	other := newWorldOn(w.T, w.DatabaseURL)
	for _, a := range agents {
		testkit.NoError(w.T, other.Ledger.Mint(testkit.Address(a.Wallet), 100*testkit.Dollar))
	}
	living, end := context.WithCancel(w.T.Context())
	ready, gone := make(chan struct{}), make(chan struct{})
	go func() { other.store.BePresent(living, func() { close(ready) }); close(gone) }()
	<-ready
	w.T.Cleanup(func() { end(); <-gone })
	return other
}

// me asks for the account of a key.
func (w *world) me(a *agent, key string) testkit.Reply {
	w.T.Helper()
	return w.call(http.MethodGet, "/agent/me", "", "X-API-KEY", key, x402.HeaderPaymentSignature, w.signFor(a.Wallet, http.MethodGet,
		"/agent/me"))
}

// TestOwnAccountIsFresh: an edit shows in the very next GET /agent/me, on this server and on another one that has just
// served the agent.
func TestOwnAccountIsFresh(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice := w.agent("alice")
	servers := map[string]*world{"the same server": w, "another server": w.another(alice)}
	for i := range 5 {
		for name, server := range servers {
			server.me(alice, alice.Key).Require(t, name, 200)
		}
		description, discoverable := fmt.Sprintf("edit %d", i), i%2 == 0
		edited, err := alice.EditAgentWithResponse(t.Context(), client.EditAgentRequest{Description: &description, IsDiscoverable: &discoverable})
		testkit.Require200(t, "alice edits", edited, err)
		for name, server := range servers {
			var own client.OwnAgent
			if err := json.Unmarshal(server.me(alice, alice.Key).Body, &own); err != nil || own.Description != description ||
				own.IsDiscoverable != discoverable {
				t.Errorf("%s shows %q, %v after edit %d (%v)", name, own.Description, own.IsDiscoverable, i, err)
			}
		}
	}
}
