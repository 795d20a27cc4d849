package devnet

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"

	"github.com/parley-chat/parley/x402"
	"github.com/parley-chat/parley/x402/x402test"
)

// serve returns a running dev network and the client that a server would use.
func serve(t *testing.T, dir string) (*Facilitator, *Ledger, *x402.Facilitator) {
	t.Helper()
	ledger := openLedger(t, dir)
	facilitator := NewFacilitator(ledger)
	server := httptest.NewServer(facilitator)
	t.Cleanup(server.Close)
	return facilitator, ledger, &x402.Facilitator{BaseURL: server.URL, HTTPClient: server.Client()}
}

func settle(t *testing.T, client *x402.Facilitator, payload *x402.PaymentPayload,
	requirements x402.PaymentRequirements) *x402.SettleResponse {
	t.Helper()
	verdict, err := client.Settle(t.Context(), payload, requirements)
	noError(t, err)
	return verdict
}

func TestSupported(t *testing.T) {
	t.Parallel()
	_, _, client := serve(t, "")
	supported, err := client.Supported(t.Context())
	noError(t, err)
	want := []x402.SupportedKind{
		{X402Version: 2, Scheme: "exact", Network: "eip155:84532"},
		{X402Version: 1, Scheme: "exact", Network: "base-sepolia"},
		{X402Version: 2, Scheme: "batch-settlement", Network: "eip155:84532"},
	}
	if diff := cmp.Diff(want, supported.Kinds); diff != "" {
		t.Errorf("what the dev network supports (-want +got):\n%s", diff)
	}
}

func TestPendingSettlement(t *testing.T) {
	t.Parallel()
	facilitator, ledger, client := serve(t, "")

	// A bad payment does not become pending.
	facilitator.PendSettlements(1)
	payload, requirements := pay(t, Accounts()[3], func(a *x402.Authorization) { a.Value = "1" })
	if verdict := settle(t, client, payload, requirements); verdict.ErrorReason != x402.ReasonValueMismatch {
		t.Errorf("a bad payment says %+v, want its refusal", verdict)
	}

	payload, requirements = pay(t, Accounts()[0], nil) // the bad payment left one settlement to pend
	transfer := request{network: NetworkID, call: facilitator.transferCall(payload, requirements)}
	pending, err := facilitator.settle(transfer)
	if err != nil || pending.Success || pending.ErrorReason != x402.ReasonSettlementPending || !nonceForm.MatchString(pending.Transaction) {
		t.Fatalf("the settlement says %+v (%v), want it pending with a transaction", pending, err)
	}
	wantBalance(t, ledger, Payee, 0)
	if ledger.Used(payload.Payload.Authorization.From, payload.Payload.Authorization.Nonce) {
		t.Error("a pending settlement used the authorization")
	}
	// Long after the authorization ended: the transfer had been sent in time.
	ledger.Advance(time.Hour)
	settled, err := facilitator.settle(transfer)
	if err != nil || !settled.Success || settled.Transaction != pending.Transaction {
		t.Fatalf("settling again says %+v (%v), want a success under the transaction %s", settled, err, pending.Transaction)
	}
	wantBalance(t, ledger, Payee, 5000)
	if again := settle(t, client, payload, requirements); again.Success || again.ErrorReason != x402.ReasonValidBefore {
		t.Errorf("settling a third time says %+v, want that the authorization has ended: it is pending no longer", again)
	}
	wantBalance(t, ledger, Payee, 5000)
}

