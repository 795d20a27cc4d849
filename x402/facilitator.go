package x402

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"
)

const (
	// verifyTimeout limits /verify, and /supported including its retries. Neither call moves money.
	verifyTimeout = 10 * time.Second
	// maxResponseBytes limits the size of a response. Real responses have a few hundred bytes.
	maxResponseBytes = 1 << 20
	// maxAttempts and longestPause limit the retries of /supported if the facilitator is busy or unavailable.
	maxAttempts  = 3
	longestPause = 10 * time.Second
	// retryPause is the pause after a failure without a Retry-After from the facilitator.
	retryPause = 200 * time.Millisecond
)

// Facilitator is a client of a facilitator's HTTP API. It sends each payment in the payment's own version of the
// protocol. It is safe for concurrent use once its fields are set.
//
// Errors contain HTTP statuses but never text from the facilitator, because that text may repeat the payment. For the
// same reason, do not log the messages in verdicts together with payloads.
type Facilitator struct {
	// BaseURL is the URL of the API without a trailing slash.
	BaseURL string
	// HTTPClient sends the requests. If nil, [http.DefaultClient] is used. Redirects are never followed. If Timeout is
	// set, it must be long enough for a settlement: 60 to 90 seconds.
	HTTPClient *http.Client
	// AuthHeaders returns the authentication headers that a hosted facilitator requires for the endpoint "supported",
	// "verify" or "settle". It is called for each request. If nil, no headers are added.
	AuthHeaders func(ctx context.Context, endpoint string) (http.Header, error)
	// Logger receives what the facilitator responds about extensions, for example whether a catalogue accepted the
	// entry. Each extension is one log record, at level Warn if it was rejected and at level Info otherwise. If nil,
	// nothing is logged.
	Logger *slog.Logger
}

// UnknownOutcome means that /settle returned no clear response: the money may or may not have moved. Do not ask the
// payer to pay again (no 402). Settle the same payment again later.
type UnknownOutcome struct {
	// NotSent is true if the facilitator cannot have acted in this call: the request was not made, no connection was
	// established, or the facilitator returned 429.
	NotSent bool
	// RetryAfter is how long to wait after a 429, at most ten seconds. It is zero otherwise.
	RetryAfter time.Duration
	// Reason is the facilitator's last errorReason, for example "settlement_pending". It is "" if there is none.
	Reason string
	// Transaction is the hash of a transfer that was sent to the chain and is not confirmed. It is "" if none is known.
	Transaction string
	// Err is the cause. It contains no text from the facilitator.
	Err error
}

// Error returns the cause.
func (e *UnknownOutcome) Error() string { return "no outcome from the facilitator: " + e.Err.Error() }

// Unwrap returns Err, so that errors.Is finds [context.DeadlineExceeded].
func (e *UnknownOutcome) Unwrap() error { return e.Err }

// StatusError means that the facilitator is available but its response contains no verdict.
type StatusError struct {
	// Status is the HTTP status of the response.
	Status int
	// RetryAfter is how long to wait after a 429, or a 503 that says so, at most ten seconds. It is zero otherwise, and in an UnknownOutcome.
	RetryAfter time.Duration
}

// Error returns the status.
func (e *StatusError) Error() string {
	return fmt.Sprintf("no verdict in the response with status %d", e.Status)
}

// Supported returns the payment kinds, extensions and signers that the facilitator supports. It makes up to three attempts, for at most 10
// seconds, if the connection fails or the response is 429 or 5xx. A server
// should start even if Supported returns an error: the error only means that the capabilities are not known yet.
func (f *Facilitator) Supported(ctx context.Context) (*SupportedResponse, error) {
	var supported *SupportedResponse
	err := f.repeat(ctx, http.MethodGet, "supported", nil, maxAttempts, func(response *rawResponse) bool {
		supported = new(SupportedResponse)
		return response.status == http.StatusOK && json.Unmarshal(response.body, supported) == nil
	})
	if err != nil {
		return nil, err
	}
	return supported, nil
}

// Verify asks the facilitator whether a payment would settle. It takes at most 10 seconds. requirements are the
// server's own payment requirements, never the payer's copy. A payment of version 1 needs the server's own Resource.
//
// A negative verdict is a response with IsValid false, whatever its HTTP status. An error means that there is no
// verdict; it is a [*StatusError] if there was a response. Verify does not retry, because anybody can make a server verify payments.
func (f *Facilitator) Verify(ctx context.Context, payload *PaymentPayload, requirements PaymentRequirements) (*VerifyResponse, error) {
	body, err := requestBody(payload, requirements)
	return f.verify(ctx, body, err)
}

