//go:build attack

package attack

import (
	"context"
	"crypto/ecdsa"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/x402"
)

const (
	requestPath = "/register/request_account"
	createPath  = "/register/create_account"
	rotatePath  = "/agent/rotate_key"
	sendPath    = "/chat/private/send"
)

// secretOf is the TAN or the API key in a response.
func secretOf(r testkit.Reply) string { return r.Text("tan") + r.Text("api_key") }

// secretOrders makes the three orders whose responses hold a secret, ready to be sent. Changes apply to their payments.
func (x *trial) secretOrders(owner *agent, name string, changes ...func(*x402.PaymentPayload)) map[string]order {
	x.t.Helper()
	// The account of another wallet's TAN, so that the TAN's own payment is not among what is tried here.
	newcomer := &agent{w: x.world, name: "created_" + name, wallet: x.Wallet(10 * testkit.Dollar)}
	create := newcomer.creates(x.s)
	var body map[string]any
	if err := json.Unmarshal([]byte(create.body), &body); err != nil {
		x.t.Fatal(err)
	}
	return map[string]order{
		"request_account": x.order(x.Wallet(10*testkit.Dollar), "", requestPath, map[string]any{"requested_username": "requested_" + name}, changes...),
		"create_account":  x.order(newcomer.wallet, "", createPath, body, changes...),
		"rotate_key":      x.order(owner.wallet, owner.key, rotatePath, map[string]any{}, changes...),
	}
}

// proofRequired checks that a repetition of a payment that is public got nothing.
func (x *trial) proofRequired(what string, r testkit.Reply, secret string) {
	x.t.Helper()
	if r.Status != http.StatusConflict || r.Code != "proof_required" || r.Charged {
		x.t.Errorf("%s: %d %s (charged %v), want 409 proof_required, not charged", what, r.Status, r.Code, r.Charged)
	}
	x.gotNothing(what, r, secret)
}

// keep notes a secret that no output may hold, if there is one.
func (x *trial) keep(secret string) {
	if secret != "" {
		x.Secret(secret)
	}
}

func (x *trial) gotNothing(what string, r testkit.Reply, secret string) {
	x.t.Helper()
	if strings.Contains(string(r.Body), secret) || secretOf(r) != "" {
		x.t.Errorf("%s: the response (%d) holds a secret: %q", what, r.Status, secretOf(r))
	}
}

// TestHostilePublicPaymentOpensNothing: whoever has read a settled payment on the chain gets neither TAN nor API key for it;
// its owner gets both again, uncharged, with the payment's identifier or with a fresh payment of the same wallet.
func TestHostilePublicPaymentOpensNothing(t *testing.T) {
	x := newTrial(t)
	owners := map[string]*agent{}
	for i, proof := range []string{"identifier", "fresh"} {
		owners[proof] = x.agent("owner_" + proof)
		changes := []func(*x402.PaymentPayload){unnamed}
		if proof == "identifier" {
			changes = append(changes, testkit.Identified(fmt.Sprintf("hostile_identifier_%d", i)))
		}
		for id, o := range x.secretOrders(owners[proof], proof, changes...) {
			what := id + ", " + proof
			first := x.tell(o)
			secret := secretOf(first)
			if first.Status != http.StatusOK || secret == "" {
				t.Fatalf("%s: %v, want 200 with a secret", what, first)
			}
			x.Secret(secret)
			revenue := x.Revenue()
			x.replay(id, proof, o, secret)
			again := x.askAgain(what, proof, o, secret)
			if x.Revenue() != revenue {
				t.Errorf("%s: the owner was charged %d for the repetition", what, x.Revenue()-revenue)
			}
			if id == "rotate_key" {
				owners[proof].key = secret
			}
			x.served(what, id, o, again, secret)
		}
	}
	x.tally.largest = 0
	x.check()
	x.replayAtFullSpeed()
}

