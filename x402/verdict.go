package x402

import (
	"net/http"
	"regexp"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// rawResponse is what a facilitator sent back.
type rawResponse struct {
	status     int
	retryAfter string
	body       []byte
}

// verifyVerdict reads the verdict of /verify; false if there is none. isValid must be there and a boolean: an official
// server once took every status 200 for a yes and served unpaid requests.
func (a *rawResponse) verifyVerdict() (*VerifyResponse, bool) {
	var wire struct {
		IsValid        *bool          `json:"isValid"`
		InvalidReason  jsontext.Value `json:"invalidReason"`
		InvalidMessage jsontext.Value `json:"invalidMessage"`
		Payer          jsontext.Value `json:"payer"`
	}
	if a.isRedirect() || json.Unmarshal(a.body, &wire) != nil || wire.IsValid == nil {
		return nil, false
	}
	return &VerifyResponse{
		IsValid:        *wire.IsValid,
		InvalidReason:  reason(wire.InvalidReason),
		InvalidMessage: text(wire.InvalidMessage),
		Payer:          text(wire.Payer),
	}, true
}

// settleVerdict reads the verdict of /settle; false if there is none. success, transaction and network must be there
// with the right types, and a success must name its transaction by its hash. The optional members are taken where they are
// strings and left out where not: a facilitator's oddity there must not turn a settled payment into an unknown one.
func (a *rawResponse) settleVerdict() (*SettleResponse, bool) {
	var wire struct {
		Success      *bool          `json:"success"`
		Transaction  *string        `json:"transaction"`
		Network      *string        `json:"network"`
		ErrorReason  jsontext.Value `json:"errorReason"`
		ErrorMessage jsontext.Value `json:"errorMessage"`
		Payer        jsontext.Value `json:"payer"`
		Amount       jsontext.Value `json:"amount"`
		Extensions   jsontext.Value `json:"extensions"`
	}
	if a.isRedirect() || json.Unmarshal(a.body, &wire) != nil ||
		wire.Success == nil || wire.Transaction == nil || wire.Network == nil || *wire.Success && !isTransaction.MatchString(*wire.Transaction) {
		return nil, false
	}
	if !isTransaction.MatchString(*wire.Transaction) {
		*wire.Transaction = ""
	}
	response := &SettleResponse{
		Success:      *wire.Success,
		ErrorReason:  reason(wire.ErrorReason),
		ErrorMessage: text(wire.ErrorMessage),
		Transaction:  *wire.Transaction,
		Network:      *wire.Network,
		Payer:        text(wire.Payer),
		Amount:       text(wire.Amount),
	}
	if wire.Extensions.Kind() == '{' {
		// Already checked to be JSON; an object always fits.
		_ = json.Unmarshal(wire.Extensions, &response.Extensions)
	}
	return response, true
}

// isRedirect is true for answers that point elsewhere: whatever they carry, it is not this facilitator's verdict.
func (a *rawResponse) isRedirect() bool {
	return a.status >= http.StatusMultipleChoices && a.status < http.StatusBadRequest
}

// What goes on to payers, ledgers and logs is held to its form: a facilitator's response may repeat the payment, and that
// can be spent.
var (
	isTransaction = regexp.MustCompile(`^0x[0-9a-fA-F]{64}$`)
	isReason      = regexp.MustCompile(`^[0-9A-Za-z_.-]{1,100}$`)
)

// reason returns a reason code, and "" for a text that is none.
func reason(value jsontext.Value) string {
	if code := text(value); isReason.MatchString(code) {
		return code
	}
	return ""
}

// text returns a JSON string's value, and "" for a missing member or another type.
func text(value jsontext.Value) string {
	var s string
	if value.Kind() != '"' || json.Unmarshal(value, &s) != nil {
		return ""
	}
	return s
}
