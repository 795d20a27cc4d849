package service

import (
	"net/http"
	"strings"
	"testing"

	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/x402"
)

// TestErrorsHelp: errors name the remedy, and every 400 has details.
func TestErrorsHelp(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice, bob := w.agent("alice"), w.agent("bob")
	chat := bob.createGroup("planners")
	to := func(a *agent) string { return `{"recipient_agent_id":` + quote(a.ID) + `,"content":"x"}` }
	ask := func(path, body string) testkit.Reply { return w.pay(alice.Wallet, path, body, "X-API-KEY", alice.Key) }
	for _, test := range []struct {
		name   string
		reply  testkit.Reply
		status int
		says   []string
		field  string
	}{
		{"a message to oneself", ask(sendPath, to(alice)), 400, nil, "/recipient_agent_id"},
		{"blocking oneself", ask("/agent/block", `{"agent_id":`+quote(alice.ID)+`}`), 400, nil, "/agent_id"},
		{"a query of dots", ask("/search/agents", `{"query":"..."}`), 400, nil, "/query"},
		{"a body for a GET", w.call(http.MethodGet, "/agent/unread", `{"wait":5}`, "X-API-KEY", alice.Key), 400, []string{"wait (integer)"}, ""},
		{"null for what is required", ask(sendPath, `{"recipient_agent_id":`+quote(bob.ID)+`,"content":null}`), 400,
			[]string{"is required and must not be null"}, "/content"},
		{"an id and another's username", ask("/agent/profile", `{"agent_id":`+quote(alice.ID)+`,"username":"bob"}`), 404,
			[]string{"this agent_id and this username"}, ""},
		{"no key", w.pay(alice.Wallet, "/agent/profile", `{"username":"bob"}`), 401, []string{"no API key", "register"}, ""},
		{"a username with capitals", ask("/agent/profile", `{"username":"Bad-Name"}`), 400, []string{`and is "Bad-Name"`}, "/username"},
		{"a text that is too long", ask("/agent/edit", `{"description":"`+strings.Repeat("é", 1025)+`"}`), 400,
			[]string{"at most 1024 characters, and has 1025"}, "/description"},
		{"a reply to nothing", ask(sendPath, `{"recipient_agent_id":`+quote(bob.ID)+`,"content":"x","reply_to_message_id":`+quote(noMessage)+`}`),
			404, []string{"reply_to_message_id"}, ""},
		{"a group of others", ask("/chat/group/info", `{"chat_id":`+quote(chat)+`}`), 403, []string{"POST /chat/group/request_access"}, ""},
		{"a payment for another price", w.call(http.MethodPost, "/agent/edit", `{"description":"x"}`, "X-API-KEY", alice.Key, "PAYMENT-SIGNATURE",
			w.sign(alice.Wallet, "/agent/profile")), 402, []string{" atomic units", "costs exactly"}, ""},
		{"a payment to somebody else", w.call(http.MethodPost, "/agent/edit", `{"description":"x"}`, "X-API-KEY", alice.Key, "PAYMENT-SIGNATURE",
			w.sign(alice.Wallet, "/agent/edit", func(p *x402.PaymentPayload) { p.Accepted.PayTo = p.Accepted.Asset })), 402,
			[]string{"payTo is", "in accepts"}, ""},
	} {
		test.reply.Want(t, test.name, test.status)
		for _, text := range test.says {
			if !strings.Contains(test.reply.Message, text) {
				t.Errorf("%s: %v, want a message with %q", test.name, test.reply, text)
			}
		}
		if test.status == 400 && (len(test.reply.Details) != 1 || test.reply.Details[0].Field != test.field) {
			t.Errorf("%s: %v, want details that name %s", test.name, test.reply, test.field)
		}
	}
}

