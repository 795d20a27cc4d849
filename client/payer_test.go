package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/parley-chat/parley/client"
	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/x402"
)

// The key of the reference's test vector; nobody's money.
const key = "0x0101010101010101010101010101010101010101010101010101010101010101"

// shop is a server that asks for a payment and then follows a script, one line for each paid call.
type shop struct {
	*httptest.Server
	offer      x402.PaymentRequirements
	extensions map[string]jsontext.Value
	script     []func(http.ResponseWriter)
	payments   []string // the PAYMENT-SIGNATURE headers it saw
	bodies     []string
}

func respond(status int, body string) func(http.ResponseWriter) {
	return func(w http.ResponseWriter) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

// demand responds with a 402.
func demand(t *testing.T, w http.ResponseWriter, required *x402.PaymentRequired) {
	required.X402Version, required.Resource.URL = x402.Version, "http://shop.example/thing"
	header, err := x402.EncodePaymentRequired(required)
	if err != nil {
		t.Error(err)
	}
	w.Header().Set(x402.HeaderPaymentRequired, header)
	respond(http.StatusPaymentRequired, `{"code":"payment_refused","charged":false}`)(w)
}

func open(t *testing.T, script ...func(http.ResponseWriter)) *shop {
	t.Helper()
	sepolia, _ := x402.LookupNetwork(x402.NetworkBaseSepolia)
	s := &shop{offer: sepolia.Requirements(5000, "0x209693Bc6afc0C5328bA36FaF03C514EF312287C", 60), script: script}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		s.bodies = append(s.bodies, string(body))
		payment := r.Header.Get(x402.HeaderPaymentSignature)
		if payment == "" {
			demand(t, w, &x402.PaymentRequired{Accepts: []x402.PaymentRequirements{s.offer}, Extensions: s.extensions})
			return
		}
		s.payments = append(s.payments, payment)
		s.script[min(len(s.payments), len(s.script))-1](w)
	}))
	t.Cleanup(s.Close)
	return s
}

func payer(t *testing.T, limits client.Limits) *client.Payer {
	t.Helper()
	p, err := client.NewPayer(key, limits)
	testkit.NoError(t, err)
	p.Patience = 2 * time.Second
	return p
}

func (s *shop) buy(t *testing.T, p *client.Payer) (int, error) {
	t.Helper()
	response, err := (&http.Client{Transport: p}).Post(s.URL+"/thing", "", io.NopCloser(strings.NewReader(`{"a":1}`)))
	if err != nil {
		return 0, err
	}
	_, _ = io.Copy(io.Discard, response.Body)
	return response.StatusCode, response.Body.Close()
}

func TestPayerPays(t *testing.T) {
	t.Parallel()
	unavailable := func(w http.ResponseWriter) {
		w.Header().Set("Retry-After", "0")
		respond(503, `{"code":"payment_unknown"}`)(w)
	}
	inProgress := func(w http.ResponseWriter) {
		w.Header().Set("Retry-After", "0")
		respond(409, `{"code":"payment_in_progress"}`)(w)
	}
	for _, test := range []struct {
		name          string
		script        []func(http.ResponseWriter)
		status, calls int
		spent         uint64
	}{
		{"a good shop", []func(http.ResponseWriter){respond(200, `{}`)}, 200, 1, 5000},
		{"a lost reply", []func(http.ResponseWriter){testkit.HangUp, respond(200, `{}`)}, 200, 2, 5000},
		{"503, then the reply", []func(http.ResponseWriter){unavailable, unavailable, respond(200, `{}`)}, 200, 3, 5000},
		{"in progress, then the reply", []func(http.ResponseWriter){inProgress, respond(200, `{}`)}, 200, 2, 5000},
		{"a proxy without its server, then the reply", []func(http.ResponseWriter){respond(502, "<html>"), respond(200, `{}`)}, 200, 2, 5000},
		{"500, then the reply", []func(http.ResponseWriter){respond(500, `{"code":"internal_error"}`), respond(200, `{}`)}, 200, 2, 5000},
		{"rejected", []func(http.ResponseWriter){respond(402, `{"code":"payment_refused","charged":false}`)}, 402, 1, 0},
		{"rejected, perhaps charged", []func(http.ResponseWriter){respond(402, `{"code":"payment_refused"}`)}, 402, 1, 5000},
		{"not allowed, not charged", []func(http.ResponseWriter){respond(403, `{"code":"not_member","charged":false}`)}, 403, 1, 0},
		{"not possible any more, charged", []func(http.ResponseWriter){respond(409, `{"code":"username_reserved","charged":true}`)}, 409, 1,
			5000},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s, p := open(t, test.script...), payer(t, client.Limits{PerCall: 5000, Total: 5000})
			status, err := s.buy(t, p)
			if err != nil || status != test.status || len(s.payments) != test.calls || p.Spent() != test.spent {
				t.Errorf("replied %d (%v) after %d paid calls, spent %d; want %d after %d, spent %d", status, err, len(s.payments), p.Spent(),
					test.status, test.calls, test.spent)
			}
			for i, body := range s.bodies {
				if body != `{"a":1}` {
					t.Errorf("call %d had the body %q", i, body)
				}
			}
			for _, payment := range s.payments {
				if payment != s.payments[0] {
					t.Error("a second payment was signed")
				}
			}
		})
	}
}

