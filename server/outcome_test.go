package server_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/payment"
	"github.com/parley-chat/parley/server"
	"github.com/parley-chat/parley/x402"
)

// breakFacilitator makes the facilitator misbehave until the returned function is called.
func (w *world) breakFacilitator(fault func(rw http.ResponseWriter, r *http.Request) bool) (mend func()) {
	w.fault.Store(&fault)
	return func() { w.fault.Store(nil) }
}

// settleAndThen lets the facilitator settle, throws its reply away and replies something else.
func (w *world) settleAndThen(reply func(rw http.ResponseWriter)) func(http.ResponseWriter, *http.Request) bool {
	return func(rw http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path != "/settle" {
			return false
		}
		w.Facilitator.ServeHTTP(httptest.NewRecorder(), r)
		reply(rw)
		return true
	}
}

// TestUnclearSettlements: whatever the facilitator does, there is no effect without money and no money without effect,
// and the same payment sent again ends the story with one charge and one message.
func TestUnclearSettlements(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice, bob := w.agent("alice"), w.agent("bob")
	notMoved := func(reply func(rw http.ResponseWriter)) func(http.ResponseWriter, *http.Request) bool {
		return func(rw http.ResponseWriter, _ *http.Request) bool { reply(rw); return true }
	}
	write := func(status int, body string) func(http.ResponseWriter) {
		return func(rw http.ResponseWriter) { rw.WriteHeader(status); _, _ = io.WriteString(rw, body) }
	}
	for _, test := range []struct {
		name  string
		fault func(http.ResponseWriter, *http.Request) bool
	}{
		{"HTML, money not moved", notMoved(write(200, "<html>welcome</html>"))},
		{"500, money not moved", notMoved(write(500, "oops"))},
		{"an empty reply, money not moved", notMoved(write(200, ""))},
		{"hangs up, money not moved", notMoved(testkit.HangUp)},
		{"HTML, money moved", w.settleAndThen(write(200, "<html>welcome</html>"))},
		{"500, money moved", w.settleAndThen(write(500, ""))},
		{"success without a transaction, money moved", w.settleAndThen(write(200, `{"success":true,"network":"eip155:84532"}`))},
		{"hangs up, money moved", w.settleAndThen(testkit.HangUp)},
		{"pending, and still pending", notMoved(write(200,
			`{"success":false,"errorReason":"settlement_pending","transaction":"0x12","network":"eip155:84532"}`))},
	} {
		revenue, messages := w.Revenue(), w.Count("SELECT count(*) FROM messages")
		content := "sent while: " + test.name
		body := `{"recipient_agent_id":` + quote(bob.ID) + `,"content":` + quote(content) + `}`
		payment := w.sign(alice.Wallet, "/chat/private/send")
		send := func() testkit.Reply { return alice.sendWith(payment, bob, content) }
		mend := w.breakFacilitator(test.fault)
		a := send()
		if a.Status != http.StatusServiceUnavailable || a.Code != "payment_unknown" || a.Header.Get("Retry-After") == "" ||
			bytes.Contains(a.Body, []byte(`"charged"`)) {
			t.Errorf("%s: %v, want 503 payment_unknown with Retry-After and without charged", test.name, a)
		}
		if got := w.Count("SELECT count(*) FROM messages"); got != messages {
			t.Errorf("%s: there is a message although the settlement is not known", test.name)
		}
		mend()
		other := w.call(http.MethodPost, "/chat/private/send", strings.Replace(body, "sent while", "smuggled in while", 1), "X-API-KEY",
			alice.Key, x402.HeaderPaymentSignature, payment)
		other.Want(t, test.name+", another request with the open payment", 409, "payment_reused")
		a = known(send)
		a.Want(t, test.name+", sent again", 200)
		if again := send(); again.Status != http.StatusOK || !bytes.Equal(again.Body, a.Body) {
			t.Errorf("%s, sent a third time: %v, want %v", test.name, again, a)
		}
		if w.Revenue() != revenue+5000 || w.Count("SELECT count(*) FROM messages") != messages+1 {
			t.Errorf("%s: in the end %d charged and %d messages, want 5000 and one", test.name, w.Revenue()-revenue,
				w.Count("SELECT count(*) FROM messages")-messages)
		}
	}
	if open := w.Count("SELECT count(*) FROM payments WHERE state <> 'delivered' OR payload IS NOT NULL OR request IS NOT NULL"); open != 0 {
		t.Errorf("%d payments are still open, or keep what can be spent", open)
	}
}

