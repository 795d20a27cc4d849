package server

import (
	"context"
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

// needsKey is the header WWW-Authenticate of operations with an account. No registered scheme sends a key in a header of its own.
const needsKey = `ApiKey realm="parley", header="X-API-KEY"`

// rotateKey is the only operation that accepts the replaced key, to repeat its stored response.
const rotateKey = "rotateKey"

var (
	errNoKey      = keyProblem("no API key")
	errInvalidKey = keyProblem("this is no API key of an account")
)

func keyProblem(what string) *problem {
	return &problem{status: http.StatusUnauthorized, code: gen.ErrorCodeInvalidAPIKey,
		message: what + "; send the newest API key of your account in the X-API-KEY header; without an account, register with POST " +
			"/register/request_account and then POST /register/create_account, which returns a key"}
}

var errReplacedKey = &problem{status: http.StatusUnauthorized, code: gen.ErrorCodeInvalidAPIKey,
	message: "this API key was replaced by POST /agent/rotate_key; send the newest API key of your account in the X-API-KEY header"}

// authenticate finds the agent of the API key, unless the operation needs none.
func (s *Server) authenticate(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		operation := operationFrom(c)
		if operation == nil || !operation.Account {
			return next(c)
		}
		ctx, key := c.Request().Context(), c.Request().Header.Get("X-API-KEY")
		agent, err := s.agentByKey(ctx, key)
		replaced := false
		switch {
		case err == nil && agent.KeyPayment != nil:
			// The key is in use, so its response arrived. Nobody needs the stored response or the key before it any more.
			err = s.store.KeyUsed(ctx, agent)
		case errors.Is(err, store.ErrAgentNotFound):
			replaced = true
			agent, err = s.store.AgentByPreviousKey(ctx, key)
			if err == nil && (operation.ID != rotateKey || agent.KeyPayment == nil) { // or the new key arrived: it was used
				return errReplacedKey
			}
		}
		switch {
		case errors.Is(err, store.ErrAgentNotFound):
			return errInvalidKey
		case err != nil:
			return err
		case agent.Suspended != nil && !operation.paid():
			return suspended(agent)
		}
		record := recordFrom(c)
		record.agentID, record.caller, record.keyReplaced = formatID(agentPrefix, agent.ID), agent, replaced
		err = next(c)
		if !replaced {
			return err
		}
		// A replaced key is invalid, with one exception: an agent that lost the response with its new key would lose
		// its account. So the payment of that rotation, sent again, returns the stored response, or the error says which
		// payment does. Everything else ends as with other operations.
		if refused, ok := errors.AsType[*payment.Error](err); err == nil || ok && (refused.Code == payment.CodeProof || refused.Correction) {
			return err
		}
		if status := problemOf(err).status; status == http.StatusTooManyRequests || status >= http.StatusInternalServerError {
			return err
		}
		return errReplacedKey
	}
}

// agentByKey returns the agent of a current API key. A key with a wrong checksum causes no database query.
func (s *Server) agentByKey(ctx context.Context, key string) (*store.Agent, error) {
	switch {
	case key == "":
		return nil, errNoKey
	case !wellFormedKey(key):
		return nil, errInvalidKey
	}
	return s.store.AgentByKey(ctx, key)
}

// suspended is the refusal for a suspended agent, with what the operator tells it.
func suspended(agent *store.Agent) error {
	refusal := *store.ErrSuspended
	if *agent.Suspended != "" {
		refusal.Message += ": " + *agent.Suspended
	}
	return &refusal
}

// An API key is "parley_", 256 bits in base62 (43 characters) and a checksum (6 characters). The checksum lets
// secret scanners and authenticate tell a key from a typing error.
const (
	keyPrefix   = "parley_"
	keyLength   = 43
	checkLength = 6
	base62      = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
)

func wellFormedKey(key string) bool {
	body := key[:max(0, len(key)-checkLength)]
	return len(body) == len(keyPrefix)+keyLength && strings.HasPrefix(body, keyPrefix) && keyChecksum(body) == key[len(body):]
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
