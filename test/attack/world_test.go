//go:build attack

package attack

import (
	"context"
	"crypto/ecdsa"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/parley-chat/parley/x402/x402test"

	"github.com/jackc/pgx/v5"

	"github.com/parley-chat/parley/internal/devnet"
	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/store/storetest"
	"github.com/parley-chat/parley/x402"
)

func TestMain(m *testing.M) { storetest.Main(m) }

// rounds is how often a place is attacked.
func rounds(t testing.TB) int {
	t.Helper()
	text := os.Getenv("ATTACK_ROUNDS")
	if text == "" {
		return 20
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("ATTACK_ROUNDS is %q, want a number from 1", text)
	}
	return n
}

// world is a database, a payment network and any number of server processes, with what the test knows about them.
type world struct {
	*testkit.World
	proxy        *proxy
	http         *http.Client
	serverSecret string // file that all servers have

	s          *server // of the worlds that need one: the only one, or the first
	alice, bob *agent
	payers     []*channelPayer

	mu       sync.Mutex
	servers  []*server
	contents map[string]bool // every message content that was ever sent
	errors   strings.Builder // the body of every reply that was not a 200
}

func newWorld(t testing.TB) *world {
	t.Helper()
	return newWorldOn(t, storetest.URL(t))
}

func newWorldOn(t testing.TB, databaseURL string) *world {
	t.Helper()
	w := &world{World: testkit.NewWorld(t, databaseURL), contents: map[string]bool{}, serverSecret: testkit.KeyFile(t)}
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
	header  string // PAYMENT-SIGNATURE, or with v1 X-PAYMENT
	v1      bool
	payment *x402.PaymentPayload
	content string // of the message, if it sends one
}

// sign makes a payment for an operation, changed before it is signed.
func (w *world) sign(key *ecdsa.PrivateKey, path string, changes ...func(*x402.PaymentPayload)) (string, *x402.PaymentPayload) {
	w.T.Helper()
	operation, ok := operations[path]
	if !ok {
		w.T.Fatalf("%s is no paid operation", path)
	}
	payload := testkit.Payment(w.T, key, testkit.Offer(operation.price), changes...)
	return w.Encode(payload), payload
}

// secret are the paths of the operations whose responses hold a secret. They are repeated only to a payment identifier, or
// to a fresh authorization by the same wallet.
var secret = map[string]bool{"/register/request_account": true, "/register/create_account": true, "/agent/rotate_key": true}

// named puts a payment identifier of its own into a payment.
func named(p *x402.PaymentPayload) {
	testkit.Identified(rand.Text() + rand.Text())(p)
}

// unnamed takes the payment identifier out of a payment.
func unnamed(p *x402.PaymentPayload) { p.Extensions = nil }

// order signs a payment for a request; key is the API key, "" for none. Where the response holds a secret the payment has an
// identifier, so that the order can be sent again.
func (w *world) order(wallet *ecdsa.PrivateKey, key, path string, body map[string]any, changes ...func(*x402.PaymentPayload)) order {
	w.T.Helper()
	o := order{operation: operations[path]}
	if secret[path] {
		changes = append([]func(*x402.PaymentPayload){named}, changes...)
	}
	o.header, o.payment = w.sign(wallet, path, changes...)
	if body != nil {
		raw, err := json.Marshal(body)
		if err != nil {
			w.T.Fatal(err)
		}
		o.body = string(raw)
	}
	if key != "" {
		o.headers = []string{"X-API-KEY", key}
	}
	return o
}

// asV1 is the same order with its payment in x402's version 1: the very same authorization, another header.
func (o order) asV1(w *world) order {
	w.T.Helper()
	header, err := x402test.EncodePaymentPayloadV1(o.payment, testkit.PlayMoney.V1Name)
	if err != nil {
		w.T.Fatal(err)
	}
	w.Secret(header)
	o.header, o.v1 = header, true
	return o
}

// withPayment returns the payment's header, if there is one, those of the order, and further ones.
func (o order) withPayment(headers ...string) []string {
	if o.header == "" {
		return append(slices.Clone(o.headers), headers...)
	}
	name := x402.HeaderPaymentSignature
	if o.v1 {
		name = x402.HeaderPaymentV1
	}
	return append(append([]string{name, o.header}, o.headers...), headers...)
}