// replay is a stranger who has what the chain shows of an order: authorization and signature, without extensions, and the request.
func (x *trial) replay(id, proof string, o order, secret string) {
	x.t.Helper()
	what := id + ", " + proof
	revenue := x.Revenue()

	public := o
	public.header = x.Encode(&x402.PaymentPayload{X402Version: x402.Version, Accepted: o.payment.Accepted, Payload: o.payment.Payload})
	replayed := x.tell(public)
	x.gotNothing(what+" replayed", replayed, secret)
	if proof == "fresh" {
		x.proofRequired(what+" replayed", replayed, secret)
	} else if replayed.Status != http.StatusConflict && replayed.Status != http.StatusUnauthorized || replayed.Charged {
		// Without its identifier it is another payment: payment_reused and an unknown key are as good.
		x.t.Errorf("%s replayed without its identifier: %v, want 409 or 401, not charged", what, replayed)
	}
	x.gotNothing(what+" replayed in version 1", x.tell(public.asV1(x.world)), secret)
	guessed := o
	guessed.header = x.Encode(&x402.PaymentPayload{X402Version: x402.Version, Accepted: o.payment.Accepted, Payload: o.payment.Payload,
		Extensions: forged(testkit.NewKey(), "", o.path, "", testkit.Identified("a_guessed_identifier")).payment.Extensions})
	x.gotNothing(what+" replayed under a guessed identifier", x.tell(guessed), secret)
	other := forged(x.Wallet(testkit.Dollar*5), "", o.path, o.body)
	other.headers = o.headers
	if id == "create_account" { // the right TAN is not public, but the one that was used serves nobody
		x.gotNothing(what+" paid by another wallet", x.tell(other), secret)
	}
	if x.Revenue() != revenue {
		x.t.Errorf("%s: strangers' tries moved money", what)
	}
}

// askAgain is the owner of an order who gets its secret again, and returns the order that it sends for that.
func (x *trial) askAgain(what, proof string, o order, secret string) (again order) {
	x.t.Helper()
	again = o // with the identifier: the very same payment; else signed anew
	if proof == "fresh" {
		again.header, again.payment = x.sign(x.payer(o), o.path)
	}
	for n := range 2 {
		r := x.tell(again)
		if r.Status != http.StatusOK || secretOf(r) != secret {
			x.t.Errorf("%s: the owner asks again (%d): %d %s, want 200 with the same secret", what, n, r.Status, r.Code)
		}
	}
	if proof == "fresh" && x.used(again) {
		x.t.Errorf("%s: the fresh authorization was settled", what)
	}
	return again
}

// replayAtFullSpeed sends all public payments again while honest callers work.
func (x *trial) replayAtFullSpeed() {
	x.t.Helper()
	x.watch.mu.Lock()
	public := x.watch.public
	x.watch.mu.Unlock()
	attacker := x.attacker()
	x.measure("replays of public payments", func(ctx context.Context) {
		flood(ctx, 8, 20_000, func(ctx context.Context, worker, round int) {
			p := *public[(worker+8*round)%len(public)]
			for path, operation := range operations {
				if fmt.Sprint(operation.price) != p.Payload.Authorization.Value || ctx.Err() != nil {
					continue
				}
				p.Accepted = testkit.PlayMoney.Requirements(operation.price, p.Payload.Authorization.To, 60)
				header, _ := x402.EncodePaymentPayload(&p)
				r, err := attacker.do(ctx, operation.method, x.s.url+path, `{"requested_username":"honest_127_0_0_2"}`, x402.HeaderPaymentSignature, header)
				if err == nil {
					x.gotNothing("a replay at "+path, r, "no such secret")
				}
				break
			}
		})
	})
	x.check()
}

// served uses the secret, after which nothing returns it any more.
func (x *trial) served(what, id string, o, again order, secret string) {
	x.t.Helper()
	if id == "request_account" {
		username := "requested_" + map[bool]string{true: "identifier", false: "fresh"}[strings.HasSuffix(what, "identifier")]
		created := x.tell(x.order(x.Wallet(2*testkit.Dollar), "", createPath, map[string]any{"username": username, "tan": secret, "description": "served"}))
		if created.Status != http.StatusOK {
			x.t.Errorf("%s: the account of the TAN: %v, want 200", what, created)
		}
		x.keep(secretOf(created))
	} else if r := x.tell(x.order(x.Wallet(testkit.Dollar), secret, "/agent/me", nil)); r.Status != http.StatusOK {
		x.t.Errorf("%s: the key is used: %v, want 200", what, r)
	}
	revenue := x.Revenue()
	x.gotNothing(what+": the same payment after it served", x.tell(again), secret)
	x.gotNothing(what+": the first payment after it served", x.tell(o), secret)
	fresh := o
	fresh.header, fresh.payment = x.sign(x.payer(o), o.path)
	r := x.tell(fresh)
	if strings.Contains(string(r.Body), secret) {
		x.t.Errorf("%s: a fresh payment after it served returns the secret", what)
	}
	if r.Status != http.StatusOK && x.Revenue() != revenue {
		x.t.Errorf("%s: %v was charged", what, r)
	}
}