// TestRefusedSettlement: a definite no is a 402 with both headers, and the next payment is a new one.
func TestRefusedSettlement(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice, bob := w.agent("alice"), w.agent("bob")
	send := w.sendOnCredit(alice, bob)
	for range 2 {
		a := send()
		settled, err := x402.DecodeSettleResponse(a.Header.Get(x402.HeaderPaymentResponse))
		if a.Status != http.StatusPaymentRequired || err != nil || settled.Success || settled.ErrorReason != x402.ReasonInsufficientBalance {
			t.Errorf("a payment without money: %v, PAYMENT-RESPONSE %+v (%v)", a, settled, err)
		}
	}
	if w.Count("SELECT count(*) FROM messages") != 0 ||
		w.Count("SELECT count(*) FROM payments WHERE state = 'failed' AND payload IS NULL") != 1 {
		t.Error("a refused payment left a message, or did not end as failed")
	}
}

// TestCallerHangsUpDuringSettlement: what was begun is finished, and sending it again gives the reply.
func TestCallerHangsUpDuringSettlement(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice, bob := w.agent("alice"), w.agent("bob")
	revenue := w.Revenue()
	reached, release := make(chan struct{}), make(chan struct{})
	mend := w.atSettlement(func() {
		close(reached)
		<-release
	})
	body := `{"recipient_agent_id":` + quote(bob.ID) + `,"content":"I am gone"}`
	payment := w.sign(alice.Wallet, "/chat/private/send")
	ctx, hangUp := context.WithCancel(t.Context())
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url+"/chat/private/send", strings.NewReader(body))
	testkit.NoError(t, err)
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("X-API-KEY", alice.Key)
	request.Header.Set(x402.HeaderPaymentSignature, payment)
	gone := make(chan error)
	go func() {
		_, err := http.DefaultClient.Do(request) //nolint:bodyclose // there is no reply
		gone <- err
	}()
	<-reached
	hangUp()
	if err := <-gone; err == nil {
		t.Fatal("the caller did not hang up")
	}
	// A copy that comes meanwhile is told to wait, not to pay again.
	waiting := alice.sendWith(payment, bob, "I am gone")
	if waiting.Status != http.StatusConflict || waiting.Code != "payment_in_progress" || waiting.Header.Get("Retry-After") == "" ||
		bytes.Contains(waiting.Body, []byte(`"charged"`)) {
		t.Errorf("a copy during the settlement: %v, want 409 payment_in_progress that does not say whether it is charged", waiting)
	}
	mend()
	close(release)
	again := alice.sendWith(payment, bob, "I am gone")
	if again.Status != http.StatusOK || w.Revenue() != revenue+5000 || w.Count("SELECT count(*) FROM messages") != 1 {
		t.Errorf("sent again: %v; charged %d, want one message for 5000", again, w.Revenue()-revenue)
	}
}

// TestStoredResponseOutlivesTheTimeWindow: a payment that can no longer begin still gets its reply.
func TestStoredResponseOutlivesTheTimeWindow(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice, bob := w.agent("alice"), w.agent("bob")
	payment := w.sign(alice.Wallet, "/chat/private/send", func(p *x402.PaymentPayload) {
		p.Payload.Authorization.ValidBefore = fmt.Sprint(time.Now().Add(x402.MinimumValidity + 2*time.Second).Unix())
	})
	send := func() testkit.Reply { return alice.sendWith(payment, bob, "in time") }
	first := send()
	time.Sleep(3 * time.Second)
	if again := send(); first.Status != http.StatusOK || again.Status != http.StatusOK || !bytes.Equal(first.Body, again.Body) {
		t.Errorf("first %v, later %v, want the same 200", first, again)
	}
}

