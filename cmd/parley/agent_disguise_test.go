//go:build !noserver

package main

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/parley-chat/parley/internal/testkit"
)

// secret is a text that nobody but its owner may see. Of the files, those in places may contain it, as patterns below the folder.
type secret struct {
	name, text string
	places     []string
}

var (
	keyPlaces = []string{"secrets.json"}
	// The journal has the payment of each call whose outcome is not known, and a payment channel a deposit that has not arrived.
	paymentPlaces = []string{"wallets/*/wallet.db*"}
	// The identifier of a payment proves who made it.
	identifierPlaces = []string{"wallets/*/wallet.db*"}
)

// haystack is a text in which secrets are looked for.
type haystack struct{ text, lower, standard string }

func newHaystack(text string) haystack {
	return haystack{text, strings.ToLower(text), strings.NewReplacer("-", "+", "_", "/").Replace(text)}
}

// has reports whether the text contains a secret in any form: as it is, in other case, without 0x, as JSON with escapes, as hex digits, as
// a number, or within base64, of its letters and of its bytes.
func (h haystack) has(secret string) bool {
	plain := strings.ToLower(strings.TrimPrefix(secret, "0x"))
	anyCase := []string{plain, hex.EncodeToString([]byte(plain)), hex.EncodeToString([]byte(strings.TrimPrefix(secret, "0x"))), escaped(plain)}
	inBase64 := base64Parts([]byte(strings.TrimPrefix(secret, "0x")))
	if raw, err := hex.DecodeString(plain); err == nil {
		inBase64 = append(inBase64, base64Parts(raw)...)
		anyCase = append(anyCase, new(big.Int).SetBytes(raw).String())
	}
	for _, form := range anyCase {
		if strings.Contains(h.lower, form) {
			return true
		}
	}
	for _, form := range inBase64 {
		if strings.Contains(h.text, form) || strings.Contains(h.standard, form) {
			return true
		}
	}
	return false
}

// escaped writes each character as JSON may.
func escaped(text string) string {
	var b strings.Builder
	for _, r := range text {
		fmt.Fprintf(&b, `\u%04x`, r)
	}
	return b.String()
}

// base64Parts returns what is seen of bytes in the base64 of a longer text, by where they begin.
func base64Parts(content []byte) (parts []string) {
	for before := range 3 {
		whole := base64.RawStdEncoding.EncodeToString(append(make([]byte, before), content...))
		whole = whole[(before*8+5)/6:] // without the characters that the bytes before decide on
		if (before+len(content))%3 != 0 {
			whole = whole[:len(whole)-1]
		}
		parts = append(parts, whole)
	}
	return parts
}

// TestLeaks: the search finds every form, and nothing in texts without the secret.
func TestLeaks(t *testing.T) {
	t.Parallel()
	const key = "0x4c0883a69102937d6231471b5dbb6204fe5129617082792ae468d01a3f362318"
	raw, err := hex.DecodeString(key[2:])
	testkit.NoError(t, err)
	object, _ := json.Marshal(map[string]string{"a": key})
	for name, text := range map[string]string{
		"itself": key, "upper case": strings.ToUpper(key), "without 0x": key[2:], "JSON": string(object), "escapes": escaped(key[2:]),
		"hex": hex.EncodeToString([]byte(key)), "number": new(big.Int).SetBytes(raw).String(),
		"base64 of JSON":      base64.StdEncoding.EncodeToString(object),
		"base64 URL of bytes": base64.URLEncoding.EncodeToString(append([]byte("x"), raw...)),
		"base64 of more":      base64.StdEncoding.EncodeToString([]byte("ab" + key + "c")),
	} {
		if !newHaystack("before " + text + " after").has(key) {
			t.Errorf("%s is not found", name)
		}
	}
	if newHaystack("before " + key[:60] + " after").has(key) {
		t.Error("something else is found")
	}
}

// hides checks that no output has a secret, no file but those of its places, and that nobody else can read a file.
func (u *user) hides(secrets []secret) {
	u.t.Helper()
	printed := newHaystack(u.all.String())
	for _, one := range secrets {
		if printed.has(one.text) {
			u.t.Errorf("the output contains %s", one.name)
		}
	}
	err := filepath.WalkDir(u.home, func(path string, found fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := found.Info()
		if err != nil {
			return err
		}
		if info.Mode().Perm()&0o077 != 0 {
			u.t.Errorf("%s can be read by others: %v", path, info.Mode())
		}
		if found.IsDir() {
			return nil
		}
		content, err := os.ReadFile(path)
		text := newHaystack(string(content))
		for _, one := range secrets {
			if text.has(one.text) && !u.mayHave(path, one) {
				u.t.Errorf("%s contains %s", path, one.name)
			}
		}
		return err
	})
	if err != nil {
		u.t.Error(err)
	}
}

// mayHave reports whether a file is one of the places of a secret.
func (u *user) mayHave(path string, of secret) bool {
	for _, place := range of.places {
		if matches, err := filepath.Match(filepath.Join(u.home, place), path); err == nil && matches {
			return true
		}
	}
	return false
}

// storedSecrets returns the secrets in the plaintext file of a user: the wallet's key, the API key and the TAN.
func (u *user) storedSecrets() (secrets []secret) {
	u.t.Helper()
	content, err := os.ReadFile(filepath.Join(u.home, "secrets.json"))
	testkit.NoError(u.t, err)
	var stored map[string]string
	if err := json.Unmarshal(content, &stored); err != nil || len(stored) != 3 {
		u.t.Fatalf("there are %d secrets (%v), want the wallet's key, the API key and the TAN", len(stored), err)
	}
	for name, text := range stored {
		secrets = append(secrets, secret{strings.Fields(name)[0], text, keyPlaces})
	}
	return secrets
}

// secretsAreHidden: no key is in what was printed, nor in a file but the one for secrets.
func (u *user) secretsAreHidden() {
	u.t.Helper()
	u.hides(u.storedSecrets())
}
