package operator

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/parley-chat/parley/cmd/parley/settings"
	"github.com/parley-chat/parley/payment"
)

// parseKeys parses the keys of a setting: 64 hex digits per line, the current key first. The error does not contain a key.
func parseKeys[K any](setting string, secret settings.Secret, kind string, parse func(digits string) (K, error)) (keys []K, err error) {
	for line := range strings.Lines(secret.Value) {
		key, err := parse(strings.TrimPrefix(strings.TrimSpace(line), "0x")) // its error may quote the key
		if err != nil {
			return nil, settings.Invalid(setting, secret, kind+" of 64 hex digits on each line")
		}
		keys = append(keys, key)
	}
	return keys, nil
}

// ResponseKeys returns the keys of stored responses.
func ResponseKeys(secret settings.Secret) ([]payment.ResponseKey, error) {
	const setting = "response-key"
	if secret.Value == "" {
		return nil, settings.Invalid(setting, "", fmt.Sprintf("64 hex digits: openssl rand -hex %d", len(payment.ResponseKey{})))
	}
	return parseKeys(setting, secret, "a key", func(digits string) (key payment.ResponseKey, err error) {
		if len(digits) != hex.EncodedLen(len(key)) {
			return key, errors.New("wrong length")
		}
		if _, err = hex.Decode(key[:], []byte(digits)); err == nil && key == (payment.ResponseKey{}) {
			err = errors.New("the zero key")
		}
		return key, err
	})
}
