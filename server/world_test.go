package server_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/jackc/pgx/v5"

	parley "github.com/parley-chat/parley"
	"github.com/parley-chat/parley/client"
	"github.com/parley-chat/parley/devnet"
	"github.com/parley-chat/parley/payment"
	"github.com/parley-chat/parley/server"
	"github.com/parley-chat/parley/store"
	"github.com/parley-chat/parley/store/storetest"
	"github.com/parley-chat/parley/x402"
	"github.com/parley-chat/parley/x402/evm"
)

func TestMain(m *testing.M) { storetest.Main(m) }

// world is a server on a real port, with a database of its own and a payment network that moves real balances. Every
// reply is held against the contract, and the server's log against the secrets that went through it.
type world struct {
	*place
	t    testing.TB
	http *http.Client
}

// place is what the tests of one world share; fuzzing looks at one place from many tests.
type place struct {
	url         string
	server      *server.Server
	store       *store.Store
	databaseURL string
	ledger      *devnet.Ledger
	network     *devnet.Facilitator
	log         *safeBuffer

	settles atomic.Int64 // calls of /settle that reached the facilitator
	// fault, if set, sees each call of the facilitator first; it returns true if it has replied.
	fault atomic.Pointer[func(http.ResponseWriter, *http.Request) bool]

	mu      sync.Mutex
	secrets []string
}

var playMoney, _ = x402.LookupNetwork(x402.NetworkBaseSepolia)

func newWorld(t testing.TB, settings ...setting) *world {
	t.Helper()
	return newWorldOn(t, storetest.URL(t), settings...)
}

// setting changes how a world's server is run.
type setting func(config *server.Config, chain *payment.Chain, facilitatorURL string)

func newWorldOn(t testing.TB, databaseURL string, settings ...setting) *world {
	t.Helper()
	w := (&place{log: &safeBuffer{}, databaseURL: databaseURL}).seenBy(t)
	var err error
	if w.store, err = store.Open(t.Context(), w.databaseURL); err != nil {
		t.Fatal(err)
	}
	if w.ledger, err = devnet.OpenLedger(""); err != nil {
		t.Fatal(err)
	}
	w.network = devnet.NewFacilitator(w.ledger)
	facilitator := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/settle" {
			w.settles.Add(1)
		}
		if fault := w.fault.Load(); fault != nil && (*fault)(rw, r) {
			return
		}
		w.network.ServeHTTP(rw, r)
	}))
	config := server.Config{BaseURL: "http://parley.test", Network: playMoney, PayTo: devnet.Payee, FacilitatorURL: facilitator.URL}
	log := slog.New(slog.NewJSONHandler(w.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	var chain payment.Chain = &x402.Chain{URL: facilitator.URL + "/rpc"}
	for _, set := range settings {
		set(&config, &chain, facilitator.URL)
	}
	if w.server, err = server.New(config, w.store, &x402.Facilitator{BaseURL: facilitator.URL}, chain, log); err != nil {
		t.Fatal(err)
	}
	front := httptest.NewServer(w.server.Handler())
	w.url = front.URL
	t.Cleanup(func() {
		front.Close()
		facilitator.Close()
		w.store.Close()
		w.checkLog()
	})
	return w
}

// seenBy is the place with a test to fail.
func (p *place) seenBy(t testing.TB) *world {
	return &world{place: p, t: t, http: &http.Client{Transport: &contractual{t: t, operations: contractRoutes}}}
}

// checkLog fails the test if a key, TAN, payment or message went into the log.
func (w *world) checkLog() {
	w.mu.Lock()
	defer w.mu.Unlock()
	text := w.log.String()
	for _, secret := range w.secrets {
		if strings.Contains(text, secret) {
			w.t.Errorf("the log holds a secret (%.6s…)", secret)
		}
	}
}

func (w *world) secret(texts ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.secrets = append(w.secrets, texts...)
}

// recover runs the recovery worker until no payment is open.
func (w *world) recover() {
	w.t.Helper()
	const states = `'settling', 'unknown'`
	if w.recoverUntil(func() bool { return w.count("SELECT count(*) FROM payments WHERE state IN ("+states+")") == 0 }) {
		return
	}
	w.query(func(c *pgx.Conn) error {
		rows, err := c.Query(w.t.Context(), "SELECT concat_ws(' ', operation, state, failure_reason, attempts) FROM payments WHERE state IN ("+states+")")
		if err != nil {
			return err
		}
		left, err := pgx.CollectRows(rows, pgx.RowTo[string])
		w.t.Errorf("payments are left: %v", left)
		return err
	})
}

// recoverUntil runs the recovery worker until it has done something, and tells whether it did within twenty seconds.
func (w *world) recoverUntil(done func() bool) bool {
	w.t.Helper()
	ctx, stop := context.WithCancel(w.t.Context())
	ended := make(chan struct{})
	go func() { w.server.Recover(ctx); close(ended) }()
	defer func() { stop(); <-ended }()
	for deadline := time.Now().Add(20 * time.Second); !done(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			return false
		}
	}
	return true
}