// verify sends the body to /verify, unless it could not be built.
func (f *Facilitator) verify(ctx context.Context, body []byte, built error) (verdict *VerifyResponse, err error) {
	if built != nil {
		return nil, fmt.Errorf("facilitator verify: %w", built)
	}
	err = f.repeat(ctx, http.MethodPost, "verify", body, 1, func(response *rawResponse) (ok bool) {
		verdict, ok = response.verifyVerdict()
		return ok
	})
	return verdict, err
}

// repeat makes a call that moves no money until accept takes the response, up to so many times and for at most verifyTimeout.
func (f *Facilitator) repeat(
	ctx context.Context, method, endpoint string, body []byte, attempts int, accept func(*rawResponse) bool,
) error {
	ctx, cancel := context.WithTimeout(ctx, verifyTimeout)
	defer cancel()
	for attempt := 1; ; attempt++ {
		wait := time.Duration(attempt) * retryPause
		response, err := f.call(ctx, method, endpoint, body)
		again := true
		switch {
		case err != nil:
			broken, ok := errors.AsType[*callError](err)
			again = ok && broken.network
		case accept(response):
			return nil
		default:
			status := &StatusError{Status: response.status}
			if response.status == http.StatusTooManyRequests || response.status == http.StatusServiceUnavailable && response.retryAfter != "" {
				wait = pause(response.retryAfter, attempt)
				status.RetryAfter = wait
			} else {
				again = response.status >= http.StatusInternalServerError
			}
			err = status
		}
		if !again || attempt == attempts || !sleep(ctx, wait) {
			return fmt.Errorf("facilitator %s: %w", endpoint, err)
		}
	}
}

// Settle asks the facilitator to transfer the money. requirements are the server's own payment requirements, never the
// payer's copy. A payment of version 1 needs the server's own Resource. ctx must not end when the payer disconnects.
// Its deadline must be at least 60 seconds ahead, because the facilitator waits for a block.
//
// A success names the transaction's hash. A rejection is a response with Success false. It is final unless
// [SettleResponse.Inconclusive] reports true. The reason invalid_exact_evm_nonce_already_used means that the
// authorization was cancelled or used, possibly by an earlier call for the same payment.
//
// Every error is an [*UnknownOutcome]. After the response settlement_pending Settle sends the identical request once
// more. The transfer has then been sent, so only a success is final; every other outcome is an UnknownOutcome. Settle
// also retries once, after a short pause, if it could not connect. After any other failure the money may have moved, so
// the caller decides about a retry.
func (f *Facilitator) Settle(ctx context.Context, payload *PaymentPayload, requirements PaymentRequirements) (*SettleResponse, error) {
	body, err := requestBody(payload, requirements)
	return f.settleRepeatedly(ctx, body, err, requirements.Network, payload.PayerAddress())
}

// settleRepeatedly sends the body to /settle, unless it could not be built, and repeats it as Settle describes. payer is "" for a
// command of the server.
func (f *Facilitator) settleRepeatedly(ctx context.Context, body []byte, built error, network, payer string) (*SettleResponse, error) {
	if built != nil {
		return nil, &UnknownOutcome{NotSent: true, Err: fmt.Errorf("facilitator settle: %w", built)}
	}
	first, err := f.settle(ctx, body, network, payer)
	if broken, ok := errors.AsType[*callError](err); ok && broken.network && broken.notSent && sleep(ctx, retryPause) {
		first, err = f.settle(ctx, body, network, payer)
	}
	if err != nil || first.Success || first.ErrorReason != ReasonSettlementPending {
		return first, err
	}
	second, err := f.settle(ctx, body, network, payer)
	if err != nil { // even if this request was not sent: the first one was
		return nil, &UnknownOutcome{Reason: ReasonSettlementPending, Transaction: first.Transaction, Err: errors.Unwrap(err)}
	}
	if !second.Success {
		return nil, &UnknownOutcome{Reason: second.ErrorReason, Transaction: first.Transaction,
			Err: errors.New("facilitator settle: the transfer was sent to the chain and is not confirmed")}
	}
	return second, nil
}

// settle calls /settle once. The error is an *UnknownOutcome, also if the verdict is about another payment: a proxy can mix responses up.
func (f *Facilitator) settle(ctx context.Context, body []byte, network, payer string) (*SettleResponse, error) {
	response, err := f.call(ctx, http.MethodPost, "settle", body)
	if err != nil {
		broken, ok := errors.AsType[*callError](err)
		return nil, &UnknownOutcome{NotSent: ok && broken.notSent, Err: fmt.Errorf("facilitator settle: %w", err)}
	}
	verdict, ok := response.settleVerdict()
	if !ok && response.status == http.StatusTooManyRequests {
		return nil, &UnknownOutcome{NotSent: true, RetryAfter: pause(response.retryAfter, 1),
			Err: fmt.Errorf("facilitator settle: %w", &StatusError{Status: response.status})}
	}
	if !ok {
		return nil, &UnknownOutcome{Err: fmt.Errorf("facilitator settle: %w", &StatusError{Status: response.status})}
	}
	known, _ := LookupNetwork(network) // some facilitators name it as in version 1
	if verdict.Success && verdict.Network != network && (known.V1Name == "" || verdict.Network != known.V1Name) ||
		payer != "" && isAddress(verdict.Payer) && !strings.EqualFold(verdict.Payer, payer) {
		return nil, &UnknownOutcome{Err: fmt.Errorf("facilitator settle: another network or payer: %w", &StatusError{Status: response.status})}
	}
	return verdict, nil
}

