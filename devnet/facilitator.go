package devnet

import (
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/parley-chat/parley/x402"
)

const (
	// maxBodyBytes bounds a request; a payment with everything has a few KiB.
	maxBodyBytes = 64 << 10
	// headerDevnet marks every answer.
	headerDevnet = "X-Parley-Devnet"
)

// Facilitator serves the facilitator's HTTP API (x402 v2: POST /verify, POST /settle, GET /supported) over a ledger,
// and what developers need besides:
//
//	GET  /accounts            [{"address", "private_key", "balance"}, ...], the ten funded accounts
//	GET  /balances/{address}  {"address", "balance"}
//	POST /cancel              {"authorizer", "nonce", "signature"} -> {"success": true, "transaction"}
//
// Balances are decimal strings in atomic units. /verify and /settle answer a well-formed payment with status 200 and a
// verdict, and anything else with status 400 and a negative verdict. /cancel takes a signed CancelAuthorization as the
// token contract does (EIP-3009) and answers 400 if it is malformed or not by the authorizer, 409 if the authorization
// is used or cancelled. Make it with [NewFacilitator]; it is safe for concurrent use.
type Facilitator struct {
	ledger *Ledger
	mux    *http.ServeMux

	mu   sync.Mutex
	pend int                  // how many settlements shall still be left pending
	sent map[string]broadcast // transfers that were left pending, by lower-case signature
}

// broadcast is a transfer that was sent to the imagined chain.
type broadcast struct {
	transaction string
	at          time.Time
}

// NewFacilitator returns a facilitator over a ledger, which stays the caller's to close.
func NewFacilitator(ledger *Ledger) *Facilitator {
	f := &Facilitator{ledger: ledger, mux: http.NewServeMux(), sent: map[string]broadcast{}}
	f.mux.HandleFunc("POST /verify", f.serveVerify)
	f.mux.HandleFunc("POST /settle", f.serveSettle)
	f.mux.HandleFunc("GET /supported", f.serveSupported)
	f.mux.HandleFunc("GET /accounts", f.serveAccounts)
	f.mux.HandleFunc("GET /balances/{address}", f.serveBalance)
	f.mux.HandleFunc("POST /cancel", f.serveCancel)
	f.mux.Handle("POST /rpc", serveChain(ledger))
	return f
}

// ServeHTTP answers one request.
func (f *Facilitator) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set(headerDevnet, "play money, never production")
	r.Body = http.MaxBytesReader(w, r.Body, maxBodyBytes)
	f.mux.ServeHTTP(w, r)
}

// PendSettlements makes the next n settlements of good payments answer settlement_pending, with a transaction but
// without moving anything, like a facilitator that waited for a block in vain. The same payment, sent to /settle again
// with the same signature, then moves the money under that same transaction, even if it has expired meanwhile. What is
// pending is not in the ledger and is forgotten at a restart.
func (f *Facilitator) PendSettlements(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pend = n
}

func (f *Facilitator) serveVerify(w http.ResponseWriter, r *http.Request) {
	payload, requirements, form := readPayment(r.Body)
	if form != nil {
		answer(w, http.StatusBadRequest, x402.VerifyResponse{InvalidReason: form.Reason, InvalidMessage: form.Message})
		return
	}
	verdict := x402.VerifyResponse{Payer: payload.Payload.Authorization.From}
	if invalid := f.check(payload, requirements, time.Now()); invalid != nil {
		verdict.InvalidReason, verdict.InvalidMessage = invalid.Reason, invalid.Message
	} else {
		verdict.IsValid = true
	}
	answer(w, http.StatusOK, verdict)
}

func (f *Facilitator) serveSettle(w http.ResponseWriter, r *http.Request) {
	payload, requirements, form := readPayment(r.Body)
	if form != nil {
		answer(w, http.StatusBadRequest, x402.SettleResponse{
			ErrorReason: form.Reason, ErrorMessage: form.Message, Network: NetworkID,
		})
		return
	}
	verdict, err := f.settle(payload, requirements, time.Now())
	if err != nil {
		// No verdict: whether the transfer is in the journal is not known.
		refuse(w, http.StatusInternalServerError, err.Error())
		return
	}
	answer(w, http.StatusOK, verdict)
}

// readPayment reads the body of /verify and /settle. A *x402.FormError is a body that is no payment.
func readPayment(body io.Reader) (*x402.PaymentPayload, x402.PaymentRequirements, *x402.FormError) {
	var request struct {
		X402Version         int                      `json:"x402Version"`
		PaymentPayload      jsontext.Value           `json:"paymentPayload"`
		PaymentRequirements x402.PaymentRequirements `json:"paymentRequirements"`
	}
	if err := json.UnmarshalRead(body, &request); err != nil {
		return nil, x402.PaymentRequirements{}, &x402.FormError{Reason: x402.ReasonInvalidPayload, Message: "the body is not " +
			"the JSON object {x402Version, paymentPayload, paymentRequirements} of at most 64 KiB"}
	}
	if request.X402Version != x402.Version {
		return nil, x402.PaymentRequirements{}, &x402.FormError{Reason: x402.ReasonInvalidVersion, Message: "x402Version must be 2"}
	}
	payload, err := x402.ParsePaymentPayload(request.PaymentPayload)
	if form, ok := errors.AsType[*x402.FormError](err); ok {
		return nil, x402.PaymentRequirements{}, form
	}
	return payload, request.PaymentRequirements, nil
}

// answer writes a JSON answer. What fails while writing is the caller's lost connection.
func answer(w http.ResponseWriter, status int, value any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.MarshalWrite(w, value)
}

// refuse writes {"error": message}.
func refuse(w http.ResponseWriter, status int, message string) {
	answer(w, status, map[string]string{"error": message})
}
