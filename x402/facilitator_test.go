package x402

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"
)

const hash = "0xf1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1"

// facilitatorReplying returns a client of a facilitator that gives these replies one after another, the last one
// again and again, and the number of calls it got.
func facilitatorReplying(t *testing.T, replies ...http.HandlerFunc) (*Facilitator, *atomic.Int32) {
	t.Helper()
	calls := new(atomic.Int32)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		replies[min(int(calls.Add(1)), len(replies))-1](w, r)
	}))
	t.Cleanup(server.Close)
	return &Facilitator{BaseURL: server.URL}, calls
}

func says(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

// saysLater asks to come again after so many seconds.
func saysLater(status int, seconds string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Retry-After", seconds)
		says(status, "")(w, r)
	}
}

// hangsUp promises more than it sends.
func hangsUp(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Length", "1000")
	_, _ = io.WriteString(w, `{"success":true,"isValid":true,`)
	panic(http.ErrAbortHandler)
}

// redirects points at another place and claims success nevertheless.
func redirects(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Location", "/elsewhere")
	w.WriteHeader(http.StatusTemporaryRedirect)
	_, _ = io.WriteString(w, `{"isValid":true,"success":true,"transaction":"`+hash+`","network":"eip155:8453"}`)
}

func receivedPayment(t *testing.T) (*PaymentPayload, PaymentRequirements) {
	t.Helper()
	payload, err := ParsePaymentPayload([]byte(goodPayload))
	noError(t, "parse the good payload", err)
	return payload, knownNetwork(t, NetworkBase).Requirements(5000, vectorPayee, 60)
}

func TestVerify(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name  string
		reply http.HandlerFunc
		want  *VerifyResponse // nil if there is no verdict
		calls int32
	}{
		{"valid", says(200, `{"isValid":true,"payer":"0xab"}`), &VerifyResponse{IsValid: true, Payer: "0xab"}, 1},
		{"invalid", says(200, `{"isValid":false,"invalidReason":"insufficient_funds","invalidMessage":"poor","payer":"0xab"}`),
			&VerifyResponse{InvalidReason: "insufficient_funds", InvalidMessage: "poor", Payer: "0xab"}, 1},
		{"invalid with status 400", says(400, `{"isValid":false,"invalidReason":"invalid_payload"}`),
			&VerifyResponse{InvalidReason: "invalid_payload"}, 1},
		{"valid with odd extras", says(200, `{"isValid":true,"payer":null,"extensions":[1]}`), &VerifyResponse{IsValid: true}, 1},
		{"invalid with status 500", says(500, `{"isValid":false,"invalidReason":"unexpected_verify_error"}`),
			&VerifyResponse{InvalidReason: "unexpected_verify_error"}, 1},
		{"no isValid", says(200, `{"payer":"0xab"}`), nil, 1},
		{"isValid null", says(200, `{"isValid":null}`), nil, 1},
		{"isValid as text", says(200, `{"isValid":"true"}`), nil, 1},
		{"isValid in another case", says(200, `{"isvalid":true}`), nil, 1},
		{"isValid twice", says(200, `{"isValid":false,"isValid":true}`), nil, 1},
		{"HTML", says(200, `<html>busy</html>`), nil, 1},
		{"nothing", says(200, ``), nil, 1},
		{"status 500", says(500, `oops`), nil, 1},
		{"status 500 with JSON", says(500, `{"error":"oops"}`), nil, 1},
		{"busy", saysLater(429, "0"), nil, 1},
		{"too much", says(200, `{"isValid":true,"x":"`+strings.Repeat("x", maxResponseBytes)+`"}`), nil, 1},
		{"status 404", says(404, `{"error":"oops"}`), nil, 1},
		{"a redirect", redirects, nil, 1},
		{"hung up", hangsUp, nil, 1},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			facilitator, calls := facilitatorReplying(t, row.reply)
			payload, requirements := receivedPayment(t)
			got, err := facilitator.Verify(t.Context(), payload, requirements)
			if (err == nil) != (row.want != nil) {
				t.Fatalf("verify says %v, want a verdict: %t", err, row.want != nil)
			}
			if diff := cmp.Diff(row.want, got); diff != "" {
				t.Errorf("the verdict (-want +got):\n%s", diff)
			}
			if n := calls.Load(); n != row.calls {
				t.Errorf("the facilitator was called %d times, want %d", n, row.calls)
			}
		})
	}
}