// requestBody returns {x402Version, paymentPayload, paymentRequirements}, all in the payload's version. It inserts the
// payload's original bytes, because encoding the payload again could change it, and then the facilitator would check
// something other than what the server checked.
func requestBody(payload *PaymentPayload, requirements PaymentRequirements) ([]byte, error) {
	version, raw, offer := Version, payload.Raw(), any(requirements)
	if payload.X402Version == VersionV1 {
		if payload.networkV1 == "" || payload.Resource == nil {
			return nil, errors.New("a payment of version 1 must come from ParsePaymentPayloadV1 and have the server's Resource")
		}
		version, offer = VersionV1, requirements.V1(payload.networkV1, *payload.Resource)
	}
	return envelope(version, raw, payload, offer)
}

// envelope returns the body of a request. raw is the payment as it was received; nil encodes payment.
func envelope(version int, raw []byte, payment, requirements any) ([]byte, error) {
	if raw == nil {
		var err error
		if raw, err = json.Marshal(payment, json.Deterministic(true)); err != nil {
			return nil, errors.New("the payment cannot be encoded as JSON")
		}
	}
	ours, err := json.Marshal(requirements, json.Deterministic(true))
	if err != nil {
		return nil, fmt.Errorf("encode payment requirements: %w", err)
	}
	return fmt.Appendf(nil, `{"x402Version":%d,"paymentPayload":%s,"paymentRequirements":%s}`, version, raw, ours), nil
}

// callError is a call without a response.
type callError struct {
	error
	network bool // the network failed, between this client and the facilitator
	notSent bool // the request was not made, or no connection was established
}

func (e *callError) Unwrap() error { return e.error }

// call sends one request and reads the whole response. Failures without a response are a *callError.
func (f *Facilitator) call(ctx context.Context, method, endpoint string, body []byte) (*rawResponse, error) {
	var connected atomic.Bool // written by the transport's goroutines
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { connected.Store(true) },
	})
	req, err := http.NewRequestWithContext(ctx, method, f.BaseURL+"/"+endpoint, bytes.NewReader(body))
	if err != nil {
		return nil, &callError{err, false, true}
	}
	if f.AuthHeaders != nil {
		headers, err := f.AuthHeaders(ctx, endpoint)
		if err != nil {
			return nil, &callError{fmt.Errorf("authenticate: %w", err), false, true}
		}
		for name, values := range headers {
			req.Header[http.CanonicalHeaderKey(name)] = values
		}
	}
	req.Header.Set("Accept", "application/json")
	if method == http.MethodPost {
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := f.client().Do(req)
	if err != nil {
		// Both conditions are needed. A transport without tracing never reports a connection. A transport that loses a
		// connection after sending may fail to dial the next one.
		dial, ok := errors.AsType[*net.OpError](err)
		return nil, &callError{err, true, ok && dial.Op == "dial" && !connected.Load()}
	}
	defer res.Body.Close()
	f.logExtensions(ctx, endpoint, res.Header.Get(headerExtensionResponses))
	content, err := io.ReadAll(io.LimitReader(res.Body, maxResponseBytes+1))
	if err != nil {
		return nil, &callError{fmt.Errorf("read the response with status %d: %w", res.StatusCode, err), true, false}
	}
	if len(content) > maxResponseBytes {
		return nil, fmt.Errorf("the response with status %d is longer than %d bytes", res.StatusCode, maxResponseBytes)
	}
	return &rawResponse{res.StatusCode, res.Header.Get("Retry-After"), content}, nil
}

// client returns the HTTP client, configured to return redirects instead of following them. A redirect could send the
// payment to another server.
func (f *Facilitator) client() *http.Client {
	client := *http.DefaultClient
	if f.HTTPClient != nil {
		client = *f.HTTPClient
	}
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &client
}

// pause returns how long to wait after a 429: the seconds in Retry-After, or else one second per attempt made, and at
// most longestPause.
func pause(retryAfter string, attempt int) time.Duration {
	return min(RetryAfter(retryAfter, time.Duration(attempt)*time.Second), longestPause)
}

// sleep waits. It returns false at once if ctx ends before the wait is over.
func sleep(ctx context.Context, wait time.Duration) bool {
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < wait {
		return false
	}
	select {
	case <-time.After(wait):
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}
