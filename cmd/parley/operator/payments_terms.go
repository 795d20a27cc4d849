package operator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/parley-chat/parley/store"
	"github.com/parley-chat/parley/x402"
)

// terms choose one of the networks, assets and payees in the ledger.
type terms struct {
	Payee   string `env:"PARLEY_PAYEE" placeholder:"0x…" help:"The payee's address; by default the ledger's, if it has only one."`
	Network string `env:"PARLEY_NETWORK" placeholder:"eip155:N" help:"The chain, as CAIP-2; by default the ledger's, if it has only one."`
	Asset   string `placeholder:"0x…" help:"The token contract; by default the ledger's, if it has only one."`
}

// choose returns the operator's settings. It takes missing ones from the ledger, if the ledger has only one set.
func (t terms) choose(ctx context.Context, database *store.Store) (store.PaymentTerms, error) {
	var token string
	t.Network, token, _ = strings.Cut(t.Network, "/") // --network of a server may name a token
	asset, _, _ := strings.Cut(token, "/")
	t.Asset = cmp.Or(t.Asset, asset)
	all, err := database.PaymentTerms(ctx)
	if err != nil {
		return store.PaymentTerms{}, err
	}
	matches := func(given, has string) bool { return given == "" || strings.EqualFold(given, has) }
	matching := slices.DeleteFunc(slices.Clone(all), func(one store.PaymentTerms) bool {
		return !matches(t.Network, one.Network) || !matches(t.Asset, one.Asset) || !matches(t.Payee, one.PayTo)
	})
	switch len(matching) {
	case 0:
		if given, ok := t.complete(); ok && len(all) == 0 { // the restored backup is from before the first payment
			return given, nil
		}
		return store.PaymentTerms{}, errors.New("the ledger has no payments of this network, asset and payee")
	case 1:
		return matching[0], nil
	}
	var choice []string
	for _, one := range matching {
		choice = append(choice, fmt.Sprintf("--network %s --asset %s --payee %s", one.Network, one.Asset, one.PayTo))
	}
	return store.PaymentTerms{}, errors.New(
		"the ledger has payments for several networks, assets or payees; choose one: " + strings.Join(choice, ", or "))
}

// complete returns the operator's settings, with the network's USDC as the default token, if they name all terms.
func (t terms) complete() (store.PaymentTerms, bool) {
	if network, known := x402.LookupNetwork(t.Network); known && t.Asset == "" {
		t.Asset = network.Asset
	}
	given := store.PaymentTerms{Network: t.Network, Asset: strings.ToLower(t.Asset), PayTo: strings.ToLower(t.Payee)}
	return given, given.Network != "" && given.Asset != "" && given.PayTo != ""
}