// TestReplacedKeySaysSo: a caller with an old key learns why it is refused, also after the new one was used.
func TestReplacedKeySaysSo(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice := w.agent("alice")
	old := alice.Key
	payment := w.sign(alice.Wallet, "/agent/rotate_key")
	rotate := func() testkit.Reply {
		return w.call(http.MethodPost, "/agent/rotate_key", "{}", "X-API-KEY", old, "PAYMENT-SIGNATURE", payment)
	}
	alice.Key = w.rotated(rotate())
	rotate().Want(t, "the rotation again, before the new key is used", http.StatusConflict, "proof_required")
	for range 2 {
		a := w.me(alice, old)
		a.Want(t, "the old key", http.StatusUnauthorized, "invalid_api_key")
		if !strings.Contains(a.Message, "replaced") {
			t.Errorf("the old key: %v, want a message that says replaced", a)
		}
		w.me(alice, alice.Key).Want(t, "the new key", http.StatusOK)
	}
	again := rotate()
	again.WantRefused(t, "the rotation again, after the new key was used", http.StatusUnauthorized, "invalid_api_key")
	if !strings.Contains(again.Message, "replaced") {
		t.Errorf("the rotation again: %v, want a message that says replaced", again)
	}
}

// TestQueryIsCheckedBeforeThePrice: a query that would be misread costs neither a signature nor a charge.
func TestQueryIsCheckedBeforeThePrice(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice := w.agent("alice")
	payment := w.signFor(alice.Wallet, http.MethodGet, "/agent/unread")
	for query, fields := range map[string]string{
		"page=1&page=2": "?page", "page=1;mark_read=false": "?", "mark_read=%zz": "?", "Page=1": "?Page", "page=0": "?page",
		"mark_read=maybe": "?mark_read", "mark_read=": "?mark_read", "colour=red&page=0&wait=61": "?colour ?page ?wait",
	} {
		path := "/agent/unread?" + query
		for name, a := range map[string]testkit.Reply{
			"unpaid": w.call(http.MethodGet, path, ""),
			"paid":   w.call(http.MethodGet, path, "", "X-API-KEY", alice.Key, "PAYMENT-SIGNATURE", payment),
		} {
			a.WantRefused(t, name+" "+query, http.StatusBadRequest, "invalid_request")
			var named []string
			for _, one := range a.Details {
				named = append(named, one.Field)
			}
			if strings.Join(named, " ") != fields {
				t.Errorf("%s %s: %v, want details that name %s", name, query, a, fields)
			}
		}
	}
	w.call(http.MethodGet, "/agent/unread?page=1&mark_read=false", "").Want(t, "a valid query", http.StatusPaymentRequired)
}

// TestSecretsInWrongPlaces: a key, a payment or a message that stands where it does not belong is neither repeated in the error nor logged,
// which the world checks at its end.
func TestSecretsInWrongPlaces(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice, bob := w.agent("alice"), w.agent("bob")
	const content = "a confidential sentence"
	w.Secret(content)
	body := `{"recipient_agent_id":` + quote(bob.ID) + `,"content":` + quote(content) + `}`
	payment := w.sign(alice.Wallet, sendPath)
	for name, test := range map[string]struct{ path, body, key, payment string }{
		"a wrong key":                  {sendPath, body, alice.Key[:len(alice.Key)-3] + "xyz", payment},
		"a damaged payment":            {sendPath, body, alice.Key, payment[1:]},
		"key and payment interchanged": {sendPath, body, payment, alice.Key},
		"half a body":                  {sendPath, body[:len(body)-3], alice.Key, payment},
		"a key in the body":            {sendPath, `{"content":` + quote(alice.Key) + `,"tan":` + quote(content) + `}`, alice.Key, payment},
		"a key in the path":            {sendPath + "/" + alice.Key, body, alice.Key, payment},
		"a key in the query":           {sendPath + "?key=" + alice.Key, body, alice.Key, payment},
	} {
		a := w.call(http.MethodPost, test.path, test.body, "X-API-KEY", test.key, x402.HeaderPaymentSignature, test.payment,
			"X-Request-Id", alice.Key+"/")
		if a.Status < 400 || a.Status >= 500 {
			t.Errorf("%s: %v, want a refusal", name, a)
		}
		w.CheckSecrets(t, name, string(a.Body))
	}
}
