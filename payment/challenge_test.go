package payment

import (
	"bufio"
	"errors"
	"log/slog"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/x402"
)

// rankedScheme is a scheme with a rank for each client.
type rankedScheme struct {
	Scheme
	name  string
	ranks map[string]Rank
}

func (s rankedScheme) Rank(_ uint64, client string) Rank { return s.ranks[client] }
func (s rankedScheme) Requirements(*Operation) x402.PaymentRequirements {
	return x402.PaymentRequirements{Scheme: s.name}
}

func (s rankedScheme) KnownAs(*Operation, string, string) {}

func (s rankedScheme) Renewed(_ *Operation, client string) (x402.PaymentRequirements, bool) {
	return x402.PaymentRequirements{Scheme: s.name, PayTo: "renewed"}, client == "renewed" && s.name == "b"
}

// TestChallenge: schemes are offered in their order, those that are a fallback for the client after the others, and those that are withheld
// not at all.
func TestChallenge(t *testing.T) {
	t.Parallel()
	a := rankedScheme{name: "a", ranks: map[string]Rank{"lost": Fallback, "barred": Withheld, "all lost": Fallback}}
	b := rankedScheme{name: "b", ranks: map[string]Rank{"all lost": Fallback}}
	c := rankedScheme{name: "c", ranks: map[string]Rank{"barred": Fallback, "all lost": Fallback}}
	e := &Engine{Config: Config{}, operations: map[string]*Operation{}}
	e.metrics = newMetrics(nil, nil, nil)
	operation := &Operation{ID: "editAgent", Price: 2000, Extensions: map[string]jsontext.Value{}}
	testkit.NoError(t, e.Offer([]*Operation{operation}, a, b, c))
	for client, want := range map[string]string{"anybody": "a b c", "lost": "b c a", "barred": "b c", "all lost": "a b c",
		"renewed": "a brenewed c"} {
		var got []string
		for _, offer := range e.Challenge(operation, client).Required.Accepts {
			got = append(got, offer.Scheme+offer.PayTo)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s is offered %q, want %q", client, got, want)
		}
	}
}

// TestForget: thousands of calls wait at once, and none keeps the kilobytes of its payment's header.
func TestForget(t *testing.T) {
	request, err := http.ReadRequest(bufio.NewReader(strings.NewReader("GET / HTTP/1.1\r\nHost: a\r\nPAYMENT-SIGNATURE: signed\r\n\r\n")))
	testkit.NoError(t, err)
	values := request.Header[http.CanonicalHeaderKey(x402.HeaderPaymentSignature)]
	Forget(request.Header)
	if values[0] != "" || len(request.Header) != 0 {
		t.Errorf("%q and %v are kept", values, request.Header)
	}
}

// TestTwoPaymentHeaders: a request with two payments is rejected, because a proxy and this server might read different ones.
func TestTwoPaymentHeaders(t *testing.T) {
	t.Parallel()
	engine := New(Config{}, nil, nil, nil, slog.New(slog.DiscardHandler))
	operation := &Operation{ID: "editAgent", Price: 1000, Extensions: map[string]jsontext.Value{}}
	testkit.NoError(t, engine.Offer([]*Operation{operation}))
	for _, name := range []string{x402.HeaderPaymentSignature, x402.HeaderPaymentV1} {
		header := http.Header{http.CanonicalHeaderKey(name): {"e30=", "e30="}}
		_, err := engine.Parse(t.Context(), operation, header, nil, "", netip.Prefix{}, nil)
		if refused, ok := errors.AsType[*Error](err); !ok || !strings.Contains(refused.Message, "exactly one "+name) {
			t.Errorf("two %s headers: %v, want that exactly one is sent", name, err)
		}
	}
}

// TestMismatchIsNamed: a payment that matches no entry of accepts is told which member differs, whichever it is.
func TestMismatchIsNamed(t *testing.T) {
	t.Parallel()
	network, _ := x402.LookupNetwork(x402.NetworkBaseSepolia)
	const payee = "0x209693Bc6afc0C5328bA36FaF03C514EF312287C"
	terms := x402.ChannelTerms{ReceiverAuthorizer: payee, WithdrawDelay: 86400}
	exact, batch := network.Requirements(5000, payee, 60), network.BatchRequirements(5000, payee, 60, terms)
	operation := &Operation{challenges: []*Error{{Required: &x402.PaymentRequired{Accepts: []x402.PaymentRequirements{batch, exact}}}}}
	for _, row := range []struct {
		change func(accepted *x402.PaymentRequirements)
		says   string
	}{
		{func(a *x402.PaymentRequirements) { a.Scheme = "upto" },
			`scheme is "upto" in accepted of the payment, and "batch-settlement" or "exact" in accepts`},
		{func(a *x402.PaymentRequirements) { a.Network = "eip155:1" }, `network is "eip155:1" in accepted of the payment, and "eip155:84532"`},
		{func(a *x402.PaymentRequirements) { a.Amount = "99999999999999999999" },
			"the payment is for 99999999999999999999 atomic units, and this operation costs exactly 5000"},
		{func(a *x402.PaymentRequirements) { a.Asset = payee }, "asset is "},
		{func(a *x402.PaymentRequirements) { a.PayTo = a.Asset }, "payTo is "},
		{func(a *x402.PaymentRequirements) { a.Extra["name"] = "USD Coin" },
			`extra.name is "USD Coin" in accepted of the payment, and "USDC" in accepts`},
		{func(a *x402.PaymentRequirements) { a.Extra["version"] = 2 }, `extra.version is 2 in accepted of the payment, and "2" in accepts`},
		{func(a *x402.PaymentRequirements) { a.Extra = nil }, `extra.name is missing in accepted of the payment, and "USDC" in accepts`},
		{func(a *x402.PaymentRequirements) {
			*a = network.BatchRequirements(5000, payee, 60, x402.ChannelTerms{ReceiverAuthorizer: payee, WithdrawDelay: 900})
		}, "extra.withdrawDelay is 900 in accepted of the payment, and 86400 in accepts"},
		{func(a *x402.PaymentRequirements) { a.Scheme = "batch-settlement" },
			`extra.receiverAuthorizer is missing in accepted of the payment, and "` + payee},
	} {
		accepted := network.Requirements(5000, payee, 60)
		row.change(&accepted)
		payload := &x402.PaymentPayload{X402Version: x402.Version, Accepted: accepted}
		if got := mismatch(operation, payload); !strings.Contains(got, row.says) || !strings.HasSuffix(got, "in the PAYMENT-REQUIRED header") {
			t.Errorf("%q, want it to say %q", got, row.says)
		}
	}
}
