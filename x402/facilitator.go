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
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"
)

const (
	// verifyTimeout bounds /verify with its repetitions and each call of /supported, which move nothing.
	verifyTimeout = 10 * time.Second
	// maxResponseBytes bounds what is read of a response; real ones have a few hundred bytes.
	maxResponseBytes = 1 << 20
	// maxAttempts and longestPause bound the patience with a facilitator that is busy or away.
	maxAttempts  = 3
	longestPause = 10 * time.Second
	// retryPause is the pause after a failure about which the facilitator said nothing.
	retryPause = 200 * time.Millisecond
)

// Facilitator calls a facilitator's HTTP API, in each payment's version of the protocol. It is safe for concurrent use
// once its fields are set. Errors tell statuses and never what a facilitator wrote, because that may repeat the payment;
// for the same reason do not log the messages in its verdicts together with payloads.
type Facilitator struct {
	// BaseURL is without a trailing slash.
	BaseURL string
	// HTTPClient sends the requests; nil means [http.DefaultClient]. Redirects are never followed. Its Timeout, if
	// set, must leave a settlement the time it needs: 60 to 90 seconds.
	HTTPClient *http.Client
	// AuthHeaders returns what a hosted facilitator wants to see, for the endpoint "supported", "verify" or "settle";
	// it is asked anew for each call. nil means none.
	AuthHeaders func(ctx context.Context, endpoint string) (http.Header, error)
	// Logger gets what facilitators say about extensions beside their verdicts, whether a catalogue took the entry for
	// instance: one line for each extension, a warning if it was rejected. nil means silence.
	Logger *slog.Logger
}

// UnknownOutcome says that /settle gave no clear response: the money may or may not have moved. The payer must not be
// asked to pay again (no 402); settle the same payment again later.
type UnknownOutcome struct {
	// NotSent is true if the facilitator cannot have acted in this call: no connection came about, or it refused to listen (429).
	NotSent bool
	// RetryAfter is how long a facilitator that refused to listen (429) wants to be left alone; otherwise zero.
	RetryAfter time.Duration
	// Reason is the facilitator's last errorReason, "settlement_pending" for instance; "" if it gave none.
	Reason string
	// Transaction is the hash of a transfer that was sent to the chain and is not confirmed; "" if none is known.
	Transaction string
	// Err says what happened. It holds nothing that the facilitator wrote.
	Err error
}

// Error returns what happened.
func (e *UnknownOutcome) Error() string { return "settlement outcome unknown: " + e.Err.Error() }

// Unwrap returns Err, so that [context.DeadlineExceeded] can be recognised.
func (e *UnknownOutcome) Unwrap() error { return e.Err }

// StatusError says that the facilitator answered, but not what it should have: it is there, and of no use.
type StatusError struct {
	// Status is the HTTP status of its response.
	Status int
}

// Error returns the status.
func (e *StatusError) Error() string {
	return fmt.Sprintf("no verdict in the response with status %d", e.Status)
}

// Supported asks what the facilitator can do. It waits and repeats on 429, honouring Retry-After up to ten seconds,
// three attempts in all. A failure should keep no server from starting: it only means that nobody knows yet.
func (f *Facilitator) Supported(ctx context.Context) (*SupportedResponse, error) {
	for attempt := 1; ; attempt++ {
		response, err := f.timedCall(ctx, http.MethodGet, "supported", nil)
		if err != nil {
			return nil, fmt.Errorf("facilitator supported: %w", err)
		}
		if response.status == http.StatusTooManyRequests && attempt < maxAttempts {
			wait := pause(response.retryAfter, attempt)
			if deadline, ok := ctx.Deadline(); (!ok || time.Until(deadline) > wait) && sleep(ctx, wait) {
				continue
			}
		}
		if response.status != http.StatusOK {
			return nil, fmt.Errorf("facilitator supported: %w", &StatusError{response.status})
		}
		supported := new(SupportedResponse)
		if json.Unmarshal(response.body, supported) != nil {
			return nil, fmt.Errorf("facilitator supported: the response is not the JSON it should be: %w", &StatusError{response.status})
		}
		return supported, nil
	}
}

