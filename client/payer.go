package client

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/parley-chat/parley/x402"
	"github.com/parley-chat/parley/x402/evm"
)

// Limits are the maximum amounts that a Payer spends, in atomic units of USDC (six decimals: 1_000_000 is one dollar).
// Zero allows no payment.
type Limits struct {
	PerCall uint64
	Total   uint64
}

// Payer is an http.RoundTripper that pays 402 responses (x402 version 2) with a private key. It pays only with the tokens of
// Networks and never more than its limits. It is safe for concurrent use.
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
// A Payer stores its payment channels, but it keeps a payment only until RoundTrip returns. If a program crashes during
// CreateAccount or RotateKey, it gets the response by making the same call again with the same wallet within ten minutes. The
// new payment proves possession of the wallet and is not charged, although the Payer may count it as spent.
type Payer struct {
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

	key    *ecdsa.PrivateKey
	limits Limits

	mu              sync.Mutex
	spent           uint64
	depositsRefused time.Time // when a server refused a payment from a payment channel last
}

// NewPayer returns a Payer for a private key of 64 hex digits, with or without 0x. It returns an error for any other
// format.
func NewPayer(privateKey string, limits Limits) (*Payer, error) {
	key, err := evm.HexToECDSA(strings.TrimPrefix(privateKey, "0x"))
	if err != nil {
		return nil, errors.New("the private key is not 64 hex digits") // the library's message may quote the key
	}
	return &Payer{key: key, limits: limits, Channels: &PaymentChannels{MaxDeposit: limits.PerCall, key: key}}, nil
}

// Address returns the address of the wallet that pays.
func (p *Payer) Address() string { return evm.PubkeyToAddress(p.key.PublicKey).Hex() }

// Spent returns the amount that this Payer has spent, in atomic units. It includes payments whose outcome is unknown.
func (p *Payer) Spent() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.spent
}

// OverLimitError means that a price exceeds the Payer's limits. Nothing was signed.
type OverLimitError struct {
	Price, Left uint64 // atomic units
	Which       string // "per call" or "in total"
}

var errNoOffer = errors.New(
	"the server's payment requirements contain none that this wallet supports (scheme exact or batch-settlement, USDC on a known network)")

func (e *OverLimitError) Error() string {
	return fmt.Sprintf("the call costs %s USD, the limit %s leaves %s USD", x402.FormatUSD(e.Price), e.Which, x402.FormatUSD(e.Left))
}

// RoundTrip sends the request. If the response is 402, it pays and returns the response to the paid request. It returns
// a 402 if the server rejected the payment and charged nothing, or if the 402 does not contain a PAYMENT-REQUIRED
// header of x402 version 2. The error is an [*OverLimitError] if the price exceeds the limits.
func (p *Payer) RoundTrip(request *http.Request) (*http.Response, error) {
	var body []byte
	if request.Body != nil {
		var err error
		body, err = io.ReadAll(request.Body)
		_ = request.Body.Close()
		if err != nil {
			return nil, err
		}
	}
	response, err := p.send(request, body, "")
	if err != nil || response.StatusCode != http.StatusPaymentRequired {
		return response, err
	}
	required, err := x402.DecodePaymentRequired(response.Header.Get(x402.HeaderPaymentRequired))
	if err != nil {
		return response, nil //nolint:nilerr // not x402 version 2: the response is the caller's to look at
	}
	discard(response)
	// All payments of a call have one identifier: should one have been charged, the next one returns its response.
	extensions := withIdentifier(required.Extensions)
	response, open, err := p.payFromChannel(request, body, required, extensions)
	if !open {
		return response, err
	}
	offer, network, ok := p.exactOffer(required)
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
	return p.payExact(request, body, offer, &required.Resource, extensions)
}

// payExact pays with a transfer for this call.
func (p *Payer) payExact(
	request *http.Request, body []byte, offer x402.PaymentRequirements, resource *x402.ResourceInfo, extensions map[string]jsontext.Value,
) (*http.Response, error) {
	price, err := strconv.ParseUint(offer.Amount, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("the price in the payment requirements: %w", err)
	}
	if err := p.book(price); err != nil {
		return nil, err
	}
	payload, err := x402.Sign(p.key, offer, resource, extensions, time.Now())
	if err != nil {
		p.release(price)
		return nil, err
	}
	payment, err := x402.EncodePaymentPayload(payload)
	if err != nil {
		p.release(price)
		return nil, err
	}
	response, err := p.insist(request, body, payment)
	if err == nil && response.StatusCode != http.StatusOK {
		if problem := peek(response); !comeAgain(response.StatusCode, problem) && problem.Charged != nil && !*problem.Charged {
			p.release(price)
		}
	}
	return response, err
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

// withIdentifier returns the extensions that a server offers, with a payment identifier of 256 random bits. A server
// that does not offer this extension ignores it.
func withIdentifier(offered map[string]jsontext.Value) map[string]jsontext.Value {
	var random [32]byte
	_, _ = rand.Read(random[:]) // never returns an error: the program ends if there is no randomness
	extensions := maps.Clone(offered)
	if extensions == nil {
		extensions = map[string]jsontext.Value{}
	}
	// Hex digits need no escaping in JSON.
	extensions["payment-identifier"] = jsontext.Value(`{"info":{"required":false,"id":"` + hex.EncodeToString(random[:]) + `"}}`)
	return extensions
}

func (p *Payer) book(price uint64) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if price > p.limits.PerCall {
		return &OverLimitError{price, p.limits.PerCall, "per call"}
	}
	if left := p.limits.Total - min(p.spent, p.limits.Total); price > left {
		return &OverLimitError{price, left, "in total"}
	}
	p.spent += price
	return nil
}

func (p *Payer) release(price uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.spent -= price
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
	body, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	_ = response.Body.Close()
	response.Body = io.NopCloser(bytes.NewReader(body))
	if err == nil {
		_ = json.Unmarshal(body, &problem)
	}
	return problem
}

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
