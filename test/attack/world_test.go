//go:build attack

package attack

import (
	"context"
	"crypto/ecdsa"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/parley-chat/parley/internal/devnet"
	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/store/storetest"
	"github.com/parley-chat/parley/x402"
)

func TestMain(m *testing.M) { storetest.Main(m) }

// world is a database, a payment network and any number of server processes, with what the test knows about them.
type world struct {
	*testkit.World
	proxy        *proxy
	http         *http.Client
	serverSecret string // file that all servers have

	s          *server // of the worlds that need one: the only one, or the first
	alice, bob *agent

	mu       sync.Mutex
	servers  []*server
	contents map[string]bool // every message content that was ever sent
	errors   strings.Builder // the body of every reply that was not a 200
}

func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{World: testkit.NewWorld(t, storetest.URL(t)), contents: map[string]bool{}, serverSecret: testkit.KeyFile(t)}
	w.proxy = newProxy(t, w.Facilitator)
	// Servers die and come back: a kept connection would be of the life before.
	w.http = &http.Client{
		Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: anyCertificate}, Timeout: 2 * time.Minute,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	t.Cleanup(func() {
		for _, s := range w.servers {
			s.kill()
		}
		w.checkSecrets()
		if t.Failed() {
			for _, s := range w.servers {
				t.Logf("the output of the server at %s:\n%s", s.url, lastLines(s.output.String(), 60))
			}
		}
	})
	return w
}

func lastLines(text string, most int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-most):], "\n")
}

// checkSecrets looks for secrets in what the servers printed and in the bodies of all errors.
func (w *world) checkSecrets() {
	w.T.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.CheckSecrets(w.T, "an error's body", w.errors.String())
	for _, s := range w.servers {
		w.CheckSecrets(w.T, "the output of "+s.url, s.output.String())
	}
}

// try sends a request as it is; headers are pairs. The error is a connection that was lost or never came about. A 500 fails the
// test.
func (s *server) try(ctx context.Context, method, path, body string, headers ...string) (testkit.Reply, error) {
	r, err := testkit.Request(ctx, s.w.http, method, s.url+path, body, headers...)
	if err != nil {
		return testkit.Reply{}, err
	}
	if r.Status != http.StatusOK {
		s.w.mu.Lock()
		s.w.errors.Write(r.Body)
		s.w.mu.Unlock()
	}
	s.w.never500(r, method+" "+path)
	return r, nil
}

// never500 fails the test if a server returned 500.
func (w *world) never500(r testkit.Reply, what string) {
	w.T.Helper()
	if r.Status == http.StatusInternalServerError {
		w.T.Errorf("%s: %v, and nothing may return 500", what, r)
	}
}

// call is try that must get a reply.
func (s *server) call(method, path, body string, headers ...string) testkit.Reply {
	s.w.T.Helper()
	r, err := s.try(s.w.T.Context(), method, path, body, headers...)
	if err != nil {
		s.w.T.Fatalf("%s %s: %v", method, path, err)
	}
	return r
}

// operation is what the contract says about a paid operation.
type operation struct {
	id, method, path string
	price            uint64 // atomic units
}

// operations are the contract's paid ones, by path: prices are known without asking a server.
var operations = func() map[string]operation {
	paid := map[string]operation{}
	for name, route := range testkit.Operations {
		if price := testkit.Price(name); price > 0 {
			paid[route.Path] = operation{route.Operation.OperationID, route.Method, route.Path, price}
		}
	}
	return paid
}()

// order is a paid request, ready to be sent any number of times.
type order struct {
	operation
	body    string
	headers []string
	header  string // PAYMENT-SIGNATURE
	payment *x402.PaymentPayload
}

// secret are the paths of the operations whose responses hold a secret. They are repeated only to a payment identifier, or
// to a fresh authorization by the same wallet.
var secret = map[string]bool{"/register/request_account": true, "/register/create_account": true, "/agent/rotate_key": true}

