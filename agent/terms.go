package agent

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"

	"github.com/parley-chat/parley/x402"
)

// pins are what an agent agreed to with a server at its first contact. A server that asks for something else gets no signature.
type pins struct {
	// Server is the base URL.
	Server  string `json:"server"`
	Network string `json:"network"`
	Asset   string `json:"asset"`
	Payee   string `json:"payee"`
	// Prices are those that a person accepted in place of the contract's, by operationId, in atomic units.
	Prices map[string]uint64 `json:"prices,omitempty"`
	// Accepts are the offers of the server for any operation. Only their amount differs between operations.
	Accepts []x402.PaymentRequirements `json:"accepts"`
}

// TermsError means that a server asked for something else than what was agreed. Nothing was signed.
type TermsError struct{ What, Agreed, Asked string }

func (e *TermsError) Error() string {
	return fmt.Sprintf("the server asks for another %s: %s was agreed, it asks for %s; nothing was paid. "+
		"If the change is right, a person can accept it with: parley prices --accept",
		e.What, e.Agreed, e.Asked)
}

// terms are the agreed terms of a server. They implement [client.Terms].
type terms struct {
	contract Contract
	state    *state

	mu   sync.Mutex
	pins pins
	text string // the setting that was read
	err  error  // why pins cannot be used
}

// usable returns why no terms can be used, or nil. Nothing is paid if there is an error.
func (t *terms) usable() error {
	defer t.lock()()
	return t.err
}

// lock locks the terms and reads them again if another process has agreed to others. They are empty if nothing was agreed.
func (t *terms) lock() (unlock func()) {
	t.mu.Lock()
	text, err := setting(context.Background(), t.state.db, termsSetting)
	if err != nil || t.err != nil || text != t.text {
		t.read(text, err)
	}
	return t.mu.Unlock
}

// read takes over the setting. Terms of another network need a new process: it reads another blockchain, and other recipients may be
// allowed.
func (t *terms) read(text string, err error) {
	var read pins
	if err == nil {
		err = json.Unmarshal([]byte(text), &read)
	}
	network := t.pins.Network
	switch {
	case err != nil:
		t.err = fmt.Errorf("read the agreed terms: %w", err)
	case network != "" && network != read.Network:
		t.err = fmt.Errorf("this wallet pays on %s now, and paid on %s when this program was started; start it again", read.Network, network)
	default:
		t.pins, t.text, t.err = read, text, nil
	}
}

// agree stores terms.
func (t *terms) agree(agreed pins) error {
	ctx := context.Background()
	if err := t.state.transact(ctx, func(tx *sql.Tx) error { return saveSetting(ctx, tx, termsSetting, agreed) }); err != nil {
		return err
	}
	t.mu.Lock()
	t.pins, t.text = pins{}, ""
	t.mu.Unlock()
	return t.usable()
}

// agreed returns the terms.
func (t *terms) agreed() pins {
	defer t.lock()()
	return t.pins
}

// server returns the base URL of the server.
func (t *terms) server() string {
	defer t.lock()()
	return t.pins.Server
}

// cost is price for callers that have not locked the terms.
func (t *terms) cost(o *Operation) uint64 {
	defer t.lock()()
	return t.price(o)
}

// price returns what an operation may cost.
func (t *terms) price(o *Operation) uint64 {
	if accepted, ok := t.pins.Prices[o.ID]; ok {
		return accepted
	}
	return o.Price
}

// Required implements [client.Terms].
func (t *terms) Required(request *http.Request) *x402.PaymentRequired {
	defer t.lock()()
	o := t.contract.At(request.Method, request.URL.Path)
	if o == nil || !t.ours(request.URL) || t.price(o) == 0 || t.pins.Accepts == nil || t.err != nil {
		return nil
	}
	address := *request.URL
	address.RawQuery = ""
	required := &x402.PaymentRequired{X402Version: x402.Version, Resource: x402.ResourceInfo{URL: address.String()}}
	for _, offer := range t.pins.Accepts {
		offer.Amount = strconv.FormatUint(t.price(o), 10)
		required.Accepts = append(required.Accepts, offer)
	}
	return required
}

// isServer reports whether a URL is of the agreed server.
func (t *terms) isServer(address *url.URL) bool {
	defer t.lock()()
	return t.ours(address)
}

// isServerOf is isServer for the URL of a call.
func (t *terms) isServerOf(call string) bool {
	address, err := url.Parse(call)
	return err == nil && t.isServer(address)
}

// ours is isServer for callers that have locked the terms.
func (t *terms) ours(address *url.URL) bool {
	server, err := url.Parse(t.pins.Server)
	return err == nil && address.Scheme == server.Scheme && address.Host == server.Host
}

// maxValidity is for how many seconds an offer may want a payment to be valid. A payment counts against the limits for a day, so it must
// not be valid for longer.
const maxValidity = 15 * 60

// Accept implements [client.Terms]. The error is a [*TermsError].
func (t *terms) Accept(request *http.Request, offer x402.PaymentRequirements) error {
	defer t.lock()()
	switch {
	case t.err != nil:
		return t.err
	case !t.ours(request.URL):
		return &TermsError{"server", t.pins.Server, request.URL.Scheme + "://" + request.URL.Host}
	case offer.Network != t.pins.Network:
		return &TermsError{"network", t.pins.Network, offer.Network}
	case !strings.EqualFold(offer.Asset, t.pins.Asset):
		return &TermsError{"token", t.pins.Asset, offer.Asset}
	case !strings.EqualFold(offer.PayTo, t.pins.Payee):
		return &TermsError{"payee", t.pins.Payee, offer.PayTo}
	}
	if offer.MaxTimeoutSeconds > maxValidity {
		return &TermsError{"time to settle", fmt.Sprint(maxValidity, " seconds at most"), fmt.Sprint(offer.MaxTimeoutSeconds, " seconds")}
	}
	o := t.contract.At(request.Method, request.URL.Path)
	if o == nil {
		return &TermsError{"operation", "the contract", request.Method + " " + request.URL.Path}
	}
	amount, err := strconv.ParseUint(offer.Amount, 10, 64)
	if agreed := t.price(o); err != nil || amount > agreed {
		return &TermsError{"price", x402.FormatUSD(agreed) + " USD", offer.Amount + " atomic units"}
	}
	return nil
}