// TestHostileOwnerAfterKill: the server dies at each step of a payment whose response holds a secret. Its owner gets the
// response, charged once, with the identifier or with a fresh payment; a stranger gets nothing.
func TestHostileOwnerAfterKill(t *testing.T) {
	for _, point := range []string{"begun", "settled", "committing", "delivered"} {
		t.Run(point, func(t *testing.T) {
			x := newTrial(t)
			for i, proof := range []string{"identifier", "fresh"} {
				owner := x.agent("owner_" + proof)
				var changes []func(*x402.PaymentPayload)
				if proof == "identifier" {
					changes = append(changes, testkit.Identified(fmt.Sprintf("killed_identifier_%d", i)))
				}
				for id, o := range x.secretOrders(owner, proof, changes...) {
					what := fmt.Sprintf("%s killed at %s, %s", id, point, proof)
					x.check() // nothing else is open, so that the crash is this order's
					revenue := x.Revenue()
					x.s.crashes(point, o)
					x.s.start("")
					stranger := o
					stranger.header = x.Encode(&x402.PaymentPayload{X402Version: x402.Version, Accepted: o.payment.Accepted, Payload: o.payment.Payload})
					x.gotNothing(what+": replayed at once", x.tell(stranger), "no such secret")
					again := func() order {
						if proof == "fresh" {
							o.header, o.payment = x.sign(x.payer(o), o.path)
						}
						return o
					}
					r := x.persist(again)
					secret := secretOf(r)
					if r.Status != http.StatusOK || secret == "" {
						t.Errorf("%s: the owner asks again: %d %s, want 200 with the secret", what, r.Status, r.Code)
					} else {
						x.Secret(secret)
						x.gotNothing(what+": replayed after that", x.tell(stranger), secret)
					}
					x.check()
					if charged := x.Revenue() - revenue; charged != o.price {
						t.Errorf("%s: charged %d in all, want %d", what, charged, o.price)
					}
					if id == "rotate_key" && secret != "" {
						owner.key = secret
					}
				}
			}
		})
	}
}

// TestHostileUndeliverable: a registration payment that settled and was then refused is its wallet's, not the reader's of
// the chain.
func TestHostileUndeliverable(t *testing.T) {
	x := newTrial(t)
	for i, proof := range []string{"fresh", "identifier"} {
		name := "wanted_" + proof
		changes := []func(*x402.PaymentPayload){unnamed}
		if proof == "identifier" {
			changes = append(changes, testkit.Identified(fmt.Sprintf("undeliverable_id_%d", i)))
		}
		victim := x.Wallet(testkit.Dollar)
		o := x.order(victim, "", requestPath, map[string]any{"requested_username": name}, changes...)
		r := x.proxy.whileSettling(t, true, func(ctx context.Context) (testkit.Reply, error) { return x.fresh().send(ctx, x.s, o) }, func() {
			if r := x.tell(x.order(x.Wallet(testkit.Dollar), "", requestPath, map[string]any{"requested_username": name})); r.Status != http.StatusOK {
				t.Fatalf("another wallet takes the username meanwhile: %v, want 200", r)
			}
		})
		if r.Status != http.StatusConflict || !r.Charged {
			t.Fatalf("the slower payment: %v, want 409, charged", r)
		}
		revenue := x.Revenue()

		public := &x402.PaymentPayload{X402Version: x402.Version, Accepted: o.payment.Accepted, Payload: o.payment.Payload}
		for _, username := range []string{"loot_" + proof, name} {
			stolen := x.order(testkit.NewKey(), "", requestPath, map[string]any{"requested_username": username})
			stolen.header = x.Encode(public)
			what, r := fmt.Sprintf("%s: a stranger redeems it for %s", proof, username), x.tell(stolen)
			x.gotNothing(what, r, "no such secret")
			if username != name && proof == "fresh" {
				x.proofRequired(what, r, "no such secret")
			} else if r.Status != http.StatusConflict || r.Charged {
				t.Errorf("%s: %v, want 409, not charged", what, r)
			}
			x.gotNothing(what+" in version 1", x.tell(order{operation: stolen.operation, body: stolen.body, payment: public}.asV1(x.world)), "no such secret")
		}
		mended := x.order(victim, "", requestPath, map[string]any{"requested_username": "second_" + proof})
		if proof == "identifier" {
			mended.header, mended.payment = o.header, o.payment
		}
		r = x.tell(mended)
		if r.Status != http.StatusOK || r.Text("tan") == "" {
			t.Errorf("%s: the victim redeems its payment: %v, want 200 with a TAN", proof, r)
		}
		x.keep(r.Text("tan"))
		if x.Revenue() != revenue {
			t.Errorf("%s: redeeming charged %d", proof, x.Revenue()-revenue)
		}
		if proof == "fresh" && x.used(mended) {
			t.Errorf("%s: the fresh authorization was settled", proof)
		}
	}
	x.check()
}

