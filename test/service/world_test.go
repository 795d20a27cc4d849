package service

import (
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/parley-chat/parley/client"
	"github.com/parley-chat/parley/internal/devnet"
	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/payment"
	"github.com/parley-chat/parley/server"
	"github.com/parley-chat/parley/store"
	"github.com/parley-chat/parley/store/storetest"
	"github.com/parley-chat/parley/x402"
)

// serverSecret is the secret of all worlds.
var serverSecret = server.Secret{1}

func TestMain(m *testing.M) { storetest.Main(m) }

// world is a server on a real port, with a database of its own and a payment network that moves real balances. Every
// response is checked against the contract, and the server's log for the secrets that went through it.
type world struct {
	*testkit.World
	*place
	http *http.Client
}

// place is what the tests of one world share: fuzzing uses one place for many tests.
type place struct {
	url    string
	server *server.Server
	store  *store.Store
	log    *testkit.Buffer

	settles atomic.Int64 // calls of /settle that reached the facilitator
	// fault, if set, sees each call of the facilitator first; it returns true if it has replied.
	fault atomic.Pointer[func(http.ResponseWriter, *http.Request) bool]
}

func newWorld(t testing.TB, settings ...setting) *world {
	t.Helper()
	return newWorldOn(t, storetest.URL(t), settings...)
}

// setting changes how a world's server is run.
type setting func(config *server.Config, chain *payment.Chain, facilitatorURL string)

func newWorldOn(t testing.TB, databaseURL string, settings ...setting) *world {
	t.Helper()
	return newWorldOver(t, databaseURL, databaseURL, settings...)
}