// TestSupportedRepeats: /supported is asked up to three times. Verify asks once: see TestVerify.
func TestSupportedRepeats(t *testing.T) {
	t.Parallel()
	valid := says(200, `{"kinds":[]}`)
	busy := saysLater(429, "0")
	for _, row := range []struct {
		name    string
		replies []http.HandlerFunc
		calls   int32
		valid   bool
	}{
		{"busy, then valid", []http.HandlerFunc{busy, valid}, 2, true},
		{"busy twice, then valid", []http.HandlerFunc{busy, busy, valid}, 3, true},
		{"busy three times", []http.HandlerFunc{busy, busy, busy, valid}, 3, false},
		{"broken, then valid", []http.HandlerFunc{says(502, "<html>"), valid}, 2, true},
		{"unavailable for a moment, then valid", []http.HandlerFunc{saysLater(503, "0"), valid}, 2, true},
		{"hung up, then valid", []http.HandlerFunc{hangsUp, valid}, 2, true},
		{"one fault after another, then valid", []http.HandlerFunc{hangsUp, busy, valid}, 3, true},
		// To wait that long is beyond the time that the call has, so there is no use in waiting at all.
		{"busy for a minute", []http.HandlerFunc{saysLater(429, "60"), valid}, 1, false},
		{"unavailable for a minute", []http.HandlerFunc{saysLater(503, "60"), valid}, 1, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			facilitator, calls := facilitatorReplying(t, row.replies...)
			started := time.Now()
			_, err := facilitator.Supported(t.Context())
			if got := err == nil; got != row.valid {
				t.Errorf("/supported returns %v, want an outcome: %t", err, row.valid)
			}
			if took := time.Since(started); took > verifyTimeout*9/10 {
				t.Errorf("it took %s, want that it does not wait in vain", took)
			}
			if n := calls.Load(); n != row.calls {
				t.Errorf("the facilitator was called %d times, want %d", n, row.calls)
			}
		})
	}

	t.Run("after the caller gave up", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancel(t.Context())
		facilitator, calls := facilitatorReplying(t, func(w http.ResponseWriter, r *http.Request) {
			cancel()
			says(500, "")(w, r)
		})
		if _, err := facilitator.Supported(ctx); err == nil {
			t.Error("it succeeds after the caller gave up, want an error")
		}
		if n := calls.Load(); n != 1 {
			t.Errorf("the facilitator was called %d times, want once", n)
		}
	})
}

