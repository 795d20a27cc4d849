//go:build attack

package attack

import (
	"context"
	"fmt"
	"net/http"
	"testing"

	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/x402"
)

// lateScene is two group chats, and who is in them.
type lateScene struct {
	w                 *world
	s                 *server
	alice, bob, carol *agent
	group, other      string   // of alice, with bob as a member
	messages          []string // seven in group, four of them pinned
}

// newLateScene starts a server with the scene.
func newLateScene(t *testing.T) *lateScene {
	t.Helper()
	w := newWorld(t)
	s := w.serve()
	sc := &lateScene{w: w, s: s, alice: s.agent("alice"), bob: s.agent("bob"), carol: s.agent("carol")}
	sc.group = sc.post(sc.alice, "/chat/group/create", map[string]any{"name": "Group", "initial_member_ids": []string{sc.bob.id}}).Text("chat_id")
	sc.other = sc.post(sc.alice, "/chat/group/create", map[string]any{"name": "Other", "initial_member_ids": []string{sc.bob.id}}).Text("chat_id")
	for i := range 11 {
		chat := map[bool]string{true: sc.group, false: sc.other}[i < 7]
		sent := sc.post(sc.alice, "/chat/group/send", map[string]any{"chat_id": chat, "content": w.content("to pin")}).Text("message_id")
		sc.messages = append(sc.messages, sent)
	}
	for _, message := range sc.messages[:4] {
		sc.post(sc.alice, "/chat/group/pin", map[string]any{"chat_id": sc.group, "message_id": message})
	}
	return sc
}

// post pays for a request that must succeed.
func (sc *lateScene) post(by *agent, path string, body map[string]any) testkit.Reply {
	sc.w.T.Helper()
	r := sc.s.pay(sc.w.order(by.wallet, by.key, path, body))
	if r.Status != http.StatusOK {
		sc.w.T.Fatalf("%s: %v, want 200", path, r)
	}
	return r
}

// lateRequest is a request that was possible in the dry run, and is not any more when its payment has settled.
type lateRequest struct {
	name      string
	late      func(sc *lateScene) order          // finds its place taken
	early     func(sc *lateScene)                // takes it while the money moves
	code      string                             // of the refusal
	mended    func(sc *lateScene, n int) order   // each one different, and all of them possible
	delivered func(sc *lateScene, late bool) int // how many effects of mended requests (of late) there are
}

var lateRequests = []lateRequest{
	{
		name: "the username",
		late: func(sc *lateScene) order {
			return sc.w.order(sc.alice.wallet, "", "/register/request_account", map[string]any{"requested_username": "wanted"})
		},
		early: func(sc *lateScene) {
			sc.post(&agent{w: sc.w, wallet: sc.bob.wallet}, "/register/request_account", map[string]any{"requested_username": "wanted"})
		},
		code: "username_reserved",
		mended: func(sc *lateScene, n int) order {
			return sc.w.order(sc.alice.wallet, "", "/register/request_account", map[string]any{"requested_username": fmt.Sprintf("free_%d", n)})
		},
		delivered: func(sc *lateScene, late bool) int {
			if late {
				return sc.w.Count("SELECT count(*) FROM registrations WHERE username = 'wanted' AND payer = lower($1)", testkit.Address(sc.alice.wallet))
			}
			return sc.w.Count("SELECT count(*) FROM registrations WHERE username LIKE 'free%'")
		},
	},
	{
		name: "the last pin",
		late: func(sc *lateScene) order {
			return sc.w.order(sc.alice.wallet, sc.alice.key, "/chat/group/pin", map[string]any{"chat_id": sc.group, "message_id": sc.messages[5]})
		},
		early: func(sc *lateScene) {
			sc.post(sc.alice, "/chat/group/pin", map[string]any{"chat_id": sc.group, "message_id": sc.messages[4]})
		},
		code: "pin_limit",
		mended: func(sc *lateScene, n int) order { // in the other group there is room for five
			return sc.w.order(sc.alice.wallet, sc.alice.key, "/chat/group/pin", map[string]any{"chat_id": sc.other, "message_id": sc.messages[7+n%4]})
		},
		delivered: func(sc *lateScene, late bool) int {
			if late {
				return sc.w.Count("SELECT count(*) FROM conversations WHERE kind = 'group' AND name = 'Group' AND cardinality(pinned) > 5")
			}
			return sc.w.Count("SELECT cardinality(pinned) FROM conversations WHERE kind = 'group' AND name = 'Other'")
		},
	},
	{
		name: "the membership",
		late: func(sc *lateScene) order {
			return sc.w.order(sc.bob.wallet, sc.bob.key, "/chat/group/send", map[string]any{"chat_id": sc.group, "content": sc.w.content("too late")})
		},
		early: func(sc *lateScene) {
			sc.post(sc.alice, "/chat/group/edit", map[string]any{"chat_id": sc.group, "remove_member_ids": []string{sc.bob.id}})
		},
		code: "not_member",
		mended: func(sc *lateScene, _ int) order {
			return sc.w.order(sc.bob.wallet, sc.bob.key, "/chat/group/send", map[string]any{"chat_id": sc.other, "content": sc.w.content("mended")})
		},
		delivered: func(sc *lateScene, late bool) int {
			if late {
				return sc.w.Count("SELECT count(*) FROM messages WHERE content LIKE 'too late%'")
			}
			return sc.w.Count("SELECT count(*) FROM messages WHERE content LIKE 'mended%'")
		},
	},
}