// sendOnCredit is a message whose payer's money is gone when the payment is to be settled; the payer was good for it before.
func (w *world) sendOnCredit(from, to *agent) (send func() reply) {
	w.t.Helper()
	payer := w.wallet(dollar)
	payment := w.sign(payer, "/chat/private/send")
	body := `{"recipient_agent_id":` + quote(to.id) + `,"content":"on credit"}`
	spend := sync.OnceFunc(func() {
		if err := w.ledger.Transfer(address(payer), address(from.wallet), dollar, "0x"+strings.Repeat("5a", 32), "0x"+strings.Repeat("5b", 32)); err != nil {
			w.t.Error(err)
		}
	})
	return func() reply {
		defer w.breakFacilitator(func(_ http.ResponseWriter, r *http.Request) bool {
			if r.URL.Path == "/settle" {
				spend()
			}
			return false
		})()
		return w.call(http.MethodPost, "/chat/private/send", body, "X-API-KEY", from.key, x402.HeaderPaymentSignature, payment)
	}
}

// revenue is what the payee has, in atomic units.
func (w *world) revenue() uint64 { return w.ledger.Balance(devnet.Payee) }

// wallet makes a wallet with money.
func (w *world) wallet(amount uint64) *ecdsa.PrivateKey {
	w.t.Helper()
	key, err := evm.GenerateKey()
	if err != nil {
		w.t.Fatal(err)
	}
	if err := w.ledger.Mint(evm.PubkeyToAddress(key.PublicKey).Hex(), amount); err != nil {
		w.t.Fatal(err)
	}
	return key
}

const dollar = 1_000_000

// reply is a response that was read.
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
	Details []client.ErrorDetail
}

func (a reply) String() string { return fmt.Sprintf("%d %s", a.status, a.body) }

// call sends a request as it is; headers are pairs.
func (w *world) call(method, path, body string, headers ...string) reply {
	w.t.Helper()
	a, err := w.try(method, path, body, headers...)
	if err != nil {
		w.t.Fatalf("%s %s: %v", method, path, err)
	}
	return a
}

func (w *world) try(method, path, body string, headers ...string) (reply, error) {
	request, err := http.NewRequestWithContext(w.t.Context(), method, w.url+path, strings.NewReader(body))
	if err != nil {
		return reply{}, err
	}
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	response, err := w.http.Do(request)
	if err != nil {
		return reply{}, err
	}
	defer response.Body.Close()
	raw, err := io.ReadAll(response.Body)
	a := reply{status: response.StatusCode, header: response.Header, body: raw}
	if a.status != http.StatusOK {
		_ = json.Unmarshal(raw, &a.problem)
	}
	return a, err
}

// price asks what posting to a path costs.
func (w *world) price(path string) *x402.PaymentRequired {
	w.t.Helper()
	return w.priceOf(http.MethodPost, path)
}

func (w *world) priceOf(method, path string) *x402.PaymentRequired {
	w.t.Helper()
	a := w.call(method, path, "")
	required, err := x402.DecodePaymentRequired(a.header.Get(x402.HeaderPaymentRequired))
	if a.status != http.StatusPaymentRequired || err != nil {
		w.t.Fatalf("the price of %s: %v (%v)", path, a, err)
	}
	return required
}

// sign makes a payment for posting to a path, changed before it is signed.
func (w *world) sign(key *ecdsa.PrivateKey, path string, changes ...func(*x402.PaymentPayload)) string {
	w.t.Helper()
	return w.signFor(key, http.MethodPost, path, changes...)
}

// signFor makes a payment for an operation.
func (w *world) signFor(key *ecdsa.PrivateKey, method, path string, changes ...func(*x402.PaymentPayload)) string {
	w.t.Helper()
	required := w.priceOf(method, path)
	payload, err := x402.Sign(key, required.Accepts[0], &required.Resource, required.Extensions, time.Now())
	if err != nil {
		w.t.Fatal(err)
	}
	for _, change := range changes {
		change(payload)
		domain, err := x402.DomainOf(required.Accepts[0])
		if err != nil {
			w.t.Fatal(err)
		}
		if payload.Payload.Signature, err = x402.SignAuthorization(key, domain, payload.Payload.Authorization); err != nil {
			w.t.Fatal(err)
		}
	}
	header, err := x402.EncodePaymentPayload(payload)
	if err != nil {
		w.t.Fatal(err)
	}
	w.secret(header, payload.Payload.Signature)
	return header
}

// pay posts a request with a new payment.
func (w *world) pay(key *ecdsa.PrivateKey, path, body string, headers ...string) reply {
	w.t.Helper()
	return w.call(http.MethodPost, path, body, append(headers, x402.HeaderPaymentSignature, w.sign(key, path))...)
}

