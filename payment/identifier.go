package payment

import (
	"regexp"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// identifierExtension lets a payer name its payment. The same name with the same request returns the stored response, even
// if the payer has signed a new authorization.
const identifierExtension = "payment-identifier"

var goodIdentifier = regexp.MustCompile(`^[a-zA-Z0-9_-]{16,128}$`)

// identifierOffer announces the extension in a 402. It is optional: the official clients send none by default.
var identifierOffer = jsontext.Value(`{"info":{"required":false},"schema":{"$schema":"https://json-schema.org/draft/2020-12/schema",` +
	`"type":"object","properties":{"required":{"type":"boolean"},"id":{"type":"string","minLength":16,"maxLength":128,` +
	`"pattern":"^[a-zA-Z0-9_-]+$"}},"required":["required"]}}`)

// identifierOf returns the identifier in a payment's copy of the extension, or "" without one. false if it is malformed.
func identifierOf(extension jsontext.Value) (string, bool) {
	if extension == nil || extension.Kind() == 'n' {
		return "", true
	}
	var decoded struct {
		Info struct {
			ID *string `json:"id"`
		} `json:"info"`
	}
	if json.Unmarshal(extension, &decoded) != nil {
		return "", false
	}
	if decoded.Info.ID == nil {
		return "", true
	}
	return *decoded.Info.ID, goodIdentifier.MatchString(*decoded.Info.ID)
}