func TestSettle(t *testing.T) {
	t.Parallel()
	success := says(200, `{"success":true,"transaction":"`+hash+`","network":"eip155:8453","payer":"0xab"}`)
	pending := says(200, `{"success":false,"errorReason":"settlement_pending","transaction":"`+hash+`","network":"eip155:8453"}`)
	used := says(200, `{"success":false,"errorReason":"invalid_exact_evm_nonce_already_used","transaction":"","network":"eip155:8453"}`)
	settled := &SettleResponse{Success: true, Transaction: hash, Network: NetworkBase, Payer: "0xab"}
	unknown := &UnknownOutcome{}
	for _, row := range []struct {
		name    string
		replies []http.HandlerFunc
		want    *SettleResponse
		unknown *UnknownOutcome // Err aside
		calls   int32
	}{
		{"success", []http.HandlerFunc{success}, settled, nil, 1},
		{"rejected", []http.HandlerFunc{says(200, `{"success":false,"errorReason":"insufficient_funds","errorMessage":"poor",`+
			`"transaction":"","network":"eip155:8453"}`)},
			&SettleResponse{ErrorReason: "insufficient_funds", ErrorMessage: "poor", Network: NetworkBase}, nil, 1},
		{"rejected with status 402", []http.HandlerFunc{says(402,
			`{"success":false,"errorReason":"insufficient_funds","transaction":"","network":"eip155:8453"}`)},
			&SettleResponse{ErrorReason: "insufficient_funds", Network: NetworkBase}, nil, 1},
		{"rejected with status 500", []http.HandlerFunc{says(500,
			`{"success":false,"errorReason":"unexpected_settle_error","transaction":"","network":"eip155:8453"}`)},
			&SettleResponse{ErrorReason: "unexpected_settle_error", Network: NetworkBase}, nil, 1},
		{"used before", []http.HandlerFunc{used}, &SettleResponse{ErrorReason: ReasonNonceAlreadyUsed, Network: NetworkBase}, nil, 1},
		{"success with odd extras", []http.HandlerFunc{says(200,
			`{"success":true,"transaction":"`+hash+`","network":"eip155:8453","payer":"0xab","amount":5000,"extensions":[]}`)}, settled, nil, 1},
		{"pending, then success", []http.HandlerFunc{pending, success}, settled, nil, 2},
		{"pending twice", []http.HandlerFunc{pending, pending}, nil, &UnknownOutcome{Reason: ReasonSettlementPending, Transaction: hash}, 2},
		{"pending, then used", []http.HandlerFunc{pending, used}, nil, &UnknownOutcome{Reason: ReasonNonceAlreadyUsed, Transaction: hash}, 2},
		{"pending, then HTML", []http.HandlerFunc{pending, says(502, "<html>")}, nil,
			&UnknownOutcome{Reason: ReasonSettlementPending, Transaction: hash}, 2},
		{"pending, then hung up", []http.HandlerFunc{pending, hangsUp}, nil, &UnknownOutcome{Reason: ReasonSettlementPending, Transaction: hash},
			2},
		{"no success", []http.HandlerFunc{says(200, `{"transaction":"0x","network":"eip155:8453"}`)}, nil, unknown, 1},
		{"success null", []http.HandlerFunc{says(200, `{"success":null,"transaction":"0x","network":"eip155:8453"}`)}, nil, unknown, 1},
		{"no transaction", []http.HandlerFunc{says(200, `{"success":true,"network":"eip155:8453"}`)}, nil, unknown, 1},
		{"an empty transaction", []http.HandlerFunc{says(200, `{"success":true,"transaction":"","network":"eip155:8453"}`)}, nil, unknown, 1},
		{"a transaction that is none", []http.HandlerFunc{says(200,
			`{"success":true,"transaction":"the payment, once more","network":"eip155:8453"}`)}, nil, unknown, 1},
		{"another network", []http.HandlerFunc{says(200, `{"success":true,"transaction":"`+hash+`","network":"eip155:1"}`)}, nil, unknown, 1},
		{"a reason that is none", []http.HandlerFunc{says(200,
			`{"success":false,"errorReason":"the payment, once more","transaction":"it","network":"eip155:8453"}`)},
			&SettleResponse{Network: NetworkBase}, nil, 1},
		{"no network", []http.HandlerFunc{says(200, `{"success":true,"transaction":"`+hash+`"}`)}, nil, unknown, 1},
		{"rejected without transaction", []http.HandlerFunc{says(400, `{"success":false,"errorReason":"x","network":"eip155:8453"}`)}, nil,
			unknown, 1},
		{"HTML", []http.HandlerFunc{says(200, `<html>`)}, nil, unknown, 1},
		{"nothing", []http.HandlerFunc{says(200, ``)}, nil, unknown, 1},
		{"status 500", []http.HandlerFunc{says(500, `{"error":"oops"}`)}, nil, unknown, 1},
		{"status 429", []http.HandlerFunc{says(429, ``)}, nil, &UnknownOutcome{NotSent: true, RetryAfter: time.Second}, 1},
		{"429 with Retry-After", []http.HandlerFunc{busy("7")}, nil, &UnknownOutcome{NotSent: true, RetryAfter: 7 * time.Second}, 1},
		{"429 with a rejection", []http.HandlerFunc{says(429,
			`{"success":false,"errorReason":"invalid_request_rate","transaction":"","network":"eip155:8453"}`)}, nil,
			&UnknownOutcome{NotSent: true, RetryAfter: time.Second}, 1},
		{"the network's name of version 1", []http.HandlerFunc{says(200, `{"success":true,"transaction":"`+hash+`","network":"base"}`)},
			&SettleResponse{Success: true, Transaction: hash, Network: "base"}, nil, 1},
		{"another payer", []http.HandlerFunc{says(200, `{"success":true,"transaction":"`+hash+`","network":"eip155:8453","payer":"`+
			networks[0].Asset+`"}`)}, nil, unknown, 1},
		{"a rejection of another payer", []http.HandlerFunc{says(200, `{"success":false,"errorReason":"insufficient_funds","transaction":"",`+
			`"network":"eip155:8453","payer":"`+networks[0].Asset+`"}`)}, nil, unknown, 1},
		{"nothing but null", []http.HandlerFunc{says(200, `{"success":false,"errorReason":null,"transaction":null,"network":null}`)}, nil,
			unknown, 1},
		{"a redirect", []http.HandlerFunc{redirects}, nil, unknown, 1},
		{"hung up", []http.HandlerFunc{hangsUp}, nil, unknown, 1},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			facilitator, calls := facilitatorReplying(t, row.replies...)
			payload, requirements := receivedPayment(t)
			got, err := facilitator.Settle(t.Context(), payload, requirements)
			if diff := cmp.Diff(row.want, got); diff != "" {
				t.Errorf("the verdict (-want +got):\n%s", diff)
			}
			outcome, isUnknown := errors.AsType[*UnknownOutcome](err)
			if isUnknown != (row.unknown != nil) || !isUnknown && err != nil {
				t.Fatalf("settle says %v, want an unknown outcome: %t", err, row.unknown != nil)
			}
			if isUnknown {
				if outcome.Err == nil || strings.Contains(outcome.Error(), "oops") {
					t.Errorf("the unknown outcome says %v, want a cause without the facilitator's words", outcome)
				}
				if diff := cmp.Diff(*row.unknown, UnknownOutcome{outcome.NotSent, outcome.RetryAfter, outcome.Reason, outcome.Transaction,
					nil}); diff != "" {
					t.Errorf("the unknown outcome (-want +got):\n%s", diff)
				}
			}
			if n := calls.Load(); n != row.calls {
				t.Errorf("the facilitator was called %d times, want %d", n, row.calls)
			}
		})
	}
}