// Verify asks whether a payment would settle, within 10 seconds. requirements are our own offer, never the payer's
// copy, and a payment of version 1 needs the server's own Resource. A negative verdict is a response with IsValid false,
// whatever its HTTP status; an error means that there is no verdict and nothing has happened. Because /verify moves
// nothing, it is called up to three times if the connection fails or the response is 429 or 5xx without a verdict.
func (f *Facilitator) Verify(ctx context.Context, payload *PaymentPayload, requirements PaymentRequirements) (*VerifyResponse, error) {
	body, err := requestBody(payload, requirements)
	if err != nil {
		return nil, fmt.Errorf("facilitator verify: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, verifyTimeout)
	defer cancel()
	for attempt := 1; ; attempt++ {
		verdict, wait, err := f.verify(ctx, body, attempt)
		if err == nil {
			return verdict, nil
		}
		if wait < 0 || attempt == maxAttempts || !sleep(ctx, wait) {
			return nil, fmt.Errorf("facilitator verify: %w", err)
		}
	}
}

// verify calls /verify once. With an error it says how long to wait for the next attempt, or less than zero if another
// one would be no use.
func (f *Facilitator) verify(ctx context.Context, body []byte, attempt int) (*VerifyResponse, time.Duration, error) {
	const final = -1
	wait := time.Duration(attempt) * retryPause
	response, err := f.call(ctx, http.MethodPost, "verify", body)
	if err != nil {
		if _, broken := errors.AsType[*transportError](err); !broken {
			return nil, final, err
		}
		return nil, wait, err
	}
	if verdict, ok := response.verifyVerdict(); ok {
		return verdict, final, nil
	}
	switch {
	case response.status == http.StatusTooManyRequests || response.status == http.StatusServiceUnavailable && response.retryAfter != "":
		wait = pause(response.retryAfter, attempt)
	case response.status < http.StatusInternalServerError:
		wait = final
	}
	return nil, wait, &StatusError{response.status}
}

// Settle has the facilitator move the money. requirements are our own offer, never the payer's copy, and a payment of
// version 1 needs the server's own Resource. ctx must not be the payer's connection and carries the deadline, 60 seconds
// at least, since a block must be waited for.
//
// A definite refusal is a response with Success false. invalid_exact_evm_nonce_already_used among them says that the
// authorization was used, perhaps by an earlier call for the same payment, or cancelled: consult the ledger. Every
// error is an [*UnknownOutcome]. The response settlement_pending is followed up once by the identical request; because
// the transfer is then under way, only success is final after it. A success must name its transaction's hash and the
// network of the requirements. A call that could not even connect is made once
// more after a moment; any other failure may leave open whether the money moved, so repeating is the caller's decision.
func (f *Facilitator) Settle(ctx context.Context, payload *PaymentPayload, requirements PaymentRequirements) (*SettleResponse, error) {
	body, err := requestBody(payload, requirements)
	if err != nil {
		return nil, &UnknownOutcome{NotSent: true, Err: fmt.Errorf("facilitator settle: %w", err)}
	}
	networks := []string{requirements.Network, payload.networkV1}
	first, err := f.settle(ctx, body, networks)
	if broken, ok := errors.AsType[*transportError](err); ok && broken.notSent && sleep(ctx, retryPause) {
		first, err = f.settle(ctx, body, networks)
	}
	if err != nil || first.Success || first.ErrorReason != ReasonSettlementPending {
		return first, err
	}
	second, err := f.settle(ctx, body, networks)
	if err != nil { // whether or not it was heard: the first request was
		return nil, &UnknownOutcome{Reason: ReasonSettlementPending, Transaction: first.Transaction, Err: errors.Unwrap(err)}
	}
	if !second.Success {
		return nil, &UnknownOutcome{Reason: second.ErrorReason, Transaction: first.Transaction,
			Err: errors.New("facilitator settle: the transfer was sent to the chain and is not confirmed")}
	}
	return second, nil
}

// settle calls /settle once. networks are the names under which a success may speak of the payment's network. The error
// is an *UnknownOutcome.
func (f *Facilitator) settle(ctx context.Context, body []byte, networks []string) (*SettleResponse, error) {
	response, err := f.call(ctx, http.MethodPost, "settle", body)
	if err != nil {
		broken, isBroken := errors.AsType[*transportError](err)
		_, notMade := errors.AsType[*notMadeError](err)
		notSent := notMade || isBroken && broken.notSent
		return nil, &UnknownOutcome{NotSent: notSent, Err: fmt.Errorf("facilitator settle: %w", err)}
	}
	verdict, ok := response.settleVerdict()
	if !ok && response.status == http.StatusTooManyRequests {
		return nil, &UnknownOutcome{NotSent: true, RetryAfter: pause(response.retryAfter, 1), Err: fmt.Errorf("facilitator settle: %w", &StatusError{response.status})}
	}
	if !ok {
		return nil, &UnknownOutcome{Err: fmt.Errorf("facilitator settle: %w", &StatusError{response.status})}
	}
	if verdict.Success && !slices.Contains(networks, verdict.Network) {
		return nil, &UnknownOutcome{Err: errors.New("facilitator settle: it says to have settled on another network")}
	}
	return verdict, nil
}

// requestBody is {x402Version, paymentPayload, paymentRequirements}, all in the payload's version. It is put together from bytes because encoding
// the payload again might change it, and then the facilitator would judge something else than we checked.
func requestBody(payload *PaymentPayload, requirements PaymentRequirements) ([]byte, error) {
	version, raw, offer := Version, payload.Raw(), any(requirements)
	if payload.X402Version == VersionV1 {
		if payload.networkV1 == "" || payload.Resource == nil {
			return nil, errors.New("a payment of version 1 must come from ParsePaymentPayloadV1 and have the server's Resource")
		}
		version, offer = VersionV1, requirements.V1(payload.networkV1, *payload.Resource)
	}
	if raw == nil {
		built, err := json.Marshal(payload)
		if err != nil {
			return nil, errors.New("the payment payload cannot be encoded as JSON")
		}
		raw = built
	}
	ours, err := json.Marshal(offer, json.Deterministic(true))
	if err != nil {
		return nil, fmt.Errorf("encode payment requirements: %w", err)
	}
	return fmt.Appendf(nil, `{"x402Version":%d,"paymentPayload":%s,"paymentRequirements":%s}`, version, raw, ours), nil
}

// timedCall is call with verifyTimeout.
func (f *Facilitator) timedCall(ctx context.Context, method, endpoint string, body []byte) (*rawResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, verifyTimeout)
	defer cancel()
	return f.call(ctx, method, endpoint, body)
}

// notMadeError marks a failure on our own side, before there was a request to send.
type notMadeError struct{ error }

func (e *notMadeError) Unwrap() error { return e.error }

// transportError marks a failure between us and the facilitator.
type transportError struct {
	error
	notSent bool // no connection came about, so that certainly nothing was sent
}

func (e *transportError) Unwrap() error { return e.error }

// call sends one request and reads the whole response. What fails outside of the network is no *transportError.
func (f *Facilitator) call(ctx context.Context, method, endpoint string, body []byte) (*rawResponse, error) {
	var connected atomic.Bool // written by the transport's goroutines
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { connected.Store(true) },
	})
	req, err := http.NewRequestWithContext(ctx, method, f.BaseURL+"/"+endpoint, bytes.NewReader(body))
	if err != nil {
		return nil, &notMadeError{err}
	}
	if f.AuthHeaders != nil {
		headers, err := f.AuthHeaders(ctx, endpoint)
		if err != nil {
			return nil, &notMadeError{fmt.Errorf("authenticate: %w", err)}
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
		// Both signs are needed: a transport that does not trace looks unconnected, and one that lost a connection
		// after sending may fail to dial the next.
		dial, ok := errors.AsType[*net.OpError](err)
		return nil, &transportError{err, ok && dial.Op == "dial" && !connected.Load()}
	}
	defer res.Body.Close()
	f.logExtensions(ctx, endpoint, res.Header.Get(headerExtensionResponses))
	content, err := io.ReadAll(io.LimitReader(res.Body, maxResponseBytes+1))
	if err != nil {
		return nil, &transportError{error: fmt.Errorf("read the response with status %d: %w", res.StatusCode, err)}
	}
	if len(content) > maxResponseBytes {
		return nil, fmt.Errorf("the response with status %d is longer than %d bytes", res.StatusCode, maxResponseBytes)
	}
	return &rawResponse{res.StatusCode, res.Header.Get("Retry-After"), content}, nil
}

// client returns the HTTP client, made to hand over redirects instead of carrying a payment elsewhere.
func (f *Facilitator) client() *http.Client {
	client := *http.DefaultClient
	if f.HTTPClient != nil {
		client = *f.HTTPClient
	}
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &client
}

// pause is how long to wait after a 429: what Retry-After says in seconds, else one second, then two.
func pause(retryAfter string, attempt int) time.Duration {
	wait := time.Duration(attempt) * time.Second
	if seconds, err := strconv.ParseUint(retryAfter, 10, 32); err == nil {
		wait = time.Duration(seconds) * time.Second
	}
	return min(wait, longestPause)
}

// sleep waits, and returns false at once if ctx ends before the time is over.
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
