package client

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/parley-chat/parley/x402"
)

// Payer is an http.RoundTripper that pays 402 responses (x402 version 2). It pays only with the tokens of Networks, only what
// Terms accept, and never more than Budget allows. It is safe for concurrent use.
//
// If a server offers payment channels (scheme batch-settlement), the Payer deposits into one and then pays each call with a
// signed voucher. Otherwise, if a deposit would not pay for ten calls, and if the server refuses the voucher or the deposit, it
// pays with one transfer per call (scheme exact). Calls that are paid from one payment channel are made one after another.
// [Payer.Refund] gets back what a server did not charge. The field Channels changes or disables this.
//
// Every call has a random payment identifier. If the response is lost, or is 500, 502, 503, 504 or 409 payment_in_progress, the
// Payer sends the same payment with the same identifier again, because a second payment could be charged as well. The
// identifier is also required to get a stored response that contains a TAN or an API key. Without it the server returns 409
// proof_required; a Payer does not get this response, because it sends the identifier.
//
// Without a Journal, a payment is kept only until RoundTrip returns. If a program crashes during CreateAccount or RotateKey, it
// gets the response by making the same call again with the same wallet within ten minutes. The new payment proves possession of
// the wallet and is not charged, although the Payer may count it as spent.
type Payer struct {
	// Signer signs the payments. It is required.
	Signer x402.Signer
	// Budget limits what is signed. It is required.
	Budget Budget
	// Journal, if not nil, keeps payments whose outcome is not known over a crash.
	Journal Journal
	// Terms, if not nil, are the only terms that are paid.
	Terms Terms
	// Base sends the requests. If nil, http.DefaultTransport is used.
	Base http.RoundTripper
	// Networks are the chains and tokens that the Payer pays with. If nil, it pays with USDC on Base and on Base
	// Sepolia.
	Networks []x402.Network
	// Patience limits how long one call retries the same payment. Zero means one minute.
	Patience time.Duration
	// Channels are the payment channels that calls are paid from. If it is nil, every call is paid with a transfer of its own.
	// NewPayer sets MaxDeposit to Limits.PerCall. If its Networks are nil, they are those of the Payer. If its Store is nil,
	// it is the folder parley/payment-channels in [os.UserConfigDir], which all programs of a user share.
	Channels *PaymentChannels

	mu              sync.Mutex
	spent           uint64
	depositsRefused time.Time // when a server refused a payment from a payment channel last
}

// NewPayer returns a Payer for a private key of 64 hex digits, with or without 0x, whose budget ends with the process. It returns
// an error for any other format.
func NewPayer(privateKey string, limits Limits) (*Payer, error) {
	signer, err := x402.ParseKeySigner(privateKey)
	if err != nil {
		return nil, err
	}
	return &Payer{Signer: signer, Budget: NewMemoryBudget(limits), Channels: NewPaymentChannels(signer, nil, limits.PerCall)}, nil
}

// Address returns the address of the wallet that pays.
func (p *Payer) Address() string { return p.Signer.Address() }

// Spent returns the amount that this Payer has spent, in atomic units. It includes payments whose outcome is unknown.
func (p *Payer) Spent() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.spent
}

func (p *Payer) count(amount uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.spent += amount
}

var errNoOffer = errors.New(
	"the server's payment requirements contain none that this wallet supports (scheme exact or batch-settlement, USDC on a known network)")

type identifierKey struct{}

// WithIdentifier returns a context whose calls have this payment identifier (64 hex digits) in place of a random one. A call
// that is made again with its identifier, by any process, is charged once.
func WithIdentifier(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, identifierKey{}, id)
}

// NewIdentifier returns a payment identifier of 256 random bits.
func NewIdentifier() string {
	var random [32]byte
	_, _ = rand.Read(random[:]) // never returns an error: the program ends if there is no randomness
	return hex.EncodeToString(random[:])
}

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