// TestInconclusive: a rejection is final only if it is about the payment, and nothing was sent to the chain.
func TestInconclusive(t *testing.T) {
	t.Parallel()
	for reason, want := range map[string]bool{
		"": true, ReasonSettlementPending: true, ReasonUnexpectedSettle: true, "duplicate_settlement": true, ReasonNonceAlreadyUsed: true,
		"settle_exact_node_failure": true, "settle_exact_evm_transaction_confirmation_timed_out": true, "unknown_error": true,
		"failed_to_execute_transfer": true, "invalid_exact_evm_failed_to_get_receipt": true,
		ReasonBatchDepositTransaction: true, ReasonBatchClaimTransaction: true,
		"insufficient_funds": false, "kyt_risk_detected": false, ReasonInsufficientBalance: false, ReasonBatchDepositSimulation: false,
		ReasonBatchNothingToSettle: false,
	} {
		if got := (&SettleResponse{ErrorReason: reason}).Inconclusive(); got != want {
			t.Errorf("%q is inconclusive: %t, want %t", reason, got, want)
		}
		if !(&SettleResponse{ErrorReason: reason, Transaction: hash}).Inconclusive() {
			t.Errorf("%q with a transaction is conclusive", reason)
		}
	}
}

// busy replies 429.
func busy(retryAfter string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", retryAfter)
		w.WriteHeader(http.StatusTooManyRequests)
	}
}

