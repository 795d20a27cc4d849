package cdp_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/golang-jwt/jwt/v5"

	"github.com/parley-chat/parley/internal/cdp"
	"github.com/parley-chat/parley/internal/testkit"
)

type headersFunc = func(context.Context, string) (http.Header, error)

const keyID = "0f3cd3c8-1111-4222-8333-444455556666"

// secrets returns API keys in all forms that the platform issues, with their public keys.
func secrets(t *testing.T) map[string]struct {
	text, alg string
	public    any
} {
	t.Helper()
	edPublic, edPrivate, err := ed25519.GenerateKey(rand.Reader)
	testkit.NoError(t, err)
	ec, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	testkit.NoError(t, err)
	sec1, err := x509.MarshalECPrivateKey(ec)
	testkit.NoError(t, err)
	pkcs8, err := x509.MarshalPKCS8PrivateKey(ec)
	testkit.NoError(t, err)
	ecPEM := string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: sec1}))
	return map[string]struct {
		text, alg string
		public    any
	}{
		"Ed25519":              {base64.StdEncoding.EncodeToString(edPrivate), "EdDSA", edPublic},
		"EC":                   {ecPEM, "ES256", &ec.PublicKey},
		"EC with escaped ends": {strings.ReplaceAll(ecPEM, "\n", `\n`), "ES256", &ec.PublicKey},
		"PKCS 8":               {string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8})), "ES256", &ec.PublicKey},
	}
}

func TestFacilitatorHeaders(t *testing.T) {
	t.Parallel()
	for name, secret := range secrets(t) {
		key, err := cdp.ParseKey(keyID, secret.text)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		headers := key.FacilitatorHeaders("https://api.example/platform/v2/x402")
		for endpoint, uri := range map[string]string{
			"verify":    "POST api.example/platform/v2/x402/verify",
			"settle":    "POST api.example/platform/v2/x402/settle",
			"supported": "GET api.example/platform/v2/x402/supported",
		} {
			checkToken(t, name, headers, endpoint, uri, secret.alg, secret.public)
		}
	}
}

// checkToken compares a token with what the official generateJwt makes.
func checkToken(t *testing.T, name string, headers headersFunc, endpoint, uri, alg string, public any) {
	t.Helper()
	header, err := headers(t.Context(), endpoint)
	if err != nil {
		t.Fatalf("%s, %s: %v", name, endpoint, err)
	}
	text, found := strings.CutPrefix(header.Get("Authorization"), "Bearer ")
	if !found {
		t.Fatalf("%s, %s: the header is %v", name, endpoint, header)
	}
	claims := jwt.MapClaims{}
	token, err := jwt.ParseWithClaims(text, claims, func(*jwt.Token) (any, error) { return public, nil },
		jwt.WithValidMethods([]string{alg}), jwt.WithIssuer("cdp"), jwt.WithSubject(keyID), jwt.WithExpirationRequired())
	if err != nil {
		t.Fatalf("%s, %s: %v", name, endpoint, err)
	}
	if got := slices.Sorted(maps.Keys(token.Header)); !slices.Equal(got, []string{"alg", "kid", "nonce", "typ"}) ||
		token.Header["kid"] != keyID {
		t.Errorf("%s, %s: the token's header is %v", name, endpoint, token.Header)
	}
	if got := slices.Sorted(maps.Keys(claims)); !slices.Equal(got, []string{"exp", "iat", "iss", "nbf", "sub", "uris"}) {
		t.Errorf("%s, %s: the claims are %v", name, endpoint, got)
	}
	if uris, ok := claims["uris"].([]any); !ok || len(uris) != 1 || uris[0] != uri {
		t.Errorf("%s, %s: uris is %v, want %s", name, endpoint, claims["uris"], uri)
	}
	if lives := claims["exp"].(float64) - claims["iat"].(float64); lives != 120 {
		t.Errorf("%s, %s: the token lives for %v s, want 120", name, endpoint, lives)
	}
}

func TestParseKeyRejects(t *testing.T) {
	t.Parallel()
	wrongHalf := make([]byte, ed25519.PrivateKeySize)
	p384, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	testkit.NoError(t, err)
	der, err := x509.MarshalECPrivateKey(p384)
	testkit.NoError(t, err)
	for name, secret := range map[string]string{
		"nothing":                     "",
		"text":                        "hunter2-hunter2",
		"32 bytes":                    base64.StdEncoding.EncodeToString(make([]byte, 32)),
		"halves that do not fit":      base64.StdEncoding.EncodeToString(wrongHalf),
		"another curve":               string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})),
		"a certificate, not a secret": "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
	} {
		if _, err := cdp.ParseKey(keyID, secret); err == nil {
			t.Errorf("%s: accepted", name)
		} else if len(secret) > 8 && strings.Contains(err.Error(), secret[:8]) {
			t.Errorf("%s: the error quotes the secret: %v", name, err)
		}
	}
	if _, err := cdp.ParseKey("", "x"); err == nil {
		t.Error("a key without id was accepted")
	}
}
