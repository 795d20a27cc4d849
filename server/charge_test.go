package server_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/parley-chat/parley/client"
	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/x402"
)

// unknown ids, well formed
const (
	noAgent   = "agent_01k70t995eeeqsqssjfq4h8qx8"
	noChat    = "chat_01k70tamnxefqb91tt5kzx59bg"
	noMessage = "msg_01k70tc513egtarndz528zps60"
)

func quote(text string) string { return fmt.Sprintf("%q", text) }

// TestOnlyA200IsCharged sends what must be refused, each with a good payment of its own, and compares balances.
func TestOnlyA200IsCharged(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice, bob, carol := w.agent("alice"), w.agent("bob"), w.agent("carol")
	chat, _ := alice.send(bob, "between the two of us")
	w.pay(alice.Wallet, "/register/request_account", `{"requested_username":"dave"}`).Require(t, "dave's username is reserved", 200)
	const send = "/chat/private/send"
	good := `{"recipient_agent_id":` + quote(bob.ID) + `,"content":"hello"}`
	wrongKey := "parley_" + strings.Map(func(r rune) rune { // every digit is another one, also where keys happen to end alike
		if r == 'x' {
			return 'y'
		}
		return 'x'
	}, alice.Key[len("parley_"):])
	strangeKey := "parley_0000000000000000000000000000000000000000000000000000001"

	for _, test := range []struct {
		name, path, body, key string
		payer                 *agent
		status                int
		code                  client.ErrorCode
	}{
		{"no key", send, good, "", alice, 401, client.ErrorCodeInvalidAPIKey},
		{"a mistyped key", send, good, wrongKey, alice, 401, client.ErrorCodeInvalidAPIKey},
		{"a key of nobody", send, good, strangeKey, alice, 401, client.ErrorCodeInvalidAPIKey},
		{"a malformed body", send, `{"recipient_agent_id":1}`, alice.Key, alice, 400, client.ErrorCodeInvalidRequest},
		{"an unknown recipient", send, `{"recipient_agent_id":` + quote(noAgent) + `,"content":"hello"}`, alice.Key, alice, 404, client.ErrorCodeAgentNotFound},
		{"oneself as recipient", send, `{"recipient_agent_id":` + quote(alice.ID) + `,"content":"hello"}`, alice.Key, alice, 400, client.ErrorCodeInvalidRequest},
		{"a taken username", "/register/request_account", `{"requested_username":"bob"}`, "", carol, 409, client.ErrorCodeUsernameTaken},
		{"a reserved username", "/register/request_account", `{"requested_username":"dave"}`, "", carol, 409, client.ErrorCodeUsernameReserved},
		{"a wrong TAN", "/register/create_account", `{"username":"dave","tan":"00000000","description":""}`, "", carol, 403, client.ErrorCodeInvalidTAN},
		{"a TAN of nobody", "/register/create_account", `{"username":"erin","tan":"00000000","description":""}`, "", carol, 403, client.ErrorCodeInvalidTAN},
		{"an unknown chat", "/chat/private/info", `{"chat_id":` + quote(noChat) + `}`, alice.Key, alice, 404, client.ErrorCodeChatNotFound},
		{"a chat of others", "/chat/private/info", `{"chat_id":` + quote(chat) + `}`, carol.Key, carol, 403, client.ErrorCodeNotMember},
		{"messages of others", "/chat/private/messages", `{"chat_id":` + quote(chat) + `}`, carol.Key, carol, 403, client.ErrorCodeNotMember},
		{"an unknown agent", "/agent/profile", `{"username":"nobody"}`, alice.Key, alice, 404, client.ErrorCodeAgentNotFound},
	} {
		revenue, settles := w.Revenue(), w.settles.Load()
		headers := []string{}
		if test.key != "" {
			headers = append(headers, "X-API-KEY", test.key)
		}
		a := w.pay(test.payer.Wallet, test.path, test.body, headers...)
		if a.Status != test.status || a.Code != string(test.code) || a.Charged {
			t.Errorf("%s: %v, want %d %s, not charged", test.name, a, test.status, test.code)
		}
		if w.Revenue() != revenue || w.settles.Load() != settles {
			t.Errorf("%s: the payee has %d more, /settle was called %d times", test.name, w.Revenue()-revenue, w.settles.Load()-settles)
		}
		if a.Header.Get(x402.HeaderPaymentResponse) != "" {
			t.Errorf("%s: there is a PAYMENT-RESPONSE although nothing was settled", test.name)
		}
	}
	unpaid := w.call(http.MethodPost, send, good, "X-API-KEY", alice.Key)
	required, err := x402.DecodePaymentRequired(unpaid.Header.Get(x402.HeaderPaymentRequired))
	if unpaid.Status != http.StatusPaymentRequired || unpaid.Code != "payment_required" || err != nil || required.Accepts[0].Amount != "5000" {
		t.Errorf("an unpaid call: %v (%v), want 402 with a price of 5000", unpaid, err)
	}
	if messages := w.Count("SELECT count(*) FROM messages"); messages != 1 {
		t.Errorf("there are %d messages, want the one that was paid for", messages)
	}
}