// send sends the order; the error is a lost connection.
func (s *server) send(ctx context.Context, o order) (testkit.Reply, error) {
	return s.try(ctx, o.method, o.path, o.body, o.withPayment()...)
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

// sendAll sends orders at the same time and returns their replies in order; one that was lost has status 0.
func (s *server) sendAll(orders ...order) []testkit.Reply {
	replies := make([]testkit.Reply, len(orders))
	var group sync.WaitGroup
	for i, o := range orders {
		group.Go(func() { replies[i], _ = s.send(s.w.T.Context(), o) })
	}
	group.Wait()
	return replies
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
	a.learn(s.insist(a.creates(s)))
	a.id = s.insist(s.w.order(a.wallet, a.key, "/agent/me", nil)).Field(s.w.T, "agent_id")
	return a
}

// creates requests the agent's account and returns the order that creates it.
func (a *agent) creates(s *server) order {
	a.w.T.Helper()
	requested := s.insist(a.w.order(a.wallet, "", "/register/request_account", map[string]any{"requested_username": a.name}))
	tan := requested.Field(a.w.T, "tan")
	a.w.Secret(tan)
	return a.w.order(a.wallet, "", "/register/create_account",
		map[string]any{"username": a.name, "tan": tan, "description": "I am " + a.name + "."})
}

// learn reads the API key out of the reply to creates.
func (a *agent) learn(r testkit.Reply) {
	a.w.T.Helper()
	a.key = r.Field(a.w.T, "api_key")
	a.w.Secret(a.key)
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
func (a *agent) says(to *agent, about string, changes ...func(*x402.PaymentPayload)) order {
	a.w.T.Helper()
	return a.saysFrom(a.wallet, to, about, changes...)
}

// saysFrom is says paid by another wallet.
func (a *agent) saysFrom(wallet *ecdsa.PrivateKey, to *agent, about string, changes ...func(*x402.PaymentPayload)) order {
	a.w.T.Helper()
	content := a.w.content(about)
	o := a.w.order(wallet, a.key, "/chat/private/send", map[string]any{"recipient_agent_id": to.id, "content": content}, changes...)
	o.content = content
	return o
}

// messages is how often a content was delivered.
func (w *world) messages(content string) int {
	w.T.Helper()
	return w.Count("SELECT count(*) FROM messages WHERE content = $1", content)
}

// state is what the ledger says about an order: state and failure reason, "" if it has no row.
func (w *world) state(o order) (state string) {
	w.T.Helper()
	w.Scan("SELECT coalesce((SELECT state FROM payments WHERE nonce = $1), '')",
		[]any{strings.ToLower(o.payment.Payload.Authorization.Nonce)}, &state)
	return state
}

// used reports whether the order's money has moved on the chain, or can no longer move.
func (w *world) used(o order) bool {
	return w.Ledger.Used(o.payment.Payload.Authorization.From, o.payment.Payload.Authorization.Nonce)
}

// recoveryTime is how long the servers have to finish what was begun.
const recoveryTime = 20 * time.Second

// check waits until no payment is open any more, and then compares the books with the world: the promise, seen from
// outside.
func (w *world) check() {
	w.T.Helper()
	const open = "SELECT count(*) FROM payments WHERE state IN ('settling', 'unknown')"
	if !testkit.Eventually(recoveryTime, func() bool { return w.Count(open) == 0 }) {
		var rows string
		w.Scan(`SELECT coalesce(string_agg(format('%s %s %s (%s attempts, %s)', operation, nonce, state, attempts, failure_reason), E'\n'), '')
			FROM payments
			WHERE state IN ('settling', 'unknown')`, nil, &rows)
		w.T.Errorf("after %s payments are still open:\n%s", recoveryTime, rows)
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
	if len(w.payers) > 0 {
		w.checkChannels()
	}
}

// arrivedOnce checks that the message of an order is there, and not twice.
func (w *world) arrivedOnce(o order) {
	w.T.Helper()
	if n := w.messages(o.content); n != 1 {
		w.T.Errorf("the message %q is there %d times, want once", o.content, n)
	}
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
