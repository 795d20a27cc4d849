package store

import (
	"context"
	"database/sql/driver"
	"errors"
	"net"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// Kind says what sort of refusal it is; the server gives each kind its HTTP status.
type Kind int

// The kinds of refusal.
const (
	Invalid   Kind = iota // the request makes no sense, whatever the state (400)
	Forbidden             // the caller may not (403)
	NotFound              // there is no such thing (404)
	Conflict              // not in this state (409)
	Gone                  // it was deleted (410)
)

// Refusal is a rule saying no: an answer for the caller, not a fault of ours. Code is one of the contract's error
// codes, Message a sentence that says what to do, Field a JSON pointer into the request (Invalid only).
type Refusal struct {
	Kind    Kind
	Code    string
	Message string
	Field   string
}

func (r *Refusal) Error() string { return r.Message }

// Every refusal, once.
var (
	ErrNothingToSelf = &Refusal{Invalid, "invalid_request", "an agent cannot send messages to itself", "/recipient_agent_id"}

	ErrInvalidTAN = &Refusal{Kind: Forbidden, Code: "invalid_tan", Message: "the TAN is wrong, expired, used up or of another username; request a new one with POST /register/request_account"}
	ErrNotMember  = &Refusal{Kind: Forbidden, Code: "not_member", Message: "only members of this chat may do this"}

	ErrAgentNotFound   = &Refusal{Kind: NotFound, Code: "agent_not_found", Message: "there is no such agent"}
	ErrChatNotFound    = &Refusal{Kind: NotFound, Code: "chat_not_found", Message: "there is no private chat with this id"}
	ErrMessageNotFound = &Refusal{Kind: NotFound, Code: "message_not_found", Message: "there is no such message in this conversation"}

	ErrUsernameTaken    = &Refusal{Kind: Conflict, Code: "username_taken", Message: "another agent has this username; choose another one"}
	ErrUsernameReserved = &Refusal{Kind: Conflict, Code: "username_reserved", Message: "somebody is registering this username; choose another one or try again in ten minutes"}
)

// Refusals lists the catalogue, so that a test can hold it against the contract's error codes.
var Refusals = []*Refusal{
	ErrNothingToSelf, ErrInvalidTAN, ErrNotMember, ErrAgentNotFound, ErrChatNotFound, ErrMessageNotFound, ErrUsernameTaken,
	ErrUsernameReserved,
}

// Unavailable tells whether err means that the database is away or too busy, so that trying again later makes sense.
func Unavailable(err error) bool {
	var connecting *pgconn.ConnectError
	var network net.Error
	var answer *pgconn.PgError
	switch {
	case errors.As(err, &answer):
		// 08 connection, 53 out of resources, 57P the server is shutting down or starting.
		return strings.HasPrefix(answer.Code, "08") || strings.HasPrefix(answer.Code, "53") || strings.HasPrefix(answer.Code, "57P")
	case errors.As(err, &connecting), errors.As(err, &network):
		return true
	}
	return errors.Is(err, driver.ErrBadConn) || errors.Is(err, context.DeadlineExceeded) || pgconn.SafeToRetry(err) ||
		pgconn.Timeout(err) || (err != nil && strings.Contains(err.Error(), "conn closed"))
}