// TestRefusedAfterSettlement: the world changed while the money moved. The payment is kept and redeemed once.
func TestRefusedAfterSettlement(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	payer := w.Wallet(testkit.Dollar)
	mend := w.atSettlement(func() {
		w.Exec(`INSERT INTO registrations (username, tan_hash, payer, expires_at) VALUES ('wanted', '\x` + strings.Repeat("00", 32) +
			`', '0xsomebody', now() + interval '10 minutes') ON CONFLICT DO NOTHING`)
	})
	const path = "/register/request_account"
	payment := w.sign(payer, path)
	a := w.call(http.MethodPost, path, `{"requested_username":"wanted"}`, x402.HeaderPaymentSignature, payment)
	if a.Status != http.StatusConflict || a.Code != "username_reserved" || !a.Charged {
		t.Fatalf("the username went while the money moved: %v, want 409 username_reserved, charged", a)
	}
	if settled, err := x402.DecodeSettleResponse(a.Header.Get(x402.HeaderPaymentResponse)); err != nil || !settled.Success {
		t.Errorf("a charged refusal names its settlement: %+v (%v)", settled, err)
	}
	mend()
	if again := w.pay(payer, path, `{"requested_username":"wanted"}`); again.Status != http.StatusConflict || !again.Charged {
		t.Errorf("the same request once more: %v, want the same refusal", again)
	}
	if other := w.call(http.MethodPost, "/register/create_account", `{"username":"wanted","tan":"00000000","description":""}`,
		x402.HeaderPaymentSignature, payment); other.Status == http.StatusOK {
		t.Errorf("the payment bought another operation: %v", other)
	}
	if theft := w.call(http.MethodPost, path, `{"requested_username":"stolen"}`, x402.HeaderPaymentSignature,
		payment); theft.Status != http.StatusConflict || theft.Code != "proof_required" {
		t.Errorf("somebody who has read the payment on the chain: %v, want 409 proof_required", theft)
	}
	w.pay(w.Wallet(0), path, `{"requested_username":"stolen"}`).Want(t, "another wallet", 402)
	redeemed := w.pay(payer, path, `{"requested_username":"free"}`)
	redeemed.Want(t, "a mended request with a fresh payment by the wallet", 200)
	w.call(http.MethodPost, path, `{"requested_username":"another"}`, x402.HeaderPaymentSignature, payment).Want(t, "redeemed a second time",
		409, "proof_required")
	if w.Revenue() != 10_000 {
		t.Errorf("charged %d, want the price once", w.Revenue())
	}
}

// TestSmartWallet: a signature that only the chain can judge goes to the facilitator's /verify first; and nobody else
// gets anything of such a payment by sending its payer and nonce, which are public, with another signature.
func TestSmartWallet(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withLimits(server.Limits{TrustedProxies: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}))
	owner := w.Wallet(testkit.Dollar)
	const path = "/register/request_account"
	body := `{"requested_username":"wallet"}`
	required := w.price(path)
	payload, err := x402.Sign(t.Context(), x402.NewKeySigner(owner), required.Accepts[0], &required.Resource, nil, time.Now())
	testkit.NoError(t, err)
	with := func(signature string) string {
		payload.Payload.Signature = signature
		header, err := x402.EncodePaymentPayload(payload)
		testkit.NoError(t, err)
		w.Secret(header)
		return header
	}
	genuine, junk := "0x"+strings.Repeat("ab", 96), "0x"+strings.Repeat("cd", 96)
	// The play network knows no contracts, so a chain that does is played here.
	var moved atomic.Bool
	mend := w.breakFacilitator(func(rw http.ResponseWriter, r *http.Request) bool {
		sent, _ := io.ReadAll(r.Body)
		switch good := bytes.Contains(sent, []byte(genuine)); {
		case r.URL.Path == "/verify" && good:
			_, _ = io.WriteString(rw, `{"isValid":true,"payer":"0x1"}`)
		case r.URL.Path == "/verify":
			_, _ = io.WriteString(rw, `{"isValid":false,"invalidReason":"invalid_exact_evm_signature"}`)
		case good && moved.CompareAndSwap(false, true):
			w.Exec(`INSERT INTO registrations (username, tan_hash, payer, expires_at) VALUES ('wallet', '\x` + strings.Repeat("00", 32) +
				`', '0xsomebody', now() + interval '10 minutes')`)
			_, _ = io.WriteString(rw, `{"success":true,"transaction":"0x`+strings.Repeat("12", 32)+`","network":"eip155:84532","payer":"0x1"}`)
		default:
			_, _ = io.WriteString(rw, `{"success":false,"errorReason":"invalid_exact_evm_nonce_already_used","transaction":"",
				"network":"eip155:84532"}`)
		}
		return true
	})
	defer mend()
	strangers := 0 // each at an address of its own
	call := func(signature, body string) testkit.Reply {
		address := "192.0.2.1"
		if signature == junk {
			strangers++
			address = fmt.Sprint("198.51.100.", strangers)
		}
		return w.call(http.MethodPost, path, body, "X-Forwarded-For", address, x402.HeaderPaymentSignature, with(signature))
	}
	if a := call(junk, body); a.Status != http.StatusPaymentRequired || w.settles.Load() != 0 {
		t.Errorf("a signature that the facilitator refuses: %v, settled %d times, want 402 without settling", a, w.settles.Load())
	}
	if a := call(genuine, body); a.Status != http.StatusConflict || !a.Charged {
		t.Fatalf("the username went while the money moved: %v, want a charged 409", a)
	}
	call(junk, `{"requested_username":"thief"}`).Want(t, "somebody else redeems the payment", 409, "proof_required")
	call(genuine, `{"requested_username":"thief"}`).Want(t, "somebody who has read the payment on the chain", 409, "proof_required")
	settled := payload.Payload.Authorization.Nonce
	payload.Payload.Authorization.Nonce = "0x" + strings.Repeat("77", 32)
	redeemed := call(genuine, `{"requested_username":"wallet_2"}`)
	redeemed.Require(t, "the payer redeems it", 200)
	call(junk, `{"requested_username":"wallet_2"}`).Want(t, "somebody else asks for the stored response", 402)
	if a := call(genuine, `{"requested_username":"wallet_2"}`); !bytes.Equal(a.Body, redeemed.Body) {
		t.Errorf("the payer asks for the stored response: %v, want %v", a, redeemed)
	}
	payload.Payload.Authorization.Nonce = settled
	for _, signature := range []string{genuine, junk} {
		call(signature, `{"requested_username":"wallet_2"}`).Want(t, "the settled payment itself", 409, "proof_required")
	}
}

