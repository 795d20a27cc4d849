package x402

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestMatch(t *testing.T) {
	t.Parallel()
	main, test := knownNetwork(t, NetworkBase), knownNetwork(t, NetworkBaseSepolia)
	offers := []PaymentRequirements{main.Requirements(5000, vectorPayee, 60), test.Requirements(5000, vectorPayee, 60)}
	offers[1].Extra["decimals"] = 6
	for _, row := range []struct {
		name    string
		change  func(r *PaymentRequirements)
		differs string // "" if it matches
	}{
		{"the offer itself", func(*PaymentRequirements) {}, ""},
		{"addresses in lower case", func(r *PaymentRequirements) {
			r.Asset, r.PayTo = strings.ToLower(r.Asset), strings.ToLower(r.PayTo)
		}, ""},
		{"another timeout", func(r *PaymentRequirements) { r.MaxTimeoutSeconds = 3600 }, ""},
		{"more in extra", func(r *PaymentRequirements) { r.Extra["mine"] = true }, ""},
		{"a number as JSON decodes it", func(r *PaymentRequirements) { r.Extra["decimals"] = 6.0 }, ""},
		{"another scheme", func(r *PaymentRequirements) { r.Scheme = "upto" }, "scheme"},
		{"a network that is not offered", func(r *PaymentRequirements) { r.Network = "eip155:1" }, "network"},
		{"the other offer's network", func(r *PaymentRequirements) { r.Network = NetworkBase }, "network"},
		{"less", func(r *PaymentRequirements) { r.Amount = "4999" }, "amount"},
		{"more", func(r *PaymentRequirements) { r.Amount = "5001" }, "amount"},
		{"the amount spelled otherwise", func(r *PaymentRequirements) { r.Amount = "05000" }, "amount"},
		{"another asset", func(r *PaymentRequirements) { r.Asset = main.Asset }, "asset"},
		{"another payee", func(r *PaymentRequirements) { r.PayTo = vectorPayer }, "payTo"},
		{"another name", func(r *PaymentRequirements) { r.Extra["name"] = "USD Coin" }, "extra.name"},
		{"no version", func(r *PaymentRequirements) { delete(r.Extra, "version") }, "extra.version"},
		{"version as a number", func(r *PaymentRequirements) { r.Extra["version"] = 2.0 }, "extra.version"},
		{"decimals as a string", func(r *PaymentRequirements) { r.Extra["decimals"] = "6" }, "extra.decimals"},
		{"no extra", func(r *PaymentRequirements) { r.Extra = nil }, "extra.decimals"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			accepted := test.Requirements(5000, vectorPayee, 60)
			accepted.Extra["decimals"] = 6
			row.change(&accepted)
			got, ok := Match(offers, &PaymentPayload{Accepted: accepted})
			if differs := Difference(offers[1], accepted, Version); ok != (row.differs == "") || differs != row.differs {
				t.Fatalf("the payer accepted %v: matched %t, differs in %q, want %q", accepted, ok, differs, row.differs)
			}
			if diff := cmp.Diff(offers[1], got); ok && diff != "" {
				t.Errorf("the match is not our own offer (-want +got):\n%s", diff)
			}
		})
	}
	if _, ok := Match(nil, &PaymentPayload{Accepted: offers[0]}); ok {
		t.Error("a payment matches although nothing is offered")
	}
}