func TestOnePaymentSentFiftyTimes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice, bob := w.agent("alice"), w.agent("bob")
	revenue := w.Revenue()
	payment := w.sign(alice.Wallet, "/chat/private/send")
	body := `{"recipient_agent_id":` + quote(bob.ID) + `,"content":"once"}`
	replies := make([]testkit.Reply, 50)
	var group sync.WaitGroup
	for i := range replies {
		group.Go(func() {
			replies[i], _ = w.try(http.MethodPost, "/chat/private/send", body, "X-API-KEY", alice.Key, x402.HeaderPaymentSignature, payment)
		})
	}
	group.Wait()
	for _, a := range replies {
		// The first reply's spelling, whoever is asked.
		if a.Status != http.StatusOK || string(a.Body) != string(replies[0].Body) || a.Header.Get(x402.HeaderPaymentResponse) != replies[0].Header.Get(x402.HeaderPaymentResponse) {
			t.Errorf("a copy returns %v, want %v", a, replies[0])
		}
	}
	if messages, charged := w.Count("SELECT count(*) FROM messages"), w.Revenue()-revenue; messages != 1 || charged != 5000 {
		t.Errorf("%d messages for %d, want one for 5000", messages, charged)
	}
	if w.settles.Load() != 3*2+1 {
		t.Errorf("/settle was called %d times, want once for each of six calls before and once now", w.settles.Load())
	}
	reordered := `{"content":"once",  "recipient_agent_id":` + quote(bob.ID) + `}`
	a := w.call(http.MethodPost, sendPath, reordered, "X-API-KEY", alice.Key, x402.HeaderPaymentSignature, payment)
	if string(a.Body) != string(replies[0].Body) || a.Header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("the same request in another spelling returns %v, want the stored reply, which says so", a)
	}
	a = alice.sends(bob, "once")
	if a.Status != http.StatusOK || a.Header.Get("Idempotent-Replayed") != "" {
		t.Errorf("another payment returns %v, want a new message", a)
	}
}

func TestOnePaymentForTwoRequests(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice, bob := w.agent("alice"), w.agent("bob")
	revenue := w.Revenue()
	payment := w.sign(alice.Wallet, "/chat/private/send")
	bodies := []string{`{"recipient_agent_id":` + quote(bob.ID) + `,"content":"this"}`, `{"recipient_agent_id":` + quote(bob.ID) + `,"content":"that"}`}
	var replies [2]testkit.Reply
	var group sync.WaitGroup
	for i := range replies {
		group.Go(func() {
			replies[i], _ = w.try(http.MethodPost, "/chat/private/send", bodies[i], "X-API-KEY", alice.Key, x402.HeaderPaymentSignature, payment)
		})
	}
	group.Wait()
	if replies[0].Status+replies[1].Status != 200+409 || replies[0].Code+replies[1].Code != "payment_reused" {
		t.Errorf("the two return %v and %v, want a 200 and a 409 payment_reused", replies[0], replies[1])
	}
	for name, a := range map[string]testkit.Reply{
		"for another operation of the same price": w.call(http.MethodPost, "/search/agents", `{"query":"x"}`, "X-API-KEY", alice.Key, x402.HeaderPaymentSignature, payment),
		"by another agent":                        w.call(http.MethodPost, "/chat/private/send", bodies[0], "X-API-KEY", bob.Key, x402.HeaderPaymentSignature, payment),
	} {
		a.Want(t, "the payment "+name, 409, "payment_reused")
	}
	if messages, charged := w.Count("SELECT count(*) FROM messages"), w.Revenue()-revenue; messages != 1 || charged != 5000 {
		t.Errorf("%d messages for %d, want one for 5000", messages, charged)
	}
}

