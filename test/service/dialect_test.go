package service

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/parley-chat/parley/internal/devnet"
	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/x402"
)

// dialectPayment is a payment of TestDialects.
type dialectPayment struct {
	name, kind, content string
	send                func() testkit.Reply
	good                bool // its payer has the money
	done                bool // it returned 200
	after               time.Time
}

// TestDialects: whatever a facilitator is like, payments end with an effect and money, or with neither, their payers are never told to pay
// again before that is certain, and what was charged is claimed.
func TestDialects(t *testing.T) {
	t.Parallel()
	for _, dialect := range testkit.Dialects {
		t.Run(dialect.Name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, withChannels)
			payments, carol := w.dialectPayments()
			speaker := dialect.Over(w.Facilitator, 2*time.Second)
			w.breakFacilitator(func(rw http.ResponseWriter, r *http.Request) bool { speaker.ServeHTTP(rw, r); return true })
			ends := func(p *dialectPayment) bool {
				return p.good && dialect.Never != p.kind && dialect.Never != testkit.AllKinds
			}
			w.due()
			if !w.recoverFor(2*time.Minute, func() bool {
				open := 0
				for _, p := range payments {
					if p.again(w); ends(p) && !p.done {
						open++
					}
				}
				w.Exec(`UPDATE payment_channels SET claim_after = NULL WHERE claim_after IS NOT NULL`)
				return open == 0 && (dialect.Never == testkit.AllKinds || w.Ledger.Channel(carol.ID).TotalClaimed == 10_000)
			}) {
				t.Errorf("not everything ends: %+v; carol's channel has %+v", payments, w.Ledger.Channel(carol.ID))
			}
			w.Exec(`UPDATE payments SET valid_before = now() - interval '1 minute' WHERE state IN ('settling', 'unknown')`)
			w.recover()
			for _, p := range payments {
				var reply testkit.Reply
				refused := func() bool { reply = p.send(); return reply.Status == http.StatusPaymentRequired }
				if p.done != ends(p) || !p.done && !testkit.Eventually(time.Minute, refused) { // the facilitator may want a pause
					t.Errorf("%s: %v, delivered %v, want it delivered %v", p.name, reply, p.done, ends(p))
				}
			}
			w.checkDialectBooks(payments)
		})
	}
}

// dialectPayments are signed payments of several kinds and payers, and a payment channel of which 10,000 are not claimed. Another one holds
// less than it was charged.
func (w *world) dialectPayments() (payments []*dialectPayment, carols *x402.ChannelSigner) {
	w.T.Helper()
	alice, bob, carol := w.agent("alice"), w.agent("bob"), w.agent("carol")
	carols = carol.opened(alice, 2)
	testkit.NoError(w.T, w.Ledger.RefundChannel(bob.opened(alice, 1).Config, 100_000))
	poor := w.Wallet(5000) // it has paid lately, so nobody looks at its balance before the facilitator
	alice.sendWith(w.sign(poor, sendPath), bob, "all that it has").Require(w.T, "a payment", http.StatusOK)
	for _, p := range []struct {
		by, to           *agent
		name, kind, with string
	}{
		{alice, bob, "alice's payment", "exact", w.sign(alice.Wallet, sendPath)},
		{bob, alice, "bob's payment", "exact", w.sign(bob.Wallet, sendPath)},
		{alice, bob, "a payment without money", "exact", w.sign(poor, sendPath)},
		{bob, carol, "bob's second payment", "exact", w.sign(bob.Wallet, sendPath)},
		{bob, carol, "bob's third payment", "exact", w.sign(bob.Wallet, sendPath)},
		{alice, carol, "alice's deposit", x402.BatchDeposit, w.channelPayer(alice.Wallet).sign(sendPath, 5000, 50_000)},
		{alice, carol, "alice's second payment", "exact", w.sign(alice.Wallet, sendPath)},
	} {
		payments = append(payments, &dialectPayment{
			name: p.name, kind: p.kind, content: "for " + p.name, good: p.name != "a payment without money",
			send: func() testkit.Reply { return p.by.sendWith(p.with, p.to, "for "+p.name) },
		})
	}
	return payments, carols
}

// again sends the payment until it returned 200, after the pauses that it was told. Until its outcome is certain it is told to come again.
func (p *dialectPayment) again(w *world) {
	if p.done || time.Now().Before(p.after) {
		return
	}
	reply := p.send()
	p.done = reply.Status == http.StatusOK
	pause, _ := strconv.Atoi(reply.Header.Get("Retry-After"))
	p.after = time.Now().Add(time.Duration(pause) * time.Second)
	switch {
	case p.done && !p.good:
		w.T.Errorf("%s bought something", p.name)
	case p.done, !p.good && reply.Status == http.StatusPaymentRequired:
	case !slices.Contains([]int{http.StatusConflict, http.StatusTooManyRequests, http.StatusServiceUnavailable}, reply.Status),
		reply.Header.Get("Retry-After") == "",
		reply.Charged:
		w.T.Errorf("%s: %v, want 409 or 503 with Retry-After", p.name, reply)
	}
}

// checkDialectBooks compares the ledger with the effects and with the chain.
func (w *world) checkDialectBooks(payments []*dialectPayment) {
	w.T.Helper()
	for _, p := range payments {
		if n := w.Count(`SELECT count(*) FROM messages WHERE content = $1`, p.content); (n == 1) != p.done || n > 1 {
			w.T.Errorf("%s: there are %d messages, delivered %v", p.name, n, p.done)
		}
	}
	paid := uint64(w.Count(`SELECT sum(amount)::bigint FROM payments WHERE scheme = 'exact' AND state = 'delivered'`)) //nolint:gosec // a sum
	if has := w.Revenue() - w.Ledger.Received(devnet.Payee).Settled; has != paid {
		w.T.Errorf("the payee has %d of single payments, the ledger %d", has, paid)
	}
	network := httptest.NewServer(w.Facilitator)
	defer network.Close()
	chain := x402.Chain{URL: network.URL + "/rpc", HTTPClient: network.Client()}
	w.EachRow(func(rows pgx.Rows) error {
		var payer, nonce, transaction string
		if err := rows.Scan(&payer, &nonce, &transaction); err != nil {
			return err
		}
		used, err := chain.AuthorizationsIn(w.T.Context(), testkit.PlayMoney.Asset, transaction)
		if !slices.ContainsFunc(used, func(u x402.UsedAuthorization) bool { return u.Nonce == nonce }) {
			w.T.Errorf("the ledger has a payment of %s with a transaction that is not its own: %+v %v", payer, used, err)
		}
		return nil
	}, `SELECT payer, nonce, transaction FROM payments WHERE state = 'delivered' AND transaction <> ''`)
	w.EachRow(func(rows pgx.Rows) error {
		var id string
		var charged, balance, claimed uint64
		err := rows.Scan(&id, &charged, &balance, &claimed)
		state := w.Ledger.Channel(id)
		if err == nil && (state.Balance != balance && state.Balance > 0 || claimed > state.TotalClaimed) {
			w.T.Errorf("the ledger has a payment channel with %d, charged %d, claimed %d; on the chain it is %+v", balance, charged, claimed, state)
		}
		return err
	}, `SELECT id, charged, balance, claimed FROM payment_channels`)
}