// offers tells whether a 402 response contains the offer, so that another payment of it would be refused too.
func offers(response *http.Response, offer x402.PaymentRequirements) bool {
	required, err := x402.DecodePaymentRequired(response.Header.Get(x402.HeaderPaymentRequired))
	return err != nil || slices.ContainsFunc(required.Accepts, func(o x402.PaymentRequirements) bool {
		return o.Scheme == offer.Scheme && o.Network == offer.Network && o.Amount == offer.Amount && o.MaxTimeoutSeconds == offer.MaxTimeoutSeconds &&
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
	payment, err := c.signExact(ctx, offer, resource, extensions)
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

func (p *Payer) signExact(
	ctx context.Context, offer x402.PaymentRequirements, resource *x402.ResourceInfo, extensions map[string]jsontext.Value,
) (string, error) {
	payload, err := x402.Sign(ctx, p.Signer, offer, resource, extensions, time.Now())
	if err != nil {
		return "", err
	}
	return x402.EncodePaymentPayload(payload)
}

// note stores a payment in the journal before it is sent.
func (c *purchase) note(ctx context.Context, reserved Reservation, payment string) error {
	c.closed = false
	if c.Journal == nil {
		return nil
	}
	return c.Journal.Signed(ctx, SignedPayment{
		Reservation: reserved, Method: c.request.Method, URL: c.request.URL.String(), Header: c.request.Header.Clone(), Body: c.body, Payment: payment,
	})
}

// Resume sends a payment of the journal again until its outcome is known, or Patience ends. It pays nothing new. If the response is
// 402, nothing was charged; the call can be made again with the same payment identifier ([WithIdentifier]).
func (p *Payer) Resume(ctx context.Context, signed SignedPayment) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, signed.Method, signed.URL, nil)
	if err != nil {
		return nil, err
	}
	if signed.Header != nil {
		request.Header = signed.Header.Clone()
	}
	call := &purchase{Payer: p, request: request, body: signed.Body, id: signed.ID, charged: signed.Price}
	response, err := p.insist(request, signed.Body, signed.Payment)
	if err != nil {
		return response, err
	}
	problem := peek(response)
	call.closed = !comeAgain(response.StatusCode, problem)
	if uncharged(response, problem) {
		call.charged = 0
	}
	return call.finish(ctx, response)
}

// uncharged tells whether the server says that it charged nothing.
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

// insist sends the paid request until its outcome is known, or Patience ends.
func (p *Payer) insist(request *http.Request, body []byte, payment string) (*http.Response, error) {
	patience := p.Patience
	if patience == 0 {
		patience = time.Minute
	}
	deadline := time.Now().Add(patience)
	for pause := 250 * time.Millisecond; ; pause = min(2*pause, 5*time.Second) {
		response, err := p.send(request, body, payment)
		wait := pause
		if err == nil {
			if !comeAgain(response.StatusCode, peek(response)) {
				return response, nil
			}
			if seconds, err := strconv.Atoi(response.Header.Get("Retry-After")); err == nil {
				wait = time.Duration(seconds) * time.Second
			}
		}
		if request.Context().Err() != nil || time.Now().Add(wait).After(deadline) {
			return response, err // the outcome is unknown, so the amount counts as spent
		}
		if response != nil {
			discard(response)
		}
		if err := sleep(request.Context(), wait); err != nil {
			return nil, err
		}
	}
}

// exactOffer returns the first offer of the scheme exact that the Payer may pay, and its network.
func (p *Payer) exactOffer(required *x402.PaymentRequired) (offer x402.PaymentRequirements, network x402.Network, ok bool) {
	for _, offer := range required.Accepts {
		if network, known := knownNetwork(p.Networks, offer); known && offer.Scheme == x402.SchemeExact {
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

func (p *Payer) send(request *http.Request, body []byte, payment string) (*http.Response, error) {
	again := request.Clone(request.Context())
	if body != nil {
		again.Body = io.NopCloser(bytes.NewReader(body))
		again.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
		again.ContentLength = int64(len(body))
	}
	if payment != "" {
		again.Header.Set(x402.HeaderPaymentSignature, payment)
	}
	base := p.Base
	if base == nil {
		base = http.DefaultTransport
	}
	return base.RoundTrip(again)
}

// comeAgain tells whether the outcome is unknown, so that the same payment must be sent again. The contract defines
// this for 500, 503 and payment_in_progress. A proxy that cannot reach the server returns 502 or 504.
func comeAgain(status int, problem ParleyError) bool {
	switch status {
	case http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	case http.StatusConflict:
		return problem.Code == ErrorCodePaymentInProgress
	}
	return false
}

// peek decodes an error's body, up to 1 MiB, and leaves the body readable.
func peek(response *http.Response) (problem ParleyError) {
	if response.StatusCode == http.StatusOK {
		return problem
	}
	if body, err := buffer(response); err == nil {
		_ = json.Unmarshal(body, &problem)
	}
	return problem
}

// buffer reads the body and leaves it readable. An error's body is cut at 1 MiB.
func buffer(response *http.Response) ([]byte, error) {
	limit := int64(maxBody)
	if response.StatusCode != http.StatusOK {
		limit = 1 << 20
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, limit))
	_ = response.Body.Close()
	response.Body = io.NopCloser(bytes.NewReader(body))
	return body, err
}

// maxBody limits what is read of a response for the journal. Parley's longest response is below 4 MiB.
const maxBody = 64 << 20

// discard reads the rest of the body, up to 1 MiB, so that the connection can be reused.
func discard(response *http.Response) {
	_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, 1<<20))
	_ = response.Body.Close()
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
