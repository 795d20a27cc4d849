package server

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"math/big"
	"regexp"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/parley-chat/parley/payment"
	"github.com/parley-chat/parley/store"
)

// Secret is a secret of the servers that is not in the database. API keys and TANs are derived from it: see [derivation].
type Secret [32]byte

// derive returns 32 bytes for a purpose. All parts but the last one have fixed lengths, or end with a zero byte.
func (s Secret) derive(purpose string, parts ...string) []byte {
	mixed := hmac.New(sha256.New, s[:])
	_, _ = mixed.Write([]byte("parley " + purpose + "\x00" + strings.Join(parts, "")))
	return mixed.Sum(nil)
}

// name tells the few secrets of a server apart.
func (s Secret) name() string { return hex.EncodeToString(s.derive("name")[:4]) }

// hashTAN is the hash that the database stores. Without a secret whoever reads the database could find the TAN by trying.
func (s Secret) hashTAN(username, tan string) []byte {
	return s.derive("TAN hash", username, "\x00", tan)
}

// hashesOfTAN are those of all secrets. The first one is stored.
func (s *Server) hashesOfTAN(username, tan string) [][]byte {
	return each(s.config.Secrets, func(secret Secret) []byte { return secret.hashTAN(username, tan) })
}

// derivation makes the API key or the TAN that a payment buys. The ledger stores the salt and the name of the secret in place of it, until
// it is used or ten minutes are over: then nobody can derive it any more. Whoever has only the database opens no account.
type derivation struct {
	secret  Secret
	payment uuid.UUID
	salt    string // 128 bits, in hex
}

func newDerivation(secret Secret, payment uuid.UUID) derivation {
	var salt [16]byte
	_, _ = rand.Read(salt[:])
	return derivation{secret, payment, hex.EncodeToString(salt[:])}
}

func (d derivation) derive(purpose string) []byte {
	return d.secret.derive(purpose, string(d.payment[:]), d.salt)
}

func (d derivation) apiKey() string {
	body := keyPrefix + encode62(new(big.Int).SetBytes(d.derive("API key")), keyLength)
	return body + keyChecksum(body)
}

// tan has 8 characters of Crockford base32: 40 bits, enough for ten minutes and few tries.
func (d derivation) tan() string {
	text := d.derive("TAN")[:8]
	for i, b := range text {
		text[i] = crockford[b&31]
	}
	return strings.ToUpper(string(text))
}

// stored is what the ledger stores in place of what is derived.
func (d derivation) stored() []byte { return []byte("derived:" + d.secret.name() + d.salt) }

var storedDerivation = regexp.MustCompile(`"(tan|api_key)":"(derived:([0-9a-f]{8})([0-9a-f]{32}))"`)

// withoutSecrets returns a response with a TAN or an API key as the ledger stores it.
func (d derivation) withoutSecrets(response []byte) []byte {
	response = bytes.ReplaceAll(response, []byte(d.tan()), d.stored())
	return bytes.ReplaceAll(response, []byte(d.apiKey()), d.stored())
}

var errNoSecret = errors.New("the secret that this response was derived from is not there")

// withSecrets undoes withoutSecrets. If the secret is not there, another server has it, and the payer must not pay again.
func (s *Server) withSecrets(ctx context.Context, of uuid.UUID, stored []byte) ([]byte, error) {
	found := storedDerivation.FindSubmatch(stored)
	if found == nil {
		return stored, nil
	}
	i := slices.IndexFunc(s.config.Secrets, func(secret Secret) bool { return secret.name() == string(found[3]) })
	if i < 0 {
		s.log.ErrorContext(ctx, "a response cannot be repeated: all servers of a database need the same --server-secret, "+
			"with former ones for ten minutes", "payment_id", of.String())
		return nil, payment.OutcomeUnknown(errNoSecret)
	}
	d := derivation{s.config.Secrets[i], of, string(found[4])}
	value := d.tan()
	if string(found[1]) == "api_key" {
		value = d.apiKey()
	}
	return bytes.Replace(stored, found[2], []byte(value), 1), nil
}

// repeat makes a response again from what the ledger stored of it.
func (s *Server) repeat(ctx context.Context, delivered *store.Payment, stored []byte) ([]byte, error) {
	if s.byID[delivered.Operation].Secret {
		return s.withSecrets(ctx, delivered.ID, stored)
	}
	return s.repeatPage(ctx, stored, delivered.UpdatedAt)
}