// agent is a registered agent with its wallet.
type agent struct {
	*client.ClientWithResponses
	w      *world
	name   string
	id     string
	key    string
	wallet *ecdsa.PrivateKey
}

// agent registers an agent, with real payments.
func (w *world) agent(name string) *agent {
	w.t.Helper()
	a := &agent{w: w, name: name, wallet: w.wallet(1000 * dollar)}
	payer, err := client.NewPayer(fmt.Sprintf("%x", evm.FromECDSA(a.wallet)), client.Limits{PerCall: dollar, Total: 100 * dollar})
	if err != nil {
		w.t.Fatal(err)
	}
	payer.Base = w.http.Transport
	if a.ClientWithResponses, err = client.New(w.url, payer, func(c *client.Client) error {
		c.RequestEditors = append(c.RequestEditors, func(_ context.Context, r *http.Request) error {
			if a.key != "" {
				r.Header.Set("X-API-KEY", a.key)
			}
			return nil
		})
		return nil
	}); err != nil {
		w.t.Fatal(err)
	}
	ctx := w.t.Context()
	requested, err := a.RequestAccountWithResponse(ctx, client.RequestAccountRequest{RequestedUsername: name})
	if err != nil || requested.JSON200 == nil {
		w.t.Fatalf("%s requests an account: %v %s", name, err, requested.Body)
	}
	created, err := a.CreateAccountWithResponse(ctx, client.CreateAccountRequest{Username: name, TAN: *requested.JSON200.TAN, Description: "I am " + name + "."})
	if err != nil || created.JSON200 == nil {
		w.t.Fatalf("%s creates an account: %v %s", name, err, created.Body)
	}
	a.key = *created.JSON200.APIKey
	w.secret(a.key, *requested.JSON200.TAN)
	me, err := a.GetOwnAgentWithResponse(ctx)
	if err != nil || me.JSON200 == nil {
		w.t.Fatalf("%s sees itself: %v %s", name, err, me.Body)
	}
	a.id = me.JSON200.AgentID
	return a
}

// send writes a private message and returns the chat's and the message's id.
func (a *agent) send(to *agent, content string) (chat, message string) {
	a.w.t.Helper()
	a.w.secret(content)
	sent, err := a.SendPrivateMessageWithResponse(a.w.t.Context(), client.SendPrivateMessageRequest{RecipientAgentID: to.id, Content: content})
	if err != nil || sent.JSON200 == nil {
		a.w.t.Fatalf("%s writes to %s: %v %s", a.name, to.name, err, sent.Body)
	}
	return sent.JSON200.ChatID, sent.JSON200.MessageID
}

// contractual holds every reply of the server against the contract.
type contractual struct {
	t          testing.TB
	operations map[string]*routers.Route
}

var contractRoutes = func() map[string]*routers.Route {
	document, err := openapi3.NewLoader().LoadFromData(parley.Contract)
	if err != nil {
		panic(err)
	}
	document.Servers = nil
	routes := map[string]*routers.Route{}
	for path, item := range document.Paths.Map() {
		for method, operation := range item.Operations() {
			routes[method+" "+path] = &routers.Route{Spec: document, Path: path, PathItem: item, Method: method, Operation: operation}
		}
	}
	return routes
}()

func (c *contractual) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := http.DefaultTransport.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(response.Body)
	_ = response.Body.Close()
	response.Body = io.NopCloser(bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if response.Header.Get("X-Request-Id") == "" {
		c.t.Errorf("%s %s: the reply has no X-Request-Id", request.Method, request.URL.Path)
	}
	if route := c.operations[request.Method+" "+request.URL.Path]; route != nil {
		err := openapi3filter.ValidateResponse(context.Background(), &openapi3filter.ResponseValidationInput{
			RequestValidationInput: &openapi3filter.RequestValidationInput{Request: request, Route: route},
			Status:                 response.StatusCode, Header: response.Header, Body: io.NopCloser(bytes.NewReader(body)),
			Options: &openapi3filter.Options{IncludeResponseStatus: true},
		})
		if err != nil {
			c.t.Errorf("%s %s replies %d against the contract: %v", request.Method, request.URL.Path, response.StatusCode, err)
		}
	}
	return response, nil
}

// safeBuffer is a buffer that many may write.
type safeBuffer struct {
	mu     sync.Mutex
	buffer bytes.Buffer
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.Write(p)
}

func (b *safeBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.String()
}

// admin is the reply of the operators' listener: its status and body; of /metrics only the body.
func (w *world) admin(path string) string {
	w.t.Helper()
	recorder := httptest.NewRecorder()
	w.server.Admin().ServeHTTP(recorder, httptest.NewRequestWithContext(w.t.Context(), http.MethodGet, path, nil))
	if path == "/metrics" {
		return recorder.Body.String()
	}
	return fmt.Sprintf("%d %s", recorder.Code, recorder.Body)
}

func address(key *ecdsa.PrivateKey) string { return evm.PubkeyToAddress(key.PublicKey).Hex() }
