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
	// maxBodyBytes limits the size of a request. The largest real payments have a few KiB.
	maxBodyBytes = 64 << 10
	// headerDevnet is a header of every response.
	headerDevnet = "X-Parley-Devnet"
)

// Facilitator serves the HTTP API of a facilitator (POST /verify, POST /settle, GET /supported) in both versions of
// x402, backed by a ledger, for the schemes exact and batch-settlement. For the latter the server signs claims and
// refunds itself: the facilitator offers no receiverAuthorizer. It also serves the ledger as a chain over JSON-RPC
// (POST /rpc), and these endpoints for developers:
//
//	GET  /accounts            [{"address", "private_key", "balance"}, ...], the ten funded accounts
//	GET  /balances/{address}  {"address", "balance", "unsettled"}; unsettled is claimed from payment channels, and not paid out
//	POST /fund                {"address"} -> {"address", "balance"}; adds 10 USDC of play money to the address
//
// Balances are decimal strings in atomic units. /verify and /settle respond to a well-formed payment with status 200
// and a verdict, and to any other request with status 400 and a negative verdict. /settle returns 500 without a verdict
// if the ledger cannot be written. Create a Facilitator with [NewFacilitator]. It is safe for concurrent use.
type Facilitator struct {
	ledger *Ledger
	mux    *http.ServeMux

	mu   sync.Mutex
	pend int                  // how many more settlements stay pending
	sent map[string]broadcast // pending transfers, by lower-case signature
}

// broadcast is a transfer that was sent to the simulated chain.
type broadcast struct {
	transaction string
	at          time.Time
}

// NewFacilitator returns a facilitator for a ledger. The caller closes the ledger.
func NewFacilitator(ledger *Ledger) *Facilitator {
	f := &Facilitator{ledger: ledger, mux: http.NewServeMux(), sent: map[string]broadcast{}}
	f.mux.HandleFunc("POST /verify", f.serveVerify)
	f.mux.HandleFunc("POST /settle", f.serveSettle)
	f.mux.HandleFunc("GET /supported", f.serveSupported)
	f.mux.HandleFunc("GET /accounts", f.serveAccounts)
	f.mux.HandleFunc("GET /balances/{address}", f.serveBalance)
	f.mux.HandleFunc("POST /fund", f.serveFund)
	f.mux.Handle("POST /rpc", serveChain(ledger))
	return f
}

// ServeHTTP handles one request.
func (f *Facilitator) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set(headerDevnet, "play money, never production")
	r.Body = http.MaxBytesReader(w, r.Body, maxBodyBytes)
	f.mux.ServeHTTP(w, r)
}

// PendSettlements makes the next n settlements of valid payments (and claims, payouts and refunds) return
// settlement_pending with a transaction hash, without moving money, like a facilitator whose wait for a block timed out.
// A later /settle of the same payment with the same signature moves the money under the same transaction hash, even if
// the payment has expired in the meantime. Pending settlements are not in the ledger and are lost at a restart.
func (f *Facilitator) PendSettlements(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pend = n
}

func (f *Facilitator) serveVerify(w http.ResponseWriter, r *http.Request) {
	request, form := f.read(r.Body, false)
	if form != nil {
		respond(w, http.StatusBadRequest, x402.VerifyResponse{InvalidReason: form.Reason, InvalidMessage: form.Message})
		return
	}
	verdict := x402.VerifyResponse{Payer: request.payer}
	if extra, invalid := request.verify(f.ledger.Now()); invalid != nil {
		verdict.InvalidReason, verdict.InvalidMessage = invalid.Reason, invalid.Message
	} else {
		verdict.IsValid, verdict.Extra = true, extra
	}
	respond(w, http.StatusOK, verdict)
}

func (f *Facilitator) serveSettle(w http.ResponseWriter, r *http.Request) {
	request, form := f.read(r.Body, true)
	if form != nil {
		respond(w, http.StatusBadRequest, x402.SettleResponse{
			ErrorReason: form.Reason, ErrorMessage: form.Message, Network: request.network,
		})
		return
	}
	verdict, err := f.settle(request)
	if err != nil {
		// There is no verdict, because it is not known whether the transaction is in the journal.
		reject(w, http.StatusInternalServerError, err.Error())
		return
	}
	respond(w, http.StatusOK, verdict)
}