// TestVersion1: payments of version 1 are read as those of version 2.
func TestVersion1(t *testing.T) {
	t.Parallel()
	_, ledger, client := serve(t, "")
	built, requirements := pay(t, Accounts()[0], nil)
	header, err := x402test.EncodePaymentPayloadV1(built, "base-sepolia")
	noError(t, err)
	payload, err := x402.DecodePaymentPayloadV1(header, token)
	noError(t, err)
	resource := x402.ResourceInfo{URL: "https://host.example/chat/private/send", MimeType: "application/json"}
	terms, err := json.Marshal(requirements.V1("base-sepolia", resource), json.Deterministic(true))
	noError(t, err)
	good := `{"x402Version":1,"paymentPayload":` + string(payload.Raw()) + `,"paymentRequirements":` + string(terms) + `}`
	v2, err := json.Marshal(requirements, json.Deterministic(true))
	noError(t, err)
	const network = `"network":"base-sepolia"`
	last := strings.LastIndex(good, network)
	for _, row := range []struct{ name, body, reason string }{
		{"a request of version 3", strings.Replace(good, `{"x402Version":1,"paymentPayload"`, `{"x402Version":3,"paymentPayload"`, 1),
			x402.ReasonInvalidVersion},
		{"requirements of version 2", strings.Replace(good, string(terms), string(v2), 1), x402.ReasonInvalidRequirements},
		{"no requirements", strings.Replace(good, string(terms), `null`, 1), x402.ReasonInvalidRequirements},
		{"no resource", strings.Replace(good, `"resource":"https://host.example/chat/private/send",`, ``, 1), x402.ReasonInvalidRequirements},
		{"a relative resource", strings.Replace(good, `"https://host.example/chat/private/send"`, `"/chat/private/send"`, 1),
			x402.ReasonInvalidRequirements},
		{"requirements with a chain id", good[:last] + `"network":"eip155:84532"` + good[last+len(network):], x402.ReasonInvalidRequirements},
	} {
		if row.body == good {
			t.Fatalf("%s: the request is the good one", row.name)
		}
		wantRefused(t, client, row.name, row.body, http.StatusBadRequest, row.reason)
	}
	wantBalance(t, ledger, Payee, 0)
	payer := `"payer":"` + Accounts()[0].Address + `"`
	for _, one := range []struct{ endpoint, want string }{{"verify", `{"isValid":true,` + payer + `}`},
		{"settle", `"network":"base-sepolia",` + payer + `}`}} {
		if status, replied := call(t, http.MethodPost, client.BaseURL+"/"+one.endpoint, good); status != http.StatusOK ||
			!strings.HasSuffix(replied, one.want) {
			t.Errorf("the good request to /%s: status %d, %s, want %s", one.endpoint, status, replied, one.want)
		}
	}
	wantBalance(t, ledger, Payee, 5000)
}

func TestSettlementContinuesIfItsCallerDisconnects(t *testing.T) {
	t.Parallel()
	facilitator, ledger, _ := serve(t, "")
	ctx, disconnect := context.WithCancel(t.Context())
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		disconnect()
		<-r.Context().Done()
		r.Body = io.NopCloser(bytes.NewReader(body))
		facilitator.ServeHTTP(w, r)
	}))
	defer server.Close()
	payload, requirements := pay(t, Accounts()[0], nil)
	hasty := &x402.Facilitator{BaseURL: server.URL}
	if _, err := hasty.Settle(ctx, payload, requirements); !errors.Is(err, context.Canceled) {
		t.Errorf("a settlement whose caller disconnects says %v, want %v", err, context.Canceled)
	}
	for deadline := time.Now().Add(20 * time.Second); ledger.Balance(Payee) != 5000 && time.Now().Before(deadline); {
		time.Sleep(10 * time.Millisecond)
	}
	wantBalance(t, ledger, Payee, 5000)
}

func TestSettlementThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	_, ledger, client := serve(t, t.TempDir())
	payload, requirements := pay(t, Accounts()[0], nil)
	_ = ledger.journal.Close() // a disk that fails
	_, err := client.Settle(t.Context(), payload, requirements)
	if _, ok := errors.AsType[*x402.UnknownOutcome](err); !ok {
		t.Errorf("a settlement that cannot be written says %v, want an unknown outcome", err)
	}
}

// call sends a request and returns the status and the body.
func call(t *testing.T, method, url, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	noError(t, err)
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	noError(t, err)
	defer res.Body.Close()
	content, err := io.ReadAll(res.Body)
	noError(t, err)
	if res.Header.Get("X-Parley-Devnet") != "play money, never production" {
		t.Errorf("%s %s replies %d without the dev network's mark", method, url, res.StatusCode)
	}
	return res.StatusCode, string(content)
}

