package operator

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/parley-chat/parley/cmd/parley/settings"
	"github.com/parley-chat/parley/server"
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

// ServerSecrets returns the secrets that API keys and TANs are derived from.
func ServerSecrets(secret settings.Secret) ([]server.Secret, error) {
	const setting = "server-secret"
	if secret.Value == "" {
		return nil, settings.Invalid(setting, "", fmt.Sprintf("64 hex digits: openssl rand -hex %d", len(server.Secret{})))
	}
	return parseKeys(setting, secret, "a secret", func(digits string) (key server.Secret, err error) {
		if len(digits) != hex.EncodedLen(len(key)) {
			return key, errors.New("wrong length")
		}
		if _, err = hex.Decode(key[:], []byte(digits)); err == nil && key == (server.Secret{}) {
			err = errors.New("all zeros")
		}
		return key, err
	})
}