// request is a well-formed request of /verify and /settle.
type request struct {
	network string // the dev network's name in the request's version
	payer   string // empty for a server's command
	// verify returns the member extra of the verdict, or the reason to reject the payment.
	verify func(now time.Time) (jsontext.Value, *x402.Invalid)
	call   *contractCall // nil if there is nothing to settle
}

type envelope struct {
	X402Version         int            `json:"x402Version"`
	PaymentPayload      jsontext.Value `json:"paymentPayload"`
	PaymentRequirements jsontext.Value `json:"paymentRequirements"`
}

// read decodes the body of /verify, or of /settle. If it returns an error, only the network of the request is set.
func (f *Facilitator) read(body io.Reader, settles bool) (request, *x402.FormError) {
	var e envelope
	read := request{network: NetworkID}
	if json.UnmarshalRead(body, &e) != nil {
		return read, malformed(x402.ReasonInvalidPayload, "the body is not the JSON object "+
			"{x402Version, paymentPayload, paymentRequirements} of at most 64 KiB")
	}
	if e.isBatch() {
		batch, form := e.readBatch(settles)
		if form != nil {
			return read, form
		}
		if batch.payment != nil {
			read.payer = batch.payment.Payload.ChannelConfig.Payer
			read.verify = func(now time.Time) (jsontext.Value, *x402.Invalid) {
				channel, invalid := f.checkBatch(batch, now)
				// Encoding fails for an id that is not UTF-8 only; ids are hex digits.
				extra, _ := json.Marshal(stateOf(channel, batch.payment.Payload.Voucher.ChannelID))
				return extra, invalid
			}
		}
		read.call = f.callOf(batch)
		return read, nil
	}
	payload, requirements, form := e.readExact(&read.network)
	if form != nil {
		return read, form
	}
	read.payer = payload.Payload.Authorization.From
	read.call = f.transferCall(payload, requirements)
	read.verify = func(now time.Time) (jsontext.Value, *x402.Invalid) { return nil, f.check(payload, requirements, now) }
	return read, nil
}

// readExact decodes a payment of the scheme exact and converts it to version 2.
func (e envelope) readExact(network *string) (payload *x402.PaymentPayload, requirements x402.PaymentRequirements, form *x402.FormError) {
	var err error
	switch e.X402Version {
	case x402.Version:
		if json.Unmarshal(e.PaymentRequirements, &requirements) != nil {
			return nil, requirements, malformedRequirements("are not of version 2")
		}
		payload, err = x402.ParsePaymentPayload(e.PaymentPayload)
	case x402.VersionV1:
		*network = token.V1Name
		if requirements, form = readRequirementsV1(e.PaymentRequirements); form != nil {
			return nil, requirements, form
		}
		payload, err = x402.ParsePaymentPayloadV1(e.PaymentPayload, token)
	default:
		return nil, requirements, malformed(x402.ReasonInvalidVersion, "x402Version must be 2 or 1")
	}
	form, _ = errors.AsType[*x402.FormError](err)
	return payload, requirements, form
}

// readRequirementsV1 converts payment requirements of version 1 to version 2, so that the same checks apply to both.
func readRequirementsV1(raw jsontext.Value) (x402.PaymentRequirements, *x402.FormError) {
	var v1 x402.PaymentRequirementsV1
	if json.Unmarshal(raw, &v1) != nil {
		return x402.PaymentRequirements{}, malformedRequirements("are not of version 1")
	}
	// Hosted facilitators require an absolute URL. A server that does not send one should get the error in development.
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
	return malformed(x402.ReasonInvalidRequirements, "paymentRequirements "+fault)
}

func malformed(reason, message string) *x402.FormError {
	return &x402.FormError{Reason: reason, Message: message}
}

// respond writes a JSON response. It ignores write errors, because they mean that the caller has disconnected.
func respond(w http.ResponseWriter, status int, value any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.MarshalWrite(w, value, json.Deterministic(true)) // the members of maps in order
}

// reject writes the error response {"error": message}.
func reject(w http.ResponseWriter, status int, message string) {
	respond(w, status, map[string]string{"error": message})
}
