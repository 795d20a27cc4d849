package payment

import (
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
