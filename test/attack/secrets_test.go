//go:build attack

package attack

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/parley-chat/parley/internal/testkit"
)

// TestNoSecretInAnyOutput makes a server complain in every way it has. What it prints, its errors' bodies and its
// metrics hold no signature, payment header, API key, TAN or message. The same is checked of every server of every other
// test of the suite, at that test's end (world.checkSecrets).
func TestNoSecretInAnyOutput(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.serve()
	alice, bob := s.agent("alice"), s.agent("bob")
	chat := s.pay(alice.says(bob, "a confidential sentence")).Field(t, "chat_id")
	s.pay(w.order(bob.wallet, bob.key, "/chat/private/messages", map[string]any{"chat_id": chat}))

	s.refuseSecrets(alice, bob)
	s.repeatSecrets(alice, bob)
	w.scrape(s.admin)
	w.startWithoutDatabase()
	w.check()
	s.stop()
	if text := s.output.String(); strings.Count(text, `"operation"`) < 10 {
		t.Errorf("the server logged so little that the check means nothing:\n%s", text)
	}
}

// refuseSecrets sends secrets where they do not belong: what is wrong are the payment, the key, the body or the path.
func (s *server) refuseSecrets(alice, bob *agent) {
	s.w.T.Helper()
	o := alice.says(bob, "refused")
	last := "x"
	if strings.HasSuffix(alice.key, last) {
		last = "y"
	}
	for _, r := range []testkit.Reply{
		s.pay(alice.saysFrom(s.w.Wallet(0), bob, "without money")),
		s.call(http.MethodPost, o.path, o.body, "X-API-KEY", alice.key[:len(alice.key)-1]+last, "PAYMENT-SIGNATURE", o.header),
		s.call(http.MethodPost, o.path, o.body, "X-API-KEY", alice.key, "PAYMENT-SIGNATURE", o.header[1:]),
		s.call(http.MethodPost, o.path, o.body, "X-API-KEY", o.header, "PAYMENT-SIGNATURE", alice.key),
		s.call(http.MethodPost, o.path, o.body[:len(o.body)-3], "X-API-KEY", alice.key, "PAYMENT-SIGNATURE", o.header),
		s.call(http.MethodPost, o.path, `{"content":`+fmt.Sprintf("%q", alice.key)+`,"tan":"`+o.content+`"}`, "X-API-KEY", alice.key,
			"PAYMENT-SIGNATURE", o.header),
		s.call(http.MethodPost, o.path+"/"+alice.key, o.body, "X-API-KEY", alice.key, "PAYMENT-SIGNATURE", o.header),
		s.call(http.MethodPost, o.path+"?key="+alice.key, o.body, "X-API-KEY", alice.key, "PAYMENT-SIGNATURE", o.header),
		s.call(http.MethodGet, o.path, "", "X-API-KEY", alice.key, "PAYMENT-SIGNATURE", o.header, "X-Request-Id", alice.key+"/"),
	} {
		if r.Status < 400 || r.Status >= 500 {
			s.w.T.Errorf("what must be refused: %v", r)
		}
	}
}

// repeatSecrets pays while the facilitator repeats the payment in whatever it replies.
func (s *server) repeatSecrets(alice, bob *agent) {
	s.w.T.Helper()
	o := alice.says(bob, "in a redirect")
	for name, fault := range map[string]fault{
		"in a page": func(c *call) { c.write(500, "<html>"+string(c.body)+"</html>") },
		"in a reason": func(c *call) {
			reason, _ := json.Marshal(string(c.body))
			c.write(200, fmt.Sprintf(`{"success":false,"errorReason":%s,"errorMessage":%[1]s,"transaction":"","network":"eip155:84532"}`, reason))
		},
		"in a transaction": func(c *call) {
			transaction, _ := json.Marshal(string(c.body))
			c.forward()
			c.write(200, `{"success":true,"transaction":`+string(transaction)+`,"network":"eip155:84532"}`)
		},
		"in a header": func(c *call) {
			c.w.Header().Set("EXTENSION-RESPONSES", string(c.body))
			c.w.Header().Set("Location", "/"+o.header)
			c.write(302, "")
		},
		"in what is no JSON": func(c *call) { c.write(200, `{"success":"`+string(c.body)) },
	} {
		s.w.proxy.breakWith(onSettle(fault))
		o := alice.says(bob, "repeated "+name)
		r := s.pay(o)
		s.w.T.Logf("a facilitator repeats the payment %s: %d", name, r.Status)
		s.w.mu.Lock()
		fmt.Fprint(&s.w.errors, r.Header) // PAYMENT-RESPONSE is base64, so that only what stands beside it counts
		s.w.mu.Unlock()
	}
	s.w.proxy.mend()
}

// scrape reads what operators read, which is checked like the errors.
func (w *world) scrape(admin string) {
	w.T.Helper()
	for _, path := range []string{"/metrics", "/livez", "/readyz"} {
		r, err := testkit.Request(w.T.Context(), http.DefaultClient, http.MethodGet, "http://"+admin+path, "")
		if err != nil || r.Status != http.StatusOK || len(r.Body) == 0 {
			w.T.Errorf("GET %s: %v (%v), want 200", path, r, err)
		}
		w.mu.Lock()
		w.errors.Write(r.Body)
		w.mu.Unlock()
	}
}

// startWithoutDatabase starts a server that waits for its database: it says what it waits for, and not with which password.
func (w *world) startWithoutDatabase() {
	w.T.Helper()
	w.Secret("hunter2-of-the-database")
	waiting := w.newServer("--database-url", "postgres://parley:hunter2-of-the-database@127.0.0.1:1/parley?connect_timeout=2")
	if err := waiting.launch(""); err != nil {
		w.T.Fatal(err)
	}
	defer waiting.kill()
	if !testkit.Eventually(30*time.Second, func() bool { return strings.Contains(waiting.output.String(), "the database is unavailable") }) {
		w.T.Errorf("a server without its database prints %q", waiting.output.String())
	}
}