// identifiers returns the payment identifier of each payment that the shop saw.
func (s *shop) identifiers(t *testing.T) (all []string) {
	t.Helper()
	for _, header := range s.payments {
		payment, err := x402.DecodePaymentPayload(header)
		testkit.NoError(t, err)
		var extension struct {
			Info struct{ ID string } `json:"info"`
		}
		if err := json.Unmarshal(payment.Extensions["payment-identifier"], &extension); err != nil {
			t.Fatalf("the extension is %s: %v", payment.Extensions["payment-identifier"], err)
		}
		all = append(all, extension.Info.ID)
	}
	return all
}

// TestPayerNamesItsPayments: each call has a random payment identifier of its own, in a form that servers take, and every
// repetition of a call has the same one.
func TestPayerNamesItsPayments(t *testing.T) {
	t.Parallel()
	form := regexp.MustCompile(`^[a-zA-Z0-9_-]{32,128}$`)
	seen := map[string]bool{}
	for range 10 {
		s, p := open(t, testkit.HangUp, respond(200, `{}`)), payer(t, client.Limits{PerCall: 5000, Total: 5000})
		if status, err := s.buy(t, p); status != 200 {
			t.Fatalf("replied %d (%v), want 200", status, err)
		}
		identifiers := s.identifiers(t)
		if len(identifiers) != 2 || identifiers[0] != identifiers[1] || !form.MatchString(identifiers[0]) {
			t.Errorf("the repetitions of a call are named %q, want one identifier of at least 128 random bits", identifiers)
		}
		if seen[identifiers[0]] {
			t.Errorf("the identifier %s names two calls", identifiers[0])
		}
		seen[identifiers[0]] = true
	}
}

// TestPayerKeepsOfferedExtensions: what a server offers comes back to it beside the identifier.
func TestPayerKeepsOfferedExtensions(t *testing.T) {
	t.Parallel()
	s, p := open(t, respond(200, `{}`)), payer(t, client.Limits{PerCall: 5000, Total: 5000})
	s.extensions = map[string]jsontext.Value{"bazaar": jsontext.Value(`{"info":{"a":1}}`)}
	if status, err := s.buy(t, p); status != 200 {
		t.Fatalf("replied %d (%v), want 200", status, err)
	}
	payment, err := x402.DecodePaymentPayload(s.payments[0])
	if err != nil || string(payment.Extensions["bazaar"]) != `{"info":{"a":1}}` || len(payment.Extensions) != 2 {
		t.Errorf("the payment has the extensions %s (%v), want what was offered and the identifier", payment.Extensions, err)
	}
}

