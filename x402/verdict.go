package x402

import (
	"net/http"
	"regexp"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// rawResponse is a response of a facilitator before decoding.
type rawResponse struct {
	status     int
	retryAfter string
	body       []byte
}

// verifyVerdict decodes the verdict of /verify. It returns false if there is none. isValid must be present and a
// boolean. A status 200 alone is not a verdict: a server that takes it as one serves unpaid requests.
func (a *rawResponse) verifyVerdict() (*VerifyResponse, bool) {
	var wire struct {
		IsValid        *bool          `json:"isValid"`
		InvalidReason  jsontext.Value `json:"invalidReason"`
		InvalidMessage jsontext.Value `json:"invalidMessage"`
		Payer          jsontext.Value `json:"payer"`
		Extra          jsontext.Value `json:"extra"`
	}
	if a.isNoVerdict() || json.Unmarshal(a.body, &wire) != nil || wire.IsValid == nil {
		return nil, false
	}
	return &VerifyResponse{
		IsValid:        *wire.IsValid,
		InvalidReason:  reason(wire.InvalidReason),
		InvalidMessage: text(wire.InvalidMessage),
		Payer:          text(wire.Payer),
		Extra:          object(wire.Extra),
	}, true
}

// settleVerdict decodes the verdict of /settle. It returns false if there is none. success, transaction and network
// must be present with the right types, and a success must contain the hash of its transaction. Optional members of a
// wrong type are ignored, so that they do not turn a settled payment into one with an unknown outcome.
func (a *rawResponse) settleVerdict() (*SettleResponse, bool) {
	var wire struct {
		Success      *bool          `json:"success"`
		Transaction  *string        `json:"transaction"`
		Network      *string        `json:"network"`
		ErrorReason  jsontext.Value `json:"errorReason"`
		ErrorMessage jsontext.Value `json:"errorMessage"`
		Payer        jsontext.Value `json:"payer"`
		Amount       jsontext.Value `json:"amount"`
		Extra        jsontext.Value `json:"extra"`
		Extensions   jsontext.Value `json:"extensions"`
	}
	if a.isNoVerdict() || json.Unmarshal(a.body, &wire) != nil ||
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
		Extra:        object(wire.Extra),
	}
	if wire.Extensions.Kind() == '{' {
		// The value is valid JSON, and an object always fits.
		_ = json.Unmarshal(wire.Extensions, &response.Extensions)
	}
	return response, true
}

// isNoVerdict reports whether the body is no verdict, whatever it says. A redirect is not from this facilitator, and 429 refuses the
// call, not the payment.
func (a *rawResponse) isNoVerdict() bool {
	return a.status >= http.StatusMultipleChoices && a.status < http.StatusBadRequest || a.status == http.StatusTooManyRequests
}

// The formats of values that are passed to payers, the ledger and the log. A facilitator's response may repeat the
// payment, which can be spent, so values in other formats are dropped.
var (
	isTransaction = regexp.MustCompile(`^0x[0-9a-fA-F]{64}$`)
	isReason      = regexp.MustCompile(`^[0-9A-Za-z_.-]{1,100}$`)
)

// reason returns a reason code, or "" if the text does not have the form of a code.
func reason(value jsontext.Value) string {
	if code := text(value); isReason.MatchString(code) {
		return code
	}
	return ""
}

// text returns the value of a JSON string, or "" if the member is missing or has another type.
func text(value jsontext.Value) string {
	var s string
	if value.Kind() != '"' || json.Unmarshal(value, &s) != nil {
		return ""
	}
	return s
}

// object returns a JSON object, or nil if the member is missing or has another type.
func object(value jsontext.Value) jsontext.Value {
	if value.Kind() != '{' {
		return nil
	}
	return value
}
