//go:build !noserver

package main

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/parley-chat/parley/payment"
	"github.com/parley-chat/parley/server"
)

// readKeys reads the keys from the file of a setting: 64 hex digits per line, the current key first. The error does not contain a key.
func readKeys[K any](setting, file, kind string, parse func(digits string) (K, error)) (keys []K, err error) {
	var wrong wrongSettings
	raw, err := os.ReadFile(file) //nolint:gosec // the operator names the file
	if err != nil {
		wrong.check(false, setting, file, "a file that can be read, not one with: "+cause(err))
		return nil, wrong
	}
	for line := range strings.Lines(strings.TrimSpace(string(raw)) + "\n") {
		key, err := parse(strings.TrimPrefix(strings.TrimSpace(line), "0x")) // its error may quote the key
		if err != nil {
			wrong.check(false, setting, file, fmt.Sprintf("a file with %s of 64 hex digits on each line", kind))
			return nil, wrong
		}
		keys = append(keys, key)
	}
	return keys, nil
}

// responseKeys reads the keys of stored responses.
func responseKeys(file string) ([]payment.ResponseKey, error) {
	const setting = "response-key-file"
	if file == "" {
		var wrong wrongSettings
		wrong.check(false, setting, file, "a file with 64 hex digits: openssl rand -hex 32")
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

// ownKey returns the file of a key in the data folder of dev. It creates a random key at the first start: the database belongs to it.
func ownKey(data, name string) (string, error) {
	path := filepath.Join(data, name)
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return path, err
	}
	var key [32]byte
	_, _ = rand.Read(key[:])
	err := os.WriteFile(path+".new", fmt.Appendf(nil, "%x\n", key), 0o600)
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	return path, err
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
