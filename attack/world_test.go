//go:build attack

package attack

import (
	"context"
	"crypto/ecdsa"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/jackc/pgx/v5"

	parley "github.com/parley-chat/parley"
	"github.com/parley-chat/parley/devnet"
	"github.com/parley-chat/parley/store/storetest"
	"github.com/parley-chat/parley/x402"
	"github.com/parley-chat/parley/x402/evm"
)

func TestMain(m *testing.M) { storetest.Main(m) }

const dollar = 1_000_000

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
	t           testing.TB
	databaseURL string
	ledger      *devnet.Ledger
	network     *devnet.Facilitator
	proxy       *proxy
	http        *http.Client

	mu       sync.Mutex
	servers  []*server
	secrets  []string
	contents map[string]bool // every message content that was ever sent
	errors   strings.Builder // the body of every reply that was not a 200
}

func newWorld(t testing.TB) *world {
	t.Helper()
	return newWorldOn(t, storetest.URL(t))
}

func newWorldOn(t testing.TB, databaseURL string) *world {
	t.Helper()
	w := &world{t: t, databaseURL: databaseURL, contents: map[string]bool{}}
	var err error
	if w.ledger, err = devnet.OpenLedger(""); err != nil {
		t.Fatal(err)
	}
	w.network = devnet.NewFacilitator(w.ledger)
	w.proxy = newProxy(t, w.network)
	// Servers die and come back: a kept connection would be of the life before.
	w.http = &http.Client{
		Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 2 * time.Minute,
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

// secret notes texts that no output may hold.
func (w *world) secret(texts ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.secrets = append(w.secrets, texts...)
}

// checkSecrets looks for them in what the servers printed and in the bodies of all errors.
func (w *world) checkSecrets() {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	places := map[string]string{"an error's body": w.errors.String()}
	for _, s := range w.servers {
		places["the output of "+s.url] = s.output.String()
	}
	for place, text := range places {
		for _, secret := range w.secrets {
			if strings.Contains(text, secret) {
				w.t.Errorf("%s holds a secret (%.12s…)", place, secret)
			}
		}
	}
}

// wallet makes a wallet with money, in atomic units.
func (w *world) wallet(amount uint64) *ecdsa.PrivateKey {
	w.t.Helper()
	key, err := evm.GenerateKey()
	if err != nil {
		w.t.Fatal(err)
	}
	if amount > 0 {
		if err := w.ledger.Mint(addressOf(key), amount); err != nil {
			w.t.Fatal(err)
		}
	}
	return key
}

func addressOf(key *ecdsa.PrivateKey) string { return evm.PubkeyToAddress(key.PublicKey).Hex() }

// revenue is what the payee has, in atomic units.
func (w *world) revenue() uint64 { return w.ledger.Balance(devnet.Payee) }

// reply is a reply that was read.
type reply struct {
	status int
	header http.Header
	body   []byte
	problem
}

// problem is what the tests look at in an error's body.
type problem struct {
	Code    string
	Message string
	Charged bool
}

func (r reply) String() string {
	if r.status == 0 {
		return "no reply"
	}
	return fmt.Sprintf("%d %.600s", r.status, r.body)
}

// try sends a request as it is; headers are pairs. The error is a connection that was lost or never came about.
func (s *server) try(ctx context.Context, method, path, body string, headers ...string) (reply, error) {
	request, err := http.NewRequestWithContext(ctx, method, s.url+path, strings.NewReader(body))
	if err != nil {
		return reply{}, err
	}
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	response, err := s.w.http.Do(request)
	if err != nil {
		return reply{}, err
	}
	defer response.Body.Close()
	raw, err := io.ReadAll(response.Body)
	if err != nil {
		return reply{}, err
	}
	r := reply{status: response.StatusCode, header: response.Header, body: raw}
	if r.status != http.StatusOK {
		_ = json.Unmarshal(raw, &r.problem)
		s.w.mu.Lock()
		s.w.errors.Write(raw)
		s.w.mu.Unlock()
	}
	if r.status == http.StatusInternalServerError {
		s.w.t.Errorf("%s %s: %v, and nothing may return 500", method, path, r)
	}
	return r, nil
}

// call is try that must get a reply.
func (s *server) call(method, path, body string, headers ...string) reply {
	s.w.t.Helper()
	r, err := s.try(s.w.t.Context(), method, path, body, headers...)
	if err != nil {
		s.w.t.Fatalf("%s %s: %v", method, path, err)
	}
	return r
}

// operation is what the contract says about a paid operation.
type operation struct {
	id, method, path string
	price            uint64 // atomic units
}

var playMoney, _ = x402.LookupNetwork(x402.NetworkBaseSepolia)

// operations are the contract's paid ones, by path: prices are known without asking a server.
var operations = func() map[string]operation {
	document, err := openapi3.NewLoader().LoadFromData(parley.Contract)
	if err != nil {
		panic(err)
	}
	paid := map[string]operation{}
	for path, item := range document.Paths.Map() {
		for method, described := range item.Operations() {
			info, _ := described.Extensions["x-payment-info"].(map[string]any)
			price, _ := info["price"].(map[string]any)
			amount, _ := price["amount"].(string)
			if amount == "" {
				continue
			}
			atomic, err := x402.AtomicAmount(amount)
			if err != nil {
				panic(err)
			}
			paid[path] = operation{described.OperationID, method, path, atomic}
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
	w.t.Helper()
	operation, ok := operations[path]
	if !ok {
		w.t.Fatalf("%s is no paid operation", path)
	}
	offer := playMoney.Requirements(operation.price, devnet.Payee, 60)
	payload, err := x402.Sign(key, offer, nil, nil, time.Now())
	if err != nil {
		w.t.Fatal(err)
	}
	for _, change := range changes {
		change(payload)
	}
	domain, err := x402.DomainOf(offer)
	if err != nil {
		w.t.Fatal(err)
	}
	if payload.Payload.Signature, err = x402.SignAuthorization(key, domain, payload.Payload.Authorization); err != nil {
		w.t.Fatal(err)
	}
	return w.encode(payload), payload
}

// encode spells a payment as a header, and remembers it as a secret.
func (w *world) encode(payload *x402.PaymentPayload) string {
	w.t.Helper()
	header, err := x402.EncodePaymentPayload(payload)
	if err != nil {
		w.t.Fatal(err)
	}
	w.secret(header)
	if signature := payload.Payload.Signature; len(signature) > 40 { // some tests send less
		w.secret(signature)
	}
	return header
}

// secret are the paths of the operations whose responses hold a secret. They are repeated only to a payment identifier, or
// to a fresh authorization by the same wallet.
var secret = map[string]bool{"/register/request_account": true, "/register/create_account": true, "/agent/rotate_key": true}

// named puts a payment identifier of its own into a payment.
func named(p *x402.PaymentPayload) {
	var random [32]byte
	_, _ = rand.Read(random[:])
	p.Extensions = map[string]jsontext.Value{"payment-identifier": jsontext.Value(fmt.Sprintf(`{"info":{"required":false,"id":"%x"}}`, random))}
}

// order signs a payment for a request; key is the API key, "" for none. Where the response holds a secret the payment has an
// identifier, so that the order can be sent again.
func (w *world) order(wallet *ecdsa.PrivateKey, key, path string, body map[string]any, changes ...func(*x402.PaymentPayload)) order {
	w.t.Helper()
	o := order{operation: operations[path]}
	if secret[path] {
		changes = append([]func(*x402.PaymentPayload){named}, changes...)
	}
	o.header, o.payment = w.sign(wallet, path, changes...)
	if body != nil {
		raw, err := json.Marshal(body)
		if err != nil {
			w.t.Fatal(err)
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
	w.t.Helper()
	header, err := x402.EncodePaymentPayloadV1(o.payment, playMoney.V1Name)
	if err != nil {
		w.t.Fatal(err)
	}
	w.secret(header)
	o.header, o.v1 = header, true
	return o
}

// send sends the order; the error is a lost connection. Headers come on top.
func (s *server) send(ctx context.Context, o order, headers ...string) (reply, error) {
	name := x402.HeaderPaymentSignature
	if o.v1 {
		name = x402.HeaderPaymentV1
	}
	all := append([]string{name, o.header}, o.headers...)
	return s.try(ctx, o.method, o.path, o.body, append(all, headers...)...)
}

// pay is send that must get a reply.
func (s *server) pay(o order, headers ...string) reply {
	s.w.t.Helper()
	r, err := s.send(s.w.t.Context(), o, headers...)
	if err != nil {
		s.w.t.Fatalf("%s: %v", o.id, err)
	}
	return r
}

// sendAll sends orders at the same time and returns their replies in order; one that was lost has status 0.
func (s *server) sendAll(orders ...order) []reply {
	replies := make([]reply, len(orders))
	var group sync.WaitGroup
	for i, o := range orders {
		group.Go(func() { replies[i], _ = s.send(s.w.t.Context(), o) })
	}
	group.Wait()
	return replies
}

// statuses counts the replies by status.
func statuses(replies []reply) map[int]int {
	counts := map[int]int{}
	for _, r := range replies {
		counts[r.status]++
	}
	return counts
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
	s.w.t.Helper()
	a := &agent{w: s.w, name: name, wallet: s.w.wallet(1000 * dollar)}
	r := s.pay(a.creates(s))
	a.learn(r)
	var me struct {
		AgentID string `json:"agent_id"`
	}
	r = s.pay(s.w.order(a.wallet, a.key, "/agent/me", nil))
	if err := json.Unmarshal(r.body, &me); err != nil || me.AgentID == "" {
		s.w.t.Fatalf("%s sees itself: %v", name, r)
	}
	a.id = me.AgentID
	return a
}

// creates requests the agent's account and returns the order that creates it.
func (a *agent) creates(s *server) order {
	a.w.t.Helper()
	requested := s.pay(a.w.order(a.wallet, "", "/register/request_account", map[string]any{"requested_username": a.name}))
	var reply struct{ TAN string }
	if err := json.Unmarshal(requested.body, &reply); err != nil || reply.TAN == "" {
		a.w.t.Fatalf("%s requests an account: %v", a.name, requested)
	}
	a.w.secret(reply.TAN)
	return a.w.order(a.wallet, "", "/register/create_account", map[string]any{"username": a.name, "tan": reply.TAN, "description": "I am " + a.name + "."})
}

// learn reads the API key out of the reply to creates.
func (a *agent) learn(r reply) {
	a.w.t.Helper()
	var reply struct {
		APIKey string `json:"api_key"`
	}
	if err := json.Unmarshal(r.body, &reply); err != nil || reply.APIKey == "" {
		a.w.t.Fatalf("%s creates an account: %v", a.name, r)
	}
	a.key = reply.APIKey
	a.w.secret(a.key)
}

// contentNumber makes texts and names that there are only once.
var contentNumber atomic.Int64

// content makes a message text that there is only once and that no other text contains.
func (w *world) content(about string) string {
	text := fmt.Sprintf("%s, confidential number %06d of %d", about, contentNumber.Add(1), time.Now().UnixNano())
	w.secret(text)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.contents[text] = true
	return text
}

// says is the order to send a private message with a new content.
func (a *agent) says(to *agent, about string, changes ...func(*x402.PaymentPayload)) order {
	a.w.t.Helper()
	return a.saysFrom(a.wallet, to, about, changes...)
}

// saysFrom is says paid by another wallet.
func (a *agent) saysFrom(wallet *ecdsa.PrivateKey, to *agent, about string, changes ...func(*x402.PaymentPayload)) order {
	a.w.t.Helper()
	content := a.w.content(about)
	o := a.w.order(wallet, a.key, "/chat/private/send", map[string]any{"recipient_agent_id": to.id, "content": content}, changes...)
	o.content = content
	return o
}

// scan runs a query that replies one row, on a connection of its own.
func (w *world) scan(query string, args []any, values ...any) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	connection, err := pgx.Connect(ctx, w.databaseURL)
	if err != nil {
		return err
	}
	defer connection.Close(ctx)
	return connection.QueryRow(ctx, query, args...).Scan(values...)
}

// exec changes the database behind the servers' backs.
func (w *world) exec(statement string, args ...any) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	connection, err := pgx.Connect(ctx, w.databaseURL)
	if err != nil {
		w.t.Fatal(err)
	}
	defer connection.Close(ctx)
	if _, err := connection.Exec(ctx, statement, args...); err != nil {
		w.t.Fatalf("%s: %v", statement, err)
	}
}

// count runs a query that replies one number.
func (w *world) count(query string, args ...any) (n int) {
	w.t.Helper()
	if err := w.scan(query, args, &n); err != nil {
		w.t.Fatalf("%s: %v", query, err)
	}
	return n
}

// messages is how often a content was delivered.
func (w *world) messages(content string) int {
	w.t.Helper()
	return w.count("SELECT count(*) FROM messages WHERE content = $1", content)
}

// state is what the ledger says about an order: state and failure reason, "" if it has no row.
func (w *world) state(o order) (state string) {
	w.t.Helper()
	if err := w.scan("SELECT coalesce((SELECT state FROM payments WHERE nonce = $1), '')", []any{strings.ToLower(o.payment.Payload.Authorization.Nonce)}, &state); err != nil {
		w.t.Fatal(err)
	}
	return state
}

// used tells whether the order's money has moved on the chain, or can no longer move.
func (w *world) used(o order) bool {
	return w.ledger.Used(o.payment.Payload.Authorization.From, o.payment.Payload.Authorization.Nonce)
}

// eventually waits until a condition holds, at most that long.
func eventually(patience time.Duration, holds func() bool) bool {
	for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		if holds() {
			return true
		}
		if time.Now().After(deadline) {
			return false
		}
	}
}

// recoveryTime is how long the servers have to finish what was begun.
const recoveryTime = 20 * time.Second

// check waits until no payment is open any more, and then compares the books with the world: the promise, seen from
// outside.
func (w *world) check() {
	w.t.Helper()
	const open = "SELECT count(*) FROM payments WHERE state IN ('settling', 'unknown')"
	if !eventually(recoveryTime, func() bool { return w.count(open) == 0 }) {
		var rows string
		_ = w.scan(`SELECT string_agg(format('%s %s %s (%s attempts, %s)', operation, nonce, state, attempts, failure_reason), E'\n') FROM payments
			WHERE state IN ('settling', 'unknown')`, nil, &rows)
		w.t.Errorf("after %s payments are still open:\n%s", recoveryTime, rows)
	}
	// A call whose caller hung up may have begun only now.
	var paid, revenue uint64
	if !eventually(recoveryTime, func() bool {
		if err := w.scan("SELECT coalesce(sum(amount), 0)::bigint FROM payments WHERE state IN ('delivered', 'undeliverable')", nil, &paid); err != nil {
			w.t.Fatal(err)
		}
		revenue = w.revenue()
		return revenue == paid
	}) {
		w.t.Errorf("the payee has %d on the chain, but the ledger says that %d were paid", revenue, paid)
	}
	if kept := w.count("SELECT count(*) FROM payments WHERE state NOT IN ('settling', 'unknown') AND (payload IS NOT NULL OR request IS NOT NULL)"); kept > 0 {
		w.t.Errorf("%d closed payments still hold their payload or request", kept)
	}
	w.checkEffects()
	w.checkContents()
}

// arrivedOnce checks that the message of an order is there, and not twice.
func (w *world) arrivedOnce(o order) {
	w.t.Helper()
	if n := w.messages(o.content); n != 1 {
		w.t.Errorf("the message %q is there %d times, want once", o.content, n)
	}
}

// checkEffects compares what was paid for with what is there.
func (w *world) checkEffects() {
	w.t.Helper()
	for _, effect := range []struct{ operation, query string }{
		{"createAccount", "SELECT count(*) FROM agents"},
		{"createGroupChat", "SELECT count(*) FROM conversations WHERE kind = 'group'"},
		{"createChannel", "SELECT count(*) FROM conversations WHERE kind = 'channel'"},
		{"sendPrivateMessage", "SELECT count(*) FROM messages m JOIN conversations c ON c.id = m.conversation_id WHERE kind = 'private' AND content NOT LIKE '%(ch%_%).%'"},
		{"sendGroupMessage", "SELECT count(*) FROM messages m JOIN conversations c ON c.id = m.conversation_id WHERE kind = 'group'"},
		{"sendChannelMessage", "SELECT count(*) FROM messages m JOIN conversations c ON c.id = m.conversation_id WHERE kind = 'channel'"},
	} {
		// Both in one statement, so that they are of one moment.
		var delivered, there int64
		err := w.scan("SELECT (SELECT count(*) FROM payments WHERE state = 'delivered' AND operation = $1), ("+effect.query+")",
			[]any{effect.operation}, &delivered, &there)
		if err != nil {
			w.t.Fatal(err)
		}
		if there != delivered {
			w.t.Errorf("%s was delivered %d times according to the ledger, its effect is there %d times", effect.operation, delivered, there)
		}
	}
}

// checkContents looks for messages twice, or that nobody sent.
func (w *world) checkContents() {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	connection, err := pgx.Connect(ctx, w.databaseURL)
	if err != nil {
		w.t.Fatal(err)
	}
	defer connection.Close(ctx)
	rows, err := connection.Query(ctx, "SELECT content, count(*) FROM messages WHERE content NOT LIKE '%(ch%_%).%' GROUP BY content")
	if err != nil {
		w.t.Fatal(err)
	}
	defer rows.Close()
	w.mu.Lock()
	defer w.mu.Unlock()
	for rows.Next() {
		var content string
		var n int
		if err := rows.Scan(&content, &n); err != nil {
			w.t.Fatal(err)
		}
		if n != 1 || !w.contents[content] {
			w.t.Errorf("the message %q is there %d times (sent by the test: %v), want once", content, n, w.contents[content])
		}
	}
	if err := rows.Err(); err != nil {
		w.t.Fatal(err)
	}
}
