package operator

import (
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/parley-chat/parley/cmd/parley/settings"
	"github.com/parley-chat/parley/payment"
	"github.com/parley-chat/parley/server"
)

// readKeys reads the keys from the file of a setting: 64 hex digits per line, the current key first. The error does not contain a key.
func readKeys[K any](setting, file, kind string, parse func(digits string) (K, error)) (keys []K, err error) {
	var wrong settings.Wrong
	raw, err := os.ReadFile(file) //nolint:gosec // the operator names the file
	if err != nil {
		wrong.Check(false, setting, file, "a file that can be read, not one with: "+settings.Cause(err))
		return nil, wrong
	}
	for line := range strings.Lines(strings.TrimSpace(string(raw)) + "\n") {
		key, err := parse(strings.TrimPrefix(strings.TrimSpace(line), "0x")) // its error may quote the key
		if err != nil {
			wrong.Check(false, setting, file, fmt.Sprintf("a file with %s of 64 hex digits on each line", kind))
			return nil, wrong
		}
		keys = append(keys, key)
	}
	return keys, nil
}

// ResponseKeys reads the keys of stored responses.
func ResponseKeys(file string) ([]payment.ResponseKey, error) {
	const setting = "response-key-file"
	if file == "" {
		var wrong settings.Wrong
		wrong.Check(false, setting, file, "a file with 64 hex digits: openssl rand -hex 32")
		return nil, wrong
	}
	return readKeys(setting, file, "a key", func(digits string) (key payment.ResponseKey, err error) {
		if len(digits) != hex.EncodedLen(len(key)) {
			return key, errors.New("wrong length")
		}
		if _, err = hex.Decode(key[:], []byte(digits)); err == nil && key == (payment.ResponseKey{}) {
			err = errors.New("the zero key")
		}
		return key, err
	})
}

// checkResponseKeys checks the file with the keys of stored responses.
func (c *check) checkResponseKeys(config server.Config) (found findings) {
	const what = "response key"
	switch keys := len(config.ResponseKeys); {
	case keys == 0: // told as a wrong setting
	case readableByAll(c.ResponseKeyFile):
		found.warnReadable(what, c.ResponseKeyFile)
	default:
		found.ok(what, fmt.Sprintf("one that seals stored responses, and %d former ones", keys-1))
	}
	return found
}
