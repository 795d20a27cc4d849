package agent

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/parley-chat/parley/x402"
)

// Agreement is what a server asks for. Once an agent has agreed to it, a server that asks for something else gets no signature.
type Agreement struct {
	// Server is the base URL.
	Server  string `json:"server"`
	Network string `json:"network"`
	Asset   string `json:"asset"`
	Payee   string `json:"payee"`
	// Accepts are the offers of the server for any operation. Only their amount differs between operations.
	Accepts []x402.PaymentRequirements `json:"accepts"`
}

func (a Agreement) isServer(address *url.URL) bool {
	server, err := url.Parse(a.Server)
	return err == nil && address.Scheme == server.Scheme && address.Host == server.Host
}

const codeTerms = "terms_changed"

func termsChanged(format string, values ...any) error {
	return failf(ExitLimit, codeTerms, "init --agree", format, values...)
}

// differs is the failure of a server that asks for something else than what was agreed. Nothing was signed.
func differs(what, agreed, asked string) error {
	return termsChanged("the server asks for another %s: %s was agreed, it asks for %s; nothing was paid", what, agreed, asked)
}

// terms read the agreed terms of a server. They implement [client.Terms].
type terms struct {
	contract Contract
	state    *state
}

// read returns the agreed terms, which are empty if nothing was agreed. Another process may have agreed to others.
func (t *terms) read() (Agreement, error) {
	if t.state == nil { // there is no wallet
		return Agreement{}, nil
	}
	return loadSetting(context.Background(), t.state.db, termsSetting, Agreement{})
}

// agreed returns the terms, or empty ones if they cannot be used.
func (t *terms) agreed() Agreement {
	agreed, _ := t.read()
	return agreed
}

func (t *terms) Required(request *http.Request) *x402.PaymentRequired {
	agreed, o := t.agreed(), t.contract.At(request.Method, request.URL.Path)
	if o == nil || !agreed.isServer(request.URL) || o.Price == 0 || agreed.Accepts == nil {
		return nil
	}
	address := *request.URL
	address.RawQuery = ""
	required := &x402.PaymentRequired{X402Version: x402.Version, Resource: x402.ResourceInfo{URL: address.String()}}
	for _, offer := range agreed.Accepts {
		offer.Amount = strconv.FormatUint(o.Price, 10)
		required.Accepts = append(required.Accepts, offer)
	}
	return required
}

// maxValidity is for how many seconds an offer may want a payment to be valid. A payment counts against the limits for a day, so it must
// not be valid for longer.
const maxValidity = 15 * 60

func (t *terms) Accept(request *http.Request, offer x402.PaymentRequirements) error {
	agreed, err := t.read()
	switch {
	case err != nil:
		return err
	case !agreed.isServer(request.URL):
		return differs("server", agreed.Server, request.URL.Scheme+"://"+request.URL.Host)
	case offer.Network != agreed.Network:
		return differs("network", agreed.Network, offer.Network)
	case !strings.EqualFold(offer.Asset, agreed.Asset):
		return differs("token", agreed.Asset, offer.Asset)
	case !strings.EqualFold(offer.PayTo, agreed.Payee):
		return differs("payee", agreed.Payee, offer.PayTo)
	case offer.MaxTimeoutSeconds > maxValidity:
		return differs("time to settle", fmt.Sprint(maxValidity, " seconds at most"), fmt.Sprint(offer.MaxTimeoutSeconds, " seconds"))
	}
	o := t.contract.At(request.Method, request.URL.Path)
	if o == nil {
		return differs("operation", "the contract", request.Method+" "+request.URL.Path)
	}
	amount, err := strconv.ParseUint(offer.Amount, 10, 64)
	if err != nil || amount > o.Price {
		return failf(ExitLimit, codeTerms, "", "the server asks for %s millionths of a USD, this program knows the price %s USD; nothing "+
			"was paid. A newer parley knows newer prices", VisibleName(offer.Amount), USD(o.Price))
	}
	return nil
}