// TestHostileTANs: wrong TANs count against the wallet and the address that try them, never against the TAN.
func TestHostileTANs(t *testing.T) {
	x := newTrial(t)
	reserve := func(name string) order { // the victim's order that creates the account, not yet sent
		victim := &agent{w: x.world, name: name, wallet: x.Wallet(10 * testkit.Dollar)}
		return victim.creates(x.s)
	}
	guess := func(name string, n int) string {
		return fmt.Sprintf(`{"username":%q,"tan":"%08d","description":"a guess"}`, name, n)
	}
	created := func(what string, o order) {
		t.Helper()
		r := x.tell(o)
		if r.Status != http.StatusOK {
			t.Errorf("%s: the victim creates its account: %v, want 200", what, r)
		}
		x.keep(secretOf(r))
	}
	tries := func(what string, from func(n int) *caller, pays func(n int) *ecdsa.PrivateKey, name string, statuses ...int) {
		t.Helper()
		revenue := x.Revenue()
		for n, want := range statuses {
			r, err := from(n).send(t.Context(), x.s, forged(pays(n), "", createPath, guess(name, n)))
			if err != nil || r.Status != want || r.Charged || want == http.StatusTooManyRequests && (r.Code != "rate_limited" || r.Header.Get("Retry-After") == "") {
				t.Errorf("%s, try %d: %v %v, want %d, uncharged", what, n+1, r, err, want)
			}
		}
		if x.Revenue() != revenue {
			t.Errorf("%s: charged %d", what, x.Revenue()-revenue)
		}
	}
	anywhere := func(int) *caller { return x.fresh() }
	rich := func(int) *ecdsa.PrivateKey { return x.Wallet(10 * testkit.Dollar) }

	o := reserve("victim_a")
	poor := testkit.NewKey()
	tries("a wallet without money", anywhere, func(int) *ecdsa.PrivateKey { return poor }, "victim_a", 402, 402, 402, 402, 402, 402, 402)
	created("after guesses without money", o)

	o = reserve("victim_b")
	one := x.Wallet(10 * testkit.Dollar)
	tries("one wallet at many addresses", anywhere, func(int) *ecdsa.PrivateKey { return one }, "victim_b", 403, 403, 403, 403, 403, 429, 429)
	created("after one wallet's guesses", o)

	o = reserve("victim_c")
	here := x.fresh()
	tries("many wallets at one address", func(int) *caller { return here }, rich, "victim_c", 403, 403, 403, 403, 403, 429, 429)
	created("after one address's guesses", o)

	o = reserve("victim_d")
	for n := range 12 { // a botnet of twelve: nobody counts against the TAN
		r, err := x.fresh().send(t.Context(), x.s, forged(x.Wallet(10*testkit.Dollar), "", createPath, guess("victim_d", n)))
		if err != nil || r.Status != http.StatusForbidden {
			t.Errorf("try %d of a botnet: %v %v, want 403", n+1, r, err)
		}
	}
	created("after a botnet's guesses", o)

	o = reserve("victim_e")
	attacker := x.attacker()
	tally, funded := x.tally, x.Wallet(10*testkit.Dollar)
	orders := prepared(10_000, func(i int) order {
		if i%2 == 0 {
			return forged(testkit.NewKey(), "", createPath, guess("victim_e", i))
		}
		return forged(funded, "", createPath, guess("victim_e", i))
	})
	x.measure("wrong TANs", func(ctx context.Context) {
		flood(ctx, 8, 20_000, func(ctx context.Context, worker, round int) {
			_, _ = attacker.send(ctx, x.s, orders[(worker+8*round)%len(orders)])
		})
	})
	if tally.status(http.StatusOK) > 0 {
		t.Errorf("guesses were replied 200: %v", tally)
	}
	created("after a storm of guesses", o)
	x.check()
}