// wantRefused sends a body to /verify and /settle, which return a status and a negative verdict with a reason; "" is any.
func wantRefused(t *testing.T, client *x402.Facilitator, name, body string, want int, reason string) {
	t.Helper()
	for _, endpoint := range []string{"verify", "settle"} {
		status, replied := call(t, http.MethodPost, client.BaseURL+"/"+endpoint, body)
		var verdict struct {
			IsValid       *bool  `json:"isValid"`
			InvalidReason string `json:"invalidReason"`
			Success       *bool  `json:"success"`
			ErrorReason   string `json:"errorReason"`
		}
		err := json.Unmarshal([]byte(replied), &verdict)
		said := map[string]*bool{"verify": verdict.IsValid, "settle": verdict.Success}[endpoint]
		got := verdict.InvalidReason + verdict.ErrorReason
		if err != nil || status != want || said == nil || *said || got == "" || reason != "" && got != reason {
			t.Errorf("%s to /%s: status %d, %s, want %d and the reason %q", name, endpoint, status, replied, want, reason)
		}
	}
}

func TestJunk(t *testing.T) {
	t.Parallel()
	_, ledger, client := serve(t, "")
	payload, requirements := pay(t, Accounts()[0], nil)
	good, err := json.Marshal(map[string]any{"x402Version": 2, "paymentPayload": payload, "paymentRequirements": requirements})
	noError(t, err)
	for name, body := range map[string]string{
		"nothing":                 ``,
		"an empty object":         `{}`,
		"trailing data":           string(good) + `{}`,
		"version 1":               strings.Replace(string(good), `"x402Version":2`, `"x402Version":1`, 1),
		"requirements of numbers": strings.Replace(string(good), `"paymentRequirements":{`, `"paymentRequirements":{"scheme":7,"was":`, 1),
		"deep JSON":               `{"x402Version":2,"paymentPayload":` + strings.Repeat("[", 30000) + `}`,
		"more than 64 KiB":        `{"x402Version":2,"paymentPayload":"` + strings.Repeat("x", maxBodyBytes) + `"}`,
	} {
		wantRefused(t, client, name, body, http.StatusBadRequest, "")
	}
	wantBalance(t, ledger, Payee, 0)
	if status, _ := call(t, http.MethodGet, client.BaseURL+"/settle", ""); status != http.StatusMethodNotAllowed {
		t.Errorf("GET /settle has status %d, want 405", status)
	}
	if status, _ := call(t, http.MethodGet, client.BaseURL+"/", ""); status != http.StatusNotFound {
		t.Errorf("GET / has status %d, want 404", status)
	}
	if status, replied := call(t, http.MethodPost, client.BaseURL+"/settle", string(good)); status != http.StatusOK ||
		!strings.Contains(replied, `"success":true`) {
		t.Errorf("the good request: status %d, %s, want a success", status, replied)
	}
}

func TestAccountsAndBalances(t *testing.T) {
	t.Parallel()
	_, ledger, client := serve(t, "")
	noError(t, ledger.Transfer(Accounts()[3].Address, Payee, 1, nonce(1), "0x01"))
	var got []map[string]string
	status, body := call(t, http.MethodGet, client.BaseURL+"/accounts", "")
	if err := json.Unmarshal([]byte(body), &got); err != nil || status != http.StatusOK {
		t.Fatalf("GET /accounts: status %d, %s", status, body)
	}
	accounts := Accounts()
	want := map[string]string{"address": accounts[3].Address, "private_key": accounts[3].PrivateKey, "balance": "9999999999"}
	if diff := cmp.Diff(want, got[3]); diff != "" || len(got) != len(accounts) {
		t.Errorf("%d accounts, the fourth one (-want +got):\n%s", len(got), diff)
	}
	for address, balance := range map[string]string{Payee: "1", strings.ToLower(Payee): "1", stranger: "0"} {
		status, body := call(t, http.MethodGet, client.BaseURL+"/balances/"+address, "")
		if want := `{"address":"` + address + `","balance":"` + balance + `","unsettled":"0"}`; status != http.StatusOK || body != want {
			t.Errorf("GET /balances/%s: status %d, %s, want %s", address, status, body, want)
		}
	}
	for _, address := range []string{"alice", "0x12", Payee + "00", "%00"} {
		if status, body := call(t, http.MethodGet, client.BaseURL+"/balances/"+address, ""); status != http.StatusBadRequest {
			t.Errorf("GET /balances/%s: status %d, %s, want 400", address, status, body)
		}
	}
}