func TestPayerLimits(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		limits client.Limits
		bought int // calls before the limit
		want   client.OverLimitError
	}{
		{"per call", client.Limits{PerCall: 4999, Total: 100_000}, 0, client.OverLimitError{Price: 5000, Left: 4999, Which: "per call"}},
		{"in total", client.Limits{PerCall: 5000, Total: 12_000}, 2, client.OverLimitError{Price: 5000, Left: 2000, Which: "in total"}},
		{"nothing allowed", client.Limits{}, 0, client.OverLimitError{Price: 5000, Left: 0, Which: "per call"}},
	} {
		s, p := open(t, respond(200, `{}`)), payer(t, test.limits)
		for range test.bought {
			if status, err := s.buy(t, p); err != nil || status != 200 {
				t.Fatalf("%s: %d %v", test.name, status, err)
			}
		}
		_, err := s.buy(t, p)
		var over *client.OverLimitError
		if !errors.As(err, &over) {
			t.Errorf("%s: %v, want an OverLimitError", test.name, err)
		} else if diff := cmp.Diff(test.want, *over); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, diff)
		}
		if len(s.payments) != test.bought {
			t.Errorf("%s: %d payments were signed, want %d", test.name, len(s.payments), test.bought)
		}
	}
}

// TestPayerPaysInNothingElse: another token, network or scheme, and another token's domain in extra.
func TestPayerPaysInNothingElse(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*x402.PaymentRequirements){
		"another token":   func(o *x402.PaymentRequirements) { o.Asset = "0x209693Bc6afc0C5328bA36FaF03C514EF312287C" },
		"another network": func(o *x402.PaymentRequirements) { o.Network = "eip155:1" },
		"another scheme":  func(o *x402.PaymentRequirements) { o.Scheme = "upto" },
	} {
		s, p := open(t, respond(200, `{}`)), payer(t, client.Limits{PerCall: 5000, Total: 5000})
		change(&s.offer)
		if status, err := s.buy(t, p); err == nil || len(s.payments) != 0 || p.Spent() != 0 {
			t.Errorf("%s: replied %d, %d payments, spent %d; want an error and nothing signed", name, status, len(s.payments), p.Spent())
		}
	}
	s, p := open(t, respond(200, `{}`)), payer(t, client.Limits{PerCall: 5000, Total: 5000})
	s.offer.Extra = map[string]any{"name": "Tether", "version": "9"}
	if _, err := s.buy(t, p); err != nil {
		t.Fatal(err)
	}
	payload, err := x402.DecodePaymentPayload(s.payments[0])
	if err != nil || payload.Accepted.Extra["name"] != "USDC" {
		t.Errorf("signed for %v (%v), want the token as the client knows it", payload.Accepted.Extra, err)
	}
}

func TestPayerStopsWithItsContext(t *testing.T) {
	t.Parallel()
	s, p := open(t, respond(503, `{}`)), payer(t, client.Limits{PerCall: 5000, Total: 5000})
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL, strings.NewReader(`{}`))
	testkit.NoError(t, err)
	began := time.Now()
	if response, err := (&http.Client{Transport: p}).Do(request); err == nil {
		_ = response.Body.Close()
	}
	if took := time.Since(began); took > 15*time.Second {
		t.Errorf("gave up after %v, want soon after 300ms", took)
	}
}

func TestBadKeyIsNotRepeated(t *testing.T) {
	t.Parallel()
	if _, err := client.NewPayer("0xsecretsecret", client.Limits{}); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("a bad key: %v, want an error that does not repeat it", err)
	}
}

// TestClientIsLight: whoever imports the client must not build a server.
func TestClientIsLight(t *testing.T) {
	t.Parallel()
	list, err := exec.CommandContext(t.Context(), "go", "list", "-deps", ".").Output()
	testkit.NoError(t, err)
	for _, heavy := range []string{"labstack/echo", "gorm.io", "getkin/kin-openapi", "jackc/pgx", "parley/server", "parley/store"} {
		if strings.Contains(string(list), heavy) {
			t.Errorf("the client pulls in %s", heavy)
		}
	}
}