// TestHostileRotatedKey: a key that was rotated away is refused by every server within two seconds, also by one that hears
// nothing from the database of its own accord.
func TestHostileRotatedKey(t *testing.T) {
	x := newTrial(t)
	database := newDatabaseProxy(t, x.DatabaseURL)
	deaf := x.another("--database-url", database.url)
	for round := range 3 {
		owner := x.agent(fmt.Sprintf("rotating_%d", round))
		old := owner.key
		use := func() (testkit.Reply, error) {
			return x.fresh().send(t.Context(), deaf, x.order(owner.wallet, old, "/agent/me", nil))
		}
		if r, err := use(); err != nil || r.Status != http.StatusOK {
			t.Fatalf("the key at the second server: %v %v, want 200", r, err)
		}
		database.freeze()
		rotated := x.tell(x.order(owner.wallet, old, rotatePath, map[string]any{}))
		if rotated.Status != http.StatusOK {
			t.Fatalf("rotate: %v, want 200", rotated)
		}
		x.keep(rotated.Text("api_key"))
		last := refusedWithin(t, use, time.Now())
		t.Logf("round %d: the old key worked for %s (listening connections held back: %d)", round, last, database.frozen())
		database.thaw()
	}

	// At the server that rotates, the old key ends with the response, although others use it at that moment.
	owner := x.agent("rotating_often")
	for round := range 60 {
		old := owner.key
		var users sync.WaitGroup
		for range 4 {
			o := x.order(owner.wallet, old, "/agent/me", nil)
			users.Go(func() { _, _ = newCaller("127.0.0.3", nil).send(t.Context(), x.s, o, "Connection", "close") })
		}
		late := x.order(owner.wallet, old, "/agent/me", nil)
		rotated := x.tell(x.order(owner.wallet, old, rotatePath, map[string]any{}))
		x.tell(late).Want(t, fmt.Sprintf("round %d: the old key right after its rotation", round), 401)
		users.Wait()
		if owner.key = rotated.Text("api_key"); owner.key == "" {
			t.Fatalf("rotate: %v, want 200", rotated)
		}
		x.keep(owner.key)
	}
	x.check()
}