// TestRefusedAtDelivery: what was free in the dry run is taken when the payment has settled. The payment is kept, says that it was
// charged, and buys something else of the same kind, once.
func TestRefusedAtDelivery(t *testing.T) {
	t.Parallel()
	for _, test := range lateRequests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			sc := newLateScene(t)
			late := test.late(sc)
			revenue := sc.w.Revenue()
			early := test.refuse(sc, late)
			test.steal(sc, late)
			sc.s.restart("")
			test.redeem(sc, late)
			if charged := sc.w.Revenue() - revenue - early; charged != late.price {
				t.Errorf("charged %d, want the price once, %d", charged, late.price)
			}
			sc.w.check()
		})
	}
}

// refuse lets the place be taken while the money moves, and returns what that cost.
func (test *lateRequest) refuse(sc *lateScene, late order) (early uint64) {
	revenue := sc.w.Revenue()
	r := sc.w.proxy.whileSettling(sc.w.T, true, func(ctx context.Context) (testkit.Reply, error) { return sc.s.send(ctx, late) }, func() {
		test.early(sc)
		early = sc.w.Revenue() - revenue - late.price
	})
	if r.Status < 400 || r.Status >= 500 || r.Code != test.code || !r.Charged {
		sc.w.T.Errorf("%s went while the money moved: %v, want %s, charged", test.name, r, test.code)
	}
	if settled, err := x402.DecodeSettleResponse(r.Header.Get(x402.HeaderPaymentResponse)); err != nil || !settled.Success || settled.Transaction == "" {
		sc.w.T.Errorf("the charged refusal does not name its settlement: %+v (%v)", settled, err)
	}
	if state := sc.w.state(late); state != "undeliverable" {
		sc.w.T.Errorf("the payment is %q, want undeliverable", state)
	}
	if again := sc.s.pay(late); again.Code != test.code || !again.Charged {
		sc.w.T.Errorf("the same request once more: %v, want the same refusal", again)
	}
	sc.w.check()
	return early
}

// steal tries to redeem the payment for somebody else and for another operation.
func (test *lateRequest) steal(sc *lateScene, late order) {
	// Not for somebody else, not for another operation, and a restart does not forget it.
	stolen := test.mended(sc, 0)
	stolen.header = late.header
	if len(stolen.headers) > 0 {
		stolen.headers = []string{"X-API-KEY", sc.carol.key}
		if r := sc.s.pay(stolen); r.Status != http.StatusConflict && r.Status != http.StatusForbidden {
			sc.w.T.Errorf("somebody else redeems the payment: %v, want 409", r)
		}
	}
	search := sc.w.order(sc.alice.wallet, sc.alice.key, "/search/agents", map[string]any{"query": "bob"})
	search.header = late.header
	if r := sc.s.pay(search); r.Status == http.StatusOK {
		sc.w.T.Errorf("the payment buys another operation: %v", r)
	}
}

// redeem sends ten different requests at once that are possible: one of them is redeemed.
func (test *lateRequest) redeem(sc *lateScene, late order) {
	mended := make([]order, 10)
	for i := range mended {
		mended[i] = test.mended(sc, i)
		mended[i].header, mended[i].payment = late.header, late.payment
	}
	redeemed := 0
	for i, r := range sc.s.sendAll(mended...) {
		switch {
		case r.Status == http.StatusOK:
			redeemed++
			if again := sc.s.pay(mended[i]); string(again.Body) != string(r.Body) {
				sc.w.T.Errorf("the redeemed request once more: %v, want %v", again, r)
			}
		case r.Status != http.StatusConflict:
			sc.w.T.Errorf("a mended request: %v, want 200 once and else 409", r)
		}
	}
	// The pins repeat one message, so that several of the ten are the same request.
	if same := test.name == "the last pin"; redeemed < 1 || !same && redeemed != 1 {
		sc.w.T.Errorf("redeemed %d times, want once", redeemed)
	}
	if n := test.delivered(sc, false); n != 1 {
		sc.w.T.Errorf("the mended requests had %d effects, want one", n)
	}
	if n := test.delivered(sc, true); n != 0 {
		sc.w.T.Errorf("the refused request had %d effects, want none", n)
	}
	if r := sc.s.pay(late); r.Status == http.StatusOK {
		sc.w.T.Errorf("the first request after it was redeemed: %v", r)
	}
}

// TestRefusedAtRecovery: the place is taken while the server that settled is dead, so that the recovery worker finds the
// refusal. Its payer hears of it when it comes again.
func TestRefusedAtRecovery(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.serve()
	payer := w.Wallet(testkit.Dollar)
	for round := range rounds(t) {
		revenue := w.Revenue()
		wanted := fmt.Sprintf("wanted_%d", round)
		o := w.order(payer, "", "/register/request_account", map[string]any{"requested_username": wanted})
		s.crashes([]string{"begun", "settled", "committing"}[round%3], o)
		w.Exec("INSERT INTO registrations (username, tan_hash, payer, expires_at) VALUES ($1, sha256($2), '0xsomebody', now() + interval '10 minutes')", wanted, []byte(wanted))
		s.start("")
		w.check()
		if state := w.state(o); state != "undeliverable" {
			t.Errorf("the username went while the server was dead: the payment is %q, want undeliverable", state)
		}
		if r := s.pay(o); r.Status != http.StatusConflict || r.Code != "username_reserved" || !r.Charged {
			t.Errorf("its payer comes again: %v, want 409 username_reserved, charged", r)
		}
		mended := w.order(payer, "", "/register/request_account", map[string]any{"requested_username": fmt.Sprintf("free_%d", round)})
		mended.header, mended.payment = o.header, o.payment
		s.pay(mended).Want(t, "a mended request", 200)
		if charged := w.Revenue() - revenue; charged != o.price {
			t.Errorf("charged %d, want the price once, %d", charged, o.price)
		}
	}
	w.check()
}