func TestFacilitatorRequest(t *testing.T) {
	t.Parallel()
	payload, requirements := receivedPayment(t)
	requirements.Amount = "7777" // ours goes out, not the payer's copy
	want := `{"x402Version":2,"paymentPayload":` + goodPayload + `,"paymentRequirements":{"scheme":"exact",` +
		`"network":"eip155:8453","amount":"7777","asset":"0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913",` +
		`"payTo":"0x209693Bc6afc0C5328bA36FaF03C514EF312287C","maxTimeoutSeconds":60,"extra":{"name":"USD Coin","version":"2"}}}`
	facilitator, calls := facilitatorReplying(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if r.Method != http.MethodPost || r.URL.Path != "/verify" || r.Header.Get("Content-Type") != "application/json" ||
			r.Header.Get("Authorization") != "Bearer for verify" {
			t.Errorf("the request is %s %s with %v", r.Method, r.URL.Path, r.Header)
		}
		if diff := cmp.Diff(want, string(body)); diff != "" {
			t.Errorf("the request's body (-want +got):\n%s", diff)
		}
		says(200, `{"isValid":true}`)(w, r)
	})
	facilitator.AuthHeaders = func(_ context.Context, endpoint string) (http.Header, error) {
		return http.Header{"authorization": {"Bearer for " + endpoint}}, nil
	}
	if _, err := facilitator.Verify(t.Context(), payload, requirements); err != nil {
		t.Fatalf("verify: %v", err)
	}
	facilitator.AuthHeaders = func(context.Context, string) (http.Header, error) { return nil, errors.New("no token") }
	_, err := facilitator.Settle(t.Context(), payload, requirements)
	if outcome, ok := errors.AsType[*UnknownOutcome](err); !ok || !outcome.NotSent {
		t.Errorf("settle without a token says %v, want an unknown outcome that was not sent", err)
	}
	if n := calls.Load(); n != 1 {
		t.Errorf("the facilitator was called %d times, want once", n)
	}
}

func TestSettleTimeout(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	facilitator, _ := facilitatorReplying(t, func(http.ResponseWriter, *http.Request) { <-release })
	t.Cleanup(func() { close(release) })
	payload, requirements := receivedPayment(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err := facilitator.Settle(ctx, payload, requirements)
	outcome, ok := errors.AsType[*UnknownOutcome](err)
	if !ok || outcome.NotSent || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("settle against a silent facilitator says %v, want an unknown outcome by deadline that was sent", err)
	}
}

func TestSettleNotSent(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	noError(t, "listen", err)
	address := listener.Addr().String()
	_ = listener.Close() // now nobody listens there
	payload, requirements := receivedPayment(t)
	_, err = (&Facilitator{BaseURL: "http://" + address}).Settle(t.Context(), payload, requirements)
	if outcome, ok := errors.AsType[*UnknownOutcome](err); !ok || !outcome.NotSent {
		t.Errorf("settle without a facilitator says %v, want an unknown outcome that was not sent", err)
	}

	// A transport of somebody else's making fails: what it did before is unknown.
	opaque := &Facilitator{BaseURL: "http://host.example", HTTPClient: &http.Client{
		Transport: roundTrip(func(*http.Request) (*http.Response, error) { return nil, errors.New("broken") }),
	}}
	_, err = opaque.Settle(t.Context(), payload, requirements)
	if outcome, ok := errors.AsType[*UnknownOutcome](err); !ok || outcome.NotSent {
		t.Errorf("settle through an opaque transport says %v, want an unknown outcome that may have been sent", err)
	}
}

