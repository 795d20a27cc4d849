package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/parley-chat/parley/x402"
)

// purchase is one call that is paid.
type purchase struct {
	*Payer
	request *http.Request
	body    []byte
	id      string
	offer   x402.PaymentRequirements // the one that was paid last
	charged uint64                   // as far as the server says; the price if the outcome is not known
	closed  bool                     // the outcome of the last payment is known
}

// RoundTrip sends the request. If the response is 402, it pays and returns the response to the paid request. It returns
// a 402 if the server rejected the payment and charged nothing, or if the 402 does not contain a PAYMENT-REQUIRED
// header of x402 version 2. The error is an [*OverLimitError] if the price exceeds the limits.
func (p *Payer) RoundTrip(request *http.Request) (*http.Response, error) {
	call := &purchase{Payer: p, request: request}
	if request.Body != nil {
		var err error
		call.body, err = io.ReadAll(request.Body)
		_ = request.Body.Close()
		if err != nil {
			return nil, err
		}
	}
	if call.id, _ = request.Context().Value(identifierKey{}).(string); call.id == "" {
		call.id = NewIdentifier()
	}
	response, err := call.pay(request.Context())
	if wasNotSent(err) {
		call.charged = 0
		if p.Journal != nil {
			p.Journal.Closed(request.Context(), call.id, Outcome{})
		}
	}
	p.count(call.charged)
	if err != nil {
		return response, err
	}
	return call.finish(request.Context(), response)
}

// pay pays at once if it knows the terms, and otherwise asks for them.
func (c *purchase) pay(ctx context.Context) (*http.Response, error) {
	if c.Terms != nil {
		if known := c.Terms.Required(c.request); known != nil {
			response, err := c.payFor(ctx, known)
			if response == nil || response.StatusCode != http.StatusPaymentRequired || c.charged > 0 || offers(response, c.offer) {
				return response, err
			}
			return c.payTerms(ctx, response) // they have changed
		}
	}
	response, err := c.send(c.request, c.body, "")
	if err != nil || response.StatusCode != http.StatusPaymentRequired {
		c.closed = err == nil && !comeAgain(response.StatusCode, peek(response))
		return response, err
	}
	return c.payTerms(ctx, response)
}

// offers reports whether a 402 response contains the offer, so that another payment of it would be refused too.
func offers(response *http.Response, offer x402.PaymentRequirements) bool {
	required, err := x402.DecodePaymentRequired(response.Header.Get(x402.HeaderPaymentRequired))
	return err != nil || slices.ContainsFunc(required.Accepts, func(o x402.PaymentRequirements) bool {
		return o.Scheme == offer.Scheme && o.Network == offer.Network && o.Amount == offer.Amount &&
			o.MaxTimeoutSeconds == offer.MaxTimeoutSeconds &&
			strings.EqualFold(o.Asset, offer.Asset) && strings.EqualFold(o.PayTo, offer.PayTo)
	})
}

// payTerms pays what a 402 response asks for, if the Terms accept it.
func (c *purchase) payTerms(ctx context.Context, response *http.Response) (*http.Response, error) {
	required, err := x402.DecodePaymentRequired(response.Header.Get(x402.HeaderPaymentRequired))
	if err != nil {
		return response, nil //nolint:nilerr // not x402 version 2: the response is the caller's to look at
	}
	if required, err = c.agreed(c.request, required); err != nil {
		if c.offer.Scheme != "" { // a payment on the terms that were known is refused
			response, _ = c.finish(ctx, response)
		}
		discard(response)
		return nil, err
	}
	discard(response)
	return c.payFor(ctx, required)
}