// order signs a payment for a request; key is the API key, "" for none. Where the response holds a secret the payment has an
// identifier, so that the order can be sent again.
func (w *world) order(wallet *ecdsa.PrivateKey, key, path string, body map[string]any) order {
	w.T.Helper()
	var changes []func(*x402.PaymentPayload)
	if secret[path] {
		changes = append(changes, testkit.Identified(rand.Text()+rand.Text()))
	}
	o := order{operation: operations[path]}
	o.payment = testkit.Payment(w.T, wallet, testkit.Offer(o.price), changes...)
	o.header = w.Encode(o.payment)
	if body != nil {
		raw, err := json.Marshal(body)
		testkit.NoError(w.T, err)
		o.body = string(raw)
	}
	if key != "" {
		o.headers = []string{"X-API-KEY", key}
	}
	return o
}

// withPayment returns the payment's header, if there is one, those of the order, and further ones.
func (o order) withPayment(headers ...string) []string {
	headers = slices.Concat(o.headers, headers)
	if o.header != "" {
		headers = append(headers, x402.HeaderPaymentSignature, o.header)
	}
	return headers
}

// send sends the order; the error is a lost connection.
func (s *server) send(ctx context.Context, o order) (testkit.Reply, error) {
	return s.try(ctx, o.method, o.path, o.body, o.withPayment()...)
}

// insist sends an order until the reply is final, as a good client does: it comes again after a lost connection, a 503
// and "in progress".
func (s *server) insist(o order) testkit.Reply {
	s.w.T.Helper()
	var last testkit.Reply
	final := testkit.Eventually(recoveryTime, func() bool {
		r, err := s.send(s.w.T.Context(), o)
		last = r
		return err == nil && r.Status != http.StatusServiceUnavailable && r.Code != "payment_in_progress"
	})
	if !final {
		s.w.T.Errorf("%s: no final reply in %s, the last one is %v", o.id, recoveryTime, last)
	}
	return last
}

// pay is send that must get a reply.
func (s *server) pay(o order) testkit.Reply {
	s.w.T.Helper()
	r, err := s.send(s.w.T.Context(), o)
	if err != nil {
		s.w.T.Fatalf("%s: %v", o.id, err)
	}
	return r
}

// sendAll sends orders at the same time.
func (s *server) sendAll(orders ...order) {
	var group sync.WaitGroup
	for _, o := range orders {
		group.Go(func() { _, _ = s.send(s.w.T.Context(), o) })
	}
	group.Wait()
}

// agent is a registered agent with its wallet.
type agent struct {
	w      *world
	name   string
	id     string
	key    string
	wallet *ecdsa.PrivateKey
}

// agent registers an agent through a server, with real payments.
func (s *server) agent(name string) *agent {
	s.w.T.Helper()
	a := &agent{w: s.w, name: name, wallet: s.w.Wallet(1000 * testkit.Dollar)}
	tan := s.insist(s.w.order(a.wallet, "", "/register/request_account", map[string]any{"requested_username": name})).Field(s.w.T, "tan")
	a.key = s.insist(s.w.order(a.wallet, "", "/register/create_account",
		map[string]any{"username": name, "tan": tan, "description": "I am " + name + "."})).Field(s.w.T, "api_key")
	a.id = s.insist(s.w.order(a.wallet, a.key, "/agent/me", nil)).Field(s.w.T, "agent_id")
	s.w.Secret(tan, a.key)
	return a
}

// contentNumber makes texts and names that there are only once.
var contentNumber atomic.Int64

// content makes a message text that there is only once and that no other text contains.
func (w *world) content(about string) string {
	text := fmt.Sprintf("%s, confidential number %06d of %d", about, contentNumber.Add(1), time.Now().UnixNano())
	w.Secret(text)
	w.expect(text)
	return text
}

// expect notes a message that may arrive.
func (w *world) expect(content string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.contents[content] = true
}

// says is the order to send a private message with a new content.
func (a *agent) says(to *agent, about string) order {
	a.w.T.Helper()
	return a.w.order(a.wallet, a.key, sendPath, map[string]any{"recipient_agent_id": to.id, "content": a.w.content(about)})
}