func TestSettlePendingThenGone(t *testing.T) {
	t.Parallel()
	payload, requirements := receivedPayment(t)
	calls := 0
	facilitator := &Facilitator{BaseURL: "http://host.example", HTTPClient: &http.Client{
		Transport: roundTrip(func(*http.Request) (*http.Response, error) {
			if calls++; calls > 1 {
				return nil, &net.OpError{Op: "dial", Err: errors.New("refused")}
			}
			return &http.Response{StatusCode: 200, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(
				`{"success":false,"errorReason":"settlement_pending","transaction":"` + hash + `","network":"eip155:8453"}`))}, nil
		}),
	}}
	_, err := facilitator.Settle(t.Context(), payload, requirements)
	if outcome, ok := errors.AsType[*UnknownOutcome](err); !ok || outcome.NotSent || outcome.Transaction != hash {
		t.Errorf("a facilitator that is unavailable after settlement_pending gives %#v, want an unknown outcome that was sent", err)
	}
}

// A connection that cannot be made is tried once more, and nothing else is ever sent twice.
func TestSettleRepeats(t *testing.T) {
	t.Parallel()
	payload, requirements := receivedPayment(t)
	dial := &net.OpError{Op: "dial", Err: errors.New("refused")}
	lost := &net.OpError{Op: "read", Err: errors.New("reset")}
	for _, row := range []struct {
		name     string
		failures []error // of the first calls; then come successes
		calls    int
		notSent  bool
		settled  bool
	}{
		{"no connection at first", []error{dial}, 2, false, true},
		{"no connection twice", []error{dial, dial}, 2, true, false},
		{"no connection, then a lost one", []error{dial, lost}, 2, false, false},
		{"a lost connection", []error{lost}, 1, false, false},
		{"a timeout", []error{context.DeadlineExceeded}, 1, false, false},
	} {
		calls := 0
		facilitator := &Facilitator{BaseURL: "http://host.example", HTTPClient: &http.Client{
			Transport: roundTrip(func(*http.Request) (*http.Response, error) {
				if calls++; calls <= len(row.failures) {
					return nil, row.failures[calls-1]
				}
				return &http.Response{StatusCode: 200, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(
					`{"success":true,"transaction":"` + hash + `","network":"eip155:8453"}`))}, nil
			}),
		}}
		verdict, err := facilitator.Settle(t.Context(), payload, requirements)
		outcome, unknown := errors.AsType[*UnknownOutcome](err)
		if settled := err == nil && verdict.Success; settled != row.settled || !settled && (!unknown || outcome.NotSent != row.notSent) {
			t.Errorf("%s: settle says %+v (%v), want settled %t, not sent %t", row.name, verdict, err, row.settled, row.notSent)
		}
		if calls != row.calls {
			t.Errorf("%s: the facilitator was called %d times, want %d", row.name, calls, row.calls)
		}
	}
}