// newWorldOver returns a world whose server reaches the database by another URL than the test.
func newWorldOver(t testing.TB, databaseURL, serversURL string, settings ...setting) *world {
	t.Helper()
	w := (&world{World: testkit.NewWorld(t, databaseURL), place: &place{log: &testkit.Buffer{}}}).forTest(t)
	limits := storetest.Patient
	if serversURL != databaseURL { // the test is about a bad connection
		limits = store.Serving
	}
	var err error
	if w.store, err = store.Open(t.Context(), serversURL, limits); err != nil {
		t.Fatal(err)
	}
	facilitator := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/settle" {
			w.settles.Add(1)
		}
		if fault := w.fault.Load(); fault != nil && (*fault)(rw, r) {
			return
		}
		w.Facilitator.ServeHTTP(rw, r)
	}))
	config := server.Config{BaseURL: "http://parley.test", Network: testkit.PlayMoney, PayTo: devnet.Payee, FacilitatorURL: facilitator.URL,
		CheckTime: 10 * time.Second,
		Secrets:   []server.Secret{serverSecret}}
	log := slog.New(slog.NewJSONHandler(w.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	var chain payment.Chain = &x402.Chain{URL: facilitator.URL + "/rpc", HTTPClient: facilitator.Client()}
	for _, set := range settings {
		set(&config, &chain, facilitator.URL)
	}
	// The default transport loses its connections when a server of another test closes.
	client := &x402.Facilitator{BaseURL: facilitator.URL, HTTPClient: facilitator.Client()}
	if w.server, err = server.New(config, w.store, client, chain, log); err != nil {
		t.Fatal(err)
	}
	front := httptest.NewServer(w.server.Handler())
	w.url = front.URL
	t.Cleanup(func() {
		front.Close()
		facilitator.Close()
		w.store.Close()
		w.CheckSecrets(t, "the log", w.log.String())
	})
	return w
}

// beside is another server on the database and the payment network of a world. It remembers nothing.
func (w *world) beside(settings ...setting) *world {
	w.T.Helper()
	other := newWorldOn(w.T, w.DatabaseURL, append([]setting{withChannels}, settings...)...)
	other.Ledger, other.Facilitator, other.Secrets = w.Ledger, w.Facilitator, w.Secrets
	return other
}

// forTest returns the world for another test, which fails if something goes wrong.
func (w *world) forTest(t testing.TB) *world {
	return &world{World: w.ForTest(t), place: w.place, http: &http.Client{Transport: &testkit.Contractual{T: t}}}
}

// recover runs the recovery worker until no payment is open.
func (w *world) recover() {
	w.T.Helper()
	const states = `'settling', 'unknown'`
	if w.recoverUntil(func() bool { return w.Count("SELECT count(*) FROM payments WHERE state IN ("+states+")") == 0 }) {
		return
	}
	var left []string
	w.Scan("SELECT array_agg(concat_ws(' ', operation, state, failure_reason, attempts)) FROM payments WHERE state IN ("+states+")",
		nil, &left)
	w.T.Errorf("payments are left: %v", left)
}

// recoverUntil runs the recovery worker until it has done something, and reports whether it did within twenty seconds.
func (w *world) recoverUntil(done func() bool) bool {
	w.T.Helper()
	return w.recoverFor(20*time.Second, done)
}

// recoverFor is recoverUntil with another limit.
func (w *world) recoverFor(limit time.Duration, done func() bool) bool {
	w.T.Helper()
	ctx, stop := context.WithCancel(w.T.Context())
	ended := make(chan struct{})
	go func() { w.server.Recover(ctx); close(ended) }()
	defer func() { stop(); <-ended }()
	return testkit.Eventually(limit, done)
}

// sendOnCredit is a message whose payer's money is gone when the payment is to be settled; the payer was good for it before.
func (w *world) sendOnCredit(from, to *agent) (send func() testkit.Reply) {
	w.T.Helper()
	payer := w.Wallet(testkit.Dollar)
	payment := w.sign(payer, "/chat/private/send")
	spend := sync.OnceFunc(func() {
		w.transfer(x402.Authorization{From: testkit.Address(payer), To: testkit.Address(from.Wallet)}, testkit.Dollar)
	})
	return func() testkit.Reply {
		defer w.atSettlement(spend)()
		return from.sendWith(payment, to, "on credit")
	}
}

// transfer moves money on the chain, without the facilitator. An authorization without a nonce gets one.
func (w *world) transfer(signed x402.Authorization, amount uint64) {
	w.T.Helper()
	hash := func() string { return fmt.Sprintf("0x%x", sha256.Sum256([]byte(rand.Text()))) }
	if err := w.Ledger.Transfer(signed.From, signed.To, amount, cmp.Or(signed.Nonce, hash()), hash()); err != nil {
		w.T.Error(err)
	}
}

// atSettlement does something whenever the facilitator is asked to settle, until the returned function is called.
func (w *world) atSettlement(do func()) (mend func()) {
	return w.breakFacilitator(func(_ http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path == "/settle" {
			do()
		}
		return false
	})
}

// known repeats a call while the outcome of its payment is unknown, another call settles it, or too many need the chain, as a client does.
// On a busy machine the facilitator or the chain may take too long.
func known(send func() testkit.Reply) (a testkit.Reply) {
	testkit.Eventually(time.Minute, func() bool {
		a = send()
		return a.Code != "payment_unknown" && a.Code != "payment_in_progress" && a.Code != "rate_limited"
	})
	return a
}

// call sends a request as it is; headers are pairs.
func (w *world) call(method, path, body string, headers ...string) testkit.Reply {
	w.T.Helper()
	r, err := w.try(method, path, body, headers...)
	if err != nil {
		w.T.Fatalf("%s %s: %v", method, path, err)
	}
	return r
}

func (w *world) try(method, path, body string, headers ...string) (testkit.Reply, error) {
	return testkit.Request(w.T.Context(), w.http, method, w.url+path, body, headers...)
}

// price asks what posting to a path costs.
func (w *world) price(path string) *x402.PaymentRequired {
	w.T.Helper()
	return w.priceOf(http.MethodPost, path)
}

func (w *world) priceOf(method, path string) *x402.PaymentRequired {
	w.T.Helper()
	a := w.call(method, path, "")
	required, err := x402.DecodePaymentRequired(a.Header.Get(x402.HeaderPaymentRequired))
	if a.Status != http.StatusPaymentRequired || err != nil {
		w.T.Fatalf("the price of %s: %v (%v)", path, a, err)
	}
	return required
}

// sign makes a payment for posting to a path, changed before it is signed.
func (w *world) sign(key *ecdsa.PrivateKey, path string, changes ...func(*x402.PaymentPayload)) string {
	w.T.Helper()
	return w.signFor(key, http.MethodPost, path, changes...)
}

// signFor makes a payment for an operation.
func (w *world) signFor(key *ecdsa.PrivateKey, method, path string, changes ...func(*x402.PaymentPayload)) string {
	w.T.Helper()
	return w.Encode(testkit.Payment(w.T, key, w.priceOf(method, path), changes...))
}

// pay posts a request with a new payment.
func (w *world) pay(key *ecdsa.PrivateKey, path, body string, headers ...string) testkit.Reply {
	w.T.Helper()
	return w.call(http.MethodPost, path, body, append(headers, x402.HeaderPaymentSignature, w.sign(key, path))...)
}

// agent is a registered agent of a world.
type agent struct {
	*testkit.Agent
	w *world
}

// agent registers an agent, with real payments.
func (w *world) agent(name string) *agent {
	w.T.Helper()
	a := &agent{testkit.NewAgent(w.T, w.url, w.Wallet(1000*testkit.Dollar), testkit.Sparing, w.http.Transport, nil), w}
	tan := a.Register(w.T, name)
	w.Secret(tan, a.Key)
	a.SetID(w.T)
	return a
}

// send writes a private message and returns the chat's and the message's id.
func (a *agent) send(to *agent, content string) (chat, message string) {
	a.w.T.Helper()
	a.w.Secret(content)
	sent, err := a.SendPrivateMessageWithResponse(a.w.T.Context(), client.SendPrivateMessageRequest{RecipientAgentID: to.ID, Content: content})
	testkit.Require200(a.w.T, fmt.Sprintf("%s writes to %s", a.Name, to.Name), sent, err)
	return sent.JSON200.ChatID, sent.JSON200.MessageID
}

const sendPath = "/chat/private/send" // 5000 units

// sends sends a private message with a new payment of the agent's wallet.
func (a *agent) sends(to *agent, content string) testkit.Reply {
	a.w.T.Helper()
	return a.sendWith(a.w.sign(a.Wallet, sendPath), to, content)
}

// sendWith sends a private message with a payment.
func (a *agent) sendWith(payment string, to *agent, content string) testkit.Reply {
	a.w.T.Helper()
	body := `{"recipient_agent_id":` + quote(to.ID) + `,"content":` + quote(content) + `}`
	r, err := a.w.try(http.MethodPost, sendPath, body, "X-API-KEY", a.Key, x402.HeaderPaymentSignature, payment)
	if err != nil {
		a.w.T.Error(err)
	}
	return r
}

// admin is the reply of the operators' listener: its status and body; of /metrics only the body.
func (w *world) admin(path string) string {
	w.T.Helper()
	recorder := httptest.NewRecorder()
	w.server.Admin().ServeHTTP(recorder, httptest.NewRequestWithContext(w.T.Context(), http.MethodGet, "http://127.0.0.1:8404"+path, nil))
	if path == "/metrics" {
		return recorder.Body.String()
	}
	return fmt.Sprintf("%d %s", recorder.Code, recorder.Body)
}