// disconnect makes the database unavailable to the server.
func (w *world) disconnect() {
	w.T.Helper()
	own, err := url.Parse(w.DatabaseURL)
	testkit.NoError(w.T, err)
	name := strings.TrimPrefix(own.Path, "/")
	own.Path = "/postgres"
	connection, err := pgx.Connect(context.Background(), own.String())
	testkit.NoError(w.T, err)
	defer connection.Close(context.Background())
	for _, statement := range []string{"ALTER DATABASE " + name + " ALLOW_CONNECTIONS false",
		"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '" + name + "'"} {
		if _, err := connection.Exec(context.Background(), statement); err != nil {
			w.T.Fatal(err)
		}
	}
}

// TestDatabaseUnavailable: paid calls say so and ask for the same payment again; prices are still told; no inner text gets out.
func TestDatabaseUnavailable(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice := w.agent("alice")
	payment := w.signFor(alice.Wallet, http.MethodGet, "/agent/me")
	w.disconnect()
	a := w.call(http.MethodGet, "/agent/me", "", "X-API-KEY", alice.Key, x402.HeaderPaymentSignature, payment)
	if a.Status != http.StatusServiceUnavailable || a.Code != "unavailable" || a.Header.Get("Retry-After") == "" {
		t.Errorf("a paid call without a database: %v, want 503 unavailable with Retry-After", a)
	}
	for _, inner := range []string{"pool", "conn", "sql", "SELECT"} {
		if strings.Contains(string(a.Body), inner) {
			t.Errorf("the reply holds inner text (%s): %s", inner, a.Body)
		}
	}
	w.call(http.MethodPost, "/chat/private/send", "").Want(t, "the price without a database", 402)
}

// TestFormerTerms: the payee has changed. A payment that was begun before is repeated or completed, and never gets a 402, after which its
// payer would sign another one. A payment that is not in the ledger gets the 402.
func TestFormerTerms(t *testing.T) {
	t.Parallel()
	for name, lost := range map[string]bool{"delivered": false, "outcome unknown": true} {
		for _, voucher := range []bool{false, true} {
			if lost && voucher {
				continue // a voucher is charged at once
			}
			t.Run(fmt.Sprintf("%s, voucher %t", name, voucher), func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, withChannels)
				alice, bob := w.agent("alice"), w.agent("bob")
				body := `{"recipient_agent_id":` + quote(bob.ID) + `,"content":"hello"}`
				signed, unused := w.sign(alice.Wallet, sendPath), w.sign(alice.Wallet, sendPath)
				if voucher {
					alice.opened(bob, 1)
					signed = w.channelPayer(alice.Wallet).sign(sendPath, 10_000, 0)
				}
				mend := func() {}
				if lost {
					mend = w.breakFacilitator(w.settleAndThen(testkit.HangUp))
				}
				alice.sendWith(signed, bob, "hello")
				mend()
				other := newWorldOn(t, w.DatabaseURL, withChannels, func(config *server.Config, _ *payment.Chain, _ string) {
					config.PayTo = "0x" + strings.Repeat("42", 20)
				})
				other.Ledger, other.Facilitator = w.Ledger, w.Facilitator
				send := func(payment string) testkit.Reply {
					return known(func() testkit.Reply {
						return other.call(http.MethodPost, sendPath, body, "X-API-KEY", alice.Key, x402.HeaderPaymentSignature, payment)
					})
				}
				send(signed).Want(t, "the payment again", http.StatusOK)
				send(unused).Want(t, "another payment for the former terms", http.StatusPaymentRequired)
				if n := other.Count(`SELECT count(*) FROM messages WHERE content = 'hello'`); n != 1 {
					t.Errorf("%d messages, want 1", n)
				}
			})
		}
	}
}
