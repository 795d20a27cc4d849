package service

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

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
		{"a taken username", "/register/request_account", `{"requested_username":"bob"}`, "", carol, 409, client.ErrorCodeUsernameTaken},
		{"a reserved username", "/register/request_account", `{"requested_username":"dave"}`, "", carol, 409, client.ErrorCodeUsernameReserved},
		{"a wrong TAN", "/register/create_account", `{"username":"dave","tan":"00000000","description":""}`, "", carol, 403,
			client.ErrorCodeInvalidTAN},
		{"a TAN of nobody", "/register/create_account", `{"username":"erin","tan":"00000000","description":""}`, "", carol, 403,
			client.ErrorCodeInvalidTAN},
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
	if messages := w.Count("SELECT count(*) FROM messages"); messages != 0 {
		t.Errorf("there are %d messages, want none", messages)
	}
}

func TestOnePaymentSentFiftyTimes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice, bob := w.agent("alice"), w.agent("bob")
	revenue := w.Revenue()
	payment := w.sign(alice.Wallet, "/chat/private/send")
	replies := make([]testkit.Reply, 50)
	var group sync.WaitGroup
	for i := range replies {
		group.Go(func() {
			replies[i] = known(func() testkit.Reply { return alice.sendWith(payment, bob, "once") })
		})
	}
	group.Wait()
	for _, a := range replies {
		// The first reply's spelling, whoever is asked.
		if a.Status != http.StatusOK || string(a.Body) != string(replies[0].Body) ||
			a.Header.Get(x402.HeaderPaymentResponse) != replies[0].Header.Get(x402.HeaderPaymentResponse) {
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

// TestReceiptHasItsAmount: PAYMENT-RESPONSE says what a payment moved, so that receipts alone can be added up, also for a repeated one.
func TestReceiptHasItsAmount(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice, bob := w.agent("alice"), w.agent("bob")
	payment := w.sign(alice.Wallet, sendPath)
	for _, what := range []string{"a payment", "the same payment again"} {
		reply := alice.sendWith(payment, bob, "hello")
		settled, err := x402.DecodeSettleResponse(reply.Header.Get(x402.HeaderPaymentResponse))
		if err != nil || settled.Amount != "5000" || settled.Transaction == "" {
			t.Errorf("%s: %v with the receipt %+v (%v), want an amount of 5000", what, reply, settled, err)
		}
	}
}
