package server

import (
	"crypto/rand"
	"errors"
	"hash/crc32"
	"math/big"
	"net/http"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/parley-chat/parley/gen"
	"github.com/parley-chat/parley/payment"
	"github.com/parley-chat/parley/store"
)

// rotateKey is the only operation that accepts the replaced key, to repeat its stored response.
const rotateKey = "rotateKey"

var errInvalidKey = &problem{status: http.StatusUnauthorized, code: gen.ErrorCodeInvalidAPIKey,
	message: "missing or invalid API key; send the API key of your account, which POST /register/create_account returned, in the X-API-KEY header"}

var errReplacedKey = &problem{status: http.StatusUnauthorized, code: gen.ErrorCodeInvalidAPIKey,
	message: "this API key was replaced by POST /agent/rotate_key; send the newest API key of your account in the X-API-KEY header"}

// authenticate finds the agent of the API key, unless the operation needs none.
func (s *Server) authenticate(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		operation := operationFrom(c)
		if operation == nil || !operation.Account {
			return next(c)
		}
		key := c.Request().Header.Get("X-API-KEY")
		if !wellFormedKey(key) { // the checksum is wrong: no database query
			return errInvalidKey
		}
		ctx := c.Request().Context()
		agent, err := s.store.AgentByKey(ctx, key)
		replaced := errors.Is(err, store.ErrAgentNotFound)
		if replaced {
			agent, err = s.store.AgentByPreviousKey(ctx, key)
		}
		switch {
		case errors.Is(err, store.ErrAgentNotFound):
			return errInvalidKey
		case err == nil && replaced && (operation.ID != rotateKey || agent.KeyPayment == nil): // or the new key arrived: it was used
			return errReplacedKey
		case err == nil && !replaced && agent.KeyPayment != nil:
			// The key is in use, so its response arrived. Nobody needs the stored response or the key before it any
			// more.
			err = s.store.KeyUsed(ctx, agent)
		}
		if err != nil {
			return err
		}
		if agent.Suspended != nil && !operation.paid() {
			return suspended(agent)
		}
		record := recordFrom(c)
		record.agentID, record.caller, record.keyReplaced = formatID(agentPrefix, agent.ID), agent, replaced
		if !replaced {
			return next(c)
		}
		// A replaced key is invalid, with one exception: an agent that lost the response with its new key would lose
		// its account. So the payment of that rotation, sent again, returns the stored response, or the error says which
		// payment does. Everything else ends as with other operations.
		err = next(c)
		if refused, ok := errors.AsType[*payment.Error](err); err == nil || ok && (refused.Code == payment.CodeProof || refused.Correction) {
			return err
		}
		if status := problemOf(err).status; status == http.StatusTooManyRequests || status >= http.StatusInternalServerError {
			return err
		}
		return errReplacedKey
	}
}

// suspended is the refusal for a suspended agent, with what the operator tells it.
func suspended(agent *store.Agent) error {
	refusal := *store.ErrSuspended
	if *agent.Suspended != "" {
		refusal.Message += ": " + *agent.Suspended
	}
	return &refusal
}

// An API key is "parley_", 256 random bits in base62 (43 characters) and a checksum (6 characters). The checksum lets
// secret scanners and authenticate tell a key from a typing error.
const (
	keyPrefix   = "parley_"
	keyLength   = 43
	checkLength = 6
	base62      = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
)

func newKey() string {
	var secret [32]byte
	_, _ = rand.Read(secret[:])
	body := keyPrefix + encode62(new(big.Int).SetBytes(secret[:]), keyLength)
	return body + keyChecksum(body)
}

func wellFormedKey(key string) bool {
	if len(key) != len(keyPrefix)+keyLength+checkLength || !strings.HasPrefix(key, keyPrefix) {
		return false
	}
	body := key[:len(key)-checkLength]
	return keyChecksum(body) == key[len(body):]
}

func keyChecksum(body string) string {
	return encode62(new(big.Int).SetUint64(uint64(crc32.ChecksumIEEE([]byte(body)))), checkLength)
}

func encode62(number *big.Int, length int) string {
	text := make([]byte, length)
	digit, base := new(big.Int), big.NewInt(int64(len(base62)))
	for i := length - 1; i >= 0; i-- {
		number.DivMod(number, base, digit)
		text[i] = base62[digit.Int64()]
	}
	return string(text)
}

// newTAN returns 8 characters of Crockford base32: 40 bits, enough for ten minutes and few tries.
func newTAN() string {
	var random [8]byte
	_, _ = rand.Read(random[:])
	for i, b := range random {
		random[i] = crockford[b&31]
	}
	return strings.ToUpper(string(random[:]))
}
