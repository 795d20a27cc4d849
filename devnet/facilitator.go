package devnet

import (
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/parley-chat/parley/x402"
)

const (
	// maxBodyBytes bounds a request; a payment with everything has a few KiB.
	maxBodyBytes = 64 << 10
	// headerDevnet marks every response.
	headerDevnet = "X-Parley-Devnet"
)

// Facilitator serves the facilitator's HTTP API (POST /verify, POST /settle, GET /supported) in both versions of x402
// over a ledger, and what developers need besides:
//
//	GET  /accounts            [{"address", "private_key", "balance"}, ...], the ten funded accounts
//	GET  /balances/{address}  {"address", "balance"}
//	POST /cancel              {"authorizer", "nonce", "signature"} -> {"success": true, "transaction"}
//
// Balances are decimal strings in atomic units. /verify and /settle response a well-formed payment with status 200 and a
// verdict, and anything else with status 400 and a negative verdict. /cancel takes a signed CancelAuthorization as the
// token contract does (EIP-3009) and returns 400 if it is malformed or not by the authorizer, 409 if the authorization
// is used or cancelled. Make it with [NewFacilitator]; it is safe for concurrent use.
type Facilitator struct {
	ledger *Ledger
	mux    *http.ServeMux

	mu    sync.Mutex
	delay time.Duration        // how long a settlement waits for its block
	pend  int                  // how many settlements shall still be left pending
	sent  map[string]broadcast // transfers that were left pending, by lower-case signature
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

// PendSettlements makes the next n settlements of good payments response settlement_pending, with a transaction but
// without moving anything, like a facilitator that waited for a block in vain. The same payment, sent to /settle again
// with the same signature, then moves the money under that same transaction, even if it has expired meanwhile. What is
// pending is not in the ledger and is forgotten at a restart.
func (f *Facilitator) PendSettlements(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pend = n
}

// DelaySettlements makes each settlement from now on take d before the money moves, as if it waited for a block; 0 is
// the default. Settlements wait beside each other, not one after another, and none is given up when its caller hangs
// up. What does not move money is answered at once: refusals, and what [Facilitator.PendSettlements] leaves pending.
func (f *Facilitator) DelaySettlements(d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.delay = d
}

func (f *Facilitator) serveVerify(w http.ResponseWriter, r *http.Request) {
	request, form := readPayment(r.Body)
	if form != nil {
		respond(w, http.StatusBadRequest, x402.VerifyResponse{InvalidReason: form.Reason, InvalidMessage: form.Message})
		return
	}
	verdict := x402.VerifyResponse{Payer: request.payload.Payload.Authorization.From}
	if invalid := f.check(request.payload, request.requirements, time.Now()); invalid != nil {
		verdict.InvalidReason, verdict.InvalidMessage = invalid.Reason, invalid.Message
	} else {
		verdict.IsValid = true
	}
	respond(w, http.StatusOK, verdict)
}

func (f *Facilitator) serveSettle(w http.ResponseWriter, r *http.Request) {
	request, form := readPayment(r.Body)
	if form != nil {
		respond(w, http.StatusBadRequest, x402.SettleResponse{
			ErrorReason: form.Reason, ErrorMessage: form.Message, Network: request.network,
		})
		return
	}
	verdict, err := f.settle(request.payload, request.requirements, time.Now())
	if err != nil {
		// No verdict: whether the transfer is in the journal is not known.
		refuse(w, http.StatusInternalServerError, err.Error())
		return
	}
	verdict.Network = request.network
	respond(w, http.StatusOK, verdict)
}

// payment is what /verify and /settle are asked about, in the terms of version 2.
type payment struct {
	payload      *x402.PaymentPayload
	requirements x402.PaymentRequirements
	network      string // what the request's version calls the dev network
}

// readPayment reads the body of /verify and /settle. A *x402.FormError is a body that is no payment; of what is
// returned beside it, only network means something.
func readPayment(body io.Reader) (payment, *x402.FormError) {
	var request struct {
		X402Version         int            `json:"x402Version"`
		PaymentPayload      jsontext.Value `json:"paymentPayload"`
		PaymentRequirements jsontext.Value `json:"paymentRequirements"`
	}
	read := payment{network: NetworkID}
	if err := json.UnmarshalRead(body, &request); err != nil {
		return read, &x402.FormError{Reason: x402.ReasonInvalidPayload, Message: "the body is not the JSON object " +
			"{x402Version, paymentPayload, paymentRequirements} of at most 64 KiB"}
	}
	var err error
	switch request.X402Version {
	case x402.Version:
		if json.Unmarshal(request.PaymentRequirements, &read.requirements) != nil {
			return read, malformedRequirements("are not of version 2")
		}
		read.payload, err = x402.ParsePaymentPayload(request.PaymentPayload)
	case x402.VersionV1:
		read.network = token.V1Name
		var form *x402.FormError
		if read.requirements, form = readRequirementsV1(request.PaymentRequirements); form != nil {
			return read, form
		}
		read.payload, err = x402.ParsePaymentPayloadV1(request.PaymentPayload, token)
	default:
		return read, &x402.FormError{Reason: x402.ReasonInvalidVersion, Message: "x402Version must be 2 or 1"}
	}
	if form, ok := errors.AsType[*x402.FormError](err); ok {
		return read, form
	}
	return read, nil
}

// readRequirementsV1 turns requirements of version 1 into those of version 2, so that one set of rules serves both.
func readRequirementsV1(raw jsontext.Value) (x402.PaymentRequirements, *x402.FormError) {
	var v1 x402.PaymentRequirementsV1
	if json.Unmarshal(raw, &v1) != nil {
		return x402.PaymentRequirements{}, malformedRequirements("are not of version 1")
	}
	// Hosted facilitators insist on it, so a server that forgets it should find out here.
	if resource, err := url.Parse(v1.Resource); err != nil || !resource.IsAbs() {
		return x402.PaymentRequirements{}, malformedRequirements("need the absolute address of the resource")
	}
	requirements := x402.PaymentRequirements{
		Scheme:            v1.Scheme,
		Network:           v1.Network,
		Amount:            v1.MaxAmountRequired,
		Asset:             v1.Asset,
		PayTo:             v1.PayTo,
		MaxTimeoutSeconds: v1.MaxTimeoutSeconds,
		Extra:             v1.Extra,
	}
	switch {
	case v1.Network == token.V1Name:
		requirements.Network = NetworkID
	case strings.Contains(v1.Network, ":"):
		return x402.PaymentRequirements{}, malformedRequirements("need the network's short name in version 1")
	}
	return requirements, nil
}

func malformedRequirements(fault string) *x402.FormError {
	return &x402.FormError{Reason: x402.ReasonInvalidRequirements, Message: "paymentRequirements " + fault}
}

// respond writes a JSON response. What fails while writing is the caller's lost connection.
func respond(w http.ResponseWriter, status int, value any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.MarshalWrite(w, value)
}

// refuse writes {"error": message}.
func refuse(w http.ResponseWriter, status int, message string) {
	respond(w, status, map[string]string{"error": message})
}
