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

// Limits bound what a Payer spends, in atomic units of USDC (six decimals: 1_000_000 is one dollar). Zero allows nothing.
type Limits struct {
	PerCall uint64
	Total   uint64
}

// Payer is an http.RoundTripper that pays 402 responses (x402 version 2, scheme exact) from a private key. It pays only
// in the USDC of Networks, and never more than its limits. It is safe for concurrent use.
//
// Every payment carries a random payment identifier. After a lost response, a 500, 503 or a 409 payment_in_progress the Payer
// sends the same payment with the same identifier again, because signing a second one could pay twice. The identifier also
// opens a stored response that holds a TAN or an API key; without it such a repetition is 409 proof_required, which a Payer
// therefore does not see.
//
// A Payer forgets its payment when it returns. A program that must survive its own crash during CreateAccount or RotateKey
// gets the response within ten minutes by making the same call again with the same wallet: the new payment proves the
// wallet and is not charged, although the Payer counts it as spent.
type Payer struct {
	// Base carries the requests; nil means http.DefaultTransport.
	Base http.RoundTripper
	// Networks are the chains and tokens it pays with; nil means the USDC of Base and of Base Sepolia.
	Networks []x402.Network
	// Patience is how long one call may go on sending the same payment again; zero means a minute.
	Patience time.Duration

	key    *ecdsa.PrivateKey
	limits Limits

	mu    sync.Mutex
	spent uint64
}

// NewPayer returns a Payer for a private key of 64 hex digits, with or without 0x.
func NewPayer(privateKey string, limits Limits) (*Payer, error) {
	key, err := evm.HexToECDSA(strings.TrimPrefix(privateKey, "0x"))
	if err != nil {
		return nil, errors.New("the private key is not 64 hex digits") // never the library's text: it may quote the key
	}
	return &Payer{key: key, limits: limits}, nil
}

// Address is the wallet that pays.
func (p *Payer) Address() string { return evm.PubkeyToAddress(p.key.PublicKey).Hex() }

// Spent is what this Payer has paid, in atomic units, including payments whose outcome it never learned.
func (p *Payer) Spent() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.spent
}

// OverLimitError says that a price is above what the Payer may spend. Nothing was signed.
type OverLimitError struct {
	Price, Left uint64 // atomic units
	Which       string // "per call" or "in total"
}

func (e *OverLimitError) Error() string {
	return fmt.Sprintf("the call costs %s USD, the limit %s leaves %s USD", x402.FormatUSD(e.Price), e.Which, x402.FormatUSD(e.Left))
}

// RoundTrip sends the request, pays if the response is 402, and returns the response to the paid request. A 402 that it
// returns means that the server refused the payment and took nothing.
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

// pay sends the paid request until its outcome is clear.
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
				if response.StatusCode != http.StatusOK && !problem.Charged {
					p.release(price)
				}
				return response, nil
			}
			if seconds, err := strconv.Atoi(response.Header.Get("Retry-After")); err == nil {
				wait = time.Duration(seconds) * time.Second
			}
		}
		if request.Context().Err() != nil || time.Now().Add(wait).After(deadline) {
			return response, err // the outcome stays unknown, so the amount stays spent
		}
		if response != nil {
			discard(response)
		}
		if err := sleep(request.Context(), wait); err != nil {
			return nil, err
		}
	}
}

// sign takes the first offer that it may pay, books its price, and signs. It returns the PAYMENT-SIGNATURE header.
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
		// Signed for the token as we know it: a server cannot make us sign for another one through extra.
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
	return "", 0, errors.New("the server offers no payment that this wallet makes (scheme exact, USDC on a known network)")
}

// withIdentifier returns the extensions that a server offers, with a payment identifier of 256 random bits. A server that
// does not offer the extension ignores it.
func withIdentifier(offered map[string]jsontext.Value) map[string]jsontext.Value {
	var random [32]byte
	_, _ = rand.Read(random[:]) // never fails: without randomness the program ends
	extensions := maps.Clone(offered)
	if extensions == nil {
		extensions = map[string]jsontext.Value{}
	}
	// Hexadecimal digits need no escape.
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

// comeAgain tells whether the outcome is open, so that the same payment must be sent again: what the contract says of
// 500, 503 and payment_in_progress, and what a proxy says when it lost the server.
func comeAgain(status int, problem APIError) bool {
	switch status {
	case http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	case http.StatusConflict:
		return problem.Code == ErrorCodePaymentInProgress
	}
	return false
}

// peek reads an error's body and leaves it readable.
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

// discard reads the rest, so that the connection can be used again.
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
