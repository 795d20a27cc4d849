package client

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

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
	// Base sends the requests. If nil, the Payer uses a transport of [NewTransport].
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
		return response, outcomeOf(err, true)
	}
	problem := peek(response)
	call.closed = !comeAgain(response.StatusCode, problem)
	if uncharged(response, problem) {
		call.charged = 0
	}
	if channels := p.paymentChannels(); channels != nil && call.closed && signed.Channel != "" {
		_ = channels.resumed(ctx, signed, response) // if that fails, the server proves the channel's state at the next call
	}
	return call.finish(ctx, response)
}

// leastPause is the shortest pause before a payment is sent again, whatever the server asks for in Retry-After.
const leastPause = 50 * time.Millisecond

// insist sends the paid request until its outcome is known, or Patience ends.
func (p *Payer) insist(request *http.Request, body []byte, payment string) (*http.Response, error) {
	began := time.Now()
	deadline := began.Add(cmp.Or(p.Patience, time.Minute) + heldBack(request))
	if ends, ok := request.Context().Deadline(); ok && ends.Before(deadline) {
		deadline = ends // so that the last response is returned
	}
	sent := false
	for pause := 250 * time.Millisecond; ; pause = min(2*pause, 5*time.Second) {
		response, err := p.send(request, body, payment)
		sent = sent || !wasNotSent(err)
		wait := pause
		if err == nil {
			if !comeAgain(response.StatusCode, peek(response)) {
				return response, nil
			}
			wait = max(x402.RetryAfter(response.Header.Get("Retry-After"), pause), leastPause)
		}
		if request.Context().Err() != nil || time.Now().Add(wait).After(deadline) || !sent && time.Since(began) > unreachablePatience {
			return response, outcomeOf(err, sent) // if it was sent, the outcome is unknown, so the amount counts as spent
		}
		if response != nil {
			discard(response)
		}
		if stopped := sleep(request.Context(), wait); stopped != nil {
			if !sent {
				stopped = err
			}
			return nil, stopped
		}
	}
}

// outcomeOf returns the error of a payment. If it was sent before, the server may have it although it cannot be reached now.
func outcomeOf(err error, sent bool) error {
	if unreachable, ok := errors.AsType[*UnreachableError](err); ok && sent {
		return errors.New(unreachable.reason())
	}
	return err
}

// heldBack is how long the server may hold the request back: see the parameter wait of GET /agent/unread.
func heldBack(request *http.Request) time.Duration {
	seconds, err := strconv.ParseUint(request.URL.Query().Get("wait"), 10, 8)
	if err != nil {
		return 0
	}
	return time.Duration(seconds) * time.Second //nolint:gosec // below 256
}

func (p *Payer) send(request *http.Request, body []byte, payment string) (*http.Response, error) {
	again := request.Clone(request.Context())
	if body != nil {
		again.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
		again.Body, _ = again.GetBody()
		again.ContentLength = int64(len(body))
	}
	if payment != "" {
		again.Header.Set(x402.HeaderPaymentSignature, payment)
	}
	return Limited(cmp.Or[http.RoundTripper](p.Base, defaultTransport)).RoundTrip(again)
}