// payFor pays from a payment channel, or with a transfer.
func (c *purchase) payFor(ctx context.Context, required *x402.PaymentRequired) (*http.Response, error) {
	// All payments of a call have one identifier: should one have been charged, the next one returns its response.
	extensions := withIdentifier(required.Extensions, c.id)
	response, open, err := c.payFromChannel(ctx, required, extensions)
	if !open {
		return response, err
	}
	offer, network, ok := c.exactOffer(required)
	if !ok {
		if errors.Is(err, ErrNoPaymentChannel) {
			err = errNoOffer
		}
		return response, err
	}
	if response != nil {
		discard(response)
	}
	// Use the name and version of the token that we know, so that a server cannot make us sign for another token through
	// extra.
	offer.Extra = network.Requirements(0, offer.PayTo, offer.MaxTimeoutSeconds).Extra
	return c.payExact(ctx, offer, &required.Resource, extensions)
}

// payExact pays with a transfer for this call.
func (c *purchase) payExact(
	ctx context.Context, offer x402.PaymentRequirements, resource *x402.ResourceInfo, extensions map[string]jsontext.Value,
) (*http.Response, error) {
	price, err := strconv.ParseUint(offer.Amount, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("the price in the payment requirements: %w", err)
	}
	reserved := Reservation{ID: c.id, Price: price, Amount: price, Offer: offer}
	c.offer = offer
	if err := c.Budget.Reserve(ctx, reserved); err != nil {
		return nil, err
	}
	var payment string
	signed, err := x402.Sign(ctx, c.Signer, offer, resource, extensions, time.Now())
	if err == nil {
		payment, err = x402.EncodePaymentPayload(signed)
	}
	if err == nil {
		err = c.note(ctx, reserved, payment)
	}
	if err != nil {
		release(ctx, c.Budget, reserved, false)
		return nil, err
	}
	c.charged = price
	response, err := c.insist(c.request, c.body, payment)
	if err != nil {
		if wasNotSent(err) {
			release(ctx, c.Budget, reserved, false)
		}
		return response, err
	}
	problem := peek(response)
	c.closed = !comeAgain(response.StatusCode, problem)
	if c.closed && uncharged(response, problem) {
		c.charged = 0
		release(ctx, c.Budget, reserved, true)
	}
	return response, err
}

// note stores a payment in the journal before it is sent.
func (c *purchase) note(ctx context.Context, reserved Reservation, payment string) error {
	c.closed = false
	if c.Journal == nil {
		return nil
	}
	return c.Journal.Signed(ctx, SignedPayment{
		Reservation: reserved, Method: c.request.Method, URL: c.request.URL.String(), Header: c.request.Header.Clone(), Body: c.body,
		Payment: payment,
	})
}

// uncharged reports whether the server says that it charged nothing.
func uncharged(response *http.Response, problem ParleyError) bool {
	return response.StatusCode != http.StatusOK && problem.Charged != nil && !*problem.Charged
}

// finish stores the outcome in the journal, if it is known.
func (c *purchase) finish(ctx context.Context, response *http.Response) (*http.Response, error) {
	if c.Journal == nil || !c.closed || response == nil {
		return response, nil
	}
	body, err := buffer(response)
	if err != nil {
		return nil, err // the journal keeps the call open
	}
	c.Journal.Closed(ctx, c.id, Outcome{response.StatusCode, response.Header.Clone(), body, c.charged})
	return response, nil
}

// exactOffer returns the first offer of the scheme exact that the Payer may pay, and its network.
func (p *Payer) exactOffer(required *x402.PaymentRequired) (offer x402.PaymentRequirements, network x402.Network, ok bool) {
	for _, offer := range required.Accepts {
		if network, known := KnownNetwork(p.Networks, offer); known && offer.Scheme == x402.SchemeExact {
			return offer, network, true
		}
	}
	return offer, network, false
}

// withIdentifier returns the extensions that a server offers, with a payment identifier. A server that does not offer this
// extension ignores it.
func withIdentifier(offered map[string]jsontext.Value, id string) map[string]jsontext.Value {
	extensions := maps.Clone(offered)
	if extensions == nil {
		extensions = map[string]jsontext.Value{}
	}
	// Hex digits need no escaping in JSON.
	extensions["payment-identifier"] = jsontext.Value(`{"info":{"required":false,"id":"` + id + `"}}`)
	return extensions
}
