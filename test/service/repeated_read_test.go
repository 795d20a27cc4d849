package service

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/x402"
)

// TestChangeIsNotTriedForAUsedPayment: a payment that paid for another request is refused before the change is tried, which would write
// rows and wait for locks.
func TestChangeIsNotTriedForAUsedPayment(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice := w.agent("alice")
	group := alice.createGroup("planners")
	const path = "/chat/group/edit"
	used := w.sign(alice.Wallet, path)
	edit := func(name string) testkit.Reply {
		return w.call(http.MethodPost, path, fields{"chat_id": group, "name": name}.json(t), "X-API-KEY", alice.Key,
			x402.HeaderPaymentSignature, used)
	}
	edit("travellers").Require(t, "an edit", http.StatusOK)
	defer w.hold("SELECT 1 FROM conversations FOR UPDATE")()
	w.withoutLocks("another edit with the same payment", func() testkit.Reply { return edit("others") }).
		Want(t, "another edit with the same payment", http.StatusConflict, "payment_reused")
}

// waiting counts the calls that wait for a lock.
const waiting = `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`

// withoutLocks makes a call and fails if it waits for a lock that somebody holds.
func (w *world) withoutLocks(what string, call func() testkit.Reply) testkit.Reply {
	w.T.Helper()
	replied := make(chan testkit.Reply, 1)
	go func() { replied <- call() }()
	for {
		select {
		case a := <-replied:
			return a
		case <-time.After(20 * time.Millisecond):
			if w.Count(waiting) > 0 {
				w.T.Errorf("%s waits for a lock", what)
			}
		}
	}
}

// TestReadIsExecutedOnce: the ledger is asked before a read is executed. So a payment that was used, refused or is in progress buys no
// second execution, however many copies of it arrive.
func TestReadIsExecutedOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice := w.agent("alice")
	const path = "/search/channels"
	body := fields{"query": "hello"}.json(t)
	search := func(payment string) testkit.Reply {
		return w.call(http.MethodPost, path, body, "X-API-KEY", alice.Key, x402.HeaderPaymentSignature, payment)
	}
	used, cancelled := w.sign(alice.Wallet, path), testkit.Payment(t, alice.Wallet, w.price(path))
	search(used).Require(t, "a search", http.StatusOK)
	testkit.NoError(t, w.Ledger.Cancel(cancelled.Payload.Authorization.From, cancelled.Payload.Authorization.Nonce))
	search(w.Encode(cancelled)).Require(t, "a cancelled payment", http.StatusPaymentRequired)
	copied := w.sign(alice.Wallet, path)
	w.Connect(func(ctx context.Context, c *pgx.Conn) error {
		// Until the end nobody can read channels: a search that is executed waits.
		if _, err := c.Exec(ctx, `BEGIN; LOCK TABLE conversations`); err != nil {
			return err
		}
		w.withoutLocks("a used payment again", func() testkit.Reply { return search(used) }).Want(t, "a used payment again", http.StatusOK)
		w.withoutLocks("a refused payment again", func() testkit.Reply { return search(w.Encode(cancelled)) }).
			Want(t, "a refused payment again", http.StatusPaymentRequired)
		var copies sync.WaitGroup
		for range 8 {
			copies.Go(func() {
				_, _ = w.try(http.MethodPost, path, body, "X-API-KEY", alice.Key, x402.HeaderPaymentSignature, copied)
			})
		}
		if !testkit.Eventually(10*time.Second, func() bool { return w.Count(waiting) > 0 }) {
			t.Error("no copy is executed")
		}
		for until := time.Now().Add(time.Second); time.Now().Before(until); time.Sleep(50 * time.Millisecond) {
			if n := w.Count(waiting); n > 1 {
				t.Errorf("%d copies of a payment are executed at a time, want 1", n)
				break
			}
		}
		_, err := c.Exec(ctx, `ROLLBACK`)
		copies.Wait()
		return err
	})
}

// TestReadOfACallerThatHangsUpIsPaid: a caller that does not wait for the response pays for it all the same, with either scheme, and the
// same payment gets it later.
func TestReadOfACallerThatHangsUpIsPaid(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withChannels)
	alice, bob := w.agent("alice"), w.agent("bob")
	alice.opened(bob, 1)
	chat, _ := alice.send(bob, "hello")
	const path = "/chat/private/search"
	body := fields{"chat_id": chat, "query": "hel+o"}.json(t)
	for scheme, payment := range map[string]string{
		x402.SchemeExact: w.sign(alice.Wallet, path), x402.SchemeBatch: w.channelPayer(alice.Wallet).sign(path, 10_000, 0),
	} {
		paid := func() int { return w.Count("SELECT count(*) FROM payments WHERE operation = 'searchPrivateMessages'") }
		before := paid()
		commit := w.hold("LOCK TABLE messages")
		ctx, hangUp := context.WithCancel(t.Context())
		w.whileWaiting(func() {
			_, err := testkit.Request(ctx, w.http, http.MethodPost, w.url+path, body, "X-API-KEY", alice.Key, x402.HeaderPaymentSignature, payment)
			if err == nil {
				t.Errorf("%s: there is a reply", scheme)
			}
		}, hangUp)
		time.Sleep(100 * time.Millisecond) // if the server were to end the call, it would have done so by now
		commit()
		if !testkit.Eventually(10*time.Second, func() bool { return paid() == before+1 }) {
			t.Errorf("%s: %d calls are paid, want one", scheme, paid()-before)
		}
		a := w.call(http.MethodPost, path, body, "X-API-KEY", alice.Key, x402.HeaderPaymentSignature, payment)
		if a.Status != http.StatusOK || a.Header.Get("Idempotent-Replayed") != "true" {
			t.Errorf("%s, again: %v, want the stored response", scheme, a)
		}
	}
}

// TestLongReadOfRecovery: a read that the recovery worker completes, and whose response is too long to be stored, is delivered to the payer
// whenever it comes back.
func TestLongReadOfRecovery(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice, bob := w.agent("alice"), w.agent("bob")
	var chat string
	for i := range 8 {
		chat, _ = alice.send(bob, fmt.Sprintf("hello %d ", i)+strings.Repeat("x", 12_000))
	}
	const path = "/chat/private/search"
	body, payment, revenue := fields{"chat_id": chat, "query": "hello"}.json(t), w.sign(alice.Wallet, path), w.Revenue()
	send := func() testkit.Reply {
		return w.call(http.MethodPost, path, body, "X-API-KEY", alice.Key, x402.HeaderPaymentSignature, payment)
	}
	mend := w.breakFacilitator(w.settleAndThen(func(response http.ResponseWriter) { response.WriteHeader(http.StatusInternalServerError) }))
	send().Want(t, "while the facilitator does not say", http.StatusServiceUnavailable, "payment_unknown")
	mend()
	w.recover()
	w.Exec(`UPDATE payments SET updated_at = updated_at - interval '61 seconds' WHERE operation = 'searchPrivateMessages'`)
	send().Want(t, "a minute after the recovery", http.StatusOK)
	if paid := w.Revenue() - revenue; paid != 5000 {
		t.Errorf("the payer was charged %d, want 5000", paid)
	}
}