// TestBadPayments are refused before anybody is asked, with the price so that the payer can do better.
func TestBadPayments(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice, bob := w.agent("alice"), w.agent("bob")
	poor := w.Wallet(4_999)
	const send = "/chat/private/send"
	good := w.sign(alice.Wallet, send)
	revenue := w.Revenue()
	change := func(do func(p *x402.PaymentPayload)) string { return w.sign(alice.Wallet, send, do) }
	in := func(d time.Duration) string { return fmt.Sprint(time.Now().Add(d).Unix()) }
	for _, test := range []struct {
		name, payment string
		status        int
		code          client.ErrorCode
		asked         bool // the facilitator is
	}{
		{"no base64", "not base64!", 400, client.ErrorCodeInvalidPayment, false},
		{"no JSON", "bm90IGpzb24=", 400, client.ErrorCodeInvalidPayment, false},
		{"cut off", good[:len(good)-8], 400, client.ErrorCodeInvalidPayment, false},
		{"longer than 16 KiB", strings.Repeat("QUJD", 5000), 400, client.ErrorCodeInvalidPayment, false},
		{"a cheap call's payment", w.sign(alice.Wallet, "/agent/profile"), 402, client.ErrorCodePaymentRefused, false},
		{"less than the price", change(func(p *x402.PaymentPayload) { p.Payload.Authorization.Value = "4999" }), 402, client.ErrorCodePaymentRefused, false},
		{"more than the price", change(func(p *x402.PaymentPayload) { p.Payload.Authorization.Value = "5001" }), 402, client.ErrorCodePaymentRefused, false},
		{"another payee", change(func(p *x402.PaymentPayload) { p.Payload.Authorization.To = p.Payload.Authorization.From }), 402, client.ErrorCodePaymentRefused, false},
		{"another network", change(func(p *x402.PaymentPayload) { p.Accepted.Network = "eip155:8453" }), 402, client.ErrorCodePaymentRefused, false},
		{"another asset", change(func(p *x402.PaymentPayload) { p.Accepted.Asset = p.Accepted.PayTo }), 402, client.ErrorCodePaymentRefused, false},
		{"expired", change(func(p *x402.PaymentPayload) { p.Payload.Authorization.ValidBefore = in(-time.Minute) }), 402, client.ErrorCodePaymentRefused, false},
		{"too short", change(func(p *x402.PaymentPayload) { p.Payload.Authorization.ValidBefore = in(10 * time.Second) }), 402, client.ErrorCodePaymentRefused, false},
		{"too long", change(func(p *x402.PaymentPayload) { p.Payload.Authorization.ValidBefore = in(25 * time.Hour) }), 402, client.ErrorCodePaymentRefused, false},
		{"not yet valid", change(func(p *x402.PaymentPayload) { p.Payload.Authorization.ValidAfter = in(time.Minute) }), 402, client.ErrorCodePaymentRefused, false},
		{"of somebody else", change(func(p *x402.PaymentPayload) { p.Payload.Authorization.From = p.Payload.Authorization.To }), 402, client.ErrorCodePaymentRefused, false},
		{"above the balance", w.sign(poor, send), 402, client.ErrorCodePaymentRefused, false},
	} {
		before := w.settles.Load()
		a := w.call(http.MethodPost, send, `{"recipient_agent_id":`+quote(bob.ID)+`,"content":"for nothing"}`, "X-API-KEY", alice.Key, x402.HeaderPaymentSignature, test.payment)
		if a.Status != test.status || a.Code != string(test.code) || a.Charged {
			t.Errorf("%s: %v, want %d %s", test.name, a, test.status, test.code)
		}
		if _, err := x402.DecodePaymentRequired(a.Header.Get(x402.HeaderPaymentRequired)); err != nil {
			t.Errorf("%s: the reply does not say how to pay: %v", test.name, err)
		}
		if asked := w.settles.Load() > before; asked != test.asked {
			t.Errorf("%s: the facilitator was asked: %v, want %v", test.name, asked, test.asked)
		}
	}
	if w.Revenue() != revenue || w.Count("SELECT count(*) FROM messages") != 0 {
		t.Errorf("bad payments brought %d and %d messages", w.Revenue()-revenue, w.Count("SELECT count(*) FROM messages"))
	}
}