// TestHostileBlockedDescription: what an agent writes about itself after it blocked another one is nowhere in what that one
// reads.
func TestHostileBlockedDescription(t *testing.T) {
	x := newTrial(t)
	alice, mallory := x.agent("alice"), x.agent("mallory")
	chat := x.tell(mallory.says(alice, "before the block")).Text("chat_id")
	group := x.tell(x.order(alice.wallet, alice.key, "/chat/group/create", map[string]any{"name": "Both", "initial_member_ids": []string{mallory.id}})).Text("chat_id")
	own := x.tell(x.order(mallory.wallet, mallory.key, "/chat/group/create", map[string]any{"name": "Own", "initial_member_ids": []string{alice.id}})).Text("chat_id")
	for _, o := range []order{
		x.order(alice.wallet, alice.key, "/agent/block", map[string]any{"agent_id": mallory.id}),
		x.order(alice.wallet, alice.key, "/agent/edit", map[string]any{"description": "zebrawood at the quarry"}),
		x.order(alice.wallet, alice.key, "/chat/group/send", map[string]any{"chat_id": group, "content": x.content("in the group")}),
	} {
		x.tell(o).Require(t, o.id, 200)
	}
	reads := 0
	for _, read := range []struct {
		path string
		body map[string]any
	}{
		{"/agent/profile", map[string]any{"agent_id": alice.id}},
		{"/agent/profile", map[string]any{"username": "alice"}},
		{"/agent/unread", nil},
		{"/agent/me", nil},
		{"/chat/private/info", map[string]any{"chat_id": chat}},
		{"/chat/private/messages", map[string]any{"chat_id": chat}},
		{"/chat/private/search", map[string]any{"chat_id": chat, "query": "zebrawood"}},
		{"/chat/group/info", map[string]any{"chat_id": group}},
		{"/chat/group/info", map[string]any{"chat_id": own}},
		{"/chat/group/messages", map[string]any{"chat_id": group}},
		{"/chat/group/search", map[string]any{"chat_id": group, "query": "."}},
		{"/search/agents", map[string]any{"query": "alice"}},
		{"/search/agents", map[string]any{"query": "zebrawood"}},
		{"/search/agents", map[string]any{"query": "e"}},
		{"/search/groups", map[string]any{"query": "Both"}},
		{"/chat/private/send", map[string]any{"recipient_agent_id": alice.id, "content": "to who blocked me"}},
		{"/chat/group/edit", map[string]any{"chat_id": own, "add_member_ids": []string{alice.id}}},
		{"/chat/group/edit", map[string]any{"chat_id": own, "remove_member_ids": []string{alice.id}}},
		{"/chat/group/info", map[string]any{"chat_id": own}},
		{"/chat/group/transfer", map[string]any{"chat_id": own, "new_admin_agent_id": alice.id}},
		{"/agent/block", map[string]any{"agent_id": alice.id}},
		{"/agent/unblock", map[string]any{"agent_id": alice.id}},
		{"/agent/profile", map[string]any{"agent_id": alice.id}},
	} {
		r := x.tell(x.order(mallory.wallet, mallory.key, read.path, read.body))
		if r.Status == http.StatusOK {
			reads++
		}
		if strings.Contains(string(r.Body), "zebrawood") && !strings.Contains(fmt.Sprint(read.body), "zebrawood") {
			t.Errorf("%s %v shows the description to the blocked agent: %.300s", read.path, read.body, r.Body)
		} else if strings.Contains(string(r.Body), "quarry") {
			t.Errorf("%s %v shows the description to the blocked agent: %.300s", read.path, read.body, r.Body)
		}
		if found := strings.Contains(string(r.Body), alice.id); found && read.path == "/search/agents" {
			t.Errorf("%v finds the agent that blocks the caller", read.body)
		}
	}
	if reads < 12 {
		t.Errorf("only %d reads succeeded, so that the check means little", reads)
	}
	x.check()
}

// TestHostileResponseHeaders: browsers and caches are told to keep off, and nothing says what runs here.
func TestHostileResponseHeaders(t *testing.T) {
	x := newTrial(t)
	alice := x.agent("alice")
	for name, r := range map[string]testkit.Reply{
		"paid":      x.tell(x.order(alice.wallet, alice.key, "/agent/me", nil)),
		"price":     x.ask(http.MethodPost, sendPath, ""),
		"bad":       x.ask(http.MethodPost, sendPath, "{"),
		"no path":   x.ask(http.MethodGet, "/nowhere", ""),
		"no method": x.ask(http.MethodPut, sendPath, ""),
		"health":    x.ask(http.MethodGet, "/health", ""),
		"skill":     x.ask(http.MethodGet, "/skill", ""),
		"contract":  x.ask(http.MethodGet, "/openapi.yaml", ""),
	} {
		if got := r.Header.Get("X-Content-Type-Options"); got != "nosniff" {
			t.Errorf("%s (%d): X-Content-Type-Options is %q, want nosniff", name, r.Status, got)
		}
		if r.Header.Get("Cache-Control") == "" {
			t.Errorf("%s (%d): no Cache-Control", name, r.Status)
		}
		if name == "paid" && !strings.Contains(r.Header.Get("Cache-Control"), "no-store") {
			t.Errorf("%s: Cache-Control is %q, want no-store", name, r.Header.Get("Cache-Control"))
		}
		for _, leak := range []string{"Server", "X-Powered-By"} {
			if r.Header.Get(leak) != "" {
				t.Errorf("%s: %s: %s", name, leak, r.Header.Get(leak))
			}
		}
	}
}
