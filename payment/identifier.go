package payment

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"regexp"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// identifierExtension lets a payer name its payment. The same name with the same request returns the stored response, even
// if the payer has signed a new authorization.
const identifierExtension = "payment-identifier"

// withoutExtensions returns a payload as the ledger stores it until it has settled. The payment identifier proves possession, so whoever
// reads the database must not learn it.
func withoutExtensions(payload []byte) ([]byte, error) {
	var members map[string]jsontext.Value
	if err := json.Unmarshal(payload, &members); err != nil {
		return nil, err
	}
	delete(members, "extensions")
	return json.Marshal(members)
}

var goodIdentifier = regexp.MustCompile(`^[a-zA-Z0-9_-]{16,128}$`)

// identifierOffer announces the extension in a 402. It is optional: the official clients send none by default.
var identifierOffer = jsontext.Value(`{"info":{"required":false},"schema":{"type":"object","properties":{"required":{"type":"boolean"},` +
	`"id":{"type":"string","minLength":16,"maxLength":128,"pattern":"^[a-zA-Z0-9_-]+$"}},"required":["required"]}}`)

// refusedExtensions are those in the response to a payment. Who pays does not look for the catalogue entry, and without it the header has
// room for the state of a payment channel.
var refusedExtensions = map[string]jsontext.Value{identifierExtension: identifierOffer}

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

// HeaderIdempotencyKey names a call, beside the payment identifier. The same key with the same request returns the stored response,
// whatever payment comes with it. It can be guessed, so it proves nothing where the response holds a secret.
const HeaderIdempotencyKey = "Idempotency-Key"

var goodKey = regexp.MustCompile(`^[!-~]{1,255}$`)

// KeyProblem returns what is wrong with the Idempotency-Key of a request, and "" if nothing is.
func KeyProblem(header http.Header) string {
	switch keys := header[HeaderIdempotencyKey]; {
	case len(keys) > 1:
		return "must be sent once"
	case len(keys) == 1 && !goodKey.MatchString(keys[0]):
		return "must have 1 to 255 visible ASCII characters, without spaces"
	}
	return ""
}

// nameOf returns the hash under which the ledger stores the name of a call, or nil without one.
func nameOf(name string) *string {
	if name == "" {
		return nil
	}
	sum := sha256.Sum256([]byte(name))
	return new(hex.EncodeToString(sum[:]))
}

// equal reports whether two names of calls are the same, or both are missing.
func equal(a, b *string) bool { return a == b || a != nil && b != nil && *a == *b }
