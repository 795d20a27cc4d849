// Package cdp authenticates requests to APIs of the Coinbase Developer Platform, such as its x402 facilitator, with an API key. Each
// request carries a token of its own. The form of the token follows generateJwt of the official @coinbase/cdp-sdk.
package cdp

import (
	"context"
	"crypto"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// lifetime is how long a token is valid.
const lifetime = 2 * time.Minute

// Key is an API key. It is safe for concurrent use.
type Key struct {
	id     string
	method jwt.SigningMethod
	key    crypto.Signer
}

var errSecret = errors.New("the secret of the API key must be base64 of 64 bytes (Ed25519), or an EC private key for P-256 in PEM")

// ParseKey reads the id and the secret of an API key in one of the two forms that the platform issues: Ed25519, as base64 of 64
// bytes, or ECDSA with P-256, as PEM. Line breaks of PEM may be written as \n. The error does not contain the secret.
func ParseKey(id, secret string) (*Key, error) {
	if id == "" {
		return nil, errors.New("the id of the API key is missing")
	}
	if raw, err := base64.StdEncoding.DecodeString(strings.TrimSpace(secret)); err == nil && len(raw) == ed25519.PrivateKeySize {
		key := ed25519.NewKeyFromSeed(raw[:ed25519.SeedSize])
		if !key.Equal(ed25519.PrivateKey(raw)) {
			return nil, errSecret
		}
		return &Key{id, jwt.SigningMethodEdDSA, key}, nil
	}
	key, err := jwt.ParseECPrivateKeyFromPEM([]byte(strings.ReplaceAll(secret, `\n`, "\n")))
	if err != nil || key.Curve != elliptic.P256() {
		return nil, errSecret
	}
	return &Key{id, jwt.SigningMethodES256, key}, nil
}

// Token returns a token for one request: method, and host and path of the URL.
func (k *Key) Token(method string, target *url.URL, now time.Time) (string, error) {
	var nonce [16]byte
	_, _ = rand.Read(nonce[:])
	token := jwt.NewWithClaims(k.method, jwt.MapClaims{
		"sub": k.id, "iss": "cdp", "uris": []string{method + " " + target.Host + target.Path},
		"iat": now.Unix(), "nbf": now.Unix(), "exp": now.Add(lifetime).Unix(),
	})
	token.Header["kid"], token.Header["nonce"] = k.id, hex.EncodeToString(nonce[:])
	return token.SignedString(k.key)
}

// FacilitatorHeaders returns the function that x402.Facilitator calls for the headers of each request.
func (k *Key) FacilitatorHeaders(baseURL string) func(context.Context, string) (http.Header, error) {
	return func(_ context.Context, endpoint string) (http.Header, error) {
		target, err := url.Parse(baseURL + "/" + endpoint)
		if err != nil {
			return nil, fmt.Errorf("facilitator URL: %w", err)
		}
		method := http.MethodPost
		if endpoint == "supported" {
			method = http.MethodGet
		}
		token, err := k.Token(method, target, time.Now())
		if err != nil {
			return nil, fmt.Errorf("sign the token for %s: %w", endpoint, err)
		}
		return http.Header{"Authorization": {"Bearer " + token}}, nil
	}
}
