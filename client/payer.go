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

// Payer is an http.RoundTripper that pays 402 responses (x402 version 2, scheme exact) with a private key. It pays only
// with the tokens of Networks and never more than its limits. It is safe for concurrent use.
//
// Every payment has a random payment identifier. If the response is lost, or is 500, 502, 503, 504 or 409
// payment_in_progress, the Payer sends the same payment with the same identifier again, because a second payment could
// be charged as well. The identifier is also required to get a stored response that contains a TAN or an API key.
// Without it the server returns 409 proof_required; a Payer does not get this response, because it sends the
// identifier.
//
// A Payer keeps its payment only until RoundTrip returns. If a program crashes during CreateAccount or RotateKey, it
// gets the response by making the same call again with the same wallet within ten minutes. The new payment proves
// possession of the wallet and is not charged, although the Payer counts it as spent.
type Payer struct {
	// Base sends the requests. If nil, http.DefaultTransport is used.
	Base http.RoundTripper
	// Networks are the chains and tokens that the Payer pays with. If nil, it pays with USDC on Base and on Base
	// Sepolia.
	Networks []x402.Network
	// Patience limits how long one call retries the same payment. Zero means one minute.
	Patience time.Duration

	key    *ecdsa.PrivateKey
	limits Limits

	mu    sync.Mutex
	spent uint64
}

// NewPayer returns a Payer for a private key of 64 hex digits, with or without 0x. It returns an error for any other
// format.
func NewPayer(privateKey string, limits Limits) (*Payer, error) {
	key, err := evm.HexToECDSA(strings.TrimPrefix(privateKey, "0x"))
	if err != nil {
		return nil, errors.New("the private key is not 64 hex digits") // the library's message may quote the key
	}
	return &Payer{key: key, limits: limits}, nil
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
	payment, price, err := p.sign(required)
	if err != nil {
		return nil, err
	}
	return p.pay(request, body, payment, price)
}

// pay sends the paid request until its outcome is known.
func (p *Payer) pay(request *http.Request, body []byte, payment string, price uint64) (*http.Response, error) {
	patience := p.Patience
	if patience == 0 {
		patience = time.Minute
	}
	deadline := time.Now().Add(patience)
	for pause := 250 * time.Millisecond; ; pause = min(2*pause, 5*time.Second) {
		response, err := p.send(request, body, payment)
		wait := pause
		if err == nil {
			problem := peek(response)
			if !comeAgain(response.StatusCode, problem) {
				if response.StatusCode != http.StatusOK && problem.Charged != nil && !*problem.Charged {
					p.release(price)
				}
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

// sign selects the first payment requirements that it may pay, reserves their price, and signs. It returns the value of
// the PAYMENT-SIGNATURE header and the price.
func (p *Payer) sign(required *x402.PaymentRequired) (string, uint64, error) {
	for _, offer := range required.Accepts {
		network, ok := p.network(offer)
		price, err := strconv.ParseUint(offer.Amount, 10, 64)
		if !ok || err != nil {
			continue
		}
		if err := p.book(price); err != nil {
			return "", 0, err
		}
		// Use the name and version of the token that we know, so that a server cannot make us sign for another token
		// through extra.
		offer.Extra = network.Requirements(price, offer.PayTo, offer.MaxTimeoutSeconds).Extra
		payload, err := x402.Sign(p.key, offer, &required.Resource, withIdentifier(required.Extensions), time.Now())
		if err != nil {
			p.release(price)
			return "", 0, err
		}
		header, err := x402.EncodePaymentPayload(payload)
		if err != nil {
			p.release(price)
			return "", 0, err
		}
		return header, price, nil
	}
	return "", 0, errors.New("the server's payment requirements contain none that this wallet supports (scheme exact, USDC on a known network)")
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

func (p *Payer) network(offer x402.PaymentRequirements) (x402.Network, bool) {
	networks := p.Networks
	if networks == nil {
		network, ok := x402.LookupNetwork(offer.Network)
		if !ok {
			return network, false
		}
		networks = []x402.Network{network}
	}
	for _, network := range networks {
		if offer.Scheme == x402.SchemeExact && offer.Network == network.ID && strings.EqualFold(offer.Asset, network.Asset) {
			return network, true
		}
	}
	return x402.Network{}, false
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
func comeAgain(status int, problem APIError) bool {
	switch status {
	case http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	case http.StatusConflict:
		return problem.Code == ErrorCodePaymentInProgress
	}
	return false
}

// peek decodes an error's body, up to 1 MiB, and leaves the body readable.
func peek(response *http.Response) (problem APIError) {
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
