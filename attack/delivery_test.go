//go:build attack

package attack

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/x402"
)

// TestRefusedAtDelivery: what was free when the payment was rehearsed is taken when it has settled. The payment is kept,
// says that it was charged, and buys something else of the same kind, once.
func TestRefusedAtDelivery(t *testing.T) {
	t.Parallel()
	type scene struct {
		w                 *world
		s                 *server
		alice, bob, carol *agent
		group, other      string   // of alice, with bob as a member
		messages          []string // seven in group, four of them pinned
	}
	post := func(sc *scene, by *agent, path string, body map[string]any) map[string]any {
		t.Helper()
		r := sc.s.pay(sc.w.order(by.wallet, by.key, path, body))
		var reply map[string]any
		if err := json.Unmarshal(r.Body, &reply); err != nil || r.Status != http.StatusOK {
			t.Fatalf("%s: %v, want 200", path, r)
		}
		return reply
	}
	for _, test := range []struct {
		name      string
		late      func(sc *scene) order          // finds its place taken
		early     func(sc *scene)                // takes it while the money moves
		code      string                         // of the refusal
		mended    func(sc *scene, n int) order   // each one different, and all of them possible
		delivered func(sc *scene, late bool) int // how many effects of mended requests (of late) there are
	}{
		{
			name: "the username",
			late: func(sc *scene) order {
				return sc.w.order(sc.alice.wallet, "", "/register/request_account", map[string]any{"requested_username": "wanted"})
			},
			early: func(sc *scene) {
				post(sc, &agent{wallet: sc.bob.wallet}, "/register/request_account", map[string]any{"requested_username": "wanted"})
			},
			code: "username_reserved",
			mended: func(sc *scene, n int) order {
				return sc.w.order(sc.alice.wallet, "", "/register/request_account", map[string]any{"requested_username": fmt.Sprintf("free_%d", n)})
			},
			delivered: func(sc *scene, late bool) int {
				if late {
					return sc.w.Count("SELECT count(*) FROM registrations WHERE username = 'wanted' AND payer = lower($1)", testkit.Address(sc.alice.wallet))
				}
				return sc.w.Count("SELECT count(*) FROM registrations WHERE username LIKE 'free%'")
			},
		},
		{
			name: "the last pin",
			late: func(sc *scene) order {
				return sc.w.order(sc.alice.wallet, sc.alice.key, "/chat/group/pin", map[string]any{"chat_id": sc.group, "message_id": sc.messages[5]})
			},
			early: func(sc *scene) {
				post(sc, sc.alice, "/chat/group/pin", map[string]any{"chat_id": sc.group, "message_id": sc.messages[4]})
			},
			code: "pin_limit",
			mended: func(sc *scene, n int) order { // in the other group there is room for five
				return sc.w.order(sc.alice.wallet, sc.alice.key, "/chat/group/pin", map[string]any{"chat_id": sc.other, "message_id": sc.messages[7+n%4]})
			},
			delivered: func(sc *scene, late bool) int {
				if late {
					return sc.w.Count("SELECT count(*) FROM conversations WHERE kind = 'group' AND name = 'Group' AND cardinality(pinned) > 5")
				}
				return sc.w.Count("SELECT cardinality(pinned) FROM conversations WHERE kind = 'group' AND name = 'Other'")
			},
		},
		{
			name: "the membership",
			late: func(sc *scene) order {
				return sc.w.order(sc.bob.wallet, sc.bob.key, "/chat/group/send", map[string]any{"chat_id": sc.group, "content": sc.w.content("too late")})
			},
			early: func(sc *scene) {
				post(sc, sc.alice, "/chat/group/edit", map[string]any{"chat_id": sc.group, "remove_member_ids": []string{sc.bob.id}})
			},
			code: "not_member",
			mended: func(sc *scene, _ int) order {
				return sc.w.order(sc.bob.wallet, sc.bob.key, "/chat/group/send", map[string]any{"chat_id": sc.other, "content": sc.w.content("mended")})
			},
			delivered: func(sc *scene, late bool) int {
				if late {
					return sc.w.Count("SELECT count(*) FROM messages WHERE content LIKE 'too late%'")
				}
				return sc.w.Count("SELECT count(*) FROM messages WHERE content LIKE 'mended%'")
			},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			s := w.serve()
			sc := &scene{w: w, s: s, alice: s.agent("alice"), bob: s.agent("bob"), carol: s.agent("carol")}
			sc.group = post(sc, sc.alice, "/chat/group/create", map[string]any{"name": "Group", "initial_member_ids": []string{sc.bob.id}})["chat_id"].(string)
			sc.other = post(sc, sc.alice, "/chat/group/create", map[string]any{"name": "Other", "initial_member_ids": []string{sc.bob.id}})["chat_id"].(string)
			for i := range 11 {
				chat := map[bool]string{true: sc.group, false: sc.other}[i < 7]
				sent := post(sc, sc.alice, "/chat/group/send", map[string]any{"chat_id": chat, "content": w.content("to pin")})
				sc.messages = append(sc.messages, sent["message_id"].(string))
			}
			for _, message := range sc.messages[:4] {
				post(sc, sc.alice, "/chat/group/pin", map[string]any{"chat_id": sc.group, "message_id": message})
			}

			late := test.late(sc)
			revenue := w.Revenue()
			var early uint64
			r := w.proxy.whileSettling(t, true, func(ctx context.Context) (testkit.Reply, error) { return s.send(ctx, late) }, func() {
				test.early(sc)
				early = w.Revenue() - revenue - late.price
			})
			if r.Status < 400 || r.Status >= 500 || r.Code != test.code || !r.Charged {
				t.Errorf("%s went while the money moved: %v, want %s, charged", test.name, r, test.code)
			}
			if settled, err := x402.DecodeSettleResponse(r.Header.Get(x402.HeaderPaymentResponse)); err != nil || !settled.Success || settled.Transaction == "" {
				t.Errorf("the charged refusal does not name its settlement: %+v (%v)", settled, err)
			}
			if state := w.state(late); state != "undeliverable" {
				t.Errorf("the payment is %q, want undeliverable", state)
			}
			if again := s.pay(late); again.Code != test.code || !again.Charged {
				t.Errorf("the same request once more: %v, want the same refusal", again)
			}
			w.check()
			// Not for somebody else, not for another operation, and a restart does not forget it.
			stolen := test.mended(sc, 0)
			stolen.header = late.header
			if len(stolen.headers) > 0 {
				stolen.headers = []string{"X-API-KEY", sc.carol.key}
				if r := s.pay(stolen); r.Status != http.StatusConflict && r.Status != http.StatusForbidden {
					t.Errorf("somebody else redeems the payment: %v, want 409", r)
				}
			}
			search := w.order(sc.alice.wallet, sc.alice.key, "/search/agents", map[string]any{"query": "bob"})
			search.header = late.header
			if r := s.pay(search); r.Status == http.StatusOK {
				t.Errorf("the payment buys another operation: %v", r)
			}
			s.restart("")
			// Ten different mended requests at once: one is redeemed.
			mended := make([]order, 10)
			for i := range mended {
				mended[i] = test.mended(sc, i)
				mended[i].header, mended[i].payment = late.header, late.payment
			}
			redeemed := 0
			for i, r := range s.sendAll(mended...) {
				switch {
				case r.Status == http.StatusOK:
					redeemed++
					if again := s.pay(mended[i]); string(again.Body) != string(r.Body) {
						t.Errorf("the redeemed request once more: %v, want %v", again, r)
					}
				case r.Status != http.StatusConflict:
					t.Errorf("a mended request: %v, want 200 once and else 409", r)
				}
			}
			// The pins repeat one message, so that several of the ten are the same request.
			if same := test.name == "the last pin"; redeemed < 1 || !same && redeemed != 1 {
				t.Errorf("redeemed %d times, want once", redeemed)
			}
			if n := test.delivered(sc, false); n != 1 {
				t.Errorf("the mended requests had %d effects, want one", n)
			}
			if n := test.delivered(sc, true); n != 0 {
				t.Errorf("the refused request had %d effects, want none", n)
			}
			if r := s.pay(late); r.Status == http.StatusOK {
				t.Errorf("the first request after it was redeemed: %v", r)
			}
			if charged := w.Revenue() - revenue - early; charged != late.price {
				t.Errorf("charged %d, want the price once, %d", charged, late.price)
			}
			w.check()
		})
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
		s.crashes([]string{"begun", "settled", "delivering"}[round%3], o)
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
		if r := s.pay(mended); r.Status != http.StatusOK {
			t.Errorf("a mended request: %v, want 200", r)
		}
		if charged := w.Revenue() - revenue; charged != o.price {
			t.Errorf("charged %d, want the price once, %d", charged, o.price)
		}
	}
	w.check()
}