// recoveryTime is how long the servers have to finish what was begun.
const recoveryTime = 20 * time.Second

// leftOpen waits until no payment is open, and returns those that still are after the time.
func (w *world) leftOpen(limit time.Duration) (open string) {
	w.T.Helper()
	testkit.Eventually(limit, func() bool {
		w.Scan(`SELECT coalesce(string_agg(format('%s %s %s %s %s (%s attempts, %s, valid before %s, lease until %s)', id, operation, payer,
			nonce, state, attempts, failure_reason, valid_before, lease_until), E'\n'), '')
			FROM payments WHERE state IN ('settling', 'unknown')`, nil, &open)
		return open == ""
	})
	return open
}

// check waits until no payment is open any more, and then compares the books with the world: the promise, seen from
// outside.
func (w *world) check() {
	w.T.Helper()
	if open := w.leftOpen(recoveryTime); open != "" {
		w.T.Errorf("after %s payments are still open:\n%s", recoveryTime, open)
	}
	// A call whose caller hung up may have begun only now. What payment channels were charged is paid out later.
	var paid, revenue uint64
	if !testkit.Eventually(recoveryTime, func() bool {
		w.Scan("SELECT coalesce(sum(amount), 0)::bigint FROM payments WHERE scheme = 'exact' AND state IN ('delivered', 'undeliverable')", nil,
			&paid)
		revenue = w.Revenue() - w.Ledger.Received(devnet.Payee).Settled
		return revenue == paid
	}) {
		w.T.Errorf("single payments brought the payee %d on the chain, but the ledger says that %d were paid", revenue, paid)
	}
	if kept := w.Count("SELECT count(*) FROM payments WHERE state NOT IN ('settling', 'unknown') AND (payload IS NOT NULL OR request IS NOT " +
		"NULL)"); kept > 0 {
		w.T.Errorf("%d closed payments still hold their payload or request", kept)
	}
	w.checkEffects()
	w.checkContents()
}

// checkEffects compares what was paid for with what is there.
func (w *world) checkEffects() {
	w.T.Helper()
	for _, effect := range []struct{ operation, query string }{
		{"createAccount", "SELECT count(*) FROM agents"},
		{"createGroupChat", "SELECT count(*) FROM conversations WHERE kind = 'group'"},
		{"createChannel", "SELECT count(*) FROM conversations WHERE kind = 'channel'"},
		{"sendPrivateMessage", "SELECT count(*) FROM messages m JOIN conversations c ON c.id = m.conversation_id WHERE kind = 'private' AND " +
			"content NOT LIKE '%(ch%_%).%'"},
		{"sendGroupMessage", "SELECT count(*) FROM messages m JOIN conversations c ON c.id = m.conversation_id WHERE kind = 'group'"},
		{"sendChannelMessage", "SELECT count(*) FROM messages m JOIN conversations c ON c.id = m.conversation_id WHERE kind = 'channel'"},
	} {
		// Both in one statement, so that they are of one moment.
		var delivered, there int64
		w.Scan("SELECT (SELECT count(*) FROM payments WHERE state = 'delivered' AND operation = $1), ("+effect.query+")",
			[]any{effect.operation}, &delivered, &there)
		if there != delivered {
			w.T.Errorf("%s was delivered %d times according to the ledger, its effect is there %d times", effect.operation, delivered, there)
		}
	}
}

// checkContents looks for messages twice, or that nobody sent.
func (w *world) checkContents() {
	w.T.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.EachRow(func(row pgx.Rows) error {
		var content string
		var n int
		err := row.Scan(&content, &n)
		if err == nil && (n != 1 || !w.contents[content]) {
			w.T.Errorf("the message %q is there %d times (sent by the test: %v), want once", content, n, w.contents[content])
		}
		return err
	}, "SELECT content, count(*) FROM messages WHERE content NOT LIKE '%(ch%_%).%' GROUP BY content")
}