func TestFacilitatorRequestV1(t *testing.T) {
	t.Parallel()
	payload, err := ParsePaymentPayloadV1([]byte(goodPayloadV1), knownNetwork(t, NetworkBase))
	noError(t, "parse", err)
	requirements := knownNetwork(t, NetworkBase).Requirements(5000, vectorPayee, 60)
	want := `{"x402Version":1,"paymentPayload":` + goodPayloadV1 + `,"paymentRequirements":{"scheme":"exact","network":"base",` +
		`"maxAmountRequired":"5000","resource":"https://host.example/chat/private/send","description":"Send a private message",` +
		`"mimeType":"application/json","payTo":"0x209693Bc6afc0C5328bA36FaF03C514EF312287C","maxTimeoutSeconds":60,` +
		`"asset":"0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913","extra":{"name":"USD Coin","version":"2"}}}`
	facilitator, calls := facilitatorReplying(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if diff := cmp.Diff(want, string(body)); diff != "" {
			t.Errorf("the body sent to %s (-want +got):\n%s", r.URL.Path, diff)
		}
		says(200, `{"isValid":true,"success":true,"transaction":"`+hash+`","network":"base"}`)(w, r)
	})
	resource := &ResourceInfo{URL: "https://host.example/chat/private/send", Description: "Send a private message",
		MimeType: "application/json"}
	// What does not come from the wire has no raw JSON to send, and does not say what the payer calls the network.
	built := &PaymentPayload{X402Version: 1, Resource: resource, Accepted: payload.Accepted, Payload: payload.Payload}
	for name, bad := range map[string]*PaymentPayload{"without a resource": payload, "that was built here": built} {
		if _, err := facilitator.Verify(t.Context(), bad, requirements); err == nil {
			t.Errorf("verify of a payment of version 1 %s succeeds, want an error", name)
		}
		_, err := facilitator.Settle(t.Context(), bad, requirements)
		if outcome, ok := errors.AsType[*UnknownOutcome](err); !ok || !outcome.NotSent {
			t.Errorf("settle of a payment of version 1 %s says %v, want that nothing was sent", name, err)
		}
	}
	if n := calls.Load(); n != 0 {
		t.Errorf("the facilitator was called %d times about incomplete payments, want never", n)
	}
	payload.Resource = resource
	if _, err := facilitator.Verify(t.Context(), payload, requirements); err != nil {
		t.Errorf("verify: %v", err)
	}
	got, err := facilitator.Settle(t.Context(), payload, requirements)
	if diff := cmp.Diff(&SettleResponse{Success: true, Transaction: hash, Network: "base"}, got); diff != "" || err != nil {
		t.Errorf("settle says %v (-want +got):\n%s", err, diff)
	}
	// Hosted facilitators reject requirements that lack a member.
	bare, err := json.Marshal(requirements.V1("base", ResourceInfo{URL: "https://host.example/x"}))
	if err != nil || !strings.Contains(string(bare), `"description":"","mimeType":""`) {
		t.Errorf("requirements without a description are %s (%v), want the member nevertheless", bare, err)
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestSupported(t *testing.T) {
	t.Parallel()
	busy := saysLater(429, "0")
	kinds := says(200, `{"kinds":[{"x402Version":2,"scheme":"exact","network":"eip155:8453"}],"signers":{"eip155:*":["0xab"]}}`)
	facilitator, calls := facilitatorReplying(t, busy, busy, kinds)
	got, err := facilitator.Supported(t.Context())
	noError(t, "supported after two times 429", err)
	want := &SupportedResponse{
		Kinds:   []SupportedKind{{X402Version: 2, Scheme: "exact", Network: NetworkBase}},
		Signers: map[string][]string{"eip155:*": {"0xab"}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("what the facilitator supports (-want +got):\n%s", diff)
	}
	if n := calls.Load(); n != 3 {
		t.Errorf("the facilitator was called %d times, want 3", n)
	}
	for name, reply := range map[string]http.HandlerFunc{
		"always busy": busy, "HTML": says(200, "<html>"), "status 500": says(500, "{}"), "a redirect": redirects, "hung up": hangsUp,
	} {
		facilitator, _ := facilitatorReplying(t, reply)
		if _, err := facilitator.Supported(t.Context()); err == nil {
			t.Errorf("supported with %s succeeds, want an error", name)
		}
	}
}

func TestPause(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		retryAfter string
		attempt    int
		want       time.Duration
	}{
		{"", 1, time.Second}, {"", 2, 2 * time.Second}, {"0", 1, 0}, {"3", 1, 3 * time.Second}, {"9999999", 1, longestPause},
		{"Wed, 21 Oct 2026 07:28:00 GMT", 1, time.Second}, {"-1", 2, 2 * time.Second},
	} {
		if got := pause(row.retryAfter, row.attempt); got != row.want {
			t.Errorf("after attempt %d with Retry-After %q the pause is %s, want %s", row.attempt, row.retryAfter, got, row.want)
		}
	}
}
