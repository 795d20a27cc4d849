//go:build attack

package attack

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/parley-chat/parley/internal/devnet"
	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/x402"
)

// TestHostileFacilitatorQuota: the facilitator replies 429 for a while, to everything that costs quota. Callers are told to
// come again, the facilitator is left alone, and afterwards every payment ends by itself.
func TestHostileFacilitatorQuota(t *testing.T) {
	x := newTrial(t)
	alice, bob := x.agent("alice"), x.agent("bob")
	newcomer := (&agent{w: x.world, name: "newcomer", wallet: x.Wallet(10 * testkit.Dollar)}).creates(x.s)
	const pause = 3
	for _, broken := range []string{"/settle", "/verify and /settle"} {
		limited := 0
		x.proxy.breakWith(func(c *call) {
			if c.path == "/verify" && broken == "/settle" {
				pass(c)
				return
			}
			c.p.mu.Lock()
			limited++
			c.p.mu.Unlock()
			c.w.Header().Set("Retry-After", fmt.Sprint(pause))
			c.write(http.StatusTooManyRequests, `{"error":"too many requests"}`)
		})
		type sent struct {
			order
			first testkit.Reply
			free  bool // the response said that nothing is charged
		}
		var orders []sent
		for began := time.Now(); time.Since(began) < 6*time.Second; time.Sleep(25 * time.Millisecond) {
			// New wallets, so that none has settled lately.
			o := alice.saysFrom(x.Wallet(testkit.Dollar), bob, "over the quota")
			if len(orders) == 40 && broken == "/settle" {
				o = newcomer
			}
			r := x.tell(o)
			if r.Status != http.StatusServiceUnavailable || r.Header.Get("Retry-After") == "" || r.Header.Get("Retry-After") == "0" {
				x.complain(broken+" over the quota", "%v (Retry-After %q), want 503 with Retry-After", r, r.Header.Get("Retry-After"))
			}
			orders = append(orders, sent{o, r, strings.Contains(string(r.Body), `"charged":false`)})
		}
		x.proxy.mu.Lock()
		asked := limited
		x.proxy.mu.Unlock()
		t.Logf("%s: %d calls reached a facilitator that replies 429 with Retry-After %d, for %d requests", broken, asked, pause, len(orders))
		if most := 20 + len(orders)/4; asked > most {
			t.Errorf("%s: %d calls for %d requests while the facilitator replies 429, want at most %d", broken, asked, len(orders), most)
		}
		x.proxy.mend()
		time.Sleep(pause * time.Second)
		for i, o := range orders {
			if i%2 > 0 {
				continue
			}
			if r := x.persist(func() order { return o.order }); r.Status != http.StatusOK {
				x.complain(broken+", sent again", "%v, want 200", r)
			} else {
				x.keep(secretOf(r))
			}
		}
		x.check()
		for i, o := range orders {
			switch settled := x.used(o.order); {
			case o.content != "" && settled != (x.messages(o.content) == 1):
				x.complain("money and effect differ", "%s: settled %v, and the message is there %d times", broken, settled, x.messages(o.content))
			case i%2 > 0 && o.free && settled:
				x.complain("a payment that was called not charged was settled later", "%s: %v", broken, o.first)
			}
		}
		if n := x.Count("SELECT count(*) FROM payments WHERE state NOT IN ('delivered', 'failed')"); n > 0 {
			t.Errorf("%s: %d payments are left for the operator", broken, n)
		}
	}
}

// TestHostileFrontRun: somebody else brings an authorization to the chain before the server does. The payer has paid, so it
// gets what it paid for.
func TestHostileFrontRun(t *testing.T) {
	x := newTrial(t)
	alice, bob := x.agent("alice"), x.agent("bob")
	other := &x402.Facilitator{BaseURL: x.proxy.url}
	orders := func(name string) []order {
		created := &agent{w: x.world, name: "created_" + name, wallet: x.Wallet(10 * testkit.Dollar)}
		return []order{
			alice.says(bob, "front-run"),
			alice.saysFrom(x.Wallet(testkit.Dollar), bob, "front-run, of a new wallet"),
			x.order(x.Wallet(testkit.Dollar), "", requestPath, map[string]any{"requested_username": "front_" + name}),
			created.creates(x.s),
			x.order(alice.wallet, alice.key, "/agent/me", nil),
			alice.says(bob, "front-run in version 1").asV1(x.world),
		}
	}
	delivered := func(what string, o order, r testkit.Reply, revenue uint64) {
		t.Helper()
		if r.Status != http.StatusOK {
			t.Errorf("%s, %s: %v, want 200", what, o.id, r)
		}
		x.keep(secretOf(r))
		if charged := x.Revenue() - revenue; charged != o.price {
			t.Errorf("%s, %s: the payee got %d, want %d", what, o.id, charged, o.price)
		}
		if o.content != "" && x.messages(o.content) != 1 {
			t.Errorf("%s, %s: the message is there %d times", what, o.id, x.messages(o.content))
		}
	}
	for _, o := range orders("before") {
		revenue := x.Revenue()
		settled, err := other.Settle(t.Context(), o.payment, testkit.PlayMoney.Requirements(o.price, devnet.Payee, 60))
		if err != nil || !settled.Success {
			t.Fatalf("settle directly: %v %v", settled, err)
		}
		delivered("settled before the request", o, x.persist(func() order { return o }), revenue)
	}
	for _, o := range orders("between") {
		revenue := x.Revenue()
		x.proxy.breakWith(onSettle(func(c *call) { // somebody else's call comes first
			c.forward()
			pass(c)
		}))
		r := x.persist(func() order { return o })
		x.proxy.mend()
		delivered("settled just before /settle", o, r, revenue)
	}
	// Whoever sees the chain only cannot use it: the next one who brings a front-run payment that was delivered gets nothing.
	x.check()
	x.measureFrontRuns(alice, bob, other)
	x.check()
}

// measureFrontRuns settles first whatever an attacker's own callers are about to send.
func (x *trial) measureFrontRuns(alice, bob *agent, other *x402.Facilitator) {
	x.t.Helper()
	attacker := x.attacker()
	attacker.paying = true
	x.measure("authorizations settled by somebody else", func(ctx context.Context) {
		flood(ctx, 4, 500, func(_ context.Context, worker, round int) {
			content := fmt.Sprintf("front-run %d of %d", round, worker)
			x.mu.Lock()
			x.contents[content] = true
			x.mu.Unlock()
			o := forged(alice.wallet, alice.key, sendPath, fmt.Sprintf(`{"recipient_agent_id":%q,"content":%q}`, bob.id, content))
			if _, err := other.Settle(x.t.Context(), o.payment, o.payment.Accepted); err != nil {
				x.complain("settle directly", "%v", err)
				return
			}
			for try := range 40 {
				r, err := attacker.send(x.t.Context(), x.s, o)
				if err == nil && r.Status == http.StatusOK {
					return
				}
				if err == nil && r.Status != http.StatusServiceUnavailable && r.Code != "payment_in_progress" || try == 39 {
					x.complain("a front-run payment", "%v %v, want 200", r, err)
					return
				}
				time.Sleep(250 * time.Millisecond)
			}
		})
	})
}
